"""The ledger of a run: balances carry over, rollbacks are refused, and labels are restored from charges."""

import json

import numpy as np
import pytest

from ipate.accounting.bounds import Meter
from ipate.errors import BudgetExceededError, InputError, IpateError
from ipate.ledger.sqlite import SqliteLedger
from ipate.release.answers import paid_answers
from ipate.runs.folder import RunFolder
from ipate.runs.ledgers import ledger_path, newest_head
from ipate.runs.listing import list_runs
from runs.making import config, labels, resumed, run

ALIKE = {"epsilon": 20.0, "policy": None, "shares": None}


def before(summary):
    return {group.id: group.before for group in summary.record.groups}


def cost(summary):
    return {group.id: group.cost for group in summary.record.groups}


def stored(path):
    with SqliteLedger.read(path) as book:
        return paid_answers(book).answers


def test_run_keeps_own_ledger_and_records_head(tmp_path):
    made = run(tmp_path / "a", labelling=labels(6))
    folder = RunFolder.open(tmp_path / "a")
    assert ledger_path(folder) == tmp_path / "a" / "private" / "ledger.sqlite"
    assert ledger_path(folder).stat().st_mode & 0o077 == 0
    with SqliteLedger.read(ledger_path(folder)) as book:
        assert (book.run, str(book.head)) == (folder.id, made.record.ledger_head)
        assert book.person("3")[0].group in ("high", "low")
        for group in made.record.groups:
            assert book.epsilon(group.id) == group.cost <= group.budget.epsilon
        assert {int(query) for query in paid_answers(book).answers} == set(made.record.queries)
    shown = json.loads((tmp_path / "a" / "public" / "guarantee.json").read_text())
    assert shown["ledger_head"] == made.record.ledger_head == str(newest_head(folder))
    assert set(made.allocation.members()) == {str(row) for row in made.task.parts.private}


def test_second_run_carries_balances_and_reuses_answers(tmp_path):
    ledger = tmp_path / "shared.sqlite"
    first = run(tmp_path / "a", ledger=ledger, labelling=labels(6))
    second = run(tmp_path / "b", ledger=ledger, labelling=labels(10))
    assert before(second) == pytest.approx(cost(first))
    assert second.record.n_labels == 10
    assert second.record.queries[: first.record.n_queries] == first.record.queries
    asked = list(first.record.queries)
    np.testing.assert_array_equal(second.record.labels[asked], first.record.labels[asked])
    for group in second.record.groups:
        assert cost(first)[group.id] < group.cost <= group.budget.epsilon
    alone = run(tmp_path / "alone", labelling=labels(10))
    assert before(alone) == {"high": 0.0, "low": 0.0}


def test_other_split_of_the_same_rows_is_refused(tmp_path):
    ledger = tmp_path / "shared.sqlite"
    run(tmp_path / "a", ledger=ledger, budgets=ALIKE, labelling=labels(4))
    for more in ({"split_seed": 4}, {"data": {"public": 400}}):
        with pytest.raises(InputError, match=r"were (protected|pool or test data) in an earlier run on this ledger"):
            run(tmp_path / f"b{len(more['data']) if 'data' in more else 0}", ledger=ledger, budgets=ALIKE, **more)


def _charged(summary, person):
    """Return μ² of a run's releases for one person, from public figures; 0 for people outside the run."""
    members = summary.allocation.members()
    if person not in members:
        return 0.0
    moved = next(group.sensitivity for group in summary.record.groups if group.id == members[person])
    used = summary.settings
    return moved**2 * (summary.record.n_queries / used.check_sigma**2 + 2 * summary.record.n_labels / used.sigma**2)


def test_exhausted_budget_is_refused_before_training(tmp_path):
    ledger = tmp_path / "shared.sqlite"
    run(tmp_path / "a", ledger=ledger)
    with pytest.raises(
        BudgetExceededError, match=r"group 'high' cannot pay for one more query: earlier runs spent ε = 5"
    ):
        run(tmp_path / "b", ledger=ledger)
    assert not (tmp_path / "b" / "private" / "votes").exists()
    strict = {"policy": {"high": 2.0, "low": 20.0}}
    with pytest.raises(BudgetExceededError, match="'high' has nothing left"):
        run(tmp_path / "c", ledger=ledger, budgets=strict)
    with SqliteLedger.read(ledger) as book:
        assert len(book.runs) == 1


def test_refusal_after_private_run_states_no_cost(tmp_path):
    """How much the first run spent, and how many labels it gave, was decided by private votes."""
    for name, n_labels in (("few", 4), ("more", 6)):
        run(tmp_path / name, ledger=tmp_path / f"{name}.sqlite", labelling=labels(n_labels, bound="exact"))
    strict = {"budgets": {"policy": {"high": 0.5, "low": 20.0}}}
    clear = {"labelling": {"sigma": 0.5, "min_labels": 0}}
    cases = ((strict, "'high' has nothing left"), (clear, "'high' cannot pay for one more query"))
    for number, (more, why) in enumerate(cases):
        told = set()
        for name in ("few", "more"):
            with pytest.raises(BudgetExceededError, match=f"{why}: what was spent is private") as caught:
                run(tmp_path / f"{name} {number}", ledger=tmp_path / f"{name}.sqlite", **more)
            told.add(str(caught.value).replace(f"{name}.sqlite", "ledger"))
        assert len(told) == 1


def test_changed_consent_applies_to_later_runs(tmp_path):
    ledger = tmp_path / "shared.sqlite"
    run(tmp_path / "a", ledger=ledger)
    more = {"budgets": {"policy": {"high": 9.0, "low": 30.0}}, "ledger": ledger}
    with pytest.raises(InputError, match=r"budgets of 997 people are larger .* such as .* --accept-larger-budgets"):
        run(tmp_path / "refused", **more)
    laxer = run(tmp_path / "b", **more, accept_larger_budgets=True)
    assert 5 < before(laxer)["high"] <= 6
    assert 6 < cost(laxer)["high"] <= 9
    with SqliteLedger.read(ledger) as book:
        person = next(iter(laxer.allocation.members()))
        assert [entry.budget for entry in book.person(person)] in ([6.0, 9.0], [20.0, 30.0])


def test_private_history_makes_later_run_private(tmp_path):
    ledger = tmp_path / "shared.sqlite"
    first = run(tmp_path / "a", ledger=ledger, labelling=labels(4, bound="exact"))
    second = run(tmp_path / "b", ledger=ledger, labelling=labels(6))
    worst = {
        group.id: float(Meter().epsilon([_charged(first, person)], group.budget.delta)[0])
        for group in first.record.groups
        for person in [next(i for i, g in first.allocation.members().items() if g == group.id)]
    }
    assert before(second) == pytest.approx(worst)
    assert before(second)["high"] > cost(first)["high"]
    assert second.record.kind == "private"
    assert list((tmp_path / "b" / "public").iterdir()) == []
    clean = run(tmp_path / "c", ledger=tmp_path / "other.sqlite", labelling=labels(6))
    assert clean.record.kind == "releasable"


def test_replaced_or_missing_ledger_is_refused(tmp_path):
    made = run(tmp_path / "a", labelling=labels(4))
    ledger = tmp_path / "a" / "private" / "ledger.sqlite"
    newest = ledger.read_bytes()
    other = run(tmp_path / "b", labelling=labels(4))
    ledger.write_bytes((tmp_path / "b" / "private" / "ledger.sqlite").read_bytes())
    with pytest.raises(IpateError, match="another history"):
        resumed(tmp_path / "a")
    ledger.unlink()
    ledger.with_name("ledger.sqlite.head").unlink()  # the run knows its ledger by itself
    with pytest.raises(IpateError, match="restore it, do not start anew"):
        resumed(tmp_path / "a")
    (tmp_path / "a" / "private" / "labelling.json").unlink()  # no label is drawn again in this case either
    with pytest.raises(IpateError, match="restore it, do not start anew"):
        resumed(tmp_path / "a")
    ledger.write_bytes(newest)
    assert resumed(tmp_path / "a").record.ledger_head == made.record.ledger_head
    assert other.record.ledger_head != made.record.ledger_head


def test_rolled_back_shared_ledger_is_refused(tmp_path):
    ledger = tmp_path / "shared.sqlite"
    run(tmp_path / "a", ledger=ledger, labelling=labels(4))
    old = ledger.read_bytes()
    run(tmp_path / "b", ledger=ledger, labelling=labels(6))
    ledger.write_bytes(old)
    with pytest.raises(IpateError, match="older copy of the ledger"):  # a new run finds the head beside the ledger
        run(tmp_path / "c", ledger=ledger)
    ledger.with_name("shared.sqlite.head").unlink()
    with pytest.raises(IpateError, match="older copy of the ledger"):  # and those in the folders of other runs
        run(tmp_path / "d", ledger=ledger)
    assert not (tmp_path / "d" / "private" / "votes").exists()
    assert resumed(tmp_path / "a").record.n_labels == 4
    with pytest.raises(IpateError, match="older copy of the ledger"):
        resumed(tmp_path / "b")
    states = {state.path.name: state for state in list_runs(tmp_path)}
    assert (states["a"].state, states["b"].state) == ("complete", "broken")
    assert "restore the newest copy" in states["b"].why


def test_lost_labels_are_restored_from_the_ledger(tmp_path):
    made = run(tmp_path / "a")
    text = (tmp_path / "a" / "public" / "labels.csv").read_text()
    for path in ("private/labelling.json", "public/labels.csv", "public/guarantee.json"):
        (tmp_path / "a" / path).unlink()
    again = resumed(tmp_path / "a")
    assert again.record.ledger_head == made.record.ledger_head
    assert again.record.groups == made.record.groups
    assert (tmp_path / "a" / "public" / "labels.csv").read_text() == text
    path = tmp_path / "a" / "private" / "labelling.json"
    record = json.loads(path.read_text())
    query = record["queries"][0]
    record["labels"][query] = (record["labels"][query] + 2) % 10 - 1
    path.write_text(json.dumps(record))
    with pytest.raises(InputError, match=f"another answer to query {query} than the ledger was charged for"):
        resumed(tmp_path / "a")
    del record["ledger_head"]
    path.write_text(json.dumps(record))
    with pytest.raises(InputError, match="written by another version of ipate"):
        resumed(tmp_path / "a")


def test_seeded_and_secure_runs_cannot_share_ledger(tmp_path):
    ledger = tmp_path / "shared.sqlite"
    run(tmp_path / "a", ledger=ledger, seed=3, labelling=labels(3))
    with pytest.raises(
        InputError, match="has seeded noise and this run has secure noise: seeded and secure noise must not share"
    ):
        run(tmp_path / "b", ledger=ledger)
    assert run(tmp_path / "c", ledger=ledger, seed=4, labelling=labels(5)).record.seeded


@pytest.mark.parametrize("before", [None, 3], ids=["secret", "seeded"])
def test_changing_the_seed_of_a_run_is_refused(tmp_path, before):
    """Otherwise seeded labels could be published under a guarantee."""
    folder = RunFolder.create(tmp_path / "a", config(seed=before))
    stated = folder.path / "config.json"
    edited = {**json.loads(stated.read_text()), "seed": 3 if before is None else None}
    stated.write_text(json.dumps(edited))
    with pytest.raises(InputError, match="put the seed back"):
        RunFolder.open(folder.path)
    stated.write_text(json.dumps({**edited, "seed": before}))
    assert RunFolder.open(folder.path).id == folder.id


def test_invalid_shared_ledger_configuration_is_refused(tmp_path):
    with pytest.raises(InputError, match="uncharged: leave out compare or ledger"):
        config(ledger=tmp_path / "x.sqlite", compare=True)
    rows = {"name": None, "file": tmp_path / "people.csv", "label": "sick", "classes": ["0", "1"]}
    rows["public_without_protection"] = True
    with pytest.raises(InputError, match=r"needs data\.person"):
        config(ledger=tmp_path / "x.sqlite", data=rows)
    assert config(ledger=tmp_path / "x.sqlite", data={**rows, "person": "id"}).ledger == tmp_path / "x.sqlite"
    with pytest.raises(InputError, match=r"the folder .* does not exist"):
        run(tmp_path / "nowhere-run", ledger=tmp_path / "nowhere" / "x.sqlite")
    assert not (tmp_path / "nowhere-run" / "private" / "votes").exists()
    folder = RunFolder.create(tmp_path / "run", config(ledger=tmp_path / "run" / "public" / "x.sqlite"))
    with pytest.raises(InputError, match="must not lie in the run's public folder"):
        ledger_path(folder)


def test_superseded_interrupted_run_cannot_be_resumed(tmp_path):
    ledger = tmp_path / "shared.sqlite"
    run(tmp_path / "a", ledger=ledger, budgets=ALIKE, labelling=labels(4))
    record = tmp_path / "a" / "private" / "labelling.json"
    text = record.read_text()
    record.unlink()
    stated = RunFolder.read(tmp_path / "a" / "settings.json")
    stated["max_labels"] = 9
    RunFolder.write(tmp_path / "a" / "settings.json", stated)
    run(tmp_path / "b", ledger=ledger, budgets=ALIKE, labelling=labels(5))
    with pytest.raises(IpateError, match="has ended: a later run continues its balances, so begin a new one"):
        resumed(tmp_path / "a")
    record.write_text(text)
    assert resumed(tmp_path / "a").record.n_labels == 4
    assert len(stored(ledger)) > 0
