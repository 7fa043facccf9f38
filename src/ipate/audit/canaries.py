"""Made-up rows, teachers and votes: what the audit puts in the place of private data.

Every made-up person's row is their number. A teacher of the class `Roll` says which people it was trained on, so its
votes show whom its training reached, whatever went wrong on the way. The votes that are labelled afterwards are tied
among all teachers that the canary does not reach: no consensus hides what the canary's own votes do.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from ipate._types import Floats, Ints
from ipate.data.dataset import Dataset, Partition
from ipate.people.people import People
from ipate.runs.task import Task


class Roll(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A teacher that votes 1 on a point that is the number of a person among its rows, and 0 on all others."""

    def fit(self, X: NDArray[Any], y: NDArray[Any]) -> Self:
        """Remember whose rows these are."""
        self.classes_ = np.unique(y)
        self.seen_ = np.unique(np.asarray(X)[:, 0])
        return self

    def predict(self, X: NDArray[Any]) -> Ints:
        """Return whether each point is the number of somebody in the rows."""
        return np.isin(np.asarray(X)[:, 0], self.seen_).astype(np.int64)


def roll_call(people: People, asked: Ints) -> Task:
    """Return the input of a run whose rows are the numbers of their people, and whose pool asks for these people."""
    rows = people.person_of_row.astype(np.float64)
    data = Dataset(
        name="made-up rows",
        X=np.concatenate([rows, asked.astype(np.float64)])[:, None],
        y=np.concatenate([np.arange(len(rows)) % 2, np.zeros(len(asked), dtype=np.int64)]),
        classes=("no", "yes"),
    )
    return made_up_task(data, people, n_private=len(rows), n_public=len(asked))


def made_up_task(data: Dataset, people: People, *, n_private: int, n_public: int) -> Task:
    """Return the input of a run on made-up rows: private ones first, then the pool, then test rows."""
    places = np.arange(data.n_rows)
    parts = Partition(
        private=places[:n_private],
        public=places[n_private : n_private + n_public],
        test=places[n_private + n_public :],
    )
    nobody = np.zeros(0, dtype=np.str_)
    return Task(data=data, parts=parts, people=people, unprotected=nobody, pool="made-up points")


@dataclass(frozen=True, kw_only=True, eq=False)
class Pair:
    """The votes of all teachers on every query, (k,), with the canary's rows and with its rows replaced."""

    here: Ints
    there: Ints


def lean(weights: Floats, gap: float) -> Ints:
    """Return votes for the classes 0 and 1 such that 0 leads by about `gap`, as nearly as the weights permit."""
    votes, lead = np.ones(len(weights), dtype=np.int64), 0.0
    for index in np.argsort(-weights, kind="stable"):
        if lead < gap:
            votes[index] = 0
        lead += weights[index] if lead < gap else -weights[index]
    return votes


def rise(weights: Floats, top: float, n_classes: int) -> Ints:
    """Return votes in which class 0 has about `top`, and the others share the rest evenly."""
    votes, counts = np.zeros(len(weights), dtype=np.int64), np.zeros(n_classes)
    for index in np.argsort(-weights, kind="stable"):
        own = 0 if counts[0] + weights[index] / 2 <= top else 1 + int(np.argmin(counts[1:]))
        votes[index] = own
        counts[own] += weights[index]
    return votes


def label_pair(weights: Floats, canary: NDArray[np.bool_], *, gap: float) -> Pair:
    """Return tied votes (or a lead of `gap`) in which the canary's teachers vote 0, or 1 without its rows."""
    votes = lean(np.where(canary, 0.0, weights), gap)
    return Pair(here=np.where(canary, 0, votes), there=np.where(canary, 1, votes))


def check_pair(weights: Floats, canary: NDArray[np.bool_], *, top: float, n_classes: int) -> Pair:
    """Return votes whose largest count is about `top` with the canary, and smaller by its weight without it."""
    own = float(weights[canary].sum())
    rest = np.where(canary, 0.0, weights)
    votes = rise(rest, top - own, n_classes)
    counts = np.bincount(votes, weights=rest, minlength=n_classes)
    return Pair(here=np.where(canary, 0, votes), there=np.where(canary, 1 + int(np.argmin(counts[1:])), votes))
