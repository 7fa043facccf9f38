"""Votes counted a block at a time, so that teachers × queries are never in memory at once.

Few classes are counted by comparison: bytes are compared and added by the processor's vector unit, several
times faster than any table of counts. Pages of a mapped file are handed back once they were read, so that
memory does not grow with the file.
"""

import mmap
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["count_votes", "row_blocks", "take_columns", "weigh_votes"]

Ints: TypeAlias = NDArray[np.integer[Any]]
_BLOCK = 1 << 24  # bytes of a vote matrix looked at in one go
_ROWS = 255  # teachers counted in one go: a byte must hold their number
_COMPARED = 40  # classes × bytes per vote up to which comparing is the faster way
_WIDTH = 1 << 14  # queries counted in one go, so that what is compared stays in the processor's cache
_PASSES = 16  # different weights up to which each is counted on its own
_PAGES = 1 << 16  # a fault maps this many bytes of a row


def count_votes(votes: Ints, n_classes: int, *, rows: NDArray[np.intp] | None = None) -> NDArray[np.int64]:
    """Count the votes per query and class; teachers that abstain count nowhere.

    Parameters
    ----------
    votes : integer array of shape (teachers, B)
        A chunk of queries, every teacher's vote; it may be mapped from a file.
    n_classes : int
        C.
    rows : integer array, optional
        The teachers to count; all unless given.

    Returns
    -------
    integer array of shape (B, C)
    """
    width = votes.shape[1]
    if width > _WIDTH:
        tiles = (votes[:, start : start + _WIDTH] for start in range(0, width, _WIDTH))
        return np.concatenate([count_votes(tile, n_classes, rows=rows) for tile in tiles])
    if n_classes * votes.itemsize > _COMPARED:
        tables = np.zeros((width, n_classes), dtype=np.int64)
        for block in row_blocks(votes, rows=rows):
            tables += _table(block, n_classes)
        return tables
    counts = np.zeros((n_classes, width), dtype=np.int64)
    same = np.empty((_ROWS, width), dtype=np.bool_)
    heard = 0
    known = n_classes - (votes.dtype.kind == "u")  # nobody abstains: the last class has the rest
    for block in row_blocks(votes, rows=rows, most=_ROWS):
        equal = same[: len(block)]
        heard += len(block)
        for number in range(known):
            np.equal(block, number, out=equal)
            counts[number] += np.add.reduce(equal.view(np.uint8), axis=0, dtype=np.uint8)
    if known < n_classes:
        counts[-1] = heard - counts[:-1].sum(axis=0)
    return np.ascontiguousarray(counts.T)


def weigh_votes(votes: Ints, n_classes: int, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Add up the teachers' weights per query and class, shape (B, C): equal weights are counted, then multiplied."""
    different, which = np.unique(weights, return_inverse=True)
    total = np.zeros((votes.shape[1], n_classes))
    if len(different) == 1:
        total += different[0] * count_votes(votes, n_classes)
        return total
    if len(different) <= _PASSES:
        for number, weight in enumerate(different):
            if weight:
                total += weight * count_votes(votes, n_classes, rows=np.flatnonzero(which == number))
        return total
    heard = np.flatnonzero(weights)
    start = 0
    for block in row_blocks(votes, rows=heard):
        own = np.repeat(weights[heard[start : start + len(block)]], votes.shape[1])
        total += _table(block, n_classes, own)
        start += len(block)
    return total


def _table(block: Ints, n_classes: int, weights: NDArray[np.float64] | None = None) -> NDArray[Any]:
    """Count with one table of all queries' classes, a place before each query's for those that abstain."""
    width = block.shape[1]
    place = block.astype(np.intp)
    place += np.arange(width, dtype=np.intp) * (n_classes + 1) + 1
    counts = np.bincount(place.ravel(), weights=weights, minlength=width * (n_classes + 1))
    return np.asarray(counts.reshape(width, n_classes + 1)[:, 1:])


def row_blocks(votes: Ints, *, rows: NDArray[np.intp] | None = None, most: int | None = None) -> Iterator[Ints]:
    """Yield teachers' votes a few rows at a time; pages of a mapped file are handed back in between."""
    step = max(1, _BLOCK // max(1, votes.shape[1] * votes.itemsize))
    step = step if most is None else min(step, most)
    count = len(votes) if rows is None else len(rows)
    if rows is not None and count and rows[-1] - rows[0] == count - 1:
        votes, rows = votes[rows[0] : rows[-1] + 1], None  # neighbours: a view, not a copy
    held = 0
    for start in range(0, count, step):
        yield votes[start : start + step] if rows is None else votes[rows[start : start + step]]
        held += step * max(_PAGES, votes.shape[1] * votes.itemsize)
        if held >= 4 * _BLOCK:
            hand_back(votes)
            held = 0
    hand_back(votes)


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


def hand_back(array: NDArray[Any]) -> None:
    """Drop the pages of a mapped file from this process's memory; they stay in the file and in its cache."""
    part: Any = array
    shared = False
    while isinstance(part, np.ndarray):
        shared |= isinstance(part, np.memmap) and part.mode in ("r", "r+")  # not a copy on write: its changes would go
        part = part.base
    if shared and isinstance(part, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        part.madvise(mmap.MADV_DONTNEED)
