"""The best adaptive attack on a privacy filter, by dynamic programming: it comes close to δ and never passes it.

An adversary knows both data sets, sees every bit, and chooses the next check (its noise and its threshold) by all bits
before it, as long as the filter admits it. With ℓ the log-likelihood ratio so far, the δ that is reached is the
expectation of max(0, 1 − e^(ε − ℓ)) under the best choices; only prices and limits come from the package.
"""

import numpy as np
import pytest
from scipy.special import ndtr

from ipate.accounting.bounds import Meter, best_order

CASES = [(0.5, 1e-2), (1.0, 1e-3), (3.0, 1e-2)]
STEPS = 3
SHARES = (1.0, 0.65, 0.35, 0.3)  # of the limit that a check costs, so that several sequences use it up
PLACES = np.linspace(-1.5, 4.0, 23)  # mean of the check above its threshold, in σ_T
UNITS = ("gdp", "loose", "sup")


def unit(bound, epsilon, delta):
    """The meter of an account: under loose and sup at the order that it fixes beforehand."""
    meter = Meter(bound)
    if not meter.fixes_order:
        return meter
    check = meter.worst_check(sensitivity=0.1, check_sigma=1.0)
    return meter.at_order(best_order(meter, epsilon=epsilon, delta=delta, label=check))


def reached(meter, epsilon, delta, *, room=1.0, charged=(True, True)):
    """The largest δ of an adaptive sequence that the filter admits, over the δ that is allowed.

    `room` multiplies the limit; `charged` says whether a check is charged if it fails and if it passes.
    """
    limit = float(meter.limit(epsilon, delta)[0])
    moves = [(_move(meter, share * limit), share * limit) for share in SHARES]

    def best(ratio, spent, steps):
        """The value of every log-likelihood ratio, a vector, if so much is spent and so many checks may follow."""
        value = np.maximum(0, -np.expm1(epsilon - ratio))
        for move, price in moves if steps else ():
            if spent + price > room * limit * (1 + 1e-9):
                continue
            for shift in (move, -move):
                p, q = ndtr(-PLACES)[:, None], ndtr(-PLACES - shift)[:, None]
                shape = len(PLACES), ratio.size
                passed = best((ratio + np.log(p / q)).ravel(), spent + price * charged[1], steps - 1).reshape(shape)
                failed = ratio + np.log((1 - p) / (1 - q))
                failed = best(failed.ravel(), spent + price * charged[0], steps - 1).reshape(shape)
                value = np.maximum(value, (p * passed + (1 - p) * failed).max(axis=0))
        return value

    return best(np.zeros(1), 0.0, STEPS)[0] / delta


def _move(meter, price):
    """The largest Δ/σ_T whose check costs at most this."""
    low, high = 0.0, 4.0
    for _ in range(24):
        middle = (low + high) / 2
        fits = float(meter.worst_check(sensitivity=middle, check_sigma=1.0)[0]) <= price
        low, high = (middle, high) if fits else (low, middle)
    return low


@pytest.mark.parametrize(("epsilon", "delta"), CASES)
@pytest.mark.parametrize("bound", UNITS)
def test_best_adaptive_attack_never_passes_delta(bound, epsilon, delta):
    found = reached(unit(bound, epsilon, delta), epsilon, delta)
    assert (0.9 if bound == "gdp" else 0.2) < found <= 1


@pytest.mark.parametrize("bound", UNITS)
def test_attack_sees_a_filter_with_too_much_room(bound):
    assert reached(unit(bound, 1.0, 1e-3), 1.0, 1e-3, room=2.0) > 1.2


@pytest.mark.parametrize("charged", [(False, True), (True, False)], ids=["failed are free", "passed are free"])
def test_attack_sees_checks_that_are_not_charged(charged):
    assert reached(Meter(), 1.0, 1e-3, charged=charged) > 1.2
