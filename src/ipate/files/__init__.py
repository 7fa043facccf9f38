"""Files: atomic writes, locks between processes, strict CSV tables, and npz and npy arrays without pickle."""

import csv
import hashlib
import io
import json
import math
import os
import secrets
import struct
import sys
import time
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, Self

import numpy as np
from numpy.typing import NDArray

from ipate.errors import InputError, IpateError
from ipate.files.tables import FilePath, OpenCsv, Table, no_column, open_csv, plain_number, read_table

__all__ = [
    "FileLock", "FilePath", "OpenCsv", "Table", "fingerprint", "json_text", "no_column", "open_csv", "plain_number",
    "read_npy", "read_npz", "read_table", "replacing", "write_csv", "write_text",
]  # fmt: skip

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
    EOFError, MemoryError, OSError, RuntimeError, ValueError,  # RuntimeError: encrypted, unknown compression
    struct.error, zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error,
)  # fmt: skip


def read_npz(file: Path, names: Collection[str]) -> dict[str, NDArray[Any]]:
    """Read the arrays of an npz file that have one of `names`; arrays that need pickle are refused.

    Large uncompressed members are memory-mapped; compressed `votes` of wide integers are narrowed to int16 while
    they are read, so that a million queries fit into memory.
    """
    with _refusing_damage(file, "npz"), zipfile.ZipFile(file) as archive:
        return {
            name: _read_member(file, archive, info, name)
            for info in archive.infolist()
            if (name := info.filename.removesuffix(".npy")) in names
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
