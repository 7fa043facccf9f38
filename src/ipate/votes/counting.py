"""Votes counted a block at a time, so that teachers × queries are never in memory at once.

Few classes are counted by comparison: bytes are compared and added by the processor's vector unit, several
times faster than any table of counts. Pages of a mapped file are handed back once they were read, so that
memory does not grow with the file.
"""

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.integer[Any]]
_BLOCK = 1 << 24  # bytes of a vote matrix looked at in one go
_ROWS = 128  # teachers compared in one go: a byte must hold their number, and the cache what is compared
_COMPARED = 40  # classes × bytes per vote up to which comparing is the faster way
_WIDTH = 1 << 13  # queries compared in one go
_PASSES = 16  # different weights up to which each is counted on its own
_MAPPED = 1 << 26  # bytes of files that may be in memory before they are handed back
_STATM = Path("/proc/self/statm")


def count_votes(votes: Ints, n_classes: int, *, rows: NDArray[np.intp] | None = None) -> NDArray[np.int64]:
    """Count the votes per query and class; teachers that abstain count nowhere.

    Parameters
    ----------
    votes : integer array of shape (teachers, B)
        A chunk of queries, every teacher's vote; it may be mapped from a file.
    n_classes : int
        C.
    rows : integer array, optional
        The teachers to count, in ascending order; all unless given.

    Returns
    -------
    integer array of shape (B, C)
    """
    return np.ascontiguousarray(_by_class(votes, n_classes, rows).T)


def weigh_votes(votes: Ints, n_classes: int, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Add up the teachers' weights per query and class, shape (B, C): equal weights are counted, then multiplied."""
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


def _by_class(votes: Ints, n_classes: int, rows: NDArray[np.intp] | None) -> NDArray[np.int64]:
    """Count votes per class and query, shape (C, B), by comparison where classes are few, else in a table."""
    width = votes.shape[1]
    counts = np.zeros((n_classes, width), dtype=np.int64)
    if n_classes * votes.itemsize > _COMPARED:
        for block in row_blocks(votes, rows=rows):
            counts += _table(block, n_classes)
        return counts
    same = np.empty((_ROWS, min(width, _WIDTH)), dtype=np.bool_)
    known = n_classes - (votes.dtype.kind == "u")  # nobody abstains: the last class has the rest
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


def _table(block: Ints, n_classes: int, weights: NDArray[np.float64] | None = None) -> NDArray[Any]:
    """Count per class and query with one table, which has a place before each query's for those that abstain."""
    width = block.shape[1]
    place = block.astype(np.intp)
    place += np.arange(width, dtype=np.intp) * (n_classes + 1) + 1
    counts = np.bincount(place.ravel(), weights=weights, minlength=width * (n_classes + 1))
    return np.asarray(counts.reshape(width, n_classes + 1)[:, 1:].T)


def row_blocks(votes: Ints, *, rows: NDArray[np.intp] | None = None) -> Iterator[Ints]:
    """Yield teachers' votes a few rows at a time; pages of a mapped file are handed back in between."""
    step = max(1, _BLOCK // max(1, votes.shape[1] * votes.itemsize))
    for index in _row_ranges(votes, rows, step):
        yield votes[index]


def _row_ranges(votes: Ints, rows: NDArray[np.intp] | None, step: int) -> Iterator[slice | NDArray[np.intp]]:
    """Yield which rows come next, as a slice where they are neighbours; hand pages back when many were read."""
    count = len(votes) if rows is None else len(rows)
    first = 0 if rows is None or not count else int(rows[0])
    together = rows is None or (count > 0 and int(rows[-1]) - first == count - 1)
    file = _file_of(votes)
    for start in range(0, count, step):
        stop = min(start + step, count)
        yield slice(first + start, first + stop) if rows is None or together else rows[start:stop]
        if file is not None and _mapped() > _MAPPED:
            file.madvise(mmap.MADV_DONTNEED)  # the pages stay in the file and in its cache


def take_columns(votes: Ints, columns: slice | NDArray[np.int64]) -> Ints:
    """Return some queries' votes: a view for a slice, else a copy made a few teachers at a time."""
    if isinstance(columns, slice):
        return np.asarray(votes[:, columns])
    taken = np.empty((len(votes), len(columns)), dtype=votes.dtype)
    start = 0
    for block in row_blocks(votes):
        taken[start : start + len(block)] = block[:, columns]
        start += len(block)
    return taken


def _file_of(array: NDArray[Any]) -> mmap.mmap | None:
    """Return the mapped file behind an array, where handing its pages back loses nothing."""
    part: Any = array
    shared = False
    while isinstance(part, np.ndarray):
        shared |= isinstance(part, np.memmap) and part.mode in ("r", "r+")  # a copy on write would lose its changes
        part = part.base
    return part if shared and isinstance(part, mmap.mmap) and _STATM.exists() else None


def _mapped() -> int:
    """Bytes of files in this process's memory; a page that is read brings its neighbours, so this is not counted."""
    return int(_STATM.read_text().split()[2]) * mmap.PAGESIZE
