"""Answers to queries as a ledger stores them: labels, with the noisy counts that they are read off where released."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ipate._types import Ints
from ipate.errors import InputError
from ipate.files import pack_arrays, unpack_arrays
from ipate.ledger.base import Ledger

CODEC = "answers"
Answer: TypeAlias = tuple[int, bool, bool]  # label, answered, reinforced
NoisyVotes: TypeAlias = tuple[float, Ints]  # σ, and a number per class in whole multiples of σ/8


@dataclass(frozen=True, kw_only=True, eq=False)
class Answers:
    """The answers to some queries.

    Attributes
    ----------
    labels : int array
        A class, or −1 where there is no answer.
    answered, reinforced : bool array
        Where a noisy label was released, and where the label is the student's own class.
    counts : int array, optional
        For every noisy label the counts that it is read off, in whole multiples of σ/8.
    sigma : float
        The noise of the counts.
    """

    labels: NDArray[np.int64]
    answered: NDArray[np.bool_]
    reinforced: NDArray[np.bool_]
    counts: Ints | None = None
    sigma: float = 0.0

    def __post_init__(self) -> None:
        given, own = self.answered.astype(bool), self.reinforced.astype(bool)
        if given.shape != self.labels.shape or own.shape != self.labels.shape:
            raise InputError(f"the answers have the shapes {self.labels.shape}, {given.shape} and {own.shape}")
        if np.any((self.labels >= 0) != (given | own)) or np.any(given & own):
            raise InputError("labels and answered differ: a query has a label exactly where one was charged for")
        if self.counts is not None:
            self._check_counts(self.counts)

    def _check_counts(self, counts: Ints) -> None:
        """Refuse counts that are not rounded, or that the labels are not read off."""
        given = np.flatnonzero(self.answered)
        if counts.dtype != np.int64 or counts.ndim != 2 or len(counts) != len(given):
            shown = f"{counts.dtype} of the shape {counts.shape}"
            raise InputError(f"counts are whole numbers ({len(given)} answers, classes), not {shown}")
        if not np.array_equal(self.labels[given], counts.argmax(axis=1)):
            raise InputError(
                "labels and counts differ: a label is the class of its largest noisy count, on a tie the lower"
            )

    @property
    def payload(self) -> bytes:
        """The answers as a ledger stores them."""
        known = {} if self.counts is None else {"counts": self.counts, "sigma": np.array(self.sigma)}
        return pack_arrays({**known, "labels": self.labels, "answered": self.answered, "reinforced": self.reinforced})


@dataclass(frozen=True, kw_only=True)
class Paid:
    """The answers that a ledger holds for a pool, by query id; they are given again at no cost."""

    answers: Mapping[str, Answer]
    noisy_votes: Mapping[str, NoisyVotes]  # where they were released with the label


def paid_answers(ledger: Ledger) -> Paid:
    """Return the answers that are already paid for the pool of a run."""
    answers, noisy = dict[str, Answer](), dict[str, NoisyVotes]()
    for found in ledger.released(CODEC):
        arrays = unpack_arrays(found.payload)
        columns = (arrays[name].tolist() for name in ("labels", "answered", "reinforced"))
        answers.update(zip(found.keys, zip(*columns, strict=True), strict=True))
        if "counts" in arrays:
            given = (found.keys[index] for index in np.flatnonzero(arrays["answered"]).tolist())
            sigma = float(arrays["sigma"])
            noisy.update((query, (sigma, row)) for query, row in zip(given, arrays["counts"], strict=True))
    return Paid(answers=answers, noisy_votes=noisy)
