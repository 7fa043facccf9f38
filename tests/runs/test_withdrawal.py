"""Withdrawal from a run: the place stays empty, nobody else moves, and earlier releases stay charged."""

import json

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from ipate.allocation.allocation import Allocation
from ipate.engines.teachers.engine import Teachers
from ipate.errors import InputError, IpateError
from ipate.ledger.finding import LEDGER
from ipate.ledger.sqlite import SqliteLedger
from ipate.release.answers import paid_answers
from ipate.runs.ledgers import ledger_path
from ipate.runs.reporting import write_report
from ipate.runs.stages import allocated
from ipate.runs.task import prepare
from ipate.runs.withdrawal import withdrawals
from runs.leaving import StoppedError, begin, go_on, leave, people_file, spent, votes_of


def kept(folder):
    return Allocation.load(folder.private / "allocation.npz")


def somebody(folder, *, rows=1, group="high"):
    """Return a person of the private part with this number of rows."""
    people = kept(folder).people
    return next(
        name for name in people.ids.tolist() if len(people.rows_of(name)) == rows and people.group_of(name).id == group
    )


@pytest.fixture
def trained(monkeypatch):
    """Return a function that starts to record which teachers are trained."""
    from ipate.models import training as ensemble

    inner, seen = ensemble._one_teacher, []

    def spy(task, **options):
        seen.append(task[0])
        return inner(task, **options)

    def watch():
        monkeypatch.setattr(ensemble, "_one_teacher", spy)
        return seen

    return watch


def test_withdrawal_before_training_empties_place_without_cost(tmp_path):
    folder = begin(tmp_path)
    before = allocated(folder)
    person = somebody(folder, rows=2)
    entry = leave(folder, person)
    after = kept(folder)
    assert not entry.trained
    assert entry.labelling == "not begun"
    assert (entry.labels, entry.checks, entry.epsilon) == (0, 0, 0.0)
    index = before.people.index_of(person)
    assert after.withdrawn == (index,)
    np.testing.assert_array_equal(after.persons, np.where(before.persons == index, -1, before.persons))
    summary = go_on(folder)
    assert summary.record.n_labels > 0
    with SqliteLedger.read(ledger_path(folder)) as ledger, pytest.raises(InputError, match=person):
        ledger.person(person)  # the person was never in an account


@pytest.mark.parametrize("variant", ["weighting", "upsampling", "vanishing"])
def test_withdrawal_retrains_only_teachers_of_that_person(tmp_path, monkeypatch, trained, variant):
    """Labelling is interrupted: released labels stay, and later queries are answered without the person."""
    folder = begin(tmp_path, variant=variant)
    go_on(folder, until=6, monkeypatch=monkeypatch)
    group = "low" if variant == "upsampling" else "high"  # low people have several copies there
    person, other = somebody(folder, rows=2, group=group), somebody(folder, rows=1, group=group)
    before, _ = votes_of(folder)
    owed = spent(folder, person)
    with SqliteLedger.read(ledger_path(folder)) as ledger:
        released = dict(paid_answers(ledger).answers)
    assert len(released) >= 6
    entry = leave(folder, person)
    assert entry.trained
    assert entry.labelling == "begun"
    assert len(entry.teachers) > 1 if variant == "upsampling" else len(entry.teachers) == 1
    erased, done = votes_of(folder)
    assert set(np.flatnonzero(~done)) == set(entry.teachers)
    assert not erased[list(entry.teachers)].any()
    seen = trained()
    summary = go_on(folder)
    assert sorted(seen) == sorted(entry.teachers)
    now, done = votes_of(folder)
    assert done.all()
    others = [teacher for teacher in range(len(now)) if teacher not in entry.teachers]
    np.testing.assert_array_equal(now[others], before[others])
    record = summary.record
    for query, (label, _, _) in released.items():
        assert record.labels[int(query)] == label
    assert record.n_queries > len(released)
    assert spent(folder, person) == pytest.approx(owed, rel=1e-12)
    if variant != "vanishing":
        assert spent(folder, other) > owed > 0
    for paid in record.groups:
        assert 0 < paid.cost <= paid.budget.epsilon


def test_retrained_teacher_excludes_rows_of_withdrawn_person(tmp_path, monkeypatch):
    folder = begin(tmp_path)
    go_on(folder, until=4, monkeypatch=monkeypatch)
    person = somebody(folder, rows=2)
    (teacher,) = leave(folder, person).teachers
    go_on(folder)
    task, allocation = prepare(folder.config), kept(folder)
    X, y = task.data.X[task.parts.private], task.data.y[task.parts.private]
    rows = allocation.rows_of_teacher(teacher)
    theirs = task.people.rows_of(person)
    assert len(theirs) == 2
    assert not set(rows) & set(theirs)
    expected = GaussianNB().fit(X[rows], y[rows]).predict(task.data.X[task.parts.public])
    np.testing.assert_array_equal(votes_of(folder)[0][teacher], expected)


@pytest.mark.parametrize("where", ["allocation", "votes"])
def test_interrupted_withdrawal_is_completed_before_next_release(tmp_path, monkeypatch, where):
    """The process ends after the record or after the allocation is written: old votes are never used again."""
    folder = begin(tmp_path)
    go_on(folder, until=4, monkeypatch=monkeypatch)
    person = somebody(folder)
    before, _ = votes_of(folder)

    def die(*_):
        raise StoppedError

    monkeypatch.setattr(f"ipate.runs.withdrawal.{'settle' if where == 'allocation' else '_erase'}", die)
    with pytest.raises(StoppedError):
        leave(folder, person)
    monkeypatch.undo()
    assert (kept(folder).withdrawn == ()) == (where == "allocation")
    assert votes_of(folder)[1].all()  # the teacher's old votes are still there
    held = np.lib.format.open_memmap(folder.private / "votes" / "votes.npy", mode="r+")
    held[kept(folder).teachers_of(kept(folder).people.index_of(person)) or withdrawals(folder)[0].teachers, :] ^= 1
    held.flush()  # if they were used, the comparison below would fail
    people_file(tmp_path / "people.csv", blank=[person])
    go_on(folder)
    (entry,) = withdrawals(folder)
    allocation = kept(folder)
    assert allocation.withdrawn == (allocation.people.index_of(person),)
    task = prepare(folder.config)
    rows = allocation.rows_of_teacher(entry.teachers[0])
    X, y = task.data.X[task.parts.private], task.data.y[task.parts.private]
    expected = GaussianNB().fit(X[rows], y[rows]).predict(task.data.X[task.parts.public])
    now, done = votes_of(folder)
    np.testing.assert_array_equal(now[entry.teachers[0]], expected)
    assert done.all()
    assert now.shape == before.shape


def test_only_rows_of_withdrawn_people_may_change(tmp_path, trained, monkeypatch):
    folder = begin(tmp_path)
    go_on(folder, until=4, monkeypatch=monkeypatch)
    person, other = somebody(folder), somebody(folder, rows=2)
    entry = leave(folder, person)
    people_file(tmp_path / "people.csv", blank=[person])
    seen = trained()
    go_on(folder, until=6, monkeypatch=monkeypatch)
    assert seen == list(entry.teachers)
    people_file(tmp_path / "people.csv", blank=[person, other])
    with pytest.raises(InputError, match="changed since it voted"):
        go_on(folder)


def test_unknown_person_and_second_withdrawal_are_refused(tmp_path):
    folder = begin(tmp_path)
    go_on(folder)
    with pytest.raises(InputError, match=r"'ada': nobody has this id among the .* pool or test data"):
        leave(folder, "ada")
    person = somebody(folder)
    entry = leave(folder, person)
    with pytest.raises(InputError, match=f"{person}' has withdrawn already on {entry.when[:10]}"):
        leave(folder, person)
    assert len(withdrawals(folder)) == 1


def test_withdrawal_after_completion_keeps_released_labels(tmp_path):
    folder = begin(tmp_path)
    first = go_on(folder)
    labels = (folder.public / "labels.csv").read_bytes()
    student = (folder.public / "student" / "model.skops").read_bytes()
    entry = leave(folder, somebody(folder))
    assert entry.labelling == "complete"
    assert (entry.labels, entry.checks) == (first.record.n_labels, first.record.n_queries)
    again = go_on(folder)
    assert again.record.queries == first.record.queries
    assert (folder.public / "labels.csv").read_bytes() == labels
    assert (folder.public / "student" / "model.skops").read_bytes() == student


@pytest.mark.parametrize("moment", ["begun", "complete"])
@pytest.mark.parametrize("shared", [False, True])
def test_public_report_counts_withdrawals_without_identifying_anyone(tmp_path, monkeypatch, moment, shared):
    """This also holds with an earlier run on the same ledger, whose cost is shown."""
    ledger = tmp_path / "shared.sqlite" if shared else None
    if shared:
        go_on(begin(tmp_path, "first", ledger=ledger, max_labels=2))
    folder = begin(tmp_path, ledger=ledger)
    go_on(folder, until=6 if moment == "begun" else None, monkeypatch=monkeypatch)
    person = somebody(folder, rows=2)
    with SqliteLedger.read(ledger_path(folder)) as book:
        opened = {
            name: float(terms.meter.epsilon(book.opening(name), terms.account.delta)[0])
            for name, terms in book.terms.items()
        }
        reused = len(book.inherited())
    entry = leave(folder, person)
    summary = go_on(folder)
    public = write_report(folder.path)
    text = public.html.read_text()
    assert "1 person withdrew" in text
    assert ("earlier runs" in text) == shared
    assert public.facts.released.reused_queries == reused
    for path in folder.public.rglob("*.*"):
        told = path.read_bytes()
        assert person.encode() not in told or path.suffix == ".skops"
        assert entry.when.encode() not in told
    stated = json.loads((folder.public / "guarantee.json").read_text())
    assert {group["group"]: group["spent_before"] for group in stated["groups"]} == pytest.approx(opened)
    assert any(opened.values()) == shared
    private = write_report(folder.path, audience="private").html.read_text()
    assert f"Person {person} (group high, withdrew {entry.when})" in private
    assert f"{entry.labels:,} labels and {entry.checks:,} checks had been released" in private
    assert summary.record.n_labels >= entry.labels


def test_report_reads_private_costs_from_the_ledger(tmp_path, monkeypatch):
    folder = begin(tmp_path, bound="exact")
    go_on(folder, until=6, monkeypatch=monkeypatch)
    entry = leave(folder, somebody(folder))
    assert entry.kind == "private"
    assert entry.told.labels is entry.told.epsilon is None
    summary = go_on(folder)
    leave(folder, somebody(folder, group="low"))
    report = write_report(folder.path, audience="private")
    facts = report.facts
    told = {group.id: group.cost for group in facts.owner.outcome.groups}
    assert told == pytest.approx({group.id: group.cost for group in summary.record.groups})
    assert str(entry.labels) in facts.owner.owed[0]


def test_empty_group_keeps_its_earlier_cost(tmp_path, monkeypatch):
    folder = begin(tmp_path)
    go_on(folder, until=4, monkeypatch=monkeypatch)
    allocation = kept(folder)
    low = [group.id for group in allocation.groups].index("low")
    everybody = tuple(np.flatnonzero(allocation.group_of_person == low).tolist())
    allocation.without(everybody).save(folder.private / "allocation.npz")
    with SqliteLedger.read(ledger_path(folder)) as ledger:
        before = ledger.spent("low")
    record = go_on(folder).record
    with SqliteLedger.read(ledger_path(folder)) as ledger:
        opening = ledger.spent("low") - ledger.charged_by(ledger.run, "low")
        np.testing.assert_allclose(opening, before, rtol=1e-12)
    assert all(group.cost <= group.budget.epsilon for group in record.groups)


def test_unreadable_withdrawal_record_stops_the_run(tmp_path):
    folder = begin(tmp_path)
    go_on(folder)
    leave(folder, somebody(folder))
    (folder.private / "withdrawals.json").write_text('{"withdrawals": [{"person": "x"}]}')
    with pytest.raises(InputError, match=r"withdrawals\.json: not readable"):
        go_on(folder)


def test_withdrawal_and_second_run_get_through_while_teachers_train(tmp_path, monkeypatch, trained):
    """The ledger is locked for the release alone: a withdrawal since the check refuses it, uncharged."""
    first, second = begin(tmp_path, "first", max_labels=5), begin(tmp_path, "second", max_labels=5)
    dealt = allocated(first)
    person, train = somebody(first, rows=1), Teachers._train
    teachers, other = dealt.teachers_of(dealt.people.index_of(person)), []

    def interrupted(self, run, *given):
        train(self, run, *given)
        monkeypatch.setattr(Teachers, "_train", train)
        other.append(go_on(second))
        LEDGER.withdraw(ledger_path(second), [person])

    monkeypatch.setattr(Teachers, "_train", interrupted)
    with pytest.raises(IpateError, match="has withdrawn; nothing was charged"):
        go_on(first)
    assert other[0].record.n_labels == 5
    assert not (first.private / "ledger.json").exists()
    seen = trained()
    found = go_on(first)
    assert found.record.n_labels == 5
    assert sorted(seen) == sorted(teachers)
    assert all(group.before > 0 for group in found.record.groups)
