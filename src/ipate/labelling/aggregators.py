"""Aggregators: weighted votes in, a noisy label or none out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ipate.accounting.conversion import check_positive
from ipate.errors import InputError
from ipate.labelling.noise import NoiseSource
from ipate.ledger.records import Noise


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """The releases of one query: a label, and before it a check where σ_T and T are given.

    Attributes
    ----------
    sigma : float
        σ of the label's noise; under Laplace noise its scale.
    check_sigma, threshold : float, optional
        σ_T and T of the check; both or neither.
    noise : {"gaussian", "laplace"}
        The label's noise. Laplace is the historical LNMax, which has no check.
    """

    sigma: float
    check_sigma: float | None = None
    threshold: float | None = None
    noise: Noise = "gaussian"

    def __post_init__(self) -> None:
        check_positive("sigma" if self.noise == "gaussian" else "scale", self.sigma)
        if (self.check_sigma is None) != (self.threshold is None):
            missing = "threshold" if self.threshold is None else "check_sigma"
            raise InputError(f"{missing} is not given: a check needs both check_sigma and threshold")
        if self.check_sigma is not None and self.threshold is not None:
            check_positive("check_sigma", self.check_sigma)
            if not np.isfinite(self.threshold):
                raise InputError(f"threshold is {self.threshold}: it must be a finite number of votes")
            if self.noise == "laplace":
                raise InputError("check_sigma is given: LNMax has no check; use the confident aggregator")

    @property
    def has_check(self) -> bool:
        """Whether a consensus check precedes the label."""
        return self.check_sigma is not None


Floats = NDArray[np.float64]
NO_LABEL = -1


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What B queries ended with, and which releases were made for it.

    Attributes
    ----------
    labels : integer array of shape (B,)
        The class, or −1 for none.
    answered : bool array of shape (B,)
        Where a noisy label was released, at its cost. A check, where the aggregator has one, was
        released for every query.
    reinforced : bool array of shape (B,)
        Where the student's own class was returned; it cost no label.
    """

    labels: NDArray[np.int64]
    answered: NDArray[np.bool_]
    reinforced: NDArray[np.bool_]


class Aggregator(Protocol):
    """Votes in, a label or none out."""

    @property
    def mechanism(self) -> Mechanism:
        """The noise of its releases, which is what they are charged by."""
        ...

    def maxima(self, counts: Floats, *, total_weight: float, probs: Floats | None = None) -> Floats:
        """Return what the check compares with the threshold, before noise: shape (B,)."""
        ...

    def ask(
        self,
        counts: Floats,
        *,
        queries: Sequence[str],
        noise: NoiseSource,
        total_weight: float,
        probs: Floats | None = None,
    ) -> Outcome:
        """Return the outcome of B queries with weighted counts (B, C)."""
        ...


def label_by(scores: Floats, rows: NDArray[np.bool_], n_queries: int) -> NDArray[np.int64]:
    """Return the class of the largest score for the chosen rows, −1 elsewhere."""
    labels = np.full(n_queries, NO_LABEL, dtype=np.int64)
    labels[rows] = scores.argmax(axis=1)
    return labels


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


@dataclass(frozen=True, kw_only=True)
class LNMax:
    """argmax_j (n_j + Laplace(b)) for every query: the historical baseline."""

    mechanism: Mechanism

    def __post_init__(self) -> None:
        if self.mechanism.noise != "laplace":
            raise InputError("lnmax has Laplace noise: its mechanism must say so")

    def maxima(self, counts: Floats, *, total_weight: float, probs: Floats | None = None) -> Floats:
        """Return the largest count; LNMax compares it with nothing."""
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
        scores = counts + self.mechanism.sigma * noise.laplace("label", queries, counts.shape[1])
        return Outcome(labels=label_by(scores, every, len(counts)), answered=every, reinforced=~every)
