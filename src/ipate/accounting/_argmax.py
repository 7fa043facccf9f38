"""The law of the noisy argmax, for a histogram and for every histogram one move away from it.

GNMax releases argmax_j (n_j + N(0, σ²)) with independent noise (Papernot et al. 2018, arXiv:1802.08908v1,
section 4). In units of σ, with hazards h_j(t) = φ(t − n_j)/Φ(t − n_j) and Π(t) = ∏_i Φ(t − n_i)::

    P_j(n) = ∫ φ(t − n_j) ∏_{i≠j} Φ(t − n_i) dt = ∫ h_j Π dt,      ∂P_j/∂n_i = −∫ h_i h_j Π dt   (i ≠ j)

Moving w from class a to b multiplies Π by Φ(t − n_a + w)/Φ(t − n_a) and by Φ(t − n_b − w)/Φ(t − n_b): three
tables of Φ on one grid hold all the laws, and matrix products sum them. Equal counts share their entries.

The grid. Each integrand is log-concave in t and falls at least as fast as e^(−d²/2) at distance d from its
peak t*, which solves t* − n_j = Σ_{i≠j} h_i(t*). As h(z) > −z, t* ≥ (n_j + max n)/2; as h decreases and
(C−1) h(s) < s for s = √(2 ln C), t* ≤ max n + s. Within that range and 8.5 on either side the trapezoid rule
converges geometrically (Trefethen and Weideman 2014, SIAM Review 56(3), section 5).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, ndtr

from ipate._types import Floats
from ipate.accounting._ternary import log_density
from ipate.accounting.bounds import check_not_negative, check_positive
from ipate.errors import InputError

_REACH = 8.5  # distance from the peak, in σ, where an integrand has fallen below e^-36 of it
_LINEAR_SPREAD = 32.0  # in σ: up to it no neighbour's probability falls below e^-640, and no logarithms are needed
_FAR, _NODES, _LN2 = 40.0, 64, float(np.log(2))  # of the rule for Laplace noise: its reach and points per interval
_CELLS = 1 << 20  # numbers a table may hold where the caller doesn't bound them


def check_counts(counts: ArrayLike) -> Floats:
    """Return vote histograms as floats of shape (Q, C), finite and not negative."""
    array = check_not_negative(counts, "counts hold")
    if array.ndim != 2 or array.shape[1] == 0:
        raise InputError(f"counts have the shape {array.shape}: they must be (queries, classes)")
    return array


def argmax_log_law(counts: ArrayLike, sigma: float, noise: str = "gaussian") -> Floats:
    """Return ln P_j(n) of each class under argmax_j (n_j + N(0, σ²)), right to about 1e-13 of its size.

    `counts`, (Q, C) or (C,), are real numbers, negative ones too; the result has their shape. Classes with the same
    counts in all queries are computed once. If `noise` is "laplace", `sigma` is the scale of Laplace noise, and
    probabilities are right to about 1e-12 with few classes, and 1e-10 with 200 of the same counts.
    """
    scale = check_positive("sigma", sigma)
    array = np.asarray(counts, dtype=np.float64)
    values = np.atleast_2d(array) / scale
    classes = values.shape[-1]
    if not np.isfinite(values).all() or values.ndim != 2 or classes == 0:
        raise InputError(f"counts of shape {array.shape} must be finite numbers, (queries, classes)")
    place = np.arange(classes)
    if noise == "laplace":
        distinct = 1 + int((np.diff(np.sort(values, axis=1), axis=1) > 0).sum(axis=1).max(initial=0))
        law: Callable[[Floats], Floats] = _laplace_log_law
        cells = 3 * distinct**2 * _NODES
    else:
        points = int(grid_points(values.min(axis=1), values.max(axis=1), np.zeros(1), classes).max(initial=0))
        _, first, place, equal = np.unique(values, axis=1, return_index=True, return_inverse=True, return_counts=True)
        values, cells = values[:, first], len(first) * points
        law = partial(_gaussian_log_law, sizes=equal.astype(np.float64), points=points, classes=classes)
    out = np.zeros_like(values)
    size = max(1, _CELLS // max(1, cells))
    for start in range(0, len(values), size):
        out[start : start + size] = law(values[start : start + size])
    return out[:, place.ravel()].reshape(array.shape)  # of one dimension, whatever the version of numpy


def _gaussian_log_law(values: Floats, *, sizes: Floats, points: int, classes: int) -> Floats:
    """Return ln P_j of one class of each column of `values`, (Q, D) in units of σ; `sizes` classes share a column."""
    many = np.broadcast_to(sizes, values.shape)
    return _LogLaws(Batch(values, many, np.zeros(len(values)), points, classes, abstain=False)).log_law


def _laplace_log_law(values: Floats) -> Floats:
    """Return ln P_j of counts (Q, C) in units of the scale: ∫ f(t − n_j) ∏_{i≠j} F(t − n_i) dt by Gauss and Legendre.

    The rule is applied between distinct counts and the points 40 from each, so that its intervals have no kinks inside.
    """
    ordered = np.sort(values, axis=1)
    place = np.cumsum(np.diff(ordered, axis=1, prepend=ordered[:, :1]) > 0, axis=1, dtype=np.intp)
    distinct = np.repeat(ordered[:, -1:], place.max(initial=0) + 1, axis=1)
    np.put_along_axis(distinct, place, ordered, axis=1)
    sizes = (place[:, :, None] == np.arange(distinct.shape[1])).sum(axis=1)  # 0 where a row has fewer distinct counts
    edges = np.sort(np.hstack([distinct - _FAR, distinct, distinct + _FAR]), axis=1)
    half = np.diff(edges, axis=1)[:, :, None] / 2
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    t = ((edges[:, :-1, None] + half) + half * nodes).reshape(len(values), -1)
    with np.errstate(divide="ignore"):  # between equal counts there is nothing
        measure = np.log(half * weights).reshape(len(values), -1)
    z = t[:, None, :] - distinct[:, :, None]
    log_cdf = np.where(z < 0, z - _LN2, np.log1p(-0.5 * np.exp(-np.abs(z))))
    base = np.einsum("nd,ndt->nt", sizes, log_cdf) + measure
    law = _log_sum(base[:, None, :] - np.abs(z) - _LN2 - log_cdf)
    back = np.argmax(values[:, :, None] == distinct[:, None, :], axis=2)
    return np.take_along_axis(law, back, axis=1)


def _step(classes: int) -> float:
    """Step of the grid in σ: a relative error below 2e-13, measured at equal counts up to 100,000 classes."""
    return 0.2 if classes <= 50 else 0.15 if classes <= 200 else 0.1 if classes <= 5000 else 0.08


def grid_points(low: Floats, high: Floats, weight: Floats, classes: int) -> NDArray[np.intp]:
    """Points of the grid for counts from `low` to `high` and moves of `weight`, in σ, rounded up to a multiple of 8."""
    length = (high - low) / 2 + 1.5 * weight + np.sqrt(2 * np.log(classes)) + 2 * _REACH
    return np.asarray(8 * np.ceil((length / _step(classes) + 1) / 8), dtype=np.intp)


def is_wide(low: Floats, high: Floats, weight: Floats) -> NDArray[np.bool_]:
    """Whether probabilities could fall out of floating-point range, so that logarithms are needed."""
    return np.asarray(high - low + 2 * weight > _LINEAR_SPREAD)


@dataclass(frozen=True)
class Batch:
    """Histograms with the same number D of distinct counts, in units of σ.

    `values` (n, D) are the distinct counts, `sizes` (n, D) how many classes have each, `weight` (n,) what a
    move carries. With `abstain` a move may also come from, or go to, no class at all: index D.
    """

    values: Floats
    sizes: Floats
    weight: Floats
    points: int
    classes: int
    abstain: bool

    @property
    def step(self) -> float:
        """Distance of two grid points."""
        return _step(self.classes)

    def scores(self) -> Floats:
        """Return t − n on the grid, (n, D, T), which covers every neighbour's integrands too."""
        low = (self.values.min(axis=1) + self.values.max(axis=1) - self.weight) / 2 - _REACH
        grid = low[:, None] + self.step * np.arange(self.points)
        return np.asarray(grid[:, None, :] - self.values[:, :, None])


class Laws(ABC):
    """The argmax laws of a batch and of its neighbours, as log-probabilities.

    A row is a source: a query `q` and a distinct count `a` that loses a vote. It has B = D targets (D + 1
    with `abstain`) and D + 2 outcomes: the classes that stay as they were, by count; the one that loses; the
    one that gains. `sizes` says how many classes each outcome stands for, 0 where there is none.
    """

    batch: Batch
    log_law: Floats  # ln P of one class of each distinct count, (n, D)

    @abstractmethod
    def moved(self, q: NDArray[np.intp], a: NDArray[np.intp]) -> Floats:
        """Log-law of every neighbour, (D + 2, R, B)."""

    @abstractmethod
    def overlaps(self) -> Floats:
        """∫ h_i h_j Π dt / P_j, (n, D, D): −∂ ln P_j/∂n_i for two classes with the counts i and j."""

    def stayed(self, q: NDArray[np.intp], a: NDArray[np.intp]) -> Floats:
        """The batch's own log-law in the layout of `moved`."""
        padded = np.pad(self.log_law, ((0, 0), (0, 1)))
        own, targets = padded[q], self.batch.values.shape[1] + self.batch.abstain
        shape = (len(q), targets)
        rest = np.broadcast_to(self.log_law[q].T[:, :, None], (self.log_law.shape[1], *shape))
        lost = np.broadcast_to(padded[q, a][:, None], shape)
        return np.concatenate([rest, lost[None], own[None, :, :targets]])

    def sizes(self, q: NDArray[np.intp], a: NDArray[np.intp]) -> Floats:
        """How many classes each outcome stands for, in the layout of `moved`."""
        distinct = self.batch.values.shape[1]
        targets = distinct + self.batch.abstain
        b = np.arange(targets)
        rest = np.repeat(self.batch.sizes[q].T[:, :, None], targets, axis=2)
        j = np.arange(distinct)[:, None, None]
        rest -= (j == a[:, None]).astype(np.float64) + (j == b)
        lost = np.broadcast_to((a < distinct).astype(np.float64)[:, None], (len(q), targets))
        gained = np.broadcast_to((b < distinct).astype(np.float64), (len(q), targets))
        sizes = np.concatenate([rest, lost[None], gained[None]])
        impossible = (rest < 0).any(axis=0) | ((a == distinct)[:, None] & (b == distinct))
        sizes[:, impossible] = 0.0
        return sizes

    @cached_property
    def _gradient(self) -> tuple[Floats, Floats]:
        """−∂ ln P_j/∂n_i, (n, D + 1, D + 1), and ∂ ln P_j/∂n_j, (n, D + 1): 0 for no class, which comes last."""
        n, distinct = self.batch.values.shape
        overlap = np.zeros((n, distinct + 1, distinct + 1))
        overlap[:, :distinct, :distinct] = self.overlaps()
        others = self.batch.sizes[:, :, None] - np.eye(distinct)
        own = np.pad((others * overlap[:, :distinct, :distinct]).sum(axis=1), ((0, 0), (0, 1)))
        return overlap, own

    def slopes(self, q: NDArray[np.intp], a: NDArray[np.intp]) -> Floats:
        """Derivative of each outcome's log-probability along each move, in the layout of `moved`."""
        distinct = self.batch.values.shape[1]
        targets = distinct + self.batch.abstain
        overlap, own = self._gradient
        by_source = overlap[q, a]  # (R, D + 1): −∂ ln P_j / ∂n_a
        rest = by_source[:, None, :distinct] - overlap[q, :targets, :distinct]
        lost = -own[q, a][:, None] - overlap[q, :targets, a]
        gained = own[q, :targets] + by_source[:, :targets]
        slopes = np.concatenate([np.moveaxis(rest, 2, 0), lost[None], gained[None]])
        return np.asarray(slopes * self.batch.weight[q][:, None])


def laws_of(batch: Batch) -> Laws:
    """Pick the way of summing that a batch's spread allows."""
    low, high = batch.values.min(axis=1), batch.values.max(axis=1)
    return _LogLaws(batch) if is_wide(low, high, batch.weight).any() else _LinearLaws(batch)


class _LinearLaws(Laws):
    """Sums of probabilities as they are: fast, and in range up to a spread of 32 σ."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self._z = batch.scores()
        self._inverse = ndtr(self._z)
        exponent = np.einsum("nd,ndt->nt", batch.sizes, np.log(self._inverse))
        self._base = np.exp(exponent) * batch.step
        np.reciprocal(self._inverse, out=self._inverse)
        self._hazard = np.exp(log_density(self._z)) * self._inverse
        self.log_law = np.log(np.einsum("nt,ndt->nd", self._base, self._hazard))

    @cached_property
    def _shifted(self) -> tuple[Floats, ...]:
        """What a loss of `weight` multiplies, its hazard, what a gain multiplies, its density over Φ.

        φ(z ± w) = φ(z) e^(−w²/2) e^(∓wz), where e^(−wz) on a grid is a product of two vectors.
        """
        weight = self.batch.weight[:, None, None]
        tilt = np.exp(-weight * self.batch.step * np.arange(self.batch.points))
        tilt = np.exp(-weight * self._z[:, :, :1]) * tilt
        shrunk = self._hazard * np.exp(-0.5 * weight * weight)
        loss, gain = ndtr(self._z + weight) * self._inverse, ndtr(self._z - weight) * self._inverse
        tables: tuple[Floats, ...] = (loss, shrunk * tilt / loss, gain, shrunk / tilt)
        if self.batch.abstain:  # no class loses or gains: a factor of 1; its own outcome has size 0
            tables = tuple(np.pad(t, ((0, 0), (0, 1), (0, 0)), constant_values=1.0) for t in tables)
        return tables

    def moved(self, q: NDArray[np.intp], a: NDArray[np.intp]) -> Floats:
        loss, loss_hazard, gain, gain_density = self._shifted
        source = self._base[q] * loss[q, a]
        hazards = np.concatenate([self._hazard[q], loss_hazard[q, a][:, None]], axis=1)
        law = (source[:, None, :] * gain[q]) @ hazards.transpose(0, 2, 1)
        gained = gain_density[q] @ source[:, :, None]
        return np.asarray(np.log(np.moveaxis(np.concatenate([law, gained], axis=2), 2, 0)))

    def overlaps(self) -> Floats:
        shared = (self._hazard * self._base[:, None, :]) @ self._hazard.transpose(0, 2, 1)
        return np.asarray(shared * np.exp(-self.log_law)[:, None, :])


class _LogLaws(Laws):
    """Sums in log space: for spreads at which probabilities fall below what a float can hold."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self._z = batch.scores()
        self._log_cdf = log_ndtr(self._z)
        self._base = np.einsum("nd,ndt->nt", batch.sizes, self._log_cdf) + np.log(batch.step)
        self._hazard = log_density(self._z) - self._log_cdf
        self.log_law = _log_sum(self._base[:, None, :] + self._hazard)

    def moved(self, q: NDArray[np.intp], a: NDArray[np.intp]) -> Floats:
        distinct, weight = self.batch.values.shape[1], self.batch.weight[q][:, None]
        none = (a == distinct)[:, None]
        source_z = self._z[q, np.minimum(a, distinct - 1)] + weight
        loss = np.where(none, 0.0, log_ndtr(source_z) - self._log_cdf[q, np.minimum(a, distinct - 1)])
        gaining = self._z[q] - weight[:, :, None]
        gain = log_ndtr(gaining)
        gain_hazard = log_density(gaining) - gain
        gain -= self._log_cdf[q]
        if self.batch.abstain:
            gain, gain_hazard = (np.pad(table, ((0, 0), (0, 1), (0, 0))) for table in (gain, gain_hazard))
        joint = (self._base[q] + loss)[:, None, :] + gain
        hazards = [self._hazard[q, j][:, None, :] for j in range(distinct)]
        hazards += [(log_density(source_z) - log_ndtr(source_z))[:, None, :], gain_hazard]
        return np.stack([_log_sum(joint + hazard) for hazard in hazards])

    def overlaps(self) -> Floats:
        joint = self._base[:, None, :] + self._hazard
        columns = [_log_sum(joint + hazard[:, None, :]) for hazard in np.moveaxis(self._hazard, 1, 0)]
        return np.exp(np.stack(columns, axis=2) - self.log_law[:, None, :])


def _log_sum(logs: Floats) -> Floats:
    """Return ln Σ_t exp(·) over the last axis."""
    top = logs.max(axis=-1, keepdims=True)
    return np.asarray(np.log(np.exp(logs - top).sum(axis=-1)) + top[..., 0])
