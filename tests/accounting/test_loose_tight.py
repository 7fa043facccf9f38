import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipate.accounting import loose, tight
from ipate.accounting.bounds import PAPER_ORDERS
from oracles import argmax_law, renyi_divergence

UNANIMOUS = [250] + [0] * 9
CLEAR = [230, 12, 5, 3] + [0] * 6


def plain_tight(counts, order, sigma, sensitivity):
    """Papernot 2018, Theorem 6 with Propositions 7 and 10, at 50 digits and without log space."""
    with mpmath.workdps(50):
        n = [mpmath.mpf(c) / mpmath.mpf(sensitivity) for c in counts]
        s = mpmath.mpf(sigma) / mpmath.mpf(sensitivity)
        top = max(range(len(n)), key=lambda j: n[j])
        q = sum(mpmath.erfc((n[top] - n[j]) / (2 * s)) / 2 for j in range(len(n)) if j != top)
        q = min(q, 1 - mpmath.mpf(1) / len(n))
        a = mpmath.mpf(order)
        fallback = a / s**2
        a2 = s * mpmath.sqrt(-mpmath.log(q))
        a1 = a2 + 1
        e1, e2 = a1 / s**2, a2 / s**2
        if a >= a1 or a2 <= 1 or -mpmath.log(q) <= e2:
            return float(fallback)
        if q > mpmath.exp((a2 - 1) * e2) / (a1 / (a1 - 1) * a2 / (a2 - 1)) ** a2:
            return float(fallback)
        first = ((1 - q) / (1 - (q * mpmath.exp(e2)) ** ((a2 - 1) / a2))) ** (a - 1)
        second = (mpmath.exp(e1) / q ** (1 / (a1 - 1))) ** (a - 1)
        return float(min(mpmath.log((1 - q) * first + q * second) / (a - 1), fallback))


def test_loose_is_the_gaussian_divergence():
    np.testing.assert_allclose(loose.check_rdp([2, 20], sensitivity=3, check_sigma=150), [9 / 22500, 90 / 22500])
    np.testing.assert_allclose(loose.label_rdp([20], sensitivity=[0, 1, 2], sigma=40), [[0], [20 / 1600], [80 / 1600]])


def test_specification_vectors():
    cost = tight.label_rdp([UNANIMOUS, CLEAR], [20], sensitivity=[1], sigma=40)
    np.testing.assert_allclose(cost[:, 0, 0], [5.321317752e-5, 2.430115651e-4], rtol=1e-9)


HISTOGRAMS = st.integers(2, 20).flatmap(lambda c: st.lists(st.integers(0, 120), min_size=c, max_size=c))


@settings(max_examples=200)
@given(HISTOGRAMS, st.floats(1.1, 60), st.floats(2, 100), st.floats(0.2, 6))
def test_tight_matches_theorem_six_at_fifty_digits(counts, order, sigma, sensitivity):
    ours = float(tight.label_rdp([counts], [order], sensitivity=[sensitivity], sigma=sigma)[0, 0, 0])
    assert ours == pytest.approx(plain_tight(counts, order, sigma, sensitivity), rel=1e-8, abs=1e-13)


@settings(max_examples=100, deadline=None)
@given(
    HISTOGRAMS,
    st.floats(1.5, 40),
    st.floats(5, 60),
    st.floats(0.3, 4),
    st.randoms(use_true_random=False),
)
def test_tight_lies_between_forward_divergence_and_loose(counts, order, sigma, weight, random):
    """One teacher of weight w moves from a to b: D(M(D) ‖ M(D′)) is at most tight, at most loose."""
    n = np.array(counts, dtype=float) * weight
    source = random.choice([j for j, c in enumerate(counts) if c] or [0])
    target = random.choice([j for j in range(len(n)) if j != source])
    moved = n.copy()
    moved[source] -= weight
    moved[target] += weight
    truth = renyi_divergence(argmax_law(n, sigma), argmax_law(moved, sigma), order)
    cost = float(tight.label_rdp([n], [order], sensitivity=[weight], sigma=sigma)[0, 0, 0])
    assert truth <= cost * (1 + 1e-7) + 1e-12
    assert cost <= order * weight**2 / sigma**2 * (1 + 1e-12)


def test_tight_is_one_sided():
    """Why it is never a guarantee: the reverse divergence can be ten thousand times what it charges."""
    n = np.array([24.0] + [0.0] * 9)
    moved = np.array([21.0, 3.0] + [0.0] * 8)
    charged = float(tight.label_rdp([n], [2.0], sensitivity=[3.0], sigma=2.0)[0, 0, 0])
    forward = renyi_divergence(argmax_law(n, 2.0), argmax_law(moved, 2.0), 2.0)
    reverse = renyi_divergence(argmax_law(moved, 2.0), argmax_law(n, 2.0), 2.0)
    assert forward < charged
    assert reverse > 1e4 * charged


def test_tight_depends_on_the_gaps_alone():
    orders = PAPER_ORDERS
    one = tight.label_rdp([[200.5, 30.25, 19.25]], orders, sensitivity=[1.5], sigma=30)
    other = tight.label_rdp([[29.25, 18.25, 199.5]], orders, sensitivity=[1.5], sigma=30)
    np.testing.assert_allclose(one, other, rtol=1e-12)


def test_tight_accepts_zero_and_per_query_sensitivities():
    cost = tight.label_rdp([CLEAR, CLEAR], [5, 20], sensitivity=[[0.0, 1.0], [2.0, 1.0]], sigma=40)
    assert np.all(cost[0, 0] == 0)
    np.testing.assert_allclose(cost[0, 1], cost[1, 1])
    expected = tight.label_rdp([CLEAR], [5, 20], sensitivity=[2.0], sigma=40)[0, 0]
    np.testing.assert_allclose(cost[1, 0], expected)


def test_huge_gaps_and_little_noise_do_not_overflow():
    cost = tight.label_rdp([[10_000, 0, 0]], PAPER_ORDERS, sensitivity=[1], sigma=1.0)
    assert np.all(np.isfinite(cost))
    assert np.all(cost >= 0)
    assert math.isfinite(float(tight.log_error([[10_000, 0, 0]], sigma=1.0)[0]))
