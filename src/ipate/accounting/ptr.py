"""Graded propose-test-release: its bound, which charges one private test, and what is public before any vote is seen.

Every weight, and so every count, is a whole multiple of a *lattice*, a power of two: sums and gaps of votes are exact.
Distances between data sets are measured in moved weight, in whole steps of a *grid*, a multiple of the lattice. A
person of group g moves at most Δ_g, that is `steps` = ⌈Δ_g/grid⌉ of them: rounding up only asks for more.

Tables of the per-query bound: κ for the losing classes, t for the top class, A for the check.

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

The envelope g_r: what a query costs a group at worst, for every histogram within r of moved weight.

For a histogram n with gaps g_i = n_top − n_i, in units of Δ (`ipate.accounting.ptr` has the tables)::

    F_r   = max over classes j, b of Σ_i K̂_{1+[i=j]}(g_i − r − r·[i=b])
    q_r   = Σ_i Φ(−(g_i − r − r·[i=runner-up])/s₂)
    Lab_r = min(F_r + t(q_r), cap);   cap where the runner-up's gap ≤ 2r, q_r ≥ ½, or α(α−1)/σ² > 100
    g_r   = ln(1 + S_c + A(min(n_top + r, W))·Lab_r)/(α − 1)

**Ball.** Moving r in all lowers the top by x ≤ r and raises class i by ρ_i, Σρ_i ≤ r: every gap stays at or above
g_i − r − ρ_i. While the runner-up's gap exceeds 2r the top stays top and every argument is positive. For fixed j the
sum is separable, convex and increasing in ρ, all whole multiples of the lattice, so its largest value is at a vertex
r·e_b; Φ(−g) is convex for g > 0 and steepest for the runner-up. **Ladder.** For n′ within w of n this gives
g_r(n′) ≤ g_{r+w}(n): the ρ of both add up to r + w, n′_top ≤ n_top + w, and each condition for the cap grows with r.
**Check.** S = S_check + p^α p′^{1−α}(S_label − 1) for the check followed by the label.

**Several votes at once** (upsampling, Δ = u). D_α(P‖Q) is convex in the moved votes, as each ln Q_j is concave in
them (Prékopa 1973), so its maximum over all ways to move up to u votes is at a vertex: all u from one class to one
other. In units of u that is the move bounded above. Only this direction is needed: the release compares each data
set's own cost with its own level. The ladder asks no more than a total that moves, and holds as it stands.

**Floating point.** The ladder is used on computed numbers, so it must hold for them: gaps and positions in tables are
exact, the stored sequences are convex as they stand, the condition on q carries a tolerance that grows with r, and
totals are raised by 1e-9 + 1e-10 per step of r, more than rounding can do. The proof is in docs/proofs/ptr.md.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, ndtr, ndtri

from ipate._types import Floats
from ipate.accounting import sup
from ipate.accounting._argmax import check_counts
from ipate.accounting.bounds import Bound, Orders, check_orders, check_positive
from ipate.errors import InputError, check_number

# Default Rényi orders of a design: low ones serve the levels where passing is unlikely.
ORDERS = (1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0, 24.0, 32.0, 48.0, 64.0)
_FINEST = 2.0**-10
_COARSEST = 2.0**20


@dataclass(frozen=True, kw_only=True)
class PtrGroup:
    """A group's public figures: its id, its budget (ε, δ), and the weight Δ that one of its people moves."""

    id: str
    epsilon: float
    delta: float
    sensitivity: float

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not self.id:
            raise InputError(f"a group's id is {self.id!r}: it must be a text that is not empty")
        check_positive(f"epsilon of group {self.id!r}", self.epsilon)
        check_number("delta", self.delta, what=f"delta of group {self.id!r}")
        check_positive(f"sensitivity of group {self.id!r}", self.sensitivity)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The release as everybody may know it."""

    sigma: float
    classes: int
    total_weight: float  # W, the weight of all teachers together (k in standard PATE): no count exceeds it
    groups: tuple[PtrGroup, ...]  # weighting: Δ is the weight of the group's teachers; upsampling: the copies u
    check_sigma: float | None = None  # σ_T and T: both or neither
    threshold: float | None = None
    grid: float = 1.0  # one level: a power of two
    lattice: float = 1.0  # what every weight and count is a whole multiple of: a power of two, at most the grid
    orders: tuple[float, ...] = ORDERS  # the Rényi orders that a design may use

    def __post_init__(self) -> None:
        check_positive("sigma", self.sigma)
        check_positive("total_weight", self.total_weight)
        if (self.check_sigma is None) != (self.threshold is None):
            missing = "threshold" if self.threshold is None else "check_sigma"
            raise InputError(f"{missing} is not given: a check needs both check_sigma and threshold")
        if self.check_sigma is not None and self.threshold is not None:
            check_positive("check_sigma", self.check_sigma)
            if not math.isfinite(self.threshold):
                raise InputError(f"threshold is {self.threshold}: it must be a finite number of votes")
        if self.classes < 2:
            raise InputError(f"classes is {self.classes}: there must be at least 2")
        ids = [group.id for group in self.groups]
        if not ids:
            raise InputError("there are no groups: at least one budget is needed")
        if len(set(ids)) != len(ids):
            raise InputError(f"duplicate group id {next(i for i in ids if ids.count(i) > 1)!r}: ids must differ")
        heavy = [group for group in self.groups if group.sensitivity > self.total_weight]
        if heavy:
            raise InputError(f"group {heavy[0].id!r} moves {heavy[0].sensitivity:g}, more than all teachers weigh")
        check_orders(self.orders)
        if list(self.orders) != sorted(set(self.orders)):
            raise InputError("orders must differ and grow")
        self._check_lattice()

    def _check_lattice(self) -> None:
        for name, step in (("grid", self.grid), ("lattice", self.lattice)):
            if math.frexp(step)[0] != 0.5 or not _FINEST <= step <= _COARSEST:
                raise InputError(f"{name} is {step}: it must be a power of two such as 1, 0.5 or 0.25")
        if self.lattice > self.grid:
            raise InputError(f"lattice is {self.lattice:g}: it must not be coarser than the grid {self.grid:g}")
        weights = {"total_weight": self.total_weight}
        weights |= {f"sensitivity of group {group.id!r}": group.sensitivity for group in self.groups}
        for name, weight in weights.items():
            if weight % self.lattice:
                raise InputError(f"{name} is {weight:g}: it must be a multiple of the lattice {self.lattice:g}")

    def steps(self, group: PtrGroup) -> int:
        """How far, in steps of the grid, one person of a group moves a data set: rounded up."""
        return math.ceil(group.sensitivity / self.grid)

    def group(self, name: str) -> PtrGroup:
        """The group with this id."""
        for group in self.groups:
            if group.id == name:
                return group
        raise InputError(f"group {name!r} is not in the setting: its groups are {[g.id for g in self.groups]}")

    def check_counts(self, counts: Floats) -> Floats:
        """Return histograms (Q, C) as floats; refuse any that the setting does not cover."""
        array = check_counts(counts)
        if array.shape[1] != self.classes:
            raise InputError(f"counts have the shape {array.shape}: they must be (queries, {self.classes})")
        if array.size and array.sum(axis=1).max() > self.total_weight:
            raise InputError(f"a query has more votes than the total weight {self.total_weight:g} of the setting")
        if np.any(array % self.lattice):
            raise InputError(f"counts are not multiples of the lattice {self.lattice:g}: put the weights on it")
        return array


class Ptr(Bound):
    """One charge of (ε, δ) for a tested design: the cost is ε itself, and the design fixes conversion and orders."""

    name = "ptr"
    summary = "ptr: one private test, then all labels or none; it holds for all votes"
    data_independent = True
    whole = True
    has_orders = False
    planned_by = "gdp"
    own_conversion = "improved"

    def limit(self, orders: Orders, *, epsilon: ArrayLike, delta: ArrayLike, conversion: str) -> Floats:
        """Return ε of the budgets, (..., 1)."""
        return np.broadcast_arrays(np.asarray(epsilon, dtype=np.float64), delta)[0][..., None].copy()

    def epsilon(self, orders: Orders, cost: Floats, *, delta: ArrayLike, conversion: str) -> tuple[Floats, Floats]:
        """Return the cost, which is ε; there is no order."""
        return np.asarray(cost[..., 0]), np.full(cost.shape[:-1], np.nan)

    def worst_check(self, orders: Orders, *, sensitivity: ArrayLike, check_sigma: float) -> NoReturn:
        """Refuse: no query has a cost of its own."""
        raise InputError("bound is 'ptr': it charges a tested design as a whole, and no query by itself")

    def worst_label(self, orders: Orders, *, sensitivity: ArrayLike, sigma: float, noise: str) -> NoReturn:
        """Refuse: no query has a cost of its own."""
        self.worst_check(orders, sensitivity=sensitivity, check_sigma=sigma)


BOUND = Ptr()


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


_CELLS = 1 << 18  # numbers per array
_TOLERANCE = 1e-9  # per step of radius, on q


def inflation(radii: NDArray[np.intp]) -> Floats:
    """By what totals at every radius (in steps) are raised against rounding."""
    return np.asarray(1 + 1e-9 + 1e-10 * radii)


def total_costs(
    setting: Setting, group: PtrGroup, counts: Floats, radii: NDArray[np.intp], orders: tuple[float, ...] | None = None
) -> Floats:
    """G_r, the sum of g_r over weighted votes (Q, C), raised against rounding: (R, A). Private where the votes are.

    `radii` (R,) are in steps of the grid; `orders` are those of the setting unless given.
    """
    votes, steps = setting.check_counts(counts), np.asarray(radii, dtype=np.intp)
    if steps.ndim != 1 or (steps < 0).any():
        raise InputError("radii must be a list of whole numbers, 0 or above, in steps of the grid")
    spec = setting if orders is None else replace(setting, orders=orders)
    ranked, times = np.unique(np.sort(votes, axis=1), axis=0, return_counts=True)
    tables = tables_for(spec, group)
    out = np.zeros((steps.size, len(spec.orders)))
    size = max(1, _CELLS // (spec.classes * len(spec.orders)))
    parts = [
        (rank_votes(ranked[start : start + size]), times[start : start + size].astype(np.float64))
        for start in range(0, len(ranked), size)
    ]
    for index, step in enumerate(steps.tolist()):
        for (gaps, top), weight in parts:
            out[index] += weight @ query_costs(spec, tables, gaps, top, step)
    return np.asarray(out * inflation(steps)[:, None])


def rank_votes(votes: Floats) -> tuple[Floats, Floats]:
    """Gaps to the top in moved weight, smallest first, (Q, C−1), and the top count, (Q,)."""
    ranked = np.sort(votes, axis=1)[:, ::-1]
    return np.asarray(ranked[:, :1] - ranked[:, 1:]), np.asarray(ranked[:, 0])


def query_costs(setting: Setting, tables: Tables, gaps: Floats, top: Floats, step: int) -> Floats:
    """g_r of every query at one radius, (Q, A), for votes that `rank_votes` ranked. Private where the votes are."""
    radius = step * setting.grid
    wrong = _wrong(tables, gaps, radius)
    capped = (gaps[:, 0] <= 2 * radius) | (wrong >= 0.5 - _TOLERANCE * (step + 1))
    label = np.broadcast_to(tables.cap, (len(gaps), tables.cap.size)).copy()
    free = np.flatnonzero(~capped)
    if free.size and tables.usable.any():
        places = (gaps[free] / setting.lattice).astype(np.intp)
        bound = _losing(tables, places, int(radius / setting.lattice)) + tables.top_at(np.log(wrong[free]))
        label[free] = np.where(tables.usable, np.minimum(bound, tables.cap), tables.cap)
    highest = np.minimum(top + radius, setting.total_weight) / setting.lattice
    passing = tables.passing[highest.astype(np.intp)]
    with np.errstate(over="ignore", invalid="ignore"):
        cost = np.log1p(tables.check + passing * label) / (tables.orders - 1)
    return np.asarray(np.where(np.isnan(cost), np.inf, cost))


def _wrong(tables: Tables, gaps: Floats, radius: float) -> Floats:
    """q_r, (Q,), rounded up; where a gap is not positive its term is at least ½ and the query is capped anyway."""
    scale = tables.spread * tables.unit
    terms = ndtr(-(gaps - radius) / scale)
    first = ndtr(-(gaps[:, 0] - 2 * radius) / scale)
    return np.asarray((first + terms[:, 1:].sum(axis=1)) * (1 + 1e-12) + 1e-300)


def _losing(tables: Tables, places: NDArray[np.intp], radius: int) -> Floats:
    """F_r, (Q, A), the largest over all pairs (j, b); gaps and radius are in steps of the lattice, every gap above 2r.

    The gain of b is largest for the smallest gap that is not j's own, as K̂₁ is convex.
    """
    once, twice = places - radius, places - 2 * radius
    single = tables.single.take(once, axis=0)
    moved = tables.double.take(once, axis=0) - single
    best = (tables.double.take(twice, axis=0) - single).max(axis=1)
    if places.shape[1] > 1:
        gain = tables.single.take(twice[:, :2], axis=0) - single[:, :2]
        best = np.maximum(best, moved[:, 0] + gain[:, 1])
        best = np.maximum(best, moved[:, 1:].max(axis=1) + gain[:, 0])
    return np.asarray(single.sum(axis=1) + best)
