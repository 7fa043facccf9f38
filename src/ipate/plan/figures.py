"""What a plan says, as values, and the public rules that fill in what nobody said."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ipate.accounting.meter import Meter
from ipate.budgets import Group
from ipate.errors import InputError
from ipate.mechanism import Mechanism
from ipate.tables import show
from ipate.variants.rules import check_count

__all__ = [
    "POINTS_PER_TEACHER",
    "RATES",
    "Chances",
    "GroupPlan",
    "Guaranteed",
    "MoreTeachers",
    "Plan",
    "VariantPlan",
    "auto_teachers",
    "default_mechanism",
    "groups_of_shares",
    "labels_in",
]

RATES = (0.5, 0.75, 1.0)
POINTS_PER_TEACHER = 240  # the paper's MNIST: 60,000 people, 250 teachers
SIGMA, CHECK_SIGMA, THRESHOLD = 0.16, 0.6, 0.8  # the paper's MNIST, per teacher: σ 40, σ_T 150, T 200 at k = 250


@dataclass(frozen=True, kw_only=True)
class Guaranteed:
    """What all budgets together pay for at an answer rate; `binding` is the group that ends it."""

    rate: float
    queries: int
    labels: int
    binding: str
    ratio: float | None = None


@dataclass(frozen=True, kw_only=True)
class GroupPlan:
    """A group's influence, and how many queries its own budget pays for at each answer rate.

    `influence` is the weight of its teachers, the copies of its people, or the share of votings that its
    teachers take part in; a number of queries is None where it lies far beyond the binding group's.
    """

    id: str
    epsilon: float
    delta: float
    people: int
    teachers: int
    sensitivity: float
    influence: float
    queries: tuple[int | None, ...]


@dataclass(frozen=True, kw_only=True)
class VariantPlan:
    """One variant: its teachers, its noise, its groups, and what it guarantees."""

    variant: str
    rule: str
    n_teachers: int
    people_per_teacher: float
    scale: float
    mechanism: Mechanism
    influence: str
    groups: tuple[GroupPlan, ...]
    guaranteed: tuple[Guaranteed, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class MoreTeachers:
    """What another number of teachers would afford at equal σ/k, every query answered."""

    n_teachers: int
    people_per_teacher: float
    labels: Mapping[str, int | None]


@dataclass(frozen=True, kw_only=True)
class Chances:
    """What the noise leaves of a vote: the chance that a unanimous vote passes the check, and that a label
    names the plurality where it has the share T/k of the votes and the rest is spread evenly.
    """  # noqa: D205

    unanimous_passes: float | None
    share: float
    label_right: float | None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What these budgets afford, variant by variant."""

    groups: tuple[Group, ...]
    n_teachers: int
    n_classes: int | None
    meter: Meter
    variants: tuple[VariantPlan, ...]
    more: tuple[MoreTeachers, ...]
    suits: str
    why: str
    chances: Chances
    notes: tuple[str, ...]


def groups_of_shares(
    budgets: Iterable[tuple[str, float, float]], *, shares: Mapping[str, float], n_people: int
) -> tuple[Group, ...]:
    """Turn (id, ε, δ) and each id's share of n people into groups: largest remainders, summing to n."""
    rows, total = tuple(budgets), check_count("people", n_people)
    for name, *_ in rows:
        if name not in shares:
            raise InputError(f"group {show(name)} has no share: every group needs one, such as {name}=0.5")
    for name, share in shares.items():
        if name not in [row[0] for row in rows]:
            raise InputError(f"share names the group {show(name)}: it has no budget")
        if not 0 < share <= 1:
            raise InputError(f"share of {show(name)} is {share!r}: it must be above 0 and at most 1")
    if abs(math.fsum(shares.values()) - 1) > 1e-6:
        raise InputError(f"shares sum to {math.fsum(shares.values()):g}: they must sum to 1")
    people = {name: int(share * total + 1e-9) for name, share in shares.items()}
    rest = sorted(shares, key=lambda name: (people[name] - shares[name] * total, name))
    for name in rest[: total - sum(people.values())]:
        people[name] += 1
    for name, count in people.items():
        if count < 1:
            raise InputError(f"share of {show(name)} is {shares[name]!r}: of {total} people that is nobody")
    return tuple(Group(id=name, epsilon=e, delta=d, people=people[name]) for name, e, d in rows)


def auto_teachers(groups: Sequence[Group], *, points_per_teacher: int = POINTS_PER_TEACHER) -> int:
    """Return k by a public rule: people over `points_per_teacher`, at least one teacher per group."""
    points = check_count("points_per_teacher", points_per_teacher)
    people = sum(group.people or 0 for group in groups)
    return max(people // points, len(groups), 1)


def default_mechanism(n_teachers: int, *, check: bool = True) -> Mechanism:
    """Return the noise of the paper's MNIST experiments per teacher: σ = .16k, σ_T = .6k, T = .8k."""
    if not check:
        return Mechanism(sigma=SIGMA * n_teachers)
    return Mechanism(sigma=SIGMA * n_teachers, check_sigma=CHECK_SIGMA * n_teachers, threshold=THRESHOLD * n_teachers)


def labels_in(queries: int, rate: float) -> int:
    """Return how many of so many queries end with a label, the last of them included."""
    return int((queries - 1) * rate) + 1 if queries else 0
