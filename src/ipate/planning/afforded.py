"""How many queries the budgets of a layout pay for, group by group, turns included."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipate.accounting.bounds import Meter, queries_afforded
from ipate.allocation import find_variant
from ipate.allocation.layout import Layout
from ipate.allocation.participation import Participation
from ipate.errors import InputError, check_count, refuse_name, show
from ipate.labelling.aggregators import AGGREGATORS, Mechanism, build_aggregator
from ipate.people.budgets import Account, Budget, Group

RATES = (0.5, 0.75, 1.0)


POINTS_PER_TEACHER = 240  # the paper's MNIST: 60,000 people, 250 teachers


SIGMA, CHECK_SIGMA, THRESHOLD = 0.16, 0.6, 0.8  # the paper's MNIST, per teacher: σ 40, σ_T 150, T 200 at k = 250


@dataclass(frozen=True, kw_only=True)
class Guaranteed:
    """What all budgets together pay for at an answer rate; `binding` is the group that ends it."""

    rate: float
    queries: int
    labels: int
    binding: str
    ratio: float | None = None


@dataclass(frozen=True, kw_only=True)
class GroupPlan:
    """A group's influence, and how many queries its own budget pays for at each answer rate.

    `influence` is the weight of its teachers, the copies of its people, or the share of votings that its
    teachers take part in; a number of queries is None where it lies far beyond the binding group's.
    """

    account: Account
    teachers: int
    influence: float
    queries: tuple[int | None, ...]


@dataclass(frozen=True, kw_only=True)
class VariantPlan:
    """One variant: its teachers, its noise, its groups, and what it guarantees."""

    layout: Layout
    people_per_teacher: float
    mechanism: Mechanism
    influence: str
    groups: tuple[GroupPlan, ...]
    guaranteed: tuple[Guaranteed, ...]

    @property
    def variant(self) -> str:
        """The variant's name."""
        return self.layout.variant

    @property
    def n_teachers(self) -> int:
        """The number of teachers, after upsampling scaled it."""
        return self.layout.n_teachers


@dataclass(frozen=True, kw_only=True)
class MoreTeachers:
    """What another number of teachers would afford at equal σ/k, every query answered."""

    n_teachers: int
    people_per_teacher: float
    labels: Mapping[str, int | None]


@dataclass(frozen=True, kw_only=True)
class Chances:
    """What the noise leaves of a vote: the chance that a unanimous vote passes the check, and that a label
    names the plurality where it has the share T/k of the votes and the rest is spread evenly.
    """  # noqa: D205

    unanimous_passes: float | None
    share: float
    label_right: float | None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What these budgets afford, variant by variant."""

    groups: tuple[Group, ...]
    n_teachers: int
    n_classes: int | None
    meter: Meter
    variants: tuple[VariantPlan, ...]
    more: tuple[MoreTeachers, ...]
    suits: str
    why: str
    chances: Chances
    notes: tuple[str, ...]


def groups_of_shares(
    budgets: Iterable[tuple[str, float, float]], *, shares: Mapping[str, float], n_people: int
) -> tuple[Group, ...]:
    """Turn (id, ε, δ) and each id's share of n people into groups: largest remainders, summing to n."""
    rows, total = tuple(budgets), check_count("people", n_people)
    for name, *_ in rows:
        if name not in shares:
            raise InputError(f"group {show(name)} has no share: every group needs one, such as {name}=0.5")
    for name, share in shares.items():
        if name not in [row[0] for row in rows]:
            raise InputError(f"share names the group {show(name)}: it has no budget")
        if not 0 < share <= 1:
            raise InputError(f"share of {show(name)} is {share!r}: it must be above 0 and at most 1")
    if abs(math.fsum(shares.values()) - 1) > 1e-6:
        raise InputError(f"shares sum to {math.fsum(shares.values()):g}: they must sum to 1")
    people = {name: int(share * total + 1e-9) for name, share in shares.items()}
    rest = sorted(shares, key=lambda name: (people[name] - shares[name] * total, name))
    for name in rest[: total - sum(people.values())]:
        people[name] += 1
    for name, count in people.items():
        if count < 1:
            raise InputError(f"share of {show(name)} is {shares[name]!r}: of {total} people that is nobody")
    return tuple(Group(id=name, budget=Budget(e, d), people=people[name]) for name, e, d in rows)


def auto_teachers(groups: Sequence[Group], *, points_per_teacher: int = POINTS_PER_TEACHER) -> int:
    """Return k by a public rule: people over `points_per_teacher`, at least one teacher per group."""
    points = check_count("points_per_teacher", points_per_teacher)
    people = sum(group.people or 0 for group in groups)
    return max(people // points, len(groups), 1)


def default_mechanism(n_teachers: int, *, aggregator: str = "confident", **given: float | None) -> Mechanism:
    """Return an aggregator's noise; what is not given is that of the paper's MNIST experiments per teacher."""
    per_teacher = {"sigma": SIGMA, "check_sigma": CHECK_SIGMA, "threshold": THRESHOLD}
    known = [name for name, made in AGGREGATORS.items() if set(made.needs) <= set(per_teacher)]
    if aggregator not in known:
        refuse_name("aggregator", aggregator, known)
    usual = {name: per_teacher[name] * n_teachers for name in AGGREGATORS[aggregator].needs}
    stated = {name: value for name, value in given.items() if value is not None}
    return build_aggregator(aggregator, **{**usual, **stated}).mechanism


def labels_in(queries: int, rate: float) -> int:
    """Return how many of so many queries end with a label, the last of them included."""
    return int((queries - 1) * rate) + 1 if queries else 0


_MOST = 50_000  # votings that a rotation is followed through; beyond, a bound from below is given
_CELLS = 1 << 21


def plan_variant(layout: Layout, noise: Mechanism, meter: Meter, rates: Sequence[float]) -> VariantPlan:
    """Return what one variant's layout affords at these answer rates; the noise is scaled with its teachers."""
    own = noise.scaled(layout.scale)
    queries = [_queries(layout, own, meter, rate) for rate in rates]
    guaranteed = []
    for rate, afforded in zip(rates, queries, strict=True):
        least, binding = min((n, name) for name, n in afforded.items() if n is not None)
        guaranteed.append(Guaranteed(rate=rate, queries=least, labels=labels_in(least, rate), binding=binding))
    variant = find_variant(layout.variant)
    influence = variant.group_influence(layout)
    slots = sum(group.people * layout.copies[group.id] for group in layout.groups)
    return VariantPlan(
        layout=layout,
        people_per_teacher=slots / layout.n_teachers,
        mechanism=own,
        influence=variant.influence,
        groups=tuple(
            GroupPlan(
                account=group,
                teachers=layout.teachers[group.id],
                influence=influence[group.id],
                queries=tuple(afforded[group.id] for afforded in queries),
            )
            for group in layout.groups
        ),
        guaranteed=tuple(guaranteed),
    )


def _queries(layout: Layout, noise: Mechanism, meter: Meter, rate: float) -> dict[str, int | None]:
    """How many queries each group's own budget pays for, by id."""
    if layout.participation is not None:
        return _rotating_queries(layout, layout.participation, noise, meter, rate)
    return {group.id: _afforded(group, group.sensitivity, noise, meter, rate) for group in layout.groups}


def _afforded(group: Any, sensitivity: float, noise: Mechanism, meter: Meter, rate: float) -> int:
    return queries_afforded(
        meter,
        epsilon=group.epsilon,
        delta=group.delta,
        sensitivity=sensitivity,
        sigma=noise.sigma,
        check_sigma=noise.check_sigma,
        answer_rate=rate,
    )


def _rotating_queries(
    layout: Layout, schedule: Participation, noise: Mechanism, meter: Meter, rate: float
) -> dict[str, int | None]:
    """Follow the rotation: a group ends with the first query that one of its teachers cannot pay.

    A label's cost counts with the answer rate, for nobody knows whose turns will be answered; at rate 1
    this is exact. Long rotations get a bound from below: the busiest teacher, always at the largest Δ.
    """
    floor: dict[str, int | None] = {}
    for group in layout.groups:
        turns = _afforded(group, schedule.worst_sensitivity, noise, meter, rate)
        floor[group.id] = _last(lambda n, name=group.id: schedule.most_turns(n)[name], turns)  # type: ignore[misc]
    if min(n for n in floor.values() if n is not None) > _MOST:
        return floor
    ends: dict[str, int | None] = dict.fromkeys(floor)
    names = np.array(schedule.teacher_groups)
    of_teacher = [layout.by_id[name] for name in schedule.teacher_groups]
    limit = meter.limit([g.epsilon for g in of_teacher], [g.delta for g in of_teacher])
    spent = np.zeros_like(limit)
    start, step = 0, max(16, min(4096, _CELLS // limit.size))
    while None in ends.values() and start <= 4 * min((n for n in ends.values() if n is not None), default=_MOST):
        votings = np.arange(start, start + step)
        present = schedule.participants(votings)
        worth, worst = _costs(schedule.sensitivity(votings), noise, meter, rate)
        after = spent + np.einsum("tb,bw->tw", present, worth)
        waiting = np.isin(names, [name for name, end in ends.items() if end is None])
        close = waiting & ~np.any(after + worst.max(axis=0) <= limit, axis=1)
        if close.any():
            paid = np.cumsum(present[close, :, None] * worth, axis=1) + spent[close, None, :]
            before = paid - present[close, :, None] * worth
            stuck = present[close] & ~np.any(before + worst <= limit[close, None, :], axis=2)
            for name in dict.fromkeys(names[close].tolist()):
                first = stuck[names[close] == name].any(axis=0)
                ends[name] = start + int(np.argmax(first)) if first.any() else None
        spent, start = after, start + step
    return ends if any(end is not None for end in ends.values()) else floor


def _costs(sensitivity: Any, noise: Mechanism, meter: Meter, rate: float) -> tuple[Any, Any]:
    """What each voting costs a participant at the answer rate, and at most: shapes (B, width)."""
    values, inverse = np.unique(sensitivity, return_inverse=True)
    label = meter.worst_label(sensitivity=values, sigma=noise.sigma)
    check = np.zeros_like(label)
    if noise.check_sigma is not None:
        check = meter.worst_check(sensitivity=values, check_sigma=noise.check_sigma)
    return (check + rate * label)[inverse], (check + label)[inverse]


def _last(turns: Callable[[int], int], most: int) -> int:
    """The largest number of votings with at most so many turns; `turns` never falls."""
    low, high = 0, 1
    while turns(high) <= most and high < 1 << 36:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if turns(middle) <= most else (low, middle)
    return low
