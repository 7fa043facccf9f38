"""Csv files of any length: read a block of rows at a time, features kept as numbers and never as text."""

import csv
from array import array
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.data.columns import Columns, Labels, Roles, check_epsilon, check_finite
from ipate.errors import InputError
from ipate.tables import show

__all__ = ["read_csv"]

_BLOCK = 1 << 14  # rows held as text at a time
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
        while block := list(islice(rows, _BLOCK)):
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
