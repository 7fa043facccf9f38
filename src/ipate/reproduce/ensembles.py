"""Ensembles of the paper's experiments: what they depend on, and their votes.

Where budgets are given out at random, one ensemble serves the baseline, weighting and vanishing alike: which
teachers belong to which group is drawn afterwards. Upsampling has ensembles of its own, which depend on the copies
and shares only, not on the budgets.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.reproduce.settings import SETUPS, Setup
from ipate.votes.counting import count_votes

_BUDGETS = 1  # the stream of who has which budget


@dataclass(frozen=True, kw_only=True)
class Spec:
    """An ensemble by what it depends on.

    Attributes
    ----------
    setup : str
        A key of `SETUPS`.
    replicate : int
        Numbers the repetitions: it seeds the split, the deal and the training.
    shares, copies : tuples, optional
        Upsampling: which share of the people is in how many teachers. Empty: everybody in one.
    skew : bool
        Copies above the first go to the second class only (Adult's high incomes), `shares` are shares of it.
    """

    setup: str
    replicate: int
    shares: tuple[float, ...] = ()
    copies: tuple[int, ...] = ()
    skew: bool = False

    @property
    def name(self) -> str:
        """A file name."""
        kind = "skew" if self.skew else "up"
        parts = "".join(f"-{kind}{c}x{round(100 * s)}" for s, c in zip(self.shares, self.copies, strict=True) if c > 1)
        return f"{self.setup}{parts}-e{self.replicate}"


def groups_of(spec: Spec, y: NDArray[np.int64], *, seed: int) -> NDArray[np.int64]:
    """Return every private point's place in `copies`, at random in the given shares (of the second class if skewed)."""
    rng = np.random.default_rng([seed, _BUDGETS])
    rows = rng.permutation(np.flatnonzero(y == 1) if spec.skew else len(y))
    ends = np.floor(np.cumsum(spec.shares) * len(rows) + 0.5).astype(int)
    found = np.zeros(len(y), dtype=np.int64)
    for place, (start, stop) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        found[rows[start:stop]] = place
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Ensemble:
    """Votes of an ensemble on the public points.

    Attributes
    ----------
    votes : uint8 array (teachers, points)
    truth : integer array (points,)
    public, test : integer arrays
        Rows of the data set.
    """

    spec: Spec
    votes: NDArray[np.integer[Any]]
    truth: NDArray[np.integer[Any]]
    public: NDArray[np.int64]
    test: NDArray[np.int64]
    meta: Mapping[str, Any]

    @property
    def setup(self) -> Setup:
        """The experiment that it belongs to."""
        return SETUPS[self.spec.setup]

    @property
    def n_teachers(self) -> int:
        """How many teachers voted."""
        return len(self.votes)

    @cached_property
    def teacher_accuracy(self) -> float:
        """The mean accuracy of one teacher on the public points."""
        return float(np.mean(self.votes == self.truth))

    @cached_property
    def plurality(self) -> NDArray[np.intp]:
        """The class that most teachers vote for, per public point."""
        return np.asarray(count_votes(self.votes, int(self.votes.max()) + 1).argmax(axis=1))

    def teacher_accuracy_of(self, label: int) -> float:
        """The mean accuracy of one teacher on the public points of one class."""
        own = self.truth == label
        return float(np.mean(self.votes[:, own] == label))
