"""CSV tables: strict ones, and files of people, of which no private cell refuses anything."""

import csv
import os
import re
import secrets
from array import array
from collections.abc import Collection, Iterator, Mapping, MutableSequence, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, takewhile
from typing import Any, TextIO, TypeAlias

from ipate.errors import LIMITS, InputError, nearest, show

FilePath: TypeAlias = str | os.PathLike[str]
OpenCsv: TypeAlias = tuple[list[str], Iterator[list[str]], Sequence[int]]
"""The header of a csv file, its rows, and the first line of each row read so far, counted from 1."""


_END = f"\0{secrets.token_hex(8)}"  # marks the end of a file of people: a quote that is never closed swallows it


def plain_number(text: str) -> float | None:
    """Read a number in plain decimal notation; what Python accepts beyond that (1_000, other digits) is None."""
    if "_" in text or not text.isascii():
        return None
    try:
        return float(text)
    except ValueError:
        return None


def no_column(
    source: object, column: str, header: Sequence[str], *, known: Collection[str], role: str | None = None
) -> InputError:
    """Return the error for a column that a file of people lacks.

    Without a header, the first line of a csv file is a person's row. So names in it are told only if at least half of
    the other columns that are `known` to be declared, and one at least, are there.
    """
    others = {name for name in known if name != column}
    found = others.intersection(header)
    what = f"{source} has no column {show(column)}" + ("" if role is None else f" ({role})")
    if header and (not is_csv(source) or (found and 2 * len(found) >= len(others))):
        return InputError(f"{what}: nearest is {show(nearest(column, header))}")
    if (mark := separator(header)) is not None:
        return InputError(f"{what}: is its separator {mark}? Save it with commas")
    if len(others) > len(found):
        what += f", nor {', '.join(show(name) for name in sorted(others.difference(header))[:3])}"
    return InputError(
        f"{what}: its first line does not look like a header, and is not shown because it may be a person's row; the "
        "first line must have the names of the columns, separated by commas"
    )


def is_csv(source: object) -> bool:
    """Whether a source of rows is a csv file, of which nothing but the first line tells the names of columns."""
    return str(source).lower().endswith(".csv")


def separator(header: Sequence[str]) -> str | None:
    """Return what separates the cells of a first line if it is not the comma, in words."""
    counts = {name: sum(cell.count(mark) for cell in header) for name, mark in (("';'", ";"), ("a tab", "\t"))}
    most = max(counts, key=lambda name: counts[name])
    return most if counts[most] > len(header) - 1 else None


def _refuse_encoding(path: FilePath) -> None:
    """Refuse a file whose first line holds zero bytes: it is text in UTF-16, or no text."""
    with open(path, "rb") as file:
        line = file.readline(1 << 16)
    if line.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in line:
        raise InputError(
            f"{path} is not text in UTF-8: is it UTF-16, or a workbook? Save it as a csv file in UTF-8, with commas"
        )


@contextmanager
def open_csv(
    path: FilePath,
    *,
    header: str = "column names",
    consent: Collection[str] | None = None,
    malformed: MutableSequence[int] | None = None,
) -> Iterator[OpenCsv]:
    """Open a csv file in UTF-8; a byte order mark and CRLF are accepted.

    An empty file, ragged rows, blank lines before the end and a file without rows are refused; `header` names
    what an empty file lacks. `consent` marks a file of people and names its columns of ids and consent: other cells are
    private and refuse nothing. Bytes that are not UTF-8 are replaced, and the private cells of a ragged row are empty;
    it is refused only if the columns of `consent` are not the first ones. `malformed` collects the lines of such rows.
    """
    lenient = consent is not None
    try:
        _refuse_encoding(path)
        how: dict[str, Any] = {"newline": "\n", "errors": "replace"} if lenient else {"newline": ""}
        with open(path, encoding="utf-8-sig", **how) as file:
            reader = csv.reader(_lenient_lines(file) if lenient else file, strict=not lenient)
            try:
                names = [cell.strip() for cell in next(reader, [])]
                if not any(names) or names == [_END]:
                    raise InputError(f"{path} is empty or starts with a blank line: it must start with {header}")
                lines = array("q")
                first = sum(1 for _ in takewhile((consent or ()).__contains__, names))
                located = lenient and set(names[first:]).isdisjoint(consent or ())
                bad = [] if malformed is None else malformed
                rows = _csv_rows(reader, str(path), len(names), lines, kept=first if located else None, malformed=bad)
                yield names, rows, lines
            except csv.Error as error:
                raise InputError(f"{path}, line {reader.line_num} is not valid CSV: {error}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        bad_byte = error.object[error.start : error.start + 1]
        raise InputError(f"{path} holds the byte {bad_byte!r}: a csv file must be text in UTF-8") from None


def _lenient_lines(file: TextIO) -> Iterator[str]:
    """Yield the lines of a file of people and its end mark; a carriage return within a line is a space.

    Only if the header holds one, it ends lines: the header is public.
    """
    csv.field_size_limit(2**31 - 1)
    first = next(file, "")
    if "\r" in first.rstrip("\r\n"):
        yield from (
            line for part in chain([first], file) for line in re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", part)
        )
    else:
        yield first
        for line in file:
            body = line.rstrip("\r\n")
            yield line if "\r" not in body else body.replace("\r", " ") + line[len(body) :]
    yield _END


def _csv_rows(
    reader: Any,
    name: str,
    width: int,
    lines: MutableSequence[int],
    *,
    kept: int | None,
    malformed: MutableSequence[int],
) -> Iterator[list[str]]:
    """Yield the rows; of a ragged row the first `kept` cells, or if that is None, a refusal."""
    start, blank = reader.line_num + 1, 0
    for record in reader:
        line, start = start, reader.line_num + 1
        if not record:
            blank = blank or line
            continue
        if record == [_END]:
            break
        if record[-1].endswith(_END):
            raise InputError(f"{name}, line {line} has a quote that is never closed: close it, or remove it")
        if blank:
            raise InputError(f"{name}, line {blank} is blank: blank lines are allowed only at the end of a file")
        if len(record) != width:
            if kept is None or len(record) < kept:
                raise InputError(
                    f"{name}, line {line} has {len(record)} cells: it must have {width}, as the header has"
                )
            malformed.append(line)
            record = record[:kept] + [""] * (width - kept)  # noqa: PLW2901
        lines.append(line)
        yield record
    if not lines:
        raise InputError(f"{name} has a header and no rows: it must have at least one row")


@dataclass(frozen=True, kw_only=True)
class Table:
    """The requested columns of one csv file, as text without surrounding spaces, and the first line of each row."""

    path: str
    lines: Sequence[int]
    columns: Mapping[str, Sequence[str]]

    def where(self, row: int) -> str:
        """Return the file and line of a row, for error messages."""
        return f"{self.path}, line {self.lines[row]}"

    def texts(self, column: str) -> Sequence[str]:
        """Return a column's cells; an empty cell is refused."""
        cells = self.columns[column]
        if "" in cells:
            place = self.where(cells.index(""))
            raise InputError(f"{place}: {column} is missing: every row needs a value in this column")
        return cells

    def numbers(self, column: str, kind: str, *, optional: bool = False) -> list[float | None]:
        """Return a column as numbers within the limits of `kind`; an empty cell is None if `optional`."""
        cells = self.columns[column] if optional else self.texts(column)
        test, allowed = LIMITS[kind]
        numbers = {cell: plain_number(cell) for cell in set(cells)}
        bad = {cell for cell, number in numbers.items() if cell and (number is None or not test(number))}
        if bad:
            row = next(row for row, cell in enumerate(cells) if cell in bad)
            raise InputError(f"{self.where(row)}: {column} is {show(cells[row])}: {allowed}")
        return [numbers[cell] for cell in cells]


def read_table(
    path: FilePath,
    *,
    required: Sequence[str],
    optional: Sequence[str] = (),
    others: bool = False,
    people: bool = False,
) -> Table:
    """Read the named columns of a csv file; other columns are skipped if `others`, else refused.

    Duplicate column names are refused, and so is what `open_csv` refuses, where `people` marks a file of people.
    """
    consent = [*required, *optional] if people else None
    with open_csv(path, header=f"a header that has {', '.join(required)}", consent=consent) as (header, rows, lines):
        positions = _find_columns(header, str(path), required, optional, others, people=people)
        columns: dict[str, list[str]] = {column: [] for column in positions}
        keep = [(columns[column].append, position) for column, position in positions.items()]
        for row in rows:
            for append, position in keep:
                append(row[position])
    cells = {column: [cell.strip() for cell in texts] for column, texts in columns.items()}
    return Table(path=str(path), lines=lines, columns=cells)


def _find_columns(
    header: list[str], name: str, required: Sequence[str], optional: Sequence[str], others: bool, *, people: bool
) -> dict[str, int]:
    """Return the position of each column to read."""
    allowed = [*required, *optional]
    for position, column in enumerate(header):
        if column in header[:position] and (column in allowed or not others):
            raise InputError(f"{name}: duplicate column {show(column)}: column names must be unique")
        if column not in allowed and not others:
            raise InputError(f"{name}: the column {show(column)} is unknown: allowed are {', '.join(allowed)}")
    for column in required:
        if column not in header and people:
            raise no_column(name, column, header, known=allowed)
        if column not in header:
            found = ", ".join(show(cell) for cell in header[:20])
            raise InputError(f"{name} has no column {show(column)}: it must have one; it has {found}")
    return {column: header.index(column) for column in allowed if column in header}
