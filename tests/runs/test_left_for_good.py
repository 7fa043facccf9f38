"""Whoever withdrew stays out of every later run on the ledger, until they consent again."""

import json

import numpy as np
import pytest

from ipate import PATEClassifier
from ipate.allocation.allocation import Allocation
from ipate.engines.teachers.engine import Teachers
from ipate.errors import InputError, IpateError
from ipate.ledger.sqlite import SqliteLedger
from ipate.report.letter import letter
from ipate.report.statement import sentences
from ipate.runs import withdrawal as leaving
from ipate.runs.ledgers import ledger_path
from ipate.runs.stages import allocated
from ipate.runs.statements import state
from ipate.runs.withdrawal import readmit, withdrawals
from runs.leaving import StoppedError, begin, go_on, leave, spent, votes_of


def kept(folder):
    return Allocation.load(folder.private / "allocation.npz")


def somebody(folder):
    """Return a person of the group high with two rows."""
    people = allocated(folder).people
    return next(
        name for name in people.ids.tolist() if len(people.rows_of(name)) == 2 and people.group_of(name).id == "high"
    )


def is_out(folder, person):
    allocation = kept(folder)
    return allocation.people.index_of(person) in allocation.withdrawn


def runs_of(folder, person):
    with SqliteLedger.read(ledger_path(folder)) as ledger:
        return [record.run for record in ledger.person(person)]


def readmitted(folder, person):
    with folder.locked():
        return readmit(folder, allocated(folder), person)


@pytest.mark.parametrize("voting", ["teachers", "ballots", "vanishing"])
def test_later_run_leaves_out_whoever_withdrew(tmp_path, voting):
    april = begin(tmp_path, "april", max_labels=5)
    go_on(april)
    person = somebody(april)
    when = leave(april, person).when
    paid = spent(april, person)
    more = {"variant": "vanishing"} if voting == "vanishing" else {"voting": voting}
    may = begin(tmp_path, "may", **({"max_labels": 5} if voting != "ballots" else {}), **more)
    go_on(may)
    assert ledger_path(may) == ledger_path(april)
    assert is_out(may, person)
    assert spent(may, person) == paid > 0
    assert runs_of(may, person) == [april.id]
    assert not withdrawals(may)
    with SqliteLedger.read(ledger_path(may)) as ledger:
        assert ledger.runs == (april.id, may.id)
    statement = state(may, person)
    assert statement.withdrawn[:10] == when[:10]
    assert any(said.startswith("They withdrew on") for said in sentences(statement))
    assert "You withdrew on" in letter(statement, date="2026-11-18")


def test_nothing_public_of_later_run_shows_the_withdrawal(tmp_path, caplog):
    """Ballots cost the same whatever they say, so all figures of a second run can be compared."""
    caplog.set_level("INFO")
    stated = []
    for name in ("left", "stayed"):
        (tmp_path / name).mkdir()
        first = begin(tmp_path / name, "april", voting="ballots")
        go_on(first)
        if name == "left":
            leave(first, somebody(first))
        caplog.clear()
        second = begin(tmp_path / name, "may", voting="ballots")
        record = go_on(second).record
        guarantee = json.loads((second.public / "guarantee.json").read_text())
        report = json.loads((second.public / "report.json").read_text())["publishable"]
        head = guarantee.pop("ledger_head").split(":")[:2]
        stated.append((record.groups, record.ballots, guarantee, head, report["data"], caplog.messages))
    assert stated[0] == stated[1]
    assert stated[0][4]["withdrawn"] == 0


def test_unfinished_run_is_resumed_without_whoever_withdrew(tmp_path, monkeypatch):
    april = begin(tmp_path, "april", max_labels=3)
    go_on(april)
    may = begin(tmp_path, "may", split_seed=0, sigma=3.0)
    go_on(may, until=12, monkeypatch=monkeypatch)  # the first points may have answers of April, which cost nothing
    person = somebody(may)
    teachers = kept(may).teachers_of(kept(may).people.index_of(person))
    leave(april, person)
    owed = spent(may, person)
    held = np.lib.format.open_memmap(may.private / "votes" / "votes.npy", mode="r+")
    held[list(teachers)] = 1  # if these votes were used, they would stay
    held.flush()
    summary = go_on(may)
    assert is_out(may, person)
    assert spent(may, person) == pytest.approx(owed, rel=1e-12)
    assert summary.record.n_queries > 12
    (entry,) = withdrawals(may)
    assert (entry.person, entry.teachers, entry.labelling) == (person, teachers, "begun")
    assert not votes_of(may)[0][list(teachers)].all()
    assert runs_of(may, person) == [april.id, may.id]


def test_withdrawal_during_training_is_noticed_before_a_charge(tmp_path, monkeypatch):
    april = begin(tmp_path, "april", max_labels=3)
    go_on(april)
    person = somebody(april)
    may = begin(tmp_path, "may", max_labels=3)
    inner = Teachers.prepare

    def train(*given):
        found = inner(*given)
        leave(april, person)
        return found

    monkeypatch.setattr(Teachers, "prepare", train)
    with pytest.raises(IpateError, match="has withdrawn; nothing was charged"):
        go_on(may)
    monkeypatch.undo()
    assert runs_of(april, person) == [april.id]
    go_on(may)
    assert is_out(may, person)
    assert runs_of(may, person) == [april.id]


def test_interrupted_record_of_the_ledger_completes_the_withdrawal(tmp_path, monkeypatch):
    april = begin(tmp_path, "april", max_labels=3)
    go_on(april)
    person = somebody(april)

    def die(*_):
        raise StoppedError

    monkeypatch.setattr(leaving, "_keep", die)
    with pytest.raises(StoppedError):
        leave(april, person)
    monkeypatch.undo()
    assert not withdrawals(april)
    go_on(april)
    (entry,) = withdrawals(april)
    assert (entry.person, entry.labelling) == (person, "complete")
    assert is_out(april, person)


def test_withdrawal_before_first_charge_reaches_other_runs(tmp_path):
    april = begin(tmp_path, "april", max_labels=3)
    person = somebody(april)
    leave(april, person)
    may = begin(tmp_path, "may", max_labels=3)
    go_on(may)
    assert is_out(may, person)
    go_on(april)
    assert ledger_path(april) == ledger_path(may)
    with SqliteLedger.read(ledger_path(may)) as ledger, pytest.raises(InputError, match="nobody"):
        ledger.person(person)


def test_new_ledger_receives_withdrawals_of_its_first_run(tmp_path):
    april = begin(tmp_path, "april", max_labels=3, fresh_ledger=True)
    person = somebody(april)
    leave(april, person)
    go_on(april)
    assert set(SqliteLedger.withdrawals(ledger_path(april)).withdrawn) == {person}
    fresh = begin(tmp_path, "june", max_labels=3, fresh_ledger=True)  # another ledger, which knows of nobody's leaving
    go_on(fresh)
    assert ledger_path(fresh) != ledger_path(april)
    assert not is_out(fresh, person)


def test_new_ledger_has_withdrawals_before_first_charge(tmp_path, monkeypatch):
    april = begin(tmp_path, "april", fresh_ledger=True)
    person = somebody(april)
    leave(april, person)
    go_on(april, until=4, monkeypatch=monkeypatch)  # killed while it labels, and not resumed before the next run
    may = begin(tmp_path, "may", max_labels=3, sigma=3.0)
    go_on(may)
    assert ledger_path(april) == ledger_path(may)
    assert is_out(may, person)


def test_new_consent_stays_recorded_when_run_resumes(tmp_path, monkeypatch):
    april = begin(tmp_path, "april", fresh_ledger=True)
    person = somebody(april)
    leave(april, person)
    go_on(april, until=4, monkeypatch=monkeypatch)
    readmitted(april, person)
    go_on(april)
    assert not SqliteLedger.withdrawals(ledger_path(april)).withdrawn
    assert is_out(april, person)


def test_person_who_consents_again_is_in_later_runs_only(tmp_path, monkeypatch):
    april = begin(tmp_path, "april", max_labels=3)
    go_on(april)
    may = begin(tmp_path, "may", sigma=3.0)
    go_on(may, until=4, monkeypatch=monkeypatch)
    person = somebody(april)
    with pytest.raises(InputError, match="has not withdrawn from the ledger"):
        readmitted(april, person)
    leave(april, person)
    readmitted(april, person)
    june = begin(tmp_path, "june", max_labels=3, sigma=4.0)
    go_on(june)
    assert not is_out(june, person)
    assert june.id in runs_of(june, person)
    assert state(june, person).withdrawn is None
    go_on(april)
    for earlier in (april, may):  # began before the withdrawal
        assert leave_is_refused(earlier, person)


def leave_is_refused(folder, person):
    allocation = allocated(folder)
    with folder.locked(), pytest.raises(InputError, match="has withdrawn already on 20"):
        leaving.withdraw(folder, allocation, person)
    return is_out(folder, person)


@pytest.mark.parametrize("voting", ["teachers", "ballots"])
def test_fit_leaves_out_whoever_withdrew_from_its_ledger(tmp_path, voting):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=400)
    X = rng.normal(size=(400, 2)) + 2 * y[:, None]
    ids = [f"p{row}" for row in range(300)]
    SqliteLedger.withdraw(tmp_path / "l.sqlite", ["p7"])
    model = PATEClassifier(ledger=tmp_path / "l.sqlite", voting=voting, classes=[0, 1], n_teachers="auto", n_jobs=1)
    model.fit(X[:300], y[:300], budgets=np.full(300, 20.0), person_id=ids, X_public=X[300:])
    assert [model.allocation_.people.ids[index] for index in model.allocation_.withdrawn] == ["p7"]
    with SqliteLedger.read(tmp_path / "l.sqlite") as book:
        assert book.person("p8")
        with pytest.raises(InputError, match="nobody in this ledger"):
            book.person("p7")
    (group,) = model.guarantees_
    assert group.group.people == 300
