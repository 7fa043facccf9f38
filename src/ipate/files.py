"""CSV tables: strict ones, and files of people, of which no private cell refuses anything.

Files: atomic writes, locks between processes, strict CSV tables, and npz and npy arrays without pickle.
"""

import csv
import hashlib
import io
import json
import math
import os
import re
import secrets
import struct
import sys
import time
import zipfile
import zlib
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableSequence, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, takewhile
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, Self, TextIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ipate.errors import LIMITS, InputError, IpateError, nearest, show

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


__all__ = [
    "FileLock",
    "FilePath",
    "OpenCsv",
    "Table",
    "fingerprint",
    "json_text",
    "no_column",
    "open_csv",
    "plain_number",
    "read_npy",
    "read_npz",
    "read_table",
    "replacing",
    "write_csv",
    "write_text",
]

if sys.platform == "win32":
    import msvcrt

    def _lock(handle: int, *, shared: bool) -> None:  # Windows offers exclusive locks only
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)

    def _unlock(handle: int) -> None:
        msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)
        os.close(handle)
else:
    import fcntl

    def _lock(handle: int, *, shared: bool) -> None:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)

    def _unlock(handle: int) -> None:
        os.close(handle)  # LOCK_UN in a forked child would also unlock its parent


def write_text(path: FilePath, text: str, *, private: bool = False) -> None:
    """Write a text file atomically; a private file is never readable by others, not even for a moment."""
    with replacing(path, private=private) as file:
        file.write(text.encode("utf-8"))


def write_csv(path: FilePath, header: Sequence[str], rows: Iterable[Sequence[Any]], *, newline: str = "\n") -> None:
    """Write a csv file atomically."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator=newline)
    writer.writerow(header)
    writer.writerows(rows)
    write_text(path, text.getvalue())


@contextmanager
def replacing(path: FilePath, *, private: bool = False) -> Iterator[BinaryIO]:
    """Write a file atomically: to a temporary file in the same folder, flushed to disk, then renamed."""
    target, mode = Path(path), 0o600 if private else 0o666
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error.__context__, KeyboardInterrupt):  # zipfile replaces ^C by an error of its own
            raise KeyboardInterrupt from error
        raise
    if os.name == "posix":  # the rename reaches the disk with its folder
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


class FileLock:
    """An exclusive lock between processes, held from construction to `release` or to the end of the process.

    Construction waits up to `timeout` seconds for another process and then raises `refusal`. The lock file stays in
    place, since deleting it would let two processes lock two files of the same name.
    """

    def __init__(self, path: Path, *, refusal: IpateError, timeout: float = 0.0, private: bool = False) -> None:
        self.path = path
        self._handle: int | None = None
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600 if private else 0o666)
        deadline = time.monotonic() + timeout
        try:
            while not _try_lock(handle):
                if time.monotonic() >= deadline:
                    raise refusal
                time.sleep(0.02)
        except BaseException:
            os.close(handle)
            raise
        self._handle = handle

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Release the lock, if it is held."""
        if self._handle is not None:
            _unlock(self._handle)
            self._handle = None

    @staticmethod
    def is_held(path: Path) -> bool:
        """Return whether a process holds this lock now; to find out, the lock is itself taken for an instant."""
        if not path.is_file():
            return False
        handle = os.open(path, os.O_RDONLY)
        if _try_lock(handle, shared=True):
            _unlock(handle)
            return False
        os.close(handle)
        return True


def _try_lock(handle: int, *, shared: bool = False) -> bool:
    try:
        _lock(handle, shared=shared)
    except OSError:
        return False
    return True


_BLOCK = 1 << 24  # bytes read at once; uncompressed arrays above this size are memory-mapped
_NARROW = 1 << 15  # wide integers below this are stored as int16
_UNREADABLE = (
    EOFError,
    MemoryError,
    OSError,
    RuntimeError,
    ValueError,  # RuntimeError: encrypted, unknown compression
    struct.error,
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
)


def read_npz(file: Path, names: Collection[str] | None = None) -> dict[str, NDArray[Any]]:
    """Read the arrays of an npz file that have one of `names`, or all; arrays that need pickle are refused.

    Large uncompressed members are memory-mapped; compressed `votes` of wide integers are narrowed to int16 while
    they are read, so that a million queries fit into memory.
    """
    with _refusing_damage(file, "npz"), zipfile.ZipFile(file) as archive:
        return {
            name: _read_member(file, archive, info, name)
            for info in archive.infolist()
            if (name := info.filename.removesuffix(".npy")) and (names is None or name in names)
        }


def write_npz(path: FilePath, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays to a compressed npz file, whole or not at all."""
    with replacing(path) as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def read_npy(file: Path) -> NDArray[Any]:
    """Read an npy file without pickle; a large one is memory-mapped."""
    with _refusing_damage(file, "npy"), file.open("rb") as stream:
        return _read_array(stream, file, "the array", available=file.stat().st_size, offset=0)


@contextmanager
def _refusing_damage(file: Path, kind: str) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except _UNREADABLE as error:
        raise InputError(f"{file}: not a readable {kind} file ({error})") from error


def _read_member(file: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> NDArray[Any]:
    stored = info.compress_type == zipfile.ZIP_STORED
    offset = _data_offset(file, info) if stored else None
    with archive.open(info) as stream:
        return _read_array(stream, file, f"'{name}'", available=info.file_size, offset=offset, narrow=name == "votes")


def _read_array(
    stream: IO[bytes], file: Path, what: str, *, available: int, offset: int | None, narrow: bool = False
) -> NDArray[Any]:
    """Read an npy stream of `available` bytes; `offset` is its place in the file, if it lies there uncompressed."""
    major, _ = np.lib.format.read_magic(stream)
    header = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = header(stream)
    if dtype.hasobject:
        raise InputError(f"{file}: {what} holds Python objects and would need pickle, which is refused")
    order: Literal["C", "F"] = "F" if fortran else "C"
    start, size = stream.tell(), math.prod(shape) * dtype.itemsize
    if start + size > available:
        raise EOFError(f"{what} is shorter than its shape {shape} says")
    if offset is not None and size > _BLOCK:
        return np.memmap(file, dtype=dtype, mode="r", offset=offset + start, shape=shape, order=order)
    if narrow and len(shape) == 2 and not fortran and dtype.kind in "iu" and dtype.itemsize > 2:
        return _read_narrow(stream, shape, dtype, f"{file}: {what}")
    return np.frombuffer(stream.read(size), dtype=dtype).reshape(shape, order=order)


def _data_offset(file: Path, info: zipfile.ZipInfo) -> int:
    """Return where a stored member's bytes begin: after its local header, whose name and extra field may differ."""
    with file.open("rb") as raw:
        raw.seek(info.header_offset + 26)
        name, extra = struct.unpack("<HH", raw.read(4))
    return int(info.header_offset + 30 + name + extra)


def _read_narrow(stream: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any], what: str) -> NDArray[Any]:
    """Read a matrix of wide integers in blocks of rows and store it as int16."""
    array = np.empty(shape, dtype=np.int16)
    step = max(1, _BLOCK // max(1, shape[1] * dtype.itemsize))
    for start in range(0, shape[0], step):
        block = array[start : start + step]
        values = np.frombuffer(stream.read(block.size * dtype.itemsize), dtype=dtype).reshape(block.shape)
        if values.size and (values.min() < -_NARROW or values.max() >= _NARROW):
            bad = values[(values < -_NARROW) | (values >= _NARROW)].flat[0]
            raise InputError(f"{what} hold {bad}: class ids go from 0 up to {_NARROW - 1}")
        block[...] = values
    return array


def fingerprint(*parts: Any) -> str:
    """Return a hash of everything that votes depend on: arrays by content, estimators by all their parameters."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype}{part.shape}".encode())
            for start in range(0, len(part) if part.ndim else 0, 4096):
                digest.update(np.ascontiguousarray(part[start : start + 4096]).tobytes())
        elif hasattr(part, "get_params"):
            settings = sorted((name, repr(value)) for name, value in part.get_params(deep=True).items())
            digest.update(f"{type(part).__module__}.{type(part).__qualname__}{settings}".encode())
        else:
            digest.update(repr(part).encode())
        digest.update(b"\0")
    return digest.hexdigest()[:32]


def json_text(payload: dict[str, Any], *, ascii_only: bool = False) -> str:
    """Return a JSON object as indented text; NaN and infinities become null."""
    return json.dumps(_finite(payload), indent=2, allow_nan=False, ensure_ascii=ascii_only) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_ids(name: str, array: NDArray[Any] | None) -> tuple[str, ...] | None:
    """Return ids as strings, so that 1 and '1' are the same id; floats are refused, their text is not stable."""
    if array is None:
        return None
    if array.ndim != 1 or array.dtype.kind not in "iuUS":
        raise InputError(f"{name} are {array.dtype} of shape {array.shape}: they must be a list of ids")
    if array.dtype.kind == "S":
        try:
            array = np.char.decode(array, "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{name} contain {error.object!r}: ids must be text in UTF-8") from None
    return tuple(str(value).strip() for value in array.tolist())


def pack_arrays(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return arrays of numbers or text as bytes, the same on every platform."""
    plain = {name: np.asarray(array, dtype=array.dtype.newbyteorder("<")) for name, array in arrays.items()}
    stated = json.dumps({name: [array.dtype.str, array.shape] for name, array in plain.items()})
    return stated.encode() + b"\n" + zlib.compress(b"".join(array.tobytes() for array in plain.values()), 1)


def unpack_arrays(raw: bytes) -> dict[str, NDArray[Any]]:
    """Return the arrays that `pack_arrays` was given."""
    stated, _, packed = raw.partition(b"\n")
    body, start, found = zlib.decompress(packed), 0, {}
    for name, (kind, shape) in json.loads(stated).items():
        size = math.prod(shape) * np.dtype(kind).itemsize
        found[name] = np.frombuffer(body[start : start + size], dtype=kind).reshape(shape)
        start += size
    return found
