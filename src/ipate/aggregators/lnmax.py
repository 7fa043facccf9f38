"""LNMax, the aggregator of the first PATE paper (Papernot et al., 2017): Laplace noise, no check."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ipate.aggregators.base import Outcome, label_by
from ipate.errors import InputError
from ipate.mechanism import Mechanism
from ipate.noise import NoiseSource

__all__ = ["LNMax"]

Floats = NDArray[np.float64]


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
