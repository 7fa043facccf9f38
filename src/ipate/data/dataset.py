"""Data sets as loaders return them, their partition by a seed, and scalers that depend on no private row."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ipate._types import Floating, Ints
from ipate.data.schema import Schema
from ipate.errors import InputError, check_count, show

_PER_ROW = ("y", "levels", "epsilon", "person_id", "consent_date", "consent_version")
_STREAM = 0x73706C6974  # "split": the random stream of a partition, which no other use of the same seed shares


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """Rows with their classes and, where known, each row's consent level or ε and its person.

    The class set is public: it is stated by the maker of the data, never read off private labels silently. Arrays are
    read-only.

    Parameters
    ----------
    name : str
        The name of the data set.
    X : array or EncodedRows
        A table (rows × features), whose rows may be encoded when they are taken, or images: (N, H, W) or (N, H, W, C),
        8-bit or floats in [0, 1].
    y : array of int
        The class of each row, as an index into `classes`; −1 for a row without a class, which has no vote.
    classes : tuple of str
        The class set.
    kind : {"table", "image"}
        What X holds.
    levels, epsilon : array, optional
        The consent level or the ε of each row; at most one of the two.
    person_id : array of str, optional
        The person of each row. Default: every row is a person of its own.
    consent_date, consent_version : array of str, optional
        The day on which the person of each row agreed, and the version of the policy that they agreed to.
    feature_names : tuple of str
        The names of a table's columns.
    bounds : array, optional
        Fixed public bounds (features × 2) of a table's values.
    test_rows : array of int, optional
        The rows of the official test part.
    notes : tuple of str
        What was dropped or changed, in sentences; public.
    private_notes : tuple of str
        Sentences about cells that could not be read; they depend on private rows.
    schema : Schema, optional
        How the rows of a file were encoded.
    separate : tuple of int
        How many of the last rows come from a public file and from a test file, in this order.
    source, licence : str
        The origin of the data and its licence.
    where : callable, optional
        Returns the place of a row of a file for a message, such as its line.
    """

    name: str
    X: Any
    y: Ints
    classes: tuple[str, ...]
    kind: Literal["table", "image"] = "table"
    levels: NDArray[np.str_] | None = None
    epsilon: NDArray[np.float64] | None = None
    person_id: NDArray[np.str_] | None = None
    consent_date: NDArray[np.str_] | None = None
    consent_version: NDArray[np.str_] | None = None
    feature_names: tuple[str, ...] = ()
    bounds: NDArray[np.float64] | None = None
    test_rows: Ints | None = None
    notes: tuple[str, ...] = ()
    private_notes: tuple[str, ...] = ()
    schema: Schema | None = None
    separate: tuple[int, int] = (0, 0)
    source: str = ""
    licence: str = ""
    where: Callable[[int], str] | None = None

    def __post_init__(self) -> None:
        self._check_shapes()
        if len(set(self.classes)) < max(2, len(self.classes)):
            stated = ", ".join(map(show, self.classes)) or "empty"
            raise InputError(f"classes are {stated}: there must be at least two, all different")
        if self.y.min() < -1 or self.y.max() >= self.n_classes:
            bad = int(np.flatnonzero((self.y < -1) | (self.y >= self.n_classes))[0])
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
            must = f"for kind {self.kind!r} it must be {shape}, and not empty"
            raise InputError(f"X has the shape {self.X.shape}: {must}")
        for name in _PER_ROW:
            if (value := getattr(self, name)) is not None:
                _per_row(value, self.n_rows, name)
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

    def features(self, rows: Ints | Sequence[int] | None = None, *, flat: bool = True) -> NDArray[Any]:
        """Return rows (default: all) as model input: tables unchanged, images as float32 in [0, 1].

        Each image is flattened to one row of numbers unless `flat` is False.
        """
        X = self.X if rows is None else self.X[np.asarray(rows)]
        if self.kind == "table":
            return np.asarray(X)
        pixels = images_to_float(X)
        return pixels.reshape(len(pixels), -1) if flat else pixels

    def take(self, rows: Ints | Sequence[int]) -> Self:
        """Return these rows, in this order, as a data set without an official test part."""
        index = np.asarray(rows, dtype=np.int64)
        parts = {name: value[index] for name in ("X", *_PER_ROW) if (value := getattr(self, name)) is not None}
        where = self.where
        place = None if where is None else lambda row: where(int(index[row]))
        return replace(self, **parts, test_rows=None, where=place)


@dataclass(frozen=True, kw_only=True, eq=False)
class Partition:
    """Three disjoint sets of rows that together are all rows, each in random order.

    Queries are asked in the order of `public` until a budget is exhausted, which must not prefer any class.
    """

    private: Ints
    public: Ints
    test: Ints

    def __post_init__(self) -> None:
        for rows in (self.private, self.public, self.test):
            rows.flags.writeable = False

    @property
    def sizes(self) -> dict[str, int]:
        """The number of rows of each part."""
        return {"private": len(self.private), "public": len(self.public), "test": len(self.test)}


def partition(
    n: int,
    *,
    public: float,
    test: float | Ints,
    seed: int,
    person_id: ArrayLike | None = None,
    y: ArrayLike | None = None,
) -> Partition:
    """Split n rows into private, public and test by a seed; rows that are neither public nor test are private.

    `public` and `test` are counts of rows or shares of n below 1; `test` may also be an array of the rows themselves,
    such as an official test part. With `person_id` all rows of a person go to one part, and sizes count people, so
    that one person's number of rows does not affect where others go. `y` keeps the classes in the same shares in every
    part, for benchmark data: the guarantee takes the partition as public, so omit `y` where labels are private.
    """
    n, seed = check_count("n", n), check_count("seed", seed, least=0)
    if sum(given is not None for given in (person_id, y)) + isinstance(test, np.ndarray) > 1:
        raise InputError("person_id, y and test as rows: at most one of these can shape a partition")
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_STREAM,)))
    if person_id is not None:
        return _by_person(_per_row(np.asarray(person_id), n, "person_id"), public, test, rng)
    if isinstance(test, np.ndarray):
        return _with_fixed_test(n, public, test, rng)
    n_public, n_test = _sizes(n, public, test)
    order = rng.permutation(n).astype(np.int64)
    if y is not None:
        order = _stratify(order, _per_row(np.asarray(y), n, "y"))
    parts = [order[n_test + n_public :], order[n_test : n_test + n_public], order[:n_test]]
    if y is not None:
        parts = [rng.permutation(part) for part in parts]
    return Partition(private=parts[0].copy(), public=parts[1].copy(), test=parts[2].copy())


def _count(size: object, n: int, what: str) -> int:
    """Return the number of rows that a count or a share means; a share above 0 means at least one row."""
    if isinstance(size, int | np.integer) and not isinstance(size, bool) and size >= 0:
        return int(size)
    if isinstance(size, float | np.floating) and 0 <= size < 1:
        return max(round(float(size) * n), int(size > 0))
    raise InputError(f"{what} is {show(size)}: it must be a count of rows, or a share that is below 1")


def _sizes(n: int, public: object, test: object, *, unit: str = "rows") -> tuple[int, int]:
    """Return the sizes of the public and the test part of n rows or people; something private must be left."""
    n_public, n_test = _count(public, n, "public"), _count(test, n, "test")
    if n_public + n_test >= n:
        raise InputError(
            f"public = {n_public:,} and test = {n_test:,} leave {n - n_public - n_test:,} of {n:,} {unit}: "
            "at least one must be private" + ("" if unit == "rows" else "; with person_id, sizes count people")
        )
    return n_public, n_test


def _per_row(column: NDArray[Any], n: int, what: str) -> NDArray[Any]:
    if column.shape != (n,):
        raise InputError(f"{what} has the shape {column.shape}: it must have one entry for each of {n} rows")
    return column


def _with_fixed_test(n: int, public: object, rows: NDArray[Any], rng: np.random.Generator) -> Partition:
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        raise InputError(f"test is an array of {rows.dtype} and the shape {rows.shape}: it must be row numbers")
    rows = rows.astype(np.int64)
    if len(rows) and (rows.min() < 0 or rows.max() >= n or len(np.unique(rows)) < len(rows)):
        found = f"test holds rows from {rows.min()} to {rows.max()}"
        raise InputError(f"{found}: they must be distinct and lie in 0 to {n - 1}")
    n_public, _ = _sizes(n, public, len(rows))
    rest = np.ones(n, dtype=bool)
    rest[rows] = False
    order = rng.permutation(np.flatnonzero(rest)).astype(np.int64)
    return Partition(private=order[n_public:].copy(), public=order[:n_public].copy(), test=rows.copy())


def _stratify(order: Ints, y: NDArray[Any]) -> Ints:
    """Reorder so that every prefix of the order has the classes in nearly the same shares."""
    _, codes, sizes = np.unique(y[order], return_inverse=True, return_counts=True)
    by_class = np.argsort(codes, kind="stable")
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    rank = np.empty(len(order))
    rank[by_class] = np.arange(len(order)) - starts[codes[by_class]]
    return order[np.argsort((rank + 0.5) / sizes[codes], kind="stable")]


def _by_person(person_id: NDArray[Any], public: object, test: object, rng: np.random.Generator) -> Partition:
    """Split the people in random order; only the number of people affects the result, not their numbers of rows."""
    _, codes = np.unique(person_id, return_inverse=True)
    n_people = int(codes.max()) + 1
    n_public, n_test = _sizes(n_people, public, test, unit="people")
    place = np.empty(n_people, dtype=np.int64)
    place[rng.permutation(n_people)] = np.arange(n_people)
    side = np.searchsorted([n_test, n_test + n_public], place, side="right")[codes]
    parts = [rng.permutation(np.flatnonzero(side == which)).astype(np.int64) for which in range(3)]
    return Partition(private=parts[2], public=parts[1], test=parts[0])


@dataclass(frozen=True, kw_only=True, eq=False)
class Scaler:
    """A fixed map (x − shift) / scale per feature, clipped to [lower, upper]; `basis` names its public source."""

    shift: NDArray[np.float64]
    scale: NDArray[np.float64]
    lower: float
    upper: float
    basis: str

    def transform(self, X: ArrayLike) -> Floating:
        """Scale a table; float32 stays float32, everything else becomes float64."""
        table = np.asarray(X)
        if table.ndim != 2 or table.shape[1] != len(self.shift):
            raise InputError(f"X has the shape {table.shape}: this scaler is for (rows, {len(self.shift)})")
        dtype = np.float32 if table.dtype == np.float32 else np.float64
        scaled: Floating = np.subtract(table, self.shift.astype(dtype), dtype=dtype)
        scaled /= self.scale.astype(dtype)
        return np.clip(scaled, self.lower, self.upper, out=scaled)


def make_scaler(
    *, bounds: ArrayLike | None = None, public: ArrayLike | None = None, method: Literal["range", "standard"] = "range"
) -> Scaler:
    """Make a scaler from fixed bounds or from public rows (rows × features); exactly one of the two is given.

    `bounds` are one (low, high) pair per feature. "range" maps [low, high] to [0, 1] and clips; "standard",
    which needs `public`, maps to mean 0 and variance 1 and clips at ±10. A constant feature becomes 0.
    """
    if (bounds is None) == (public is None):
        given = f"bounds and public: {'neither is' if bounds is None else 'both are'} given"
        raise InputError(f"{given}: a scaler uses fixed bounds or public rows, never private rows")
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
    if method == "range":
        shift, scale, lower, upper = rows.min(axis=0), np.ptp(rows, axis=0), 0.0, 1.0
    else:
        shift, scale, lower, upper = rows.mean(axis=0), rows.std(axis=0), -10.0, 10.0
    scale = np.where(scale > 0, scale, 1.0)
    return Scaler(shift=shift, scale=scale, lower=lower, upper=upper, basis=f"{len(rows):,} public rows")


def images_to_float(X: NDArray[Any]) -> NDArray[np.float32]:
    """Return images as float32 in [0, 1]: 8-bit pixels are divided by 255, floats must already lie in [0, 1]."""
    if X.dtype == np.uint8:
        return X.astype(np.float32) / np.float32(255)
    if X.dtype.kind != "f":
        raise InputError(f"images are of type {X.dtype}: they must be uint8, or floats in [0, 1]")
    if X.size and not (X.min() >= 0 and X.max() <= 1):
        found = f"images hold values from {X.min()} to {X.max()}"
        raise InputError(f"{found}: floats must lie in [0, 1]; 8-bit images are uint8")
    return X.astype(np.float32)
