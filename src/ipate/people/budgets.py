"""Privacy budgets, groups, accounts, and the CSV file of groups that the commands read."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, TypeVar

from ipate.errors import LIMITS, InputError, check_count, check_id, check_number, show
from ipate.files import FilePath, Table, read_table, write_csv

MIN_GROUP_SIZE = 5
"""Groups of fewer people join the next stricter one; those that stay smaller are not counted in what leaves."""


def shown_count(people: int | None, *, least: int = MIN_GROUP_SIZE) -> int | str | None:
    """Return a number of people as it may be shown: "under 5" below the smallest size that is counted."""
    return people if people is None or people >= least or people == 0 else f"under {least}"


def has_small(sizes: Iterable[int | None], *, least: int = MIN_GROUP_SIZE) -> bool:
    """Whether one of several groups has too few people to be counted."""
    return any(people is not None and 0 < people < least for people in sizes)


def shown_counts(sizes: Iterable[int | None], *, least: int = MIN_GROUP_SIZE) -> list[int | str | None]:
    """Return the sizes of all groups as they may be shown together with their total.

    Beside a group that is too small to be counted no size is shown, because the total less the others would be its own.
    """
    sizes = list(sizes)
    rest = f"{least} or more" if has_small(sizes, least=least) else None
    return [rest if rest and people and people >= least else shown_count(people, least=least) for people in sizes]


def usual_delta(n_people: int) -> float:
    """Return δ for "auto": the smaller of 1e-5 and 0.1/N."""
    return min(1e-5, 0.1 / n_people)


@dataclass(frozen=True)
class Budget:
    """A person's (ε, δ) privacy budget."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        for kind in ("epsilon", "delta"):
            object.__setattr__(self, kind, check_number(kind, getattr(self, kind)))

    @cached_property
    def mu(self) -> float:
        """The largest μ for which μ-GDP implies this (ε, δ) (Dong, Roth and Su 2022, Corollary 1)."""
        from ipate.accounting import gdp

        return float(gdp.mu_of(self.epsilon, self.delta))


@dataclass(frozen=True, kw_only=True)
class Group:
    """People who share one budget, identified by the group's id.

    Attributes
    ----------
    id : str
        The key by which budgets, weights and costs are matched.
    budget : Budget
        The budget of each person in the group.
    people : int or None
        The number of people; None if it is unknown.
    """

    id: str
    budget: Budget
    people: int | None = None

    @property
    def epsilon(self) -> float:
        """ε of the budget."""
        return self.budget.epsilon

    @property
    def delta(self) -> float:
        """δ of the budget."""
        return self.budget.delta

    def __post_init__(self) -> None:
        check_id(self.id, what="group id")
        if self.people is not None and (type(self.people) is not int or self.people < 1):
            what = f"people of group {show(self.id)} is {show(self.people)}"
            raise InputError(f"{what}: it must be a whole number, 1 or above, or None")


@dataclass(frozen=True, kw_only=True)
class Account:
    """A group, or one teacher's people of a group, that queries are charged to, with its sensitivity.

    Attributes
    ----------
    id : str
        By default the group's id; the teacher's id if teachers take turns (vanishing).
    group : Group
        The group whose budget limits the account.
    sensitivity : float
        The largest total weight of votes that one person can change in one query.
    """

    id: str = ""
    group: Group
    sensitivity: float

    def __post_init__(self) -> None:
        if not self.id:
            object.__setattr__(self, "id", self.group.id)

    @property
    def epsilon(self) -> float:
        """ε of the budget."""
        return self.group.budget.epsilon

    @property
    def delta(self) -> float:
        """δ of the budget."""
        return self.group.budget.delta

    def with_budget(self, budget: Budget) -> "Account":
        """Return a copy of the account with another budget."""
        return replace(self, group=replace(self.group, budget=budget))

    @property
    def people(self) -> int:
        """The number of people; 0 if it is unknown."""
        return self.group.people or 0


def large_delta(groups: Sequence[Group]) -> str | None:
    """Return what is wrong with the largest δ if it is 1/N or more for the N people that are known, else None."""
    worst, n_people = max(groups, key=lambda group: group.delta), sum(group.people or 0 for group in groups)
    if not n_people or worst.delta < 1 / n_people:
        return None
    return (
        f"delta is {worst.delta!r} (group {show(worst.id)}) with N = {n_people} people, and 1/N = "
        f"{1 / n_people:.4g}: publishing everything about one person picked at random already keeps "
        f"delta = 1/N, so delta should be well below it: choose at most 1/(10·N) = {0.1 / n_people:.4g}"
    )


def check_delta(groups: Sequence[Group]) -> None:
    """Refuse a δ of 1/N or more for the N people that are known: such a guarantee promises nothing to somebody."""
    if (why := large_delta(groups)) is not None:
        raise InputError(why)


class Budgeted(Protocol):
    """Anything about a group that has the group's id and budget."""

    @property
    def id(self) -> str:
        """The group's id."""

    @property
    def budget(self) -> Budget:
        """The budget of each of its people."""


_Entry = TypeVar("_Entry", bound=Budgeted)


def strictest_first(groups: Iterable[_Entry]) -> tuple[_Entry, ...]:
    """Return groups in the order in which every table, page and file lists them: the smallest ε first."""
    return tuple(sorted(groups, key=lambda group: (group.budget.epsilon, group.budget.delta, group.id)))


@dataclass(frozen=True, kw_only=True)
class GroupRow:
    """One row of a group file. None means that a value is not given, so that the command's default applies."""

    group: str
    epsilon: float
    delta: float | None = None
    sensitivity: float | None = None
    weight: float | None = None
    people: int | None = None

    def __post_init__(self) -> None:
        check_id(self.group)
        for kind in LIMITS:
            value = getattr(self, kind)
            if value is not None or kind == "epsilon":
                object.__setattr__(self, kind, check_number(kind, value, of=self.group))

    def as_group(self, delta: float) -> Group:
        """Return the group; `delta` is its δ if the row has none."""
        budget = Budget(self.epsilon, delta if self.delta is None else self.delta)
        return Group(id=self.group, budget=budget, people=self.people)


def _read_ids(path: FilePath, optional: tuple[str, ...]) -> tuple[Table, tuple[str, ...]]:
    """Read a group file and check that its ids are printable text and unique."""
    table = read_table(path, required=("group", "epsilon"), optional=optional)
    ids = table.texts("group")
    seen: dict[str, int] = {}
    for row, group in enumerate(ids):
        try:
            check_id(group)
        except InputError as error:
            raise InputError(f"{table.where(row)}: {error}") from None
        if (first := seen.setdefault(group, table.lines[row])) != table.lines[row]:
            raise InputError(f"{table.where(row)}: duplicate group id {show(group)}, also on line {first}")
    return table, tuple(ids)


def read_groups(path: FilePath) -> tuple[GroupRow, ...]:
    """Read a group file: csv with `group,epsilon` and optional `delta,sensitivity,weight,people`.

    Ids are texts: '01' and '1' are two groups.
    """
    table, ids = _read_ids(path, ("delta", "sensitivity", "weight", "people"))
    kinds = [column for column in table.columns if column not in ("group", "people")]
    numbers: list[list[Any]] = [table.numbers(kind, kind, optional=kind != "epsilon") for kind in kinds]
    if "people" in table.columns:
        kinds.append("people")
        numbers.append([_count(name, cell, path) for name, cell in zip(ids, table.texts("people"), strict=True)])
    rows = zip(ids, *numbers, strict=True)
    return tuple(GroupRow(group=group, **dict(zip(kinds, values, strict=True))) for group, *values in rows)


def read_sized_groups(
    path: FilePath, *, n_people: int | None = None, shares: Mapping[str, str] | None = None, delta: float | str = "auto"
) -> tuple[Group, ...]:
    """Read a group file with group sizes: from a column `people`, a column `share`, or `shares` of `n_people`.

    A δ in the file overrides `delta`; "auto" means `usual_delta` of all people.
    """
    table, ids = _read_ids(path, ("delta", "share", "people", "sensitivity", "weight"))  # the last two are not used
    told = dict(zip(ids, table.texts("share"), strict=True)) if "share" in table.columns else {}
    told |= shares or {}
    if told:
        if n_people is None:
            raise InputError("people is not given: shares need the total number of people (--people N)")
        sizes = sizes_of(ids, shares={name: _share(name, text) for name, text in told.items()}, n_people=n_people)
    elif "people" in table.columns:
        sizes = {name: _count(name, cell, path) for name, cell in zip(ids, table.texts("people"), strict=True)}
        if n_people is not None and n_people != sum(sizes.values()):
            raise InputError(f"people is {n_people} and {path} has {sum(sizes.values())} in all: they must agree")
    elif n_people is None:
        raise InputError(f"people is not given: give the number of people (--people N) or a column people in {path}")
    else:
        sizes = sizes_of(ids, shares={}, n_people=n_people)
    usual = usual_delta(sum(sizes.values())) if isinstance(delta, str) else check_number("delta", delta)
    given = table.numbers("delta", "delta", optional=True) if "delta" in table.columns else [None] * len(ids)
    budgets = zip(ids, table.numbers("epsilon", "epsilon"), given, strict=True)
    return tuple(
        Group(id=name, budget=Budget(epsilon or 0.0, usual if own is None else own), people=sizes[name])
        for name, epsilon, own in budgets
    )


def sizes_of(ids: Sequence[str], *, shares: Mapping[str, float], n_people: int) -> dict[str, int]:
    """Convert shares into numbers of people that sum to `n_people` (largest remainder method)."""
    total = check_count("people", n_people)
    for name in ids:
        if name not in shares:
            raise InputError(f"group {show(name)} has no share: every group needs one, such as {name}=0.5")
    for name, share in shares.items():
        if name not in ids:
            raise InputError(f"share is given for the group {show(name)}, which has no budget")
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
            raise InputError(f"share of {show(name)} is {shares[name]!r}: it leaves no person out of {total}")
    return people


def _count(name: str, cell: str, path: FilePath) -> int:
    if not cell.isdecimal() or int(cell) < 1:
        raise InputError(f"{path}: people of group {show(name)} is {show(cell)}: it must be a whole number, 1 or above")
    return int(cell)


def _share(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"share of {show(name)} is {show(text)}: it must be a number, as in {name}=0.5") from None


def write_groups(path: FilePath, rows: Iterable[GroupRow]) -> None:
    """Write a group file atomically so that `read_groups` reads the same rows, the smallest ε first."""
    rows = sorted(rows, key=lambda row: (row.epsilon, row.delta or 0.0, row.group))
    if not rows:
        raise InputError("rows are empty: a group file must have at least one group")
    for group, count in Counter(row.group for row in rows).items():
        if count > 1:
            raise InputError(f"duplicate group id {show(group)}: ids must be unique")
    kinds = (*LIMITS, "people")
    columns = ["group", *(kind for kind in kinds if any(getattr(row, kind) is not None for row in rows))]
    write_csv(path, columns, ([getattr(row, column) for column in columns] for row in rows))
