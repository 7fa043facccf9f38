"""A design: the public tables of one graded propose-test-release, verified whoever wrote them.

Levels s = 0…R count steps of the grid. A data set at level s passes the test with probability π_s = e^{−L_s}; at
level s > 0 its cost to group g, at order α_g(s), is at most b_g(s). Every way to change one person of group g moves
the level by at most j_g steps (`ipate.accounting.ladder`). **Conditions**, for every group, with ε, δ its budget:

1. L does not grow with s, and L_0 ≥ ln(1/δ): at level 0 nothing is known of the cost, so passing itself is the δ.
2. *Pass.* For a set O of outcomes after a pass, π_s L_D(O) − e^ε π_{s′} L_{D′}(O) ≤ π_s·H at ε − ln(π_s/π_{s−j}), H the
   hockey-stick divergence of the labels. By the improved conversion (Canonne, Kamath and Steinke 2020, Proposition
   12, whose proof holds for any real ε) and D_α ≤ b this is at most δ when::

       b(s) ≤ ε + ln(α/(α−1)) + ln(αδ)/(α−1) − (L_{s−j} − L_s) + L_s/(α−1)

   with L_0 for levels below j. Where L_s ≥ ln(1/δ) no b is needed: π_s ≤ δ.
3. *Fail.* 1 − π_s ≤ e^ε (1 − π_{s+j}), at most R: a failure adds nothing to δ.

With a *fallback* the conditions hold with .9δ, and the third with e^{ε/2}: a failure may then be followed by any
(ε/2, δ/10)-DP release, as e^{ε/2}·e^{ε/2} = e^ε and .9δ + .1δ = δ.

ε is read 1e-9 too small and ln(1/δ) 1e-9 too large throughout, which is more than rounding can add. That holds for
the coin too, whose chances are doubles, as long as no chance to fail is tiny: L_R is at least 1e-6. Of δ, the last
bit of the coin is taken off first. The proof is in docs/proofs/ptr.md.

The steepest ramp that a reference affords, and the largest number of queries.

A reference whose cost to group g at radius x is Ḡ_g(x) sits at the highest level R when b_g(R−x) ≥ Ḡ_g(x) for every x.
With L_R = −ln .99 at x = 0, condition 2 of `ipate.accounting.ladder` turned round gives, j_g steps further down::

    L(x + j_g) ≤ max_α [ L(x)·α/(α−1) + ε + ln(α/(α−1)) + ln(αδ)/(α−1) − Ḡ_g^α(x) ]

and condition 3 a second limit; L is the least of both over the groups. Both grow with L(x), so the largest L at each
step is the best one, and R is where L first reaches ln(1/δ): it needs no search. Costs grow with the number of
queries, so the largest feasible m is found by halving.

Privacy does not depend on anything here: a `Design` verifies itself. Only the chance to pass does.
"""

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from ipate._types import Floats
from ipate.accounting.ptr import PtrGroup, Setting, total_costs
from ipate.errors import InputError, check_number

VERSION = 2  # 1 had weights off the lattice
FALLBACK_DELTA = 0.1  # share of δ that a fallback keeps for the run after a failure
COIN = 2.0**-53  # by which the chance of a pass may exceed π: the coin has 53 bits
_MARGIN = 1e-9
_LEAST_LOSS = 1e-6  # a chance to fail of at least this is exact to 1e-9 (relative) in a coin made of doubles
_MOST_GROWTH = 700.0  # e^ε is finite up to here; a smaller growth asks for more
_MOST_LEVELS = 100_000


@dataclass(frozen=True, kw_only=True)
class GroupTable:
    """One group's α_s and b_s for s = 0…R; b is infinite where the level asks nothing."""

    group: str
    orders: tuple[float, ...]
    bounds: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Design:
    """All that is fixed, and may be published, before the private votes are looked at.

    Making one verifies the conditions above: a design that could break a promise cannot exist.
    """

    setting: Setting
    n_queries: int  # m: exactly these queries are asked
    queries_hash: str  # `hash_queries` of their ids in the order asked
    losses: tuple[float, ...]  # L_s = −ln π_s, s = 0…R
    tables: tuple[GroupTable, ...]  # one per group of the setting, in order
    fallback: bool  # whether (ε/2, δ/10) is kept for a run after a failure
    reserve: float  # by how much, relatively, the reference's costs were raised
    reference: str  # where the reference profile comes from, in words
    reference_hash: str  # hash of the reference's votes
    reference_queries: str  # by which its queries are recognised; empty for simulated votes
    version: int = VERSION

    def __post_init__(self) -> None:
        if self.version != VERSION:
            raise InputError(_other_version(self.version))
        if self.n_queries < 1:
            raise InputError(f"the design asks {self.n_queries} queries: it must ask at least one")
        if not (math.isfinite(self.reserve) and self.reserve >= 0):
            raise InputError(f"reserve is {self.reserve}: it must be a finite number, 0 or above")
        losses = np.array(self.losses)
        if not 2 <= losses.size <= _MOST_LEVELS:
            raise InputError(f"the design has {losses.size} levels: it must have from 2 to {_MOST_LEVELS}")
        if not np.isfinite(losses).all() or (losses < 0).any():
            raise InputError("the design's ramp holds a number that is negative or not finite")
        if (np.diff(losses) > 0).any():
            raise InputError("the design's ramp is not monotone: passing must not become less likely at higher levels")
        if losses[-1] < _LEAST_LOSS:
            raise InputError(
                f"the design fails at its highest level with probability {-math.expm1(-losses[-1]):.3g}: it must be at "
                f"least {_LEAST_LOSS:g}, so that the coin of the test has the stated chances (pass_at_best)"
            )
        if [table.group for table in self.tables] != [group.id for group in self.setting.groups]:
            raise InputError("the design's tables and groups differ: there must be one table per group, in order")
        for group, table in zip(self.setting.groups, self.tables, strict=True):
            if self.fallback:  # so that the run after a failure is not refused once the budget is spent
                check_number("delta", FALLBACK_DELTA * group.delta, what=f"delta of group {group.id!r} for a fallback")
                check_number("epsilon", group.epsilon / 2, what=f"epsilon of group {group.id!r} for a fallback")
            self._verify(group, table, losses)

    def _verify(self, group: PtrGroup, table: GroupTable, losses: Floats) -> None:
        """Refuse tables that do not keep a group's promise."""
        orders, bounds = np.array(table.orders), np.array(table.bounds)
        if orders.shape != losses.shape or bounds.shape != losses.shape:
            raise InputError(f"the design's tables of group {group.id!r} need {losses.size} entries, one per level")
        if not np.isin(orders, self.setting.orders).all():
            raise InputError(f"the design's table of group {group.id!r} uses an order that its setting does not have")
        if not (bounds > -np.inf).all():  # NaN fails this too
            raise InputError(f"the design's table of group {group.id!r} holds a bound that is no number")
        delta, growth = self.shares(group)
        delta -= COIN
        steps = self.setting.steps(group)
        surely = math.log(1 / delta) + _MARGIN  # from here on passing itself is the δ
        if losses[0] < surely:
            raise InputError(
                f"the design passes at level 0 with probability {math.exp(-losses[0]):.3g}, "
                f"above the share {delta:.3g} of group {group.id!r}'s delta"
            )
        limit = bound_limits(losses, steps, orders, epsilon=group.epsilon - _MARGIN, delta=delta)
        over = (losses < surely) & ~(bounds <= limit)
        if over.any():
            level = int(np.flatnonzero(over)[0])
            raise InputError(
                f"the design's bound {bounds[level]:.6g} of group {group.id!r} at level {level} is above "
                f"{limit[level]:.6g}, the most its budget allows"
            )
        steep = losses > failure_limit(losses, steps, growth - _MARGIN)
        if steep.any():
            level = int(np.flatnonzero(steep)[0])
            raise InputError(
                f"the design's ramp falls too steeply at level {level} for group {group.id!r}: "
                "a failure would tell more than its epsilon"
            )

    def shares(self, group: PtrGroup) -> tuple[float, float]:
        """The δ that the pass may use, and the ε by which failing may become likelier."""
        if self.fallback:
            return (1 - FALLBACK_DELTA) * group.delta, group.epsilon / 2
        return group.delta, group.epsilon

    def left_after_failure(self, group: PtrGroup) -> tuple[float, float]:
        """(ε, δ) that a data-independent run may spend after a failure: (0, 0) without a fallback."""
        return (group.epsilon / 2, FALLBACK_DELTA * group.delta) if self.fallback else (0.0, 0.0)

    @property
    def levels(self) -> int:
        """R, the highest level."""
        return len(self.losses) - 1

    @property
    def pi(self) -> Floats:
        """π_s, the probability to pass at every level, (R + 1,)."""
        return np.asarray(np.exp(-np.array(self.losses)))

    @property
    def digest(self) -> str:
        """Hash of the whole design: what a ledger or a report can name it by."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        """Write the design as JSON, in full precision; `None` stands for a level that asks nothing."""
        content = asdict(self)
        for table in content["tables"]:
            table["bounds"] = [None if math.isinf(b) else b for b in table["bounds"]]
        return json.dumps(content, indent=1, sort_keys=True, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> "Design":
        """Read a design and verify it: privacy does not depend on who wrote the file."""
        try:
            content = json.loads(text)
            if content["version"] != VERSION:
                raise InputError(_other_version(content["version"]))
            facts = content["setting"]
            groups = tuple(_built(PtrGroup, row) for row in facts["groups"])
            setting = _built(Setting, facts, groups=groups, orders=_floats(facts["orders"]))
            tables = tuple(
                _built(GroupTable, t, orders=_floats(t["orders"]), bounds=_floats(t["bounds"], math.inf))
                for t in content["tables"]
            )
            losses = _floats(content["losses"])
            return cast(Design, _built(cls, content, setting=setting, tables=tables, losses=losses))
        except InputError:
            raise
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"this is not a design file ({type(error).__name__}: {error})") from None


def bound_limits(losses: Floats, steps: int, orders: Floats, *, epsilon: float, delta: float) -> Floats:
    """The largest b that condition 2 allows at every level: (R + 1,), or (R + 1, A) for `losses` (R + 1, 1)."""
    below = losses[np.maximum(np.arange(losses.size) - steps, 0)]
    budget = epsilon + np.log(orders / (orders - 1)) + np.log(orders * delta) / (orders - 1)
    return np.asarray(budget - (below - losses) + losses / (orders - 1))


def failure_limit(losses: Floats, steps: int, growth: float) -> Floats:
    """The largest L_s that condition 3 allows at every level, given those above: infinite where any is."""
    above = losses[np.minimum(np.arange(losses.size) + steps, losses.size - 1)]
    failing = math.exp(min(growth, _MOST_GROWTH)) * -np.expm1(-above)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(failing < 1, -np.log1p(-np.minimum(failing, 1.0)), np.inf))


def hash_queries(ids: Iterable[str]) -> str:
    """Hash of the queries' ids, in the order in which they are asked."""
    return hashlib.sha256(json.dumps([str(i) for i in ids]).encode()).hexdigest()


def _other_version(version: object) -> str:
    return f"the design has version {version!r}: this program reads version {VERSION}; make a new design"


def _floats(values: list[float | None], missing: float = math.nan) -> tuple[float, ...]:
    return tuple(missing if value is None else float(value) for value in values)


def _built(kind: Any, content: dict[str, Any], **parts: Any) -> Any:
    """Make a dataclass of a JSON object, whose names and types must be exactly its own."""
    wanted = kind.__dataclass_fields__
    unknown, absent = set(content) - set(wanted), set(wanted) - set(content)
    if unknown or absent:
        raise InputError(f"the design's {kind.__name__} has the wrong entries: {sorted(unknown | absent)}")
    made = content | parts
    for name, field in wanted.items():
        value, types = made[name], {float: (int, float), int: (int,), bool: (bool,), str: (str,)}
        allowed = types.get(field.type)
        if allowed and (not isinstance(value, allowed) or (isinstance(value, bool) and field.type is not bool)):
            raise InputError(f"the design's {name} is {value!r}: it must be {field.type.__name__}")
    return kind(**made)


def level(design: Design, counts: ArrayLike) -> int:
    """Return s(D) for the weighted votes (m, C) of exactly the design's queries. Private.

    The design must be fixed before anybody looked at these votes.
    """
    setting, top = design.setting, design.levels
    votes = setting.check_counts(np.asarray(counts, dtype=np.float64))
    if len(votes) != design.n_queries:
        raise InputError(f"there are {len(votes)} queries: the design asks exactly {design.n_queries}")
    within = np.ones(top + 1, dtype=bool)  # level s qualifies
    for group, table in zip(setting.groups, design.tables, strict=True):
        orders, bounds = np.array(table.orders), np.array(table.bounds)
        asked = np.flatnonzero(bounds[1:] < np.inf) + 1
        if not asked.size:
            continue
        used = tuple(np.unique(orders[asked]).tolist())
        radii = np.arange(top - int(asked[0]) + 1)
        totals = total_costs(setting, group, votes, radii, used)
        column = np.searchsorted(np.array(used), orders[asked])
        for s in range(1, top + 1):
            at = asked <= s
            within[s] &= bool(np.all(totals[s - asked[at], column[at]] <= bounds[asked[at]]))
    return int(np.flatnonzero(within)[-1])


def pass_probability(design: Design, counts: ArrayLike) -> float:
    """Return π_{s(D)}, with which the bit is drawn. Private: only the bit may be shown. Parameters: see `level`."""
    return float(design.pi[level(design, counts)])


PASS_AT_BEST = 0.99
_ROUNDING = 1e-8  # ε is designed this much smaller, ln(1/δ) larger: verification (1e-9) never meets rounding


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
    limits = bound_limits(ramp, steps, orders, epsilon=group.epsilon - _ROUNDING, delta=delta)  # (R + 1, orders)
    radius = np.minimum(levels[::-1], len(totals) - 1)
    best = np.argmax(limits / totals[radius], axis=1)
    bounds = np.where(losses < math.log(1 / delta) + _ROUNDING, limits[levels, best], np.inf)
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
    growths = [(group.epsilon - _ROUNDING) / (2 if fallback else 1) for group in setting.groups]
    budgets = [
        group.epsilon - _ROUNDING + np.log(alpha / (alpha - 1)) + np.log(alpha * delta) / (alpha - 1)
        for group, delta in zip(setting.groups, deltas, strict=True)
    ]
    goal = math.log(1 / min(deltas)) + _ROUNDING
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
