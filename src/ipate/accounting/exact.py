"""The exact cost of a release on these votes: Rényi divergences of the very laws that are released.

Both directions, D_α(P‖Q) and D_α(Q‖P), are covered, for every neighbour of the votes as they are: data sets
that differ in what one person contributed, with everybody's teachers, weights and budgets unchanged. The
costs depend on the private votes: they describe this data set and are private themselves.

No cost here exceeds the one that ignores the votes (`loose`): the Gaussian mechanism's, αΔ²/(2σ²) per moved
coordinate (Mironov 2017, arXiv:1702.07476v3, Corollary 3), by the data processing inequality. Nor is any that
was paid reported as 0 because it was too small for a float.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr

from ipate._types import Bools, Floats
from ipate.accounting._argmax import Batch, Laws, check_counts, grid_points, is_wide, laws_of
from ipate.accounting._renyi import worst_divergence, worst_tangent
from ipate.accounting.bounds import Orders, Voters, check_orders, check_positive, check_sensitivity
from ipate.accounting.loose import RenyiBound
from ipate.errors import InputError

# Numbers per table: a batch of queries (several tables), a block of rows, a part of the input.
_BATCH_CELLS = _BLOCK_CELLS = 1 << 17
_PART_CELLS, _PART_COSTS = 400_000, 2_000_000
_MOST_CELLS = 1 << 20  # counts so far apart that a table would be larger keep the loose cost, which is sound
_SMALLEST = float(np.finfo(np.float64).tiny)
Indices = NDArray[np.intp]


def check_rdp(
    maxima: ArrayLike, orders: ArrayLike, *, sensitivity: ArrayLike, check_sigma: float, threshold: float
) -> Floats:
    """Exact cost (Q, A) of the check 1[m + N(0, σ_T²) ≥ T], in both directions, where m (Q,) may move by ±Δ.

    The worst neighbour is at an end: a divergence of two Bernoulli laws is convex in either law's probability (van
    Erven and Harremoës 2014, Theorems 11 and 13) and 0 where they agree. Δ is a number or (Q,), and 0 costs 0.
    """
    alphas = check_orders(orders)
    scale = check_positive("check_sigma", check_sigma)
    scores = np.asarray(maxima, dtype=np.float64)
    if scores.ndim != 1 or not np.isfinite(scores).all() or not np.isfinite(threshold):
        raise InputError("maxima must be a list of finite numbers and the threshold a finite number")
    moves = _per_query("sensitivity", sensitivity, len(scores)) / scale
    z = (scores - threshold) / scale
    near, moved = np.broadcast_arrays(z[:, None], z[:, None] + moves[:, None] * [-1.0, 1.0])
    logp, logq = (np.stack([log_ndtr(each), log_ndtr(-each)]) for each in (near, moved))
    cost = worst_divergence(logp, logq, np.ones_like(logp), alphas, reverse=True)
    return _bounded(cost, moves, alphas, factor=0.5)


def label_rdp_by_source(
    counts: ArrayLike,
    orders: ArrayLike,
    *,
    weight: ArrayLike,
    sigma: float,
    sources: ArrayLike | None = None,
    abstain: bool = False,
) -> Floats:
    """Exact cost of a label, by the class that a teacher of weight w voted for.

    Entry [q, a] of (Q, C, A) is the largest of D_α(P‖Q) and D_α(Q‖P) over all moves of one vote of weight w, which is a
    number or (Q,), from class a to any other: P is the law of argmax_j (n_j + N(0, σ²)) on these votes, Q on the moved
    ones. Entries that `sources` (Q, C) does not name are left at 0. With `abstain` a move may also go to no class, and
    a last source is added, C + 1 in all, for a teacher that abstained.
    """
    votes, alphas = check_counts(counts), check_orders(orders)
    scale = check_positive("sigma", sigma)
    queries, classes = votes.shape
    moves = _per_query("weight", weight, queries) / scale
    shape = (queries, classes + abstain)
    wanted = np.broadcast_to(np.True_, shape) if sources is None else np.asarray(sources, dtype=np.bool_)
    if wanted.shape != shape:
        raise InputError(f"sources have the shape {wanted.shape}: they must be {shape}")
    out = np.zeros((*wanted.shape, alphas.size))
    for part in _parts(votes, alphas):
        asked, costs = wanted[part], out[part]
        np.multiply(_loose(moves[part], alphas)[:, None], asked[:, :, None], out=costs)
        for work in _batches(votes[part] / scale, moves[part], asked, abstain):
            cost = np.zeros((*work.wanted.shape, alphas.size))
            laws = laws_of(work.batch)
            for q, a in work.rows(alphas.size):
                logp, logq, sizes = laws.stayed(q, a), laws.moved(q, a), laws.sizes(q, a)
                rows = worst_divergence(logp, logq, sizes, alphas, reverse=True)
                cost[q, a] = _bounded(rows, work.batch.weight[q], alphas)
            for c in range(asked.shape[1]):
                here = asked[work.queries, c]
                costs[work.queries[here], c] = cost[work.local[here], work.places[here, c]]
    return out


def group_label_rdp(by_source: Floats, voted: ArrayLike) -> Floats:
    """Cost of a label for a group, (Q, A): the worst of `by_source` (Q, S, A) over the sources `voted` (Q, S), or 0."""
    mask = np.asarray(voted, dtype=np.bool_)
    if by_source.ndim != 3 or mask.shape != by_source.shape[:2]:
        raise InputError(f"voted has the shape {mask.shape}, the costs {by_source.shape}: they must agree")
    out = np.zeros((by_source.shape[0], by_source.shape[2]))
    for source in range(mask.shape[1]):
        np.maximum(out, by_source[:, source], out=out, where=mask[:, source, None])
    return out


def upsampled_label_rdp(
    counts: ArrayLike, orders: ArrayLike, *, copies: ArrayLike, sigma: float, abstain: bool = False
) -> Floats:
    """Upper bound on the cost of a label when one person may move up to u = `copies` votes at once.

    Whatever leaves and whatever arrives is matched one to one, so every move lies in the polytope spanned by
    0 and its vertices u(e_b − e_a) for a with votes, b ≠ a (with `abstain` also −u·e_a and +u·e_b, where a
    vote goes to or comes from none). To let u votes leave a class that has fewer only enlarges it.

    - D_α(P‖Q) is convex in the moved votes n′, as each Q_j is log-concave in n′ (Prékopa 1973: a marginal of
      a log-concave function), so ln Σ_j P_j^α Q_j^(1−α) is a log-sum-exp of convex functions: its maximum is
      at a vertex, and computed there.
    - D_α(Q‖P) is not maximal at the vertices. By the same log-concavity ln Q_j ≤ ln P_j + ∇ln P_j·v, so it is
      at most ln(Σ_j P_j exp(α ∇ln P_j·v))/(α − 1), which is convex in the move v: the largest value over the
      vertices bounds every move.

    Returns (Q, A): the larger of the two, or `loose` where that is smaller. u is a number or (Q,), and 0 costs 0.
    """
    votes, alphas = check_counts(counts), check_orders(orders)
    scale = check_positive("sigma", sigma)
    moves = _per_query("copies", copies, len(votes)) / scale
    wanted = np.pad(votes > 0, ((0, 0), (0, int(abstain))), constant_values=True)
    out = np.zeros((len(votes), alphas.size))
    for part in _parts(votes, alphas):
        out[part] = _loose(moves[part], alphas) * wanted[part].any(axis=1, keepdims=True)
        for work in _batches(votes[part] / scale, moves[part], wanted[part], abstain):
            cost = np.zeros((len(work.wanted), alphas.size))
            laws = laws_of(work.batch)
            for q, a in work.rows(alphas.size):
                np.maximum.at(cost, q, _upsampled_rows(laws, q, a, alphas))
            out[part][work.queries] = _bounded(cost, work.batch.weight, alphas)[work.local]
    return out


def _upsampled_rows(laws: Laws, q: Indices, a: Indices, orders: Floats) -> Floats:
    """Forward divergence and reverse tangent bound, the larger of both, over all vertices of each source."""
    logp, sizes = laws.stayed(q, a), laws.sizes(q, a)
    forward = worst_divergence(logp, laws.moved(q, a), sizes, orders, reverse=False)
    return np.maximum(forward, worst_tangent(logp, laws.slopes(q, a), sizes, orders))


def _loose(moves: Floats, orders: Floats, factor: float = 1.0) -> Floats:
    """Cost of the Gaussian mechanism below the release: αw²/σ² if two classes move, half of it for one."""
    return np.asarray(factor * moves[:, None] ** 2 * orders)


def _bounded(cost: Floats, moves: Floats, orders: Floats, factor: float = 1.0) -> Floats:
    """Cost, at most that of the Gaussian mechanism, and above 0 wherever something moves."""
    loose = _loose(moves, orders, factor)
    return np.where(moves[:, None] > 0, np.minimum(np.maximum(cost, _SMALLEST), loose), 0.0)


def _per_query(name: str, value: ArrayLike, queries: int) -> Floats:
    """Return a number, or one per query, as (Q,)."""
    array = check_sensitivity(value)
    if array.shape not in ((), (queries,)):
        raise InputError(f"{name} has the shape {array.shape}: it must be one number or ({queries},)")
    return np.broadcast_to(array, (queries,))


def _parts(votes: Floats, orders: Floats) -> Iterator[slice]:
    """Ranges of queries that bound the memory of everything but the result; none for a lone class."""
    size = max(1, min(_PART_CELLS // votes.shape[1], _PART_COSTS // orders.size))
    return (slice(start, start + size) for start in range(0, len(votes), size) if votes.shape[1] > 1)


@dataclass(frozen=True)
class _Work:
    """A batch of distinct histograms, and the queries that have them.

    `wanted` (n, D [+ 1]) says which sources are needed; query `queries[i]` has the histogram `local[i]`, and
    its class (or none) c the distinct count `places[i, c]`.
    """

    batch: Batch
    wanted: Bools
    queries: Indices
    local: Indices
    places: Indices

    def rows(self, orders: int) -> Iterator[tuple[Indices, Indices]]:
        """Blocks of (histogram, source) pairs, small enough for the cache where they can be."""
        q, a = np.nonzero(self.wanted)
        distinct = self.batch.values.shape[1]
        size = max(1, _BLOCK_CELLS // ((distinct + 1) * max(self.batch.points, distinct, orders)))
        return ((q[start : start + size], a[start : start + size]) for start in range(0, len(q), size))


def _batches(votes: Floats, moves: Floats, wanted: Bools, abstain: bool) -> Iterator[_Work]:
    """Queries of as many distinct counts and grid points, together; equal histograms, up to order, only once."""
    classes = votes.shape[1]
    order = np.argsort(votes, axis=1, kind="stable")
    ranked = np.take_along_axis(votes, order, axis=1)
    _, first, same = np.unique(np.column_stack([ranked, moves]), axis=0, return_index=True, return_inverse=True)
    same = same.reshape(-1)
    ranked, weight = ranked[first], moves[first]
    place = np.zeros(ranked.shape, dtype=np.intp)  # which of the distinct counts, by rank
    np.cumsum(np.diff(ranked, axis=1) > 0, axis=1, out=place[:, 1:])
    places = np.empty_like(order)
    np.put_along_axis(places, order, place[same], axis=1)
    if abstain:
        places = np.column_stack([places, place[same, -1] + 1])
    needed = np.zeros((len(first), classes + 1), dtype=np.bool_)
    query, column = np.nonzero(wanted & (moves > 0)[:, None])
    needed[same[query], places[query, column]] = True

    low, high = ranked[:, 0], ranked[:, -1]
    points = grid_points(low, high, weight, classes)
    distinct = place[:, -1] + 1
    shapes = np.column_stack([is_wide(low, high, weight), distinct, points])
    turn, ranges = _ranges(shapes, np.flatnonzero(needed.any(axis=1) & (points * distinct <= _MOST_CELLS)))
    turn_of = np.full(len(first), -1)
    turn_of[turn] = np.arange(len(turn))
    queue = np.argsort(turn_of[same], kind="stable")
    queued = turn_of[same][queue]
    for start, stop in ranges:
        at = turn[start:stop]
        values = np.empty((len(at), distinct[at[0]]))
        np.put_along_axis(values, place[at], ranked[at], axis=1)
        sizes = (place[at][:, :, None] == np.arange(distinct[at[0]])).sum(axis=1).astype(np.float64)
        batch = Batch(values, sizes, weight[at], int(points[at[0]]), classes, abstain)
        here = slice(*np.searchsorted(queued, [start, stop]))
        queries = queue[here]
        yield _Work(batch, needed[at, : distinct[at[0]] + abstain], queries, queued[here] - start, places[queries])


def _ranges(shapes: Indices, needed: Indices) -> tuple[Indices, list[tuple[int, int]]]:
    """Order histograms by shape (wide, distinct counts, points); cut where it changes or a table is full."""
    turn = needed[np.lexsort(shapes[needed].T)]
    cuts = np.flatnonzero(np.diff(shapes[turn], axis=0, prepend=-1).any(axis=1))
    ranges = []
    for start, stop in pairwise([*cuts.tolist(), len(turn)]):
        _, distinct, points = shapes[turn[start]]
        size = max(1, int(_BATCH_CELLS // (distinct * points)))
        ranges += [(begin, min(begin + size, stop)) for begin in range(start, stop, size)]
    return turn, ranges


class Exact(RenyiBound):
    """Checks and labels cost what the private votes say, in both directions."""

    name = "exact"
    summary = "exact: computed from the private votes, in both directions"
    needs_votes_by_group = True
    batch_size = 256

    def check_cost(
        self, orders: Orders, maxima: Floats, *, sensitivity: Floats, check_sigma: float, threshold: float
    ) -> Floats:
        """Return the exact cost of every check: (B, accounts, A)."""
        columns = np.broadcast_to(sensitivity, (len(maxima), sensitivity.shape[-1])).T
        known = {  # accounts with the same sensitivities pay the same
            key: check_rdp(maxima, orders, sensitivity=moved, check_sigma=check_sigma, threshold=threshold)
            for key, moved in {moved.tobytes(): moved for moved in columns}.items()
        }
        return np.stack([known[moved.tobytes()] for moved in columns], axis=1)

    def label_cost(
        self, orders: Orders, counts: Floats, *, sensitivity: Floats, sigma: float, noise: str, voters: Voters | None
    ) -> Floats:
        """Return the exact cost of every label: (B, accounts, A)."""
        if voters is None:
            raise InputError("bound is 'exact': its costs need to know who voted what")
        if voters.present is not None and voters.scale is not None:
            return _label_by_teacher(orders, counts, voters, present=voters.present, scale=voters.scale, sigma=sigma)
        return _label_by_group(orders, counts, voters, sensitivity=sensitivity, sigma=sigma)


def _label_by_group(orders: Orders, counts: Floats, voters: Voters, *, sensitivity: Floats, sigma: float) -> Floats:
    """Weighting where a person moves one teacher's vote, else upsampling: any votes up to Δ move."""
    from ipate.accounting import sup

    cost = np.zeros((len(counts), len(voters.blocs), len(orders)))
    width = counts.shape[1] + voters.abstain
    by_weight: dict[float, list[tuple[int, int]]] = {}
    for position, blocs in enumerate(voters.blocs):
        if blocs is None:
            moved = sensitivity[position]
            own = upsampled_label_rdp(counts, orders, copies=moved, sigma=sigma, abstain=voters.abstain)
            worst = sup.label_rdp(orders, sensitivity=moved, sigma=sigma)
            cost[:, position] = np.minimum(own, worst)  # the tangent bound can pass the worst over all votes
        for index in blocs or ():
            by_weight.setdefault(voters.weights[index], []).append((position, index))
    for weight, payers in by_weight.items():
        voted = voters.voted[[index for _, index in payers], :, :width]
        sources = voted.any(axis=0)
        by_source = label_rdp_by_source(
            counts, orders, weight=weight, sigma=sigma, sources=sources, abstain=voters.abstain
        )
        for (position, _), own_votes in zip(payers, voted, strict=True):
            cost[:, position] = np.maximum(cost[:, position], group_label_rdp(by_source, own_votes))
    return cost


def _label_by_teacher(
    orders: Orders, counts: Floats, voters: Voters, *, present: Bools, scale: Floats, sigma: float
) -> Floats:
    """Vanishing: a teacher's account pays for moves of that teacher's own vote, when it took part."""
    sources = voters.voted[0, :, : counts.shape[1] + voters.abstain]
    by_source = label_rdp_by_source(counts, orders, weight=scale, sigma=sigma, sources=sources, abstain=voters.abstain)
    rows = np.arange(len(counts))[:, None]
    cost = by_source[rows, voters.votes.T.astype(np.intp)]  # −1, an abstention, is the last source
    return np.asarray(np.where(present.T[..., None], cost, 0.0))


BOUND = Exact()
