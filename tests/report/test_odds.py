"""The odds of the best test for a person's data, against independent formulas."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from ipate.accounting.bounds import BOUNDS, find_bound
from ipate.people.budgets import Budget
from ipate.report import odds
from ipate.report.facts import for_audience
from report.examples import facts


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 8.0])
def test_gdp_odds_are_those_of_two_gaussians(epsilon):
    """The best test between N(0, 1) and N(μ, 1) rejects above a threshold."""
    mu, delta = Budget(epsilon, 1e-5).mu, 1e-5
    for rate, power in zip(odds.RATES, odds.power("gdp", epsilon, delta), strict=True):
        assert power == pytest.approx(norm.sf(norm.isf(rate), loc=mu), rel=1e-9)
        assert rate < power < min(1, math.exp(epsilon) * rate + delta)


@pytest.mark.parametrize("bound", sorted(BOUNDS))
def test_general_odds_hold_for_randomized_response(bound):
    """Randomized response with ε and an outcome that reveals all with chance δ achieves the bound of (ε, δ)."""
    epsilon, delta = 1.3, 0.02
    lie = 1 / (1 + math.exp(epsilon))
    reached = delta + (1 - delta) * (1 - lie)  # says yes: revealed, or told truly
    false = (1 - delta) * lie
    most = float(find_bound(bound).best_power(false, epsilon=epsilon, delta=delta))
    if bound == "gdp":  # promises more than (ε, δ)
        assert most < reached
    else:
        assert most == pytest.approx(reached, rel=1e-9)


def test_curves_rise_and_stay_below_one():
    found = facts()
    for group in found.groups:
        curve = np.array(odds.curve(found, group))
        assert np.all(np.diff(curve) >= 0)
        assert np.all((curve >= np.array(odds.CURVE)) & (curve <= 1))
    high, low = (odds.curve(found, group) for group in found.groups)
    assert all(a <= b for a, b in zip(high, low, strict=True))


@pytest.mark.parametrize("audience", ["public", "private"])
@pytest.mark.parametrize("options", [{"bound": "exact"}, {"bound": "tight"}, {"seeded": True}, {"stopped_by": "other"}])
def test_odds_are_stated_only_where_promised(audience, options):
    found = for_audience(facts(**options), audience)
    assert odds.odds(found) == ()
    assert all(odds.curve(found, group) == () for group in found.groups)
    assert "no limit" in odds.explanation(found)[0]


def test_odds_follow_budgets_and_not_costs():
    budgets = [group.budget.epsilon for group in facts().groups]
    assert [entry.epsilon for entry in odds.odds(facts(costs=[0.1, 0.2]))] == budgets


def test_rates_in_words_are_rounded_up():
    text = odds.in_words((0.054112, 0.28701))
    assert "wrong about 10 in 1,000" in text
    assert "at most 54.2 in 1,000" in text
    assert text.endswith("they recognise at most 288.")
    assert odds.share(0.99951) == "over 99.9%"
