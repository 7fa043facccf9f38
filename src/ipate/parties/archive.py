"""Npz files that are written in one pass and hashed by content: the same content is the same file, byte for byte."""

import hashlib
import json
import os
import secrets
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, model_validator

from ipate.data.dataset import images_to_float, make_scaler
from ipate.errors import InputError, show
from ipate.files import read_table

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


Names = tuple[str, ...]
_OUTSIDE = 0.5  # the share of rows outside a feature's bounds from which on its unit must be another


class Encoding(BaseModel):
    """What a row is, the same at every site and for the queries.

    Attributes
    ----------
    classes : tuple of str
        The class set, in order; public.
    features : tuple of str
        The features' names, in order; empty for images.
    bounds : tuple of (low, high), optional
        Fixed and public: each feature is mapped from its bounds to [0, 1], and what lies outside is cut.
    shape : tuple of int
        The shape of a row: the number of features, or an image's height, width and channels.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    classes: Names
    features: Names = ()
    bounds: tuple[tuple[float, float], ...] | None = None
    shape: tuple[int, ...]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(set(self.classes)) < max(2, len(self.classes)):
            raise ValueError(f"classes are {show(self.classes)}: there must be at least two, all different")
        if not all(name.strip() for name in self.classes):
            raise ValueError(f"classes are {show(self.classes)}: one has no name")
        if len(self.shape) == 1 and (len(set(self.features)) != self.shape[0] or len(self.features) != self.shape[0]):
            raise ValueError(f"there are {len(set(self.features))} feature names for {self.shape[0]} features")
        if len(self.shape) > 1 and (self.features or self.bounds is not None):
            raise ValueError("images have neither feature names nor bounds: pixels are 8-bit, or lie in [0, 1]")
        if self.bounds is not None and len(self.bounds) != len(self.features):
            raise ValueError(f"there are bounds for {len(self.bounds)} of {len(self.features)} features")
        return self

    def transform(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return rows as teachers see them: scaled by the bounds, images as one line of numbers in [0, 1]."""
        if len(self.shape) > 1:
            return images_to_float(X).reshape(len(X), -1)
        return X if self.bounds is None else make_scaler(bounds=self.bounds).transform(X)

    def check_rows(self, X: NDArray[Any], *, file: str) -> None:
        """Refuse rows of another shape, and a feature that lies mostly outside its bounds: its unit is another."""
        if X.shape[1:] != self.shape:
            raise InputError(f"{file}: a row has the shape {X.shape[1:]}: the queries have {self.shape}")
        if self.bounds is None:
            return
        (low, high), values = np.array(self.bounds).T, X
        outside = np.mean((values < low) | (values > high), axis=0)
        worst = int(np.argmax(outside))
        if outside[worst] > _OUTSIDE:
            raise InputError(
                f"{file}: feature {show(self.features[worst])} lies outside the bounds {self.bounds[worst]} in most "
                "rows: bring it into the unit that the queries have"
            )

    def differences(self, other: "Encoding") -> str:
        """Say in words what another encoding has otherwise; empty where nothing differs."""
        if self.classes != other.classes:
            return f"its classes are {show(self.classes)}, not {show(other.classes)}"
        if self.features != other.features:
            return f"its features are {show(self.features)}, not {show(other.features)}"
        if self.shape != other.shape:
            return f"its rows have the shape {self.shape}, not {other.shape}"
        if self.bounds is None or other.bounds is None:
            return "" if self.bounds == other.bounds else "one has bounds and the other has none"
        for name, mine, theirs in zip(self.features, self.bounds, other.bounds, strict=True):
            if mine != theirs:
                return f"its bounds of feature {show(name)} are {mine}, not {theirs}"
        return ""


def read_bounds(path: str, features: Sequence[str]) -> tuple[tuple[float, float], ...]:
    """Read a csv with `feature,low,high`, one row per feature in any order."""
    table = read_table(path, required=("feature", "low", "high"))
    found: dict[str, tuple[float, float]] = {}
    for row, name in enumerate(table.texts("feature")):
        if name not in features or name in found:
            wrong = "stands twice" if name in found else "is no feature of the queries"
            raise InputError(f"{table.where(row)}: {show(name)} {wrong}; the features are {show(tuple(features))}")
        try:
            found[name] = (float(table.texts("low")[row]), float(table.texts("high")[row]))
        except ValueError:
            raise InputError(f"{table.where(row)}: low and high must be numbers") from None
        if not -np.inf < found[name][0] < found[name][1] < np.inf:
            raise InputError(f"{table.where(row)}: the bounds are {found[name]}: low must be below high, both finite")
    for name in features:
        if name not in found:
            raise InputError(f"{path}: there are no bounds for feature {show(name)}: every feature needs them")
    return tuple(found[name] for name in features)
