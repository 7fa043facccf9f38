"""The laws of the audit agree with brute force and with the Gaussian profile, and never show more than it."""

from itertools import product

import numpy as np
import pytest
from scipy.special import ndtr

from ipate.accounting import gdp
from ipate.audit.law import (
    MOST,
    Part,
    bit,
    largest,
    least_success,
    most_success,
    projected,
    shown_epsilon,
    vector_epsilon,
    within_steps,
)


def brute_force(parts, delta):
    """The exact ε of all outcomes of all releases, one by one."""
    here, there = np.ones(1), np.ones(1)
    for part in parts:
        for _ in range(part.times):
            here, there = np.outer(here, part.here).ravel(), np.outer(there, part.there).ravel()
    found = 0.0
    for one, other in ((here, there), (there, here)):
        found = max(found, largest(lambda e, p=one, q=other: np.maximum(p - np.exp(e) * q, 0).sum() > delta, 0.0, MOST))
    return found


@pytest.mark.parametrize("delta", [1e-5, 1e-3, 0.02])
def test_composed_law_is_just_below_brute_force(delta):
    rng = np.random.default_rng(0)
    for _ in range(20):
        parts = [
            Part(times=int(rng.integers(1, 6)), here=bit(h), there=bit(t)) for h, t in rng.uniform(0.2, 0.8, (2, 2))
        ]
        exact = brute_force(parts, delta)
        shown = shown_epsilon(parts, delta=delta)
        assert 0.9 * exact - 1e-9 <= shown <= exact + 1e-9


@pytest.mark.parametrize("chance", [0.9, 0.99, 0.9999])
def test_large_epsilons_are_not_exceeded_by_rounding(chance):
    parts = [Part(times=12, here=bit(chance), there=bit(1 - chance))]
    exact = brute_force(parts, 1e-5)
    assert 0.9 * exact < shown_epsilon(parts, delta=1e-5) <= exact * (1 + 1e-9)
    many = [Part(times=400, here=bit(0.7), there=bit(0.3))]
    assert shown_epsilon(many, delta=1e-5) < 400 * np.log(0.7 / 0.3)


def test_law_of_one_outcome_shows_nothing():
    assert shown_epsilon([Part(times=5, here=bit(0.3), there=bit(0.3))], delta=1e-5) == 0.0
    assert shown_epsilon([Part(times=0, here=bit(0.3), there=bit(0.6))], delta=1e-5) == 0.0
    assert shown_epsilon([], delta=1e-5) == 0.0


@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 3.0])
def test_many_noisy_numbers_reach_the_gaussian_profile(mu):
    laws = projected(mu / 20, 1.0)
    shown = shown_epsilon([Part(times=400, here=laws[0], there=laws[1])], delta=1e-5)
    exact = float(gdp.epsilon_of(mu, 1e-5))
    assert 0.97 * exact < shown < exact
    assert 0.997 * exact < vector_epsilon(mu, 1.0, delta=1e-5) < exact


@pytest.mark.parametrize("mu", [0.2, 0.7])
def test_bits_at_even_odds_show_two_over_pi(mu):
    step = mu / np.sqrt(1000)
    part = Part(times=1000, here=bit(ndtr(step / 2)), there=bit(ndtr(-step / 2)))
    exact = float(gdp.epsilon_of(mu * np.sqrt(2 / np.pi), 1e-5))
    assert shown_epsilon([part], delta=1e-5) == pytest.approx(exact, rel=0.01)


def test_limits_of_probabilities_hold_as_often_as_stated():
    rng = np.random.default_rng(1)
    hits = rng.binomial(200, 0.3, size=2000)
    low = np.array([least_success(int(h), 200, error=0.05) for h in hits])
    high = np.array([most_success(int(h), 200, error=0.05) for h in hits])
    assert (low > 0.3).mean() < 0.065
    assert (high < 0.3).mean() < 0.065
    assert (least_success(0, 10, error=0.05), most_success(10, 10, error=0.05)) == (0.0, 1.0)


def test_law_of_rounded_counts_matches_their_draws():
    means, step = np.array([0.3, 4.07]), 0.125
    drawn = np.rint((means + 1.3 * np.random.default_rng(2).normal(size=(100_000, 2))) / step)
    near = (np.abs(drawn - np.rint(means / step)) <= 8).mean()
    assert near == pytest.approx(within_steps(means, 1.3, step=step, reach=8), abs=0.005)


def test_impossible_outcomes_show_the_largest_epsilon():
    assert shown_epsilon([Part(times=3, here=bit(1.0), there=bit(0.0))], delta=1e-5) > 100
    assert brute_force([Part(times=1, here=bit(1.0), there=bit(0.0))], 1e-5) == MOST


def test_pairs_of_parts_show_no_more_than_both_budgets():
    for times, chance in product((10, 100), (0.5, 0.6)):
        part = Part(times=times, here=bit(chance), there=bit(chance - 0.05))
        alone, both = shown_epsilon([part], delta=1e-5), shown_epsilon([part, part], delta=1e-5)
        assert alone < both < 2.5 * alone
