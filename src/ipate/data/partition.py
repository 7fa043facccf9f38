"""Who is private, who is public, who tests: one split by seed, the same for everybody who repeats it."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ipate.errors import InputError, show

Ints: TypeAlias = NDArray[np.int64]
_STREAM = 0x73706C6974  # "split": a stream of its own, so that no other use of the same seed shuffles alike


@dataclass(frozen=True, kw_only=True, eq=False)
class Partition:
    """Three sets of rows, disjoint and together all of them, each in random order.

    Random order matters for `public`: queries are asked in this order until a budget ends, and a file that is
    sorted by class would have only its first classes labelled.
    """

    private: Ints
    public: Ints
    test: Ints

    def __post_init__(self) -> None:
        for rows in (self.private, self.public, self.test):
            rows.flags.writeable = False

    @property
    def sizes(self) -> dict[str, int]:
        """How many rows each part has."""
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
    """Split n rows into private, public and test by a seed; whatever is neither public nor test is private.

    Parameters
    ----------
    public, test
        A whole number is a count of rows, a fraction below 1 a share of n. `test` may also be the rows
        themselves, such as a data set's official test part.
    person_id
        Whose each row is: all rows of a person go to the same side. Sizes then count people, not rows, so that
        nobody's number of rows decides where anybody else goes. Official test rows take no person ids.
    y
        Classes to keep in the same shares on every side, for benchmark data. With it the labels decide who is
        private; the guarantee takes the partition as public, so leave it out where labels are private.
    """
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise InputError(f"n is {show(n)}: it must be a whole number of at least 1")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed is {show(seed)}: it must be a whole number, 0 or above")
    if sum(given is not None for given in (person_id, y)) + isinstance(test, np.ndarray) > 1:
        raise InputError("person_id, y and test as rows: at most one of these can shape a partition")
    rng = np.random.default_rng(np.random.SeedSequence(int(seed), spawn_key=(_STREAM,)))
    if person_id is not None:
        return _by_person(_per_row(person_id, int(n), "person_id"), public, test, rng)
    n_public = _count(public, int(n), "public")
    if isinstance(test, np.ndarray):
        return _with_fixed_test(int(n), n_public, test, rng)
    n_test = _count(test, int(n), "test")
    _check_room(int(n), n_public, n_test)
    order = rng.permutation(int(n)).astype(np.int64)
    if y is not None:
        order = _spread(order, _per_row(y, int(n), "y"))
    return _cut(order, n_public, n_test, rng if y is not None else None)


def _count(size: object, n: int, what: str) -> int:
    """Turn a size as it was given into a number of rows; a share that is not 0 is at least one row."""
    if isinstance(size, int | np.integer) and not isinstance(size, bool) and size >= 0:
        return int(size)
    if isinstance(size, float | np.floating) and 0 <= size < 1:
        return max(round(float(size) * n), int(size > 0))
    raise InputError(f"{what} is {show(size)}: it must be a count of rows, or a share that is below 1")


def _check_room(n: int, n_public: int, n_test: int) -> None:
    if n_public + n_test >= n:
        raise InputError(
            f"public = {n_public:,} and test = {n_test:,} leave {n - n_public - n_test:,} of {n:,} rows: "
            "at least one must be private"
        )


def _per_row(values: ArrayLike, n: int, what: str) -> NDArray[Any]:
    column = np.asarray(values)
    if column.shape != (n,):
        raise InputError(f"{what} has the shape {column.shape}: it must have one entry for each of {n} rows")
    return column


def _cut(order: Ints, n_public: int, n_test: int, rng: np.random.Generator | None = None) -> Partition:
    parts = [order[n_test + n_public :], order[n_test : n_test + n_public], order[:n_test]]
    if rng is not None:
        parts = [rng.permutation(part) for part in parts]
    return Partition(private=parts[0].copy(), public=parts[1].copy(), test=parts[2].copy())


def _with_fixed_test(n: int, n_public: int, test: NDArray[Any], rng: np.random.Generator) -> Partition:
    rows = np.asarray(test)
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        raise InputError(f"test is an array of {rows.dtype} and the shape {rows.shape}: it must be row numbers")
    rows = rows.astype(np.int64)
    if len(rows) and (rows.min() < 0 or rows.max() >= n or len(np.unique(rows)) < len(rows)):
        raise InputError(f"test holds rows from {rows.min()} to {rows.max()}: they must differ and lie in 0 to {n - 1}")
    _check_room(n, n_public, len(rows))
    rest = np.ones(n, dtype=bool)
    rest[rows] = False
    order = rng.permutation(np.flatnonzero(rest)).astype(np.int64)
    return Partition(private=order[n_public:].copy(), public=order[:n_public].copy(), test=rows.copy())


def _spread(order: Ints, y: NDArray[Any]) -> Ints:
    """Reorder so that every beginning of the order has the classes in nearly the same shares."""
    _, codes, sizes = np.unique(y[order], return_inverse=True, return_counts=True)
    by_class = np.argsort(codes, kind="stable")
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    rank = np.empty(len(order))
    rank[by_class] = np.arange(len(order)) - starts[codes[by_class]]
    return order[np.argsort((rank + 0.5) / sizes[codes], kind="stable")]


def _by_person(person_id: NDArray[Any], public: object, test: object, rng: np.random.Generator) -> Partition:
    """Cut a shuffled row of people: sizes count people, so that nobody's number of rows moves anybody else."""
    _, codes = np.unique(person_id, return_inverse=True)
    n_people = int(codes.max()) + 1
    n_public, n_test = _count(public, n_people, "public"), _count(test, n_people, "test")
    if n_public + n_test >= n_people:
        raise InputError(
            f"public = {n_public:,} and test = {n_test:,} leave {n_people - n_public - n_test:,} of {n_people:,} "
            "people: with person ids sizes count people, and at least one must be private"
        )
    place = np.empty(n_people, dtype=np.int64)
    place[rng.permutation(n_people)] = np.arange(n_people)
    side = np.searchsorted([n_test, n_test + n_public], place, side="right")[codes]
    parts = [rng.permutation(np.flatnonzero(side == which)).astype(np.int64) for which in range(3)]
    return Partition(private=parts[2], public=parts[1], test=parts[0])
