"""The test statistic s(D): how many steps of moved weight a data set is away from costing too much. Private.

s(D) is the largest level s ≤ R with G_r^{α(s−r)}(D) ≤ b(s−r) for every group and every radius 0 ≤ r < s, in steps of
the grid; level 0 always qualifies. **Stability.** If D and D′ differ in at most j steps of moved weight, then for
r < s(D) − j the ladder gives G_r(D′) ≤ G_{r+j}(D) ≤ b(s(D) − j − r), so s(D′) ≥ s(D) − j, and the other way round.
At level s > 0, D's own labels cost each group at most G_0(D) ≤ b(s).

Neither s nor any G may ever be shown: the bit that is drawn from π_s is the only release.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from ipate.accounting.ptr.design import Design
from ipate.accounting.ptr.envelope import counted, total_costs
from ipate.errors import InputError

__all__ = ["level", "pass_probability"]


def level(design: Design, counts: ArrayLike, *, progress: Callable[[int], None] | None = None) -> int:
    """s(D) for the histograms (m, C) of the design's queries. Private.

    Parameters
    ----------
    design : Design
        Fixed before anybody looked at these votes.
    counts : (m, C)
        Weighted votes by class, exactly the design's queries.
    progress : callable, optional
        Told how many radii are done, at most levels × groups.
    """
    setting, top = design.setting, design.levels
    votes = setting.check_counts(np.asarray(counts, dtype=np.float64))
    if len(votes) != design.n_queries:
        raise InputError(f"there are {len(votes)} queries: the design asks exactly {design.n_queries}")
    advance = counted(progress)
    within = np.ones(top + 1, dtype=bool)  # level s qualifies
    for group, table in zip(setting.groups, design.tables, strict=True):
        orders, bounds = np.array(table.orders), np.array(table.bounds)
        asked = np.flatnonzero(bounds[1:] < np.inf) + 1
        if not asked.size:
            continue
        used = tuple(np.unique(orders[asked]).tolist())
        radii = np.arange(top - int(asked[0]) + 1)
        totals = total_costs(setting, group, votes, radii, used, advance=advance)
        column = np.searchsorted(np.array(used), orders[asked])
        for s in range(1, top + 1):
            at = asked <= s
            within[s] &= bool(np.all(totals[s - asked[at], column[at]] <= bounds[asked[at]]))
    return int(np.flatnonzero(within)[-1])


def pass_probability(design: Design, counts: ArrayLike, *, progress: Callable[[int], None] | None = None) -> float:
    """π_{s(D)}, with which the bit is drawn. Private: only the bit may be shown. Parameters: `level`."""
    return float(design.pi[level(design, counts, progress=progress)])
