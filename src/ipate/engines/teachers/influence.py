"""The interface of variants, the baseline (standard PATE), and votes of teachers that were trained elsewhere."""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ipate._types import Floats, Ints
from ipate.allocation.allocation import Allocation
from ipate.allocation.layout import Layout, sizes_by_id, strictest_of
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.votes import Votes
from ipate.errors import InputError, check_count, refuse_name, show
from ipate.people.budgets import Account, Budget, Group, GroupRow


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
        group, notes = strictest_of(groups)
        return Layout(
            variant=self.name,
            rule="strictest",
            groups=(Account(group=group, sensitivity=1.0),),
            teachers={group.id: k},
            home=dict.fromkeys(sizes, group.id),
            weights=np.ones(k),
            teacher_groups=(group.id,) * k,
            copies={group.id: 1},
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
    sizes, k = sizes_by_id(groups), check_count("n_teachers", n_teachers)
    n_people = sum(sizes.values())
    if k > n_people:
        raise InputError(f"n_teachers is {k}: with {n_people} people it may be {n_people} at most")
    return k, sizes


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


@dataclass(frozen=True, kw_only=True)
class SingleClass:
    """A group, the one class that most of its teachers see, and how many of its teachers that are."""

    group: str
    label: str
    teachers: int
    of: int  # teachers of the group that see anybody

    def __str__(self) -> str:
        return (
            f"{self.teachers} of the {self.of} teachers of group {show(self.group)} see the class {self.label} and no "
            "other: the other classes are rare in this group; fewer teachers, or upsampling, which mixes groups, help"
        )


def single_class_groups(allocation: Allocation, labels: ArrayLike) -> tuple[SingleClass, ...]:
    """Return the groups of which more than half of the teachers see one and the same class, while others exist.

    That happens where budgets follow the class and groups are kept apart, so that such teachers know one answer.
    `labels` has one class per person or per row of the data, −1 for none; they are private, and so is what is found.
    """
    from ipate.engines.teachers.variants import find_variant

    values = np.asarray(labels)
    people = allocation.people
    if values.shape not in ((people.n_people,), (people.n_rows,)):
        raise InputError(
            f"labels have the shape {values.shape}: there must be one per person ({people.n_people}) "
            f"or one per row ({people.n_rows})"
        )
    owner = people.person_of_row if len(values) == people.n_rows else np.arange(people.n_people)
    if values.dtype.kind == "i":
        owner, values = owner[values >= 0], values[values >= 0]
    names, code = np.unique(values, return_inverse=True)
    individual = find_variant(allocation.variant).individual
    if allocation.teacher_groups is None or not individual or len(names) < 2:
        return ()
    low, high = _extremes(allocation, code, owner)
    found = []
    for group in allocation.groups:
        own = np.array([name == group.id for name in allocation.teacher_groups]) & (low <= high)
        single = np.bincount(low[own & (low == high)], minlength=len(names))
        label, teachers = str(names[np.argmax(single)]), int(single.max())
        if 2 * teachers > own.sum():
            found.append(SingleClass(group=group.id, label=label, teachers=teachers, of=int(own.sum())))
    return tuple(found)


def _extremes(allocation: Allocation, code: Ints, owner: Ints) -> tuple[Ints, Ints]:
    """Return the smallest and the largest class that each teacher sees; crossed where it sees none."""
    people, filled = allocation.people, allocation.persons >= 0
    teacher = np.repeat(np.arange(allocation.n_teachers), allocation.teacher_sizes)[filled]

    def smallest(codes: Ints, none: int) -> Ints:
        of_person, of_teacher = np.full(people.n_people, none), np.full(allocation.n_teachers, none)
        np.minimum.at(of_person, owner, codes)
        np.minimum.at(of_teacher, teacher, of_person[allocation.persons[filled]])
        return of_teacher

    return smallest(code, len(code)), -smallest(-code, 1)
