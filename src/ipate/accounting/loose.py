"""The loose bound: the Rényi divergence of the Gaussian vector behind a release.

It holds for all votes and in both directions, so its costs may be published. A check adds
N(0, σ_T²) to a maximum that moves by at most Δ; a label is post-processing of a noisy histogram
in which two classes move by Δ each.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from ipate.accounting.bounds import Bound, Orders
from ipate.accounting.conversion import (
    Floats,
    check_orders,
    check_positive,
    check_sensitivity,
    epsilon_of,
    rdp_limit,
)


def check_rdp(orders: ArrayLike, *, sensitivity: ArrayLike, check_sigma: float) -> Floats:
    """Return αΔ²/(2σ_T²), the cost of one consensus check at every order.

    Mironov, "Rényi differential privacy" (2017), Proposition 7, at sensitivity Δ: the largest count moves by at most
    Δ, not by 2Δ. Δ is the largest total weight that the person can move; returns (*sensitivity.shape, A).
    """
    ratio = check_sensitivity(sensitivity) / check_positive("check_sigma", check_sigma)
    return np.asarray(ratio[..., None] ** 2 * (check_orders(orders) / 2))


def label_rdp(orders: ArrayLike, *, sensitivity: ArrayLike, sigma: float) -> Floats:
    """Return αΔ²/σ², the cost of one noisy label at every order.

    Papernot et al., "Scalable private learning with PATE" (2018), Proposition 8, at sensitivity Δ
    (Individualized PATE, the theorem of the individual loose bound). Moves that spread over more
    than two classes cost less: their Euclidean length is at most √2·Δ.
    """
    ratio = check_sensitivity(sensitivity) / check_positive("sigma", sigma)
    return np.asarray(ratio[..., None] ** 2 * check_orders(orders))


def laplace_label_rdp(orders: ArrayLike, *, sensitivity: ArrayLike, scale: float) -> Floats:
    """Return what one LNMax label costs at most, for all votes and both directions.

    Randomised response is the worst pure-DP mechanism: with ε₀ = 2Δ/b,
    D_α ≤ ln[(sinh αε₀ − sinh (α−1)ε₀)/sinh ε₀]/(α−1), the extremal pair in the proof of Bun and
    Steinke, "Concentrated differential privacy" (2016), Proposition 3.3. It is below both ε₀ and the
    2(Δ/b)²α that Theorem 2 of Papernot et al. charges.
    """
    alpha = check_orders(orders)
    pure = pure_epsilon(sensitivity, scale)[..., None]
    safe = np.where(pure > 0, pure, 1.0)
    log_p, log_q = -np.logaddexp(0, -safe), -np.logaddexp(0, safe)
    both = np.stack([alpha * log_p + (1 - alpha) * log_q, alpha * log_q + (1 - alpha) * log_p])
    cost = np.minimum(logsumexp(both, axis=0) / (alpha - 1), alpha * safe**2 / 2)
    return np.asarray(np.where(pure > 0, np.minimum(np.maximum(cost, 0.0), safe), 0.0))


def pure_epsilon(sensitivity: ArrayLike, scale: float) -> Floats:
    """ε₀ = 2Δ/b of an LNMax label: two counts move by Δ each, and a Laplace density changes by e^(Δ/b).

    Papernot et al., "Semi-supervised knowledge transfer for deep learning from private training data" (2017).
    """
    return np.asarray(2 * check_sensitivity(sensitivity) / check_positive("scale", scale))


class RenyiBound(Bound):
    """Rényi costs and their conversion; a release costs what loose charges, unless a bound has its own cost."""

    def limit(self, orders: Orders, *, epsilon: ArrayLike, delta: ArrayLike, conversion: str) -> Floats:
        """Return the Rényi costs that budgets afford."""
        return rdp_limit(orders, epsilon=epsilon, delta=delta, conversion=conversion)

    def epsilon(self, orders: Orders, cost: Floats, *, delta: ArrayLike, conversion: str) -> tuple[Floats, Floats]:
        """Return the least ε over all orders, and its order."""
        return epsilon_of(cost, orders, delta=delta, conversion=conversion)

    def worst_check(self, orders: Orders, *, sensitivity: ArrayLike, check_sigma: float) -> Floats:
        """Return the loose cost of a check."""
        return check_rdp(orders, sensitivity=sensitivity, check_sigma=check_sigma)

    def worst_label(self, orders: Orders, *, sensitivity: ArrayLike, sigma: float, noise: str) -> Floats:
        """Return the loose cost of a label."""
        if noise == "laplace":
            return laplace_label_rdp(orders, sensitivity=sensitivity, scale=sigma)
        return label_rdp(orders, sensitivity=sensitivity, sigma=sigma)


class Loose(RenyiBound):
    """Every release costs its worst case under loose."""

    name = "loose"
    summary = "loose: Rényi costs of the Gaussian mechanism, for all votes"
    data_independent = True
    noises = ("gaussian", "laplace")
    recipe = ("labels / sigma**2", "queries / (2 * check_sigma**2)")


BOUND = Loose()
