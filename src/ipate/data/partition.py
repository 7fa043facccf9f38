"""Splitting rows into private, public and test by a seed."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ipate.errors import InputError, check_count, show

Ints: TypeAlias = NDArray[np.int64]
_STREAM = 0x73706C6974  # "split": its own random stream, which no other use of the same seed shares


@dataclass(frozen=True, kw_only=True, eq=False)
class Partition:
    """Three disjoint sets of rows that together are all rows, each in random order.

    The order of `public` matters: queries are asked in this order until a budget is exhausted, so that in the order
    of a file sorted by class only the first classes would be labelled.
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
    test: float | NDArray[np.int64],
    seed: int,
    person_id: ArrayLike | None = None,
    y: ArrayLike | None = None,
) -> Partition:
    """Split n rows into private, public and test by a seed; rows that are neither public nor test are private.

    Parameters
    ----------
    n : int
        The number of rows.
    public, test : int, float or array
        A whole number is a count of rows, a fraction below 1 a share of n. `test` may also be an array of the rows
        themselves, such as a data set's official test part.
    seed : int
        The seed of the split.
    person_id : array, optional
        The person of each row; all rows of a person go to the same part. Sizes then count people, not rows, so that
        one person's number of rows does not affect where others go. Cannot be combined with an array `test`.
    y : array, optional
        Classes to keep in the same shares in every part, for benchmark data. The labels then affect who is private,
        and the guarantee takes the partition as public, so omit `y` where labels are private.

    Returns
    -------
    Partition
    """
    n, seed = check_count("n", n), check_count("seed", seed, least=0)
    if sum(given is not None for given in (person_id, y)) + isinstance(test, np.ndarray) > 1:
        raise InputError("person_id, y and test as rows: at most one of these can shape a partition")
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_STREAM,)))
    if person_id is not None:
        return _by_person(_per_row(person_id, n, "person_id"), public, test, rng)
    if isinstance(test, np.ndarray):
        return _with_fixed_test(n, public, test, rng)
    n_public, n_test = _sizes(n, public, test)
    order = rng.permutation(n).astype(np.int64)
    if y is not None:
        order = _stratify(order, _per_row(y, n, "y"))
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


def _per_row(values: ArrayLike, n: int, what: str) -> NDArray[Any]:
    column = np.asarray(values)
    if column.shape != (n,):
        raise InputError(f"{what} has the shape {column.shape}: it must have one entry for each of {n} rows")
    return column


def _with_fixed_test(n: int, public: object, rows: NDArray[Any], rng: np.random.Generator) -> Partition:
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        raise InputError(f"test is an array of {rows.dtype} and the shape {rows.shape}: it must be row numbers")
    rows = rows.astype(np.int64)
    if len(rows) and (rows.min() < 0 or rows.max() >= n or len(np.unique(rows)) < len(rows)):
        raise InputError(
            f"test holds rows from {rows.min()} to {rows.max()}: they must be distinct and lie in 0 to {n - 1}"
        )
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
