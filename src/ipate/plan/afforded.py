"""How many queries the budgets of a layout pay for, group by group, turns included."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ipate.accounting.calibration import queries_afforded
from ipate.accounting.meter import Meter
from ipate.mechanism import Mechanism
from ipate.plan.figures import GroupPlan, Guaranteed, VariantPlan, labels_in
from ipate.variants import Layout, Participation

__all__ = ["plan_variant", "scaled"]

_MOST = 50_000  # votings that a rotation is followed through; beyond, a bound from below is given
_CELLS = 1 << 21


def plan_variant(layout: Layout, noise: Mechanism, meter: Meter, rates: Sequence[float]) -> VariantPlan:
    """Return what one variant's layout affords at these answer rates; the noise is scaled with its teachers."""
    own = scaled(noise, layout.scale)
    queries = [_queries(layout, own, meter, rate) for rate in rates]
    guaranteed = []
    for rate, afforded in zip(rates, queries, strict=True):
        least, binding = min((n, name) for name, n in afforded.items() if n is not None)
        guaranteed.append(Guaranteed(rate=rate, queries=least, labels=labels_in(least, rate), binding=binding))
    kind, influence = _influence(layout)
    slots = sum(group.people * layout.copies[group.id] for group in layout.groups)
    return VariantPlan(
        variant=layout.variant,
        rule=layout.rule,
        n_teachers=layout.n_teachers,
        people_per_teacher=slots / layout.n_teachers,
        scale=layout.scale,
        mechanism=own,
        influence=kind,
        groups=tuple(
            GroupPlan(
                id=group.id,
                epsilon=group.epsilon,
                delta=group.delta,
                people=group.people,
                teachers=group.teachers,
                sensitivity=group.sensitivity,
                influence=influence[group.id],
                queries=tuple(afforded[group.id] for afforded in queries),
            )
            for group in layout.groups
        ),
        guaranteed=tuple(guaranteed),
        notes=layout.notes,
    )


def _influence(layout: Layout) -> tuple[str, Mapping[str, float]]:
    """Name what a variant varies, and give it by group id."""
    if layout.variant == "upsampling":
        return "copies", {name: float(copies) for name, copies in layout.copies.items()}
    if layout.variant == "vanishing":
        whole = dict.fromkeys((group.id for group in layout.groups), 1.0)
        return "fraction", whole if layout.participation is None else layout.participation.fractions
    return "weight", layout.group_weights or {}


def scaled(noise: Mechanism, factor: float) -> Mechanism:
    """Return the noise and the threshold for so many times as many teachers."""
    if noise.check_sigma is None or noise.threshold is None:
        return replace(noise, sigma=noise.sigma * factor)
    return replace(
        noise,
        sigma=noise.sigma * factor,
        check_sigma=noise.check_sigma * factor,
        threshold=noise.threshold * factor,
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
