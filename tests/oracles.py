"""Independent oracles: the same mathematics by other means, sharing no code with `src`.

Plain quadrature over a range that is wide beyond doubt, on every class by itself, and mpmath at 60 digits.
Slow and simple on purpose.
"""

from collections.abc import Sequence

import mpmath as mp
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx

Floats = NDArray[np.float64]


def log_cdf(z: Floats) -> Floats:
    """ln Φ(z): by erfcx below 0, by the complement above."""
    tail = 0.5 * erfcx(np.abs(z) / np.sqrt(2)) * np.exp(np.minimum(0, -z * z / 2))
    below = np.log(0.5 * erfcx(np.abs(z) / np.sqrt(2))) - z * z / 2
    return np.where(z < 0, below, np.log1p(-tail))


def argmax_law(counts: ArrayLike, sigma: float, step: float = 0.1) -> Floats:
    """ln P(argmax = j), (..., C): a trapezoid rule from min − 10σ to max + 40σ."""
    n = np.asarray(counts, dtype=float) / sigma
    t = np.arange(n.min() - 10, n.max() + 40, step)
    z = t - n[..., None]
    logs = log_cdf(z)
    integrand = logs.sum(axis=-2, keepdims=True) - logs - z * z / 2 - np.log(2 * np.pi) / 2
    top = integrand.max(axis=-1, keepdims=True)
    return np.log(np.exp(integrand - top).sum(axis=-1) * step) + top[..., 0]


def divergence(logp: ArrayLike, logq: ArrayLike, orders: ArrayLike) -> Floats:
    """D_α(P‖Q) over the last axis, (..., A), in extended precision: as it is defined, or by its excess over 0."""
    lp, lq = (np.asarray(x, dtype=np.longdouble)[..., None, :] for x in (logp, logq))
    alpha = np.asarray(orders, dtype=np.longdouble)[:, None]
    r = lp - lq
    excess = (np.exp(lq) * (np.expm1(np.minimum(alpha * r, 5000)) - alpha * np.expm1(r))).sum(axis=-1)
    total = np.logaddexp.reduce(alpha * lp + (1 - alpha) * lq, axis=-1)
    return np.asarray(np.where(total > 1, total, np.log1p(excess)) / (alpha[:, 0] - 1), dtype=float)


def renyi_divergence(logp: ArrayLike, logq: ArrayLike, order: float) -> float:
    """D_α(P‖Q) of two laws at one order."""
    return float(divergence(logp, logq, [order])[0])


def two_sided(counts: ArrayLike, moved: ArrayLike, sigma: float, orders: ArrayLike, step: float = 0.1) -> Floats:
    """max(D(P‖Q), D(Q‖P)) between the argmax laws of two histograms, or of one and many."""
    p, q = argmax_law(counts, sigma, step), argmax_law(moved, sigma, step)
    return np.maximum(divergence(p, q, orders), divergence(q, p, orders))


def check_law(score: float, check_sigma: float, threshold: float) -> list[mp.mpf]:
    """Probabilities that the check passes and that it doesn't, 60 digits."""
    with mp.workdps(60):
        z = (mp.mpf(score) - threshold) / check_sigma
        return [mp.ncdf(z), mp.ncdf(-z)]


def mp_divergence(p: Sequence[mp.mpf], q: Sequence[mp.mpf], order: float) -> mp.mpf:
    """D_α(P‖Q) from its definition, 60 digits."""
    with mp.workdps(60):
        alpha = mp.mpf(order)
        return mp.log(mp.fsum(a**alpha * b ** (1 - alpha) for a, b in zip(p, q, strict=True))) / (alpha - 1)


def mp_argmax_law(counts: Sequence[float], sigma: float, step: float = 0.125) -> list[mp.mpf]:
    """P(argmax = j), 60 digits: a trapezoid rule (mpmath.quad's tolerance is absolute: no use in the tails)."""
    with mp.workdps(60):
        n = [mp.mpf(float(c)) / mp.mpf(float(sigma)) for c in counts]
        low, high = min(n) - 12, max(n) + 18
        values = sorted(set(n))
        totals = dict.fromkeys(values, mp.mpf(0))
        for k in range(int((high - low) / step)):
            t = low + k * mp.mpf(step)
            cdf = {v: mp.ncdf(t - v) for v in values}
            product = mp.fprod(cdf[v] for v in n)
            for v in values:
                totals[v] += mp.npdf(t - v) / cdf[v] * product
        return [totals[v] * step for v in n]
