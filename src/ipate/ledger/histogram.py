"""Rounded noisy counts as a ledger stores them, and the histogram of a release of ballots, drawn only once."""

import hashlib
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ipate.errors import InputError

Ints = NDArray[np.int64]
Packed = tuple[str, bytes]  # shape and compressed numbers, as they are stored and hashed


def pack(counts: Ints) -> Packed:
    """Return whole numbers in the form in which they are stored and hashed."""
    return json.dumps(counts.shape), zlib.compress(counts.astype("<i8").tobytes(), 1)


def unpack(shape: str, raw: bytes) -> Ints:
    """Return the whole numbers that `pack` stored."""
    return np.frombuffer(zlib.decompress(raw), dtype="<i8").astype(np.int64).reshape(json.loads(shape))


@dataclass(frozen=True, kw_only=True, eq=False)
class Histogram:
    """A noisy histogram of (partitions, cells, classes) in whole multiples of σ/8, and the cells it belongs to."""

    counts: Ints
    cells: str  # the fingerprint of the cells

    def __post_init__(self) -> None:
        if self.counts.ndim != 3 or self.counts.dtype != np.int64:
            shown = f"{self.counts.dtype} of the shape {self.counts.shape}"
            raise InputError(f"a histogram has whole numbers (partitions, cells, classes), not {shown}")
        self.counts.flags.writeable = False

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the histogram and its cells, which a report can state."""
        return hashlib.sha256(repr(self.columns()[:2]).encode() + self.counts.astype("<i8").tobytes()).hexdigest()

    def columns(self) -> tuple[object, ...]:
        """Return the histogram in the order of its table's columns, as it is stored and hashed."""
        return self.cells, *pack(self.counts)

    @classmethod
    def read(cls, columns: Sequence[Any]) -> Self:
        """Build the histogram from the values of `columns`."""
        cells, shape, raw = columns
        return cls(counts=unpack(shape, raw), cells=cells)

    def check_first(self, before: "Histogram | None") -> None:
        """Refuse a second histogram: new noise on the same ballots is a new release, with a cost of its own."""
        if before is not None:
            raise InputError(
                "this run has released its ballots already, and their noise is drawn only once: use the stored "
                "histogram, or begin a new run, which charges everybody again"
            )
