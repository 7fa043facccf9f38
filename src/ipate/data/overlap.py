"""Refuse a pool or test data that are a copy of the private rows."""

import zlib
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ipate.data import cells
from ipate.data.raw import open_table
from ipate.data.schema import EncodedRows
from ipate.errors import InputError, show

Hashes: TypeAlias = NDArray[np.uint64]
LEAST = 10
"""Fewer equal rows than this are a coincidence, whatever their share."""
_MIX = np.uint64(0x9E3779B97F4A7C15)


def check_overlap(
    private: Any,
    public: Any,
    *,
    what: str,
    private_ids: Any = None,
    public_ids: Any = None,
    advice: str = "use other public data; for benchmark data, --allow-overlap",
) -> None:
    """Refuse public rows that share a person with the private ones, or most of which are copies of private rows.

    A public row is a copy if it occurs among the private rows exactly once, or as often as among the public rows. More
    than half of the different public rows, and at least ten, must be copies for a refusal: one person cannot cause it,
    and two independent samples of the same population do not reach this share, even if rows have few possible values.

    Parameters
    ----------
    private, public : array, DataFrame or mapping
        Rows with the same columns.
    what : str
        How the message calls the public rows.
    private_ids, public_ids : arrays, optional
        The person of each row, as text.
    advice : str
        What the message recommends.
    """
    if private_ids is not None and public_ids is not None:
        shared = np.intersect1d(np.unique(private_ids), np.unique(public_ids))
        if len(shared):
            raise InputError(
                f"{what} has rows of {len(shared):,} people of the private data, such as {show(str(shared[0]))}: "
                f"public rows are not protected; {advice}"
            )
    own, counts = np.unique(row_hashes(private), return_counts=True)
    rows, repeats = np.unique(row_hashes(public), return_counts=True)
    place = np.minimum(np.searchsorted(own, rows), len(own) - 1)
    found = np.where(own[place] == rows, counts[place], 0)
    copies = int(np.count_nonzero((found == 1) | ((found > 0) & (found == repeats))))
    if copies >= LEAST and copies > len(rows) / 2:
        raise InputError(
            f"most rows of {what} are copies of private rows: what is called public would publish private rows; "
            f"{advice}"
        )


def row_hashes(rows: Any) -> Hashes:
    """Return a hash of each row of an array, DataFrame or mapping; numbers are compared in single precision.

    Hashes are returned as they are.
    """
    if isinstance(rows, np.ndarray) and rows.dtype == np.uint64 and rows.ndim == 1:
        return rows
    if isinstance(rows, EncodedRows):
        return _mixed(len(rows), map(_bits, rows.columns))
    if hasattr(rows, "tocsr"):
        return _sparse_hashes(rows.tocsr())
    if isinstance(rows, np.ndarray):
        flat = rows.reshape(len(rows), -1)
        return _mixed(len(flat), (_bits(flat[:, place]) for place in range(flat.shape[1])))
    table = open_table(rows)
    return _mixed(table.n_rows, (_bits(table.column(name)) for name in sorted(table.names)))


def _mixed(n_rows: int, columns: Iterable[Hashes]) -> Hashes:
    mixed: Hashes = np.zeros(n_rows, dtype=np.uint64)
    for column in columns:
        mixed = _stirred(mixed ^ column)
    return mixed


def _stirred(values: Hashes) -> Hashes:
    values = values * _MIX
    return values ^ (values >> np.uint64(29))


def _sparse_hashes(rows: Any) -> Hashes:
    """Return hashes of the entries of each row that are not zero, in any order."""
    entries = _stirred(_stirred(rows.indices.astype(np.uint64)) ^ _bits(np.asarray(rows.data)))
    entries[rows.data == 0] = 0
    sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(entries, dtype=np.uint64)])
    return np.asarray(sums[rows.indptr[1:]] - sums[rows.indptr[:-1]])


def _bits(column: Any) -> Hashes:
    if isinstance(column, np.ndarray) and column.dtype.kind in "fiub":
        with np.errstate(over="ignore", invalid="ignore"):
            single = column.astype(np.float32) + np.float32(0)  # −0 becomes 0
        single[np.isnan(single)] = np.float32(np.nan)
        return single.view(np.uint32).astype(np.uint64)
    values, index = cells.distinct(column)
    raw = (cells.text(value).encode(errors="surrogatepass") for value in values)  # no private cell is refused
    return np.array([zlib.crc32(text) for text in raw], dtype=np.uint64)[index]
