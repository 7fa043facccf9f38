"""Budgets so small that their conversion cancels: no accepted budget may afford more than it states."""

import contextlib

import mpmath
import pytest

from ipate import Budget
from ipate.errors import InputError


def true_delta(epsilon, mu):
    """δ(ε) of μ-GDP at 80 digits."""
    with mpmath.workdps(80):
        e, m, root = mpmath.mpf(epsilon), mpmath.mpf(mu), mpmath.sqrt(2)
        return (mpmath.erfc((e / m - m / 2) / root) - mpmath.exp(e) * mpmath.erfc((e / m + m / 2) / root)) / 2


@pytest.mark.parametrize("power", range(-18, -8))
def test_tiny_budget_is_refused_or_kept(power):
    for epsilon, delta in ((10.0**power, 10.0**power / 10), (1.0, 10.0**power), (10.0**power, 1e-5)):
        with contextlib.suppress(InputError):
            assert true_delta(epsilon, Budget(epsilon, delta).mu) <= delta


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-16, 1e-5), (1.0, 1e-17), (9.9e-13, 1e-5)])
def test_budget_below_the_limit_is_refused(epsilon, delta):
    with pytest.raises(InputError, match="lost in rounding"):
        Budget(epsilon, delta)
