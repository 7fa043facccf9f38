"""Columns of a csv file as text or numbers: by pyarrow where it is installed, else by Python, with equal results.

A cell of a file of people must not change how other cells are read. So pyarrow is used only where it reads a file as
Python's csv module does, and every cell is judged alone (`ipate.data.cells`).

Raw tables: named columns from csv, parquet and npz files, DataFrames and mappings, before any encoding.
"""

import csv
import io
import re
import zipfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.data import cells
from ipate.data.cells import MISSING
from ipate.data.columns import Where
from ipate.errors import InputError, nearest, show
from ipate.files import open_csv, read_npz

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
    """Read the named columns of a csv file, as described at `ipate.data.raw.open_table`."""
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


SUFFIXES = (".csv", ".parquet", ".pq", ".npz")


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """Columns of equal length by name, as numpy arrays or pyarrow columns; `where` names a row for a message."""

    source: str
    names: tuple[str, ...]
    columns: Mapping[str, Any]
    n_rows: int
    where: Where
    malformed: int = 0  # rows of a csv file with too many or too few cells, whose private cells are missing
    images: NDArray[Any] | None = None  # the array X of an npz file, if it holds images
    classes: tuple[str, ...] | None = None  # the class set, if an npz file states it

    def column(self, name: str, *, role: str = "feature") -> Any:
        """Return a column; one that is not there is refused with the nearest name."""
        if name not in self.columns:
            near = f": nearest is {show(nearest(name, self.names))}" if self.names else ""
            raise InputError(f"{self.source} has no column {show(name)} ({role}){near}")
        return self.columns[name]

    def take(self, rows: NDArray[np.int64]) -> "Table":
        """Return these rows, in this order."""
        taken = {
            name: values[rows] if isinstance(values, np.ndarray) else values.take(rows)
            for name, values in self.columns.items()
        }
        images = None if self.images is None else self.images[rows]
        where = self.where
        return replace(self, columns=taken, n_rows=len(rows), where=lambda row: where(int(rows[row])), images=images)


def open_table(
    source: Any,
    *,
    columns: Collection[str] | None = None,
    kinds: Mapping[str, str] | None = None,
    consent: Collection[str] | None = None,
) -> Table:
    """Read a table from a path, a DataFrame (pandas, polars, pyarrow) or a mapping of columns.

    Parameters
    ----------
    source
        A path that ends in .csv, .parquet or .npz (arrays by name; the columns of `X` are named by `feature_names`,
        else x0, x1, …), a DataFrame, or a mapping from names to one-dimensional arrays.
    columns
        The columns to read, if they exist. Default: all.
    kinds
        What columns of a csv file hold, if this is known: "number", or "category" and "date" for texts of which many
        are equal. They are read faster then.
    consent
        For a file of people: the columns of ids and consent. A malformed row of a csv file is then refused only if
        these cannot be located in it; its other cells are missing. Default: a public file, of which every malformed
        row is refused.
    """
    if isinstance(source, str) or hasattr(source, "__fspath__"):
        return _from_file(Path(source), columns, kinds or {}, consent)
    if isinstance(source, Mapping):
        found = {str(name): _column(values) for name, values in source.items()}
        return _checked("the table", tuple(found), found)
    import narwhals.stable.v2 as nw

    frame = nw.from_native(source, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        raise InputError(f"the table is a {type(source).__name__}: it must be a DataFrame, a mapping or a file's path")
    names = tuple(str(name) for name in frame.columns)
    if len(set(names)) < len(names):
        raise InputError("the table has duplicate column names: column names must be unique")
    wanted = [(own, name) for own, name in zip(frame.columns, names, strict=True) if columns is None or name in columns]
    return _checked("the table", names, {name: frame[own].to_numpy() for own, name in wanted}, n_rows=len(frame))


def _column(values: Any) -> NDArray[Any]:
    """Return a column of a mapping; a list that holds more than numbers keeps each cell as it is."""
    plain = all(isinstance(cell, int | float | np.number) for cell in values) if isinstance(values, list) else True
    return np.asarray(values if plain else cells.alone(values))


def _checked(source: str, names: Sequence[str], columns: Mapping[str, Any], n_rows: int | None = None) -> Table:
    length = len(next(iter(columns.values()), ())) if n_rows is None else n_rows
    for name, values in columns.items():
        if values.shape != (length,):
            raise InputError(f"{source}: column {show(name)} has the shape {values.shape}: it must be ({length},)")
    if not length:
        raise InputError(f"{source} has no rows: it must have at least one")
    where = partial("{}, row {}".format, source)
    return Table(source=source, names=tuple(names), columns=columns, n_rows=length, where=where)


def _from_file(
    path: Path, columns: Collection[str] | None, kinds: Mapping[str, str], consent: Collection[str] | None
) -> Table:
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{path}: the suffix {show(suffix)} is unknown: it must be .csv, .parquet or .npz")
    if not path.is_file():
        raise InputError(f"{path} cannot be read: {'it is a folder' if path.is_dir() else 'No such file'}")
    if suffix == ".npz":
        return _from_npz(path, columns)
    if suffix != ".csv":
        return _from_parquet(path, columns, kinds)
    read = read_csv(path, columns=columns, kinds=kinds, consent=consent)
    return Table(
        source=str(path),
        names=read.names,
        columns=read.columns,
        n_rows=read.n_rows,
        where=read.where,
        malformed=read.malformed,
    )


def _from_npz(path: Path, columns: Collection[str] | None) -> Table:
    """Return the arrays of an npz file that have one entry per row, and each column of its X."""
    arrays = read_npz(path, npz_names(path))
    X, names, classes = arrays.pop("X", None), arrays.pop("feature_names", None), arrays.pop("classes", None)
    if X is None:
        raise InputError(f"{path} has no array 'X': it must hold the features; it has {', '.join(sorted(arrays))}")
    if X.ndim not in (2, 3, 4) or X.size == 0:
        raise InputError(f"{path}: 'X' has the shape {X.shape}: it must be (rows, features) or images, and not empty")
    if X.dtype.kind not in "fiub":
        raise InputError(f"{path}: 'X' is of type {X.dtype}: features must be numeric; encode them")
    named = [] if names is None else [str(name) for name in names.ravel()]
    if names is None and X.ndim == 2:
        named = [f"x{place}" for place in range(X.shape[1])]
    if len(named) != (X.shape[1] if X.ndim == 2 else 0) or len(set(named)) < len(named):
        raise InputError(f"{path}: 'feature_names' has {len(named)} names: X has the shape {X.shape}")
    found: dict[str, Any] = {name: X[:, place] for place, name in enumerate(named)}
    for name, values in arrays.items():
        if name in found or values.shape != (len(X),):
            wrong = f"has the shape {values.shape}" if name not in found else "is also the name of a feature"
            if columns is None or name in columns:
                raise InputError(f"{path}: {name!r} {wrong}: X has {len(X)} rows")
    found.update({name: values for name, values in arrays.items() if values.shape == (len(X),)})
    kept = {name: values for name, values in found.items() if columns is None or name in columns}
    stated = None if classes is None else tuple(str(name) for name in classes.ravel())
    table = _checked(str(path), (*named, *(name for name in arrays if name not in named)), kept, n_rows=len(X))
    return replace(table, images=None if X.ndim == 2 else X, classes=stated)


def npz_names(path: Path) -> list[str]:
    """Return the names of an npz file's arrays."""
    try:
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except (OSError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: not a readable npz file ({error})") from None


def header_of(source: Any) -> tuple[str, ...]:
    """Return the names of a table's columns, without reading its rows where that is possible."""
    if isinstance(source, str) or hasattr(source, "__fspath__"):
        path = Path(source)
        if path.suffix.lower() == ".csv" and not path.is_dir():
            with open_csv(path, consent=()) as (header, _, _):
                return tuple(header)
        return _from_file(path, (), {}, None).names
    return open_table(source, columns=()).names


def _from_parquet(path: Path, columns: Collection[str] | None, kinds: Mapping[str, str]) -> Table:
    """Read the named columns of a parquet file, and no others."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise InputError(
            f"{path}: parquet files need pyarrow, which is not installed: pip install 'ipate[parquet]'"
        ) from None
    try:
        equal = [name for name, kind in kinds.items() if kind in ("category", "date")]
        file = parquet.ParquetFile(path, read_dictionary=equal)
        names = tuple(file.schema_arrow.names)
        if len(set(names)) < len(names):
            raise InputError(f"{path} has duplicate column names: column names must be unique")
        wanted = [name for name in names if columns is None or name in columns]
        table = file.read(columns=wanted)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {' '.join(str(error).split())}") from None
    except pa.ArrowException as error:
        raise InputError(f"{path} is not a readable parquet file: {' '.join(str(error).split())}") from None
    if not names or not table.num_rows:
        raise InputError(f"{path} has no rows: it must have at least one")
    found = {name: table.column(name) for name in wanted}
    where = partial("{}, row {}".format, path)
    return Table(source=str(path), names=names, columns=found, n_rows=table.num_rows, where=where)
