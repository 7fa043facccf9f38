"""What csv, parquet and npz files have in common: which column is what, and which values cannot be used."""

import csv
import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.errors import LIMITS, InputError, nearest, show

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
                close = show(nearest(column, header))
                raise InputError(f"{file} has no column {show(column)} ({role}): nearest is {close}")
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
            allowed = f"allowed are {show(', '.join(ordered))}; nearest is {show(nearest(name, ordered))}"
            raise InputError(f"{where(row)}: {what} is {show(name)}: {allowed}")
    return np.array([place[name] for name in labels.names], dtype=np.int64)[labels.codes], ordered


def _order(name: str) -> tuple[bool, float, str]:
    """Sort numbers by size, before words by their letters."""
    try:
        return (False, float(name), name)
    except ValueError:
        return (True, 0.0, name)


_CSVFILE_BLOCK = 1 << 14  # rows held as text at a time
_MISSING = frozenset({"", "nan", "na", "n/a", "null", "none", "?"})


def read_csv(path: Path, roles: Roles) -> Columns:
    """Read the named columns of a csv file in UTF-8; the first line names the columns."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            return _Reader(path, csv.reader(file, strict=True), roles).read()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        bad = error.object[error.start : error.start + 1]
        raise InputError(f"{path} holds the byte {bad!r}: a csv file must be text in UTF-8") from None


class _Reader:
    """One pass over one file: it collects each column in the smallest form that keeps it whole."""

    def __init__(self, path: Path, reader: Any, roles: Roles) -> None:
        self.path, self.reader, self.roles = path, reader, roles
        self.lines = array("q")
        self.texts: dict[str, list[str]] = {
            role: [] for role in ("level", "epsilon", "person") if getattr(roles, role) is not None
        }
        self.codes, self.names = array("q"), dict[str, int]()

    def where(self, row: int) -> str:
        return f"{self.path}, line {self.lines[row]}"

    def read(self) -> Columns:
        try:
            header = [cell.strip() for cell in next(self.reader, [])]
            if not any(header):
                raise InputError(f"{self.path} is empty or starts with a blank line: it must start with column names")
            features = self.roles.match(header, file=str(self.path))
            X = self._features(header, features)
        except csv.Error as error:
            raise InputError(f"{self.path}, line {self.reader.line_num} is no valid csv: {error}") from None
        if not len(X):
            raise InputError(f"{self.path} has a header and no rows: it must have at least one row")
        check_finite(X, features, self.where)
        return Columns(
            X=X,
            labels=Labels(list(self.names), np.array(self.codes, dtype=np.int64)),
            levels=self._text("level"),
            epsilon=self._epsilon(),
            person_id=self._text("person"),
            feature_names=features,
            where=self.where,
        )

    def _features(self, header: list[str], features: Sequence[str]) -> NDArray[np.float64]:
        """Read all rows; the features come back as one table, everything else is kept aside."""
        pick = _picker([header.index(column) for column in features])
        others = {role: header.index(getattr(self.roles, role)) for role in self.texts}
        label = header.index(self.roles.label)
        rows, parts = self._rows(len(header)), []
        while block := list(islice(rows, _CSVFILE_BLOCK)):
            start = len(self.codes)
            for role, position in others.items():
                self.texts[role].extend(row[position].strip() for row in block)
            for offset, row in enumerate(block):
                name = row[label].strip()
                if not name or name.casefold() == "nan":
                    place = self.where(start + offset)
                    raise InputError(f"{place}: the label {show(self.roles.label)} is missing: every row needs one")
                self.codes.append(self.names.setdefault(name, len(self.names)))
            parts.append(self._numbers([pick(row) for row in block], features, start))
        return np.concatenate(parts) if parts else np.empty((0, len(features)))

    def _rows(self, width: int) -> Iterator[list[str]]:
        start, blank = self.reader.line_num + 1, 0
        for record in self.reader:
            line, start = start, self.reader.line_num + 1
            if not record:
                blank = blank or line
                continue
            if blank:
                raise InputError(f"{self.path}, line {blank} is blank: only the end of a file may be")
            if len(record) != width:
                found = f"{self.path}, line {line} has {len(record)} cells"
                raise InputError(f"{found}: it must have {width}, as the header has")
            self.lines.append(line)
            yield record

    def _numbers(self, rows: list[Sequence[str]], features: Sequence[str], start: int) -> NDArray[np.float64]:
        joined = "".join(chain.from_iterable(rows))
        if "_" not in joined and joined.isascii():  # float() would read 1_000 and other scripts' digits
            try:
                cells = map(float, chain.from_iterable(rows))
                return np.fromiter(cells, dtype=np.float64, count=len(rows) * len(features)).reshape(len(rows), -1)
            except ValueError:
                pass
        return np.array(
            [[self._number(cell, start + row, name) for cell, name in zip(cells, features, strict=True)]
             for row, cells in enumerate(rows)]
        )  # fmt: skip

    def _number(self, cell: str, row: int, column: str) -> float:
        text = cell.strip()
        if text.casefold() in _MISSING:
            return np.nan
        try:
            if "_" in text or not text.isascii():
                raise ValueError
            return float(text)
        except ValueError:
            raise InputError(
                f"{self.where(row)}: feature {show(column)} is {show(text)}: features must be numbers; "
                "encode this column, or list the numeric ones with features="
            ) from None

    def _text(self, role: str) -> NDArray[np.str_] | None:
        cells = self.texts.get(role)
        if cells is None:
            return None
        if "" in cells:
            place = self.where(cells.index(""))
            raise InputError(f"{place}: {role} {show(getattr(self.roles, role))} is missing: every row needs one")
        return np.array(cells, dtype=np.str_)

    def _epsilon(self) -> NDArray[np.float64] | None:
        cells = self.texts.get("epsilon")
        if cells is None:
            return None
        numbers = {cell: _plain(cell) for cell in set(cells)}
        column = f"epsilon {show(self.roles.epsilon)}"
        for row, cell in enumerate(cells):
            if numbers[cell] is None:
                wrong = show(cell) if cell else "missing"
                raise InputError(f"{self.where(row)}: {column} is {wrong}: it must be a finite number above 0")
        return check_epsilon(np.array([numbers[cell] for cell in cells], dtype=np.float64), column, self.where)


def _plain(cell: str) -> float | None:
    try:
        return float(cell) if cell.isascii() and "_" not in cell else None
    except ValueError:
        return None


def _picker(positions: list[int]) -> Any:
    if len(positions) == 1:
        only = positions[0]
        return lambda row: (row[only],)
    return itemgetter(*positions)
