"""The Gaussian aggregators of Papernot et al. (2018): GNMax, Confident-GNMax, Interactive-GNMax.

Noise is independent per class. The same draw on every class, as a note in the paper has it, would
leave the argmax bare.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ipate.aggregators.base import Outcome, label_by
from ipate.errors import InputError
from ipate.mechanism import Mechanism
from ipate.noise import NoiseSource

__all__ = ["Confident", "GNMax", "Interactive"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class GNMax:
    """argmax_j (n_j + N(0, σ²)) for every query, without a check."""

    mechanism: Mechanism

    def __post_init__(self) -> None:
        if self.mechanism.noise != "gaussian" or self.mechanism.has_check:
            raise InputError("gnmax has Gaussian noise and no check: give sigma alone")

    def maxima(self, counts: Floats, *, total_weight: float, probs: Floats | None = None) -> Floats:
        """Return the largest count; GNMax compares it with nothing."""
        return np.asarray(counts.max(axis=1))

    def ask(
        self,
        counts: Floats,
        *,
        queries: Sequence[str],
        noise: NoiseSource,
        total_weight: float,
        probs: Floats | None = None,
    ) -> Outcome:
        """Return a noisy label for every query."""
        every = np.ones(len(counts), dtype=bool)
        labels = _noisy_labels(counts, every, queries, noise, self.mechanism.sigma)
        return Outcome(labels=labels, answered=every, reinforced=~every)


@dataclass(frozen=True, kw_only=True)
class Confident:
    """A noisy label only where max_j n_j + N(0, σ_T²) ≥ T."""

    mechanism: Mechanism

    def __post_init__(self) -> None:
        if self.mechanism.noise != "gaussian" or not self.mechanism.has_check:
            raise InputError("confident needs sigma, check_sigma and threshold")

    def maxima(self, counts: Floats, *, total_weight: float, probs: Floats | None = None) -> Floats:
        """Return the largest count of every query."""
        return np.asarray(counts.max(axis=1))

    def ask(
        self,
        counts: Floats,
        *,
        queries: Sequence[str],
        noise: NoiseSource,
        total_weight: float,
        probs: Floats | None = None,
    ) -> Outcome:
        """Return a noisy label where the teachers agree enough."""
        passed = _passes(self.maxima(counts, total_weight=total_weight), queries, noise, self.mechanism)
        labels = _noisy_labels(counts, passed, queries, noise, self.mechanism.sigma)
        return Outcome(labels=labels, answered=passed, reinforced=np.zeros(len(counts), dtype=bool))


@dataclass(frozen=True, kw_only=True)
class Interactive:
    """A noisy label where the teachers contradict the student; its own class where it is sure.

    The check is max_j (n_j − M·p_j) + N(0, σ_T²) ≥ T with M the total weight, a public constant.
    Where it fails and max_j p_j > γ the student's class is returned: the check was paid, no label is.
    """

    mechanism: Mechanism
    gamma: float = 0.9

    def __post_init__(self) -> None:
        if self.mechanism.noise != "gaussian" or not self.mechanism.has_check:
            raise InputError("interactive needs sigma, check_sigma and threshold")
        if not 0 <= self.gamma <= 1:
            raise InputError(f"gamma is {self.gamma}: it must lie between 0 and 1")

    def maxima(self, counts: Floats, *, total_weight: float, probs: Floats | None = None) -> Floats:
        """Return the largest lead of the votes over what the student expects."""
        return np.asarray((counts - total_weight * _required(probs)).max(axis=1))

    def ask(
        self,
        counts: Floats,
        *,
        queries: Sequence[str],
        noise: NoiseSource,
        total_weight: float,
        probs: Floats | None = None,
    ) -> Outcome:
        """Return a noisy label, the student's own class, or none."""
        known = _required(probs)
        lead = self.maxima(counts, total_weight=total_weight, probs=known)
        passed = _passes(lead, queries, noise, self.mechanism)
        labels = _noisy_labels(counts, passed, queries, noise, self.mechanism.sigma)
        sure = ~passed & (known.max(axis=1) > self.gamma)
        labels[sure] = known[sure].argmax(axis=1)
        return Outcome(labels=labels, answered=passed, reinforced=sure)


def _passes(maxima: Floats, queries: Sequence[str], noise: NoiseSource, mechanism: Mechanism) -> NDArray[np.bool_]:
    if mechanism.check_sigma is None or mechanism.threshold is None:
        raise InputError("a check needs check_sigma and threshold")
    draws = noise.normal("check", queries, 1)[:, 0]
    return np.asarray(maxima + mechanism.check_sigma * draws >= mechanism.threshold)


def _noisy_labels(
    counts: Floats, rows: NDArray[np.bool_], queries: Sequence[str], noise: NoiseSource, sigma: float
) -> NDArray[np.int64]:
    chosen = [query for query, wanted in zip(queries, rows, strict=True) if wanted]
    draws = noise.normal("label", chosen, counts.shape[1])
    return label_by(counts[rows] + sigma * draws, rows, len(counts))


def _required(probs: Floats | None) -> Floats:
    if probs is None:
        raise InputError("student_probs is not given: interactive needs the student's probabilities")
    return probs
