"""What a loader returns: rows, classes and consent, with a note of everything that was done to them."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from ipate.data.scaling import images_to_float
from ipate.errors import InputError
from ipate.tables import show

__all__ = ["Dataset"]

_PER_ROW = ("y", "levels", "epsilon", "person_id")


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """Rows with their classes, and, where known, each row's consent level or ε and the person it belongs to.

    The class set is public: it is stated by whoever made the data, never read off private labels in silence.
    Arrays cannot be written to.

    Parameters
    ----------
    X
        A table (rows × features), or images: (N, H, W) or (N, H, W, C), 8-bit or floats in [0, 1].
    y
        The class of each row, as an index into `classes`.
    kind
        "table" or "image".
    levels, epsilon
        The consent level or the ε of each row; at most one of the two.
    person_id
        Whose each row is; without it every row is a person of its own.
    bounds
        The fixed, public bounds (features × 2) that every value of a table lies in, where there are such.
    test_rows
        The rows of the official test part, where the makers of the data set have fixed one.
    notes
        Whatever was dropped or changed, in sentences.
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
                f"X has the shape {self.X.shape}: for kind {self.kind!r} it must be {shape}, none of them 0"
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
        """How many rows there are."""
        return len(self.X)

    @property
    def n_classes(self) -> int:
        """How many classes there are, whether or not each of them occurs."""
        return len(self.classes)

    def features(self, rows: NDArray[np.int64] | Sequence[int] | None = None, *, flat: bool = True) -> NDArray[Any]:
        """Return rows (all unless given) as a model wants them: images as float32 in [0, 1], tables as they are.

        Images come as one line of numbers each, or in their own shape with `flat=False`.
        """
        X = self.X if rows is None else self.X[np.asarray(rows)]
        if self.kind == "table":
            return X
        pixels = images_to_float(X)
        return pixels.reshape(len(pixels), -1) if flat else pixels

    def take(self, rows: NDArray[np.int64] | Sequence[int]) -> Self:
        """Return these rows, in this order, as a data set of their own; its official test part is forgotten."""
        index = np.asarray(rows, dtype=np.int64)
        parts = {name: value[index] for name in ("X", *_PER_ROW) if (value := getattr(self, name)) is not None}
        return replace(self, **parts, test_rows=None)
