"""The laws behind the sup bound, and a certificate that no vote costs more than a target.

The two releases, in units of the noise, see a Gaussian vector x ~ N(n, I) only through the part of space
that it falls into:

- *binary* (the check): x in R¹, outcomes x > 0 and x < 0, the move v = (+d);
- *ternary* (the label, see `ipate.accounting.sup`): x in R², outcomes a: x₁ > max(x₂, 0),
  b: x₂ > max(x₁, 0) and o: both below 0, the move v = (−d, +d).

With P_j(n) the probability of outcome j, ℓ_j = ln P_j, Q_j = P_j(n + v), r_j = ℓ_j(n) − ℓ_j(n + v) and
g(r) = e^{αr} − αe^r + α − 1 ≥ 0, the divergence of order α is D = ln(1 + Σ_j Q_j g(r_j)) / (α − 1).
`certify` shows Σ_j Q_j g(r_j) ≤ T on a bounded region of n by quartering cells. What it rests on:

1. Every outcome is a convex set, so ∇²ℓ_j = Cov(x | j) − I, with 0 ≤ Cov(x | j) ≤ I (Brascamp and Lieb
   1976), and ∇³ℓ_j is the third cumulant of a log-concave law. In one dimension such a law has
   |E y³| ≤ 2 (E y²)^{3/2} about its mean (Bubeck and Eldan 2019; the exponential law is extremal), and a
   symmetric trilinear form attains its norm on the diagonal (Banach 1938). So −I ≤ ∇²ℓ_j ≤ 0 and ‖∇³ℓ_j‖ ≤ 2.
2. Hence in a cell n = n₀ + δ, |δ| ≤ ρ: ln Q_j ≤ ℓ_j(n₀ + v) + p·δ with p = ∇ℓ_j(n₀ + v), and r_j lies
   within e = min(|v|, ½)·ρ² of r_j(n₀) + q·δ with q = ∇ℓ_j(n₀) − p.
3. For x = r_j(n₀) + q·δ the larger of g(x ± e) is at most g(x − e) where x < −e, else g(|x| + e): g falls
   below 0, rises above it, and g(−y) ≤ g(y) for y > 0.
4. f(δ) = e^{p·δ} g(r + q·δ) is convex but for a term of second order: with a = p·δ and b = q·δ,
   f″ = e^{p·δ}(a²g + 2ab·g′ + b²g″) ≥ −e^{p·δ} k(r) b², k = g′²/g − g″ = α(α−1)·e^r·m(r) and
   m(r) = e^{αr}g(−r)/g(r). Writing g as an integral, m = E U/E(1 − U) for U in [0, 1] with a density in
   proportion to (1 + zu)^{α−2}, z = e^r − 1. So m lies between 1 and e^{(α−2)r}, and between 1/(α−1) and
   α − 1; this bound of k grows with r.
   Adding ½·max(e^{p·δ}k)·b² makes f convex, hence the sum over outcomes is largest at a corner of the cell.
5. Steps d below `STEP` are computed at d' = STEP and scaled by d/d', so that no digits cancel: r_j is off by
   at most d·d' and q·δ by 2d·d'·ρ (by 1.), which e takes up; ln Q_j stays below its tangent.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from ipate._types import Floats

STEP = 1e-5  # the smallest move that is evaluated by differences
ROUNDING = 1e-6  # slack for floating point: a bound counts as settled at T(1 − ROUNDING)
WIDEST = 0.25  # half the width of the first cells
LEVELS = 9  # how often a cell may be quartered
CELLS = 60_000  # cells of one level that an order may leave open; beyond, its certificate is given up
CHUNK = 4096
_HALF_LOG_TWO_PI = 0.5 * np.log(2 * np.pi)
_NODES, _WEIGHTS = (0.5 * part for part in np.polynomial.legendre.leggauss(48))


@dataclass(frozen=True, kw_only=True)
class Release:
    """A release that sees N(n, I) through a partition: its law and gradients, and where a unit move goes."""

    law: Callable[[Floats], tuple[Floats, Floats]]
    move: Floats


@dataclass(frozen=True, kw_only=True)
class HalfSpaces:
    """Regions {n: normal·n ≥ offset}, one offset per order, in which the target is known to hold."""

    normals: Floats
    offsets: Floats

    def hold(self, centres: Floats, half: float, order: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Say for which pairs (cell, order) the whole cell lies in one of the regions."""
        lowest = centres @ self.normals.T - half * np.abs(self.normals).sum(axis=1)
        return np.asarray((lowest >= self.offsets[:, order].T).any(axis=1))


def log_density(x: Floats) -> Floats:
    """Return ln φ(x) of the standard normal law."""
    return np.asarray(-0.5 * x * x - _HALF_LOG_TWO_PI)


def _log_first(A: Floats, B: Floats) -> Floats:
    """Return ln ∫₀^∞ φ(t−A) Φ(t−B) dt to about 1e-13, also where it is far below the smallest float.

    The integrand's logarithm has a second derivative in [−2, −1], so Gauss and Legendre's rule on a window
    around its peak, wide enough for e^−36, has it all. Newton's method climbs to the peak from the left.
    """
    peak = np.maximum(0.0, np.maximum(A, 0.5 * (A + B)))
    for _ in range(6):
        x = peak - B
        ratio = np.exp(log_density(x) - log_ndtr(x))
        peak = np.maximum(0.0, peak + (A - peak + ratio) / (1 + ratio * (ratio + x)))
    x = peak - B
    slope = np.maximum(0.0, peak - A - np.exp(log_density(x) - log_ndtr(x)))
    low = np.maximum(0.0, peak - 8.5)
    width = peak - low + 72 / (slope + np.sqrt(slope * slope + 72))
    t = low[..., None] + width[..., None] * (_NODES + 0.5)
    logs = log_density(t - A[..., None]) + log_ndtr(t - B[..., None])
    top = logs.max(axis=-1)
    return np.asarray(top + np.log(np.exp(logs - top[..., None]) @ _WEIGHTS * width))


def ternary_law(n: Floats) -> tuple[Floats, Floats]:
    """Return ln P of a, b and o at points `n` (…, 2), shape (…, 3), and the gradients, shape (…, 3, 2).

    The gradients are fluxes through the borders: φ(A)Φ(−B) through x₁ = 0, and φ((A−B)/√2)Φ((A+B)/√2)/√2
    through x₁ = x₂. Sums of positive terms only, so the tails lose no digits.
    """
    A, B = n[..., 0], n[..., 1]
    first, second = _log_first(np.stack([A, B]), np.stack([B, A]))
    log_below_a, log_below_b = log_ndtr(-A), log_ndtr(-B)
    diagonal = log_density((A - B) / np.sqrt(2)) + log_ndtr((A + B) / np.sqrt(2)) - 0.5 * np.log(2)
    axis_a, axis_b = log_density(A) + log_below_b - first, log_density(B) + log_below_a - second
    between_a, between_b = np.exp(diagonal - first), np.exp(diagonal - second)
    logs = np.stack([first, second, log_below_a + log_below_b], axis=-1)
    gradient = np.empty((*logs.shape, 2))
    gradient[..., 0, 0], gradient[..., 0, 1] = np.exp(axis_a) + between_a, -between_a
    gradient[..., 1, 0], gradient[..., 1, 1] = -between_b, np.exp(axis_b) + between_b
    gradient[..., 2, 0] = -np.exp(log_density(A) - log_below_a)
    gradient[..., 2, 1] = -np.exp(log_density(B) - log_below_b)
    return logs, gradient


def binary_law(n: Floats) -> tuple[Floats, Floats]:
    """Return ln P of x > 0 and x < 0 at points `n` (…, 1), shape (…, 2), and gradients (…, 2, 1)."""
    sides = n * np.array([1.0, -1.0])
    logs = np.asarray(log_ndtr(sides))
    return logs, (np.exp(log_density(sides) - logs) * np.array([1.0, -1.0]))[..., None]


BINARY = Release(law=binary_law, move=np.array([1.0]))
TERNARY = Release(law=ternary_law, move=np.array([-1.0, 1.0]))


def weighted_excess(log_weight: Floats, r: Floats, orders: Floats) -> Floats:
    """Return e^log_weight · g(r) without cancellation or overflow; from (α−1)r = 30 on, its bound e^{αr}.

    g(r) = e^r(expm1(βr) + β·expm1(−r)) = e^r·expm1(βr) − β·expm1(r) with β = α − 1, and a series where αr
    is small: αβr²·(1/2! + (1+α)r/3! + (1+α+α²)r²/4! + …).
    """
    beta = orders - 1
    size, grow = beta * r, np.asarray(orders * r)
    with np.errstate(over="ignore", invalid="ignore"):
        front = np.exp(log_weight + np.maximum(r, 0))
        fall = np.expm1(-np.abs(r))
        rise = np.expm1(np.minimum(size, 30))
        result = front * np.where(r > 0, rise + beta * fall, (1 + fall) * rise - beta * fall)
        huge = size > 30
        if huge.any():
            result = np.where(huge, np.exp(log_weight + np.where(huge, grow, 0)), result)
    small = np.abs(grow) + np.abs(r) < 0.02
    if small.any():
        x = np.where(small, r, 0)
        sums, series, term = 1 + orders, np.full_like(x, 0.5), x / 6
        for k in range(4, 9):
            series, term, sums = series + term * sums, term * x / k, 1 + orders * sums
        result = np.where(small, front * np.exp(-np.maximum(r, 0)) * orders * beta * x * x * series, result)
    return np.asarray(result)


def _moves(release: Release, n: Floats, d: float) -> tuple[Floats, Floats, Floats, Floats]:
    """Return ln Q, r and their gradients p and q at points `n`: steps 2 and 5 of the module's docstring."""
    step = max(d, STEP)
    logs, gradient = release.law(n)
    moved_logs, p = release.law(n + step * release.move)
    log_q = moved_logs + (d - step) * (p @ release.move)
    return log_q, (logs - moved_logs) * (d / step), p, (gradient - p) * (d / step)


def costs(release: Release, n: Floats, *, d: float, orders: Floats) -> Floats:
    """Return the Rényi divergence at points `n` (…, m), whose leading axes broadcast against `orders`."""
    log_q, r, _, _ = _moves(release, n, d)
    alphas = orders[..., None]
    shift = np.maximum(log_q + alphas * r, 0).max(axis=-1)  # ln(1 + e^s·x) = s + ln(e^−s + x) is finite
    excess = weighted_excess(log_q - shift[..., None], r, alphas).sum(axis=-1)
    near = np.log1p(np.exp(np.minimum(shift, 30)) * excess)
    far = shift + np.log(np.exp(-shift) + np.maximum(excess, 1e-300))
    return np.asarray(np.where(shift > 30, far, near) / (orders - 1))


@dataclass(frozen=True, kw_only=True)
class _Cells:
    """What step 4 needs of every cell, before the orders come in; the last axis runs over corners."""

    log_weight: Floats
    r: Floats
    bend: Floats
    log_top: Floats
    r_top: Floats

    @classmethod
    def at(cls, release: Release, centres: Floats, half: float, d: float) -> "_Cells":
        dims = centres.shape[1]
        corners = half * np.stack(np.meshgrid(*[[-1.0, 1.0]] * dims), axis=-1).reshape(-1, dims)
        rho = half * np.sqrt(dims)
        e = min(np.sqrt(dims) * d, 0.5) * rho * rho + (d * STEP * (1 + 2 * rho) if d < STEP else 0.0)
        log_q, r, p, q = _moves(release, centres, d)
        tilt = q @ corners.T
        x = r[..., None] + tilt
        return cls(
            log_weight=log_q[..., None] + p @ corners.T,
            r=np.where(x < -e, x - e, np.abs(x) + e),
            bend=tilt * tilt,
            log_top=log_q + half * np.abs(p).sum(axis=-1),
            r_top=r + half * np.abs(q).sum(axis=-1) + e,
        )

    def bounds(self, cell: NDArray[np.intp], alpha: Floats, log_target: Floats) -> Floats:
        """Return the bound of each pair (cell, order), as a fraction of the target."""
        a, log_t = alpha[:, None], log_target[:, None]
        main = weighted_excess(self.log_weight[cell] - log_t[..., None], self.r[cell], a[..., None])
        r = self.r_top[cell]
        skew = np.maximum(0, np.minimum(np.abs(np.log(a - 1)), (a - 2) * r))
        with np.errstate(over="ignore", invalid="ignore"):
            k = 0.5 * a * (a - 1) * np.exp(self.log_top[cell] - log_t + r + skew)
            return np.asarray((main + k[..., None] * self.bend[cell]).sum(axis=1).max(axis=1))


def certify(
    release: Release, *, d: float, orders: Floats, log_target: Floats, known: HalfSpaces, box: Floats
) -> NDArray[np.bool_]:
    """Say for which orders Σ_j Q_j g(r_j) ≤ e^log_target at every n of `box` that is not `known`.

    `box` is (2, m): its corners. The first cells lie on a fixed lattice, so the answer for one order does not
    depend on which others are asked. A False means "not shown within the work allowed", never "untrue".
    """
    side = 2 * WIDEST
    axes = [np.arange(np.floor(lo / side), np.ceil(hi / side)) for lo, hi in box.T]
    centres = (np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, len(axes)) + 0.5) * side
    cell, order = (part.ravel() for part in np.indices((len(centres), orders.size)))
    half = WIDEST
    signs = np.stack(np.meshgrid(*[[-1.0, 1.0]] * len(axes)), axis=-1).reshape(-1, len(axes))
    done = np.ones(orders.size, dtype=np.bool_)
    for _ in range(LEVELS):
        keep = ~known.hold(centres[cell], half, order)
        used, cell = np.unique(cell[keep], return_inverse=True)
        centres, order = centres[used], order[keep]
        if not order.size:
            break
        cells = _Cells.at(release, centres, half, d)
        open_ = np.concatenate(
            [
                ~(cells.bounds(cell[i : i + CHUNK], orders[j], log_target[j]) <= 1 - ROUNDING)
                for i in range(0, order.size, CHUNK)
                for j in [order[i : i + CHUNK]]
            ]
        )
        done &= np.bincount(order[open_], minlength=orders.size) <= CELLS
        open_ &= done[order]
        cell, order = cell[open_], order[open_]
        half /= 2
        centres = (centres[:, None, :] + half * signs).reshape(-1, len(axes))
        cell = (cell[:, None] * len(signs) + np.arange(len(signs))).ravel()
        order = np.repeat(order, len(signs))
    done[order] = False
    return done
