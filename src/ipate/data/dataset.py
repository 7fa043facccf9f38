"""The result of a loader: rows, classes and consent. And scalers that depend on no private row."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ipate.errors import InputError, show

_PER_ROW = ("y", "levels", "epsilon", "person_id")


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """Rows with their classes and, where known, each row's consent level or ε and its person.

    The class set is public: it is stated by the maker of the data, never read off private labels silently. Arrays are
    read-only.

    Parameters
    ----------
    name : str
        The name of the data set.
    X : array
        A table (rows × features), or images: (N, H, W) or (N, H, W, C), 8-bit or floats in [0, 1].
    y : array of int
        The class of each row, as an index into `classes`.
    classes : tuple of str
        The class set.
    kind : {"table", "image"}
        What X holds.
    levels, epsilon : array, optional
        The consent level or the ε of each row; at most one of the two.
    person_id : array of str, optional
        The person of each row. Default: every row is a person of its own.
    feature_names : tuple of str
        The names of a table's columns.
    bounds : array, optional
        Fixed public bounds (features × 2) of a table's values.
    test_rows : array of int, optional
        The rows of the official test part.
    notes : tuple of str
        What was dropped or changed, in sentences.
    source, licence : str
        The origin of the data and its licence.
    """

    name: str
    X: NDArray[Any]
    y: NDArray[np.int64]
    classes: tuple[str, ...]
    kind: Literal["table", "image"] = "table"
    levels: NDArray[np.str_] | None = None
    epsilon: NDArray[np.float64] | None = None
    person_id: NDArray[np.str_] | None = None
    feature_names: tuple[str, ...] = ()
    bounds: NDArray[np.float64] | None = None
    test_rows: NDArray[np.int64] | None = None
    notes: tuple[str, ...] = ()
    source: str = ""
    licence: str = ""

    def __post_init__(self) -> None:
        self._check_shapes()
        if len(set(self.classes)) < max(2, len(self.classes)):
            raise InputError(f"classes are {show(self.classes)}: there must be at least two, all different")
        if self.y.min() < 0 or self.y.max() >= self.n_classes:
            bad = int(np.flatnonzero((self.y < 0) | (self.y >= self.n_classes))[0])
            raise InputError(f"y of row {bad} is {self.y[bad]}: class indices go from 0 to {self.n_classes - 1}")
        if self.levels is not None and self.epsilon is not None:
            raise InputError("levels and epsilon are both given: a row has a consent level or an ε, not both")
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                view = value.view()
                view.flags.writeable = False
                object.__setattr__(self, field.name, view)

    def _check_shapes(self) -> None:
        allowed = {"table": (2,), "image": (3, 4)}.get(self.kind)
        if allowed is None:
            raise InputError(f"kind is {show(self.kind)}: it must be 'table' or 'image'")
        if self.X.ndim not in allowed or self.X.size == 0:
            shape = "(rows, features)" if self.kind == "table" else "(N, H, W) or (N, H, W, C)"
            raise InputError(
                f"X has the shape {self.X.shape}: for kind {self.kind!r} it must be {shape}, and not empty"
            )
        for name in _PER_ROW:
            value = getattr(self, name)
            if value is not None and value.shape != (self.n_rows,):
                raise InputError(
                    f"{name} has the shape {value.shape}: it must have one entry for each of {self.n_rows} rows"
                )
        if self.feature_names and (self.kind != "table" or len(self.feature_names) != self.X.shape[1]):
            raise InputError(f"feature_names has {len(self.feature_names)} names: X has the shape {self.X.shape}")

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self.X)

    @property
    def n_classes(self) -> int:
        """The number of classes, including those that do not occur."""
        return len(self.classes)

    def features(self, rows: NDArray[np.int64] | Sequence[int] | None = None, *, flat: bool = True) -> NDArray[Any]:
        """Return rows (default: all) as model input: tables unchanged, images as float32 in [0, 1].

        Each image is flattened to one row of numbers unless `flat` is False.
        """
        X = self.X if rows is None else self.X[np.asarray(rows)]
        if self.kind == "table":
            return X
        pixels = images_to_float(X)
        return pixels.reshape(len(pixels), -1) if flat else pixels

    def take(self, rows: NDArray[np.int64] | Sequence[int]) -> Self:
        """Return these rows, in this order, as a data set without an official test part."""
        index = np.asarray(rows, dtype=np.int64)
        parts = {name: value[index] for name in ("X", *_PER_ROW) if (value := getattr(self, name)) is not None}
        return replace(self, **parts, test_rows=None)


Floats: TypeAlias = NDArray[np.floating[Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Scaler:
    """A fixed map (x − shift) / scale per feature, clipped to [lower, upper]; `basis` says what it is based on.

    `make_scaler` makes it from public numbers only, so it may be published with the student.
    """

    shift: NDArray[np.float64]
    scale: NDArray[np.float64]
    lower: float
    upper: float
    basis: str

    def transform(self, X: ArrayLike) -> Floats:
        """Scale a table; float32 stays float32, everything else becomes float64."""
        table = np.asarray(X)
        if table.ndim != 2 or table.shape[1] != len(self.shift):
            raise InputError(f"X has the shape {table.shape}: this scaler is for (rows, {len(self.shift)})")
        dtype = np.float32 if table.dtype == np.float32 else np.float64
        scaled: Floats = np.subtract(table, self.shift.astype(dtype), dtype=dtype)
        scaled /= self.scale.astype(dtype)
        return np.clip(scaled, self.lower, self.upper, out=scaled)


def make_scaler(
    *,
    bounds: ArrayLike | None = None,
    public: ArrayLike | None = None,
    method: Literal["range", "standard"] = "range",
) -> Scaler:
    """Make a scaler from fixed bounds or from public rows (rows × features); exactly one of the two is given.

    `bounds` are one (low, high) pair per feature. "range" maps [low, high] to [0, 1] and clips; "standard",
    which needs `public`, maps to mean 0 and variance 1 and clips at ±10. A constant feature becomes 0.
    """
    if (bounds is None) == (public is None):
        given = "neither is" if bounds is None else "both are"
        raise InputError(
            f"bounds and public: {given} given: a scaler uses fixed bounds or public rows, never private rows"
        )
    if method not in ("range", "standard"):
        raise InputError(f"method is {show(method)}: allowed are 'range' and 'standard'")
    if bounds is not None:
        if method == "standard":
            raise InputError("method is 'standard' with bounds: it needs the mean and variance of public=")
        return _from_bounds(np.asarray(bounds, dtype=np.float64))
    return _from_public(np.asarray(public, dtype=np.float64), method)


def _from_bounds(pairs: NDArray[np.float64]) -> Scaler:
    pairs = np.atleast_2d(pairs)
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise InputError(f"bounds have the shape {pairs.shape}: they must be (low, high) pairs, one per feature")
    low, high = pairs.T
    bad = np.flatnonzero(~(np.isfinite(low) & np.isfinite(high) & (low < high)))
    if len(bad):
        pair = (float(low[bad[0]]), float(high[bad[0]]))
        raise InputError(f"bounds of feature {bad[0]} are {pair}: low must be below high, and both finite")
    return Scaler(shift=low, scale=high - low, lower=0.0, upper=1.0, basis="fixed bounds")


def _from_public(rows: NDArray[np.float64], method: str) -> Scaler:
    if rows.ndim != 2 or rows.size == 0:
        raise InputError(f"public has the shape {rows.shape}: it must be (rows, features), and not empty")
    if not np.isfinite(rows).all():
        row, column = np.argwhere(~np.isfinite(rows))[0]
        raise InputError(f"public, row {row}, feature {column} is {rows[row, column]}: every value must be finite")
    shift, scale = (
        (rows.min(axis=0), np.ptp(rows, axis=0)) if method == "range" else (rows.mean(axis=0), rows.std(axis=0))
    )
    scale = np.where(scale > 0, scale, 1.0)
    lower, upper = (0.0, 1.0) if method == "range" else (-10.0, 10.0)
    return Scaler(shift=shift, scale=scale, lower=lower, upper=upper, basis=f"{len(rows):,} public rows")


def images_to_float(X: NDArray[Any]) -> NDArray[np.float32]:
    """Return images as float32 in [0, 1]: 8-bit pixels are divided by 255, floats must already lie in [0, 1]."""
    if X.dtype == np.uint8:
        return X.astype(np.float32) / np.float32(255)
    if X.dtype.kind != "f":
        raise InputError(f"images are of type {X.dtype}: they must be uint8, or floats in [0, 1]")
    if X.size and not (X.min() >= 0 and X.max() <= 1):
        raise InputError(
            f"images hold values from {X.min()} to {X.max()}: floats must lie in [0, 1]; 8-bit images are uint8"
        )
    return X.astype(np.float32)
