"""Csv files, read strictly: people files and group files share one reader and one set of limits.

Nothing is guessed: a cell that cannot be used is refused with its file, line, column and value.
"""

import csv
import io
import math
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from ipate.errors import InputError

__all__ = [
    "LIMITS",
    "GroupRow",
    "Table",
    "check_id",
    "check_number",
    "read_groups",
    "read_table",
    "replacing",
    "show",
    "write_groups",
    "write_text",
]

FilePath: TypeAlias = str | os.PathLike[str]

LIMITS: Mapping[str, tuple[Callable[[Any], Any], str]] = {
    "epsilon": (lambda value: (value > 0) & (value < math.inf), "it must be a finite number above 0"),
    "delta": (
        lambda value: (value > 0) & (value < 1),
        "it must lie strictly between 0 and 1, for example 1e-5",
    ),
    "sensitivity": (
        lambda value: (value >= 0) & (value < math.inf),
        "it must be a finite number, 0 or above",
    ),
    "weight": (lambda value: (value >= 0) & (value < math.inf), "it must be a finite number, 0 or above"),
}
"""What each quantity may be: a test that works on numbers and arrays (NaN fails it), and its words."""


def show(value: object) -> str:
    """Return the value as one short line, so that a message stays one line whatever was typed."""
    plain = value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value
    text = " ".join(repr(plain).split("\n"))
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text)} characters)"


def check_number(kind: str, value: object, *, what: str | None = None, of: object = None) -> float:
    """Return `value` as a float if it is a number within the limits of its kind; refuse it otherwise.

    `kind` is a key of `LIMITS`; `what` names the value in the message, or `of` says whose it is.
    """
    test, allowed = LIMITS[kind]
    try:
        number = math.nan if isinstance(value, bool | str | bytes) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not test(number):
        name = what or (kind if of is None else f"{kind} of {show(of)}")
        raise InputError(f"{name} is {show(value)}: {allowed}")
    return number


def check_id(value: object, *, what: str = "group") -> str:
    """Return an id if it is printable text without surrounding spaces; refuse it otherwise.

    Ids are compared as they are: '01' and '1' are two groups.
    """
    if not isinstance(value, str) or not value or value != value.strip() or not value.isprintable():
        raise InputError(f"{what} is {show(value)}: it must be printable text without surrounding spaces")
    return str(value)


def _number(text: str) -> float | None:
    """Read plain decimal notation; Python's own extras (1_000, other scripts' digits) are no numbers."""
    if "_" in text or not text.isascii():
        return None
    try:
        return float(text)
    except ValueError:
        return None


@dataclass(frozen=True, kw_only=True)
class Table:
    """The wanted columns of one csv file, cells as text without surrounding spaces, and where each was."""

    path: str
    lines: Sequence[int]
    columns: Mapping[str, Sequence[str]]

    def where(self, row: int) -> str:
        """Say where a row stands, counting lines from 1 as editors do."""
        return f"{self.path}, line {self.lines[row]}"

    def texts(self, column: str) -> Sequence[str]:
        """Return a column's cells; an empty one is refused."""
        cells = self.columns[column]
        if "" in cells:
            place = self.where(cells.index(""))
            raise InputError(f"{place}: {column} is missing: every row needs a value in this column")
        return cells

    def numbers(self, column: str, kind: str, *, optional: bool = False) -> list[float | None]:
        """Return a column as numbers within the limits of `kind`; an empty optional cell is None."""
        cells = self.columns[column] if optional else self.texts(column)
        test, allowed = LIMITS[kind]
        numbers = {cell: _number(cell) for cell in set(cells)}
        bad = {cell for cell, number in numbers.items() if cell and (number is None or not test(number))}
        if bad:
            row = next(row for row, cell in enumerate(cells) if cell in bad)
            raise InputError(f"{self.where(row)}: {column} is {show(cells[row])}: {allowed}")
        return [numbers[cell] for cell in cells]


def read_table(path: FilePath, *, required: Sequence[str], optional: Sequence[str] = (), others: bool = False) -> Table:
    """Read the named columns of a csv file in UTF-8 (a byte order mark and CRLF are fine).

    Columns beside these are skipped if `others`, else refused; so are ragged rows, repeated column
    names, blank lines before the end, and a file without rows.
    """
    name = str(path)
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            return _parse(csv.reader(file, strict=True), name, required, optional, others)
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        bad = error.object[error.start : error.start + 1]
        raise InputError(f"{name} holds the byte {bad!r}: a csv file must be text in UTF-8") from None


def _parse(reader: Any, name: str, required: Sequence[str], optional: Sequence[str], others: bool) -> Table:
    try:
        header = [cell.strip() for cell in next(reader, [])]
        wanted = _wanted(header, name, required, optional, others)
        columns: dict[str, list[str]] = {column: [] for column in wanted}
        keep = [(columns[column].append, position) for column, position in wanted.items()]
        lines: list[int] = []
        start, blank = reader.line_num + 1, 0
        for record in reader:
            line, start = start, reader.line_num + 1
            if not record:
                blank = blank or line
                continue
            if blank:
                raise InputError(f"{name}, line {blank} is blank: only the end of a file may be")
            if len(record) != len(header):
                found = f"{name}, line {line} has {len(record)} cells"
                raise InputError(f"{found}: it must have {len(header)}, as the header has")
            lines.append(line)
            for append, position in keep:
                append(record[position])
    except csv.Error as error:
        raise InputError(f"{name}, line {reader.line_num} is no valid csv: {error}") from None
    if not lines:
        raise InputError(f"{name} has a header and no rows: it must have at least one row")
    cells = {column: [cell.strip() for cell in texts] for column, texts in columns.items()}
    return Table(path=name, lines=lines, columns=cells)


def _wanted(
    header: list[str], name: str, required: Sequence[str], optional: Sequence[str], others: bool
) -> dict[str, int]:
    """Match the header with what was asked for: the columns to read and their positions."""
    if not any(header):
        words = f"it must start with a header that has {_list(required)}"
        raise InputError(f"{name} is empty or starts with a blank line: {words}")
    allowed = [*required, *optional]
    for position, column in enumerate(header):
        if column in header[:position] and (column in allowed or not others):
            raise InputError(f"{name}: the column {show(column)} is there twice: it may be there once")
        if column not in allowed and not others:
            raise InputError(f"{name}: the column {show(column)} is unknown: allowed are {_list(allowed)}")
    for column in required:
        if column not in header:
            found = _list([show(cell) for cell in header[:20]])
            raise InputError(f"{name} has no column {show(column)}: it must have one; it has {found}")
    return {column: header.index(column) for column in allowed if column in header}


def _list(names: Sequence[str]) -> str:
    return ", ".join(names)


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
    writer.writerows([_cell(getattr(row, column)) for column in columns] for row in rows)
    write_text(path, text.getvalue())


def _cell(value: str | float | None) -> str:
    return "" if value is None else value if isinstance(value, str) else repr(value)


def write_text(path: FilePath, text: str, *, private: bool = False) -> None:
    """Write a text file whole or not at all; a private one is never readable by others, not for a moment."""
    with replacing(path, private=private) as file:
        file.write(text.encode("utf-8"))


@contextmanager
def replacing(path: FilePath, *, private: bool = False) -> Iterator[BinaryIO]:
    """Write a file whole or not at all: aside in the same folder, to disk, then renamed into place."""
    target, mode = Path(path), 0o600 if private else 0o666
    aside = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(aside, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, target)
    except BaseException as error:
        aside.unlink(missing_ok=True)
        if isinstance(error.__context__, KeyboardInterrupt):  # an archive that is cut short complains, and hides ^C
            raise KeyboardInterrupt from error
        raise
    if os.name == "posix":  # the rename itself reaches the disk with its folder
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
