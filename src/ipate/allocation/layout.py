"""The layout that a variant decides before people are dealt to teachers: influence, accounts and schedule.

A layout follows from public facts alone (budgets, how many people have each, how many teachers), so a plan and the
allocation made later from the same facts agree by construction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ipate._types import Floats
from ipate.allocation.participation import Participation
from ipate.errors import InputError, show
from ipate.people.budgets import Account, Budget, Group

_EVERYONE = "everyone"  # the id of the one group that several groups become at the strictest budget


@dataclass(frozen=True, kw_only=True)
class Merge:
    """A group whose people count with a stricter one: part of their budget stays unused, none is exceeded."""

    group: str
    into: str
    people: int


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Layout:
    """How budgets become influence, for k teachers; `rule` names the rule that the variant followed."""

    variant: str
    rule: str
    groups: tuple[Account, ...]  # in the order of the people's groups; merged people count where they joined
    teachers: Mapping[str, int]  # over how many teachers each group's people are spread, by group id
    home: Mapping[str, str]  # for every group of the people, the id of the group with which it counts here
    weights: Floats  # of every teacher, shape (k,); they sum to k
    teacher_groups: tuple[str, ...] | None  # whose people a teacher learns from, groups in order; None: mixed
    copies: Mapping[str, int]  # how many teachers learn from each person of a group
    scale: float = 1.0  # the factor for σ, σ_T and T: 1 unless the number of teachers changes
    participation: Participation | None = None  # who takes part in which query; None: everybody in all
    merged: tuple[Merge, ...] = ()
    notes: tuple[str, ...] = ()  # decisions that somebody should know about, in sentences

    def __post_init__(self) -> None:
        self.weights.flags.writeable = False

    def __repr__(self) -> str:
        """Return the sizes, not every teacher."""
        return f"Layout({self.variant}, {self.rule}, {self.n_teachers} teachers, {len(self.groups)} groups)"

    @property
    def n_teachers(self) -> int:
        """How many teachers there are, after scaling."""
        return len(self.weights)

    @property
    def by_id(self) -> dict[str, Account]:
        """The groups by their ids."""
        return {group.id: group for group in self.groups}

    @property
    def group_weights(self) -> dict[str, float] | None:
        """The weight of each group's teachers, by id; None where teachers mix groups."""
        if self.teacher_groups is None:
            return None
        return dict(zip(self.teacher_groups, self.weights.tolist(), strict=True))


def check_distinct(groups: Sequence[Group]) -> None:
    """Refuse an empty list of groups and a duplicate id: costs follow ids."""
    ids = [group.id for group in groups]
    if not ids:
        raise InputError("there are no groups: at least one is needed")
    for place, name in enumerate(ids):
        if name in ids[:place]:
            raise InputError(f"duplicate group id {show(name)}: ids must differ")


def sizes_by_id(groups: Sequence[Group]) -> dict[str, int]:
    """Return every group's number of people by id; refuse a duplicate id and a group without a number."""
    check_distinct(groups)
    sizes: dict[str, int] = {}
    for group in groups:
        if group.people is None:
            raise InputError(f"group {show(group.id)} has no number of people: every group needs one")
        sizes[group.id] = group.people
    return sizes


def strictest_of(groups: Sequence[Group]) -> tuple[Group, tuple[str, ...]]:
    """Return one group of all people with the smallest ε and the smallest δ of any group, and what that loses.

    The group keeps its id if it is the only one.
    """
    sizes = sizes_by_id(groups)
    strictest = Budget(min(group.epsilon for group in groups), min(group.delta for group in groups))
    name = groups[0].id if len(groups) == 1 else _EVERYONE
    people, looser = sum(sizes.values()), sum(sizes[group.id] for group in groups if group.budget != strictest)
    notes: tuple[str, ...] = ()
    if looser:
        note = f"Everyone counts with ε = {strictest.epsilon:g} and δ = {strictest.delta:g}, the strictest of all"
        notes = (f"{note}: {looser} of {people} people would have allowed more.",)
    return Group(id=name, budget=strictest, people=people), notes


def check_charged(layout: Layout) -> None:
    """Refuse a layout in which a person can move more than their group is charged for, whoever is dealt where.

    A person is in as many teachers as there are copies, never twice in one. Where teachers take turns a person has one
    vote, whose weight depends on who takes part, and the schedule gives the sensitivity.
    """
    weights = layout.weights.tolist()
    own: dict[str, list[float]] = {account.id: [] for account in layout.groups}
    for name, weight in zip(layout.teacher_groups or (), weights, strict=False):
        own[name].append(weight)
    for account in layout.groups:
        held = sorted(weights if layout.teacher_groups is None else own[account.id], reverse=True)
        moved, allowed = sum(held[: layout.copies[account.id]]), account.sensitivity
        if layout.participation is not None:
            moved, allowed = float(layout.copies[account.id]), 1.0
        if moved > allowed:
            raise InputError(
                f"variant is {layout.variant!r}: a person of group {show(account.id)} can move the weight {moved:g} "
                f"and is charged for {allowed:g}; a sensitivity must cover all teachers that hold a person"
            )
