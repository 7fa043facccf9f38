"""Count votes in blocks, so that the matrix teachers × queries is never in memory as a whole.

With few classes, votes are counted by vectorised comparison, which is several times faster than `bincount`. Pages of
a mapped file are released after reading, so that memory does not grow with the file.

Votes files: teachers' votes on public points, validated strictly and processed in chunks.

An npz holds `votes` (teachers × queries, integer class ids, −1 abstains) and optionally `weights` and `groups` (one
per teacher), `participation` (teachers × queries), `labels` (the truth, for scoring only), `classes` and `queries`
(ids). Pickled objects are never loaded. Members stored without compression are memory-mapped.

Tell whether two votes files are copies of each other, query by query, whatever their order.

A query is compared by its histogram of unweighted votes, which no order of teachers changes; unanimous queries are left
out, because every good panel has them. Queries with the same id and the same histogram agree. So do queries whose
histogram stands once in each file, whatever their ids: among independent files at most about e⁻¹ of these coincide.
"""

import hashlib
import json
import mmap
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate._types import Integers
from ipate.errors import ClassesWarning, InputError
from ipate.files import read_ids, read_npy, read_npz

_BLOCK = 1 << 24  # bytes of a vote matrix read per block
_ROWS = 128  # teachers compared at once: their number must fit into a byte, and the tile into the cache
_COMPARED = 40  # classes × bytes per vote up to which comparison is faster than a table
_WIDTH = 1 << 13  # queries compared at once
_PASSES = 16  # number of distinct weights up to which each is counted in a pass of its own
_MAPPED = 1 << 26  # bytes of mapped files in memory above which pages are released
_STATM = Path("/proc/self/statm")


def count_votes(votes: Integers, n_classes: int, *, rows: NDArray[np.intp] | None = None) -> NDArray[np.int64]:
    """Count votes of shape (teachers, B) per query and class, shape (B, C); abstentions are not counted.

    `rows` are the teachers to count, in ascending order; the default is all of them.
    """
    return np.ascontiguousarray(_by_class(votes, n_classes, rows).T)


def weigh_votes(votes: Integers, n_classes: int, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum the teachers' weights per query and class, shape (B, C); votes of equal weight are counted together."""
    different, which = np.unique(weights, return_inverse=True)
    total = np.zeros((n_classes, votes.shape[1]))
    if len(different) <= _PASSES:
        for number, weight in enumerate(different):
            if weight:
                total += weight * _by_class(votes, n_classes, np.flatnonzero(which == number))
        return np.ascontiguousarray(total.T)
    heard = np.flatnonzero(weights)
    start = 0
    for block in row_blocks(votes, rows=heard):
        own = np.repeat(weights[heard[start : start + len(block)]], votes.shape[1])
        total += _table(block, n_classes, own)
        start += len(block)
    return np.ascontiguousarray(total.T)


def _by_class(votes: Integers, n_classes: int, rows: NDArray[np.intp] | None) -> NDArray[np.int64]:
    """Count votes per class and query, shape (C, B), by comparison if there are few classes, else with a table."""
    width = votes.shape[1]
    counts = np.zeros((n_classes, width), dtype=np.int64)
    if n_classes * votes.itemsize > _COMPARED:
        for block in row_blocks(votes, rows=rows):
            counts += _table(block, n_classes)
        return counts
    same = np.empty((_ROWS, min(width, _WIDTH)), dtype=np.bool_)
    known = n_classes - (votes.dtype.kind == "u")  # no abstentions: the last class gets the rest
    for index in _row_ranges(votes, rows, _ROWS):
        for start in range(0, width, _WIDTH):
            tile = votes[:, start : start + _WIDTH][index]
            equal = same[: len(tile), : tile.shape[1]]
            for number in range(known):
                np.equal(tile, number, out=equal)
                counts[number, start : start + _WIDTH] += np.add.reduce(equal.view(np.uint8), axis=0, dtype=np.uint8)
    if known < n_classes:
        counts[-1] = (len(votes) if rows is None else len(rows)) - counts[:-1].sum(axis=0)
    return counts


def _table(block: Integers, n_classes: int, weights: NDArray[np.float64] | None = None) -> NDArray[Any]:
    """Count per class and query with `bincount`; each query has an extra first cell for abstentions."""
    width = block.shape[1]
    place = block.astype(np.intp)
    place += np.arange(width, dtype=np.intp) * (n_classes + 1) + 1
    counts = np.bincount(place.ravel(), weights=weights, minlength=width * (n_classes + 1))
    return np.asarray(counts.reshape(width, n_classes + 1)[:, 1:].T)


def row_blocks(votes: Integers, *, rows: NDArray[np.intp] | None = None) -> Iterator[Integers]:
    """Yield the votes in blocks of teachers; pages of a mapped file are released in between."""
    step = max(1, _BLOCK // max(1, votes.shape[1] * votes.itemsize))
    for index in _row_ranges(votes, rows, step):
        yield votes[index]


def _row_ranges(votes: Integers, rows: NDArray[np.intp] | None, step: int) -> Iterator[slice | NDArray[np.intp]]:
    """Yield the next rows, as a slice if they are contiguous; release pages when many are in memory."""
    count = len(votes) if rows is None else len(rows)
    first = 0 if rows is None or not count else int(rows[0])
    together = rows is None or (count > 0 and int(rows[-1]) - first == count - 1)
    file = _file_of(votes)
    for start in range(0, count, step):
        stop = min(start + step, count)
        yield slice(first + start, first + stop) if rows is None or together else rows[start:stop]
        if file is not None and _mapped() > _MAPPED:
            file.madvise(mmap.MADV_DONTNEED)  # the pages stay in the file and in its cache


def take_columns(votes: Integers, columns: slice | NDArray[np.int64]) -> Integers:
    """Return the votes on some queries: a view for a slice, otherwise a copy made block by block."""
    if isinstance(columns, slice):
        return np.asarray(votes[:, columns])
    taken = np.empty((len(votes), len(columns)), dtype=votes.dtype)
    start = 0
    for block in row_blocks(votes):
        taken[start : start + len(block)] = block[:, columns]
        start += len(block)
    return taken


def _file_of(array: NDArray[Any]) -> mmap.mmap | None:
    """Return the mapped file behind an array if releasing its pages loses no data."""
    part: Any = array
    shared = False
    while isinstance(part, np.ndarray):
        shared |= isinstance(part, np.memmap) and part.mode in ("r", "r+")  # a copy on write would lose its changes
        part = part.base
    return part if shared and isinstance(part, mmap.mmap) and _STATM.exists() else None


def _mapped() -> int:
    """Return the bytes of mapped files in memory, asked from the kernel because of read-ahead."""
    return int(_STATM.read_text().split()[2]) * mmap.PAGESIZE


_KNOWN = ("votes", "weights", "groups", "participation", "labels", "classes", "queries")
_KINDS = {  # numpy's kinds of number that an array may have, and the rule in words
    "weights": ("iuf", "are", "they must be numbers"),
    "participation": ("b", "is", "it must be bool, whether a teacher takes part in a query"),
    "labels": ("iu", "are", "they must be integers, the classes' ids"),
}
_STORE = "a votes file is an npz with an array 'votes', a folder with votes.npy, or an npy"


@dataclass(frozen=True, kw_only=True)
class Votes:
    """The votes of k teachers on Q queries, with optional facts about teachers and queries.

    Attributes
    ----------
    votes : integer array of shape (k, Q)
        Class ids from 0 to `n_classes` − 1; −1 abstains.
    n_classes : int
        C, the number of classes; public.
    weights : float array of shape (k,), optional
        The teachers' weights, used as given.
    groups : tuple of k strings, optional
        The group on whose people each teacher was trained; None if teachers mix groups (upsampling).
    participation : bool array of shape (k, Q), optional
        Which teachers take part in which query (vanishing).
    labels : integer array of shape (Q,), optional
        The truth, for scoring only.
    queries : tuple of Q strings, optional
        Ids of the queries. Default: row numbers.
    """

    votes: Integers
    n_classes: int
    weights: NDArray[np.float64] | None = None
    groups: tuple[str, ...] | None = None
    participation: NDArray[np.bool_] | None = None
    labels: Integers | None = None
    queries: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        _check_votes(self.votes, self.n_classes)
        k, q = self.votes.shape
        for name, wanted, meaning in (
            ("weights", (k,), "one per teacher"),
            ("groups", (k,), "one per teacher"),
            ("participation", (k, q), "teachers × queries"),
            ("labels", (q,), "one per query"),
            ("queries", (q,), "one per query"),
        ):
            value = getattr(self, name)
            found = value.shape if isinstance(value, np.ndarray) else wanted if value is None else (len(value),)
            if found != wanted:
                raise InputError(f"{name} have the shape {found}: it must be {wanted}, {meaning}")
        if self.weights is not None:
            check_weights(self.weights)

    @property
    def n_teachers(self) -> int:
        """The number of teachers, k."""
        return int(self.votes.shape[0])

    @property
    def n_queries(self) -> int:
        """The number of queries, Q."""
        return int(self.votes.shape[1])

    @cached_property
    def abstains(self) -> bool:
        """Whether any teacher abstains on any query."""
        if self.votes.dtype.kind == "u":
            return False
        return any(block.size and int(block.min()) < 0 for block in row_blocks(self.votes))


def read_votes(path: str | Path, *, classes: int | None = None) -> Votes:
    """Read a votes file and validate it strictly.

    Parameters
    ----------
    path : path
        An npz file; a folder with `votes.npy` and optionally the other arrays of an npz, such as `groups.npy`; or
        an npy file with the votes alone. Arrays in a folder are memory-mapped.
    classes : int, optional
        The number of classes. Default: `classes` in the file, or else 1 + the largest id, with a warning, because
        the set of classes is then treated as public.
    """
    file = Path(path)
    if file.is_dir():
        arrays = _read_store(file)
    elif not file.is_file():
        raise InputError(f"{file}: no such file; {_STORE}")
    elif file.suffix == ".npy":
        arrays = {"votes": read_npy(file)}
    else:
        arrays = read_npz(file, _KNOWN)
    if "votes" not in arrays:
        found = ", ".join(sorted(arrays)) or "nothing"
        raise InputError(f"{file}: contains {found}; it must contain 'votes' (teachers × queries, class ids)")
    votes = arrays["votes"]
    if votes.ndim != 2 or votes.size == 0:
        raise InputError(f"{file}: votes have the shape {votes.shape}; it must be teachers × queries, not empty")
    if not np.issubdtype(votes.dtype, np.integer):
        raise InputError(f"{file}: votes are {votes.dtype}; they must be integers, the classes' ids")
    try:
        n_classes = _number_of_classes(votes, arrays.get("classes"), classes)
        for name, (kinds, verb, rule) in _KINDS.items():
            if name in arrays and arrays[name].dtype.kind not in kinds:
                raise InputError(f"{name} {verb} {arrays[name].dtype}: {rule}")
        return Votes(
            votes=votes,
            n_classes=n_classes,
            weights=np.array(arrays["weights"], dtype=np.float64) if "weights" in arrays else None,
            groups=read_ids("groups", arrays.get("groups")),
            participation=arrays.get("participation"),
            labels=arrays.get("labels"),
            queries=read_ids("queries", arrays.get("queries")),
        )
    except InputError as error:
        raise InputError(f"{file}: {error}") from None


def _read_store(folder: Path) -> dict[str, NDArray[Any]]:
    """Memory-map the arrays of a folder; an incomplete vote store is refused."""
    arrays = {name: read_npy(folder / f"{name}.npy") for name in _KNOWN if (folder / f"{name}.npy").is_file()}
    if (folder / "store.json").is_file():
        try:
            arrays.setdefault("classes", np.array(int(json.loads((folder / "store.json").read_text())["classes"])))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{folder / 'store.json'}: not readable ({error})") from None
        done = read_npy(folder / "done.npy")
        if not done.all():
            raise InputError(
                f"{folder}: {int(np.count_nonzero(~done))} of {done.size} teachers have not voted; train them first"
            )
    return arrays


def _number_of_classes(votes: Integers, stored: NDArray[Any] | None, given: int | None) -> int:
    """Return C: as given, or as stored, or inferred from the votes with a warning."""
    if given is not None:
        if given < 2:
            raise InputError(f"classes is {given}: there must be at least 2")
        return given
    if stored is not None:
        if stored.ndim == 0 and np.issubdtype(stored.dtype, np.integer) and int(stored) >= 2:
            return int(stored)
        if stored.ndim == 1 and stored.size >= 2:  # the classes' names
            return int(stored.size)
        raise InputError(f"classes is {stored!r}: it must be a number of at least 2, or a list of names")
    largest = max(int(block.max()) for block in row_blocks(votes))
    if largest < 1:
        raise InputError("no vote is for a class above 0: state the number of classes (--classes N)")
    warnings.warn(
        f"the classes 0 to {largest} are inferred from the votes: this treats the set of classes as public "
        "(state it with --classes N or 'classes' in the file)",
        ClassesWarning,
        stacklevel=3,
    )
    return largest + 1


def _check_votes(votes: Integers, n_classes: int) -> None:
    signed = votes.dtype.kind != "u"
    for block in row_blocks(votes):
        low, high = int(block.min()) if signed else 0, int(block.max())
        if low < -1 or high >= n_classes:
            bad = low if low < -1 else high
            raise InputError(f"votes contain {bad}: class ids go from 0 to {n_classes - 1}, and −1 abstains")


def check_weights(weights: NDArray[np.float64]) -> None:
    """Refuse teachers' weights that are negative or not finite."""
    bad = weights[~(np.isfinite(weights) & (weights >= 0))]
    if bad.size:
        raise InputError(f"weights contain {bad[0]:g}: each must be a finite number, 0 or above")


MOST_ALIKE = 0.5  # two files that agree on a larger share of either one's queries are copies
_FEWEST_NAMED, _FEWEST_UNNAMED = 5, 20  # fewer coincidences prove nothing
_BLOCK = 2048  # queries counted at a time
_DIGITS = 6  # hexadecimal digits kept of each hash


def sketch(votes: Votes) -> str:
    """Return two short hashes per query that is not unanimous: of its id and histogram, and of its histogram."""
    return "".join(f"{named}{plain}" for named, plain in _hashes(votes))


def is_copy(sketched: str, votes: Votes) -> bool:
    """Whether the votes behind a sketch agree with these on over half of the queries of either."""
    step = 2 * _DIGITS
    pairs = [sketched[place : place + step] for place in range(0, len(sketched), step)]
    theirs, own = [(pair[:_DIGITS], pair[_DIGITS:]) for pair in pairs], list(_hashes(votes))
    named = {one for one, _ in theirs}, {one for one, _ in own}
    once = _once(other for _, other in theirs), _once(other for _, other in own)
    return _mostly(*named, fewest=_FEWEST_NAMED) or _mostly(*once, fewest=_FEWEST_UNNAMED)


def _mostly(one: set[str], other: set[str], *, fewest: int) -> bool:
    same = len(one & other)
    return same >= fewest and same > MOST_ALIKE * min(len(one), len(other))


def _once(hashes: Iterator[str]) -> set[str]:
    return {found for found, times in Counter(hashes).items() if times == 1}


def _hashes(votes: Votes) -> Iterator[tuple[str, str]]:
    for start in range(0, votes.n_queries, _BLOCK):
        counts = count_votes(votes.votes[:, start : start + _BLOCK], votes.n_classes).astype("<i8")
        for place, row in enumerate(counts, start=start):
            if row.max() < row.sum():
                name = str(place) if votes.queries is None else votes.queries[place]
                yield _short(f"{name}\0".encode() + row.tobytes()), _short(row.tobytes())


def _short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGITS]
