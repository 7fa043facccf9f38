"""The public schema of a table: which columns are features, and how a raw cell becomes numbers.

A schema is made from public rows and declared values (`ipate.data.schema`), never from private rows. It encodes raw
tables in any order of columns, is stored as plain JSON, and belongs to the student.

Make a schema from public rows and declared values: kinds of columns, categories, medians and scales.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from ipate.data import cells
from ipate.data.cells import MISSING
from ipate.data.raw import Table, open_table
from ipate.errors import InputError, show
from ipate.files import FilePath, json_text, no_column, write_text

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


MOST_VALUES = 100
"""A text column with more different values than this is free text, unless its values are declared."""
FEW_VALUES = 20
"""Up to this many values a text column is a category, however few rows there are."""


@dataclass(frozen=True, kw_only=True)
class Declared:
    """What a user declares about the columns; all of it is public."""

    features: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    categories: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)  # None: values of the public rows
    dates: Mapping[str, str | None] = field(default_factory=dict)  # the format; None: ISO 8601
    numbers: Mapping[str, tuple[float, float] | None] = field(default_factory=dict)  # the range
    missing: tuple[str, ...] = ()  # columns with an indicator, whether or not public rows have gaps
    origin: str = ORIGIN

    def __post_init__(self) -> None:
        kinds = (self.categories, self.dates, self.numbers)
        for position, kind in enumerate(kinds):
            for name in kind:
                if any(name in other for other in kinds[position + 1 :]):
                    raise InputError(f"column {show(name)} is declared as two kinds: it has one")
                if name in self.drop:
                    raise InputError(f"column {show(name)} is declared and dropped: leave one of them out")
        try:
            date.fromisoformat(self.origin)
        except ValueError:
            raise InputError(f"origin is {show(self.origin)}: it must be a date, such as 1970-01-01") from None

    @classmethod
    def of(
        cls,
        *,
        categories: Sequence[str] | Mapping[str, Sequence[Any]] = (),
        dates: Sequence[str] | Mapping[str, str] = (),
        numbers: Sequence[str] | Mapping[str, Sequence[float]] = (),
        features: Sequence[str] | None = None,
        drop: Sequence[str] = (),
        missing: Sequence[str] = (),
        origin: str = ORIGIN,
    ) -> "Declared":
        """Accept lists of names, or mappings to values, formats and ranges."""
        for what, given in (("features", features), ("drop", drop), ("missing", missing), ("categories", categories)):
            if isinstance(given, str):
                raise InputError(f"{what} is {show(given)}: it must be a list of names")
        return cls(
            features=None if features is None else tuple(features),
            drop=tuple(drop),
            categories={name: None if own is None else _values(name, own) for name, own in _named(categories)},
            dates=dict(_named(dates)),
            numbers={name: None if own is None else _range(name, own) for name, own in _named(numbers)},
            missing=tuple(missing),
            origin=origin,
        )

    def names(self) -> list[str]:
        """Return all columns that are named."""
        listed = [*(self.features or ()), *self.drop, *self.missing, *self.categories, *self.dates, *self.numbers]
        return list(dict.fromkeys(listed))


def _named(given: Any) -> list[tuple[str, Any]]:
    return list(given.items()) if isinstance(given, Mapping) else [(str(name), None) for name in given]


def _values(name: str, values: Sequence[Any]) -> tuple[str, ...]:
    listed = () if isinstance(values, str) else tuple(cells.text(value) for value in values)
    if not listed or len(set(listed)) < len(listed) or "" in listed:
        raise InputError(f"the values of category {show(name)} are {show(values)}: list at least one, each once")
    return listed


def _range(name: str, pair: Sequence[float]) -> tuple[float, float]:
    try:
        low, high = (float(end) for end in pair)
    except (TypeError, ValueError):
        low = high = np.nan
    if not -LIMIT <= low < high <= LIMIT:
        raise InputError(f"the range of {show(name)} is {show(pair)}: it must be [low, high] with low below high")
    return low, high


def feature_columns(header: Sequence[str], roles: Collection[str], declared: Declared, *, source: str) -> list[str]:
    """Return the feature columns: the declared ones, or all that have no role and are not dropped."""
    stated = declared.names()
    for name in stated:
        if name not in header:
            raise no_column(source, name, header, known=[*roles, *stated], role="feature")
        if name in roles and name not in declared.drop:
            raise InputError(f"column {show(name)} is declared as a feature, and has another role: it can be one")
    if declared.features is not None and not declared.features:
        raise InputError("features are empty: at least one column must be a feature")
    chosen = list(declared.features or (name for name in header if name not in roles))
    if declared.features is not None:
        for name in [*declared.categories, *declared.dates, *declared.numbers]:
            if name not in declared.features:
                raise InputError(f"column {show(name)} is declared and is not among the features: add it there")
    kept = [name for name in dict.fromkeys(chosen) if name not in declared.drop]
    if not kept:
        raise InputError(f"{source} has no column left that is a feature: at least one must be")
    for name in kept:
        if list(header).count(name) > 1:
            raise InputError(f"{source}: duplicate column {show(name)}: column names must be unique")
    return kept


def schema_from(public: Any, *, roles: Collection[str] = (), **declared: Any) -> Schema:
    """Make a schema from a public table (a DataFrame, a mapping, a path) and what `Declared.of` accepts.

    `roles` names the columns that are no features, such as the label.
    """
    table, given = open_table(public), Declared.of(**declared)
    return make_schema(table, feature_columns(table.names, roles, given, source=table.source), given)


def make_schema(public: Table | None, names: Sequence[str], declared: Declared) -> Schema:
    """Make the schema of these columns; kinds that are not declared come from the public rows.

    Without public rows, undeclared columns are numbers that are not scaled.
    """
    return Schema(tuple(_feature(public, name, declared) for name in names))


def declare_types(table: Table, names: Sequence[str], declared: Declared) -> Declared:
    """Declare the undeclared columns of a typed table by their types, which are public; text is refused."""
    dates = dict(declared.dates)
    for name in names:
        if name in declared.categories or name in declared.numbers or name in dates:
            continue
        kind = type_of(table.column(name))
        if kind == "text":
            raise InputError(
                f"{table.source}: column {show(name)} holds text: declare its values in categories, give public rows, "
                "or drop it"
            )
        if kind == "date":
            dates[name] = None
    return replace(declared, dates=dates)


def type_of(column: Any) -> str:
    """Return what a column is by its type alone: number, date or text."""
    if isinstance(column, np.ndarray):
        return "number" if column.dtype.kind in "fiub" else "date" if column.dtype.kind == "M" else "text"
    import pyarrow as pa

    if pa.types.is_temporal(column.type):
        return "date"
    return "number" if pa.types.is_primitive(column.type) or pa.types.is_decimal(column.type) else "text"


def unreadable(table: Table, schema: Schema) -> Iterator[str]:
    """Yield a note for each column of numbers or dates of a public file with cells that are none, which are missing."""
    for feature in schema.features:
        column = table.column(feature.name)
        if feature.kind == "category" or type_of(column) != "text":
            continue
        values, index = cells.distinct(column)
        found = feature.read(np.array(values, dtype=object))
        given = np.array([cells.text(value).casefold() not in MISSING for value in values])
        rows = np.flatnonzero((np.isnan(found) & given)[index])
        if len(rows):
            first = int(rows[0])
            stated = show(cells.text(values[index[first]]))
            many = f", the first of {len(rows):,} such cells" if len(rows) > 1 else ""
            yield (
                f"{table.where(first)}: column {show(feature.name)} is {stated}, which is no {feature.kind}{many}: "
                "taken as missing"
            )


def _feature(public: Table | None, name: str, declared: Declared) -> Feature:
    if name in declared.categories:
        values = declared.categories[name]
        return Feature(name=name, kind="category", values=values or _public_values(public, name, most=1000))
    if name in declared.dates:
        form = declared.dates[name]
        return _scaled(public, Feature(name=name, kind="date", format=form, origin=declared.origin), declared)
    if name in declared.numbers or public is None:
        return _scaled(public, Feature(name=name, kind="number"), declared)
    kind = kind_of(public.column(name))
    if kind == "empty":
        raise InputError(
            f"{public.source}: column {show(name)} has no values: declare it in numbers, categories or dates, or "
            "drop it"
        )
    if kind == "text":
        return Feature(name=name, kind="category", values=_public_values(public, name, most=MOST_VALUES))
    dated = Feature(name=name, kind="date", origin=declared.origin)
    return _scaled(public, dated if kind == "date" else Feature(name=name, kind="number"), declared)


def kind_of(column: Any) -> str:
    """Return what the cells of a public column are: number, date, text, or empty if all are missing."""
    kind = type_of(column)
    if kind != "text":
        read = cells.numbers(column) if kind == "number" else cells.days(column, origin=ORIGIN)
        return "empty" if np.isnan(read).all() else kind
    values, index = cells.distinct(column)
    found = [values[place] for place in np.unique(index).tolist()]  # a dictionary may hold values of other rows
    listed = np.array([value for value in found if cells.text(value).casefold() not in MISSING], dtype=object)
    if not len(listed):
        return "empty"
    if not np.isnan(cells.numbers(listed)).any():
        return "number"
    return "text" if np.isnan(cells.days(listed, origin=ORIGIN)).any() else "date"


def _public_values(public: Table | None, name: str, *, most: int) -> tuple[str, ...]:
    """Return the sorted values of a category in the public rows; a column of free text is refused."""
    if public is None:
        raise InputError(
            f"category {show(name)} has no declared values and there are no public rows to read them from: declare "
            f'them, as in categories = {{ {name} = ["a", "b"] }}'
        )
    found, index = cells.distinct(public.column(name))
    named = np.array([cells.text(value) for value in found], dtype=object)
    values = sorted(set(named[np.unique(index)].tolist()) - {""})
    rows = int(np.count_nonzero(named[index] != ""))
    if not values:
        raise InputError(f"{public.source}: column {show(name)} has no values: declare them in categories, or drop it")
    if len(values) > most or (most == MOST_VALUES and len(values) > max(FEW_VALUES, rows / 2)):
        raise InputError(
            f"{public.source}: column {show(name)} looks like free text, with {len(values):,} different values in "
            f"{rows:,} rows: drop it, or declare the values that matter in categories"
        )
    return tuple(values)


def _scaled(public: Table | None, feature: Feature, declared: Declared) -> Feature:
    """Add limits, median and scale: from public rows, else from a declared range, else none."""
    limits = declared.numbers.get(feature.name)
    wanted = feature.name in declared.missing
    settings: dict[str, Any] = {"indicator": wanted}
    if limits is not None:
        middle = (limits[0] + limits[1]) / 2
        settings |= {"low": limits[0], "high": limits[1], "median": middle, "mean": middle, "sd": limits[1] - middle}
    if public is None:
        return _with(feature, settings)
    found = feature.read(public.column(feature.name))
    there = found[~np.isnan(found)]
    if not len(there):
        if limits is None:
            what = "numbers" if feature.kind == "number" else "dates"
            raise InputError(
                f"{public.source}: column {show(feature.name)} has no {what} in the public rows: declare its range in "
                "numbers, or drop it"
            )
        return _with(feature, settings)
    low, high = float(there.min()), float(there.max())
    width = high - low if high - low > 1e-9 * max(1.0, abs(high)) else max(1.0, abs(high))
    low, high = limits or (max(low - width, -LIMIT), min(high + width, LIMIT))
    there = np.clip(there, low, high)
    sd = float(there.std())
    settings |= {
        "low": low,
        "high": high,
        "median": float(np.median(there)),
        "mean": float(there.mean()),
        "sd": sd if sd > 1e-9 * max(1.0, abs(high)) else 1.0,
        "indicator": wanted or len(there) < len(found),
    }
    return _with(feature, settings)


def _with(feature: Feature, settings: Mapping[str, Any]) -> Feature:
    return replace(feature, **settings)
