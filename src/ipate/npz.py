"""Reading npz and npy files without pickle and without holding large plain members in memory."""

import math
import struct
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ipate.errors import InputError

__all__ = ["read_npy", "read_npz"]

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
