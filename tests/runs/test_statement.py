"""The statement for one person contains what may be disclosed and no private figure."""

import json
import re
from dataclasses import replace

import pytest

from ipate.accounting.bounds import Meter
from ipate.allocation.allocation import Allocation
from ipate.errors import InputError
from ipate.ledger.sqlite import SqliteLedger
from ipate.report.letter import letter
from ipate.report.statement import PRIVATE, as_payload, sentences
from ipate.runs.ledgers import ledger_path
from ipate.runs.statements import state
from runs.leaving import begin, go_on, leave


def members(folder):
    people = Allocation.load(folder.private / "allocation.npz").people
    return {people.group_of(name).id: name for name in people.ids.tolist()}


def whole(statement):
    """Return everything that the command prints, as text and as JSON."""
    return "\n".join(sentences(statement)) + json.dumps(as_payload(statement))


def test_releasable_statement_shows_promise_cost_and_remainder(tmp_path):
    folder = begin(tmp_path)
    record = go_on(folder).record
    paid = {group.id: group.cost for group in record.groups}
    for group, person in members(folder).items():
        found = state(folder, person)
        assert found.guaranteed
        assert not found.private
        assert (found.labels, found.checks) == (record.n_labels, record.n_queries)
        assert found.spent == pytest.approx(paid[group])
        assert found.left == pytest.approx(found.budget - paid[group])
        assert state(folder, person, private=True) == found
        text = sentences(found)
        assert text[0].startswith(f"Person {person}, level {group}: whatever anyone learns from the student")
        assert f"released {record.n_labels:,} labels and {record.n_queries:,} checks" in text[1]
        shown = float(re.search(r"ε = ([\d.]+) was spent", text[2]).group(1))
        assert paid[group] <= shown <= paid[group] * 1.001
        assert any("Of their latest budget" in sentence for sentence in text)
        assert found.odds is not None
        assert text[-1].startswith("The best test of whether their data was used")
        assert PRIVATE not in text


@pytest.mark.parametrize("options", [{"bound": "exact"}, {"bound": "tight"}, {"seed": 3}])
def test_private_figures_are_shown_to_owner_only(tmp_path, monkeypatch, options):
    """The statement must not depend on the cost: it is made twice, with more releases in between."""
    folder = begin(tmp_path, **options)
    go_on(folder, until=2, monkeypatch=monkeypatch)
    person = members(folder)["high"]
    early = state(folder, person)
    record = go_on(folder).record
    late, owner = state(folder, person), state(folder, person, private=True)
    assert whole(early) == whole(late)
    assert late.spent is late.left is late.labels is late.checks is None
    assert not late.guaranteed
    assert owner.private
    assert owner.labels == record.n_labels
    assert 0 < owner.spent <= owner.budget
    assert sentences(owner)[0] == PRIVATE
    assert PRIVATE not in sentences(late)
    assert f"{owner.spent:.8g}"[:8] not in whole(late)
    assert "whatever anyone learns" not in whole(late)
    assert ("seeded" in sentences(late)[0].lower()) == ("seed" in options)


def test_statement_before_labelling_shows_full_budget(tmp_path):
    folder = begin(tmp_path)
    with pytest.raises(InputError, match="people are not assigned to teachers yet"):
        state(folder, "p1")
    entry = leave(folder, "p1") if _teaches(folder, "p1") else leave(folder, "p2")
    found = state(folder, entry.person)
    assert found.withdrawn == entry.when
    other = state(folder, next(name for name in members(folder).values() if name != entry.person))
    assert (other.spent, other.left, other.entries) == (0.0, other.budget, ())
    assert any("Nothing has been released" in line for line in sentences(other))
    with pytest.raises(InputError, match=r"nobody has this id .* nor among those whose rows are its pool") as caught:
        state(folder, "ada")
    assert "ipate statement" not in str(caught.value)  # the command that was given


def _teaches(folder, person):
    from ipate.runs.stages import allocated

    return person in allocated(folder).people.ids.tolist()


def test_withdrawn_person_is_charged_until_withdrawal_only(tmp_path, monkeypatch):
    folder = begin(tmp_path)
    go_on(folder, until=6, monkeypatch=monkeypatch)
    person = members(folder)["high"]
    entry = leave(folder, person)
    then = state(folder, person)
    go_on(folder)
    now = state(folder, person)
    assert then == now
    assert (now.labels, now.checks, now.spent) == (entry.labels, entry.checks, pytest.approx(entry.epsilon))
    text = " ".join(sentences(now))
    assert f"They withdrew on {entry.when}" in text
    assert "is left" not in text
    with SqliteLedger.read(ledger_path(folder)) as ledger:
        assert ledger.parts() == (folder.id, f"{folder.id} (part 2)")
    other = state(folder, members(folder)["low"])
    assert other.checks > now.checks
    (entry,) = other.entries  # the statement does not reveal that somebody withdrew, or when
    assert (entry.run, entry.labels, entry.checks) == (folder.id, other.labels, other.checks)
    assert entry.epsilon == pytest.approx(other.spent)
    assert "withdrew" not in whole(replace(other, withdrawn=None)).replace("withdrawn", "")


def test_costs_of_all_runs_are_added(tmp_path):
    shared = tmp_path / "shared.sqlite"
    first = begin(tmp_path, "first", ledger=shared, max_labels=4)
    second = begin(tmp_path, "second", ledger=shared)
    go_on(first)
    alone = state(first, members(first)["high"])
    go_on(second)
    person = members(second)["high"]
    found = state(second, person)
    assert [entry.run for entry in found.entries] == [first.id, second.id]
    assert state(first, person).entries == found.entries
    with SqliteLedger.read(ledger_path(second)) as ledger:
        total = float(Meter("gdp").epsilon(ledger.cost_of(person, Meter("gdp")), found.delta)[0])
    assert found.spent == pytest.approx(total)
    assert alone.spent < found.spent <= found.budget
    text = " ".join(sentences(found))
    assert "over the 2 runs that the ledger knows of with their data: first-" in text
    assert "What is not on this ledger is not counted." in text
    assert "counted together" in text


def test_person_of_pool_or_test_rows_gets_an_answer(tmp_path):
    shared = tmp_path / "shared.sqlite"
    first, second = (begin(tmp_path, name, ledger=shared, max_labels=3) for name in ("first", "second"))
    go_on(first)
    go_on(second)
    private = {*Allocation.load(first.private / "allocation.npz").people.ids.tolist()}
    bare = next(f"p{number}" for number in range(330) if f"p{number}" not in private)
    found = state(first, f" {bare} ")
    assert (found.person, [use.run for use in found.unprotected]) == (bare, [first.id, second.id])
    text = " ".join(sentences(found))
    assert f"The data of person {bare} was used without protection in first" in text
    assert second.id in text
    assert "promise" not in text
    with pytest.raises(InputError, match="nobody has this id"):
        state(first, "nobody")
    with pytest.raises(InputError, match="rows are used as pool or test data have no account"):
        leave(first, bare)


def test_earlier_private_run_makes_total_private(tmp_path):
    shared = tmp_path / "shared.sqlite"
    first = begin(tmp_path, "first", ledger=shared, bound="exact", stop="count", max_labels=2)
    second = begin(tmp_path, "second", ledger=shared)
    go_on(first)
    go_on(second)
    found = state(second, members(second)["high"])
    assert not found.guaranteed
    assert found.spent is None
    assert [entry.epsilon for entry in found.entries] == [None, None]
    assert "the costs of an earlier run on the same ledger were computed from private votes" in sentences(found)[0]
    assert "the costs of this run were computed" in sentences(state(first, members(first)["high"]))[0]


def test_later_private_run_is_called_a_later_one(tmp_path):
    shared = tmp_path / "shared.sqlite"
    first = begin(tmp_path, "first", ledger=shared, stop="count", max_labels=2)
    go_on(first)
    go_on(begin(tmp_path, "second", ledger=shared, bound="exact", stop="count", max_labels=2))
    found = state(first, members(first)["high"])
    assert found.private_costs == "a later run"
    assert "the costs of a later run on the same ledger were computed from private votes" in sentences(found)[0]
    assert "the costs of a later run on the same ledger" in letter(found, date="2026-04-01")


def test_private_run_of_others_hides_later_figures(tmp_path):
    """The length of the first run determines what is left, and so the number of labels of the second."""
    shared = tmp_path / "shared.sqlite"
    first = begin(tmp_path, "first", ledger=shared, bound="tight", max_labels=5)
    go_on(first)
    ids = Allocation.load(first.private / "allocation.npz").people.ids.tolist()
    left = min(name for name in ids if len(name) == 4)  # so that the order of ids, and with it the split, stays
    new, file = f"{left}x", tmp_path / "people.csv"  # in the place of somebody who is not in the second run
    file.write_text(file.read_text().replace(f",{left}\n", f",{new}\n"))
    second = begin(tmp_path, "second", ledger=shared)
    assert go_on(second).record.kind == "private"
    found = state(second, new)
    assert not found.guaranteed
    assert found.labels is found.checks is found.spent is found.left is None
    assert state(second, new, private=True).labels > 0
    assert leave(second, new).told.labels is None
