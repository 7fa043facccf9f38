"""Votes of imaginary teachers, for tests that need no data and no training."""

import numpy as np
from numpy.typing import NDArray

from ipate.engines.teachers.votes import Votes

__all__ = ["GROUPS", "synthetic_votes"]

GROUPS: tuple[tuple[str, float, float], ...] = (
    ("high", 1.0, 0.54),
    ("average", 2.0, 0.37),
    ("low", 3.0, 0.09),
)
"""Consent level, its ε, and the share of people who chose it (the paper's second set-up)."""


def synthetic_votes(*, n_teachers: int = 250, n_queries: int = 4000, n_classes: int = 10, seed: int = 0) -> Votes:
    """Draw the votes of an ensemble that agrees on most queries and quarrels over some.

    Every query has a true class and a difficulty from a Beta(2, 20) distribution, the chance that a
    teacher errs; errors fall on one confusable class half of the time. Teachers are assigned to the
    consent levels of `GROUPS` in proportion.
    """
    rng = np.random.default_rng(seed)
    truth = rng.integers(n_classes, size=n_queries)
    rival = (truth + rng.integers(1, n_classes, size=n_queries)) % n_classes
    wrong = rng.random((n_teachers, n_queries)) < rng.beta(2, 20, size=n_queries)
    stray = (truth + rng.integers(1, n_classes, size=(n_teachers, n_queries))) % n_classes
    misled = np.where(rng.random((n_teachers, n_queries)) < 0.5, rival, stray)
    votes: NDArray[np.uint8] = np.where(wrong, misled, truth).astype(np.uint8)
    sizes = [round(share * n_teachers) for _, _, share in GROUPS[:-1]]
    sizes.append(n_teachers - sum(sizes))
    names = [name for (name, _, _), size in zip(GROUPS, sizes, strict=True) for _ in range(size)]
    return Votes(votes=votes, n_classes=n_classes, groups=tuple(names), labels=truth)
