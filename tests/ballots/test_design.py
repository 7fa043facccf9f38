"""Weights, cells and costs of a design: test vectors, and no budget passed whatever the figures."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ipate.accounting import gdp
from ipate.accounting.bounds import Meter
from ipate.engines.ballots.design import GRID, about, ballot_terms, counted, figure, make_design
from ipate.errors import BudgetExceededError, InputError
from ipate.people.budgets import Budget, Group


def groups(*budgets):
    """Groups of (ε, δ, people), named by their place."""
    return [Group(id=f"g{i}", budget=Budget(e, d), people=n) for i, (e, d, n) in enumerate(budgets)]


def weight(epsilon, delta):
    return ballot_terms(groups((epsilon, delta, 1)))[0].account.sensitivity


@pytest.mark.parametrize(
    ("epsilon", "delta", "mu", "w"),
    [
        (1.0, 1e-5, 0.2680511232, 0.1895407669),
        (0.1, 1e-5, 0.0325207841, 0.0229956669),
        (3.0, 1e-5, 0.7191174352, 0.5084928149),
        (1.0, 2.5e-6, 0.2479298952, None),
        (2.0, 2.5e-6, 0.4675758341, None),
        (3.0, 2.5e-6, 0.6736916780, None),
        (1.0, 1e-3, 0.3884012483, 0.2746411565),
    ],
)
def test_weights_of_budgets_match_the_vectors(epsilon, delta, mu, w):
    assert Budget(epsilon, delta).mu == pytest.approx(mu, abs=5e-11)
    assert weight(epsilon, delta) == pytest.approx(mu / math.sqrt(2) if w is None else w, abs=6e-11)


def test_total_weight_of_mixed_budgets_matches_the_vector():
    people = groups((1.0, 2.5e-6, 21_600), (2.0, 2.5e-6, 14_800), (3.0, 2.5e-6, 3_600))
    design = make_design(ballot_terms(people), n_classes=6, n_pool=5000)
    assert design.affordable == pytest.approx(10394.96333, abs=5e-6)


def test_costs_of_a_stated_weight_match_the_vectors():
    assert gdp.epsilon_of(math.sqrt(2) * 0.2, 1e-5) == pytest.approx(1.06078976, abs=5e-9)
    assert gdp.delta_of(1.0, math.sqrt(2) * 0.2) == pytest.approx(2.345292e-05, abs=5e-12)


def test_tight_case_matches_the_vectors():
    from scipy.stats import norm

    mu, epsilon = Budget(1.0, 1e-3).mu, 1.0
    assert math.sqrt(2) * epsilon / mu == pytest.approx(3.6411148742, abs=5e-10)
    p, q = norm.cdf(mu / 2 - epsilon / mu), norm.cdf(-mu / 2 - epsilon / mu)
    assert (p, q) == (pytest.approx(0.0086456037, abs=5e-11), pytest.approx(0.0028126604, abs=5e-11))
    assert p - math.e * q == pytest.approx(1e-3, abs=1e-9)
    assert gdp.delta_of(1.0, math.sqrt(2) * mu) == pytest.approx(0.01192491, abs=5e-9)


@given(
    budgets=st.lists(
        st.tuples(st.floats(0.01, 8), st.sampled_from([1e-3, 1e-5, 1e-9]), st.integers(1, 5000)), min_size=1, max_size=5
    ),
    n_classes=st.integers(2, 20),
    n_pool=st.integers(1, 20_000),
    partitions=st.integers(1, 20),
    bound=st.sampled_from(["gdp", "loose", "sup"]),
)
def test_no_design_costs_more_than_any_budget(budgets, n_classes, n_pool, partitions, bound):
    meter = Meter(bound) if bound == "gdp" else Meter(bound, "improved", (7.0,))
    terms = ballot_terms(groups(*budgets), meter)
    try:
        design = make_design(terms, n_classes=n_classes, n_pool=max(n_pool, 5 * n_classes), partitions=partitions)
    except BudgetExceededError:
        return  # at one Rényi order a small budget may afford nothing
    assert design.total <= 10 * design.cells * (1 + 1e-9) or n_classes > 1
    for entry in terms:
        name, moved = entry.account.id, design.weights[entry.account.id]
        assert design.costs[name][0] <= max(entry.limit[0], 0.0)
        assert moved**2 >= partitions * (design.units[name] * GRID) ** 2 * (1 - 1e-15)
        if bound == "gdp":
            assert design.costs[name][0] == pytest.approx(2 * partitions * (design.units[name] * GRID) ** 2, rel=1e-12)


def test_rest_of_budgets_stays_in_the_accounts():
    design = make_design(ballot_terms(groups((3.0, 1e-6, 40_000))), n_classes=6, n_pool=5000)
    assert design.cells == 500
    assert design.total / design.cells == pytest.approx(10.0, rel=1e-4)
    assert design.total <= 5000
    assert "stays in the account" in design.notes[0]


def test_cells_follow_weight_classes_and_pool():
    terms = ballot_terms(groups((1.0, 1e-5, 1000)))
    assert [make_design(terms, n_classes=c, n_pool=p).cells for c, p in ((2, 5000), (50, 5000), (2, 40))] == [31, 50, 8]


def test_little_weight_per_class_is_told_beforehand():
    assert "more people" in make_design(ballot_terms(groups((0.1, 1e-4, 1000))), n_classes=10, n_pool=400).notes[0]
    assert make_design(ballot_terms(groups((1.0, 1e-4, 1100))), n_classes=10, n_pool=400).notes == ()


def test_spent_budget_reduces_the_weight_by_id():
    terms = ballot_terms(groups((1.0, 1e-5, 100), (1.0, 1e-5, 100)))
    spent = {"g1": terms[1].limit * 0.75}
    design = make_design(terms, n_classes=2, n_pool=500, spent=spent)
    assert design.weights["g1"] / design.weights["g0"] == pytest.approx(0.5, rel=1e-4)
    assert design.costs["g1"][0] <= terms[1].limit[0] * 0.25


def test_refusal_states_no_weight_where_it_is_private():
    terms = ballot_terms(groups((0.001, 1e-5, 10)))
    for more, told in (({}, "affords a total weight of 0.0"), ({"private": True}, "affords too little for 2 classes")):
        with pytest.raises(BudgetExceededError, match=told):
            make_design(terms, n_classes=2, n_pool=500).check_useful(**more)


def test_empty_accounts_are_refused():
    terms = ballot_terms(groups((1.0, 1e-5, 100)))
    with pytest.raises(BudgetExceededError, match="no budget is left"):
        make_design(terms, n_classes=2, n_pool=500, spent={"g0": terms[0].limit})


@pytest.mark.parametrize("bound", ["tight", "exact", "ptr"])
def test_bounds_with_private_costs_are_refused(bound):
    with pytest.raises(InputError, match="use gdp"):
        ballot_terms(groups((1.0, 1e-5, 100)), Meter(bound))


def test_units_are_rounded_down_on_the_grid():
    design = make_design(ballot_terms(groups((1.0, 1e-5, 100))), n_classes=2, n_pool=500)
    assert design.units["g0"] == np.floor(weight(1.0, 1e-5) / 4 * 2**20)


@pytest.mark.parametrize("bound", ["loose", "sup"])
def test_several_fixed_orders_must_all_be_affordable(bound):
    """An account whose members fixed other orders in earlier runs pays at each of them; ε is the largest."""
    (alone,) = ballot_terms(groups((1.0, 1e-5, 100)), Meter(bound))
    assert len(alone.meter.orders) == 1
    several = replace(alone, meter=Meter(bound, "improved", (alone.meter.orders[0], 16.0, 45.0)))
    design = make_design([several], n_classes=2, n_pool=100)
    assert several.fits(design.costs["g0"])
    assert several.epsilon(design.costs["g0"]) <= 1.0
    best = make_design([alone], n_classes=2, n_pool=100)
    assert 0 < design.units["g0"] < best.units["g0"]
    assert alone.epsilon(best.costs["g0"]) == pytest.approx(1.0, rel=1e-3)


@given(partitions=st.integers(1, 200), units=st.integers(1, 2**21))
@example(partitions=3, units=300_111)
def test_stated_weight_covers_the_exact_root(partitions, units):
    made = make_design(ballot_terms(groups((1.0, 1e-5, 100))), n_classes=2, n_pool=500, partitions=partitions)
    for weight in replace(made, units=dict.fromkeys(made.units, units)).weights.values():
        least = partitions * Fraction(units * GRID) ** 2
        assert least <= Fraction(weight) ** 2 <= least * (1 + Fraction(2) ** -48)


def test_pool_with_fewer_points_than_cells_need_is_refused():
    terms = ballot_terms(groups((1.0, 1e-5, 1000)))
    with pytest.raises(InputError, match="the pool has 3 points for 2 classes: ballots need at least 10, 5 per class"):
        make_design(terms, n_classes=2, n_pool=3)
    assert make_design(terms, n_classes=2, n_pool=10).cells == 2


def test_large_figures_are_written_without_exponents():
    assert [figure(weight) for weight in (0.123456, 7.0, 99.94, 1190.4, 12345.6)] == [
        "0.123",
        "7",
        "99.9",
        "1,190",
        "12,346",
    ]
    assert [about(weight) for weight in (0.0, 7.0, 776.4, 1551.0)] == ["0", "7", "770", "1,500"]
    assert [counted(number, "cell") for number in (1, 2, 1200)] == ["1 cell", "2 cells", "1,200 cells"]
