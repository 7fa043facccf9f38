"""LNMax, the historical aggregator: argmax of counts with Laplace noise, and its own bounds.

Papernot et al., "Semi-supervised knowledge transfer for deep learning from private training data"
(2017). With noise of scale b and a person who moves a weight Δ from one class to another, a label
is (2Δ/b, 0)-DP.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logsumexp, ndtri

from ipate.accounting.conversion import Floats, check_orders, check_positive, check_sensitivity


def label_rdp(orders: ArrayLike, *, sensitivity: ArrayLike, scale: float) -> Floats:
    """Return what one LNMax label costs at most, for all votes and both directions.

    Randomised response is the worst pure-DP mechanism: with ε₀ = 2Δ/b,
    D_α ≤ ln[(sinh αε₀ − sinh (α−1)ε₀)/sinh ε₀]/(α−1), the extremal pair in the proof of Bun and
    Steinke, "Concentrated differential privacy" (2016), Proposition 3.3. It is below both ε₀ and the
    2(Δ/b)²α that Theorem 2 of Papernot et al. charges.
    """
    alpha = check_orders(orders)
    pure = _pure(sensitivity, scale)[..., None]
    safe = np.where(pure > 0, pure, 1.0)
    log_p, log_q = -np.logaddexp(0, -safe), -np.logaddexp(0, safe)
    both = np.stack([alpha * log_p + (1 - alpha) * log_q, alpha * log_q + (1 - alpha) * log_p])
    cost = np.minimum(logsumexp(both, axis=0) / (alpha - 1), alpha * safe**2 / 2)
    return np.asarray(np.where(pure > 0, np.minimum(np.maximum(cost, 0.0), safe), 0.0))


def label_mu2(*, sensitivity: ArrayLike, scale: float) -> Floats:
    """Return μ² of one LNMax label: (ε₀, 0)-DP implies μ-GDP with μ = 2Φ⁻¹(e^ε₀/(1 + e^ε₀)).

    The trade-off function of (ε₀, 0)-DP consists of the two chords from (0, 1) and (1, 0) to its
    fixed point; that of μ-GDP is convex, ends in the same points and passes through the same fixed
    point, so it lies below.
    """
    return np.asarray((-2 * ndtri(expit(-_pure(sensitivity, scale)))) ** 2)


def tight_label_rdp(counts: ArrayLike, orders: ArrayLike, *, sensitivity: ArrayLike, scale: float) -> Floats:
    """Return the data-dependent cost of every label, never above `label_rdp`; one direction, private.

    Theorem 3 of Papernot et al. (2017) with the error probability of their Lemma 4, at counts n/Δ
    and noise b/Δ: shape (Q, G, A) for counts (Q, C) and sensitivities (G,) or (Q, G).
    """
    alpha = check_orders(orders)
    n = np.asarray(counts, dtype=np.float64)
    ordered = np.sort(n, axis=-1)
    gaps = (ordered[..., -1:] - ordered[..., :-1]) / check_positive("scale", scale)
    q = np.minimum(np.sum((2 + gaps) / 4 * np.exp(-gaps), axis=-1), 1 - 1 / n.shape[-1])[:, None]
    pure = _pure(np.atleast_1d(sensitivity), scale)
    bound = label_rdp(alpha, sensitivity=np.atleast_1d(sensitivity), scale=scale)
    bound = np.broadcast_to(bound, (len(n), *bound.shape[-2:]))
    step = alpha - 1
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        valid = (pure > 0) & (q < np.expm1(pure) / np.expm1(2 * pure)) & (q > 0)
        log_1q = np.log1p(-q)
        slope = log_1q - np.log1p(-np.exp(pure) * q)
        stay = log_1q[..., None] + slope[..., None] * step
        flip = np.log(q)[..., None] + np.broadcast_to(pure, valid.shape)[..., None] * step
        cost = np.log1p(np.expm1(stay) + np.exp(flip)) / step
    usable = valid[..., None] & (cost >= 0)
    return np.asarray(np.where(usable, np.minimum(cost, bound), bound))


def _pure(sensitivity: ArrayLike, scale: float) -> Floats:
    """ε₀ = 2Δ/b: two counts move by Δ each, and a Laplace density changes by e^(Δ/b)."""
    return np.asarray(2 * check_sensitivity(sensitivity) / check_positive("scale", scale))
