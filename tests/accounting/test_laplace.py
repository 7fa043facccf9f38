import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import norm

from ipate.accounting import gdp, loose, tight
from ipate.accounting.bounds import PAPER_ORDERS

ORDERS = np.array(PAPER_ORDERS)


def law(counts, scale):
    """P[argmax n + Lap(b) = j] by quadrature, split at the kinks."""
    n = np.array(counts, dtype=float) / scale

    def cdf(x):
        return np.where(x < 0, 0.5 * np.exp(x), 1 - 0.5 * np.exp(-x))

    out = []
    for j in range(len(n)):
        others = np.delete(n, j)

        def density(t, j=j, others=others):
            return 0.5 * np.exp(-abs(t - n[j])) * np.prod(cdf(t - others))

        out.append(quad(density, min(n) - 40, max(n) + 40, points=sorted(set(n)), limit=400)[0])
    return np.array(out)


def renyi(p, q, order):
    return float(logsumexp(order * np.log(p) + (1 - order) * np.log(q)) / (order - 1))


@given(
    st.lists(st.integers(0, 30), min_size=2, max_size=4),
    st.floats(1.0, 20),
    st.sampled_from([1.5, 2.0, 8.0, 20.0]),
    st.sampled_from([0.5, 1.0, 2.0]),
)
def test_laplace_bounds_cover_the_exact_divergences(counts, scale, order, w):
    n = np.array(counts, dtype=float) * w + w
    bound = float(loose.laplace_label_rdp([order], sensitivity=w, scale=scale)[0])
    charged = float(tight.laplace_label_rdp([n], [order], sensitivity=[w], scale=scale)[0, 0, 0])
    assert charged <= bound
    p = law(n, scale)
    for a in range(len(n)):
        b = (a + 1) % len(n)
        moved = n.copy()
        moved[a] -= w
        moved[b] += w
        q = law(moved, scale)
        assert renyi(p, q, order) <= bound + 1e-7
        assert renyi(q, p, order) <= bound + 1e-7
        assert renyi(p, q, order) <= charged + 1e-7


def test_laplace_loose_cost_is_below_the_papers():
    """Theorem 2 of Papernot 2017 charges 2γ²α with γ = 1/b."""
    assert np.all(loose.laplace_label_rdp(ORDERS, sensitivity=1, scale=20) <= 2 / 20**2 * ORDERS)


def test_laplace_mu_covers_the_pure_dp_profile():
    pure = 2 / 20
    mu = float(np.sqrt(gdp.BOUND.worst_label((), sensitivity=1, sigma=20, noise="laplace")[0]))
    assert mu == pytest.approx(2 * norm.ppf(np.exp(pure) / (1 + np.exp(pure))))
    for epsilon in np.linspace(0, pure, 20):
        pure_delta = (np.exp(pure) - np.exp(epsilon)) / (1 + np.exp(pure))
        assert float(gdp.delta_of(epsilon, mu)) >= pure_delta - 1e-12


def test_clear_majorities_cost_less_under_laplace_noise():
    cost = tight.laplace_label_rdp([[250, 0, 0], [90, 85, 75]], ORDERS, sensitivity=[0.0, 1.0], scale=20)
    assert np.all(cost[:, 0] == 0)
    assert np.all(cost[0, 1] < cost[1, 1])
    assert np.all(loose.laplace_label_rdp(ORDERS, sensitivity=0, scale=20) == 0)


def test_large_and_small_scales_do_not_overflow():
    for scale in (1e-3, 1e6):
        cost = tight.laplace_label_rdp([[250, 0, 0]], ORDERS, sensitivity=[1.0], scale=scale)
        assert np.all(np.isfinite(cost))


@pytest.mark.parametrize("scale", [0.5, 20.0, 2e3, 2e5, 2e7, 2e9])
def test_small_laplace_costs_are_not_lost_in_rounding(scale):
    with mp.workdps(60):
        pure = mp.mpf(2) / mp.mpf(scale)
        p, q = 1 / (1 + mp.exp(-pure)), 1 / (1 + mp.exp(pure))
        for order in (1.5, 2.0, 8.0, 50.0):
            exact = mp.log(p**order * q ** (1 - order) + q**order * p ** (1 - order)) / (order - 1)
            charged = mp.mpf(float(loose.laplace_label_rdp([order], sensitivity=1.0, scale=scale)[0]))
            assert 1 - mp.mpf("1e-14") <= charged / exact <= 1 + mp.mpf("1e-6")
        squared = (2 * mp.sqrt(2) * mp.erfinv(mp.tanh(pure / 2))) ** 2
        charged = float(gdp.BOUND.worst_label((), sensitivity=1.0, sigma=scale, noise="laplace")[0])
        assert abs(charged / squared - 1) <= 1e-13
