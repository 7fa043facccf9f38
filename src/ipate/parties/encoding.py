"""How every site must encode its rows: feature names, fixed public bounds and classes, agreed beforehand.

Nothing here is fitted. A scale fitted at a site would be a release that no account has paid for, and two sites
would end up with two scales; so the bounds are part of the public agreement, and whoever differs is refused.
"""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, model_validator

from ipate.data.scaling import images_to_float, make_scaler
from ipate.errors import InputError
from ipate.tables import read_table, show

__all__ = ["Encoding", "read_bounds"]

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
