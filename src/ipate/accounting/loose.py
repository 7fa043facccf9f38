"""The loose bound, the Rényi divergence of the Gaussian vector behind a release, and what Rényi costs mean as (ε, δ).

The bound holds for all votes and in both directions, so its costs may be published. A check adds N(0, σ_T²) to a
maximum that moves by at most Δ; a label is post-processing of a noisy histogram in which two classes move by Δ each.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from ipate._types import Floats
from ipate.accounting.bounds import (
    CONVERSIONS,
    SAFETY,
    Bound,
    Orders,
    check_budgets,
    check_orders,
    check_positive,
    check_sensitivity,
)
from ipate.errors import InputError, refuse_name

_ULP = float(np.finfo(np.float64).eps)


def _offset(alpha: Floats, delta: ArrayLike, conversion: str) -> Floats:
    """What a conversion adds to the Rényi cost at every order.

    classic: ln(1/δ)/(α−1), Mironov (2017), Proposition 3. improved: ln(1−1/α) − ln(αδ)/(α−1), Canonne, Kamath and
    Steinke, "The discrete Gaussian for differential privacy" (2020), Proposition 12.
    """
    log_delta = np.log(check_budgets("delta", delta))[..., None]
    if conversion == "classic":
        return np.asarray(-log_delta / (alpha - 1))
    if conversion != "improved":
        refuse_name("conversion", conversion, CONVERSIONS)
    return np.asarray(np.log1p(-1 / alpha) - (np.log(alpha) + log_delta) / (alpha - 1))


def check_rdp(orders: ArrayLike, *, sensitivity: ArrayLike, check_sigma: float) -> Floats:
    """Return αΔ²/(2σ_T²), the cost of one consensus check at every order: (*sensitivity.shape, A).

    Mironov, "Rényi differential privacy" (2017), Proposition 7: the largest count moves by at most Δ, not by 2Δ.
    """
    ratio = check_sensitivity(sensitivity) / check_positive("check_sigma", check_sigma)
    return np.asarray(ratio[..., None] ** 2 * (check_orders(orders) / 2))


def label_rdp(orders: ArrayLike, *, sensitivity: ArrayLike, sigma: float) -> Floats:
    """Return αΔ²/σ², the cost of one noisy label at every order: (*sensitivity.shape, A).

    Papernot et al., "Scalable private learning with PATE" (2018), Proposition 8, at sensitivity Δ. Moves that spread
    over more than two classes cost less: their Euclidean length is at most √2·Δ.
    """
    ratio = check_sensitivity(sensitivity) / check_positive("sigma", sigma)
    return np.asarray(ratio[..., None] ** 2 * check_orders(orders))


def laplace_label_rdp(orders: ArrayLike, *, sensitivity: ArrayLike, scale: float) -> Floats:
    """Return what one LNMax label costs at most, for all votes and both directions: (*sensitivity.shape, A).

    Randomised response is the worst pure-DP mechanism: D_α ≤ ln[(sinh αε₀ − sinh (α−1)ε₀)/sinh ε₀]/(α−1), ε₀ = 2Δ/b
    (Bun and Steinke, "Concentrated differential privacy", 2016, proof of Proposition 3.3). It is below both ε₀ and the
    2(Δ/b)²α that Theorem 2 of Papernot et al. charges.
    """
    alpha = check_orders(orders)
    pure = pure_epsilon(sensitivity, scale)[..., None]
    safe = np.where(pure > 0, pure, 1.0)
    log_p, log_q = -np.logaddexp(0, -safe), -np.logaddexp(0, safe)
    both = np.stack([alpha * log_p + (1 - alpha) * log_q, alpha * log_q + (1 - alpha) * log_p])
    rounding = 8 * _ULP * (1 - 2 * alpha * log_q)  # the logarithm of a sum near 1 cancels where ε₀ is small
    cost = np.minimum((logsumexp(both, axis=0) + rounding) / (alpha - 1), alpha * safe**2 / 2)
    return np.asarray(np.where(pure > 0, np.minimum(np.maximum(cost, 0.0), safe), 0.0))


def pure_epsilon(sensitivity: ArrayLike, scale: float) -> Floats:
    """ε₀ = 2Δ/b of an LNMax label: two counts move by Δ each, and a Laplace density changes by e^(Δ/b).

    Papernot et al., "Semi-supervised knowledge transfer for deep learning from private training data" (2017).
    """
    return np.asarray(2 * check_sensitivity(sensitivity) / check_positive("scale", scale))


class RenyiBound(Bound):
    """Rényi costs and their conversion; a release costs what loose charges, unless a bound has its own cost."""

    def limit(self, orders: Orders, *, epsilon: ArrayLike, delta: ArrayLike, conversion: str) -> Floats:
        """Return the Rényi cost that exactly uses up (ε, δ) at every order; −inf where nothing fits."""
        offset = _offset(check_orders(orders), delta, conversion)
        limit = check_budgets("epsilon", epsilon)[..., None] * (1 - SAFETY) - (offset + 8 * np.spacing(np.abs(offset)))
        return np.where(limit > 0, limit, -np.inf)

    def epsilon(self, orders: Orders, cost: Floats, *, delta: ArrayLike, conversion: str) -> tuple[Floats, Floats]:
        """Return the least ε over all orders, at least 0, and its order; 0 and NaN where every order costs 0."""
        alpha = check_orders(orders)
        if cost.shape[-1:] != alpha.shape:
            raise InputError(f"rdp has the shape {cost.shape}: its last axis must hold the {alpha.size} orders")
        found = cost + _offset(alpha, delta, conversion)
        best = np.argmin(found, axis=-1)
        least = np.maximum(np.take_along_axis(found, best[..., None], axis=-1)[..., 0], 0.0)
        nothing = ~np.any(cost, axis=-1)
        return np.where(nothing, 0.0, least), np.where(nothing, np.nan, alpha[best])

    def worst_check(self, orders: Orders, *, sensitivity: ArrayLike, check_sigma: float) -> Floats:
        """Return the loose cost of a check."""
        return check_rdp(orders, sensitivity=sensitivity, check_sigma=check_sigma)

    def worst_label(self, orders: Orders, *, sensitivity: ArrayLike, sigma: float, noise: str) -> Floats:
        """Return the loose cost of a label."""
        if noise == "laplace":
            return laplace_label_rdp(orders, sensitivity=sensitivity, scale=sigma)
        return label_rdp(orders, sensitivity=sensitivity, sigma=sigma)

    def vector_cost(self, orders: Orders, *, sensitivity: ArrayLike, sigma: float) -> Floats:
        """Return αΔ²/σ², the Rényi cost of the Gaussian mechanism, which is also loose's cost of a label."""
        return label_rdp(orders, sensitivity=sensitivity, sigma=sigma)


class Loose(RenyiBound):
    """Every release costs its worst case under loose."""

    name = "loose"
    summary = "loose: Rényi costs of the Gaussian mechanism, for all votes"
    laplace_summary = "loose: Rényi costs of randomised response at ε₀ = 2Δ/b of a Laplace label, for all votes"
    data_independent = True
    noises = ("gaussian", "laplace")
    recipe = ("labels / sigma**2", "queries / (2 * check_sigma**2)")
    laplace_recipe = (
        "labels * log((sinh(2 * order * moved / scale) - sinh(2 * (order - 1) * moved / scale))\n"
        "                   / sinh(2 * moved / scale)) / (order - 1)"
    )

    def noise_multiplier(self, cost: float, *, order: float | None) -> float | None:
        """Return the root of α/(2·cost): the Gaussian mechanism costs α/2 over its squared noise multiplier."""
        return None if order is None else float(np.sqrt(order / (2 * cost)))


BOUND = Loose()
