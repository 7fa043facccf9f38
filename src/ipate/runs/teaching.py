"""The stage of a run that trains, scores and deploys the student. Scores with labels of people are private."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate._types import Floats
from ipate.allocation.allocation import Allocation
from ipate.config import RunConfig
from ipate.engines.ballots.counting import Decoded
from ipate.files import read_npz, write_npz
from ipate.planning.settings import Settings
from ipate.release.results import Labelling, Record
from ipate.runs import fitting
from ipate.runs.folder import RunFolder
from ipate.runs.ledgers import student_folder
from ipate.runs.task import Task, make_student
from ipate.students.card import origin
from ipate.students.confidence import ballot_lesson, guess, lesson
from ipate.students.deployed import DeployedStudent, name_inputs, plain_schema
from ipate.students.scores import label_notes, score
from ipate.students.student import class_names, find_student


def public_metrics(task: Task) -> frozenset[str]:
    """Return the names of the metrics that depend on releases and public data alone.

    The student is public, so its scores on a public test file are too; on rows of people they are not.
    """
    known = {"labels", "queries", "reinforced", "labels_of_standard_pate", "label_notes"}
    known |= {"voting_accuracy"} if task.public_truth else set()
    known |= {"student_accuracy", "balanced_accuracy", "majority_accuracy", "by_class"} if task.public_test else set()
    return frozenset(known)


def taught(
    folder: RunFolder,
    task: Task,
    settings: Settings,
    allocation: Allocation,
    record: Record,
    *,
    decoded: Decoded | None = None,
) -> dict[str, Any]:
    """Train, deploy and score the student, unless that stage is complete; `decoded` is what ballots gave."""
    path = folder.private / "metrics.json"  # computed with true labels, which are not released
    kept, shown = folder.read(path), student_folder(folder, record)
    if kept is not None and (shown / "student.json").is_file():
        return kept
    chosen, weight = find_student(folder.config.student.model), float(allocation.weights.sum())
    known = lesson(chosen, record, n_classes=task.data.n_classes, total_weight=weight)
    if decoded is not None:
        known = ballot_lesson(chosen, decoded)
    student = teach(task, folder.config, task.parts.public, record.labels, **known)
    metrics = evaluate(task, student, record, folder.config.student.model)
    if not settings.ballots:
        metrics["labels_of_standard_pate"] = fitting.standard_labels(settings, task.people.groups, record)
    n_features = None if task.data.kind == "image" else task.data.X.shape[1]
    notes = metrics["label_notes"] = label_notes(record.labels, task.data.classes, n_features=n_features)
    if record.publishable:  # the notes follow from released labels
        for note in notes:
            logging.getLogger("ipate").warning("warning: %s", note)
    public = public_metrics(task) - {"label_notes"}
    scores = {name: value for name, value in metrics.items() if name in public and isinstance(value, float)}
    given: dict[str, Any] = {"allocation": allocation, "record": record, "student": student, "notes": notes}
    given["scores"] = scores or None
    _deployed(folder, task, settings, **given).save(shown)
    folder.write(path, metrics)
    return metrics


def _deployed(
    folder: RunFolder,
    task: Task,
    settings: Settings,
    *,
    allocation: Allocation,
    record: Record,
    student: Any,
    notes: Sequence[str],
    scores: Mapping[str, float] | None,
) -> DeployedStudent:
    """Return the student with everything that it needs to be used, all of it public or released."""
    data, config = task.data, folder.config
    image = data.X.shape[1:] if data.kind == "image" else None
    schema = data.schema
    if schema is None and image is None:
        schema = plain_schema(data.feature_names, data.X[task.parts.public])
    if schema is not None:
        name_inputs(student, schema.encoded_names)
    mechanism = settings.aggregator(allocation.scale).mechanism
    made: dict[str, Any] = {
        "run": folder.id,
        "voting": settings.voting,
        "variant": allocation.variant,
        "teachers": allocation.n_teachers,
        "teacher": None if settings.ballots else config.teachers.model,
        "student": config.student.model,
        **mechanism.parameters,
    }
    facts = origin(
        record,
        data=data.name,
        classes=data.classes,
        n_people=task.people.n_people,
        unprotected=len(task.unprotected),
        notes=notes,
        scores=scores,
        **made,
    )
    return DeployedStudent(
        model=student,
        classes_=class_names(data.classes),
        schema=schema,
        image=image,
        channels_first=image is not None and find_student(config.student.model).images,
        facts=facts,
    )


def teach(task: Task, config: RunConfig, rows: NDArray[np.int64], labels: NDArray[np.int64], **known: Any) -> Any:
    """Train the student on these rows and their labels, −1 for none, with their weights or what else is known."""
    X, student = task.features(rows, model=config.student.model), find_student(config.student.model)
    return student.teach(_untrained(task, config), X, labels, classes=task.data.classes, **known)


def first_guess(folder: RunFolder, task: Task, allocation: Allocation, found: Labelling) -> Floats | None:
    """Return the probabilities of a student of the labels found so far (`ipate.students.confidence.guess`).

    They are stored before anything is asked with them, so that a resumed run goes on with the same ones.
    """
    path, config = folder.private / "student-probs.npz", folder.config
    if not path.is_file():
        known = guess(
            find_student(config.student.model),
            _untrained(task, config),
            task.features(task.parts.public, model=config.student.model),
            found,
            classes=task.data.classes,
            total_weight=float(allocation.weights.sum()),
        )
        write_npz(path, {"probs": np.zeros((0, task.data.n_classes)) if known is None else known})
    probs = np.asarray(read_npz(path, ("probs",))["probs"], dtype=np.float64)
    return probs if len(probs) else None


def _untrained(task: Task, config: RunConfig) -> Any:
    """Return the student's model, not yet trained."""
    return make_student(config, image_shape=task.data.X.shape[1:] if task.data.kind == "image" else None)


def try_student(task: Task, config: RunConfig, settings: Settings) -> None:
    """Try the student of a run on public points, before anything is charged."""
    points = task.features(task.parts.public[:2000], model=config.student.model)
    student, model = find_student(config.student.model), _untrained(task, config)
    fitting.try_student(student, model, points, settings=settings, n_classes=task.data.n_classes)


def student_scores(student: Any, task: Task, model: str, *, majority: int | None = None) -> dict[str, Any]:
    """Return the scores on the test rows, with the accuracy by consent level if there are levels."""
    rows = task.parts.test[task.data.y[task.parts.test] >= 0]  # a test file may have no labels
    if not len(rows):
        return {"student_accuracy": None}
    truth, place = task.data.y[rows], {name: index for index, name in enumerate(task.data.classes)}
    predicted = np.array([place[name] for name in student.predict(task.features(rows, model=model)).tolist()])
    scores = score(truth, predicted, task.data.classes, majority=majority)
    if task.data.levels is not None and not task.data.separate[1]:
        levels, right = task.data.levels[rows], predicted == truth
        scores["by_level"] = {str(level): float(right[levels == level].mean()) for level in np.unique(levels)}
    return scores


def evaluate(task: Task, student: Any, record: Record, model: str) -> dict[str, Any]:
    """Score labels and student with the true labels, which are not released: the scores are private."""
    truth = task.data.y[task.parts.public]
    given = (record.labels >= 0) & (truth >= 0)
    voting = float(np.mean(record.labels[given] == truth[given])) if given.any() else None
    released = record.labels[record.labels >= 0]
    majority = int(np.bincount(released).argmax()) if len(released) else None
    scores = student_scores(student, task, model, majority=majority)
    numbers = {"labels": record.n_labels, "queries": record.n_queries, "reinforced": len(record.reinforced)}
    return {**numbers, "voting_accuracy": voting, **scores}
