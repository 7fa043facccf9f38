"""Who casts ballots: an allocation without teachers, in which every person votes for themselves."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ipate.accounting.bounds import Meter
from ipate.allocation import find_variant, lay_out
from ipate.allocation.allocation import Allocation
from ipate.allocation.layout import Layout, check_distinct
from ipate.ballots.design import ballot_terms
from ipate.errors import InputError
from ipate.people.budgets import Group
from ipate.people.people import People


def ballot_layout(variant: str, groups: Sequence[Group], meter: Meter | None = None, **options: object) -> Layout:
    """Return the accounts of a release of ballots: a person's weight is what their budget affords.

    Under "weighting" every group has its own budget, under "standard" everybody has the strictest one. The other
    variants are about several teachers per person, and ballots have none.
    """
    check_distinct(groups)
    if options:
        raise InputError(
            f"{next(iter(options))!r} is an option of teachers: ballots are weighted by what budgets afford"
        )
    named, home, notes = _counted(variant, groups)
    accounts = tuple(terms.account for terms in ballot_terms(named, meter))
    return Layout(
        variant=variant, rule="gdp", groups=accounts, teachers={group.id: 0 for group in named}, home=home,
        weights=np.zeros(0), teacher_groups=(), copies={group.id: 1 for group in named}, notes=notes,
    )  # fmt: skip


def _counted(variant: str, groups: Sequence[Group]) -> tuple[tuple[Group, ...], Mapping[str, str], tuple[str, ...]]:
    """Return the groups that count, where every group counts, and what somebody should know."""
    chosen = find_variant(variant)
    if not chosen.individual:
        whole = lay_out(variant, groups=groups, n_teachers=1)
        return tuple(account.group for account in whole.groups), whole.home, whole.notes
    if chosen.takes_turns or chosen.show_influence != "weight":
        raise InputError(f"variant is {variant!r}: ballots are weighted by budgets; use weighting or standard")
    return tuple(groups), {group.id: group.id for group in groups}, ()


def allocate_ballots(variant: str, *, people: People, seed: int, meter: Meter | None = None) -> Allocation:
    """Return the allocation of ballots; people who withdraw from it stay counted, and their ballots are empty."""
    return Allocation(
        layout=ballot_layout(variant, people.groups, meter), people=people, seed=seed,
        offsets=np.zeros(1, dtype=np.int64), persons=np.zeros(0, dtype=np.int64),
    )  # fmt: skip


def voters(allocation: Allocation) -> People:
    """Return the people of an allocation in the groups that they count with."""
    groups = tuple(account.group for account in allocation.groups)
    return replace(allocation.people, groups=groups, group_of_person=allocation.group_of_person.copy())
