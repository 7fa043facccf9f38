"""Gaussian differential privacy: exact composition of Gaussian releases, for all votes.

A release that is post-processing of a Gaussian mechanism with sensitivity-to-noise ratio μ is μ-GDP; ratios compose as
the root of the sum of squares, also adaptively (Dong, Roth and Su, "Gaussian differential privacy", 2022, Theorem 1 and
Corollary 2). Costs are therefore kept as μ². The profile δ(ε) of μ-GDP is their Corollary 1; nothing here depends on
votes, so every figure may be published.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, erfinv, expit, ndtr, ndtri

from ipate._types import Floats
from ipate.accounting.bounds import SAFETY, Bound, Orders, check_budgets, check_positive, check_sensitivity
from ipate.accounting.loose import pure_epsilon
from ipate.errors import InputError

_STEPS = 80  # bisections at most
_ROOT2, _ROOT_PI_HALF = np.sqrt(2.0), np.sqrt(np.pi / 2)
_FAR = 40.0  # there δ is below 1e-340
_SHORT = 0.5  # steps of the Mills ratio below this are integrated, because their difference cancels
_NODES, _SHARES = (part / 2 for part in np.polynomial.legendre.leggauss(12))
_ROUNDING = 1e-13  # bounds the relative error of the profile within the limits of budgets


def delta_of(epsilon: ArrayLike, mu: ArrayLike) -> Floats:
    """Return δ(ε) = Φ(−ε/μ + μ/2) − e^ε·Φ(−ε/μ − μ/2) of μ-GDP, accurate also where δ is tiny."""
    eps, ratio = np.broadcast_arrays(np.asarray(epsilon, np.float64), np.asarray(mu, np.float64))
    with np.errstate(over="ignore", invalid="ignore"):
        found = _profile(eps, np.where(ratio > 0, ratio, 1.0))
    return np.where(ratio > 0, np.clip(found, 0.0, 1.0), 0.0)


def _profile(eps: Floats, mu: Floats) -> Floats:
    """Return δ(ε) for μ above 0, as it comes: rounding may leave [0, 1].

    With x = ε/μ − μ/2 and the Mills ratio m it is φ(x)·(m(x) − m(x + μ)), without the textbook form's cancellation.
    For small μ this difference cancels in turn; there it is the integral of −m′(t) = 1 − t·m(t) from x to x + μ. Far to
    the left, where m overflows, it is Φ(−x) − φ(x)·m(x + μ).
    """
    x = np.minimum(eps / mu - mu / 2, _FAR)
    calm = np.maximum(x, -5.0)
    density = np.exp(-0.5 * x**2) / (2 * _ROOT_PI_HALF)
    step = _mills(calm) - _mills(calm + mu)
    if (short := mu <= _SHORT).any():
        width = np.where(short, mu, _SHORT)[..., None]
        at = calm[..., None] + width * (0.5 + _NODES)
        step = np.where(short, width[..., 0] * ((1 - at * _mills(at)) @ _SHARES), step)
    if np.all(calm == x):
        return np.asarray(density * step)
    return np.asarray(np.where(calm == x, density * step, ndtr(-x) - density * _mills(x + mu)))


def _mills(x: Floats) -> Floats:
    """Return the Mills ratio Φ(−x)/φ(x)."""
    return np.asarray(_ROOT_PI_HALF * erfcx(x / _ROOT2))


def _bisect(fits: Callable[[Floats], NDArray[np.bool_]], good: Floats, bad: Floats) -> Floats:
    """Return the last number on the way from `good` to `bad` that fits, until no double lies between the two."""
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(_STEPS):
            middle = (good + bad) / 2
            if np.all((middle == good) | (middle == bad)):
                break
            keep = fits(middle)
            good, bad = np.where(keep, middle, good), np.where(keep, bad, middle)
    return good


def epsilon_of(mu: ArrayLike, delta: ArrayLike) -> Floats:
    """Return the smallest ε with δ(ε) ≤ δ for μ-GDP, rounded up; 0 where μ, the root of the summed μ², is 0."""
    ratio, target = np.broadcast_arrays(np.asarray(mu, np.float64), check_budgets("delta", delta))
    if not np.all(ratio >= 0):  # NaN fails this too
        raise InputError(f"mu holds {ratio[~(ratio >= 0)].flat[0]:g}: it must be 0 or above")
    endless = np.isinf(ratio)
    ratio = np.where(endless, 1.0, ratio)
    high = ratio**2 / 2 + ratio * np.sqrt(-2 * np.log(target))  # there Φ(−x) ≤ δ already
    safe = np.where(ratio > 0, ratio, 1.0)
    allowed = target * (1 - _ROUNDING)
    found = _bisect(lambda eps: _profile(eps, safe) <= allowed, high, np.zeros(ratio.shape)) * (1 + _ROUNDING)
    finite = np.where(delta_of(0.0, ratio) <= allowed, 0.0, found)
    return np.asarray(np.where(endless, np.inf, finite))


def mu_of(epsilon: ArrayLike, delta: ArrayLike) -> Floats:
    """Return the largest μ that (ε, δ) affords, rounded down: μ-GDP at this μ is (ε, δ)-DP."""
    eps, target = np.broadcast_arrays(check_budgets("epsilon", epsilon), check_budgets("delta", delta))
    z = np.sqrt(-2 * np.log(target))
    low = 2 * eps / (z + np.sqrt(z**2 + 2 * eps))  # the root of μ²/2 + zμ = ε, always affordable
    high = np.sqrt(2 * eps) + 20.0  # there δ is practically 1
    allowed = target * (1 - 4 * _ROUNDING)  # so that `epsilon_of` the result is at most ε
    return np.asarray(_bisect(lambda mu: _profile(eps, mu) <= allowed, low, high) * (1 - SAFETY))


class Gdp(Bound):
    """Costs are μ², and every release costs its worst case."""

    name = "gdp"
    summary = "gdp: exact composition of Gaussian noise, for all votes"
    laplace_summary = "gdp: labels with Laplace noise, each at the μ that covers its ε₀ = 2Δ/b, for all votes"
    data_independent = True
    has_orders = False
    own_conversion = "gdp"
    releases_counts = True
    noises = ("gaussian", "laplace")
    trade_off = "Φ(Φ⁻¹(α) + μ), with the μ of (ε, δ)"
    recipe = ("2 * labels / sigma**2", "queries / check_sigma**2")
    laplace_recipe = "labels * (2 * norm.ppf(1 / (1 + exp(-2 * moved / scale))))**2"

    def limit(self, orders: Orders, *, epsilon: ArrayLike, delta: ArrayLike, conversion: str) -> Floats:
        """Return the μ² that budgets afford."""
        return np.asarray(mu_of(epsilon, delta) ** 2)[..., None]

    def epsilon(self, orders: Orders, cost: Floats, *, delta: ArrayLike, conversion: str) -> tuple[Floats, Floats]:
        """Return ε of composed μ²; there is no order."""
        found = epsilon_of(np.sqrt(cost[..., 0]), delta)
        return found, np.full(found.shape, np.nan)

    def noise_multiplier(self, cost: float, *, order: float | None) -> float | None:
        """Return 1/μ."""
        return float(1 / np.sqrt(cost))

    def best_power(self, false_positives: ArrayLike, *, epsilon: ArrayLike, delta: ArrayLike) -> Floats:
        """Return Φ(Φ⁻¹(α) + μ), the trade-off of μ-GDP (Dong, Roth and Su 2022, Definition 2.6), with μ of (ε, δ).

        A budget is spent up to its μ, so whoever is promised (ε, δ) under this bound is promised μ-GDP too.
        """
        alpha = np.asarray(false_positives, dtype=np.float64)
        return np.asarray(ndtr(ndtri(alpha) + mu_of(epsilon, delta)))

    def worst_check(self, orders: Orders, *, sensitivity: ArrayLike, check_sigma: float) -> Floats:
        """Return μ² = Δ²/σ_T²: one number moves by at most Δ."""
        mu2 = (check_sensitivity(sensitivity) / check_positive("check_sigma", check_sigma)) ** 2
        return np.asarray(mu2)[..., None]

    def worst_label(self, orders: Orders, *, sensitivity: ArrayLike, sigma: float, noise: str) -> Floats:
        """Return μ² = 2Δ²/σ²: two counts move by at most Δ each. Under Laplace noise (2Φ⁻¹(e^ε₀/(1 + e^ε₀)))².

        The trade-off function of (ε₀, 0)-DP is two chords from (0, 1) and (1, 0) to its fixed point; that of μ-GDP at
        this μ is convex, ends in the same points and passes through the same fixed point, so it lies below.
        """
        if noise == "laplace":
            pure = pure_epsilon(sensitivity, sigma)  # where it is small, e^ε₀/(1 + e^ε₀) − ½ would lose its digits
            near = _ROOT2 * erfinv(np.tanh(np.minimum(pure, 1.0) / 2))
            return np.asarray((2 * np.where(pure < 1, near, -ndtri(expit(-pure)))) ** 2)[..., None]
        return np.asarray(2 * (check_sensitivity(sensitivity) / check_positive("sigma", sigma)) ** 2)[..., None]

    def vector_cost(self, orders: Orders, *, sensitivity: ArrayLike, sigma: float) -> Floats:
        """Return μ² = 2Δ²/σ²: a label is charged as the whole vector that it is read off."""
        return self.worst_label(orders, sensitivity=sensitivity, sigma=sigma, noise="gaussian")


BOUND = Gdp()
