"""What csv, parquet and npz files have in common: which column is what, and which values cannot be used."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.data.words import nearest
from ipate.errors import InputError
from ipate.tables import LIMITS, show

__all__ = ["Columns", "Labels", "Roles", "as_text", "check_epsilon", "check_finite", "label_array", "place_labels"]

_BLOCK = 1 << 16  # rows looked at in one go

Where = Callable[[int], str]
"""Says where a row stands, counting as the file's own format does."""


@dataclass(frozen=True, kw_only=True)
class Roles:
    """Which column holds what; `features` are None when they are all the other columns."""

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
                raise InputError(
                    f"column {show(column)} is named as {taken[column]} and as {role}: it can be one of them"
                )
            taken[column] = role

    def named(self) -> list[tuple[str, str]]:
        """Return the roles and their columns, as far as they are named."""
        single = [(role, getattr(self, role)) for role in ("label", "level", "epsilon", "person")]
        return [pair for pair in single if pair[1] is not None] + [("feature", name) for name in self.features or ()]

    def match(self, header: Sequence[str], *, file: str) -> tuple[str, ...]:
        """Check that every named column is there, once, and return the features' columns."""
        for role, column in self.named():
            if column not in header:
                raise InputError(f"{file} has no column {show(column)} ({role}): nearest is {nearest(column, header)}")
        single = {column for role, column in self.named() if role != "feature"}
        features = self.features or tuple(column for column in header if column not in single)
        if not features:
            raise InputError(f"{file} has no column beside {', '.join(sorted(single))}: at least one must be a feature")
        for column in (*single, *features):
            if header.count(column) > 1:
                raise InputError(f"{file}: the column {show(column)} is there twice: names must differ")
        return features


@dataclass(frozen=True)
class Labels:
    """Labels as they stand in a file: the different ones as text, and which of them each row has."""

    names: Sequence[str]
    codes: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns of one file, checked one by one; what is left is to place the labels in the class set."""

    X: NDArray[Any]
    labels: Labels
    levels: NDArray[np.str_] | None
    epsilon: NDArray[np.float64] | None
    person_id: NDArray[np.str_] | None
    feature_names: tuple[str, ...]
    where: Where


def check_finite(X: NDArray[Any], names: Sequence[str], where: Where) -> None:
    """Refuse missing and infinite features, with how many there are and where the first one stands."""
    if X.dtype.kind != "f":
        return
    count, rows, first = 0, 0, None
    for start in range(0, len(X), _BLOCK):
        block = X[start : start + _BLOCK]
        bad = ~np.isfinite(block)
        if bad.any():
            count += int(bad.sum())
            rows += int(bad.reshape(len(bad), -1).any(axis=1).sum())
            if first is None:
                row, *rest = (int(index) for index in np.argwhere(bad)[0])
                first = (start + row, rest)
    if first is None:
        return
    row, rest = first
    column = show(names[rest[0]]) if names else str(tuple(rest)).rstrip(",)") + ")"
    found = "missing" if np.isnan(X[(row, *rest)]) else "infinite"
    raise InputError(
        f"{where(row)}: feature {column} is {found}, the first of {count:,} such values in {rows:,} of {len(X):,} "
        "rows: drop these, fill them by a rule that rests on public data, or leave the column out with features="
    )


def check_epsilon(values: NDArray[np.float64], column: str, where: Where) -> NDArray[np.float64]:
    """Return the ε of all rows if every one is a finite number above 0."""
    test, allowed = LIMITS["epsilon"]
    good = np.asarray(test(values))
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        raise InputError(f"{where(row)}: {column} is {show(values[row])}: {allowed}")
    return values


def as_text(values: NDArray[Any], what: str, where: Where) -> NDArray[np.str_]:
    """Return ids, levels or labels as text without surrounding spaces; whole numbers lose their decimal point."""
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
    """Take an array's labels apart into the different ones and which of them each row has."""
    if values.dtype.kind in "iu":
        numbers, codes = np.unique(values, return_inverse=True)
        return Labels([str(number) for number in numbers.tolist()], codes.astype(np.int64))
    names, codes = np.unique(as_text(values, what, where), return_inverse=True)
    return Labels([str(name) for name in names], codes.astype(np.int64))


def place_labels(
    labels: Labels, classes: Sequence[object] | None, *, what: str, where: Where
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return each row's place in the class set, and the class set: the one given, or what the labels show."""
    if classes is None:
        ordered = tuple(sorted(labels.names, key=_order))
        if len(ordered) < 2:
            raise InputError(
                f"{what} holds {show(ordered[0])} alone: there must be two classes; name them with classes="
            )
    else:
        ordered = tuple(str(name) for name in classes)
        if len(set(ordered)) < len(ordered) or len(ordered) < 2:
            raise InputError(f"classes are {show(ordered)}: there must be at least two, all different")
    place = {name: position for position, name in enumerate(ordered)}
    for code, name in enumerate(labels.names):
        if name not in place:
            row = int(np.flatnonzero(labels.codes == code)[0])
            allowed = f"allowed are {show(', '.join(ordered))}; nearest is {nearest(name, ordered)}"
            raise InputError(f"{where(row)}: {what} is {show(name)}: {allowed}")
    return np.array([place[name] for name in labels.names], dtype=np.int64)[labels.codes], ordered


def _order(name: str) -> tuple[bool, float, str]:
    """Sort numbers by size, before words by their letters."""
    try:
        return (False, float(name), name)
    except ValueError:
        return (True, 0.0, name)
