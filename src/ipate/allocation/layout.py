"""What a variant is, the layout that it decides before anybody is given a teacher, and the baseline: standard PATE.

A layout follows from public facts alone (budgets, how many people have each, how many teachers), so a plan and the
allocation made later from the same facts agree by construction.
"""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ipate.allocation.participation import Participation
from ipate.errors import InputError, check_count, refuse_name, show
from ipate.people.budgets import Account, Budget, Group, GroupRow
from ipate.votes import Votes
from ipate.votes.panel import Panel

Floats = NDArray[np.float64]
_EVERYONE = "everyone"  # the id of the one group that several groups become in standard PATE


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

    def panel(self) -> Panel:
        """Return the teachers and the accounts that their votes are charged to."""
        position = {group.id: place for place, group in enumerate(self.groups)}
        member = None
        if self.teacher_groups is not None:
            member = np.array([position[name] for name in self.teacher_groups], dtype=np.intp)
        return Panel(
            groups=self.groups, weights=self.weights.copy(), member=member, rotating=self.participation is not None
        )


@dataclass(frozen=True, kw_only=True)
class TrainedElsewhere:
    """Votes of teachers that were trained elsewhere, the rows of their group file, and what was asked for."""

    votes: Votes
    rows: Sequence[GroupRow]
    delta: float  # of the groups whose row has none
    weights: str = "gdp"  # a rule of weighting, or "file"
    power: float | None = None
    order: NDArray[np.int64] | None = None  # in which the queries are asked; file order unless given
    split_seed: int = 0

    @property
    def budgets(self) -> list[tuple[str, float, float, float | None]]:
        """(id, ε, δ, sensitivity or None) of every group."""
        return [
            (row.group, row.epsilon, self.delta if row.delta is None else row.delta, row.sensitivity)
            for row in self.rows
        ]

    @property
    def groups(self) -> list[Group]:
        """The groups with their budgets; how many people they have is not known."""
        return [Group(id=name, budget=Budget(epsilon, delta)) for name, epsilon, delta, _ in self.budgets]

    def teacher_groups(self, variant: str) -> tuple[str, ...]:
        """Return every teacher's group id, for a variant whose teachers learn from one group each."""
        if self.votes.groups is None:
            raise InputError(f"the votes name no groups: {variant} needs 'groups' in the npz, one per teacher")
        if len(self.rows) > self.votes.n_teachers:
            raise InputError(
                f"there are {len(self.rows)} groups and {self.votes.n_teachers} teachers: each group needs a teacher"
            )
        return self.votes.groups


class Variant(ABC):
    """A way to turn budgets into influence: its layout, and everything that others need to know about it.

    A new variant overrides `name`, `summary` and `layout`, and whatever below does not hold for it.
    """

    name: str
    summary: str  # one line
    individual = True  # budgets decide about influence; False: everybody counts alike
    takes_turns = False  # not all teachers vote on every query, so a design of ptr does not cover it
    groups_can_leave = True  # stop 'drop': an exhausted group's teachers can go and the others continue
    influence = "weight"  # what differs between groups, in plans
    influence_title: str | None = "weight of a teacher"  # the same as a column of a report; None: no column
    show_influence: Literal["weight", "copies", "participation"] = "weight"  # the group's fact in it
    report_note: str | None = None  # a sentence for the report's section on influence
    site_refusal: str | None = "it has no rule for sites that know their own people only; use weighting"
    flags: Mapping[str, str] = {}  # option → flag of ipate plan, where their names differ

    @abstractmethod
    def layout(self, *args: Any, **options: Any) -> Layout:
        """Return the layout for `groups`, `n_teachers`, `seed` and the variant's own options, all by keyword."""

    @property
    def options(self) -> tuple[str, ...]:
        """The names of the options of `layout`."""
        common = ("groups", "n_teachers", "seed")
        return tuple(name for name in inspect.signature(self.layout).parameters if name not in common)

    def group_influence(self, layout: Layout) -> Mapping[str, float]:
        """Return what differs between groups, by group id, for plans: the fact that `show_influence` names."""
        fractions = layout.participation.fractions if layout.participation is not None else None
        facts = {"weight": layout.group_weights, "copies": layout.copies, "participation": fractions}
        of_group = facts[self.show_influence] or {}
        return {group.id: float(of_group.get(group.id, 1.0)) for group in layout.groups}

    def suits(self, groups: Sequence[Group], *, parties: bool) -> str | None:
        """Return why a plan should recommend the variant for these groups; None where it should not."""
        return None

    def recognises(self, votes: Votes) -> bool:
        """Whether votes of teachers trained elsewhere are taken for this variant's unless something is said."""
        return False

    def panel(self, given: TrainedElsewhere) -> tuple[Votes, Panel]:
        """Return the votes as they count under this variant, and the accounts that they are charged to."""
        raise InputError(f"variant is {self.name!r}: it has no rule for votes of teachers trained elsewhere")


class Standard(Variant):
    """Standard PATE: one group of all people with the smallest ε and the smallest δ of anybody, all votes count 1.

    The baseline of every other variant (Papernot et al. 2018): whoever would allow more is treated as strictly as the
    strictest person.
    """

    name = "standard"
    summary = "everybody counts alike, at the strictest budget"
    individual = False
    influence_title = None
    report_note = "Standard PATE: everybody counts alike, and the strictest budget ends the run."
    site_refusal = None

    def layout(self, *, groups: Sequence[Group], n_teachers: int, seed: int = 0) -> Layout:
        """Lay out one group, which keeps its id if it is the only one; nothing is drawn from the seed."""
        del seed
        k, sizes = check_groups(groups, n_teachers)
        strictest = Budget(min(group.epsilon for group in groups), min(group.delta for group in groups))
        name = groups[0].id if len(groups) == 1 else _EVERYONE
        people, looser = sum(sizes.values()), sum(sizes[group.id] for group in groups if group.budget != strictest)
        notes: tuple[str, ...] = ()
        if looser:
            note = f"Everyone counts with ε = {strictest.epsilon:g} and δ = {strictest.delta:g}, the strictest of all"
            notes = (f"{note}: {looser} of {people} people would have allowed more.",)
        return Layout(
            variant=self.name,
            rule="strictest",
            groups=(Account(group=Group(id=name, budget=strictest, people=people), sensitivity=1.0),),
            teachers={name: k},
            home=dict.fromkeys(sizes, name),
            weights=np.ones(k),
            teacher_groups=(name,) * k,
            copies={name: 1},
            notes=notes,
        )

    def suits(self, groups: Sequence[Group], *, parties: bool) -> str | None:
        """Recommend standard PATE where nobody has another budget."""
        if parties or len({group.budget for group in groups}) > 1:
            return None
        return "Everybody has the same budget: every variant is standard PATE."

    def panel(self, given: TrainedElsewhere) -> tuple[Votes, Panel]:
        """Put everyone at the strictest budget, every vote at weight 1, every person in one teacher."""
        votes = replace(given.votes, participation=None, weights=None)
        epsilon, delta = min(row[1] for row in given.budgets), min(row[2] for row in given.budgets)
        for name, _, _, sensitivity in given.budgets:
            if sensitivity not in (None, 1.0):
                raise InputError(
                    f"group {name!r} has the sensitivity {sensitivity:g}: in standard PATE a person moves one vote"
                )
        if votes.groups is not None:
            return votes, Panel.from_votes(votes, [(name, epsilon, delta, 1.0) for name, *_ in given.budgets])
        groups = tuple(
            Account(group=Group(id=name, budget=Budget(epsilon, delta)), sensitivity=1.0) for name, *_ in given.budgets
        )
        return votes, Panel(groups=groups, weights=np.ones(votes.n_teachers), disjoint=True)


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


def check_distinct(groups: Sequence[Group]) -> None:
    """Refuse an empty list of groups and a duplicate id: costs follow ids."""
    ids = [group.id for group in groups]
    if not ids:
        raise InputError("there are no groups: at least one is needed")
    for place, name in enumerate(ids):
        if name in ids[:place]:
            raise InputError(f"duplicate group id {show(name)}: ids must differ")


def _classic(budget: Budget) -> float:
    """√(ε+L) − √L with L = ln(1/δ): the root of the largest ρ with ρ + 2√(ρL) ≤ ε."""
    tail = -math.log(budget.delta)
    return budget.epsilon / (math.sqrt(budget.epsilon + tail) + math.sqrt(tail))


AFFORDANCES: Mapping[str, Callable[[Budget], float]] = {
    "gdp": lambda budget: budget.mu,  # exact for Gaussian noise
    "proportional": lambda budget: budget.epsilon,  # the paper's appendix
    "classic": _classic,  # what the classic conversion affords
    "uniform": lambda _: 1.0,
}
"""Rules by name: the weight that a budget may have, up to a common factor."""


def affordance(rule: str, budget: Budget) -> float:
    """Return what a budget affords under a rule of `AFFORDANCES`."""
    if rule not in AFFORDANCES:
        refuse_name("rule", rule, tuple(AFFORDANCES))
    return AFFORDANCES[rule](budget)


def teacher_weights(rows: Sequence[GroupRow], votes: Votes, *, grouped: bool = True) -> Floats:
    """Return every teacher's weight as the files give it: npz and csv must agree, and the default is 1.

    Without `grouped` the groups that the votes name are left out of account.
    """
    stored, groups = votes.weights, votes.groups if grouped else None
    given = {row.group: row.weight for row in rows if row.weight is not None}
    if groups is None and given:
        name = next(iter(given))
        raise InputError(f"group {name!r} has a weight, but the votes name no groups: put weights in the npz")
    weights = np.ones(votes.n_teachers) if stored is None else stored.copy()
    for index, name in enumerate(groups or ()):
        if name not in given:
            continue
        if stored is not None and not np.isclose(stored[index], given[name], rtol=1e-9, atol=0):
            raise InputError(
                f"group {name!r} has the weight {given[name]:g} in the csv and {stored[index]:g} in the npz: "
                "they must agree"
            )
        weights[index] = given[name]
    return weights
