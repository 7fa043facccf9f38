"""Budgets and groups, and the CSV file of groups that the commands read."""

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ipate.errors import LIMITS, InputError, check_id, check_number, show
from ipate.files import FilePath, read_table, write_text


@dataclass(frozen=True, kw_only=True)
class Group:
    """People who share one budget (ε, δ), known by the group's id.

    `people` is how many they are, None where that is not known.
    """

    id: str
    epsilon: float
    delta: float
    people: int | None = None

    def __post_init__(self) -> None:
        check_id(self.id, what="group id")
        for kind in ("epsilon", "delta"):
            number = check_number(kind, getattr(self, kind), of=self.id)
            object.__setattr__(self, kind, number)
        if self.people is not None and (type(self.people) is not int or self.people < 1):
            what = f"people of group {show(self.id)} is {show(self.people)}"
            raise InputError(f"{what}: it must be a whole number, 1 or above, or None")


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
