"""Budgets and groups, and the CSV file of groups that the commands read."""

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ipate.errors import LIMITS, InputError, check_id, check_number, show
from ipate.files import FilePath, read_table, write_text


@dataclass(frozen=True)
class Budget:
    """What a person allows: at most ε, except with probability δ."""

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
    """People who share one budget, known by the group's id.

    Attributes
    ----------
    id : str
        By which budgets, weights and costs find each other.
    budget : Budget
        What each of its people allows.
    people : int or None
        How many people it has; None where that is not known.
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
    """Who pays: a group, or one teacher's people of a group, and the most weight that one of them moves.

    Attributes
    ----------
    id : str
        The group's id, or the teacher's where teachers take turns.
    group : Group
        Whose budget limits the account.
    sensitivity : float
        The largest total weight that one person can move in one query.
    """

    id: str
    group: Group
    sensitivity: float

    @classmethod
    def of(cls, group: Group, sensitivity: float) -> "Account":
        """Return the account of a whole group, which has the group's id."""
        return cls(id=group.id, group=group, sensitivity=sensitivity)

    @property
    def epsilon(self) -> float:
        """ε of the budget."""
        return self.group.budget.epsilon

    @property
    def delta(self) -> float:
        """δ of the budget."""
        return self.group.budget.delta

    def with_budget(self, budget: Budget) -> "Account":
        """Return the same account under another budget."""
        return replace(self, group=replace(self.group, budget=budget))

    @property
    def people(self) -> int:
        """How many people it has, 0 where that is not known."""
        return self.group.people or 0


@dataclass(frozen=True, kw_only=True)
class GroupRow:
    """One row of a group file: a group's id and budget, and what else the file says about it.

    None means 'not given', so that a command's own default can apply; it never means 0.
    """

    group: str
    epsilon: float
    delta: float | None = None
    sensitivity: float | None = None
    weight: float | None = None

    def __post_init__(self) -> None:
        check_id(self.group)
        for kind in LIMITS:
            value = getattr(self, kind)
            if value is not None or kind == "epsilon":
                object.__setattr__(self, kind, check_number(kind, value, of=self.group))


def read_groups(path: FilePath) -> tuple[GroupRow, ...]:
    """Read a group file: csv with `group,epsilon` and optional `delta,sensitivity,weight`, in file order.

    Ids are text, kept as they stand but for surrounding spaces ('01' stays '01'); an id may occur once.
    """
    table = read_table(path, required=("group", "epsilon"), optional=("delta", "sensitivity", "weight"))
    ids = table.texts("group")
    seen: dict[str, int] = {}
    for row, group in enumerate(ids):
        try:
            check_id(group)
        except InputError as error:
            raise InputError(f"{table.where(row)}: {error}") from None
        if group in seen:
            first = table.lines[seen[group]]
            raise InputError(f"{table.where(row)}: group {show(group)} is on line {first} too: ids must differ")
        seen[group] = row
    numbers: dict[str, list[Any]] = {
        column: table.numbers(column, column, optional=column != "epsilon")
        for column in table.columns
        if column != "group"
    }
    return tuple(
        GroupRow(group=group, **{column: values[row] for column, values in numbers.items()})
        for row, group in enumerate(ids)
    )


def write_groups(path: FilePath, rows: Iterable[GroupRow]) -> None:
    """Write a group file that `read_groups` reads back exactly; on failure the old file stays whole.

    A column that no row uses is left out.
    """
    rows = tuple(rows)
    ids = [row.group for row in rows]
    if not rows:
        raise InputError("rows are empty: a group file must have at least one group")
    if len(set(ids)) < len(ids):
        twice = next(group for position, group in enumerate(ids) if group in ids[:position])
        raise InputError(f"group {show(twice)} is there twice: ids must differ")
    columns = ["group", *(kind for kind in LIMITS if any(getattr(row, kind) is not None for row in rows))]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([getattr(row, column) for column in columns] for row in rows)
    write_text(path, text.getvalue())
