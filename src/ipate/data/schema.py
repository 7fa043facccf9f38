"""The public schema of a table: which columns are features, and how a raw cell becomes numbers.

A schema is made from public rows and declared values (`ipate.data.making`), never from private rows. It encodes raw
tables in any order of columns, is stored as plain JSON, and belongs to the student.
"""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ipate.data import cells
from ipate.data.tables import Table, open_table
from ipate.errors import InputError, show
from ipate.files import FilePath, json_text, write_text

Floats: TypeAlias = NDArray[np.float64]
FORMAT = "ipate schema 1"
ORIGIN = "1970-01-01"
LIMIT = 1e15
"""A number beyond ±LIMIT is missing, as an infinite one is."""
_BLOCK = 1 << 13  # rows that are encoded at once


@dataclass(frozen=True, kw_only=True)
class Feature:
    """One column: how its cells are read and encoded.

    A number, or a date as days since `origin`, becomes (x − mean) / sd, after x was clipped to [low, high] and a
    missing x was replaced by the median. With `indicator` a second column is 1 where x was missing. A category becomes
    one column of 0 and 1 per value, and one more for every other value and for missing cells.
    """

    name: str
    kind: Literal["number", "category", "date"]
    values: tuple[str, ...] = ()
    format: str | None = None  # of dates, as strptime has it; default: ISO 8601
    origin: str = ORIGIN
    low: float = -LIMIT
    high: float = LIMIT
    median: float = 0.0
    mean: float = 0.0
    sd: float = 1.0
    indicator: bool = False

    def __post_init__(self) -> None:
        if self.kind not in ("number", "category", "date"):
            raise InputError(f"kind of {show(self.name)} is {show(self.kind)}: it must be number, category or date")
        if self.kind == "category" and (not self.values or len(set(self.values)) < len(self.values)):
            raise InputError(f"the values of {show(self.name)} are {show(self.values)}: list at least one, each once")
        if not (-LIMIT <= self.low < self.high <= LIMIT and self.low <= self.median <= self.high and self.sd > 0):
            raise InputError(f"the scale of {show(self.name)} is invalid: low ≤ median ≤ high and sd > 0 must hold")
        if not (abs(self.mean) <= LIMIT and self.sd <= LIMIT):
            raise InputError(f"the scale of {show(self.name)} is invalid: mean and sd must be below {LIMIT:g}")

    @cached_property
    def encoded(self) -> tuple[str, ...]:
        """The names of the columns that this one becomes."""
        if self.kind == "category":
            return (*(f"{self.name}={value}" for value in self.values), f"{self.name}=(other)")
        return (self.name, f"{self.name} missing") if self.indicator else (self.name,)

    def read(self, column: Any) -> NDArray[Any]:
        """Return a raw column in a compact form: floats, NaN where one is missing, or the places of categories."""
        if self.kind == "category":
            return cells.codes(column, self.values).astype(np.uint8 if len(self.values) < 256 else np.uint16)
        found = (
            cells.numbers(column) if self.kind == "number" else cells.days(column, origin=self.origin, form=self.format)
        )
        found[~(np.abs(found) <= LIMIT)] = np.nan
        return found

    def missing(self, found: NDArray[Any]) -> int:
        """Return how many cells of a compact column are missing or unknown."""
        return int(np.count_nonzero(found == len(self.values) if self.kind == "category" else np.isnan(found)))

    def encode(self, found: NDArray[Any], out: NDArray[Any]) -> None:
        """Encode a compact column into `out`, which is 0."""
        if self.kind == "category":
            out[np.arange(len(found)), found] = 1.0
            return
        missing = np.isnan(found)
        scaled = np.clip(found, self.low, self.high)
        scaled[missing] = self.median
        scaled -= self.mean
        np.divide(scaled, self.sd, out=out[:, 0])
        if self.indicator:
            out[:, 1] = missing


@dataclass(frozen=True)
class Schema:
    """The features of a table, in order.

    Parameters
    ----------
    features : tuple of Feature
        The columns, in the order in which they are encoded.
    """

    features: tuple[Feature, ...]

    def __post_init__(self) -> None:
        if not self.features:
            raise InputError("the schema has no columns: at least one must be a feature")
        if len(set(self.names)) < len(self.names):
            raise InputError(f"the schema names a column twice: its columns are {show(self.names)}")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The raw columns."""
        return tuple(feature.name for feature in self.features)

    @cached_property
    def encoded_names(self) -> tuple[str, ...]:
        """The columns of the encoded matrix."""
        return tuple(name for feature in self.features for name in feature.encoded)

    @property
    def kinds(self) -> dict[str, str]:
        """The kind of each raw column."""
        return {feature.name: feature.kind for feature in self.features}

    def encode(self, table: Any) -> NDArray[Any]:
        """Encode the rows of a raw table; no cell is refused.

        Parameters
        ----------
        table : DataFrame, mapping of columns, path or Table
            It must have all columns of the schema, in any order; other columns are ignored.

        Returns
        -------
        array of float64, shape (rows, encoded columns)
        """
        return self.read(table)[:]

    def encode_counting(self, table: Any) -> tuple[NDArray[Any], dict[str, int]]:
        """Encode a table; also return for each column how many cells were missing, unreadable or no known value."""
        rows = self.read(table)
        return rows[:], rows.missing()

    def read(self, table: Any) -> "EncodedRows":
        """Read the columns of a raw table; they are encoded when rows are taken."""
        raw = table if isinstance(table, Table) else open_table(table, columns=self.names, kinds=self.kinds)
        columns = [raw.column(name) for name in self.names]
        with ThreadPoolExecutor(4) as threads:
            found = threads.map(Feature.read, self.features, columns)
            return EncodedRows(self, tuple(found))

    def as_json(self) -> dict[str, Any]:
        """Return the schema as plain JSON values."""
        columns = [
            {name: value for name, value in asdict(feature).items() if _stated(feature.kind, name)}
            for feature in self.features
        ]
        return {"format": FORMAT, "columns": columns, "encoded": list(self.encoded_names)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any], *, where: str = "schema") -> Self:
        """Make a schema from what `as_json` returned; `where` names it in error messages."""
        if not isinstance(values, Mapping) or values.get("format") != FORMAT:
            raise InputError(f"{where}: it is not a schema of this version of ipate ({FORMAT!r})")
        known = {field.name for field in fields(Feature)}
        try:
            features = []
            for column in values["columns"]:
                if unknown := set(column) - known:
                    raise InputError(
                        f"{where}: unknown key {show(min(unknown))}: allowed are {', '.join(sorted(known))}"
                    )
                plain = {**column, "values": tuple(str(value) for value in column.get("values", ()))}
                features.append(Feature(**plain))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{where}: the columns cannot be read ({show(str(error))})") from None
        return cls(tuple(features))

    def write(self, path: FilePath) -> None:
        """Write the schema as a JSON file."""
        write_text(path, json_text(self.as_json()))

    @classmethod
    def from_file(cls, path: FilePath) -> Self:
        """Read a JSON file that `write` wrote."""
        try:
            values = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: not a readable schema ({error})") from None
        return cls.from_json(values, where=str(path))


class EncodedRows:
    """The rows of a table in a compact form, which behave as a matrix and are encoded when they are taken.

    A file with many categories is several times smaller than its encoded matrix.
    """

    ndim = 2
    dtype = np.dtype(np.float64)

    def __init__(self, schema: Schema, columns: tuple[NDArray[Any], ...]) -> None:
        self.schema, self.columns = schema, columns
        self.shape = (len(columns[0]), len(schema.encoded_names))
        self.size = self.shape[0] * self.shape[1]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        """Return some rows, encoded."""
        if isinstance(rows, tuple):
            return self[rows[0]][:, *rows[1:]]
        taken = [column[rows] for column in self.columns]
        X = np.empty((len(taken[0]), self.shape[1]))
        for start in range(0, len(X), _BLOCK):  # blocks of rows stay in the processor's cache
            block, place = X[start : start + _BLOCK], 0
            block[:] = 0.0
            for feature, column in zip(self.schema.features, taken, strict=True):
                width = len(feature.encoded)
                feature.encode(column[start : start + _BLOCK], block[:, place : place + width])
                place += width
        return X

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:] if dtype is None else self[:].astype(dtype, copy=False)

    def joined(self, *others: "EncodedRows") -> "EncodedRows":
        """Return these rows and others below them."""
        parts = zip(self.columns, *(other.columns for other in others), strict=True)
        return EncodedRows(self.schema, tuple(np.concatenate(columns) for columns in parts)) if others else self

    def missing(self) -> dict[str, int]:
        """Return for each raw column how many cells are missing, unreadable or no known value."""
        pairs = zip(self.schema.features, self.columns, strict=True)
        return {feature.name: feature.missing(column) for feature, column in pairs}


def _stated(kind: str, name: str) -> bool:
    """Whether a field means something for a kind of column."""
    if name in ("name", "kind"):
        return True
    if kind == "category":
        return name == "values"
    return name != "values" and (kind == "date" or name not in ("format", "origin"))
