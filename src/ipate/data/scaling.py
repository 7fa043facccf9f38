"""Scaling by public knowledge: fixed bounds or public rows, and no way to fit on private ones by accident.

A scale that is fitted on private rows is a release of its own (their minimum, say) that no account has paid
for. So nothing here has a `fit`: a scaler is made from `bounds=` or `public=`, by name, or not at all.
"""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ipate.errors import InputError
from ipate.tables import show

__all__ = ["Scaler", "images_to_float", "make_scaler"]

Floats: TypeAlias = NDArray[np.floating[Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Scaler:
    """A fixed map (x − shift) / scale per feature, then cut to [lower, upper]; `basis` says what it rests on.

    Make one with `make_scaler`. It holds public numbers only, so it may be published with the student.
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
    """Make a scaler from fixed bounds or from public rows; exactly one of the two is given.

    Parameters
    ----------
    bounds
        (low, high) for all features, or one such pair per feature, known without looking at private data.
    public
        Rows (rows × features) that nobody's privacy depends on.
    method
        "range" maps [low, high] to [0, 1] and cuts what lies outside; "standard", with `public` alone,
        maps to mean 0 and variance 1 and cuts beyond ±10. A constant feature becomes 0.
    """
    if (bounds is None) == (public is None):
        given = "neither is" if bounds is None else "both are"
        raise InputError(
            f"bounds and public: {given} given: a scaler rests on fixed bounds or on public rows, never private"
        )
    if method not in ("range", "standard"):
        raise InputError(f"method is {show(method)}: allowed are 'range' and 'standard'")
    if bounds is not None:
        if method == "standard":
            raise InputError("method is 'standard' with bounds: it needs a mean and a variance, from public=")
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
        raise InputError(f"public has the shape {rows.shape}: it must be (rows, features), neither 0")
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
    """Return images as float32 in [0, 1]: 8-bit pixels are divided by 255, floats must lie there already."""
    if X.dtype == np.uint8:
        return X.astype(np.float32) / np.float32(255)
    if X.dtype.kind != "f":
        raise InputError(f"images are of type {X.dtype}: they must be uint8, or floats in [0, 1]")
    if X.size and not (X.min() >= 0 and X.max() <= 1):
        raise InputError(
            f"images hold values from {X.min()} to {X.max()}: floats must lie in [0, 1]; 8-bit images are uint8"
        )
    return X.astype(np.float32)
