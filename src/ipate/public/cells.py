"""Cells: partitions of the pool's space into the regions nearest to centres, from the pool and public seeds alone.

Points are whole numbers on the grid of `ipate.public.features`, and so are the centres. All products and sums of a
distance are then whole numbers below 2^53, exact in a double in any order. So the cell of a row depends on that row
alone, to the last bit: not on the block of rows it is computed with, nor on the machine.
"""

import hashlib
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ipate._types import Floats
from ipate.errors import InputError, check_count

PARTITIONS = 16
LARGEST = 2**16  # of a coordinate, in absolute value
_EXACT = 2**52  # sums of whole numbers up to here are exact in a double
_BLOCK = 1 << 22  # entries of a block of distances
_SWEEPS = 50  # Lloyd iterations at most


@dataclass(frozen=True, eq=False)
class Cells:
    """Independent partitions of one space: `centres` has the shape (partitions, cells, dimensions), whole numbers."""

    centres: Floats

    def __post_init__(self) -> None:
        if self.centres.ndim != 3 or not self.centres.size:
            raise InputError(f"centres have the shape {self.centres.shape}: it must be (partitions, cells, dimensions)")
        check_grid(self.centres, "centres")
        self.centres.flags.writeable = False

    @property
    def partitions(self) -> int:
        """The number of partitions, r."""
        return int(self.centres.shape[0])

    @property
    def cells(self) -> int:
        """The number of cells of every partition, m."""
        return int(self.centres.shape[1])

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the maps: a histogram belongs to the cells with this fingerprint only."""
        text = f"ipate cells 1 {self.centres.shape} "
        return hashlib.sha256(text.encode() + self.centres.astype("<i4").tobytes()).hexdigest()

    def assign(self, points: Floats) -> NDArray[np.int32]:
        """Return the nearest centre of every point in every partition, (points, r); the lower index wins a tie."""
        if points.ndim != 2 or points.shape[1] != self.centres.shape[2]:
            raise InputError(f"points have the shape {points.shape}: the cells have {self.centres.shape[2]} dimensions")
        check_grid(points, "points")
        found = np.empty((len(points), self.partitions), dtype=np.int32)
        step = max(1, _BLOCK // self.cells)
        for start in range(0, len(points), step):
            block = points[start : start + step]
            for k, centres in enumerate(self.centres):
                distance = block @ (-2 * centres.T)
                distance += np.einsum("md,md->m", centres, centres)
                found[start : start + step, k] = np.argmin(distance, axis=1)
        return found

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the maps as plain arrays, to be stored."""
        return {"centres": self.centres.astype(np.int32)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the cells that `arrays` describes."""
        return cls(np.asarray(arrays["centres"], dtype=np.float64))


def check_grid(values: Floats, what: str) -> None:
    """Refuse coordinates whose distances would not be exact: fractions, or too large numbers for their dimensions."""
    if values.size and not (np.abs(values).max() <= LARGEST and np.array_equal(values, np.rint(values))):
        raise InputError(f"{what} are not on the grid: coordinates are whole numbers from −{LARGEST} to {LARGEST}")
    if 3 * values.shape[-1] * LARGEST**2 > _EXACT:
        raise InputError(f"{what} have {values.shape[-1]} dimensions: at most {_EXACT // (3 * LARGEST**2)} are exact")


def make_cells(
    pool: Floats,
    *,
    cells: int,
    partitions: int = PARTITIONS,
    n_jobs: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Cells:
    """Cut the space of the pool's features into cells, `partitions` times, by k-means from the seeds 1 to r.

    Where the pool has fewer different points than `cells`, some cells are empty. `progress` is called with the
    number of partitions that are done.
    """
    from joblib import Parallel, delayed

    check_grid(pool, "points")
    check_count("partitions", partitions)
    m = min(check_count("cells", cells), len(pool))
    tasks = (delayed(_k_means)(pool, m, k) for k in range(1, partitions + 1))
    found = []
    for centres in Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")(tasks):
        found.append(centres)
        if progress is not None:
            progress(len(found))
    return Cells(np.stack(found))


def _k_means(pool: Floats, cells: int, seed: int) -> Floats:
    """Return the centres of one partition, on the grid; one thread, so that the same pool gives the same centres."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different points than cells: some are equal
        fitted = KMeans(cells, n_init=1, random_state=seed, max_iter=_SWEEPS).fit(pool)
    return np.asarray(np.rint(fitted.cluster_centers_), dtype=np.float64)


def usual_cells(total_weight: float, *, n_classes: int, n_pool: int, per_cell: float = 6.0, most: int = 500) -> int:
    """Return m = W/6 between the number of classes and min(pool/5, 500): public figures alone decide."""
    wanted = max(math.floor(total_weight / per_cell), n_classes)
    return max(1, min(wanted, n_pool // 5, most))
