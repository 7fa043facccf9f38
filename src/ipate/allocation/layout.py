"""What a variant decides before anybody is given a teacher: weights or copies, groups, noise scale.

A layout follows from public facts alone (budgets, how many people have each, how many teachers), so a
plan and the allocation made later from the same facts agree by construction.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ipate.allocation.participation import Participation
from ipate.errors import InputError, check_count, refuse_name, show
from ipate.people.budgets import Account, Budget, Group
from ipate.votes.panel import Panel

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Merge:
    """A group whose people count with a stricter one: their budget is partly wasted, never exceeded."""

    group: str
    into: str
    people: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Layout:
    """How budgets become influence, for k teachers.

    Attributes
    ----------
    variant, rule : str
        Which way, and by which rule.
    groups : tuple of Account
        One per group, in the order of the people's groups; people of merged groups count where they joined.
    teachers : mapping
        Over how many teachers each group's people are spread, by group id.
    home : mapping
        For every group of the people, the id of the group with which it counts here.
    weights : array of shape (k,)
        Every teacher's weight; their sum is k.
    teacher_groups : tuple of k ids, or None
        Whose people a teacher learns from; None where teachers mix groups. Teachers of one group stand
        together, in the order of `groups`.
    copies : mapping
        How many teachers learn from each person of a group.
    scale : float
        The factor for σ, σ_T and T, 1 unless upsampling changes the number of teachers.
    participation : Participation or None
        Who takes part in which voting; None where everybody always does.
    merged : tuple of Merge
        Groups that were too small for a teacher.
    notes : tuple of str
        What was decided that somebody should know, in sentences.
    """

    variant: str
    rule: str
    groups: tuple[Account, ...]
    teachers: Mapping[str, int]
    home: Mapping[str, str]
    weights: Floats
    teacher_groups: tuple[str, ...] | None
    copies: Mapping[str, int]
    scale: float = 1.0
    participation: Participation | None = None
    merged: tuple[Merge, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        self.weights.flags.writeable = False

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

    def panel(self) -> Panel:
        """Return the teachers and the accounts that their votes are charged to."""
        position = {group.id: place for place, group in enumerate(self.groups)}
        member = None
        if self.teacher_groups is not None:
            member = np.array([position[name] for name in self.teacher_groups], dtype=np.intp)
        return Panel(
            groups=self.groups, weights=self.weights.copy(), member=member, rotating=self.participation is not None
        )


def check_groups(groups: Sequence[Group], n_teachers: object) -> tuple[int, dict[str, int]]:
    """Return k and every group's number of people by id; refuse what no variant can lay out."""
    check_distinct(groups)
    k = check_count("n_teachers", n_teachers)
    sizes: dict[str, int] = {}
    for group in groups:
        if group.people is None:
            raise InputError(f"group {show(group.id)} has no number of people: every group needs one")
        sizes[group.id] = group.people
    n_people = sum(sizes.values())
    if k > n_people:
        raise InputError(f"n_teachers is {k}: with {n_people} people it may be {n_people} at most")
    return k, sizes


def same_home(groups: Sequence[Group]) -> dict[str, str]:
    """Every group counts as itself."""
    return {group.id: group.id for group in groups}


def affordance(rule: str, budget: Budget) -> float:
    """Return what a budget affords: the weight that it may have, up to a common factor.

    Parameters
    ----------
    rule : {"gdp", "proportional", "classic", "uniform"}
        `gdp`: μ with (ε, δ) ⇔ μ-GDP, exact for Gaussian noise (Dong, Roth and Su 2022, Corollary 1).
        `proportional`: ε, as in the paper's appendix. `classic`: √(ε+L) − √L with L = ln(1/δ), the root
        of the largest ρ with ρ + 2√(ρL) ≤ ε, which the classic conversion affords. `uniform`: 1.
    """
    if rule == "gdp":
        return budget.mu
    if rule == "proportional":
        return budget.epsilon
    if rule == "classic":
        tail = -math.log(budget.delta)
        return budget.epsilon / (math.sqrt(budget.epsilon + tail) + math.sqrt(tail))
    if rule != "uniform":
        refuse_name("rule", rule, ("gdp", "proportional", "classic", "uniform"))
    return 1.0


def check_distinct(groups: Sequence[Group]) -> None:
    """Refuse an empty list of groups, and an id that stands twice: costs follow ids."""
    ids = [group.id for group in groups]
    if not ids:
        raise InputError("there are no groups: at least one is needed")
    for place, name in enumerate(ids):
        if name in ids[:place]:
            raise InputError(f"group {show(name)} is there twice: ids must differ")
