"""The envelope g_r: what a query costs a group at worst, for every histogram within r of moved weight.

For a histogram n with gaps g_i = n_top − n_i, in units of Δ (`ipate.accounting.ptr.kappa` has the tables)::

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

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from ipate.accounting.bounds import Floats
from ipate.accounting.ptr import PtrGroup, Setting
from ipate.accounting.ptr.kappa import Tables, tables_for
from ipate.errors import InputError

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
