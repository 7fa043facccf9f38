"""Which points of the pool to ask, and in which order: decided by public points and released labels alone.

- *random*: a permutation of the pool.
- *typical*: the densest point of each of m k-means cells (Hacohen, Dekel and Weinshall, "Active learning on a budget",
  2022), those of large cells first.
- *coverage*: among the densest points of many cells, those from which label spreading reaches the pool best, by greedy
  facility location on the graph.

A second round asks where the labels of the first one disagree or do not reach: in the public clusters of the lowest
mean margin after spreading. It sees released labels only, so the choice itself costs nobody anything.
"""

import heapq
import math
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ipate._types import Floats, Ints
from ipate.errors import InputError, check_count, refuse_name
from ipate.public.graph import Graph, ProgressBar, check_points, logged_bar, make_graph, margins, no_bar, usual_alpha

SECOND_ROUND = 0.25  # the share of all queries that the second round asks
CLUSTERS = 150  # public clusters among which the second round chooses
_CANDIDATES, _MOST = 4, 1200  # of the coverage rule: per query, and in all
_REACHED = 1e-2  # tolerance of the spreading that coverage looks at
_LARGE = 20_000  # points: beyond this, k-means works with mini-batches
_SWEEPS, _BATCH = 50, 4096
_ENTRIES = 1 << 21  # of a block of candidates


def choose_queries(
    rule: str,
    points: NDArray[Any],
    m: int,
    *,
    seed: int,
    graph: Graph | None = None,
    n_jobs: int | None = None,
    progress_bar: ProgressBar = logged_bar,
) -> Ints:
    """Return the m points to ask, in the order to ask them; the same points, m and seed give the same queries.

    `points` are features of the pool; `graph` is their graph, and is made where a rule needs it and it is not given.
    """
    check_points(points)
    if rule not in RULES:
        refuse_name("queries", rule, tuple(RULES))
    wanted, seed = _checked(m, len(points)), check_count("seed", seed, least=0)
    if graph is not None and graph.points != len(points):
        raise InputError(f"the graph has {graph.points} points and the pool {len(points)}: they must be the same")

    def own_graph() -> Graph:
        return graph if graph is not None else make_graph(points, n_jobs=n_jobs, progress_bar=progress_bar)

    found = RULES[rule](points, wanted, seed, own_graph, progress_bar)
    return _filled(found, wanted, len(points), seed)


def next_queries(
    points: NDArray[Any],
    graph: Graph,
    targets: Floats,
    m: int,
    *,
    seed: int,
    alpha: float | None = None,
    balance: bool = True,
    asked: NDArray[Any] | None = None,
    progress_bar: ProgressBar = logged_bar,
) -> Ints:
    """Return m further points to ask, given what was released: (points, classes), rows of zeros where nothing was.

    The pool is cut into 150 clusters; those of the lowest mean margin are asked, each at its densest point that was
    not asked before. `asked` names further points that were asked in vain.
    """
    check_points(points)
    known = np.asarray(targets, dtype=np.float64)
    if known.ndim != 2 or len(known) != len(points) or graph.points != len(points):
        raise InputError(
            f"the pool has {len(points)} points, the graph {graph.points}, and targets the shape {known.shape}: "
            "there must be one row per point"
        )
    free = np.asarray(~known.any(axis=1))
    labels = int((~free).sum())
    if asked is not None:
        free[np.asarray(asked, dtype=np.int64)] = False
    wanted = _checked(m, int(free.sum()), what="points that were not asked")
    used = usual_alpha(labels, len(points)) if alpha is None else alpha
    lead = margins(graph.spread(known, alpha=used, balance=balance, progress_bar=progress_bar))
    cluster = clusters(points, min(CLUSTERS, len(points)), check_count("seed", seed, least=0))
    size = np.bincount(cluster)
    mean = np.bincount(cluster, weights=lead) / np.maximum(size, 1)
    open_ = np.flatnonzero(free)
    inside = open_[np.lexsort((open_, graph.reach[open_], cluster[open_]))]
    starts = np.searchsorted(cluster[inside], np.arange(len(size)))
    turn = np.arange(len(inside)) - starts[cluster[inside]]  # the first of every cluster, then the second, …
    return np.asarray(inside[np.lexsort((inside, mean[cluster[inside]], turn))][:wanted])


def second_round(m: int) -> int:
    """Return how many of m queries are left for the second round."""
    return int(SECOND_ROUND * check_count("m", m))


def _checked(m: object, n: int, what: str = "points") -> int:
    wanted = check_count("m", m)
    if wanted > n:
        raise InputError(f"m is {wanted}: the pool has {n} {what}")
    return wanted


def _filled(found: Ints, m: int, n: int, seed: int) -> Ints:
    """Return the first m, and points in random order where there are fewer, as in pools with many copies of a point."""
    rest = np.setdiff1d(np.arange(n), found)
    more = np.random.default_rng([seed, 1]).permutation(rest)
    return np.concatenate([found, more])[:m].astype(np.int64)


GraphMaker: TypeAlias = Callable[[], Graph]
Rule: TypeAlias = Callable[[NDArray[Any], int, int, GraphMaker, ProgressBar], Ints]


def _random(points: NDArray[Any], m: int, seed: int, graph: GraphMaker, progress_bar: ProgressBar) -> Ints:
    return np.random.default_rng([seed, 0]).permutation(len(points))[:m]


def _typical(points: NDArray[Any], m: int, seed: int, graph: GraphMaker, progress_bar: ProgressBar) -> Ints:
    """Return the densest point of each cell, large cells first."""
    cell, reach = clusters(points, m, seed), graph().reach
    order = np.lexsort((np.arange(len(points)), reach, cell))
    cells, first = np.unique(cell[order], return_index=True)
    return np.asarray(order[first][np.argsort(-np.bincount(cell)[cells], kind="stable")])


def _coverage(points: NDArray[Any], m: int, seed: int, graph: GraphMaker, progress_bar: ProgressBar) -> Ints:
    """Return the greedy solution of Σ_j max over chosen c of G_jc, a submodular sum.

    G = D^−½ (I − αS)⁻¹ D^½ = (I − αP)⁻¹ with the random walk P = D⁻¹W, so that every point has the same total to give:
    without the factor D^½, sparse clusters would count more than dense ones.
    """
    own = graph()
    candidates = _typical(
        points, min(len(points), max(m, min(_CANDIDATES * m, _MOST))), seed, lambda: own, progress_bar
    )
    if len(candidates) <= m:
        return candidates
    alpha, root = usual_alpha(m, len(points)), np.sqrt(own.degree)
    reached = np.empty((len(candidates), len(points)), dtype=np.float32)
    step = max(1, _ENTRIES // len(points))
    with progress_bar("coverage of the candidates", len(candidates)) as told:
        for start in range(0, len(candidates), step):
            block = candidates[start : start + step]
            ones = np.zeros((len(points), len(block)))
            ones[block, np.arange(len(block))] = root[block]
            found = own.solve(ones, alpha=alpha, tolerance=_REACHED, progress_bar=no_bar)
            reached[start : start + step] = (found / root[:, None]).T
            told(start + len(block))
    return candidates[_greedy(reached, m)]


def _greedy(reached: NDArray[np.float32], m: int) -> Ints:
    """Return the candidates of the largest gains in turn; a gain only shrinks, so stale ones are upper bounds."""
    best = np.zeros(reached.shape[1], dtype=np.float32)
    heap = [(-math.inf, place) for place in range(len(reached))]
    chosen: list[int] = []
    fresh = -1
    while len(chosen) < m:
        _, place = heapq.heappop(heap)
        if place == fresh:
            chosen.append(place)
            np.maximum(best, reached[place], out=best)
            fresh = -1
            continue
        gain = float(np.maximum(reached[place] - best, 0).sum(dtype=np.float64))
        heapq.heappush(heap, (-gain, place))
        fresh = place if heap[0][1] == place else -1
    return np.array(chosen, dtype=np.int64)


def clusters(points: NDArray[Any], count: int, seed: int) -> NDArray[np.int64]:
    """Return the k-means cell of every point; one thread, so that the same points give the same cells."""
    from sklearn.cluster import KMeans, MiniBatchKMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    kind, more = (KMeans, {}) if len(points) <= _LARGE else (MiniBatchKMeans, {"batch_size": _BATCH})
    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different points than cells: some are empty
        made = kind(count, n_init=1, random_state=seed, max_iter=_SWEEPS, **more)
        return np.asarray(made.fit_predict(np.asarray(points, dtype=np.float64)), dtype=np.int64)


RULES: dict[str, Rule] = {"random": _random, "typical": _typical, "coverage": _coverage}
"""Every rule by name; which one is the default depends on the student (`ipate.students.student.Student.queries`)."""
