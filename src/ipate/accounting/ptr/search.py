"""The steepest ramp that a reference affords, and the largest number of queries.

A reference whose cost to group g at radius x is Ḡ_g(x) sits at the highest level R when b_g(R−x) ≥ Ḡ_g(x) for every x.
With L_R = −ln .99 at x = 0, condition 2 of `ipate.accounting.ptr.design` turned round gives, j_g steps further down::

    L(x + j_g) ≤ max_α [ L(x)·α/(α−1) + ε + ln(α/(α−1)) + ln(αδ)/(α−1) − Ḡ_g^α(x) ]

and condition 3 a second limit; L is the least of both over the groups. Both grow with L(x), so the largest L at each
step is the best one, and R is where L first reaches ln(1/δ): it needs no search. Costs grow with the number of
queries, so the largest feasible m is found by halving.

Privacy does not depend on anything here: a `Design` verifies itself. Only the chance to pass does.
"""

import math
from dataclasses import dataclass

import numpy as np

from ipate.accounting.bounds import Floats
from ipate.accounting.ptr import PtrGroup, Setting
from ipate.accounting.ptr.design import COIN, FALLBACK_DELTA, Design, GroupTable, bound_limits
from ipate.accounting.ptr.envelope import total_costs
from ipate.errors import InputError

PASS_AT_BEST = 0.99
_MARGIN = 1e-8  # ε is designed this much smaller, and ln(1/δ) larger, so that verification (1e-9) never meets rounding


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What a reference costs: mean of g_r per query, (groups, radii, orders), and where it comes from."""

    setting: Setting
    means: Floats
    source: str
    source_hash: str
    source_queries: str


def profile_of(
    setting: Setting,
    counts: Floats,
    *,
    source: str,
    source_hash: str,
    source_queries: str = "",
    radii: int | None = None,
) -> Profile:
    """Work out what reference histograms (Q, C) cost every group, at radii up to .4 of the total weight by default.

    The reference must be public: votes of other teachers, of a proxy task, or simulated ones.
    """
    if len(counts) == 0:
        raise InputError("the reference has no queries: a profile needs at least one")
    if radii is None:
        radii = max(2, math.ceil(0.4 * setting.total_weight / setting.grid))
    steps = np.arange(radii)
    totals = [total_costs(setting, group, counts, steps) for group in setting.groups]
    means = np.stack(totals) / len(counts)
    return Profile(setting=setting, means=means, source=source, source_hash=source_hash, source_queries=source_queries)


def most_queries(
    profile: Profile, *, pool: int, reserve: float, fallback: bool = False, pass_at_best: float = PASS_AT_BEST
) -> int:
    """The largest m, at most `pool`, for which the reference affords a design; 0 if none. Parameters: `make_design`."""
    low, high = 0, pool + 1
    while high - low > 1:
        middle = (low + high) // 2
        fits = _ramp(profile, middle, reserve, fallback, pass_at_best) is not None
        low, high = (middle, high) if fits else (low, middle)
    return low


def make_design(
    profile: Profile,
    *,
    n_queries: int,
    queries_hash: str,
    reserve: float,
    fallback: bool = False,
    pass_at_best: float = PASS_AT_BEST,
) -> Design:
    """Make the design for exactly `n_queries` queries; refuse it where the reference does not afford that many.

    `reserve` raises the reference's costs, relatively: it is what the private votes may cost more. `fallback` keeps
    (ε/2, δ/10) for a data-independent run after a failure. `pass_at_best` is π_R, the probability to pass at the
    highest level; a lower one needs fewer levels (small ensembles).
    """
    found = _ramp(profile, n_queries, reserve, fallback, pass_at_best)
    if found is None:
        most = most_queries(profile, pool=n_queries, reserve=reserve, fallback=fallback, pass_at_best=pass_at_best)
        raise InputError(f"{n_queries} queries cost more than the budgets afford: the reference affords {most}")
    losses, setting = found[::-1].copy(), profile.setting
    pairs = zip(setting.groups, _totals(profile, n_queries, reserve), strict=True)
    return Design(
        setting=setting,
        n_queries=n_queries,
        queries_hash=queries_hash,
        losses=tuple(losses.tolist()),
        tables=tuple(_table(setting, group, losses, totals, fallback) for group, totals in pairs),
        fallback=fallback,
        reserve=reserve,
        reference=profile.source,
        reference_hash=profile.source_hash,
        reference_queries=profile.source_queries,
    )


def _pass_delta(group: PtrGroup, fallback: bool) -> float:
    """Return the δ that the pass may use."""
    return (1 - FALLBACK_DELTA * fallback) * group.delta - COIN


def _totals(profile: Profile, queries: int, reserve: float) -> Floats:
    return np.asarray(profile.means * queries * (1 + reserve) * (1 + 1e-9))


def _table(setting: Setting, group: PtrGroup, losses: Floats, totals: Floats, fallback: bool) -> GroupTable:
    """α_s and b_s of one group: at every level the order that leaves the reference the most room, by ratio."""
    orders, levels, delta = np.array(setting.orders), np.arange(losses.size), _pass_delta(group, fallback)
    ramp, steps = losses[:, None], setting.steps(group)
    limits = bound_limits(ramp, steps, orders, epsilon=group.epsilon - _MARGIN, delta=delta)  # (R + 1, orders)
    radius = np.minimum(levels[::-1], len(totals) - 1)
    best = np.argmax(limits / totals[radius], axis=1)
    bounds = np.where(losses < math.log(1 / delta) + _MARGIN, limits[levels, best], np.inf)
    return GroupTable(group=group.id, orders=tuple(orders[best].tolist()), bounds=tuple(bounds.tolist()))


def _ramp(profile: Profile, queries: int, reserve: float, fallback: bool, pass_at_best: float) -> Floats | None:
    """L by distance x from the highest level, or None where it does not reach ln(1/δ)."""
    if not 0 < pass_at_best < 1:
        raise InputError(f"pass_at_best is {pass_at_best}: it must lie strictly between 0 and 1, for example 0.99")
    if not (math.isfinite(reserve) and reserve >= 0):
        raise InputError(f"reserve is {reserve}: it must be a finite number, 0 or above, for example 0.1")
    setting, totals = profile.setting, _totals(profile, queries, reserve)
    alpha = np.array(setting.orders)
    steps = [setting.steps(group) for group in setting.groups]
    deltas = [_pass_delta(group, fallback) for group in setting.groups]
    growths = [(group.epsilon - _MARGIN) / (2 if fallback else 1) for group in setting.groups]
    budgets = [
        group.epsilon - _MARGIN + np.log(alpha / (alpha - 1)) + np.log(alpha * delta) / (alpha - 1)
        for group, delta in zip(setting.groups, deltas, strict=True)
    ]
    goal = math.log(1 / min(deltas)) + _MARGIN
    losses = [-math.log(pass_at_best)]
    while losses[-1] < goal:
        x = len(losses)
        limits = [goal]
        for g, j in enumerate(steps):
            start, share = max(x - j, 0), min(x / j, 1.0)  # before the first whole move: part of the way
            if start >= totals.shape[1]:
                return None
            room = float(np.max(losses[start] * alpha / (alpha - 1) + budgets[g] - totals[g, start]))
            limits.append(losses[start] + share * (room - losses[start]))
            failing = math.exp(min(share * growths[g], 700.0)) * -math.expm1(-losses[start])
            limits.append(-math.log1p(-failing) if failing < 1 else math.inf)
        if min(limits) <= losses[-1] * (1 + 1e-12):
            return None
        losses.append(min(limits))
    return np.array(losses + [losses[-1]] * (max(steps) - 1))
