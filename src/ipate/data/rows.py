"""Rows that are read a block at a time: slices of them are arrays of numbers, whatever they are stored as."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.data.frames import is_frame


@dataclass(frozen=True, eq=False)
class RowBlocks:
    """Some rows of an array, a sparse matrix or encoded rows, which are taken and encoded when a slice is."""

    data: Any
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, part: slice) -> NDArray[Any]:
        taken = self.data[self.rows[part]]
        return np.asarray(taken.toarray() if hasattr(taken, "toarray") else taken)


def as_numbers(X: Any, pool: Any) -> tuple[RowBlocks, NDArray[Any]]:
    """Return private rows in blocks of numbers, and the pool as an array of the same columns.

    Frames are encoded by a schema of the pool, which depends on no private row.
    """
    from ipate.data.making import schema_from

    if is_frame(pool):
        schema = schema_from(pool)
        X, pool = schema.read(X), schema.read(pool)
    elif hasattr(pool, "toarray"):
        X, pool = X.tocsr(), pool.toarray()
    return RowBlocks(X, np.arange(X.shape[0])), np.asarray(pool)
