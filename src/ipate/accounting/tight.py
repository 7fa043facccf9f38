"""The tight bound of the paper: what a label costs, given how clearly the teachers agree.

Papernot et al., "Scalable private learning with PATE" (2018): Theorem 6 with the two orders of Proposition 10 and the
error probability of Proposition 7, at counts n/Δ and noise σ/Δ. It bounds D_α(M(D) ‖ M(D′)) for the data set D at hand
and every neighbour D′: one direction only. It depends on the votes, so its value is private and must never be published
or used as a DP guarantee. For a check the theorem gains nothing over the loose bound, which is charged instead.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr

from ipate._types import Floats
from ipate.accounting import loose
from ipate.accounting.bounds import Orders, Voters, check_orders, check_positive, check_sensitivity

_BLOCK = 1 << 16  # numbers worked on at a time
_ROUNDING = 4e-16  # what cancellation may have taken from ln(…): charged on top


def log_error(counts: ArrayLike, *, sigma: float) -> Floats:
    """Return ln q, q a bound on the chance that the noisy label is not the plurality class.

    Proposition 7: q = Σ_{j≠j*} ½·erfc((n_j* − n_j)/(2σ)), at most 1 − 1/C. In log space, because q can be e^−600.
    """
    n = np.asarray(counts, dtype=np.float64)
    ordered = np.sort(n, axis=-1)
    gaps = ordered[..., -1:] - ordered[..., :-1]
    tails = log_ndtr(gaps / (-np.sqrt(2) * check_positive("sigma", sigma)))
    largest = tails[..., -1:]
    log_q = largest[..., 0] + np.log(np.sum(np.exp(tails - largest), axis=-1))
    return np.asarray(np.minimum(log_q, np.log1p(-1 / n.shape[-1])))


def label_rdp(counts: ArrayLike, orders: ArrayLike, *, sensitivity: ArrayLike, sigma: float) -> Floats:
    """Return the tight cost of every label, (Q, G, A), for counts (Q, C) and Δ (G,) or (Q, G); never above loose.

    Where a condition of Theorem 6 fails the loose bound is returned. Δ = 0 costs nothing.
    """
    alpha = check_orders(orders)
    log_q, back = np.unique(log_error(counts, sigma=sigma), return_inverse=True)
    delta = np.atleast_1d(check_sensitivity(sensitivity))
    if delta.ndim == 1:  # queries with the same error probability cost the same
        return np.asarray(_label_rdp(log_q, alpha, delta[None, :], sigma).take(back, axis=0))
    return _label_rdp(log_q[back], alpha, delta, sigma)


def _label_rdp(log_q: Floats, alpha: Floats, delta: Floats, sigma: float) -> Floats:
    """Theorem 6 for ln q (Q,) and Δ (1, G) or (Q, G); (1−q)·A and q·B are exponentials of functions linear in α − 1."""
    lq, moved = np.broadcast_arrays(log_q[:, None], delta)
    bound = np.broadcast_to(loose.label_rdp(alpha, sensitivity=delta, sigma=sigma), (*lq.shape, alpha.size))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scale = sigma / moved
        alpha2 = scale * np.sqrt(-lq)
        alpha1 = alpha2 + 1
        eps1, eps2 = alpha1 / scale**2, alpha2 / scale**2
        shrunk = (alpha2 - 1) / alpha2 * (lq + eps2)
        log_1q = np.log1p(-np.exp(lq))
        slope_a = log_1q - np.log(-np.expm1(shrunk))
        slope_b = eps1 - lq / (alpha1 - 1)
        limit = (alpha2 - 1) * eps2 - alpha2 * (np.log(alpha1 / (alpha1 - 1)) + np.log(alpha2 / (alpha2 - 1)))
        valid = (moved > 0) & (alpha2 > 1) & (-lq > eps2) & (lq <= limit)
        below = np.where(valid, alpha1, 0.0)  # orders under this may use the theorem
        out, step = np.empty(bound.shape), alpha - 1
        rows = max(1, _BLOCK // max(1, lq.shape[1] * alpha.size))
        for start in range(0, len(out), rows):  # in place and in the cache: memory is half of the time
            part = slice(start, start + rows)
            cost = np.multiply(slope_a[part, :, None], step, out=out[part])
            cost += log_1q[part, :, None]
            np.expm1(cost, out=cost)
            flip = slope_b[part, :, None] * step
            flip += lq[part, :, None]
            cost += np.exp(flip, out=flip)
            np.log1p(cost, out=cost)
            cost = np.maximum(cost, 0.0, out=cost)
            cost += _ROUNDING
            cost /= step
            usable = (alpha < below[part, :, None]) & (cost < bound[part])
            np.copyto(cost, bound[part], where=~usable)
    return out


def laplace_label_rdp(counts: ArrayLike, orders: ArrayLike, *, sensitivity: ArrayLike, scale: float) -> Floats:
    """Return the data-dependent cost of every LNMax label, (Q, G, A), as `label_rdp`; one direction, private.

    Theorem 3 of Papernot et al. (2017) with the error probability of their Lemma 4, at counts n/Δ and noise b/Δ.
    """
    alpha = check_orders(orders)
    n = np.asarray(counts, dtype=np.float64)
    ordered = np.sort(n, axis=-1)
    gaps = (ordered[..., -1:] - ordered[..., :-1]) / check_positive("scale", scale)
    q = np.minimum(np.sum((2 + gaps) / 4 * np.exp(-gaps), axis=-1), 1 - 1 / n.shape[-1])[:, None]
    pure = loose.pure_epsilon(np.atleast_1d(sensitivity), scale)
    bound = loose.laplace_label_rdp(alpha, sensitivity=np.atleast_1d(sensitivity), scale=scale)
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


class Tight(loose.RenyiBound):
    """A label costs what the private votes say, in one direction; a check costs its worst case."""

    name = "tight"
    summary = "tight: computed from the private votes, in one direction (the paper's)"
    noises = ("gaussian", "laplace")
    batch_size = 2048

    def label_cost(
        self, orders: Orders, counts: Floats, *, sensitivity: Floats, sigma: float, noise: str, voters: Voters | None
    ) -> Floats:
        """Return the tight cost of every label: (B, accounts, A)."""
        if noise == "laplace":
            return laplace_label_rdp(counts, orders, sensitivity=sensitivity, scale=sigma)
        return label_rdp(counts, orders, sensitivity=sensitivity, sigma=sigma)


BOUND = Tight()
