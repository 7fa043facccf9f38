"""Variants: ways to turn a budget into influence on the votes.

Each variant is one object and one entry of `VARIANTS`; nobody else compares its name. It makes a `Layout` from public
facts (budgets, numbers of people and teachers), and `allocate` deals the people to its teachers. Nothing here knows of
noise, training or labels.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ipate.allocation.allocation import Allocation, make_allocation
from ipate.allocation.layout import Layout
from ipate.allocation.upsampling import Upsampling
from ipate.allocation.vanishing import Vanishing
from ipate.allocation.variant import Standard, TrainedElsewhere, Variant
from ipate.allocation.weighting import Weighting
from ipate.errors import InputError, refuse_name, show
from ipate.people.budgets import Group
from ipate.people.people import People
from ipate.votes import Votes
from ipate.votes.panel import Panel

VARIANTS: dict[str, Variant] = {made.name: made for made in (Standard(), Upsampling(), Weighting(), Vanishing())}
"""Every variant by name; a new one is added with `VARIANTS[mine.name] = mine`."""

BASELINE = Standard.name
"""The variant that plans, reports and `compare` set the others against."""


def find_variant(name: str) -> Variant:
    """Return the variant of this name; refuse a name that does not exist, with the nearest one that does."""
    if name not in VARIANTS:
        refuse_name("variant", name, tuple(VARIANTS))
    return VARIANTS[name]


def lay_out(variant: str, *, groups: Sequence[Group], n_teachers: int, seed: int = 0, **options: Any) -> Layout:
    """Return what a variant of `VARIANTS` decides from public facts: weights, copies or schedule, groups, scale.

    Each group has its number of people; `n_teachers` is k before upsampling scales it; `seed` is the public seed of
    vanishing's schedule. The options are those of the variant's `layout`.
    """
    chosen = find_variant(variant)
    for name in options:
        if name not in chosen.options:
            allowed = f"allowed are {', '.join(chosen.options)}" if chosen.options else "it has none"
            raise InputError(f"{show(name)} is no option of variant {variant!r}: {allowed}")
    return chosen.layout(groups=groups, n_teachers=n_teachers, seed=seed, **options)


def allocate(variant: str, *, people: People, n_teachers: int, seed: int, **options: Any) -> Allocation:
    """Return which people each teacher learns from, and what their votes weigh and cost.

    Parameters
    ----------
    variant : str
        A name in `VARIANTS`: "standard", "upsampling", "weighting" or "vanishing".
    people : People
        Who there is, with their groups.
    n_teachers : int
        k, before upsampling scales it.
    seed : int
        The public split seed: the same people, teachers and seed give the same allocation.
    **options
        `rule` (upsampling, weighting), `tolerance` and `max_copies` (upsampling), `power` (vanishing).
    """
    layout = lay_out(variant, groups=people.groups, n_teachers=n_teachers, seed=seed, **options)
    return make_allocation(people=people, layout=layout, seed=seed)


def options_by_variant(flags: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return every variant's options from a command's flags, by the names that the variant's flags have."""
    return {
        name: {
            option: flags[flag] for option in variant.options if (flag := variant.flags.get(option, option)) in flags
        }
        for name, variant in VARIANTS.items()
    }


def panel_for(variant: str, given: TrainedElsewhere) -> tuple[Votes, Panel, str]:
    """Return the votes, the panel and the variant's name; "auto" chooses by what the votes file holds."""
    if variant == "auto":
        variant = next(name for name, candidate in VARIANTS.items() if candidate.recognises(given.votes))
    chosen = find_variant(variant)
    if given.power is not None and "power" not in chosen.options:
        users = ", ".join(name for name, other in VARIANTS.items() if "power" in other.options)
        raise InputError(f"power is {given.power:g}: only {users} has one, and this is {variant}")
    return *chosen.panel(given), variant
