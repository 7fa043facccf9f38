"""What every ledger does, in memory and on disk."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipate.accounting import gdp
from ipate.accounting.bounds import Meter
from ipate.errors import BudgetExceededError, InputError
from ipate.labelling.loop import account_terms, label
from ipate.labelling.noise import SeededNoise
from ledger.making import BUDGETS, CONFIDENT, LIMITS, all_terms, charge, in_memory, on_disk, terms, voting

DELTA = 1e-5
EMPTY = {name: [0.0] for name in BUDGETS}


@pytest.fixture(params=[in_memory, on_disk], ids=["memory", "disk"])
def make(request, tmp_path):
    made = []

    def ledger(entries=None):
        made.append(request.param(entries or all_terms(), tmp_path / f"{len(made)}.sqlite"))
        return made[-1]

    yield ledger
    for book in made:
        if hasattr(book, "close"):
            book.close()


def balances(book):
    return {name: book.spent(name).tolist() for name in book.terms}


def test_an_account_opens_empty_with_its_own_limit(make):
    book = make()
    assert tuple(book.terms) == tuple(BUDGETS)
    for name, limit in LIMITS.items():
        assert (book.spent(name).tolist(), book.limit(name).tolist(), book.epsilon(name)) == ([0.0], [limit], 0.0)
    assert dict(book.stored().answers) == {}


def test_what_is_affordable_can_be_charged_and_is_then_spent(make):
    book, cost = make(), {"strict": [0.01], "lax": [0.02]}
    assert book.unaffordable({name: np.array(value) for name, value in cost.items()}) == ()
    book.charge(charge(cost))
    book.charge(charge(cost))
    assert balances(book) == {"strict": [0.02], "lax": [0.04], "middle": [0.0]}
    assert book.epsilon("strict") == pytest.approx(float(gdp.epsilon_of(np.sqrt(0.02), DELTA)))


def test_a_whole_budget_can_be_spent_and_not_a_hair_more(make):
    book = make()
    book.charge(charge({"strict": LIMITS["strict"]}))
    assert book.epsilon("strict") <= 1.0
    with pytest.raises(BudgetExceededError):
        book.charge(charge({"strict": 1e-12 * LIMITS["strict"]}))
    assert book.spent("strict").tolist() == [LIMITS["strict"]]


@pytest.mark.parametrize("order", [("lax", "strict", "middle"), ("strict", "middle", "lax")])
def test_a_refusal_names_the_group_and_touches_no_balance(make, order):
    book = make()
    book.charge(charge(dict.fromkeys(order, LIMITS["strict"] / 2)))
    before = balances(book)
    much = dict.fromkeys(order, np.array([LIMITS["strict"]]))
    assert book.unaffordable(much) == ("strict",)
    with pytest.raises(BudgetExceededError, match=r"'strict' cannot pay.*nothing was charged"):
        book.charge(charge(much))
    assert balances(book) == before


def test_an_unknown_account_is_refused_everywhere_and_nothing_is_charged(make):
    book = make()
    for action in (
        lambda: book.charge(charge({"strict": 0.01, "nobody": 0.01})),
        lambda: book.unaffordable({"nobody": np.array([0.01])}),
        lambda: book.spent("nobody"),
        lambda: book.limit("nobody"),
        lambda: book.epsilon("nobody"),
    ):
        with pytest.raises(InputError, match="'nobody' is unknown"):
            action()
    assert balances(book) == EMPTY


@pytest.mark.parametrize("cost", [[-1e-9], [float("nan")], [0.01, 0.01], [], 0.01])
def test_a_cost_that_is_no_cost_is_refused_and_nothing_is_charged(make, cost):
    book = make()
    bad = charge({"lax": 0.01})
    bad.cost["strict"] = np.asarray(cost, dtype=float)
    with pytest.raises(InputError, match="account 'strict': the cost"):
        book.charge(bad)
    assert balances(book) == EMPTY


def test_two_accounts_with_the_same_id_are_refused(make):
    with pytest.raises(InputError, match="stands twice"):
        make(all_terms(("strict", "lax", "strict")))


def test_a_balance_cannot_be_changed_from_outside(make):
    book = make()
    cost = np.array([0.01])
    book.charge(charge({"strict": cost}))
    cost[0] = 5.0
    book.spent("strict")[0] = 0.0
    book.limit("strict")[0] = 1e9
    book.terms.pop("strict")
    assert book.spent("strict").tolist() == [0.01]
    assert book.limit("strict").tolist() == [LIMITS["strict"]]
    assert "strict" in book.terms


def test_a_renyi_account_is_within_budget_while_one_order_is(make):
    book = make([terms("strict", 1.0, meter=Meter("tight", "improved", (2.0, 20.0)))])
    _, high = book.limit("strict")
    book.charge(charge({"strict": [100.0, high]}, bound="tight"))
    with pytest.raises(BudgetExceededError):
        book.charge(charge({"strict": [0.0, 1e-6]}, bound="tight"))


@pytest.mark.parametrize("bound", ["gdp", "loose", "tight"])
@pytest.mark.parametrize("batch", [7, None])
def test_labelling_affords_the_same_wherever_it_is_charged(make, bound, batch):
    votes, panel = voting(600)
    book = make(account_terms(panel, Meter(bound), CONFIDENT))
    run = label(votes, panel, CONFIDENT, Meter(bound), noise=SeededNoise(2), ledger=book, batch=batch)
    alone = label(votes, panel, CONFIDENT, Meter(bound), noise=SeededNoise(2), batch=batch)
    np.testing.assert_array_equal(run.labels, alone.labels)
    assert run.groups == alone.groups
    assert (run.n_labels, run.stopped_by) == (alone.n_labels, alone.stopped_by)


COSTS = st.dictionaries(st.sampled_from(sorted(BUDGETS)), st.floats(0, 0.3), min_size=1)


@pytest.mark.parametrize("kind", [in_memory, on_disk])
@settings(max_examples=12, deadline=None)
@given(sequence=st.lists(COSTS, max_size=8))
def test_no_sequence_of_charges_passes_a_limit_and_what_was_accepted_is_what_is_spent(kind, sequence):
    with tempfile.TemporaryDirectory() as folder:
        book = kind(all_terms(), Path(folder) / "ledger.sqlite")
        accepted = dict.fromkeys(BUDGETS, 0.0)
        for cost in sequence:
            before = balances(book)
            try:
                book.charge(charge(cost))
            except BudgetExceededError:
                assert balances(book) == before
            else:
                for name, value in cost.items():
                    accepted[name] += value
        assert {name: value for name, (value,) in balances(book).items()} == accepted
        assert all(accepted[name] <= LIMITS[name] for name in BUDGETS)
        if kind is on_disk:
            book.close()
            again = on_disk(all_terms(), Path(folder) / "ledger.sqlite")
            assert balances(again) == {name: [value] for name, value in accepted.items()}
            again.close()
