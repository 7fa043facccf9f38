"""Measured noise: an upper limit of the deviation of each kind, from what the labelling released in the copy.

The votes are known, and so is the exact law of an answer for every σ, or for every scale of Laplace noise. An answer
that consensus makes likely becomes less likely as σ grows: the lower limit of Clopper and Pearson for its probability
is an upper limit of σ.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from ipate._types import Floats, Ints
from ipate.accounting._argmax import argmax_log_law
from ipate.audit.canaries import lean, rise
from ipate.audit.law import largest, least_success, within_steps
from ipate.audit.subject import Copy, Measured
from ipate.release.noise import STEPS

_FAR = 100.0  # no σ above this multiple of the stated one is searched for
_CHANCE = 6.0  # deviations of a correlation that independent draws do not reach
_SURE = 1.3  # deviations of the noise between a count and what it is compared with, where that is possible


def upper_limit(chance: Callable[[float], float], least: float, stated: float) -> float:
    """Return the largest σ under which the probability, which falls with σ, is at least `least`."""
    return largest(lambda sigma: chance(sigma) >= least, stated / _FAR, stated * _FAR)


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """Answers to the same votes in two labellings, with the distinct counts of the votes, and which ones each had."""

    rows: Floats  # (distinct, C)
    row: NDArray[np.intp]  # (queries,)
    answered: NDArray[np.bool_]
    labels: Ints
    steps: Ints | None  # (answered, C): released counts

    @classmethod
    def draw(cls, copy: Copy, own: Ints, queries: int) -> Self:
        """Label so many queries with the same votes, half of them in one labelling and half in another."""
        found = [labelling for _ in range(2) for labelling in copy.sampled(own, queries // 2)]
        if copy.allocation.participation is None:
            rows, row = copy.counts(own, 1), np.zeros(sum(part.n_queries for part in found), dtype=np.intp)
        else:
            counts = np.concatenate([copy.counts(own, part.n_queries) for part in found])
            rows, row = np.unique(counts, axis=0, return_inverse=True)
        noisy = [part.noisy_votes[part.answered] for part in found if part.noisy_votes is not None]
        return cls(
            rows=rows,
            row=row.ravel(),
            answered=np.concatenate([part.answered for part in found]),
            labels=np.concatenate([part.labels for part in found]),
            steps=np.concatenate(noisy) if noisy else None,
        )

    def limit(
        self,
        used: NDArray[np.bool_],
        hit: NDArray[np.bool_],
        chances: Callable[[float], Floats],
        *,
        stated: float,
        error: float,
    ) -> Measured:
        """Return an upper limit of σ from the `used` queries, in which `hit` has these chances, row by row, under σ.

        The chances of the rows that are used fall with σ. Different chances only make the number of hits less variable
        than the binomial law of their mean, for which the limits of Clopper and Pearson hold.
        """
        if not used.any():
            return Measured(kind="", stated=stated, most=stated * _FAR, draws=0)
        rows, places = np.unique(self.row[used], return_inverse=True)
        times = np.bincount(places.ravel(), minlength=len(rows))
        least = least_success(int(hit[used].sum()), int(used.sum()), error=error)
        most = upper_limit(lambda sigma: float(chances(sigma)[rows] @ times) / times.sum(), least, stated)
        surprise = hit[used] - chances(stated)[self.row[used]]
        return Measured(kind="", stated=stated, most=most, draws=int(used.sum()), fresh=independent(surprise))


def measure_label(copy: Copy, *, queries: int, error: float) -> Measured:
    """Return an upper limit of σ from labels of votes in which class 0 leads by a little more than the noise.

    Under Laplace noise it is a limit of the scale.
    Where counts are released, they are measured instead: their rounding makes ties, which change the law of labels.
    """
    weights, stated, kind = copy.allocation.weights, copy.mechanism.sigma, copy.mechanism.noise
    gap = min(float(weights.sum()), math.sqrt(2) * _SURE * stated)
    own = lean(weights, gap)
    sample = Sample.draw(copy, own, queries)
    if sample.steps is not None:
        return _measure_counts(sample, sample.steps, stated=stated, error=error)
    leads = (sample.rows[:, 0] >= sample.rows[:, 1:].max(axis=1) + gap / 4)[sample.row]
    found = sample.limit(
        sample.answered & leads,
        sample.labels == 0,
        lambda sigma: np.exp(argmax_log_law(sample.rows, sigma, kind)[:, 0]),
        stated=stated,
        error=error,
    )
    return replace(found, kind="labels", noise=kind)


def _measure_counts(sample: Sample, steps: Ints, *, stated: float, error: float) -> Measured:
    """Return an upper limit of σ from how often a released count is within one deviation of the votes."""
    step = stated / STEPS
    means = sample.rows[sample.row[sample.answered]]
    off = steps - np.rint(means / step)
    least = least_success(int((np.abs(off) <= STEPS).sum()), off.size, error=error)
    most = upper_limit(lambda sigma: within_steps(sample.rows, sigma, step=step, reach=STEPS), least, stated)
    apart = all(uncorrelated(off[:, one], off[:, one + 1]) for one in range(off.shape[1] - 1))
    return Measured(kind="labels", stated=stated, most=most, draws=off.size, fresh=apart and independent(off[:, 0]))


def measure_check(copy: Copy, *, queries: int, error: float) -> Measured:
    """Return an upper limit of σ_T from checks whose largest count is far from the threshold."""
    weights, mechanism = copy.allocation.weights, copy.mechanism
    stated, threshold = float(mechanism.check_sigma or 0), float(mechanism.threshold or 0)
    total, least = float(weights.sum()), float(weights.sum()) / copy.subject.n_classes
    above = total - threshold >= threshold - least
    top = min(total, threshold + _SURE * stated) if above else max(least, threshold - _SURE * stated)
    if copy.allocation.participation is not None and total > threshold:  # unanimous votes count alike in every turn
        above, top = True, total
    sample = Sample.draw(copy, rise(weights, top, copy.subject.n_classes), queries)
    maxima = sample.rows.max(axis=1)
    side = 1 if above else -1
    found = sample.limit(
        (side * (maxima - threshold) >= abs(top - threshold) / 4)[sample.row],
        sample.answered if above else ~sample.answered,
        lambda sigma: ndtr(side * (maxima - threshold) / sigma),
        stated=stated,
        error=error,
    )
    return replace(found, kind="checks")


def independent(values: NDArray[Any]) -> bool:
    """Whether outcomes are uncorrelated from query to query, and between the two halves, which are two labellings."""
    half = len(values) // 2
    return uncorrelated(values[:-1], values[1:]) and uncorrelated(values[:half], values[half : 2 * half])


def uncorrelated(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two series are correlated no more than independent ones are by chance."""
    one, other = one - one.mean(), other - other.mean()
    size = math.sqrt(float((one**2).sum() * (other**2).sum()))
    return not size or abs(float((one * other).sum())) / size * math.sqrt(len(one)) <= _CHANCE
