"""The account of a run, against a plain recomputation: one query, one account, one order at a time."""

import itertools
import json
import math
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipate.accounting import exact, sup, tight
from ipate.accounting.bounds import Meter
from ipate.engines.teachers import account
from ipate.engines.teachers.account import account_for, check_mask
from ipate.engines.teachers.aggregators import Mechanism
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.votes import Votes
from ipate.errors import InputError
from ipate.people.budgets import Budget

ORDERS = (2.0, 3.5, 8.0, 20.0, 40.0)
CHECKED = Mechanism(sigma=4.0, check_sigma=6.0, threshold=5.0)
BOUNDS = ("loose", "gdp", "sup", "tight", "exact")
VARIANTS = ("standard", "weighting", "upsampling", "vanishing")
NAMES = ("strict", "usual", "lax")
TEACHER_GROUPS = ("usual", "strict", "lax", "strict", "usual", "lax", "strict", "strict")
WEIGHT_OF = {"strict": 0.6, "usual": 1.1, "lax": 1.9}
COPIES = {"strict": 1.0, "usual": 2.0, "lax": 3.0}
DELTA_OF = {"strict": 1e-6, "usual": 1e-5, "lax": 1e-4}
MASK = np.array([1, 0, 1, -1, 1, 1, 0, 1, -1, 1, 0, 1], dtype=np.int8)


def make(variant, *, budgets=(1.0, 2.0, 3.0), abstain=False, order=(0, 1, 2), seed=3):
    """A small run of every variant: eight teachers, twelve queries, four classes, three groups."""
    rng = np.random.default_rng(seed)
    votes = np.minimum(rng.integers(0, 5, (8, 12)), rng.integers(0, 5, (8, 12))) % 4
    if abstain:
        votes[rng.random(votes.shape) < 0.15] = -1
    present = rng.random((8, 12)) < 0.6
    present[:, 5] = False
    made = Votes(
        votes=votes,
        n_classes=4,
        groups=None if variant == "upsampling" else TEACHER_GROUPS,
        participation=present if variant == "vanishing" else None,
    )
    weights = np.array([WEIGHT_OF[name] for name in TEACHER_GROUPS]) if variant == "weighting" else None
    rows = [
        (name, budget, DELTA_OF[name], COPIES[name] if variant == "upsampling" else None)
        for name, budget in zip(NAMES, budgets, strict=True)
    ]
    return made, Panel.from_votes(made, [rows[i] for i in order], weights=weights)


# The plain recomputation


def plain_epsilon(cost, delta, meter):
    """Section 3 of the specification, written down once more."""
    if not any(cost):
        return 0.0, None
    if meter.bound == "gdp":
        return gdp_epsilon(math.sqrt(cost[0]), delta), None
    if meter.conversion == "classic":
        pairs = [(rdp + math.log(1 / delta) / (a - 1), a) for rdp, a in zip(cost, meter.orders, strict=True)]
    else:
        pairs = [
            (rdp + math.log(1 - 1 / a) - math.log(a * delta) / (a - 1), a)
            for rdp, a in zip(cost, meter.orders, strict=True)
        ]
    best, order = min(pairs)
    return max(best, 0.0), order


def gdp_epsilon(mu, delta):
    """Solve δ = Φ(−ε/μ + μ/2) − e^ε·Φ(−ε/μ − μ/2) for ε by halving."""

    def phi(x):
        return 0.5 * math.erfc(-x / math.sqrt(2))

    low, high = 0.0, 200.0
    for _ in range(200):
        middle = (low + high) / 2
        if phi(-middle / mu + mu / 2) - math.exp(middle) * phi(-middle / mu - mu / 2) > delta:
            low = middle
        else:
            high = middle
    return high


def plain_counts(votes, weights, present, query):
    k = len(votes)
    here = [i for i in range(k) if present is None or present[i, query]]
    scale = 1.0 if present is None else (k / len(here) if here else 0.0)
    counts = [0.0] * 4
    for i in here:
        if votes[i, query] >= 0:
            counts[votes[i, query]] += scale * weights[i]
    return counts, scale


def plain_check(meter, mechanism, sensitivity, maximum):
    ratio = sensitivity / mechanism.check_sigma
    if meter.bound == "gdp":
        return [ratio**2]
    if meter.bound == "sup":
        cost = sup.check_rdp(meter.orders, sensitivity=sensitivity, check_sigma=mechanism.check_sigma)
        return cost.tolist()
    if meter.bound == "exact":
        check = {"check_sigma": mechanism.check_sigma, "threshold": mechanism.threshold}
        return exact.check_rdp([maximum], meter.orders, sensitivity=sensitivity, **check)[0].tolist()
    return [a * ratio**2 / 2 for a in meter.orders]


def plain_label(meter, mechanism, sensitivity, counts, sources, abstain):
    """`sources`: what the people's teachers voted, or None where their votes are mixed."""
    sigma = mechanism.sigma
    if meter.bound == "gdp":
        return [2 * (sensitivity / sigma) ** 2]
    if meter.bound == "loose":
        return [a * (sensitivity / sigma) ** 2 for a in meter.orders]
    if meter.bound == "sup":
        return sup.label_rdp(meter.orders, sensitivity=sensitivity, sigma=sigma).tolist()
    if meter.bound == "tight":
        return tight.label_rdp([counts], meter.orders, sensitivity=[sensitivity], sigma=sigma)[0, 0].tolist()
    if sources is None:
        moved = {"copies": sensitivity, "sigma": sigma, "abstain": abstain}
        own = exact.upsampled_label_rdp([counts], meter.orders, **moved)[0]
        return np.minimum(own, sup.label_rdp(meter.orders, sensitivity=sensitivity, sigma=sigma)).tolist()
    moved = {"weight": sensitivity, "sigma": sigma, "abstain": abstain}
    table = exact.label_rdp_by_source([counts], meter.orders, **moved)[0]
    return np.max([table[source] for source in sources], axis=0).tolist()


def plain_accounts(votes, panel, mechanism, meter, mask, probs=None):
    """What every account has spent after every query: {group: list of accounts, each a list of cost vectors}."""
    result = {}
    ballot, present = votes.votes, votes.participation
    abstain = bool((ballot < 0).any())
    for group in panel.groups:
        teachers = [i for i, name in enumerate(votes.groups or ()) if name == group.id]
        owners = [[i] for i in teachers] if panel.rotating else [teachers]
        result[group.id] = []
        for own in owners:
            spent, steps = [0.0] * meter.width, []
            for query in range(ballot.shape[1]):
                counts, scale = plain_counts(ballot, panel.weights, present, query)
                moved = group.sensitivity
                if panel.rotating:
                    moved = scale if present[own[0], query] else 0.0
                scores = counts
                if probs is not None:
                    scores = [n - panel.weights.sum() * p for n, p in zip(counts, probs[query], strict=True)]
                if mask[query] != -1 and moved > 0:
                    if mechanism.check_sigma is not None:
                        charge = plain_check(meter, mechanism, moved, max(scores))
                        spent = [a + b for a, b in zip(spent, charge, strict=True)]
                    if mask[query] == 1:
                        sources = None if votes.groups is None else {int(ballot[i, query]) for i in own}
                        charge = plain_label(meter, mechanism, moved, counts, sources, abstain)
                        spent = [a + b for a, b in zip(spent, charge, strict=True)]
                steps.append(spent)
            result[group.id].append(steps)
    return result


def plain_history(accounts, panel, meter):
    """The worst ε of every group after every query."""
    return {
        group.id: [
            max(plain_epsilon(steps[query], group.delta, meter)[0] for steps in accounts[group.id])
            for query in range(len(accounts[group.id][0]))
        ]
        for group in panel.groups
    }


CASES = [
    (variant, bound, conversion)
    for variant, bound, conversion in itertools.product(VARIANTS, BOUNDS, ("classic", "improved"))
    if (bound, conversion) != ("gdp", "classic")
]


@pytest.mark.parametrize("abstain", [False, True], ids=["all vote", "some abstain"])
@pytest.mark.parametrize(("variant", "bound", "conversion"), CASES)
def test_account_equals_plain_sum_of_costs(variant, bound, conversion, abstain):
    meter = Meter(bound, conversion, ORDERS)
    votes, panel = make(variant, abstain=abstain)
    plain = plain_accounts(votes, panel, CHECKED, meter, MASK)
    running = plain_history(plain, panel, meter)
    # budgets between what two queries have cost: the first query above is known
    budgets = []
    for name, start in zip(NAMES, (3, 5, 7), strict=True):
        stop = next(query for query in range(start, 12) if running[name][query] > running[name][query - 1] * 1.001)
        budgets.append((running[name][stop - 1] + running[name][stop]) / 2)
    votes, panel = make(variant, budgets=budgets, abstain=abstain)
    rows = []
    result = account_for(votes, panel, CHECKED, meter, answered=MASK, history=rows.extend)
    assert (result.queries, result.answered) == (10, 7)
    for group, budget in zip(result.groups, budgets, strict=True):
        costs = [plain_epsilon(steps[-1], DELTA_OF[group.id], meter) for steps in plain[group.id]]
        epsilon, order = max(costs, key=lambda pair: pair[0])
        assert group.cost == pytest.approx(epsilon, rel=1e-9)
        assert group.order == order
        assert (group.budget.epsilon, group.budget.delta) == (budget, DELTA_OF[group.id])
        first = next(query for query, spent in enumerate(running[group.id]) if spent > budget)
        assert group.exhausted_at == first
        history = [value for _, name, value in rows if name == group.id]
        assert history == pytest.approx(running[group.id], rel=1e-9)
        assert history[-1] == group.cost
        assert all(before <= after for before, after in itertools.pairwise(history))
    assert [row[0] for row in rows] == [query for query in range(12) for _ in range(3)]


@pytest.mark.parametrize("stopped_by", ["fixed", "account"])
@pytest.mark.parametrize("variant", ["standard", "weighting", "upsampling"])
@pytest.mark.parametrize("bound", ["loose", "gdp"])
@given(
    mask=st.lists(st.sampled_from([-1, 0, 1]), min_size=12, max_size=12),
    budgets=st.tuples(*[st.floats(0.3, 9)] * 3),
)
@settings(max_examples=15)
def test_closed_form_matches_query_by_query_sum(bound, variant, stopped_by, mask, budgets):
    """Without a history the costs are n·check + m·label; with one they are added up query by query."""
    votes, panel = make(variant, budgets=budgets)
    meter, given_mask = Meter(bound, "improved", ORDERS), np.array(mask)
    short = account_for(votes, panel, CHECKED, meter, answered=given_mask, stopped_by=stopped_by)
    long = account_for(
        votes, panel, CHECKED, meter, answered=given_mask, stopped_by=stopped_by, history=lambda rows: None
    )
    assert short.guarantee == long.guarantee
    for ours, theirs in zip(short.groups, long.groups, strict=True):
        assert ours.cost == pytest.approx(theirs.cost, rel=1e-12)
        assert replace(ours, cost=0.0) == replace(theirs, cost=0.0)


@pytest.mark.parametrize("bound", ["loose", "gdp", "sup"])
def test_data_independent_account_reads_no_votes(bound):
    _, panel = make("weighting")
    unread = SimpleNamespace(n_queries=12)
    result = account_for(unread, panel, CHECKED, Meter(bound, "improved", ORDERS), answered=MASK)
    assert (result.queries, result.answered) == (10, 7)


@pytest.mark.parametrize("bound", BOUNDS)
def test_without_a_check_only_labels_are_charged(bound):
    meter = Meter(bound, "improved", ORDERS)
    votes, panel = make("weighting")
    mechanism = Mechanism(sigma=4.0)
    plain = plain_history(plain_accounts(votes, panel, mechanism, meter, MASK), panel, meter)
    result = account_for(votes, panel, mechanism, meter, answered=MASK)
    for group in result.groups:
        assert group.cost == pytest.approx(plain[group.id][-1], rel=1e-9)


def test_reported_sensitivity_is_the_largest_charged():
    votes, panel = make("weighting")
    sensitivity = {g.id: g.sensitivity for g in account_for(votes, panel, CHECKED, Meter()).groups}
    assert sensitivity == WEIGHT_OF
    votes, panel = make("upsampling")
    sensitivity = {g.id: g.sensitivity for g in account_for(votes, panel, CHECKED, Meter()).groups}
    assert sensitivity == COPIES
    votes, panel = make("vanishing")
    present = votes.participation
    for group in account_for(votes, panel, CHECKED, Meter()).groups:
        own = [i for i, name in enumerate(TEACHER_GROUPS) if name == group.id]
        assert group.sensitivity == max(8 / present[:, q].sum() for q in range(12) for i in own if present[i, q])


def test_delta_of_the_group_is_used():
    votes, panel = make("weighting")
    same = replace(panel, groups=tuple(group.with_budget(Budget(group.epsilon, 1e-5)) for group in panel.groups))
    strict = {g.id: g.cost for g in account_for(votes, panel, CHECKED, Meter()).groups}
    equal = {g.id: g.cost for g in account_for(votes, same, CHECKED, Meter()).groups}
    assert strict["strict"] > equal["strict"]
    assert strict["usual"] == equal["usual"]
    assert strict["lax"] < equal["lax"]


# Masks


def test_without_a_mask_every_query_is_answered():
    votes, panel = make("weighting")
    result = account_for(votes, panel, CHECKED, Meter())
    assert (result.queries, result.answered) == (12, 12)
    assert result == account_for(votes, panel, CHECKED, Meter(), answered=np.ones(12, np.int8))


def test_bool_mask_is_read_as_answered_or_not():
    votes, panel = make("weighting")
    mask = np.arange(12) % 3 == 0
    result = account_for(votes, panel, CHECKED, Meter(), answered=mask)
    assert (result.queries, result.answered) == (12, 4)
    assert result == account_for(votes, panel, CHECKED, Meter(), answered=mask.astype(np.int64))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("bound", BOUNDS)
def test_check_is_charged_for_unanswered_queries_too(variant, bound):
    votes, panel = make(variant)
    meter = Meter(bound, "improved", ORDERS)
    few = np.where(np.arange(12) < 6, 0, -1)
    many = np.zeros(12, int)
    epsilon = [
        [group.cost for group in account_for(votes, panel, CHECKED, meter, answered=mask).groups]
        for mask in (few, many)
    ]
    assert all(0 < half < whole for half, whole in zip(*epsilon, strict=True))


@pytest.mark.parametrize("bound", BOUNDS)
def test_query_not_asked_costs_nothing(bound):
    votes, panel = make("weighting")
    meter = Meter(bound, "improved", ORDERS)
    result = account_for(votes, panel, CHECKED, meter, answered=MASK)
    asked = np.flatnonzero(MASK != -1)
    alone = account_for(replace(votes, votes=votes.votes[:, asked]), panel, CHECKED, meter, answered=MASK[asked])
    for ours, theirs in zip(result.groups, alone.groups, strict=True):
        assert ours.cost == pytest.approx(theirs.cost, rel=1e-12)
    nothing = account_for(votes, panel, CHECKED, meter, answered=np.full(12, -1))
    assert (nothing.queries, nothing.answered) == (0, 0)
    assert [(g.cost, g.order, g.exhausted_at) for g in nothing.groups] == [(0.0, None, None)] * 3


def test_zero_cost_never_exhausts_any_budget():
    votes, panel = make("weighting", budgets=(0.01, 0.01, 50.0))
    mask = np.where(np.arange(12) == 7, 1, -1)
    result = account_for(votes, panel, CHECKED, Meter("loose", "classic", ORDERS), answered=mask)
    assert [group.exhausted_at for group in result.groups] == [7, 7, None]


def test_budget_met_exactly_is_not_exhausted():
    votes, panel = make("weighting")
    cost = [group.cost for group in account_for(votes, panel, CHECKED, Meter()).groups]
    for factor, expected in ((1 + 1e-9, None), (1 - 1e-9, 11)):
        votes, panel = make("weighting", budgets=[epsilon * factor for epsilon in cost])
        ends = [group.exhausted_at for group in account_for(votes, panel, CHECKED, Meter()).groups]
        assert ends == [expected] * 3


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (np.ones(11, int), r"answered has the shape \(11,\): it must hold one value for each of 12 queries"),
        (np.ones((12, 1), int), r"answered has the shape \(12, 1\)"),
        (np.ones(12), "answered is float64: it must be bool or hold 1"),
        (np.full(12, 2), r"answered holds 2: it may hold 1 \(answered\), 0 \(not answered\), −1"),
        (np.full(12, -2), "answered holds -2"),
        (np.full(12, 255, np.uint8), "answered holds 255"),
        (np.array(["1"] * 12), "answered is <U1"),
    ],
)
def test_invalid_mask_is_refused(mask, message):
    with pytest.raises(InputError, match=message):
        check_mask(mask, 12)


# What must not matter


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("bound", BOUNDS)
def test_chunk_size_does_not_change_the_account(monkeypatch, variant, bound):
    meter = Meter(bound, "improved", ORDERS)
    probs = np.random.default_rng(5).dirichlet(np.ones(4), 12)
    results, done = [], []
    for most, memory in ((4096, 1 << 25), (1, 1 << 25), (5, 1 << 25), (4096, 1)):
        monkeypatch.setattr(account, "_MOST", most)
        monkeypatch.setattr(account, "_MEMORY", memory)
        votes, panel = make(variant, budgets=(0.3, 0.6, 1.0), abstain=True)
        rows, progress = [], []
        result = account_for(
            votes,
            panel,
            CHECKED,
            meter,
            answered=MASK,
            student_probs=probs,
            history=rows.extend,
            progress=progress.append,
        )
        results.append((result, rows))
        done.append(progress)
    assert done == [[12], list(range(1, 13)), [5, 10, 12], list(range(1, 13))]
    for result, rows in results[1:]:
        assert [g.exhausted_at for g in result.groups] == [g.exhausted_at for g in results[0][0].groups]
        for (query, name, epsilon), (other_query, other_name, other) in zip(rows, results[0][1], strict=True):
            assert (query, name) == (other_query, other_name)
            assert epsilon == pytest.approx(other, rel=1e-12)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("order", [(2, 0, 1), (1, 0, 2)])
def test_permuting_groups_only_permutes_the_results(variant, bound, order):
    meter = Meter(bound, "improved", ORDERS)
    votes, panel = make(variant, budgets=(0.4, 0.7, 1.1))
    expected = account_for(votes, panel, CHECKED, meter, answered=MASK)
    votes, panel = make(variant, budgets=(0.4, 0.7, 1.1), order=order)
    result = account_for(votes, panel, CHECKED, meter, answered=MASK)
    for ours, theirs in zip(result.groups, [expected.groups[i] for i in order], strict=True):
        assert ours.cost == pytest.approx(theirs.cost, rel=1e-12)
        assert replace(ours, cost=0.0) == replace(theirs, cost=0.0)


@pytest.mark.parametrize("bound", BOUNDS)
def test_permuting_teachers_changes_nothing(bound):
    meter = Meter(bound, "improved", ORDERS)
    votes, panel = make("weighting")
    turn = [3, 1, 7, 0, 2, 6, 5, 4]
    moved = replace(votes, votes=votes.votes[turn], groups=tuple(TEACHER_GROUPS[i] for i in turn))
    rows = [(group.id, group.epsilon, group.delta, None) for group in panel.groups]
    turned = Panel.from_votes(moved, rows, weights=panel.weights[turn])
    expected = account_for(votes, panel, CHECKED, meter, answered=MASK)
    result = account_for(moved, turned, CHECKED, meter, answered=MASK)
    for ours, theirs in zip(result.groups, expected.groups, strict=True):
        assert ours.cost == pytest.approx(theirs.cost, rel=1e-9)
        assert (ours.id, ours.sensitivity) == (theirs.id, theirs.sensitivity)


# Bounds among each other


@pytest.mark.parametrize("variant", VARIANTS)
def test_tighter_bounds_never_cost_more(variant):
    votes, panel = make(variant)
    cost = {
        bound: [g.cost for g in account_for(votes, panel, CHECKED, Meter(bound, "improved", ORDERS)).groups]
        for bound in BOUNDS
    }
    for loose, tight_, sup_, exact_ in zip(*(cost[b] for b in ("loose", "tight", "sup", "exact")), strict=True):
        assert sup_ <= loose
        assert exact_ <= (loose if variant == "upsampling" else sup_)  # the tangent bound may exceed sup
        assert tight_ <= loose * (1 + 1e-12)  # one is summed, the other multiplied
    assert cost["sup"] != cost["loose"]


@pytest.mark.parametrize("bound", ["loose", "gdp", "sup", "tight"])
def test_weight_two_costs_as_much_as_two_copies(bound):
    rng = np.random.default_rng(11)
    ballot = rng.integers(0, 3, (6, 40))
    ballot[:, ::2] = 1  # clear majorities, where tight is below loose
    mechanism = Mechanism(sigma=1.2, check_sigma=8.0, threshold=4.0)
    meter = Meter(bound, "improved", ORDERS)
    weighted = Votes(votes=ballot, n_classes=3, groups=("heavy", *["light"] * 5))
    rows = [("heavy", 3.0, 1e-5, None), ("light", 1.0, 1e-5, None)]
    one = Panel.from_votes(weighted, rows, weights=np.array([2.0, 1, 1, 1, 1, 1]))
    copied = Votes(votes=ballot[[0, 0, 1, 2, 3, 4, 5]], n_classes=3)
    two = Panel.from_votes(copied, [("heavy", 3.0, 1e-5, 2.0), ("light", 1.0, 1e-5, 1.0)])
    assert account_for(weighted, one, mechanism, meter).groups == account_for(copied, two, mechanism, meter).groups


def test_exact_costs_less_than_tight_on_majorities():
    ballot = np.zeros((60, 50), dtype=np.int8)
    votes = Votes(votes=ballot, n_classes=10, groups=("a",) * 60)
    panel = Panel.from_votes(votes, [("a", 1.0, 1e-5, None)])
    mechanism = Mechanism(sigma=10.0)
    orders = tuple(range(2, 51))
    loose, tight_, exact_ = (
        account_for(votes, panel, mechanism, Meter(bound, "classic", orders)).groups[0].cost
        for bound in ("loose", "tight", "exact")
    )
    assert exact_ < tight_ < 0.5 * loose


# Interactive


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("bound", BOUNDS)
def test_student_probabilities_change_only_exact_checks(variant, bound):
    votes, panel = make(variant)
    meter = Meter(bound, "improved", ORDERS)
    probs = np.random.default_rng(5).dirichlet(np.ones(4), 12)
    confident = account_for(votes, panel, CHECKED, meter, answered=MASK)
    interactive = account_for(votes, panel, CHECKED, meter, answered=MASK, student_probs=probs)
    if bound != "exact":
        assert interactive == confident
        return
    plain = plain_history(plain_accounts(votes, panel, CHECKED, meter, MASK, probs), panel, meter)
    for ours, other in zip(interactive.groups, confident.groups, strict=True):
        assert ours.cost == pytest.approx(plain[ours.id][-1], rel=1e-9)
        assert ours.cost != pytest.approx(other.cost, rel=1e-6)


# Laplace noise


@pytest.mark.parametrize("bound", ["sup", "exact"])
def test_sup_and_exact_are_refused_for_lnmax(bound):
    votes, panel = make("weighting")
    with pytest.raises(InputError, match=f"bound is '{bound}': laplace noise .* is accounted by loose, gdp, tight"):
        account_for(votes, panel, Mechanism(sigma=20.0, noise="laplace"), Meter(bound))


@pytest.mark.parametrize("bound", ["loose", "gdp", "tight"])
def test_lnmax_cost_grows_with_weight(bound):
    votes, panel = make("weighting")
    meter = Meter(bound, "improved", ORDERS)
    groups = account_for(votes, panel, Mechanism(sigma=20.0, noise="laplace"), meter).groups
    by_id = {group.id: group.cost for group in groups}
    same = replace(panel, groups=tuple(group.with_budget(Budget(group.epsilon, 1e-5)) for group in panel.groups))
    groups = account_for(votes, same, Mechanism(sigma=20.0, noise="laplace"), meter).groups
    assert 0 < groups[0].cost < groups[1].cost < groups[2].cost
    assert by_id["usual"] == groups[1].cost


# What may be said


@pytest.mark.parametrize("stopped_by", ["fixed", "account", "other"])
@pytest.mark.parametrize("bound", BOUNDS)
def test_only_data_independent_costs_are_releasable(bound, stopped_by):
    votes, panel = make("weighting", budgets=(100.0, 100.0, 100.0))
    result = account_for(votes, panel, CHECKED, Meter(bound, "improved", (8.0,)), stopped_by=stopped_by)
    releasable = bound in ("loose", "gdp", "sup") and stopped_by != "other"
    assert result.guarantee.kind == ("releasable" if releasable else "private")


@pytest.mark.parametrize("bound", ["loose", "gdp", "sup"])
def test_exceeded_budget_is_not_called_stopped_by_account(bound):
    votes, panel = make("weighting", budgets=(100.0, 100.0, 0.5))
    meter = Meter(bound, "improved", ORDERS)
    assert account_for(votes, panel, CHECKED, meter, stopped_by="fixed").guarantee.kind == "releasable"
    result = account_for(votes, panel, CHECKED, meter, stopped_by="account")
    assert result.guarantee.kind == "private"
    assert "something other than this account decided when to stop" in result.guarantee.statement


def test_unknown_stopped_by_is_refused_before_any_work():
    votes, panel = make("weighting")
    with pytest.raises(InputError, match="stopped_by is 'luck': it must be fixed, account or other"):
        account_for(votes, panel, CHECKED, Meter(), stopped_by="luck", history=pytest.fail)


# A million queries


SCRIPT = """
import json, resource, sys
import numpy as np
from ipate.engines.teachers.account import account_for
from ipate.accounting.bounds import Meter
from ipate.engines.teachers.aggregators import Mechanism
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.votes import read_votes

votes = read_votes(sys.argv[1])
panel = Panel.from_votes(votes, [("a", 1.0, 1e-5, None)])
result = account_for(votes, panel, Mechanism(sigma=40.0, check_sigma=60.0, threshold=12.0), Meter(sys.argv[2]))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
print(json.dumps({"peak": peak, "queries": result.queries, "mapped": isinstance(votes.votes, np.memmap)}))
"""


@pytest.fixture(scope="module")
def million(tmp_path_factory):
    path = tmp_path_factory.mktemp("million") / "votes.npz"
    ballot = np.random.default_rng(0).integers(0, 10, (20, 1_000_000), dtype=np.uint8)
    np.savez(path, votes=ballot, groups=np.array(["a"] * 20), classes=10)
    return path


@pytest.mark.parametrize("bound", ["gdp", "tight"])
def test_million_queries_need_less_than_a_gibibyte(million, bound):
    pytest.importorskip("resource")
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(million), bound], capture_output=True, text=True, check=False, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert told["mapped"]
    assert told["queries"] == 1_000_000
    assert told["peak"] < 1 << 30
