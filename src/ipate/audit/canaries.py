"""Made-up people and rows, the copy of a run on them, and the membership attack on its student.

The student is trained again and again in the copy, and asked about the canary. Of the runs on either data set, half
choose the threshold on the student's confidence and the direction. The other half bound how often it is passed, by
Clopper and Pearson: (ε, δ)-DP needs p ≤ e^ε·q + δ.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate._types import Floats, Ints
from ipate.allocation.allocation import Allocation
from ipate.audit.auditing import Attack, S, Subject, Trials
from ipate.audit.law import least_success, most_success
from ipate.engines.base import Round
from ipate.engines.context import MemoryStore, Task
from ipate.ledger.admission import Roster
from ipate.ledger.base import Ledger, Opening
from ipate.ledger.finding import LEDGER
from ipate.ledger.records import Terms
from ipate.models.workers import Backend
from ipate.people.people import People
from ipate.release.lesson import Lesson


@dataclass(frozen=True, kw_only=True, eq=False)
class MadeUp(Task):
    """Made-up people with their rows and class ids, and made-up public points."""

    people: People
    X: NDArray[Any]
    y: Ints
    points_: NDArray[Any]
    classes: tuple[str, ...]
    name: str = "made-up rows"
    fingerprint: str = "made-up points"
    seed: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of public points and the shape of one."""
        return self.points_.shape

    def pool(self, form: str = "model") -> NDArray[Any]:
        """Return the public points."""
        return self.points_

    def rows(self, form: str = "model") -> NDArray[Any]:
        """Return the made-up rows."""
        return self.X

    @property
    def codes(self) -> Ints:
        """The class id of every row."""
        return self.y

    def roster(self, allocation: Allocation) -> Roster:
        """Return the people of the copy for its ledger."""
        return Roster(people=allocation.members(), withdrawn=allocation.former(), rows=True)


class CopyStore(MemoryStore):
    """The store of a copy: in memory, but for large files, which lie in a folder as those of a run do."""

    def __init__(self, where: Path) -> None:
        super().__init__()
        self.where = where

    def place(self, name: str) -> Path:
        """Return a folder for large files."""
        return self.where / name


def copied(
    subject: Subject[S], task: MadeUp, where: Path, *, allocation: Allocation | None = None, settings: S | None = None
) -> Round[S]:
    """Return a round of the run on made-up data, with secure noise and files in a folder of its own."""
    return Round(
        task=task,
        settings=settings or subject.settings,
        allocation=allocation or subject.allocation,
        store=CopyStore(where),
        compute=Backend(backend="sequential", n_jobs=1),
    )


@contextmanager
def charging(run: Round[Any], terms: Sequence[Terms], where: Path) -> Iterator[Ledger]:
    """Open a new ledger on disk for a copy."""
    where.mkdir(parents=True)
    asked = Opening(
        terms=terms,
        roster=run.task.roster(run.allocation),
        pool=run.task.fingerprint,
        noise=run.noise,
        run="copy",
    )
    with LEDGER.begin(where / "ledger.sqlite", asked) as ledger:
        yield ledger


def attack_student(
    subject: Subject[Any],
    pool: Floats,
    point: Floats,
    released: Callable[[int], Lesson],
    *,
    trials: Trials,
    delta: float,
) -> Attack:
    """Train the run's student on what was released on two neighbouring data sets, and ask it about the canary.

    The canary's private row lies at `point`, with class 0 or 1, for which `released` returns a new lesson; a sound
    student never sees the row.
    """
    people = People.from_budgets([1.0], delta=1e-5)
    scores = []
    for label in (0, 1):
        task = MadeUp(people=people, X=point[None], y=np.array([label]), points_=pool, classes=subject.classes)
        own = []
        for _ in range(trials.runs):
            lesson = released(label)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # students of few labels may not converge
                model = subject.pupil.taught(task, lesson)
            own.append(_lead(model, point))
        scores.append(np.array(own))
    reached = shown(*scores, error=trials.student_error, delta=delta)
    return Attack(name="student", releases=trials.runs, charged=None, reached=reached)


def _lead(model: Any, point: Floats) -> float:
    """Return how much more likely the student finds class 0 than class 1 at a point."""
    classes = [str(name) for name in model.classes_]
    if hasattr(model, "predict_proba"):
        chances = dict(zip(classes, model.predict_proba(point[None])[0].tolist(), strict=True))
        return float(chances.get("0", 0.0) - chances.get("1", 0.0))
    return {"0": 1.0, "1": -1.0}.get(str(model.predict(point[None])[0]), 0.0)


def shown(here: Floats, there: Floats, *, error: float, delta: float) -> float:
    """Return the lower bound on ε that two samples of scores show."""
    half = len(here) // 2
    cuts = np.unique(np.concatenate([here[:half], there[:half]]))
    choices = [(cut, side) for cut in cuts for side in (1, -1)]

    def hits(scores: Floats, cut: float, side: int) -> int:
        return int((side * scores >= side * cut).sum())

    best = max(choices, key=lambda c: abs(hits(here[:half], *c) - hits(there[:half], *c)), default=None)
    if best is None:
        return 0.0
    one, other = (here, there) if hits(here[:half], *best) >= hits(there[:half], *best) else (there, here)
    size = len(here) - half
    low = least_success(hits(one[half:], *best), size, error=error / 2)
    high = most_success(hits(other[half:], *best), size, error=error / 2)
    return max(0.0, math.log((low - delta) / high)) if low > delta else 0.0
