"""Accuracy of labels, student and teachers against the true labels; all scores are private."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.accounting.bounds import Meter
from ipate.allocation.allocation import Allocation
from ipate.labelling.results import Record
from ipate.planning.settings import Settings
from ipate.runs.config import RunConfig
from ipate.runs.fitting import run_labelling
from ipate.runs.folder import RunFolder
from ipate.runs.task import Task, make_student
from ipate.students import find_student
from ipate.votes import Votes
from ipate.votes.counting import count_votes


def teach(task: Task, config: RunConfig, rows: NDArray[np.int64], labels: NDArray[np.int64]) -> Any:
    """Train the student on these rows and their labels, −1 for none."""
    X, model = task.features(rows, model=config.student.model), make_student(config)
    return find_student(config.student.model).fit(model, X, labels, n_classes=task.data.n_classes)


def accuracy(student: Any, task: Task, model: str) -> dict[str, Any]:
    """Return the accuracy on the test rows, overall, by class, and by consent level if there are levels."""
    rows = task.parts.test
    if not len(rows):
        return {"student_accuracy": None}
    truth = task.data.y[rows]
    right = np.asarray(student.predict(task.features(rows, model=model))) == truth
    scores: dict[str, Any] = {"student_accuracy": float(right.mean())}
    scores["by_class"] = {
        name: float(right[truth == index].mean())
        for index, name in enumerate(task.data.classes)
        if np.any(truth == index)
    }
    if task.data.levels is not None:
        levels = task.data.levels[rows]
        scores["by_level"] = {str(level): float(right[levels == level].mean()) for level in np.unique(levels)}
    return scores


def evaluate(task: Task, student: Any, record: Record, model: str) -> dict[str, Any]:
    """Score labels and student with the true labels, which are not released: the scores are private."""
    given = record.labels >= 0
    truth = task.data.y[task.parts.public]
    voting = float(np.mean(record.labels[given] == truth[given])) if given.any() else None
    return {
        "labels": record.n_labels,
        "queries": record.n_queries,
        "voting_accuracy": voting,
        **accuracy(student, task, model),
    }


def _teachers(folder: RunFolder, task: Task) -> dict[str, float]:
    """Return the accuracy of the run's teachers and of their plurality on the pool, from private votes."""
    votes = np.load(folder.private / "votes" / "votes.npy", mmap_mode="r")
    truth = task.data.y[task.parts.public]
    plurality = count_votes(votes, task.data.n_classes).argmax(axis=1)
    return {"accuracy": float(np.mean(votes == truth)), "plurality_accuracy": float(np.mean(plurality == truth))}


def _for_standard(settings: Settings) -> Settings:
    """Return the settings of the baseline: under ptr with a new design, or with gdp if none can be made."""
    if not settings.meter.whole:
        return settings
    if settings.reference is not None and settings.reference.simulator is not None:
        return replace(settings, design=None)
    return replace(settings, meter=Meter("gdp"), reference=None, design=None)


def compare(
    folder: RunFolder, task: Task, votes: Votes, *, allocation: Allocation, settings: Settings
) -> dict[str, Any]:
    """Score standard PATE, and a non-private student trained on the private data; both are private."""
    config = folder.config
    result, _ = run_labelling(votes, allocation, _for_standard(settings), noise_seed=config.seed)
    record = Record.of(result, n_public=votes.n_queries)
    model, standard = config.student.model, None
    if record.n_labels:
        standard = evaluate(task, teach(task, config, task.parts.public, record.labels), record, model)
    here = task.parts.private[~np.isin(task.people.person_of_row, allocation.withdrawn)]
    return {
        "note": "for benchmark data only: on real people this would spend their budgets a second time",
        "teachers": _teachers(folder, task),
        "standard": standard or {"labels": 0, "student_accuracy": None},
        "ceiling": accuracy(teach(task, config, here, task.data.y[here]), task, model),
    }
