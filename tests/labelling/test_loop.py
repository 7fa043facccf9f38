"""The labelling loop: nobody over budget, whatever the variant, aggregator, bound and stop rule."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipate.accounting.bounds import Meter
from ipate.allocation.participation import Participation
from ipate.engines.teachers.account import account_for
from ipate.engines.teachers.aggregators import Confident, GNMax, Interactive, LNMax, Mechanism
from ipate.engines.teachers.loop import label, open_ledger
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.variants import fractions_for, weights_for
from ipate.engines.teachers.votes import Votes
from ipate.errors import BudgetExceededError, InputError
from ipate.ledger.base import MemoryLedger
from ipate.people.budgets import Account, Budget, Group, strictest_first
from ipate.release.noise import SecureNoise, SeededNoise
from ipate.release.results import Record

DELTA = 1e-5


def make_votes(rng, *, teachers=30, queries=60, classes=4, groups=("a", "b"), agreement=0.8, abstain=False):
    truth = rng.integers(classes, size=queries)
    votes = np.where(
        rng.random((teachers, queries)) < agreement, truth, rng.integers(classes, size=(teachers, queries))
    )
    if abstain:
        votes[rng.random(votes.shape) < 0.05] = -1
    names = tuple(groups[i % len(groups)] for i in range(teachers))
    return Votes(votes=votes.astype(np.int8), n_classes=classes, groups=names, labels=truth)


def budget_rows(budgets):
    return [Group(id=name, budget=Budget(epsilon, DELTA)) for name, epsilon in budgets.items()]


def make_panel(votes, budgets, variant, rule="gdp", copies=None):
    """The votes and panel of a variant, built the way a user would."""
    if variant == "standard":
        strictest = min(budgets.values())
        return votes, Panel.from_votes(votes, [(name, strictest, DELTA, None) for name in budgets])
    if variant == "weighting":
        weight = weights_for(rule=rule, groups=budget_rows(budgets), teachers_per_group=Counter(votes.groups))
        weights = np.array([weight[name] for name in votes.groups])
        return votes, Panel.from_votes(votes, [(n, e, DELTA, None) for n, e in budgets.items()], weights=weights)
    if variant == "upsampling":
        mixed = replace(votes, groups=None)
        rows = [(name, epsilon, DELTA, float(copies[name])) for name, epsilon in budgets.items()]
        return mixed, Panel.from_votes(mixed, rows)
    schedule = Participation(seed=0, fractions=fractions_for(groups=budget_rows(budgets)), teacher_groups=votes.groups)
    turns = replace(votes, participation=schedule.participants(np.arange(votes.n_queries)))
    return turns, Panel.from_votes(turns, [(n, e, DELTA, None) for n, e in budgets.items()])


def make_aggregator(kind, sigma):
    if kind == "gnmax":
        return GNMax(mechanism=Mechanism(sigma=sigma))
    if kind == "lnmax":
        return LNMax(mechanism=Mechanism(sigma=sigma, noise="laplace"))
    checked = Mechanism(sigma=sigma, check_sigma=3 * sigma, threshold=20.0)
    return Confident(mechanism=checked) if kind == "confident" else Interactive(mechanism=checked, gamma=0.6)


def bounds_for(aggregator):
    return ("loose", "gdp", "tight") if aggregator == "lnmax" else ("loose", "gdp", "sup", "tight", "exact")


CASES = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32 - 1),
        "variant": st.sampled_from(["standard", "weighting", "upsampling", "vanishing"]),
        "rule": st.sampled_from(["gdp", "proportional", "classic", "uniform"]),
        "aggregator": st.sampled_from(["gnmax", "confident", "interactive", "lnmax"]),
        "bound": st.integers(0, 4),
        "conversion": st.sampled_from(["classic", "improved"]),
        "stop": st.sampled_from(["budget", "drop", "count"]),
        "sigma": st.sampled_from([4.0, 8.0, 16.0]),
        "budgets": st.lists(st.floats(0.3, 12), min_size=1, max_size=3),
        "agreement": st.floats(0.3, 1.0),
        "abstain": st.booleans(),
        "copies": st.lists(st.integers(1, 4), min_size=3, max_size=3),
    }
)


def make_case(case):
    rng = np.random.default_rng(case["seed"])
    names = ["strict", "middle", "lax"][: len(case["budgets"])]
    budgets = dict(zip(names, case["budgets"], strict=True))
    votes = make_votes(rng, groups=tuple(names), agreement=case["agreement"], abstain=case["abstain"])
    copies = dict(zip(names, case["copies"], strict=False))
    votes, panel = make_panel(votes, budgets, case["variant"], case["rule"], copies)
    options = bounds_for(case["aggregator"])
    meter = Meter(options[case["bound"] % len(options)], case["conversion"], [2, 4, 8, 16, 32])
    stop = case["stop"]
    if stop == "drop" and (panel.member is None or panel.rotating):
        stop = "budget"
    aggregator = make_aggregator(case["aggregator"], case["sigma"])
    probs = None
    if case["aggregator"] == "interactive":
        probs = rng.dirichlet(np.ones(votes.n_classes), size=votes.n_queries)
    given = {
        "stop": stop,
        "max_labels": 7 if stop == "count" else None,
        "student_probs": probs,
        "noise": SeededNoise(case["seed"] % 1000),
        "batch": int(rng.integers(1, 40)),
    }
    return votes, panel, aggregator, meter, given


def run_case(case):
    votes, panel, aggregator, meter, given = make_case(case)
    ledger = open_ledger(panel, meter, aggregator)
    result = label(votes, panel, aggregator, meter, **given, ledger=ledger)
    return votes, panel, aggregator, meter, result, ledger, given["student_probs"], given["stop"]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(CASES, st.integers(1, 59))
def test_labelling_in_two_parts_equals_one(case, cut):
    votes, panel, aggregator, meter, given = make_case(case)
    whole = label(votes, panel, aggregator, meter, **given)
    ledger = open_ledger(panel, meter, aggregator)
    found = label(votes, panel, aggregator, meter, **given, ledger=ledger, order=range(cut))
    if found.stopped_by == "pool":
        found = label(votes, panel, aggregator, meter, **given, ledger=ledger, order=range(cut, 60), after=found)
    for name in ("queries", "labels", "answered", "reinforced", "repeated"):
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name))
    assert (found.stopped_by, found.guarantee) == (whole.stopped_by, whole.guarantee)
    for one, other in zip(found.groups, whole.groups, strict=True):
        assert one.cost == pytest.approx(other.cost, rel=1e-9)
        assert one.sensitivity == pytest.approx(other.sensitivity)
        assert one.labels_until_exhausted == other.labels_until_exhausted


@settings(max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(CASES)
def test_costs_respect_budgets_and_match_the_recorded_charges(case):
    votes, panel, aggregator, meter, result, ledger, probs, stop = run_case(case)
    for group in result.groups:
        assert group.cost <= group.budget.epsilon
    if stop == "count":
        assert result.n_labels <= 7
    mask = np.full(votes.n_queries, -1, dtype=np.int8)
    mask[result.queries] = result.answered
    if stop == "drop" and any(g.labels_until_exhausted is not None for g in result.groups):
        return  # weights changed on the way: `test_drop_…` recomputes that
    again = account_for(
        votes, panel, aggregator.mechanism, meter, answered=mask, student_probs=probs, stopped_by="account"
    )
    assert again.queries == result.n_queries
    assert again.answered == result.n_labels
    for paid, recomputed in zip(result.groups, strictest_first(again.groups), strict=True):
        assert paid.id == recomputed.id
        if meter.bound in ("loose", "sup"):  # the filter fixed its order: at or above the best in hindsight
            assert paid.cost >= recomputed.cost * (1 - 1e-9)
            order = ledger.terms[paid.id].meter.orders if not panel.rotating else None
            if order is not None:
                fixed = account_for(
                    votes,
                    panel,
                    aggregator.mechanism,
                    Meter(meter.bound, meter.conversion, order),
                    answered=mask,
                    student_probs=probs,
                )
                own = next(entry for entry in fixed.groups if entry.group == paid.group)
                if len({terms.meter.orders for terms in ledger.terms.values()}) == 1 or own.cost > 0:
                    assert paid.cost == pytest.approx(own.cost, rel=1e-9, abs=1e-12)
        else:
            assert paid.cost == pytest.approx(recomputed.cost, rel=1e-9, abs=1e-12)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.mark.parametrize("bound", ["gdp", "loose", "sup", "tight", "exact"])
def test_labelling_stops_at_the_last_affordable_query(rng, bound):
    """Not only never over: nothing is wasted either, one more query would break the strictest."""
    votes = make_votes(rng, queries=3000, agreement=0.9)
    budgets = {"a": 1.0, "b": 2.0}
    votes, panel = make_panel(votes, budgets, "weighting")
    aggregator = make_aggregator("gnmax", 8.0)
    meter = Meter(bound, "improved", [2, 4, 8, 16, 32])
    ledger = open_ledger(panel, meter, aggregator)
    result = label(votes, panel, aggregator, meter, ledger=ledger, noise=SeededNoise(1))
    assert result.stopped_by == "budget"
    broke = [g.id for g in result.groups if g.labels_until_exhausted is not None]
    assert broke
    mask = np.full(votes.n_queries, -1, dtype=np.int8)
    mask[: result.n_queries + 1] = 1
    orders = ledger.terms[broke[0]].meter.orders
    over = account_for(votes, panel, aggregator.mechanism, Meter(bound, "improved", orders), answered=mask)
    assert next(g.cost for g in over.groups if g.id == broke[0]) > budgets[broke[0]]


def test_results_list_the_strictest_group_first(rng):
    votes, panel = make_panel(make_votes(rng), {"a": 2.0, "b": 1.0}, "weighting")
    result = label(votes, panel, make_aggregator("gnmax", 8.0), Meter("gdp"), noise=SeededNoise(1))
    assert [group.id for group in result.groups] == ["b", "a"]
    assert [group.budget.epsilon for group in result.groups] == [1.0, 2.0]
    record = Record.of(result, n_public=votes.n_queries)
    assert [group.id for group in replace(record, groups=record.groups[::-1]).groups] == ["b", "a"]


def test_equal_budgets_make_all_variants_identical_to_standard(rng):
    votes = make_votes(rng, queries=400)
    equal = {"a": 2.0, "b": 2.0}
    aggregator = make_aggregator("confident", 8.0)
    results = []
    for variant in ("standard", "weighting", "upsampling", "vanishing"):
        ballot, panel = make_panel(votes, equal, variant, copies={"a": 1, "b": 1})
        results.append(label(ballot, panel, aggregator, Meter("gdp"), noise=SeededNoise(3)))
    for other in results[1:]:
        for field in ("queries", "labels", "answered"):
            np.testing.assert_array_equal(getattr(results[0], field), getattr(other, field))
        assert [g.cost for g in other.groups] == [g.cost for g in results[0].groups]


@pytest.mark.parametrize("bound", ["loose", "gdp", "sup", "tight"])
def test_integer_weight_costs_the_same_as_copies(rng, bound):
    """Groups 1:2:3 by weighting and by upsampling, on the same counts: the same cost per group."""
    groups = ("one", "two", "three")
    votes = make_votes(rng, groups=groups, queries=80)
    weight = {"one": 1.0, "two": 2.0, "three": 3.0}
    weights = np.array([weight[name] for name in votes.groups])
    rows = [(name, 50.0, DELTA, None) for name in groups]
    heavy = Panel.from_votes(votes, rows, weights=weights)
    repeated = np.repeat(np.asarray(votes.votes), weights.astype(int), axis=0)
    copied = Votes(votes=repeated, n_classes=votes.n_classes)
    many = Panel.from_votes(copied, [(name, 50.0, DELTA, weight[name]) for name in groups])
    mechanism = Mechanism(sigma=10, check_sigma=30, threshold=30)
    meter = Meter(bound)
    one = account_for(votes, heavy, mechanism, meter)
    other = account_for(copied, many, mechanism, meter)
    for left, right in zip(one.groups, other.groups, strict=True):
        assert left.cost == pytest.approx(right.cost, rel=1e-12)


def test_drop_removes_exhausted_groups_and_rescales_charges(rng):
    votes = make_votes(rng, queries=4000, agreement=0.9, groups=("a", "b", "c"))
    budgets = {"a": 0.5, "b": 1.0, "c": 4.0}
    votes, panel = make_panel(votes, budgets, "weighting", rule="uniform")
    aggregator = make_aggregator("gnmax", 8.0)
    ledger = open_ledger(panel, Meter("gdp"), aggregator)
    dropped = label(votes, panel, aggregator, Meter("gdp"), stop="drop", noise=SeededNoise(5), ledger=ledger)
    stopped = label(votes, panel, aggregator, Meter("gdp"), stop="budget", noise=SeededNoise(5))
    assert dropped.n_labels > 2 * stopped.n_labels
    np.testing.assert_array_equal(dropped.labels[: stopped.n_labels], stopped.labels)
    left = {group.id: group.labels_until_exhausted for group in dropped.groups}
    assert left["a"] < left["b"] < left["c"] == dropped.n_labels
    by_hand = dict.fromkeys(budgets, 0.0)
    for charge in ledger.charges:
        for name in budgets:
            by_hand[name] += len(charge.keys) * 2 * float(charge.sensitivity[name]) ** 2 / 8.0**2
    alone = panel.n_teachers / Counter(votes.groups)["c"]
    assert float(ledger.charges[-1].sensitivity["c"]) == pytest.approx(alone)
    assert float(ledger.charges[-1].sensitivity["a"]) == 0.0
    for name, spent in by_hand.items():
        assert float(ledger.spent(name)[0]) == pytest.approx(spent, rel=1e-12)
    for group in dropped.groups:
        assert group.cost <= budgets[group.id]


def test_remaining_weights_sum_to_the_number_of_teachers(rng):
    votes = make_votes(rng, groups=("a", "b", "c"))
    _, panel = make_panel(votes, {"a": 1.0, "b": 2.0, "c": 3.0}, "weighting")
    rest = panel.without(frozenset({"a"}))
    assert rest.weights.sum() == pytest.approx(votes.n_teachers)
    assert np.all(rest.weights[np.array(votes.groups) == "a"] == 0)
    for before, after in zip(panel.groups, rest.groups, strict=True):
        expected = (
            0.0
            if before.id == "a"
            else before.sensitivity * panel.total_weight / (panel.weights[np.array(votes.groups) != "a"].sum())
        )
        assert after.sensitivity == pytest.approx(expected)


@pytest.mark.parametrize("noise", [SeededNoise(2), SecureNoise()])
@pytest.mark.parametrize("batch", [3, 50])
def test_repeated_query_returns_its_stored_answer_free(rng, batch, noise):
    votes = make_votes(rng, queries=30, agreement=0.4)
    ids = tuple(str(i % 10) for i in range(30))
    twice = replace(votes, queries=ids)
    twice, panel = make_panel(twice, {"a": 5.0, "b": 5.0}, "standard")
    aggregator = make_aggregator("confident", 8.0)
    result = label(twice, panel, aggregator, Meter("gdp"), noise=noise, batch=batch)
    assert result.n_queries == 10
    assert len(result.queries) == 30
    assert result.repeated.sum() == 20
    first = {
        ids[q]: (lab, ans) for q, lab, ans in zip(result.queries[:10], result.labels, result.answered, strict=False)
    }
    for query, value, answered in zip(result.queries, result.labels, result.answered, strict=True):
        assert (value, answered) == first[ids[query]]
    expected = 10 / 24.0**2 + result.n_labels * 2 / 8.0**2
    ledger = open_ledger(panel, Meter("gdp"), aggregator)
    spent = Meter("gdp").epsilon(np.array([expected]), DELTA)[0]
    assert result.groups[0].cost == pytest.approx(float(spent))
    assert isinstance(ledger, MemoryLedger)


def test_seeded_answers_do_not_depend_on_chunks_or_order(rng):
    votes = make_votes(rng, queries=200)
    votes, panel = make_panel(votes, {"a": 30.0, "b": 40.0}, "weighting")
    aggregator = make_aggregator("confident", 8.0)
    runs = [
        label(votes, panel, aggregator, Meter("gdp"), noise=SeededNoise(4), batch=size, order=order)
        for size, order in ((1, None), (7, None), (None, None), (13, rng.permutation(200)))
    ]
    answers = [dict(zip(run.queries.tolist(), run.labels.tolist(), strict=True)) for run in runs]
    assert all(answer == answers[0] for answer in answers)


def test_labelling_releases_nothing_when_the_ledger_refuses(rng):
    """A ledger with less than the loop believes: the charge fails, and with it the whole batch."""

    class Short(MemoryLedger):
        def balances(self, accounts):
            spent, limit = super().balances(accounts)
            return spent, limit * 10

    votes = make_votes(rng, queries=500)
    votes, panel = make_panel(votes, {"a": 1.0, "b": 1.0}, "standard")
    aggregator = make_aggregator("gnmax", 8.0)
    honest = open_ledger(panel, Meter("gdp"), aggregator)
    short = Short(list(honest.terms.values()))
    with pytest.raises(BudgetExceededError, match="group 'a' cannot pay"):
        label(votes, panel, aggregator, Meter("gdp"), ledger=short, noise=SeededNoise(1))
    assert float(short.spent("a")[0]) == 0.0


def test_second_run_starts_from_the_remaining_budget(rng):
    votes = make_votes(rng, queries=500)
    votes, panel = make_panel(votes, {"a": 1.0, "b": 2.0}, "weighting")
    aggregator = make_aggregator("gnmax", 8.0)
    ledger = open_ledger(panel, Meter("gdp"), aggregator)
    whole = label(votes, panel, aggregator, Meter("gdp"), noise=SeededNoise(1))
    first = label(votes, panel, aggregator, Meter("gdp"), stop="count", max_labels=3, ledger=ledger)
    second = label(votes, panel, aggregator, Meter("gdp"), ledger=ledger)
    assert first.n_labels == 3
    assert first.n_labels + second.n_labels == whole.n_labels
    third = label(votes, panel, aggregator, Meter("gdp"), ledger=ledger)
    assert third.n_labels == 0


def test_count_stops_at_its_number_or_the_budget(rng):
    votes = make_votes(rng, queries=300)
    votes, panel = make_panel(votes, {"a": 1.0, "b": 2.0}, "weighting")
    aggregator = make_aggregator("gnmax", 8.0)
    three = label(votes, panel, aggregator, Meter("tight"), stop="count", max_labels=3)
    assert (three.n_labels, three.stopped_by, three.guarantee.kind) == (3, "count", "private")
    asked = label(votes, panel, aggregator, Meter("gdp"), stop="count", max_queries=4)
    assert (asked.n_queries, asked.guarantee.kind) == (4, "releasable")
    many = label(votes, panel, aggregator, Meter("gdp"), stop="count", max_labels=299, noise=SeededNoise(1))
    assert many.stopped_by == "budget"
    assert "not private" in many.guarantee.statement


def test_algorithm2_exhausts_its_large_strict_group_first(rng):
    votes = make_votes(rng, teachers=100, queries=2000, groups=tuple("aaaaaabbbc"))
    budgets = {"a": 1.0, "b": 2.0, "c": 3.0}
    with pytest.warns(UserWarning, match="algorithm2"):
        votes, panel = make_panel(votes, budgets, "weighting", rule="algorithm2")
    result = label(votes, panel, make_aggregator("gnmax", 16.0), Meter("gdp"), noise=SeededNoise(1))
    cost = {group.id: group.cost / group.budget.epsilon for group in result.groups}
    assert next(g for g in result.groups if g.id == "a").labels_until_exhausted is not None
    assert cost["a"] > 0.9
    assert cost["c"] < 0.4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"stop": "later"}, "'later'"),
        ({"stop": "count"}, "without a number"),
        ({"max_labels": 0}, "max_labels is 0"),
        ({"max_queries": -3}, "max_queries is -3"),
    ],
)
def test_invalid_request_is_refused_with_its_value(rng, change, words):
    votes, panel = make_panel(make_votes(rng), {"a": 1.0, "b": 2.0}, "weighting")
    with pytest.raises(InputError, match=words):
        label(votes, panel, make_aggregator("gnmax", 8.0), Meter("gdp"), **change)


def test_drop_is_refused_for_mixed_or_rotating_teachers(rng):
    for variant in ("upsampling", "vanishing"):
        votes, panel = make_panel(make_votes(rng), {"a": 1.0, "b": 2.0}, variant, copies={"a": 1, "b": 2})
        with pytest.raises(InputError, match="drop"):
            label(votes, panel, make_aggregator("gnmax", 8.0), Meter("gdp"), stop="drop")


def test_budget_below_one_query_yields_no_label_or_cost(rng):
    votes, panel = make_panel(make_votes(rng), {"a": 0.01, "b": 2.0}, "standard")
    result = label(votes, panel, make_aggregator("gnmax", 0.5), Meter("gdp"))
    assert result.n_labels == 0
    assert [group.cost for group in result.groups] == [0.0, 0.0]


def test_lnmax_refuses_bounds_without_a_laplace_cost(rng):
    votes, panel = make_panel(make_votes(rng), {"a": 1.0, "b": 2.0}, "weighting")
    with pytest.raises(InputError, match="LNMax"):
        label(votes, panel, make_aggregator("lnmax", 8.0), Meter("exact"))


def test_disjoint_panel_costs_do_not_depend_on_names(rng):
    votes = make_votes(rng, groups=("all",))
    named = Panel.from_votes(votes, [("all", 3.0, DELTA, None)])
    unnamed = Panel(
        groups=(Account(group=Group(id="all", budget=Budget(3.0, DELTA)), sensitivity=1.0),),
        weights=np.ones(votes.n_teachers),
        disjoint=True,
    )
    mechanism = Mechanism(sigma=8.0)
    one = account_for(votes, named, mechanism, Meter("exact"))
    other = account_for(replace(votes, groups=None), unnamed, mechanism, Meter("exact"))
    assert one.groups[0].cost == pytest.approx(other.groups[0].cost, rel=1e-12)


def small_run(rng):
    votes, panel = make_panel(make_votes(rng, queries=20), {"a": 1.0, "b": 2.0}, "weighting")
    return votes, panel, make_aggregator("gnmax", 8.0)


def test_ledger_in_another_unit_is_refused(rng):
    """Otherwise μ² would be added up as if it were a Rényi cost, and people charged a fraction."""
    votes, panel, aggregator = small_run(rng)
    for theirs, ours in (
        (Meter("loose"), Meter("gdp")),
        (Meter("gdp"), Meter("loose")),
        (Meter("tight"), Meter("exact")),
    ):
        ledger = open_ledger(panel, theirs, aggregator)
        with pytest.raises(InputError, match="one account has one unit"):
            label(votes, panel, aggregator, ours, ledger=ledger)


def test_ledger_with_other_budgets_or_accounts_is_refused(rng):
    votes, panel, aggregator = small_run(rng)
    _, richer = make_panel(votes, {"a": 9.0, "b": 2.0}, "weighting")
    with pytest.raises(InputError, match=r"the ledger has the budget 9 .* the panel 1"):
        label(votes, panel, aggregator, Meter(), ledger=open_ledger(richer, Meter(), aggregator))
    with pytest.raises(InputError, match="account 'a' is not in the ledger"):
        label(votes, panel, aggregator, Meter(), ledger=MemoryLedger([]))


def test_votes_and_panel_that_disagree_are_refused(rng):
    votes, panel, aggregator = small_run(rng)
    fewer = replace(votes, votes=votes.votes[:29], groups=votes.groups[:29])
    with pytest.raises(InputError, match="the panel has 30 teachers and the votes 29"):
        label(fewer, panel, aggregator, Meter())
    turns = replace(votes, participation=np.ones(votes.votes.shape, dtype=bool))
    with pytest.raises(InputError, match="participation"):
        label(turns, panel, aggregator, Meter())


def test_duplicate_positions_repeat_and_invalid_positions_are_refused(rng):
    votes, panel, aggregator = small_run(rng)
    result = label(votes, panel, aggregator, Meter(), order=[3, 3, 1], noise=SecureNoise())
    assert result.repeated.tolist() == [False, True, False]
    assert result.labels[0] == result.labels[1]
    assert result.n_queries == 2
    for order, words in (([20], "20"), ([-1], "-1"), ([0.5], "float64"), ([[1]], "shape")):
        with pytest.raises(InputError, match=words):
            label(votes, panel, aggregator, Meter(), order=order)


def test_invalid_student_probabilities_are_refused(rng):
    votes, panel, _ = small_run(rng)
    probs = np.full((20, 4), 0.25)
    probs[7, 2] = np.nan
    with pytest.raises(InputError, match="nan in row 7"):
        label(votes, panel, make_aggregator("interactive", 8.0), Meter(), student_probs=probs)


@pytest.mark.parametrize("bound", ["loose", "tight", "exact"])
def test_group_that_affords_nothing_is_dropped_alone(rng, bound):
    """Under the classic conversion no order affords ε = 0.1: that group leaves and costs nothing."""
    votes = make_votes(rng, queries=200, agreement=0.95)
    votes, panel = make_panel(votes, {"a": 0.1, "b": 6.0}, "weighting", rule="uniform")
    result = label(
        votes, panel, make_aggregator("gnmax", 8.0), Meter(bound, "classic"), stop="drop", noise=SeededNoise(1)
    )
    cost = {group.id: group.cost for group in result.groups}
    assert result.n_labels > 0
    assert cost["a"] == 0.0
    assert 0 < cost["b"] <= 6.0


def test_stop_at_the_affordable_number_counts_as_count(rng):
    votes, panel = make_panel(make_votes(rng, queries=300), {"a": 1.0, "b": 2.0}, "weighting")
    aggregator = make_aggregator("gnmax", 8.0)
    all_of_it = label(votes, panel, aggregator, Meter(), noise=SeededNoise(1)).n_labels
    counted = label(votes, panel, aggregator, Meter(), stop="count", max_labels=all_of_it, noise=SeededNoise(1))
    assert (counted.n_labels, counted.stopped_by) == (all_of_it, "count")


@pytest.mark.parametrize("bound", ["loose", "sup"])
def test_stopping_account_is_read_at_its_fixed_order(rng, bound):
    votes, panel = make_panel(make_votes(rng, queries=300), {"a": 1.0, "b": 2.0}, "weighting")
    aggregator = make_aggregator("confident", 8.0)
    meter = Meter(bound)
    ledger = open_ledger(panel, meter, aggregator)
    result = label(votes, panel, aggregator, meter, ledger=ledger, noise=SeededNoise(1))
    mask = np.full(votes.n_queries, -1, dtype=np.int8)
    mask[result.queries] = result.answered
    again = account_for(votes, panel, aggregator.mechanism, meter, answered=mask, stopped_by="account")
    for paid, told in zip(result.groups, again.groups, strict=True):
        assert told.cost == pytest.approx(paid.cost, rel=1e-12)
        assert told.order == ledger.terms[told.id].meter.orders[0]
    assert again.guarantee.kind == "releasable"
