"""Small ensembles whose whole release can be worked out exactly, with designs that use up their budgets.

Each design is as steep as a unanimous ensemble affords: its reserve is raised until no room is left. δ is large and
many orders are allowed, so that an exact test comes close to it.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from ipate.accounting.ladder import Design, make_design, most_queries, profile_of
from ipate.accounting.ptr import PtrGroup, Setting
from ptr_release import Ensemble, divergences, levels_of

ORDERS = tuple(np.round(np.geomspace(1.02, 200, 60), 4).tolist())
Case = tuple[Ensemble, Design]


def case(
    *,
    teachers: tuple[int, ...],
    groups: tuple[tuple[float, float, float], ...],
    sigma: float,
    weights: tuple[float, ...] = (1.0,),
    classes: int = 2,
    queries: int = 2,
    check: tuple[float, float] | None = None,
    abstain: bool = False,
    moves: tuple[int, ...] | None = None,
    grid: float = 1.0,
    lattice: float | None = None,
    fallback: bool = False,
    orders: tuple[float, ...] = ORDERS,
    pass_at_best: float = 0.9,
) -> Case:
    """An ensemble and its design; `groups` are (ε, δ, sensitivity)."""
    total = float(np.dot(teachers, weights))
    setting = Setting(
        sigma=sigma,
        check_sigma=check[0] if check else None,
        threshold=check[1] if check else None,
        classes=classes,
        total_weight=total,
        groups=tuple(PtrGroup(id=f"g{i}", epsilon=e, delta=d, sensitivity=s) for i, (e, d, s) in enumerate(groups)),
        grid=grid,
        lattice=grid if lattice is None else lattice,
        orders=orders,
    )
    unanimous = np.array([[total, *[0.0] * (classes - 1)]])
    profile = profile_of(setting, unanimous, source="unanimous", source_hash="none", radii=int(total / 2 / grid))
    shape = {"fallback": fallback, "pass_at_best": pass_at_best}
    most = most_queries(profile, pool=10**6, reserve=0.0, **shape)
    reserve = max(0.0, 0.98 * (most / queries - 1))
    design = make_design(profile, n_queries=queries, queries_hash="none", reserve=reserve, **shape)
    ensemble = Ensemble(
        setting=setting, teachers=teachers, weights=weights, queries=queries, abstain=abstain, moves=moves
    )
    return ensemble, design


ONE = ((0.5, 0.1, 1.0),)
CASES: dict[str, Callable[[], Case]] = {
    "sharp votes": partial(case, teachers=(21,), groups=ONE, sigma=0.4),
    "noisy votes": partial(case, teachers=(21,), groups=((0.3, 0.1, 1.0),), sigma=1.0),
    "with a check": partial(case, teachers=(21,), groups=ONE, sigma=1.0, check=(6.0, 8.0)),
    "with a fallback": partial(case, teachers=(21,), groups=((1.0, 0.1, 1.0),), sigma=0.7, fallback=True),
    "three queries": partial(case, teachers=(17,), groups=ONE, sigma=0.6, queries=3),
    "three classes": partial(case, teachers=(13,), groups=((1.0, 0.15, 1.0),), sigma=0.5, classes=3),
    "abstentions": partial(case, teachers=(14,), groups=((0.7, 0.1, 1.0),), sigma=0.6, abstain=True),
    "two small groups": partial(
        case,
        teachers=(6, 3),
        weights=(0.75, 1.5),
        groups=((1.0, 0.15, 0.75), (2.0, 0.1, 1.5)),
        sigma=0.35,
        grid=0.25,
        pass_at_best=0.8,
    ),
    "two groups": partial(
        case,
        teachers=(12, 6),
        weights=(0.75, 1.5),
        groups=((0.6, 0.1, 0.75), (1.2, 0.05, 1.5)),
        sigma=0.6,
        grid=0.25,
    ),
    "two groups, weights of 1/64, a check": partial(
        case,
        teachers=(12, 6),
        weights=(46 / 64, 88 / 64),
        groups=((0.8, 0.1, 47 / 64), (1.5, 0.1, 89 / 64)),
        sigma=0.7,
        check=(5.0, 6.0),
        grid=0.25,
        lattice=2.0**-6,
    ),
    "several votes a person": partial(
        case, teachers=(28,), groups=((0.5, 0.1, 1.0), (1.0, 0.1, 2.0)), moves=(1, 2), sigma=0.8
    ),
    "thirty teachers": partial(case, teachers=(30,), groups=((0.5, 0.02, 1.0),), sigma=1.2, check=(8.0, 12.0)),
}
QUICK = ("sharp votes", "noisy votes", "with a check", "with a fallback", "two small groups", "several votes a person")


def unverified(design: Design, **changes: object) -> Design:
    """A design as a program would hold it that does not verify."""
    broken = object.__new__(Design)
    for name, value in (design.__dict__ | changes).items():
        object.__setattr__(broken, name, value)
    return broken


def raised(name: str, level: int, by: float) -> Case:
    """One level's b raised."""
    ensemble, design = CASES[name]()
    tables = [
        replace(table, bounds=(*table.bounds[:level], table.bounds[level] + by, *table.bounds[level + 1 :]))
        for table in design.tables
    ]
    return ensemble, unverified(design, tables=tuple(tables))


def steeper(name: str, level: int, by: float) -> Case:
    """A ramp with one step too steep: more likely to pass at a level and above than the level below allows."""
    ensemble, design = CASES[name]()
    losses = np.array(design.losses)
    losses[level:] *= by
    return ensemble, unverified(design, losses=tuple(losses.tolist()))


def too_high(name: str, steps: int) -> Case:
    """Levels too high for everybody: π_{s+1} where π_s belongs."""
    ensemble, design = CASES[name]()
    return ensemble, unverified(design, losses=(*design.losses[steps:], *design.losses[-1:] * steps))


BROKEN: dict[str, Callable[[], Case]] = {
    "one level's b raised": partial(raised, "noisy votes", 2, 3.0),
    "a ramp too steep": partial(steeper, "sharp votes", 2, 0.9),
    "levels one too high": partial(too_high, "noisy votes", 1),
    "levels one move too high, two groups": partial(too_high, "two small groups", 6),
}


def worst_by_level(ensemble: Ensemble, design: Design) -> tuple[dict[tuple[str, int], float], int]:
    """The largest divergence over δ by group and level, and how many data sets there are."""
    levels = levels_of(ensemble, design)
    worst: dict[tuple[str, int], float] = {}
    for group, level, ratio in divergences(ensemble, design, levels):
        worst[group, level] = max(worst.get((group, level), 0.0), ratio)
    return worst, len(levels)
