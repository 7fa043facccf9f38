"""Files: atomic writes, locks between processes, strict CSV tables, and npz and npy arrays without pickle."""

import csv
import math
import os
import secrets
import struct
import sys
import time
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ipate.errors import LIMITS, InputError, IpateError, show

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


FilePath: TypeAlias = str | os.PathLike[str]


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


_BLOCK = 1 << 24  # bytes read in one go; stored members above this are mapped
_NARROW = 1 << 15  # wide integers below this are kept as int16
_UNREADABLE = (
    EOFError, MemoryError, OSError, RuntimeError, ValueError,  # RuntimeError: encrypted, unknown compression
    struct.error, zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error,
)  # fmt: skip


def read_npz(file: Path, names: Collection[str]) -> dict[str, NDArray[Any]]:
    """Read the arrays of an npz that are called one of `names`; whatever needs pickle is refused.

    Members stored plainly and large are mapped from disk; compressed matrices of wide integers are
    narrowed while they are read, so that a million queries fit.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            return {
                name: _read_member(file, archive, info, name)
                for info in archive.infolist()
                if (name := info.filename.removesuffix(".npy")) in names
            }
    except InputError:
        raise
    except _UNREADABLE as error:
        raise InputError(f"{file}: not a readable npz file ({error})") from error


def read_npy(file: Path) -> NDArray[Any]:
    """Read an npy file without pickle, mapped where it is large."""
    try:
        with file.open("rb") as stream:
            shape, fortran, dtype = _header(stream)
            start, size = stream.tell(), math.prod(shape) * dtype.itemsize
            if dtype.hasobject:
                raise InputError(f"{file}: holds Python objects and would need pickle, which is refused")
            if start + size > file.stat().st_size:
                raise EOFError(f"it is shorter than its shape {shape} says")
            order: Literal["C", "F"] = "F" if fortran else "C"
            if size > _BLOCK:
                return np.memmap(file, dtype=dtype, mode="r", offset=start, shape=shape, order=order)
            return np.frombuffer(stream.read(size), dtype=dtype).reshape(shape, order=order)
    except InputError:
        raise
    except _UNREADABLE as error:
        raise InputError(f"{file}: not a readable npy file ({error})") from error


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    major, _ = np.lib.format.read_magic(stream)
    header = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
    return header(stream)


def _read_member(file: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> NDArray[Any]:
    with archive.open(info) as stream:
        shape, fortran, dtype = _header(stream)
        if dtype.hasobject:
            raise InputError(f"{file}: '{name}' holds Python objects and would need pickle, which is refused")
        order: Literal["C", "F"] = "F" if fortran else "C"
        size = math.prod(shape) * dtype.itemsize
        if stream.tell() + size > info.file_size:
            raise EOFError(f"'{name}' is shorter than its shape {shape} says")
        if info.compress_type == zipfile.ZIP_STORED and size > _BLOCK:
            start = _data_offset(file, info) + stream.tell()
            return np.memmap(file, dtype=dtype, mode="r", offset=start, shape=shape, order=order)
        if name == "votes" and len(shape) == 2 and not fortran and dtype.kind in "iu" and dtype.itemsize > 2:
            return _read_narrow(stream, shape, dtype, f"{file}: {name}")
        return np.frombuffer(stream.read(size), dtype=dtype).reshape(shape, order=order)


def _data_offset(file: Path, info: zipfile.ZipInfo) -> int:
    """Where a stored member's bytes begin: behind its local header, whose lengths are its own."""
    with file.open("rb") as raw:
        raw.seek(info.header_offset + 26)
        name, extra = struct.unpack("<HH", raw.read(4))
    return int(info.header_offset + 30 + name + extra)


def _read_narrow(stream: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any], what: str) -> NDArray[Any]:
    """Read a matrix of wide integers a few rows at a time and keep it as int16."""
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
