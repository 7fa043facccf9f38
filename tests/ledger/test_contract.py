"""What every ledger does, in memory and on disk."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipate.accounting import gdp
from ipate.accounting.bounds import Meter
from ipate.engines.teachers.loop import account_terms, label
from ipate.errors import BudgetExceededError, InputError
from ipate.files import unpack_arrays
from ipate.ledger.records import Draw, noise_kind
from ipate.release.answers import paid_answers
from ipate.release.noise import SeededNoise
from ledger.making import BUDGETS, CONFIDENT, LIMITS, all_terms, bit, charge, in_memory, on_disk, terms, voting, whole

DELTA = 1e-5
EMPTY = {name: [0.0] for name in BUDGETS}


@pytest.fixture(params=[in_memory, on_disk], ids=["memory", "disk"])
def make(request, tmp_path):
    made = []

    def ledger(entries=None, **more):
        made.append(request.param(entries or all_terms(), tmp_path / f"{len(made)}.sqlite", **more))
        return made[-1]

    yield ledger
    for book in made:
        if hasattr(book, "close"):
            book.close()


def balances(book):
    return {name: book.spent(name).tolist() for name in book.terms}


def test_account_opens_empty_with_its_own_limit(make):
    book = make()
    assert tuple(book.terms) == tuple(BUDGETS)
    for name, limit in LIMITS.items():
        assert (book.spent(name).tolist(), book.limit(name).tolist(), book.epsilon(name)) == ([0.0], [limit], 0.0)
    assert dict(paid_answers(book).answers) == {}


def test_affordable_charge_is_counted_as_spent(make):
    book, cost = make(), {"strict": [0.01], "lax": [0.02]}
    assert book.unaffordable({name: np.array(value) for name, value in cost.items()}) == ()
    book.charge(charge(cost))
    book.charge(charge(cost))
    assert balances(book) == {"strict": [0.02], "lax": [0.04], "middle": [0.0]}
    assert book.epsilon("strict") == pytest.approx(float(gdp.epsilon_of(np.sqrt(0.02), DELTA)))


def test_standing_has_all_balances_and_limits_in_order(make):
    book, names = make(), ("middle", "strict")
    book.charge(charge({"strict": 0.01, "lax": 0.02}))
    spent, limit = book.balances(names)
    assert spent.tolist() == [book.spent(name).tolist() for name in names] == [[0.0], [0.01]]
    assert limit.tolist() == [book.limit(name).tolist() for name in names]
    spent[:], limit[:] = 9.0, 9.0
    assert book.balances(names)[0].tolist() == [[0.0], [0.01]]
    assert book.limit("strict").tolist() == [LIMITS["strict"]]


def test_whole_budget_can_be_spent_but_not_exceeded(make):
    book = make()
    book.charge(charge({"strict": LIMITS["strict"]}))
    assert book.epsilon("strict") <= 1.0
    with pytest.raises(BudgetExceededError):
        book.charge(charge({"strict": 1e-12 * LIMITS["strict"]}))
    assert book.spent("strict").tolist() == [LIMITS["strict"]]


@pytest.mark.parametrize("order", [("lax", "strict", "middle"), ("strict", "middle", "lax")])
def test_refused_charge_names_the_group_and_changes_nothing(make, order):
    book = make()
    book.charge(charge(dict.fromkeys(order, LIMITS["strict"] / 2)))
    before = balances(book)
    much = dict.fromkeys(order, np.array([LIMITS["strict"]]))
    assert book.unaffordable(much) == ("strict",)
    with pytest.raises(BudgetExceededError, match=r"'strict' cannot pay.*nothing was charged") as caught:
        book.charge(charge(much))
    asked = float(gdp.epsilon_of(np.sqrt(1.5 * LIMITS["strict"]), DELTA))
    have = book.epsilon("strict")
    for words in (f"{asked:.6g}", "budget 1,", f"{have:.6g} is spent", f"{1 - have:.6g} left"):
        assert words in str(caught.value)
    assert "lax" not in str(caught.value)
    assert balances(book) == before
    assert len(book.charges) == 1


@pytest.mark.parametrize("bound", ["tight", "exact"])
def test_refusal_under_private_bound_states_no_cost(make, bound):
    """What was spent was computed from private votes, so two refusals with other votes must read alike."""
    told = set()
    for spent in (0.01, 0.02):
        book = make([terms("strict", 1.0, meter=Meter(bound, "improved", (20.0,)))])
        book.charge(charge({"strict": [spent]}, bound=bound))
        with pytest.raises(BudgetExceededError, match=r"'strict' cannot pay: .* what was spent is private") as caught:
            book.charge(charge({"strict": [10.0 + spent]}, queries=("r",), bound=bound))
        told.add(str(caught.value))
    assert len(told) == 1


def test_refused_charge_names_teacher_account_and_group(make):
    book = make([terms("teacher 4", 1.0, group="strict")])
    with pytest.raises(BudgetExceededError, match=r"group 'strict' \(account 'teacher 4'\)"):
        book.charge(charge({"teacher 4": 1.0}))


def test_unaffordable_accounts_are_listed_by_id(make):
    book, much = make(), np.array([LIMITS["middle"]])
    assert book.unaffordable(dict.fromkeys(BUDGETS, much)) == ("strict",)
    assert book.unaffordable(dict.fromkeys(BUDGETS, 1.001 * much)) == ("strict", "middle")
    assert balances(book) == EMPTY


def test_unknown_account_is_refused_by_every_method(make):
    book = make()
    for action in (
        lambda: book.charge(charge({"strict": 0.01, "nobody": 0.01})),
        lambda: book.unaffordable({"nobody": np.array([0.01])}),
        lambda: book.spent("nobody"),
        lambda: book.limit("nobody"),
        lambda: book.balances(("lax", "nobody")),
        lambda: book.epsilon("nobody"),
        lambda: in_memory(all_terms(), None, opening={"nobody": np.array([0.01])}),
    ):
        with pytest.raises(InputError, match="'nobody' is unknown"):
            action()
    assert balances(book) == EMPTY


@pytest.mark.parametrize("cost", [[-1e-9], [float("nan")], [0.01, 0.01], [], 0.01])
def test_invalid_cost_is_refused_without_charging(make, cost):
    book = make()
    bad = charge({"lax": 0.01})
    bad.cost["strict"] = np.asarray(cost, dtype=float)
    with pytest.raises(InputError, match="account 'strict': the cost"):
        book.charge(bad)
    with pytest.raises(InputError, match="account 'strict': the cost"):
        in_memory(all_terms(), None, opening={"strict": bad.cost["strict"]})
    assert balances(book) == EMPTY


def test_opening_balance_counts_against_the_budget():
    opening = {"strict": np.array([0.9 * LIMITS["strict"]])}
    book = in_memory(all_terms(), None, opening=opening)
    opening["strict"][0] = 0.0
    assert book.spent("strict").tolist() == [0.9 * LIMITS["strict"]]
    assert book.unaffordable({"strict": np.array([0.2 * LIMITS["strict"]])}) == ("strict",)
    book.charge(charge({"strict": 0.05 * LIMITS["strict"]}))
    assert book.spent("strict")[0] == pytest.approx(0.95 * LIMITS["strict"])
    assert book.spent("lax").tolist() == [0.0]


def test_duplicate_account_id_is_refused(make):
    with pytest.raises(InputError, match="duplicate account id 'strict'"):
        make(all_terms(("strict", "lax", "strict")))


def test_balances_are_isolated_from_the_callers_arrays(make):
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


def test_renyi_account_needs_one_order_within_its_limit(make):
    book = make([terms("strict", 1.0, meter=Meter("tight", "improved", (2.0, 20.0)))])
    low, high = book.limit("strict")
    assert low == -np.inf
    book.charge(charge({"strict": [100.0, high]}, bound="tight"))
    with pytest.raises(BudgetExceededError):
        book.charge(charge({"strict": [0.0, 1e-6]}, bound="tight"))


@pytest.mark.parametrize("bound", ["gdp", "loose", "tight"])
@pytest.mark.parametrize("batch", [7, None])
def test_labelling_result_does_not_depend_on_ledger_type(make, bound, batch):
    votes, panel = voting(600)
    book = make(account_terms(panel, Meter(bound), CONFIDENT), noise="seeded")
    run = label(votes, panel, CONFIDENT, Meter(bound), noise=SeededNoise(2), ledger=book, batch=batch)
    alone = label(votes, panel, CONFIDENT, Meter(bound), noise=SeededNoise(2), batch=batch)
    np.testing.assert_array_equal(run.labels, alone.labels)
    assert run.groups == alone.groups
    assert (run.n_labels, run.stopped_by) == (alone.n_labels, alone.stopped_by)


class Counted(SeededNoise):
    """Noise of either kind that counts its draws."""

    def __init__(self, *, seeded):
        super().__init__(1)
        self.seeded, self.draws = seeded, 0

    def normal(self, purpose, queries, width):
        self.draws += 1
        return super().normal(purpose, queries, width)


@pytest.mark.parametrize("first", [False, True], ids=["secure first", "seeded first"])
def test_labelling_refuses_to_mix_seeded_and_secure_noise(make, first):
    votes, panel = voting(60)
    book = make(account_terms(panel, Meter(), CONFIDENT), noise=noise_kind(seeded=first))
    label(votes, panel, CONFIDENT, Meter(), noise=Counted(seeded=first), ledger=book, max_queries=5)
    before, charges, other = balances(book), len(book.charges), Counted(seeded=not first)
    with pytest.raises(InputError, match=r"must not share a ledger.*nothing was charged") as caught:
        label(votes, panel, CONFIDENT, Meter(), noise=other, ledger=book, order=range(20, 40))
    assert "\n" not in str(caught.value)
    assert (balances(book), len(book.charges), other.draws) == (before, charges, 0)


@pytest.mark.parametrize("first", [False, True], ids=["secure first", "seeded first"])
def test_charge_with_the_other_noise_is_refused(make, first):
    book = make(noise=noise_kind(seeded=first))
    assert book.noise == noise_kind(seeded=first)
    book.charge(charge({"lax": 0.01}, queries=("a",), seeded=first))
    with pytest.raises(InputError, match="must not share a ledger"):
        book.charge(charge({"lax": 0.01}, queries=("b",), seeded=not first))
    assert balances(book) == {**EMPTY, "lax": [0.01]}


def test_memory_ledger_takes_noise_from_first_charge():
    book = in_memory(all_terms(), None)
    assert book.noise is None
    book.charge(charge({"lax": 0.01}, seeded=True))
    assert book.noise == "seeded"
    with pytest.raises(InputError, match="this ledger has seeded noise and this run has secure noise"):
        book.charge(charge({"lax": 0.01}, seeded=False))


def test_charges_are_kept_in_order_with_their_keys(make):
    book = make()
    book.charge(charge({"lax": 0.01}, queries=("a",), labels=[1]))
    book.charge(whole({"lax": 0.02}))
    book.charge(bit({"lax": 0.02}))
    assert [(entry.scope, entry.keys) for entry in book.charges] == [
        ("pool", ("a",)),
        ("run", ("test",)),
        ("run", ("bit",)),
    ]
    assert float(sum(entry.cost["lax"] for entry in book.charges)[0]) == book.spent("lax")[0]
    assert book.person("lax")[0].labels == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"draws": (("gossip", "gaussian"),)},
            "mechanism is 'gossip': the mechanisms are check, argmax, vector, whole",
        ),
        ({"draws": (("vector", "laplace"),)}, "a release by vector has Gaussian noise"),
        ({"queries": ()}, "has no key"),
        ({"sensitivity": np.ones(3)}, r"Δ has the shape \(3,\)"),
        ({"queries": ("a", "b"), "answered": [True]}, "marked for"),
    ],
    ids=str,
)
def test_release_that_no_rule_prices_is_refused(change, words):
    def made():
        draws = [Draw(mechanism=name, sigma=1.0, noise=noise) for name, noise in change.get("draws", ())]
        return charge({"lax": 0.01}, **{**change, **({"draws": tuple(draws)} if draws else {})})

    with pytest.raises(InputError, match=words):
        made()


def test_test_is_charged_before_its_only_bit(make):
    for steps, words in (
        ([bit], "'test' was not charged: charge it first"),
        ([whole, whole], "drawn only once"),
        ([whole, bit, bit], "drawn only once"),
    ):
        book = make()
        *good, bad = (step({"lax": 0.01}) for step in steps)
        for entry in good:
            book.charge(entry)
        with pytest.raises(InputError, match=words):
            book.charge(bad)
        assert len(book.charges) == len(good)


def test_memory_ledger_returns_the_charges_it_was_given():
    made = charge({"strict": 0.01}, queries=("a",)), charge({"lax": 0.02}, queries=("b", "c"))
    book = in_memory(all_terms(), None)
    for entry in made:
        book.charge(entry)
    assert book.charges == made


COSTS = st.dictionaries(st.sampled_from(sorted(BUDGETS)), st.floats(0, 0.3), min_size=1)


def check_sequence(book, sequence):
    """Charge a sequence; return the accepted sums. A charge is refused exactly where it is unaffordable."""
    accepted, refused = dict.fromkeys(BUDGETS, 0.0), 0
    for cost in sequence:
        before = balances(book)
        payable = not book.unaffordable({name: np.array([value]) for name, value in cost.items()})
        try:
            book.charge(charge(cost))
        except BudgetExceededError:
            refused += 1
            assert not payable
            assert balances(book) == before
        else:
            assert payable
            for name, value in cost.items():
                accepted[name] += value
    assert {name: value for name, (value,) in balances(book).items()} == accepted
    assert all(accepted[name] <= LIMITS[name] for name in BUDGETS)
    assert all(book.epsilon(name) <= epsilon for name, epsilon in BUDGETS.items())
    assert len(book.charges) == len(sequence) - refused
    return accepted


@settings(max_examples=100, deadline=None)
@given(sequence=st.lists(COSTS, max_size=10))
def test_no_sequence_of_charges_exceeds_a_limit(sequence):
    check_sequence(in_memory(all_terms(), None), sequence)


@settings(max_examples=12, deadline=None)
@given(sequence=st.lists(COSTS, max_size=8))
def test_no_sequence_on_disk_exceeds_a_limit(sequence):
    with tempfile.TemporaryDirectory() as folder:
        with on_disk(all_terms(), Path(folder) / "ledger.sqlite") as book:
            accepted = check_sequence(book, sequence)
        with on_disk(all_terms(), Path(folder) / "ledger.sqlite") as again:
            assert balances(again) == {name: [value] for name, value in accepted.items()}


@settings(max_examples=40, deadline=None)
@given(st.permutations(sorted(BUDGETS)), st.lists(COSTS, max_size=8))
def test_terms_are_matched_by_id_not_position(order, sequence):
    books = in_memory(all_terms(), None), in_memory(all_terms(tuple(order)), None)
    for cost in sequence:
        outcomes = []
        for book in books:
            try:
                book.charge(charge(cost))
            except BudgetExceededError as error:
                outcomes.append(str(error))
            else:
                outcomes.append("charged")
        assert outcomes[0] == outcomes[1]
    assert balances(books[0]) == balances(books[1])


def test_counts_are_recorded_as_given(make):
    book = make()
    counts = np.array([[3, 8, -2], [5, 5, 1]])
    book.charge(charge({"lax": 0.01}, queries=("a", "b", "c"), answered=[1, 0, 1], labels=[1, -1, 0], counts=counts))
    (found,) = book.charges
    assert [draw.mechanism for draw in found.draws] == ["vector"]
    np.testing.assert_array_equal(unpack_arrays(found.payload)["counts"], counts)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"counts": np.array([[3.5, 8.0, -2.0], [5.0, 5.0, 1.0]])}, "whole numbers .* not float64"),
        ({"counts": np.array([[3, 8, -2]])}, r"\(2 answers, classes\), not int64 of the shape \(1, 3\)"),
        ({"noise": "laplace"}, "a release by vector has Gaussian noise"),
        ({"labels": [0, -1, 0]}, "labels and counts differ"),
        ({"labels": [1, -1, 1]}, "labels and counts differ: .* on a tie the lower"),
    ],
    ids=str,
)
def test_counts_that_contradict_their_charge_are_refused(change, message):
    given = {"answered": [1, 0, 1], "labels": [1, -1, 0], "counts": np.array([[3, 8, -2], [5, 5, 1]])}
    with pytest.raises(InputError, match=message):
        charge({"lax": 0.01}, queries=("a", "b", "c"), **{**given, **change})
