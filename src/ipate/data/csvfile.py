"""Columns of a csv file as text or numbers: by pyarrow where it is installed, else by Python, with equal results.

A cell of a file of people must not change how other cells are read. So pyarrow is used only where it reads a file as
Python's csv module does, and every cell is judged alone (`ipate.data.cells`).
"""

import csv
import io
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ipate.data.cells import MISSING
from ipate.data.columns import Where
from ipate.errors import InputError, show
from ipate.files import open_csv

_BLOCK = 1 << 22  # bytes that pyarrow parses at once
_NEWLINE = ord("\n")
_NULLS = sorted({form for word in MISSING for form in (word, word.upper(), word.title(), word.capitalize(), "NaN")})


@dataclass(frozen=True, kw_only=True, eq=False)
class CsvColumns:
    """The header of a csv file, the columns that were read, and the number of malformed rows."""

    names: tuple[str, ...]
    columns: Mapping[str, Any]
    n_rows: int
    where: Where
    malformed: int = 0


def read_csv(
    path: Path,
    *,
    columns: Collection[str] | None = None,
    kinds: Mapping[str, str],
    consent: Collection[str] | None = None,
) -> CsvColumns:
    """Read the named columns of a csv file, as described at `ipate.data.tables.open_table`."""
    with open_csv(path, consent=consent) as (header, _, _):
        names = tuple(header)
    wanted = [name for name in names if columns is None or name in columns]
    for name in wanted:
        if header.count(name) > 1:
            raise InputError(f"{path}: duplicate column {show(name)}: column names must be unique")
    places = {name: header.index(name) for name in wanted}
    found = _by_pyarrow(path, names, places, kinds) if find_spec("pyarrow") else None
    if found is None:
        return _by_python(path, names, places, consent)
    n_rows, read = found
    return CsvColumns(names=names, columns=read, n_rows=n_rows, where=_line(path))


def _line(path: Path) -> Where:
    """Return the place of a row in a file that has one line per row below its header, or count its lines."""

    def where(row: int) -> str:
        with open_csv(path, consent=()) as (_, rows, lines):
            for _ in zip(range(row + 1), rows, strict=False):
                pass
            return f"{path}, line {lines[row]}"

    return where


def _by_python(
    path: Path, names: tuple[str, ...], places: Mapping[str, int], consent: Collection[str] | None
) -> CsvColumns:
    cells: dict[str, list[str]] = {name: [] for name in places}
    keep = [(cells[name].append, place) for name, place in places.items()]
    malformed: list[int] = []
    with open_csv(path, consent=consent, malformed=malformed) as (_, rows, lines):
        for row in rows:
            for append, place in keep:
                append(row[place])
    found = {name: np.array(own, dtype=object) for name, own in cells.items()}

    def where(row: int) -> str:
        return f"{path}, line {lines[row]}"

    return CsvColumns(names=names, columns=found, n_rows=len(lines), where=where, malformed=len(malformed))


def _by_pyarrow(
    path: Path, header: Sequence[str], places: Mapping[str, int], kinds: Mapping[str, str]
) -> tuple[int, dict[str, Any]] | None:
    """Read a file that pyarrow and Python's csv module read alike; None for every other file."""
    import pyarrow as pa
    from pyarrow import csv as arrow

    whole = pa.memory_map(str(path)).read_buffer()
    view, width = memoryview(whole), len(header)
    line = re.match(rb"(?:\xef\xbb\xbf)?([^\r\n]*)\r?\n", view)
    if line is None or width < 2 or not _one_line(line[1], header):
        return None
    end = len(view) - len(re.search(rb"[\r\n]*\Z", bytes(view[-64:]))[0])  # type: ignore[index]
    quotes = None if end <= line.end() else _quoted(view[line.end() - 1 : end])
    if quotes is None:
        return None
    body = whole.slice(line.end(), end - line.end())
    last = str(width - 1)
    index = {**{str(place): name for name, place in places.items()}, last: header[-1]}
    parse = arrow.ParseOptions(newlines_in_values=quotes, ignore_empty_lines=False)
    reading = arrow.ReadOptions(column_names=[str(place) for place in range(width)], block_size=_BLOCK)
    for direct in (True, False):  # numbers as such, or if some cell is none, all cells as text
        types = {key: _type(kinds.get(name), direct=direct) for key, name in index.items()}
        convert = arrow.ConvertOptions(
            column_types=types, include_columns=list(index), null_values=_NULLS, strings_can_be_null=False
        )
        source = pa.PythonFile(_Ended(body, width), mode="r") if quotes else pa.BufferReader(body)
        try:
            table = arrow.read_csv(source, read_options=reading, parse_options=parse, convert_options=convert)
        except pa.ArrowInvalid:
            continue
        if quotes and table.column(last)[-1].as_py():
            return None  # a quote that is never closed has swallowed the end
        n_rows = table.num_rows - int(quotes)
        return n_rows, {name: table.column(str(place)).slice(0, n_rows) for name, place in places.items()}
    return None


def _type(kind: str | None, *, direct: bool) -> Any:
    """Return the type as which pyarrow reads a column."""
    import pyarrow as pa

    if kind == "number" and direct:
        return pa.float64()
    return pa.dictionary(pa.int32(), pa.string()) if kind in ("category", "date") else pa.string()


def _quoted(view: memoryview) -> bool | None:
    """Whether a file has quotes; None if it has blank lines, or carriage returns that end no line."""
    quotes = False
    for start in range(0, len(view), _BLOCK):
        block = bytes(view[start : start + _BLOCK + 2])  # blocks overlap by two bytes
        ends = np.frombuffer(block, dtype=np.uint8) == _NEWLINE  # faster than a search for two of them
        if (ends[1:] & ends[:-1]).any() or (
            b"\r" in block and re.search(rb"\r(?![\n\r]|\Z)|\r\r|\n\r\n", block) is not None
        ):
            return None
        quotes = quotes or b'"' in block
    return quotes


def _one_line(line: bytes, header: Sequence[str]) -> bool:
    """Whether the header is this line: a quoted name may also go on in the next one."""
    try:
        return [cell.strip() for cell in next(csv.reader([line.decode("utf-8")], strict=True), [])] == list(header)
    except (csv.Error, UnicodeDecodeError):
        return False


class _Ended(io.RawIOBase):
    """Rows followed by one empty row, which a quote that is never closed swallows."""

    def __init__(self, body: Any, width: int) -> None:
        self._parts = [memoryview(body), memoryview(b"\n" + b"," * (width - 1) + b"\n")]

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        while self._parts and not len(self._parts[0]):
            del self._parts[0]
        if not self._parts:
            return b""
        head = self._parts[0] if size < 0 else self._parts[0][:size]
        self._parts[0] = self._parts[0][len(head) :]
        return bytes(head)

    def readable(self) -> bool:
        """Return True."""
        return True
