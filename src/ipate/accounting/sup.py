"""The sup bound: what a release costs at worst, over all votes, by its exact Rényi divergence.

The loose bound charges the noisy numbers themselves; what is released is one bit or one class. For small
αΔ/σ that is worth a factor of about 2/π. Nothing here depends on the votes, so the cost may be released.
What is returned is an upper bound on the supremum, proven on tails and cells that cover all votes rather than
found by a search (in floating point, with a slack of 1e-6): at most `CHECK_MARGIN` or `LABEL_MARGIN` above a
cost that votes attain or approach, and never above loose.

Numbers below are in units of the noise: d = Δ/σ. S = Σ_j P_j^α Q_j^{1−α} = e^{(α−1)D}, K = α(α−1)d²/2.

**Which votes and neighbours are covered.** For fixed n, S is convex in n′, as each ln P_j is concave
(Prékopa 1973), so the worst neighbour is a vertex of the possible moves: all of Δ leaves one class a, or
comes to one class b, or both. Those moves are symmetric, so one supremum covers both directions, upsampling
and abstaining; and a smaller move costs less, as S = 1 without any. For the label, reveal also the largest
noisy score of the classes that do not move, whose law is the same on both sides: S is at most an average of
ternary releases (a, b, other) at means (A, B) relative to that score. So the supremum over (A, B) in R² of
the move (−d, +d) bounds every number of classes; two classes are its limit A, B → ∞, a move of one class
alone its limit A → −∞ or B → −∞. The check is the binary release at the mean, maximum − threshold.

**Tails.** For a mean n ≤ n₀ that moves to n − D, D = ±d, the event E = {x > 0} is rare. Splitting S − 1 by
outcome into Q·g(r), and revealing x itself on E, no binary release costs more than
t(n₀) = g(r(n₀)) + F(n₀), F = ∫_E q·g(ln p/q) = e^K Φ(n₀+(α−1)D) − αΦ(n₀) + (α−1)Φ(n₀−D): both terms grow
with n₀. With f(s) = ∫_E p^s q^{1−s}, F is the error of f's chord through 0 and 1 at α, so
F ≤ ½α(α−1)·max(f″(0), f″(α)) (f″ is convex), which does not cancel when αd is small.
With S₁ the supremum of the check at d, revealing both scores on E leaves for the ternary release
S − 1 ≤ (S₁ − 1) + t(n₀)·S₁ + e^K Φ(n₀+(α−1)D)·(e^K − S₁), for A ≤ n₀ (D = d) or B ≤ n₀ (D = −d).

**The half-plane A + B ≥ s.** (x_a + x_b)/√2 ~ N((A+B)/√2, 1) is not touched by the move. Given that it is
positive, the release is the binary argmax of a and b, which is a check at √2·d with supremum S₂; given that
it is negative, at most both scores: S − S₂ ≤ Φ(−s/√2)·(e^{2K} − S₂).

What is left is an interval, or a triangle: `ipate.accounting._ternary.certify` covers it with cells.

**Where loose is returned.** If loose is within the margin of an attained cost, loose it is: for large αd the
ratio is 1 − O(ln(αd)/(αd)²). That needs no exponent of α(α−1)d², so nothing overflows. If the cells run out,
loose is returned as well: still a bound, without the margin. A scan of d from 1e-4 to 20 with orders from
1.001 to 1000 met no such case. Labels with d > `LARGEST_MOVE`, a noise far below one vote, are not tried:
there loose is less than 1% above the supremum for orders from 2 on, up to 17% for orders near 1.

References
----------
Prékopa 1973 (log-concavity); van Erven and Harremoës 2014 (Rényi divergence: data processing, monotone in
α); Mironov 2017, Proposition 7 (the loose bound).
"""

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, ndtri

from ipate._types import Floats
from ipate.accounting._ternary import BINARY, TERNARY, HalfSpaces, certify, costs, log_density, weighted_excess
from ipate.accounting.bounds import Orders, check_orders, check_positive, check_sensitivity
from ipate.accounting.loose import RenyiBound

CHECK_MARGIN = 0.0005
LABEL_MARGIN = 0.002
LARGEST_MOVE = 20.0
_LEAST_ORDER = 1 + 1e-6  # D grows with α: lower orders are charged as this one
# Where the ternary release is worst, A ≈ B ≈ .74 for small αd; further out the binary one is as bad.
_CANDIDATES = np.stack(np.meshgrid(np.arange(-0.5, 2.5, 0.125), np.arange(0.25, 2.75, 0.125)), -1).reshape(-1, 1, 2)


def check_rdp(orders: ArrayLike, *, sensitivity: ArrayLike, check_sigma: float) -> Floats:
    """Return the check's cost at worst over all votes, (*sensitivity.shape, A); Δ = 0 costs nothing.

    At most `CHECK_MARGIN` above the supremum, and never above loose, αΔ²/(2σ_T²).
    """
    return _curves(orders, sensitivity, check_positive("check_sigma", check_sigma), label=False)


def label_rdp(orders: ArrayLike, *, sensitivity: ArrayLike, sigma: float) -> Floats:
    """Return the label's cost at worst over all votes and any number of classes, (*sensitivity.shape, A).

    At most `LABEL_MARGIN` above the supremum over all histograms, and never above loose, αΔ²/σ².
    """
    return _curves(orders, sensitivity, check_positive("sigma", sigma), label=True)


def _curves(orders: ArrayLike, sensitivity: ArrayLike, sigma: float, *, label: bool) -> Floats:
    alphas = check_orders(orders)
    ratios = check_sensitivity(sensitivity) / sigma
    moves, where = np.unique(ratios, return_inverse=True)
    curve = _label_curve if label else _check_curve
    charged = tuple(np.maximum(alphas, _LEAST_ORDER).tolist())
    table = np.array([curve(float(d), charged) for d in moves]).reshape(-1, alphas.size)
    loose = (1 if label else 0.5) * alphas * np.square(ratios)[..., None]
    return np.asarray(np.minimum(table[where.reshape(ratios.shape)], loose))


@lru_cache(maxsize=4096)
def _check_curve(d: float, orders: tuple[float, ...]) -> Floats:
    alphas = np.array(orders)
    loose = 0.5 * alphas * d * d
    found = _worst_binary(d, alphas)
    target = (1 + CHECK_MARGIN) * found
    shown = (target < loose) & (found > 0)
    if shown.any():
        shown[shown] = _binary_holds(d, alphas[shown], (alphas[shown] - 1) * target[shown])
    return np.where(shown, target, loose)


@lru_cache(maxsize=4096)
def _label_curve(d: float, orders: tuple[float, ...]) -> Floats:
    alphas = np.array(orders)
    loose = alphas * d * d
    if d > LARGEST_MOVE:
        return loose
    binary = _worst_binary(np.sqrt(2) * d, alphas)
    found = np.maximum(binary, costs(TERNARY, _CANDIDATES, d=d, orders=alphas).max(axis=0))
    target = (1 + LABEL_MARGIN) * found
    pair = _check_curve(float(np.sqrt(2) * d), orders)
    shown = (target < loose) & (pair < target)
    if shown.any():
        single = _check_curve(d, orders)
        parts = [(alphas[shown] - 1) * part[shown] for part in (target, pair, single)]
        shown[shown] = _ternary_holds(d, alphas[shown], *parts)
    return np.where(shown, target, loose)


def _binary_holds(d: float, alphas: Floats, x: Floats) -> NDArray[np.bool_]:
    """Say for which orders no check has (α−1)D above `x`: two tails, and cells between them."""
    log_target = _log_expm1(x)
    # Far right, x < 0 is rare and, mirrored, its mean moves down; far left, x > 0 is rare and moves up.
    right, left = (_reach(D, alphas, log_target) for D in (d, -d))
    good = np.isfinite(left) & np.isfinite(right)
    known = HalfSpaces(normals=np.array([[1.0], [-1.0]]), offsets=-np.stack([right, left]))
    box = np.array([[np.min(left, where=good, initial=0)], [-np.min(right, where=good, initial=0)]])
    return good & certify(BINARY, d=d, orders=alphas, log_target=log_target, known=known, box=box)


def _ternary_holds(d: float, alphas: Floats, x: Floats, pair: Floats, single: Floats) -> NDArray[np.bool_]:
    """Say for which orders no label has (α−1)D above `x`, given such bounds for checks at √2·d and d."""
    log_target = _log_expm1(x)
    share = _log_expm1(x - pair) - _log_expm1(alphas * (alphas - 1) * d * d - pair)
    total = -np.sqrt(2) * ndtri(0.999 * np.exp(np.minimum(share, 0)))
    least_a, least_b = (_reach(D, alphas, log_target, single) for D in (d, -d))
    good = np.isfinite(least_a) & np.isfinite(least_b)
    known = HalfSpaces(
        normals=np.array([[-1.0, 0.0], [0.0, -1.0], [1.0, 1.0]]), offsets=np.stack([-least_a, -least_b, total])
    )
    low = [np.min(least, where=good, initial=np.inf) for least in (least_a, least_b)]
    high = [np.max(total - least, where=good, initial=-np.inf) for least in (least_b, least_a)]
    if not (good.any() and np.less(low, high).all()):
        return good
    box = np.array([low, high])
    return good & certify(TERNARY, d=d, orders=alphas, log_target=log_target, known=known, box=box)


def _log_expm1(x: Floats) -> Floats:
    x = np.maximum(x, 0)  # a cost equal to loose may differ from it by rounding
    with np.errstate(divide="ignore"):
        return np.asarray(x + np.log(-np.expm1(-x)))


def _worst_binary(d: float, alphas: Floats) -> Floats:
    """Search the costliest check, a lower end of the supremum, on a grid that zooms in on each best."""
    low = np.full(alphas.size, -10.0)
    high = (alphas - 1) * d + 10
    best = np.zeros(alphas.size)
    steps = np.linspace(0, 1, 65)
    for _ in range(5):
        t = low + (high - low) * steps[:, None]
        cost = costs(BINARY, t[..., None], d=d, orders=alphas)
        at = t[cost.argmax(axis=0), np.arange(alphas.size)]
        best = np.maximum(best, cost.max(axis=0))
        low, high = at - (high - low) / 32, at + (high - low) / 32
    return best


def _tail(n: Floats, D: float, alphas: Floats, log_target: Floats) -> tuple[Floats, Floats]:
    """Return t(n) and e^K Φ(n+(α−1)D), as logarithms of fractions of the target."""
    beta, d = alphas - 1, abs(D)
    base = -n - max(-D, 0)
    tangent = d * np.exp(log_density(base) - log_ndtr(base))
    ratio = np.minimum(tangent, np.abs(log_ndtr(-n) - log_ndtr(-n + D)) + 1e-12)
    main = weighted_excess(-log_target, -np.sign(D) * ratio, alphas)
    bends = [_log_bend(-n - (s - 1) * D, (s - 0.5) * D) + 0.5 * s * (s - 1) * d * d for s in (0 * alphas, alphas)]
    log_chord = np.log(0.5 * alphas * beta * d * d) + np.maximum(*bends)
    log_full = 0.5 * alphas * beta * d * d + log_ndtr(n + beta * D)
    log_direct = np.logaddexp(log_full, np.log(beta) + log_ndtr(n - D))
    with np.errstate(over="ignore", divide="ignore"):
        tail = np.log(main + np.exp(np.minimum(log_chord, log_direct) - log_target))
    return tail, log_full - log_target


def _log_bend(h: Floats, c: Floats) -> Floats:
    """Return ln ∫_h^∞ φ(y)(y+c)² dy = ln((h+2c)φ(h) + (1+c²)Φ(−h)), at most ln(1+c²)."""
    low = np.maximum(h, -5)
    mills = np.exp(log_ndtr(-low) - log_density(low))
    part = log_density(low) + np.log(np.maximum(low + 2 * c + (1 + c * c) * mills, 1e-300))
    return np.asarray(np.where(h < -5, np.log1p(c * c), part))


def _reach(D: float, alphas: Floats, log_target: Floats, single: Floats | None = None) -> Floats:
    """Return the largest n₀ found, by bisection, whose tail keeps to the target (nan: none).

    With `single`, (α−1) times the check's cost, the tail of the ternary release, else of the binary one.
    """
    K = 0.5 * alphas * (alphas - 1) * D * D

    def holds(n: Floats) -> Floats:
        tail, full = _tail(n, D, alphas, log_target)
        with np.errstate(over="ignore"):
            if single is None:
                return np.exp(tail)
            rest = np.exp(_log_expm1(single) - log_target) + np.exp(tail + single)
            return rest + np.exp(full + single + _log_expm1(K - single))

    low = -12 - (alphas + 1) * abs(D)
    high = (alphas + 1) * abs(D) + 12
    for _ in range(24):
        middle = 0.5 * (low + high)
        fits = holds(middle) <= 0.999
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return np.where(holds(low) <= 0.999, low, np.nan)


class Sup(RenyiBound):
    """Every release costs its worst case over all votes."""

    name = "sup"
    summary = "sup: the largest Rényi cost over all votes"
    data_independent = True

    def worst_check(self, orders: Orders, *, sensitivity: ArrayLike, check_sigma: float) -> Floats:
        """Return the check's cost at worst over all votes."""
        return check_rdp(orders, sensitivity=sensitivity, check_sigma=check_sigma)

    def worst_label(self, orders: Orders, *, sensitivity: ArrayLike, sigma: float, noise: str) -> Floats:
        """Return the label's cost at worst over all votes; under Laplace noise that of loose."""
        if noise != "gaussian":
            return super().worst_label(orders, sensitivity=sensitivity, sigma=sigma, noise=noise)
        return label_rdp(orders, sensitivity=sensitivity, sigma=sigma)


BOUND = Sup()
