"""The columns of csv, parquet and npz files: their roles, and the checks of their values."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.errors import LIMITS, InputError, nearest, show
from ipate.files import plain_number

Where = Callable[[int], str]
"""Returns the place of a row for a message: its line in a csv file, its row number in other formats."""


@dataclass(frozen=True, kw_only=True)
class Roles:
    """Which column holds what; `features` is None if all other columns are features."""

    label: str
    level: str | None = None
    epsilon: str | None = None
    person: str | None = None
    features: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.level is not None and self.epsilon is not None:
            raise InputError("level and epsilon are both named: a row has a consent level or an ε, not both")
        if self.features is not None and not self.features:
            raise InputError("features are empty: at least one column must be a feature")
        taken: dict[str, str] = {}
        for role, column in self.named():
            if column in taken:
                twice = f"column {show(column)} is named as {taken[column]} and as {role}"
                raise InputError(f"{twice}: it can be one of them")
            taken[column] = role

    def named(self) -> list[tuple[str, str]]:
        """Return the pairs (role, column) of all columns that are named."""
        single = [(role, getattr(self, role)) for role in ("label", "level", "epsilon", "person")]
        return [pair for pair in single if pair[1] is not None] + [("feature", name) for name in self.features or ()]

    def match(self, header: Sequence[str], *, file: str) -> tuple[str, ...]:
        """Check that every named column occurs exactly once, and return the feature columns."""
        for role, column in self.named():
            if column not in header:
                close = show(nearest(column, header))
                raise InputError(f"{file} has no column {show(column)} ({role}): nearest is {close}")
        single = {column for role, column in self.named() if role != "feature"}
        features = self.features or tuple(column for column in header if column not in single)
        if not features:
            others = ", ".join(sorted(single))
            raise InputError(f"{file} has no column other than {others}: at least one must be a feature")
        for column in (*single, *features):
            if header.count(column) > 1:
                raise InputError(f"{file}: duplicate column {show(column)}: column names must be unique")
        return features


@dataclass(frozen=True)
class Labels:
    """The labels of a file: the distinct ones as text, and for each row the index of its label among them."""

    names: Sequence[str]
    codes: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns of one file; `given` maps the other roles that it has to the column's name and values."""

    X: NDArray[Any]
    feature_names: tuple[str, ...]
    labels: Labels
    given: Mapping[str, tuple[str, NDArray[Any]]]
    where: Where
    classes: tuple[str, ...] | None = None  # the class set, if the file states it

    def text(self, role: str) -> NDArray[np.str_] | None:
        """Return each row's level or person, if the file has them."""
        if role not in self.given:
            return None
        name, values = self.given[role]
        return as_text(values, name, self.where)

    def epsilon(self) -> NDArray[np.float64] | None:
        """Return each row's ε, if the file has them; they come as numbers or as text."""
        if "epsilon" not in self.given:
            return None
        name, values = self.given["epsilon"]
        cells = values.tolist()
        numbers = np.array([plain_number(cell) if isinstance(cell, str) else cell for cell in cells], dtype=np.float64)
        test, allowed = LIMITS["epsilon"]
        bad = np.flatnonzero(~np.asarray(test(numbers)))
        if len(bad):
            cell = cells[bad[0]]
            found = "missing" if cell == "" else show(cell)
            raise InputError(f"{self.where(int(bad[0]))}: {name} is {found}: {allowed}")
        return numbers


def check_finite(X: NDArray[Any], names: Sequence[str], where: Where) -> None:
    """Refuse missing and infinite features; the message gives their number and the place of the first."""
    if X.dtype.kind != "f":
        return
    finite = np.isfinite(X)
    if finite.all():
        return
    first = tuple(int(index) for index in np.unravel_index(finite.argmin(), X.shape))
    column = show(names[first[1]]) if names else f"({', '.join(map(str, first[1:]))})"
    found = "missing" if np.isnan(X[first]) else "infinite"
    count, rows = X.size - int(finite.sum()), len(X) - int(finite.reshape(len(X), -1).all(axis=1).sum())
    raise InputError(
        f"{where(first[0])}: feature {column} is {found}, the first of {count:,} such values in {rows:,} of {len(X):,} "
        "rows: drop these rows, impute the values from public data, or exclude the column with features="
    )


def as_text(values: NDArray[Any], what: str, where: Where) -> NDArray[np.str_]:
    """Return ids, levels or labels as text without surrounding spaces; 3.0 becomes '3'."""
    if values.dtype.kind == "f":
        bad = ~np.isfinite(values) | (values != np.rint(values))
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            wrong = "missing" if math.isnan(values[row]) else show(values[row])
            raise InputError(f"{where(row)}: {what} is {wrong}: it must be text or a whole number, in every row")
        values = values.astype(np.int64)
    elif values.dtype.kind not in "iubU":
        raise InputError(f"{what} is of type {values.dtype}: it must be text or whole numbers")
    text: NDArray[np.str_] = values.astype(np.str_)
    if values.dtype.kind == "U":
        text = np.strings.strip(text)
        if (text == "").any():
            row = int(np.flatnonzero(text == "")[0])
            raise InputError(f"{where(row)}: {what} is missing: every row needs one")
    return text


def label_array(values: NDArray[Any], what: str, where: Where) -> Labels:
    """Encode the labels of an array."""
    checked = values if values.dtype.kind in "iu" else as_text(values, what, where)
    distinct, codes = np.unique(checked, return_inverse=True)
    return Labels([str(name) for name in distinct.tolist()], codes.astype(np.int64))


def place_labels(
    labels: Labels, classes: tuple[str, ...] | None, *, what: str, where: Where
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return each row's index in the class set, and the class set: the given one, or the sorted distinct labels."""
    if classes is not None and len(set(classes)) < max(2, len(classes)):
        raise InputError(f"classes are {show(classes)}: there must be at least two, all different")
    ordered = tuple(sorted(labels.names, key=_order)) if classes is None else classes
    if len(ordered) < 2:
        found = f"{what} has only the class {show(ordered[0])}"
        raise InputError(f"{found}: there must be at least two; state them with classes=")
    place = {name: position for position, name in enumerate(ordered)}
    for code, name in enumerate(labels.names):
        if name not in place:
            row = int(np.flatnonzero(labels.codes == code)[0])
            allowed = f"allowed are {show(', '.join(ordered))}; nearest is {show(nearest(name, ordered))}"
            raise InputError(f"{where(row)}: {what} is {show(name)}: {allowed}")
    return np.array([place[name] for name in labels.names], dtype=np.int64)[labels.codes], ordered


def _order(name: str) -> tuple[bool, float, str]:
    """Sort key: numbers by size, then words alphabetically."""
    try:
        return (False, float(name), name)
    except ValueError:
        return (True, 0.0, name)
