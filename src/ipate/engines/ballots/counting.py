"""The histogram: the exact sum of all ballots in whole numbers, the noise, and what is read off the rounded result."""

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate._types import Floats, Ints
from ipate.engines.ballots.design import GRID, SIGMA, Design
from ipate.errors import InputError
from ipate.files import pack_arrays, unpack_arrays
from ipate.ledger.base import Ledger
from ipate.people.people import People
from ipate.release.noise import STEPS, NoiseSource, in_steps

STEP = SIGMA / STEPS  # the released histogram has whole multiples of this
EDGES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # between the confidence bins of a margin, in σ
WEIGHTS = (0.05, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # of a label in the student's training, by its bin
KEPT, SHARPENED = 0.75, 2.0  # of a review: the share of the residual, and the power of the scores
ENOUGH_FOR_REVIEW = 50.0  # Σw/σ per class: below it, a review would teach the student noise
_EXACT = 2**53


CODEC = "histogram"  # of the payload on a ledger, and the key of the release


@dataclass(frozen=True, kw_only=True, eq=False)
class Histogram:
    """A noisy histogram of (partitions, cells, classes) in whole multiples of σ/8, and the cells it belongs to."""

    counts: Ints
    cells: str  # the fingerprint of the cells

    def __post_init__(self) -> None:
        if self.counts.ndim != 3 or self.counts.dtype != np.int64:
            shown = f"{self.counts.dtype} of the shape {self.counts.shape}"
            raise InputError(f"a histogram has whole numbers (partitions, cells, classes), not {shown}")
        self.counts.flags.writeable = False

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the histogram and its cells, which a report can state."""
        stated = repr((self.cells, json.dumps(self.counts.shape)))
        return hashlib.sha256(stated.encode() + self.counts.astype("<i8").tobytes()).hexdigest()

    @property
    def payload(self) -> bytes:
        """The histogram as a ledger stores it."""
        return pack_arrays({"counts": self.counts, "cells": np.array(self.cells)})

    @classmethod
    def of(cls, ledger: Ledger) -> "Histogram | None":
        """Return the histogram of a run, or of the runs that it continues; None before it was released."""
        found = [unpack_arrays(released.payload) for released in ledger.released(CODEC, "run")]
        return cls(counts=found[-1]["counts"].copy(), cells=str(found[-1]["cells"])) if found else None


def units_by_person(design: Design, people: People) -> Ints:
    """Return every person's units; group ids, not positions, connect people with weights."""
    known = {group.id for group in people.groups}
    if known != set(design.units):
        raise InputError(f"the people's groups are {sorted(known)} and the design's are {sorted(design.units)}")
    by_group = np.array([design.units[group.id] for group in people.groups], dtype=np.int64)
    return by_group[people.group_of_person]


def without(people: People, y: Ints, withdrawn: Collection[str]) -> Ints:
    """Return the labels with those of withdrawn people erased: their slots stay, and their ballots are empty."""
    gone = np.zeros(people.n_people, dtype=bool)
    gone[[people.index_of(person) for person in withdrawn]] = True
    return np.where(gone[people.person_of_row], -1, y)


def sum_ballots(
    cells: NDArray[np.integer],
    y: NDArray[np.integer],
    *,
    units: Ints,
    person_of_row: Ints,
    shape: tuple[int, int, int],
    readable: NDArray[np.bool_] | None = None,
) -> Ints:
    """Return the sum of all ballots, (partitions, cells, classes) in multiples of `GRID`, exact in any order.

    A person's ballot is the mean over their readable rows: each entry gets floor(u·rows there/rows). `y` is −1, and
    `readable` False, where a row casts no vote; someone without rows has an empty ballot.
    """
    r, m, n_classes = shape
    usable = (np.asarray(y) >= 0) & (np.asarray(y) < n_classes)
    if readable is not None:
        usable &= readable
    if int(units.astype(object).sum() if len(units) else 0) >= _EXACT:
        raise InputError("the total weight is too large for an exact sum: use smaller weights")
    person, label = person_of_row[usable], np.asarray(y, dtype=np.int64)[usable]
    rows = np.bincount(person, minlength=len(units))
    alone = rows[person] == 1
    found = np.empty(shape, dtype=np.int64)
    for k in range(r):
        entry = cells[usable, k].astype(np.int64) * n_classes + label
        counted = np.bincount(entry[alone], weights=units[person[alone]].astype(np.float64), minlength=m * n_classes)
        total = counted.astype(np.int64)
        if not alone.all():
            pairs = person[~alone] * (m * n_classes) + entry[~alone]
            pair, times = np.unique(pairs, return_counts=True)
            who, where = np.divmod(pair, m * n_classes)
            parts = units[who] * times // rows[who]
            total += np.bincount(where, weights=parts.astype(np.float64), minlength=m * n_classes).astype(np.int64)
        found[k] = total.reshape(m, n_classes)
    return found


def add_noise(histogram: Ints, noise: NoiseSource) -> Ints:
    """Return the noisy histogram in multiples of `STEP`; the unrounded doubles leave this function nowhere."""
    r, m, n_classes = histogram.shape
    names = [f"{k}/{cell}" for k in range(r) for cell in range(m)]
    drawn = SIGMA * noise.normal("ballots", names, n_classes).reshape(histogram.shape)
    return in_steps(histogram * GRID + drawn, sigma=SIGMA)


@dataclass(frozen=True, kw_only=True, eq=False)
class Decoded:
    """What the pool's points get from a released histogram: post-processing, at no further cost."""

    labels: Ints
    margins: Floats  # first score minus second, in σ
    confidence: Ints  # the bin of the margin, 0 to 7
    scores: Floats  # of every point and class, in σ
    cells: NDArray[np.integer]  # of every point in every partition
    weight: float  # the sum of the histogram, Σw/σ with noise

    @property
    def sample_weight(self) -> Floats:
        """The weight of every label in the student's training."""
        return label_weights(self.confidence)

    @property
    def reviewable(self) -> bool:
        """Whether the histogram has so much weight per class that `review` makes students better."""
        return bool(self.weight >= ENOUGH_FOR_REVIEW * self.scores.shape[1])

    def review(self, guess: Floats) -> Floats:
        """Return a weight of every class at every point, for a student's second training, from its own probabilities.

        A histogram gives all points of a cell one distribution of classes. A student that has learnt the labels can
        say how points of a cell differ, and the histogram how its guess is wrong on average over a cell. So a point
        gets guess + β·(shares − the mean of the guess over the same cells), in units of the weight that falls into
        cells like its own ("twicing", Tukey 1977, at β = 1; a smaller β keeps less of the noise). These scores are
        squared and scaled to the weight that their margin gives a label.
        """
        n, n_classes = self.scores.shape
        cell_means, sizes = np.zeros((n, n_classes)), np.zeros(n)
        for own in self.cells.T:
            members = np.bincount(own)
            sums = np.stack([np.bincount(own, weights=column) for column in guess.T], axis=1)
            cell_means += (sums / np.maximum(members, 1)[:, None])[own] / self.cells.shape[1]
            sizes += members[own] / self.cells.shape[1]
        mass = (max(self.weight, float(n_classes)) * SIGMA / n * sizes)[:, None]
        scores = mass * (guess + KEPT * (self.scores / mass - cell_means))
        shares = (np.clip(scores, 0.0, None) / np.maximum(scores.max(axis=1, keepdims=True), 1e-9)) ** SHARPENED
        shares[shares < 0.01] = 0.0  # too little to be worth a row of the student's training data
        shares[np.arange(n), np.argmax(scores, axis=1)] = 1.0
        return np.asarray(shares * (label_weights(_bins(_margins(scores))) / shares.sum(axis=1))[:, None])


def label_weights(confidence: Ints) -> Floats:
    """Return the weight of labels in the student's training by their confidence bins."""
    return np.asarray(np.array(WEIGHTS)[confidence])


def decode(histogram: Ints, cells: NDArray[np.integer]) -> Decoded:
    """Read labels and confidences of points off a released histogram; ties go to the lower class.

    `cells` has the cell of every point in every partition. Sums of whole numbers leave no doubt about ties.
    """
    sums = np.zeros((len(cells), histogram.shape[2]), dtype=np.int64)
    for k, table in enumerate(histogram):
        sums += table[cells[:, k]]
    scale = STEP / np.sqrt(len(histogram))
    margins = _margins(sums) * scale
    return Decoded(
        labels=np.argmax(sums, axis=1).astype(np.int64),
        margins=margins,
        confidence=_bins(margins),
        scores=sums * scale,
        cells=cells,
        weight=float(histogram.sum() * scale / SIGMA),
    )


def _margins(scores: NDArray[Any]) -> NDArray[Any]:
    """Return the first score of every point minus the second."""
    top = np.partition(scores, -2, axis=1)
    return np.asarray(top[:, -1] - top[:, -2])


def _bins(margins: Floats) -> Ints:
    """Return the confidence bin of every margin."""
    return np.searchsorted(np.array(EDGES) * SIGMA, margins, side="right").astype(np.int64)
