"""Exact laws of what a run releases on two neighbouring data sets, and the ε that they show.

Two data sets differ in one canary. Releases of the same kind are independent given the votes, so the law of a number
that is read off all of them is a convolution, and the hockey-stick divergence of two such laws is a sum. Every figure
here is a lower bound on the ε of the whole run: reading one number off many is post-processing.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import ndtr

from ipate._types import Floats
from ipate.accounting import gdp
from ipate.release.noise import STEPS

MOST = 600.0  # no larger ε is searched for; e^ε stays a finite double
FAR = 100.0  # no σ above this multiple of the stated one is searched for
_CHANCE = 6.0  # deviations of a correlation that independent draws do not reach
_MARGIN = 1e-16  # rounding error of one probability
_GRID = 16  # the largest privacy loss of one release, in steps of the grid
_REACH, _BINS = 6.0, 97  # bins of a noisy number, in deviations
_ROUNDED = float(np.sqrt(1 + 1 / (12 * STEPS**2)))  # rounding to σ/8 adds a uniform error to the noise


def least_success(hits: int, trials: int, *, error: float) -> float:
    """Return the lower limit of Clopper and Pearson for a probability, wrong at most with probability `error`."""
    return float(stats.beta.ppf(error, hits, trials - hits + 1)) if hits else 0.0


def most_success(hits: int, trials: int, *, error: float) -> float:
    """Return the upper limit of Clopper and Pearson for a probability, wrong at most with probability `error`."""
    return float(stats.beta.ppf(1 - error, hits + 1, trials - hits)) if hits < trials else 1.0


def largest(fits: Callable[[float], bool], low: float, high: float) -> float:
    """Return the largest number between `low` and `high` that fits, where all smaller ones do; `low` if none does."""
    if fits(high):
        return high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """So many independent releases of one kind, and the law of one of them on the two data sets."""

    times: int
    here: Floats
    there: Floats

    @property
    def loss(self) -> Floats:
        """Ln P/Q of every outcome; 0 where neither occurs."""
        least = 1e-300
        return np.asarray(np.log(np.maximum(self.here, least)) - np.log(np.maximum(self.there, least)))


def shown_epsilon(parts: Sequence[Part], *, delta: float) -> float:
    """Return the largest ε for which all these releases together are not (ε, δ)-DP, or a little less.

    What is read off them is the sum of the privacy losses of all outcomes, each rounded to a grid: any such number is
    post-processing. Its two laws are convolutions, and ε is the largest with Σ max(0, P − e^ε·Q) > δ in one of both
    directions.
    """
    used = [part for part in parts if part.times]
    widest = max((float(np.abs(part.loss).max()) for part in used), default=0.0)
    if widest == 0.0:
        return 0.0
    unit = widest / _GRID
    sums = _Sums(parts=used, scores=[np.rint(part.loss / unit).astype(np.int64) for part in used])
    margin, found = 2 * _MARGIN * sums.size, 0.0
    for one, other, sign in (("here", "there", 1), ("there", "here", -1)):
        law, log_other = np.exp(sums.log_law(one)), sums.log_law(other, tilt=sign * unit)

        def passes(epsilon: float, law: Floats = law, log_other: Floats = log_other) -> bool:
            with np.errstate(over="ignore"):
                return bool(np.maximum(law - np.exp(epsilon + log_other), 0).sum() > delta + margin)

        found = max(found, largest(passes, 0.0, MOST))
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class _Sums:
    """The sum of the scores of all releases: whole numbers, from the least possible one upwards."""

    parts: Sequence[Part]
    scores: Sequence[NDArray[np.int64]]

    @property
    def size(self) -> int:
        """The number of possible sums."""
        return 1 + sum(part.times * int(np.ptp(own)) for part, own in zip(self.parts, self.scores, strict=True))

    def log_law(self, side: str, tilt: float = 0.0) -> Floats:
        """Return ln of the law of the sum, rounded up by what a Fourier transform may lose.

        Where P and Q hardly overlap, Q is below the rounding errors of a transform just where P is not. So Q is tilted
        by e^(tilt·score), which makes it nearly P, transformed, and tilted back.
        """
        product, scale = np.ones(self.size // 2 + 1, dtype=np.complex128), 0.0
        least = sum(part.times * int(own.min()) for part, own in zip(self.parts, self.scores, strict=True))
        for part, own in zip(self.parts, self.scores, strict=True):
            law = getattr(part, side) * np.exp(tilt * own)
            product *= np.fft.rfft(np.bincount(own - own.min(), weights=law / law.sum()), self.size) ** part.times
            scale += part.times * float(np.log(law.sum()))
        tilted = np.clip(np.fft.irfft(product, self.size), 0.0, None) + _MARGIN
        return np.asarray(np.log(tilted) + scale - tilt * (least + np.arange(self.size)))


def bit(chance: float) -> Floats:
    """Return the law of a bit."""
    return np.array([1 - chance, chance])


def projected(distance: float, sigma: float) -> tuple[Floats, Floats]:
    """Return the two laws, in bins, of a rounded noisy vector along the line on which its mean moves by `distance`."""
    edges = np.concatenate([[-np.inf], np.linspace(-_REACH, _REACH, _BINS), [np.inf]])
    half = distance / (2 * sigma * _ROUNDED)
    here, there = (np.diff(ndtr(edges - side * half)) for side in (1, -1))
    return here, there


def within_steps(means: Floats, sigma: float, *, step: float, reach: int) -> float:
    """Return the mean probability that a noisy count, in whole steps, is at most `reach` steps from its rounded mean.

    `means` are the counts before noise, and `step` is the width of a step.
    """
    centre = np.rint(means / step)
    edges = [((centre + side * (reach + 0.5)) * step - means) / sigma for side in (-1, 1)]
    return float((ndtr(edges[1]) - ndtr(edges[0])).mean())


def vector_epsilon(distance: float, sigma: float, *, delta: float) -> float:
    """Return the ε of a rounded vector with noise σ whose mean moves by `distance`."""
    return float(gdp.epsilon_of(distance / (sigma * _ROUNDED), delta))


def upper_limit(chance: Callable[[float], float], least: float, stated: float) -> float:
    """Return the largest σ under which the probability, which falls with σ, is at least `least`."""
    return largest(lambda sigma: chance(sigma) >= least, stated / FAR, stated * FAR)


def independent(values: NDArray[Any]) -> bool:
    """Whether outcomes are uncorrelated from query to query, and between the two halves, which are two labellings."""
    half = len(values) // 2
    return uncorrelated(values[:-1], values[1:]) and uncorrelated(values[:half], values[half : 2 * half])


def uncorrelated(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two series are correlated no more than independent ones are by chance."""
    one, other = one - one.mean(), other - other.mean()
    size = math.sqrt(float((one**2).sum() * (other**2).sum()))
    return not size or abs(float((one * other).sum())) / size * math.sqrt(len(one)) <= _CHANCE
