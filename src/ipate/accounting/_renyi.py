"""Rényi divergences of finite laws to full relative accuracy, however small they are.

A label on which everybody agrees costs 1e-7 or 1e-40: ln Σ P^α Q^(1−α) would round it to 0. Every sum here
is of the excess over 1, in terms that are never negative. With r = ln(P/Q) and β = α − 1::

    Σ_j P_j^α Q_j^(1−α) − 1 = Σ_j Q_j [expm1(α r_j) − α expm1(r_j)]        since Σ_j Q_j expm1(r_j) = 0
                            = Σ_j Q_j Σ_{k≥2} (α^k − α) r_j^k / k!         α r_j small: one matrix product
                            = Σ_j P_j expm1(β r_j) + β (Q_j − P_j)         α r_j large

Shapes: J outcomes first, then R rows, then B alternatives, of which each row keeps the worst.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from ipate._types import Floats

_SERIES = 8.0  # up to here the alternating series loses at most 8^8/8!/7 = 60 units in the last place
_CELLS = 1 << 14  # elements worked on at once: a few arrays of this size fit a core's own cache
_FAR_CELLS = 1 << 20  # elements (outcome, order) of the large terms held at once: 8 MB an array
_FAR = 500.0  # from this exponent on, products with a probability are taken in log space


def worst_divergence(logp: Floats, logq: Floats, sizes: Floats, orders: Floats, *, reverse: bool) -> Floats:
    """Largest D_α(P‖Q) over each row's alternatives, (R, A); with `reverse`, of D_α(Q‖P) too.

    `logp` and `logq` (J, R, B) are finite. `sizes` (J, R, B) says how many outcomes each entry stands for: 0 leaves an
    entry out, and all 0 cost nothing (van Erven and Harremoës 2014, eq. 2).
    """
    cost = np.zeros((logp.shape[1], orders.size))
    for rows in _slices(logp):
        lp, lq, many = (each[:, rows].reshape(len(each), -1) for each in (logp, logq, sizes))
        p, q = many * np.exp(lp), many * np.exp(lq)
        ratio = _log_ratio(np.where(many > 0, lp - lq, 0.0), p, q)
        sums = [_Sum(base=q, lead=p, log_lead=lp, sizes=many, ratio=ratio, slope=q - p)]
        if reverse:
            sums.append(_Sum(base=p, lead=q, log_lead=lq, sizes=many, ratio=-ratio, slope=p - q))
        cost[rows] = _worst(sums, orders, orders - 1, logp.shape[2])
    return cost


def worst_tangent(logp: Floats, slopes: Floats, sizes: Floats, orders: Floats) -> Floats:
    """Largest ln(Σ_j P_j exp(α s_j)) / (α − 1) over each row's alternatives, where Σ_j P_j s_j = 0.

    An upper bound on D_α(Q‖P) for every Q with ln Q_j ≤ ln P_j + s_j, which log-concavity of Q's probabilities gives
    for their tangent. Shapes as in `worst_divergence`, with `slopes` s of (J, R, B).
    """
    cost = np.zeros((logp.shape[1], orders.size))
    for rows in _slices(logp):
        lp, s, many = (each[:, rows].reshape(len(each), -1) for each in (logp, slopes, sizes))
        p = many * np.exp(lp)
        s = np.where(many > 0, s, 0.0)
        sums = [_Sum(base=p, lead=p, log_lead=lp, sizes=many, ratio=s, slope=-p * s)]
        cost[rows] = _worst(sums, orders, orders, logp.shape[2])
    return cost


def _slices(logp: Floats) -> Iterator[slice]:
    """Row ranges that keep every array within the cache, and memory bounded."""
    outcomes, rows, alternatives = logp.shape
    size = max(1, _CELLS // (outcomes * alternatives))
    return (slice(start, start + size) for start in range(0, rows, size))


def _log_ratio(ratio: Floats, p: Floats, q: Floats) -> Floats:
    """Refine ln(P/Q) in place: the outcome that holds more than half of both laws takes it from all the others.

    Near 1 a logarithm knows nothing below 1e-16; P/Q = 1 + (Σ_others Q − Σ_others P)/Q keeps relative accuracy.
    """
    outcome, row = np.nonzero((p > 0.5) & (q > 0.5))
    others = np.ones((len(p), len(row)), dtype=bool)
    others[outcome, np.arange(len(row))] = False
    missing = np.where(others, q[:, row] - p[:, row], 0.0).sum(axis=0)
    ratio[outcome, row] = np.log1p(missing / q[outcome, row])
    return ratio


@dataclass(frozen=True)
class _Sum:
    """Σ_j lead_j expm1(γ ratio_j) + γ slope_j over N rows, all of shape (J, N), where γ = α or α − 1.

    Its series is Σ_j base_j Σ_{k≥2} c_k ratio_j^k / k! with c_k = α^k, less α where γ = α − 1.
    """

    base: Floats
    lead: Floats
    log_lead: Floats
    sizes: Floats
    ratio: Floats
    slope: Floats

    def excess(self, orders: Floats, gamma: Floats) -> Floats:
        """Evaluate for every row and order, (N, A): infinite where it overflows."""
        scaled = self.ratio * orders.max()
        far = np.abs(scaled) > _SERIES
        scaled[far] = 0.0
        coefficients = _coefficients(orders, gamma, float(np.abs(scaled).max(initial=0.0)))
        moments = np.empty((len(coefficients), scaled.shape[1]))
        power = self.base * scaled
        for moment in moments:
            power *= scaled
            power.sum(axis=0, out=moment)
        total = moments.T @ coefficients
        if far.any():
            with np.errstate(over="ignore"):
                self._add_far(total, far, gamma)
        return total

    def _add_far(self, total: Floats, far: Floats, gamma: Floats) -> None:
        """Add the terms that are too large for the series, a bounded number at a time."""
        all_rows, all_outcomes = np.nonzero(far.T)
        piece = max(1, _FAR_CELLS // gamma.size)
        for start in range(0, len(all_rows), piece):
            rows = all_rows[start : start + piece]
            at = all_outcomes[start : start + piece], rows
            ratio, lead = self.ratio[at], self.lead[at][:, None]
            if ratio.max() * gamma.max() < _FAR and lead.all():
                terms = _expm1_outer(ratio, gamma)
                terms *= lead
            else:
                exponent = ratio[:, None] * gamma
                logs = self.log_lead[at] + np.log(self.sizes[at])
                terms = np.where(exponent < 1, lead * np.expm1(np.minimum(exponent, 1)), -lead)
                terms += np.exp(np.where(exponent < 1, -np.inf, logs[:, None] + exponent))
            terms += self.slope[at][:, None] * gamma
            first = np.flatnonzero(np.diff(rows, prepend=-1))
            total[rows[first]] += np.add.reduceat(terms, first, axis=0)

    def log_total(self, rows: slice, gamma: Floats) -> Floats:
        """Largest ln Σ_j lead_j exp(γ ratio_j) of some rows, (A,), in log space: for what overflowed."""
        leads = np.where(self.sizes > 0, self.log_lead, -np.inf)[:, rows]
        many, ratio = np.log(np.maximum(self.sizes[:, rows], 1.0)), self.ratio[:, rows]
        totals = [np.logaddexp.reduce(leads + many + g * ratio, axis=0).max() for g in gamma]
        return np.array(totals)


def _expm1_outer(ratio: Floats, gamma: Floats) -> Floats:
    """expm1(ratio γ) for all pairs, (n, A), with 2√A exponentials instead of A where orders are at equal distances.

    A coarse and a fine part are multiplied then; not where an exponent is so small that −1 would cancel.
    """
    count = gamma.size
    even = gamma[0] + (gamma[-1] - gamma[0]) / max(1, count - 1) * np.arange(count)
    if count < 8 or not np.array_equal(gamma, even) or np.abs(ratio).min() * gamma.min() < 0.05:
        return np.asarray(np.expm1(ratio[:, None] * gamma))
    width = int(np.ceil(np.sqrt(count)))
    coarse = np.exp(ratio[:, None] * gamma[::width])
    fine = np.exp(ratio[:, None] * (gamma[:width] - gamma[0]))
    terms = (coarse[:, :, None] * fine[:, None, :]).reshape(len(ratio), -1)[:, :count]
    terms -= 1.0
    return np.asarray(terms)


def _coefficients(orders: Floats, gamma: Floats, reach: float) -> Floats:
    """c_k / (k! α_max^k) for k = 2, 3, ..., (K, A), as many as a variable of at most `reach` needs."""
    k = np.arange(2, 64, dtype=np.float64)[:, None]
    top = float(orders.max())
    needed = k * np.log(max(reach, 1e-3)) - gammaln(k + 1) > 2 * np.log(max(reach, 1e-3)) - 40
    k = k[: int(needed.sum()) + 1]
    less = 0.0 if np.array_equal(gamma, orders) else 1.0
    scale = np.exp(k * np.log(orders / top) - gammaln(k + 1))
    return np.asarray(scale * np.where(less, -np.expm1((1 - k) * np.log(orders)), 1.0))


def _worst(sums: list[_Sum], orders: Floats, gamma: Floats, alternatives: int) -> Floats:
    """Largest ln(1 + excess)/(α − 1) over sums and alternatives, (R, A)."""
    worst = sums[0].excess(orders, gamma)
    for each in sums[1:]:
        np.maximum(worst, each.excess(orders, gamma), out=worst)
    worst = worst.reshape(-1, alternatives, orders.size).max(axis=1)
    logs = np.log1p(np.maximum(worst, 0.0))
    for row in np.flatnonzero(np.isinf(logs).any(axis=1)):
        rows, over = slice(row * alternatives, (row + 1) * alternatives), np.isinf(logs[row])
        logs[row, over] = np.max([each.log_total(rows, gamma[over]) for each in sums], axis=0)
    return np.asarray(logs / (orders - 1))
