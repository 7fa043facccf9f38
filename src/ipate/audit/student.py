"""A black-box membership attack on the student: trained again and again in the copy, it is asked about the canary.

Of the runs on either data set, half choose the threshold on the student's confidence and the direction, and the other
half bound how often it is passed, by Clopper and Pearson: (ε, δ)-DP needs p ≤ e^ε·q + δ.
"""

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ipate._types import Floats
from ipate.audit.canaries import Pair, made_up_task
from ipate.audit.law import least_success, most_success
from ipate.audit.subject import Attack, Copy, Subject
from ipate.data.dataset import Dataset
from ipate.errors import InputError
from ipate.people.people import People
from ipate.release.results import Record
from ipate.runs.fitting import run_labelling
from ipate.runs.teaching import teach
from ipate.students.confidence import lesson
from ipate.students.student import find_student

Lesson: TypeAlias = tuple[NDArray[np.int64], Mapping[str, Any]]  # labels of the pool, and what else a student is told
FEWEST = 10
_AWAY = 6.0  # where the canary's row lies, in deviations of the pool's points


@dataclass(frozen=True, kw_only=True)
class Trials:
    """How much is drawn: answers per kind of noise, and trainings of the student, whose bound has its own error."""

    draws: int
    runs: int
    error: float


def check_student(subject: Subject, runs: int) -> None:
    """Refuse a number of retrainings that shows nothing, and a student that made-up points do not suit."""
    if runs != 0 and runs < FEWEST:
        raise InputError(f"student_runs is {runs}: it must be 0 or at least {FEWEST}: half of them set a threshold")
    if runs and find_student(subject.config.student.model).images:
        raise InputError(
            f"student is {subject.config.student.model!r}: it learns from images, and the audit's points are made up; "
            "leave out --student-runs"
        )


def attack_labels(copy: Copy, pair: Pair, *, trials: Trials, delta: float) -> Attack:
    """Attack the student of a run with teachers: the canary's votes go to class 0, or to class 1 without its rows."""
    subject, settings = copy.subject, copy.subject.settings
    size = 2 * subject.n_queries + 100 if settings.n_queries is None else settings.n_queries
    pool = np.random.default_rng(subject.config.split_seed).normal(size=(size, 2))
    student, total = find_student(subject.config.student.model), float(copy.allocation.weights.sum())

    def released(own: NDArray[np.int64]) -> Lesson:
        found, _ = run_labelling(copy.votes(own, size), copy.allocation, settings)
        record = Record.of(found, n_public=size)
        return record.labels, lesson(student, record, n_classes=subject.n_classes, total_weight=total)

    lessons = (lambda: released(pair.here)), (lambda: released(pair.there))
    return attack_student(subject, pool, np.full(2, _AWAY), lessons, trials=trials, delta=delta)


def attack_student(
    subject: Subject,
    pool: Floats,
    point: Floats,
    lessons: tuple[Callable[[], Lesson], Callable[[], Lesson]],
    *,
    trials: Trials,
    delta: float,
) -> Attack:
    """Train the run's student on what was released with the canary and without it, and ask it about the canary.

    The canary's private row lies at `point`, with class 0 or 1; a sound student never sees it.
    """
    people = People.from_budgets([1.0], delta=1e-5)
    scores = []
    for label, released in enumerate(lessons):
        data = Dataset(
            name="made-up rows",
            X=np.vstack([point, pool]),
            classes=tuple(str(i) for i in range(subject.n_classes)),
            y=np.concatenate([[label], np.zeros(len(pool), dtype=np.int64)]),
        )
        task = made_up_task(data, people, n_private=1, n_public=len(pool))
        own = []
        for _ in range(trials.runs):
            labels, known = released()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # students of few labels may not converge
                model = teach(task, subject.config, task.parts.public, labels, **known)
            own.append(_lead(model, point))
        scores.append(np.array(own))
    reached = shown(*scores, error=trials.error, delta=delta)
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
