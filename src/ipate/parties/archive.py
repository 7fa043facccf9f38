"""Npz files that are written in one pass and hashed by content: the same content is the same file, byte for byte."""

import hashlib
import json
import os
import secrets
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.errors import InputError

__all__ = ["NpzWriter", "array_sha256", "canonical", "new_npz", "require_new", "sha256"]

_BLOCK = 1 << 24  # bytes of an array looked at in one go
_EPOCH = (1980, 1, 1, 0, 0, 0)  # no clock in a file: two that hold the same are the same


def canonical(payload: Any) -> bytes:
    """Return JSON in one spelling alone: sorted keys, no spaces, UTF-8; numbers that do not exist are refused."""
    return json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def sha256(data: bytes) -> str:
    """Return the SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def array_sha256(array: NDArray[Any]) -> str:
    """Return the SHA-256 of an array's type, shape and elements; a mapped file is never all in memory."""
    digest = _begin(array.dtype, array.shape)
    rows = max(1, _BLOCK // max(1, array[:1].nbytes))
    for start in range(0, len(array), rows):
        digest.update(_bytes(array[start : start + rows], array.dtype))
    return str(digest.hexdigest())


def _begin(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    return hashlib.sha256(f"{_little(dtype).str} {list(shape)}\n".encode())


def _little(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype.newbyteorder("<")


def _bytes(block: NDArray[Any], dtype: np.dtype[Any]) -> bytes:
    return np.ascontiguousarray(block, dtype=_little(dtype)).tobytes()


class NpzWriter:
    """The members of an npz file, added one after the other; made by `new_npz`."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive

    def add(self, name: str, array: NDArray[Any]) -> str:
        """Add an array; returns its `array_sha256`."""
        return self.stream(name, dtype=array.dtype, shape=array.shape, blocks=[array])

    def stream(self, name: str, *, dtype: np.dtype[Any], shape: tuple[int, ...], blocks: Iterable[NDArray[Any]]) -> str:
        """Add an array block by block, so that it need not be in memory at once; returns its `array_sha256`."""
        digest = _begin(dtype, shape)
        info = zipfile.ZipInfo(f"{name}.npy", date_time=_EPOCH)
        with self._archive.open(info, "w", force_zip64=True) as stream:
            header = {"descr": _little(dtype).str, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(stream, header)
            for block in blocks:
                data = _bytes(block, dtype)
                digest.update(data)
                stream.write(data)
        return str(digest.hexdigest())


@contextmanager
def new_npz(path: Path) -> Iterator[NpzWriter]:
    """Write an npz file, whole or not at all, readable by its owner alone: aside, to disk, then renamed into place."""
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(os.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                yield NpzWriter(archive)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def require_new(path: Path) -> None:
    """Refuse a path that is taken, or whose folder is not there, before any work is done for it."""
    if path.exists():
        raise InputError(f"{path}: is already there and is not overwritten; name another file, or remove it")
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent} to put it into; make it first")
