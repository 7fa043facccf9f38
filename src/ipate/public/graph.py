"""The graph of nearest neighbours of the pool, and label spreading on it.

Every point is joined to its K nearest neighbours with the weight w = exp(−d²/d̄²), where d̄ is the mean of all these
distances; W is the larger of w and its transpose, and S = D^−½ W D^−½ with the degrees D. Labels are spread as
Z = (I − αS)⁻¹ Y (Zhou, Bousquet, Lal, Weston and Schölkopf, "Learning with local and global consistency", 2004). The
inverse is applied as its Chebyshev series, which has a closed form:

    (I − αS)⁻¹ = Σ_k c_k T_k(S),   c_k = (2 − [k = 0])·ρ^k/√(1 − α²),   ρ = (1 − √(1 − α²))/α.

S has its eigenvalues in [−1, 1], where |T_k| ≤ 1, so that the sum of the c_k that are left out bounds the error.
"""

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ipate._types import Floats
from ipate.errors import InputError, check_count, show

ProgressBar: TypeAlias = Callable[[str, int], AbstractContextManager[Callable[[int], Any]]]
NEIGHBORS = 10
TOLERANCE = 1e-9
_ROWS = 2048  # points whose neighbours are found at a time
_ENTRIES = 1 << 22  # of a block of columns
_FAINTEST = 1e-12  # weight of an edge: a point far from all others stays joined to its neighbours
_SHARE = 0.1  # of the mean mass of a class: rarer classes are not raised further
_FIRST, _LATER = 2.0, 10.0  # seconds until progress is logged, and between two lines of it


@contextmanager
def logged_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Log the progress of work that lasts more than two seconds, under the name ipate."""
    due = time.monotonic() + _FIRST

    def told(done: int) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + _LATER
            logging.getLogger("ipate").info("%s: %s of %s", what, f"{done:,}", f"{total:,}")

    yield told


def no_bar(_what: str, _total: int) -> AbstractContextManager[Callable[[int], None]]:
    """Show no progress."""
    return nullcontext(lambda done: None)


@dataclass(frozen=True, kw_only=True, eq=False)
class Graph:
    """The symmetric graph of nearest neighbours of a pool."""

    similarity: Any  # S, a sparse array
    degree: Floats
    reach: Floats  # the mean distance of each point to its neighbours: small where the pool is dense

    @property
    def points(self) -> int:
        """The number of points of the pool."""
        return len(self.degree)

    def solve(
        self, values: ArrayLike, *, alpha: float, tolerance: float = TOLERANCE, progress_bar: ProgressBar = logged_bar
    ) -> Floats:
        """Return (I − αS)⁻¹ times the columns of `values`; the error of a column is at most `tolerance` · its norm."""
        columns = np.asarray(values, dtype=np.float64)
        if columns.ndim != 2 or len(columns) != self.points:
            raise InputError(f"values have the shape {columns.shape}: it must be ({self.points}, columns)")
        factors = _series(check_alpha(alpha), tolerance)
        found = np.empty(columns.shape)
        step = max(1, _ENTRIES // self.points)
        starts = range(0, columns.shape[1], step)
        with progress_bar("spreading over the graph", len(starts) * len(factors)) as told:
            for done, start in enumerate(starts):
                now = np.ascontiguousarray(columns[:, start : start + step])
                total, before = factors[0] * now, np.zeros_like(now)
                for k, factor in enumerate(factors[1:], start=1):
                    after = self.similarity @ now
                    if k > 1:
                        after *= 2
                        after -= before
                    before, now = now, after
                    total += factor * now
                    told(done * len(factors) + k)
                found[:, start : start + step] = total
        return found

    def spread(
        self, targets: ArrayLike, *, alpha: float, balance: bool = True, progress_bar: ProgressBar = logged_bar
    ) -> Floats:
        """Return the distribution over classes of every point, from `targets`: (points, classes), 0 where unknown.

        With `balance`, every class has the same mass in the end, except that the targets of a class with less than a
        tenth of the mean mass are not raised further. A point that no label reaches has equal shares.
        """
        known = np.array(targets, dtype=np.float64)
        if known.ndim != 2 or not np.isfinite(known).all() or (known < 0).any():
            raise InputError("targets must be an array (points, classes) of finite numbers, 0 or above")
        mass = known.sum(axis=0)
        if balance and mass.any():
            known /= np.maximum(mass, _SHARE * mass[mass > 0].mean())
        found = np.maximum(self.solve(known, alpha=alpha, progress_bar=progress_bar), 0.0)
        total = found.sum(axis=1, keepdims=True)
        reached = total > TOLERANCE * np.linalg.norm(known, axis=0).sum()
        return np.where(reached, found / np.where(reached, total, 1.0), 1 / known.shape[1])


def margins(distributions: Floats) -> Floats:
    """Return the lead of the first class before the second one, for every point."""
    if distributions.shape[1] < 2:
        return np.ones(len(distributions))
    top = np.partition(distributions, -2, axis=1)[:, -2:]
    return np.asarray(top[:, 1] - top[:, 0])


def usual_alpha(n_labels: int, n_points: int) -> float:
    """Return α = .99 where at most every 75th point has a label, .8 where most have, else .95.

    Scarce labels are spread further; labels of nearly all points, as of ballots, only need to agree with neighbours.
    """
    if nearly_all(n_labels, n_points):
        return 0.8
    return 0.99 if 75 * n_labels <= n_points else 0.95


def nearly_all(n_labels: int, n_points: int) -> bool:
    """Return whether more than 70% of the points have a label, as after ballots: then class shares are known."""
    return 10 * n_labels > 7 * n_points


def check_alpha(alpha: object) -> float:
    """Return α if it is a number between 0 and 1, both excluded."""
    if isinstance(alpha, bool | str) or not isinstance(alpha, int | float | np.number) or not 0 < float(alpha) < 1:
        raise InputError(f"alpha is {show(alpha)}: it must lie strictly between 0 and 1, or be 'auto' in a student")
    return float(alpha)


def _series(alpha: float, tolerance: float) -> Floats:
    """Return c_0, c_1, … until the sum of the rest is below the tolerance."""
    root = math.sqrt((1 - alpha) * (1 + alpha))
    rho = alpha / (1 + root)
    steps = math.ceil(math.log(tolerance * root * (1 - rho) / 2) / math.log(rho))
    factors = 2 / root * rho ** np.arange(max(steps, 1))
    factors[0] /= 2
    return np.asarray(factors)


def make_graph(
    points: NDArray[Any],
    *,
    n_neighbors: int = NEIGHBORS,
    n_jobs: int | None = None,
    progress_bar: ProgressBar = logged_bar,
) -> Graph:
    """Join every point to its nearest neighbours; the same points give the same graph, whatever `n_jobs` is."""
    from scipy.sparse import coo_array

    check_points(points)
    n = len(points)
    wide = min(check_count("n_neighbors", n_neighbors), n - 1)
    neighbors, distances = _neighbors(np.asarray(points, dtype=np.float64), wide, n_jobs, progress_bar)
    mean = float(distances.mean())
    weights = np.exp(-np.square(distances / mean)) if mean > 0 else np.ones(distances.shape)
    weights = np.maximum(weights, _FAINTEST)
    places = np.repeat(np.arange(n), wide)
    one_way = coo_array((weights.ravel(), (places, neighbors.ravel())), shape=(n, n)).tocsr()
    both = one_way.maximum(one_way.T).tocsr()
    degree = np.asarray(both.sum(axis=1), dtype=np.float64).ravel()
    root = 1 / np.sqrt(degree)
    rows = np.repeat(np.arange(n), np.diff(both.indptr))
    both.data *= root[rows] * root[both.indices]
    return Graph(similarity=both, degree=degree, reach=distances.mean(axis=1))


def check_points(points: Any) -> None:
    """Refuse what is not a table of at least two points with finite coordinates."""
    if not isinstance(points, np.ndarray) or points.ndim != 2 or points.dtype.kind not in "biuf" or not points.size:
        raise InputError(
            f"points have the shape {np.shape(points)}: they must be an array of numbers (points, columns)"
        )
    if len(points) < 2 or not np.isfinite(points).all():
        raise InputError("points must be at least two, and all coordinates finite")


def _neighbors(
    points: Floats, wide: int, n_jobs: int | None, progress_bar: ProgressBar
) -> tuple[NDArray[np.int64], Floats]:
    """Return the nearest other points of every point and their distances, (points, wide) each."""
    from joblib import Parallel, delayed
    from sklearn.neighbors import NearestNeighbors
    from threadpoolctl import threadpool_limits

    n = len(points)
    index = NearestNeighbors(n_neighbors=wide + 1).fit(points)

    def find(start: int) -> tuple[int, NDArray[np.int64], Floats]:
        block = points[start : start + _ROWS]
        with threadpool_limits(limits=1):  # so that sums have one order
            distance, place = index.kneighbors(block)
        other = place != np.arange(start, start + len(block))[:, None]
        other[other.all(axis=1), -1] = False  # copies of the point have taken its own place
        return start, place[other].reshape(len(block), wide), distance[other].reshape(len(block), wide)

    neighbors, distances = np.empty((n, wide), dtype=np.int64), np.empty((n, wide))
    work = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator_unordered")
    with progress_bar("nearest neighbours", n) as told:
        for done, (start, place, distance) in enumerate(work(delayed(find)(at) for at in range(0, n, _ROWS)), start=1):
            neighbors[start : start + _ROWS], distances[start : start + _ROWS] = place, distance
            told(min(n, done * _ROWS))
    return neighbors, distances
