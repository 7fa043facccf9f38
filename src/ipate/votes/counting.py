"""Count votes in blocks, so that the matrix teachers × queries is never in memory as a whole.

With few classes, votes are counted by vectorised comparison, which is several times faster than `bincount`. Pages of
a mapped file are released after reading, so that memory does not grow with the file.
"""

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.integer[Any]]
_BLOCK = 1 << 24  # bytes of a vote matrix read per block
_ROWS = 128  # teachers compared at once: their number must fit into a byte, and the tile into the cache
_COMPARED = 40  # classes × bytes per vote up to which comparison is faster than a table
_WIDTH = 1 << 13  # queries compared at once
_PASSES = 16  # number of distinct weights up to which each is counted in a pass of its own
_MAPPED = 1 << 26  # bytes of mapped files in memory above which pages are released
_STATM = Path("/proc/self/statm")


def count_votes(votes: Ints, n_classes: int, *, rows: NDArray[np.intp] | None = None) -> NDArray[np.int64]:
    """Count votes of shape (teachers, B) per query and class, shape (B, C); abstentions are not counted.

    `rows` are the teachers to count, in ascending order; the default is all of them.
    """
    return np.ascontiguousarray(_by_class(votes, n_classes, rows).T)


def weigh_votes(votes: Ints, n_classes: int, weights: NDArray[np.float64]) -> NDArray[np.float64]:
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


def _by_class(votes: Ints, n_classes: int, rows: NDArray[np.intp] | None) -> NDArray[np.int64]:
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


def _table(block: Ints, n_classes: int, weights: NDArray[np.float64] | None = None) -> NDArray[Any]:
    """Count per class and query with `bincount`; each query has an extra first cell for abstentions."""
    width = block.shape[1]
    place = block.astype(np.intp)
    place += np.arange(width, dtype=np.intp) * (n_classes + 1) + 1
    counts = np.bincount(place.ravel(), weights=weights, minlength=width * (n_classes + 1))
    return np.asarray(counts.reshape(width, n_classes + 1)[:, 1:].T)


def row_blocks(votes: Ints, *, rows: NDArray[np.intp] | None = None) -> Iterator[Ints]:
    """Yield the votes in blocks of teachers; pages of a mapped file are released in between."""
    step = max(1, _BLOCK // max(1, votes.shape[1] * votes.itemsize))
    for index in _row_ranges(votes, rows, step):
        yield votes[index]


def _row_ranges(votes: Ints, rows: NDArray[np.intp] | None, step: int) -> Iterator[slice | NDArray[np.intp]]:
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


def take_columns(votes: Ints, columns: slice | NDArray[np.int64]) -> Ints:
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
