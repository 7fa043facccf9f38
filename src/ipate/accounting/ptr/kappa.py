"""Tables of the per-query bound: κ for the losing classes, t for the top class, A for the check.

All numbers are in units of what one person moves, Δ = 1. P is the argmax law at a histogram n, Q at n + v.

**Losing classes.** Σ_j P_j^α Q_j^{1−α} − 1 = Σ_j f(P_j, Q_j) with f(p, q) = p^α q^{1−α} − αp + (α−1)q ≥ 0, jointly
convex and homogeneous, so f(P_j, Q_j) ≤ ∫_E f(p(x), q(x)) dx for the densities of the noisy scores and any event E
that holds {argmax = j}; take E = {x_j > x_top}. For a move v with ‖v‖² = 2 and τ = v_top − v_j that integral is::

    κ_τ(g) = e^{α(α−1)/σ²} Φ(−(g−(α−1)τ)/s₂) − α Φ(−g/s₂) + (α−1) Φ(−(g+τ)/s₂),    g = n_top − n_j,  s₂ = √2σ

(the tilted mean is n − (α−1)v). With ‖v‖² = 1 (from or to no class) the exponent is smaller. Moves by one vote have
τ ∈ {−1, 0, 1} but for at most one class, where |τ| = 2: K₁ and K₂ are the maxima. **κ decreases in g**: centre the
scores, and g appears in the event {y < −g} alone, which shrinks, under an integrand that is fixed and ≥ 0.

**Convex.** Gaps are whole multiples of the lattice. K̂_i = max(K_i, K̂_{i+1}, 2K̂_{i+1} − K̂_{i+2}) from the right end,
the largest gap there can be: a convex and decreasing sequence that is nowhere below K.

**Top class.** With q ≥ 1 − P_top, the Gaussian trade-off of the two scores' laws, at distance √2/σ, puts 1 − Q_top
between Φ(Φ⁻¹(1−P_top) ± √2/σ), and f is convex in its second argument: f(P_top, Q_top) ≤ t(q), the running maximum
of a bound on every cell of q, the first of which begins at 0.

**Check.** A(x) = max_{y≤x} Φ(t_y)^α Φ(t_y − 1/σ_T)^{1−α}, t_y = (y−T)/σ_T, bounds p^α p′^{1−α} for every maximum up
to x.

Rounding goes up: each sum carries a bound on its own rounding error. The proof is in docs/proofs/ptr.md.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr, ndtri

from ipate.accounting import sup
from ipate.accounting.bounds import Floats
from ipate.accounting.ptr import PtrGroup, Setting

LARGEST_EXPONENT = 100.0  # of e^{α(α−1)/σ²}: above it the label costs its cap
_LOWEST_LOG_Q = -30.0
_LOG_Q_STEP = 0.001
_LARGE = 30.0
_ULP = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Tables:
    """One group's tables at every order; the last axis is orders throughout."""

    orders: Floats
    unit: float  # Δ, by which counts are divided
    single: Floats  # K̂₁ at the gaps 0, 1, 2, … in steps of the lattice
    double: Floats  # K̂₂ at the same gaps
    top: Floats  # t at ln q = _LOWEST_LOG_Q + i·_LOG_Q_STEP
    passing: Floats  # A at the maxima 0, 1, 2, … in steps of the lattice
    cap: Floats  # e^{(α−1)·sup} − 1 of the label, by the certified supremum
    check: Floats  # the same of the check
    usable: NDArray[np.bool_]  # whether α(α−1)/σ² is small enough for the tables
    spread: float  # s₂ = √2σ/Δ, in units

    def top_at(self, log_q: Floats) -> Floats:
        """T at ln q ≤ ln ½, by linear interpolation between nodes that bound the cell to their right."""
        place = np.clip((log_q - _LOWEST_LOG_Q) / _LOG_Q_STEP, 0.0, len(self.top) - 1.001)
        low = place.astype(np.intp)
        return np.asarray(self.top[low] + (place - low)[..., None] * (self.top[low + 1] - self.top[low]))


def kappa(gaps: Floats, tau: float, orders: Floats, *, sigma: float) -> Floats:
    """κ_τ at every gap and order, (N, A), rounded up; orders with an exponent over 100 are not for this table."""
    spread = np.sqrt(2.0) * sigma
    g, alpha = gaps[:, None], orders[None, :]
    log_first = alpha * (alpha - 1) / sigma**2 + log_ndtr(-(g - (alpha - 1) * tau) / spread)
    first = np.exp(log_first)
    second, third = alpha * ndtr(-g / spread), (alpha - 1) * ndtr(-(g + tau) / spread)
    reach = (np.abs(g) + (alpha + 1) * 2) / spread
    rounding = _ULP * (8 + 2 * reach**2 + np.abs(log_first)) * (first + second + third)
    return np.asarray(np.maximum(first - second + third, 0.0) + rounding)


def convexified(values: Floats) -> Floats:
    """The least convex and decreasing sequence, built from the right, that is nowhere below `values` (N, …).

    Each difference is rounded up, so that the numbers themselves, and not only what they stand for, are convex.
    """
    out = values.copy()
    for i in range(len(out) - 2, -1, -1):
        np.maximum(out[i], out[i + 1], out=out[i])
        if i < len(out) - 2:
            np.maximum(out[i], np.nextafter(2 * out[i + 1] - out[i + 2], np.inf), out=out[i])
    return out


def top_excess(log_p: Floats, log_q: Floats, orders: Floats) -> Floats:
    """f(P, Q) = Q·(expm1(αr) − α·expm1(r)), r = ln(P/Q), (…, A), rounded up; a series bound where αr is small.

    For x = α|r| the series Σ_{k≥2} (α^k − α) r^k/k! is at most ½α(α−1)r²(1 + x) while x ≤ 1.
    """
    r, q = (log_p - log_q)[..., None], np.exp(log_q)[..., None]
    x = orders * np.abs(r)
    calm = np.minimum(r, _LARGE / orders)
    rounding = (8 + 4 * x) * _ULP * (np.exp(orders * calm) + orders * np.exp(calm))  # x: the exponent is rounded too
    direct = np.expm1(orders * calm) - orders * np.expm1(calm) + rounding
    series = 0.5 * orders * (orders - 1) * r**2 * (1 + x)
    # Far out: without −αp, and cut at e^700, which is above every cap that the tables are used with.
    far = np.exp(np.minimum(log_q[..., None] + orders * r, 700.0)) * (1 + 1e-12) + (orders - 1) * q
    return np.asarray(np.where(orders * r > _LARGE, far, q * np.where(x < 1e-4, series, np.maximum(direct, 0.0))))


@lru_cache(maxsize=8)
def tables_for(setting: Setting, group: PtrGroup) -> Tables:
    """Make one group's tables: σ, σ_T, T and every count divided by the weight Δ that its people move."""
    orders, unit = np.array(setting.orders), group.sensitivity
    sigma = setting.sigma / unit
    usable = orders * (orders - 1) / sigma**2 <= LARGEST_EXPONENT
    inner = np.where(usable, orders, orders[0] if usable[0] else np.nan)  # orders grow: the first is the calmest
    nodes = np.arange(setting.total_weight / setting.lattice + 1) * setting.lattice / unit
    kappas = {tau: np.nan_to_num(kappa(nodes, tau, inner, sigma=sigma)) for tau in (-2, -1, 0, 1, 2)}
    first = np.maximum.reduce([kappas[tau] for tau in (-1, 0, 1)])
    second = np.maximum.reduce([first, kappas[2], kappas[-2]])
    label_sup = sup.label_rdp(orders, sensitivity=unit, sigma=setting.sigma)
    with np.errstate(over="ignore"):
        cap = np.expm1((orders - 1) * label_sup)
        check = np.zeros(orders.size)
        if setting.check_sigma is not None:
            check_sup = sup.check_rdp(orders, sensitivity=unit, check_sigma=setting.check_sigma)
            check = np.expm1((orders - 1) * check_sup)
    return Tables(
        orders=orders,
        unit=unit,
        single=convexified(first),
        double=convexified(second),
        top=_top_table(inner, sigma),
        passing=_passing_table(setting, unit, nodes, orders),
        cap=cap,
        check=check,
        usable=usable,
        spread=float(np.sqrt(2.0) * sigma),
    )


def _top_table(orders: Floats, sigma: float) -> Floats:
    """t, bounded on the cell to the right of every node, with its running maximum.

    On a cell [a, b] of q: P is between 1−b and 1−a, and 1 − Q_top between the trade-off's ends at a and b.
    """
    logs = np.arange(_LOWEST_LOG_Q, np.log(0.5) + 2 * _LOG_Q_STEP, _LOG_Q_STEP)
    q = np.concatenate([[0.0], np.minimum(np.exp(logs), 0.5)])  # the first cell holds every q below the lowest node
    move = np.sqrt(2.0) / sigma
    up, down = (log_ndtr(-(ndtri(q) + sign * move)) for sign in (1.0, -1.0))  # ln(1 − q_±)
    own = np.log1p(-q)
    low, high = slice(0, -1), slice(1, None)
    rise = top_excess(own[low], up[high], orders)  # P ≥ Q: f grows with P and falls with Q
    fall = top_excess(own[high], down[low], orders)  # P ≤ Q: the other way round
    cells = np.nan_to_num(np.maximum(rise, fall)) * (1 + 1e-12)
    return np.asarray(np.maximum.accumulate(cells, axis=0)[1:])


def _passing_table(setting: Setting, unit: float, maxima: Floats, orders: Floats) -> Floats:
    """A at every node; 1 without a check."""
    if setting.check_sigma is None or setting.threshold is None:
        return np.ones((maxima.size, orders.size))
    scale, move = setting.check_sigma / unit, unit / setting.check_sigma
    z = (maxima - setting.threshold / unit) / scale
    logs = orders * log_ndtr(z)[:, None] + (1 - orders) * log_ndtr(z - move)[:, None]
    with np.errstate(over="ignore"):
        return np.asarray(np.maximum.accumulate(np.exp(logs + 1e-12 + 8 * _ULP * np.abs(logs)), axis=0))
