"""What every aggregator takes and gives."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ipate.mechanism import Mechanism
from ipate.noise import NoiseSource

__all__ = ["Aggregator", "Outcome"]

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
