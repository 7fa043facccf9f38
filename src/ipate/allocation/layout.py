"""The layout that a variant decides before people are dealt to teachers: influence, accounts and schedule.

A layout follows from public facts alone (budgets, how many people have each, how many teachers), so a plan and the
allocation made later from the same facts agree by construction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ipate._types import Floats
from ipate.allocation.participation import Participation
from ipate.errors import InputError, show
from ipate.people.budgets import Account, Group


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
