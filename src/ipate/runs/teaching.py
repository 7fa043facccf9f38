"""The deployed student of a run and its scores. Scores with labels of people are private."""

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from ipate.allocation.allocation import Allocation
from ipate.release.results import Record
from ipate.runs.folder import RunFolder
from ipate.runs.ledgers import student_folder
from ipate.runs.task import FileTask, engine_of
from ipate.students.card import origin
from ipate.students.deployed import DeployedStudent, name_inputs, plain_schema
from ipate.students.scores import label_notes, score
from ipate.students.student import class_names, find_student


def deploy(folder: RunFolder, task: FileTask, record: Record, student: Any) -> None:
    """Score a student and deploy it; its scores with labels of people are private."""
    settings, allocation = folder.settings, Allocation.load(folder.private / "allocation.npz")
    engine = engine_of(folder)
    metrics = evaluate(task, student, record)
    standard = engine.standard_labels(settings, allocation.people.groups, record)
    if standard is not None:
        metrics["labels_of_standard_pate"] = standard
    n_features = None if task.image is not None else task.data.X.shape[1]
    notes = metrics["label_notes"] = label_notes(record.labels, task.classes, n_features=n_features)
    if record.publishable:  # the notes follow from released labels
        for note in notes:
            logging.getLogger("ipate").warning("warning: %s", note)
    public = task.public_metrics - {"label_notes"}
    scores = {name: value for name, value in metrics.items() if name in public and isinstance(value, float)}
    made = {"run": folder.id, **engine.describe(settings, allocation), "student": folder.config.student.model}
    facts = origin(
        record,
        data=task.name,
        how=engine.report(settings, allocation).manner.card,
        classes=task.classes,
        n_people=task.people.n_people,
        unprotected=len(task.unprotected),
        notes=notes,
        scores=scores or None,
        **made,
    )
    _deployed(task, student, facts).save(student_folder(folder, record))
    folder.write(folder.private / "metrics.json", metrics)


def _deployed(task: FileTask, student: Any, facts: Mapping[str, Any]) -> DeployedStudent:
    """Return the student with everything that it needs to be used, all of it public or released."""
    data, image, schema = task.data, task.image, task.data.schema
    if schema is None and image is None:
        schema = plain_schema(data.feature_names, data.X[task.parts.public])
    if schema is not None:
        name_inputs(student, schema.encoded_names)
    return DeployedStudent(
        model=student,
        classes_=class_names(data.classes),
        schema=schema,
        image=image,
        channels_first=image is not None and find_student(task.config.student.model).images,
        facts=facts,
    )


def student_scores(student: Any, task: FileTask, *, majority: int | None = None) -> dict[str, Any]:
    """Return the scores on the test rows, with the accuracy by consent level if there are levels."""
    rows = task.parts.test[task.data.y[task.parts.test] >= 0]  # a test file may have no labels
    if not len(rows):
        return {"student_accuracy": None}
    form = "images" if find_student(task.config.student.model).images else "model"
    truth, place = task.data.y[rows], {name: index for index, name in enumerate(task.classes)}
    predicted = np.array([place[name] for name in student.predict(task.features(rows, form)).tolist()])
    scores = score(truth, predicted, task.classes, majority=majority)
    if task.data.levels is not None and not task.data.separate[1]:
        levels, right = task.data.levels[rows], predicted == truth
        scores["by_level"] = {str(level): float(right[levels == level].mean()) for level in np.unique(levels)}
    return scores


def evaluate(task: FileTask, student: Any, record: Record) -> dict[str, Any]:
    """Score labels and student with the true labels, which are not released: the scores are private."""
    given = (record.labels >= 0) & (task.truth >= 0)
    voting = float(np.mean(record.labels[given] == task.truth[given])) if given.any() else None
    released = record.labels[record.labels >= 0]
    majority = int(np.bincount(released).argmax()) if len(released) else None
    scores = student_scores(student, task, majority=majority)
    numbers = {"labels": record.n_labels, "queries": record.n_queries, "reinforced": len(record.reinforced)}
    return {**numbers, "voting_accuracy": voting, **scores}
