"""What a labelling gives back: answers in the order asked, and what they cost whom."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ipate.accounting.meter import Meter
from ipate.guarantee import Guarantee

__all__ = ["Ending", "GroupResult", "Labelling"]

Ending: TypeAlias = Literal["budget", "count", "pool", "failed"]


@dataclass(frozen=True, kw_only=True)
class GroupResult:
    """What one group gave and paid.

    Attributes
    ----------
    group : str
        Its id.
    teachers : int or None
        How many teachers learnt from its people; None where teachers mix groups.
    weight : float or None
        The weight of one of its teachers at the start.
    sensitivity : float
        The largest weight that one of its people moved in any voting.
    budget, delta, epsilon : float
        What it may spend at δ, and what it spent: the worst of its accounts.
    labels_until_exhausted : int or None
        How many labels there were when it could not pay the next query; None if it still could.
    """

    group: str
    teachers: int | None
    weight: float | None
    sensitivity: float
    budget: float
    delta: float
    epsilon: float
    labels_until_exhausted: int | None


@dataclass(frozen=True, kw_only=True)
class Labelling:
    """The answers to all queries asked, in the order asked, and what they cost whom.

    Attributes
    ----------
    queries : integer array
        Positions in the votes of the queries asked.
    labels : integer array
        Their labels, −1 for none.
    answered : bool array
        Where a noisy label was released (repeats of an answered query count as answered).
    reinforced : bool array
        Where the student's own class was returned.
    repeated : bool array
        Where a stored answer was given again, free.
    stopped_by : {"budget", "count", "pool", "failed"}
        What ended the run: an account, the number fixed beforehand, no more queries, or a test that was not passed.
    passed : bool or None
        The published bit of a release that is tested as a whole; None where there was no test.
    """

    queries: NDArray[np.int64]
    labels: NDArray[np.int64]
    answered: NDArray[np.bool_]
    reinforced: NDArray[np.bool_]
    repeated: NDArray[np.bool_]
    stopped_by: Ending
    guarantee: Guarantee
    seeded: bool
    meter: Meter
    groups: tuple[GroupResult, ...]
    passed: bool | None = None

    @property
    def n_labels(self) -> int:
        """The number of different queries that were answered with a noisy label."""
        return int(np.count_nonzero(self.answered & ~self.repeated))

    @property
    def n_queries(self) -> int:
        """The number of different queries asked."""
        return int(np.count_nonzero(~self.repeated))
