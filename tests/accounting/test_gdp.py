import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipate.accounting import gdp
from ipate.accounting.gdp import BOUND
from ipate.errors import InputError

EPSILONS = st.floats(1e-3, 30)
DELTAS = st.floats(1e-12, 0.1)


def label_mu2(sensitivity, sigma):
    return BOUND.worst_label((), sensitivity=sensitivity, sigma=sigma, noise="gaussian")[..., 0]


def oracle_delta(epsilon: float, mu: float) -> float:
    """The textbook profile at 60 digits."""
    with mpmath.workdps(60):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return float(mpmath.ncdf(-e / m + m / 2) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2))


@pytest.mark.parametrize(("epsilon", "mu"), [(math.log(2), 0.1918205640), (1.0, 0.2680511232), (3.0, 0.7191174352)])
def test_specification_vectors(epsilon, mu):
    assert float(gdp.mu_of(epsilon, 1e-5)) == pytest.approx(mu, rel=1e-9)


@given(EPSILONS, st.floats(1e-2, 20))
def test_profile_matches_textbook_at_eighty_digits(epsilon, mu):
    expected = oracle_delta(epsilon, mu)
    assert float(gdp.delta_of(epsilon, mu)) == pytest.approx(expected, rel=1e-9, abs=1e-300)


@given(EPSILONS, DELTAS)
def test_mu_of_a_budget_is_tight_from_below(epsilon, delta):
    mu = float(gdp.mu_of(epsilon, delta))
    assert float(gdp.epsilon_of(mu, delta)) <= epsilon
    assert oracle_delta(epsilon, mu) <= delta
    assert oracle_delta(epsilon, mu * (1 + 1e-9)) > delta * (1 - 1e-6)


def at_eighty_digits(epsilon: float, mu: float) -> mpmath.mpf:
    with mpmath.workdps(80):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return (
            mpmath.erfc((e / m - m / 2) / mpmath.sqrt(2))
            - mpmath.exp(e) * mpmath.erfc((e / m + m / 2) / mpmath.sqrt(2))
        ) / 2


@pytest.mark.parametrize("delta", [1e-12, 3e-9, 1e-5, 0.1, 0.999, 1 - 1e-9])
@pytest.mark.parametrize("epsilon", [1e-12, 1.8384091312351052e-12, 1e-8, 1e-4, 0.03, 1.0, 40.0, 2e3, 1e4])
def test_no_allowed_budget_affords_a_larger_delta(epsilon, delta):
    mu = float(gdp.mu_of(epsilon, delta))
    assert at_eighty_digits(epsilon, mu) <= delta
    assert at_eighty_digits(epsilon, mu * (1 + 1e-10)) > delta or at_eighty_digits(epsilon, mu) > delta * (1 - 1e-11)
    back = float(gdp.epsilon_of(mu, delta))
    assert back <= epsilon
    assert back == 0 or at_eighty_digits(back, mu) <= delta


@given(st.floats(1e-2, 10), DELTAS)
def test_epsilon_is_rounded_up_by_very_little(mu, delta):
    epsilon = float(gdp.epsilon_of(mu, delta))
    assert oracle_delta(epsilon, mu) <= delta * (1 + 1e-9)
    if epsilon > 0:
        assert oracle_delta(epsilon * (1 - 1e-7), mu) > delta


def test_epsilon_agrees_with_dp_accounting():
    from dp_accounting.gaussian_mechanism import get_epsilon_gaussian

    for mu in (0.05, 0.3, 1.0, 4.0):
        assert float(gdp.epsilon_of(mu, 1e-5)) == pytest.approx(get_epsilon_gaussian(1 / mu, 1e-5), rel=1e-6)


def test_nothing_released_costs_nothing():
    assert float(gdp.epsilon_of(0.0, 1e-5)) == 0.0


def test_costs_of_check_and_label():
    assert float(BOUND.worst_check((), sensitivity=3, check_sigma=150)[0]) == pytest.approx(9 / 150**2)
    np.testing.assert_allclose(label_mu2([0, 1, 2], 40), [0, 2 / 1600, 8 / 1600])


@pytest.mark.parametrize(
    ("call", "value"),
    [
        (lambda: gdp.mu_of(0.0, 1e-5), "epsilon is 0"),
        (lambda: gdp.mu_of(1.0, 1.0), "delta is 1"),
        (lambda: gdp.epsilon_of(-1.0, 1e-5), "-1"),
        (lambda: label_mu2(-2, 40), "sensitivity is -2"),
        (lambda: label_mu2(1, 0), "sigma is 0"),
        (lambda: BOUND.worst_check((), sensitivity=math.nan, check_sigma=1), "sensitivity is nan"),
    ],
)
def test_bad_numbers_are_named(call, value):
    with pytest.raises(InputError, match=value):
        call()
