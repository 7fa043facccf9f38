"""Ways to turn a budget into influence: standard, upsampling, weighting, vanishing.

Each variant makes a `Layout` from public facts (budgets, numbers of people and teachers); `allocate` deals
the people to its teachers. Nothing here knows of noise, training or votes.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ipate.allocation import standard, upsampling, vanishing, weighting
from ipate.allocation.allocation import Allocation, make_allocation
from ipate.allocation.layout import Layout
from ipate.errors import InputError, refuse_name, show
from ipate.people.budgets import Group
from ipate.people.people import People

VARIANTS: Mapping[str, Callable[..., Layout]] = MappingProxyType(
    {
        "standard": standard.layout,
        "upsampling": upsampling.layout,
        "weighting": weighting.layout,
        "vanishing": vanishing.layout,
    }
)
"""Every variant's layout function by name."""


def lay_out(variant: str, *, groups: Sequence[Group], n_teachers: int, seed: int = 0, **options: Any) -> Layout:
    """Return what a variant decides from public facts: weights, copies or schedule, groups, scale.

    Parameters
    ----------
    variant : {"standard", "upsampling", "weighting", "vanishing"}
    groups : sequence of Group
        Each with its number of people.
    n_teachers : int
        k, before upsampling scales it.
    seed : int
        The public seed of vanishing's rotation.
    **options
        `rule` (upsampling, weighting), `tolerance` and `max_copies` (upsampling), `power` (vanishing).
    """
    if variant not in VARIANTS:
        refuse_name("variant", variant, tuple(VARIANTS))
    known = [n for n in inspect.signature(VARIANTS[variant]).parameters if n not in _COMMON]
    for name in options:
        if name not in known:
            allowed = f"allowed are {', '.join(known)}" if known else "it has none"
            raise InputError(f"{show(name)} is no option of variant {variant!r}: {allowed}")
    return VARIANTS[variant](groups=groups, n_teachers=n_teachers, seed=seed, **options)


_COMMON = ("groups", "n_teachers", "seed")


def allocate(variant: str, *, people: People, n_teachers: int, seed: int, **options: Any) -> Allocation:
    """Return which people each teacher learns from, and what their votes weigh and cost.

    Parameters
    ----------
    people : People
        Who there is, with their groups.
    seed : int
        The public split seed: the same people, teachers and seed give the same allocation.
    variant, n_teachers, **options
        As in `lay_out`.
    """
    layout = lay_out(variant, groups=people.groups, n_teachers=n_teachers, seed=seed, **options)
    return make_allocation(people=people, layout=layout, seed=seed)
