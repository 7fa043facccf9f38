"""The stages of a run in order; a resumed run reads the files of completed stages. All scores are private."""

import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.allocation.allocation import Allocation
from ipate.engines.ballots.counting import Decoded
from ipate.engines.ballots.design import allocate_ballots
from ipate.engines.teachers.variants import allocate
from ipate.errors import InputError, IpateError
from ipate.people.budgets import shown_counts
from ipate.planning.reference import write_design
from ipate.planning.settings import Settings, designed
from ipate.release.results import Record
from ipate.report.facts import Audience
from ipate.runs.ballots import publish_ballots, release_once
from ipate.runs.comparison import compared
from ipate.runs.folder import RunFolder
from ipate.runs.ledgers import Bar, check_affordable, label_once, ledger_path, publish, student_folder
from ipate.runs.outlook import chosen_settings, standing_of
from ipate.runs.person import begin_without, settle
from ipate.runs.provenance import keep_provenance
from ipate.runs.reporting import write_report
from ipate.runs.task import Task, check_models, prepare
from ipate.runs.teaching import first_guess, public_metrics, taught, try_student
from ipate.runs.voting import collect_votes


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """The results of a run, for the summary table and for JSON."""

    task: Task
    settings: Settings
    allocation: Allocation
    record: Record
    metrics: dict[str, Any]
    compare: dict[str, Any] | None
    ledger: Path
    report: Path
    student: Path
    notes: Path  # for the data owner alone; every run has them
    least: int  # people of a group that is counted in what leaves the data owner

    @property
    def carried(self) -> bool:
        """Whether earlier runs on the same ledger have a cost."""
        return any(group.before > 0 for group in self.record.groups)

    @property
    def released_metrics(self) -> dict[str, Any]:
        """The metrics that follow from releases, budgets and public data alone: public if the guarantee permits it."""
        known = public_metrics(self.task)
        return {name: value for name, value in self.metrics.items() if name in known}

    @property
    def private_metrics(self) -> dict[str, Any]:
        """The other metrics, which were found with true labels of people: never public."""
        known = public_metrics(self.task)
        return {name: value for name, value in self.metrics.items() if name not in known}


def execute(folder: RunFolder, *, bar: Bar, task: Task | None = None) -> RunSummary:
    """Run every stage that is not complete yet; notes are logged under the name ipate.

    `bar` makes a progress bar from a title and a total, as a context manager; `task` is the input of a run if it was
    prepared already.
    """
    with folder.locked():
        folder.note_versions()
        check_models(folder.config)
        task = task or prepare(folder.config)
        _keep_facts(folder, task)
        keep_provenance(folder, task)
        folder.note_privately(data=list(task.data.private_notes))  # whatever they are: every run has the file
        settings = resolve_settings(folder, task)
        allocation = _allocation(folder, task, settings)
        check_affordable(
            folder,
            allocation,
            settings,
            unprotected=task.unprotected,
            n_classes=task.data.n_classes,
            n_public=len(task.parts.public),
        )
        told = _told(task, folder.config.budgets.min_group_size)
        for line in (*task.data.notes, told, *allocation.notes, settings.reason):
            logging.getLogger("ipate").info(line)
        try_student(task, folder.config, settings)
        record, decoded = _labelled(folder, task, settings, allocation, bar)
        publish(folder, record, task.data.classes, task.queries)
        audience: Audience = "public" if record.publishable else "private"
        if record.passed is False and not record.n_labels:
            report = write_report(folder, audience=audience).html
            raise IpateError(
                "the private test was not passed: no label was released, and the budgets are spent, as they would be "
                f"after a pass; {report} states it. People's budgets pay for one test; do not run it again"
            )
        metrics = taught(folder, task, settings, allocation, record, decoded=decoded)
        compare = compared(folder, task, settings, allocation, bar) if folder.config.compare else None
        report = write_report(folder, audience=audience).html
    return RunSummary(
        task=task,
        settings=settings,
        allocation=allocation,
        record=record,
        metrics=metrics,
        compare=compare,
        ledger=ledger_path(folder),
        report=report,
        student=student_folder(folder, record),
        notes=folder.notes,
        least=folder.config.budgets.min_group_size,
    )


def _labelled(
    folder: RunFolder, task: Task, settings: Settings, allocation: Allocation, bar: Bar
) -> tuple[Record, Decoded | None]:
    """Label the pool by the run's engine; ballots tell more than labels."""
    if settings.ballots:
        record, decoded = release_once(folder, task=task, allocation=allocation, settings=settings, bar=bar)
        publish_ballots(folder, record, decoded)
        return record, decoded
    votes = collect_votes(folder, "votes", task=task, allocation=allocation, bar=bar)
    guess = partial(first_guess, folder, task, allocation)
    return label_once(folder, votes, allocation=allocation, settings=settings, task=task, bar=bar, guess=guess), None


def _keep_facts(folder: RunFolder, task: Task) -> None:
    """Write the facts of the data, or check that a resumed run has the same classes and public points."""
    path = folder.path / "data.json"
    facts = {
        "name": task.data.name,
        "source": task.data.source,
        "notes": list(task.data.notes),
        "classes": list(task.data.classes),
        "rows": {part: len(getattr(task.parts, part)) for part in ("private", "public", "test")},
        "people": task.people.n_people,
        "person_ids": task.data.person_id is not None,
        "unprotected": len(task.unprotected),
        "overlap": task.overlap,
        "public_metrics": sorted(public_metrics(task)),
        "pool": task.pool,
    }
    kept = folder.read(path)
    if kept is None:
        if task.data.schema is not None:
            task.data.schema.write(folder.path / "schema.json")
        folder.write(path, facts)
    elif (kept.get("pool"), kept.get("classes")) != (facts["pool"], facts["classes"]):
        raise InputError(
            f"{path}: the public points or the classes are not those that this run began with; restore the data, or "
            "begin a new run in another folder"
        )


def _told(task: Task, least: int) -> str:
    """Return one sentence about which rows are protected and which are not."""
    counts = shown_counts((group.people for group in task.people.groups), least=least)
    sizes = ", ".join(
        f"{group.id} ε = {group.epsilon:g}: {people} people"
        for group, people in zip(task.people.groups, counts, strict=True)
    )
    n_public, n_test, n_private = (len(getattr(task.parts, part)) for part in ("public", "test", "private"))
    if not len(task.unprotected):
        return f"{n_private} rows are private ({sizes}); {n_public} public and {n_test} test rows come from other files"
    return (
        f"{n_public} rows are treated as public and {n_test} as test data, and no budget protects them; the other "
        f"{n_private} are private ({sizes})"
    )


def resolve_settings(folder: RunFolder, task: Task) -> Settings:
    """Return the settings of the run: chosen and written once, before training, and read from then on.

    They include the design of a tested release, so that the test and the labels share one design; its file in the
    public folder is a copy for readers.
    """
    if folder.begun:
        return folder.settings
    settings = chosen_settings(folder.config, task, standing=standing_of(folder.config, task))
    if settings.meter.whole:
        queries = [str(index) for index in range(len(task.parts.public))]
        dealt = _dealt(folder, task, settings)
        settings = designed(settings, dealt, n_classes=task.data.n_classes, queries=queries)
        if settings.design is not None:
            write_design(folder.public / "design.json", settings.design)
    settings.write(folder.path / "settings.json")
    return settings


def _dealt(folder: RunFolder, task: Task, settings: Settings) -> Allocation:
    if settings.ballots:
        return allocate_ballots(
            settings.variant, people=task.people, seed=folder.config.split_seed, meter=settings.meter
        )
    n_teachers, seed = settings.n_teachers, folder.config.split_seed
    return allocate(settings.variant, people=task.people, n_teachers=n_teachers, seed=seed, **settings.options)


def _allocation(folder: RunFolder, task: Task, settings: Settings) -> Allocation:
    path = folder.private / "allocation.npz"
    made = _dealt(folder, task, settings)
    if not path.is_file():
        return begin_without(folder, made, unprotected=task.unprotected)
    kept = settle(folder, Allocation.load(path))
    if not _same(kept, made.without(kept.withdrawn)):
        raise InputError(
            f"{path}: people, budgets or settings are not those that this run began with, and people must stay "
            "with their teachers; begin a new run in another folder"
        )
    return kept


def allocated(folder: RunFolder) -> Allocation:
    """Return the run's current allocation; make it if there is none yet."""
    path = folder.private / "allocation.npz"
    if path.is_file():
        return settle(folder, Allocation.load(path))
    task = prepare(folder.config)
    return _allocation(folder, task, resolve_settings(folder, task))


def _same(kept: Allocation, made: Allocation) -> bool:
    """Whether two allocations have the same people, budgets and places."""

    def facts(of: Allocation) -> tuple[tuple[Any, ...], tuple[NDArray[Any], ...]]:
        people = of.people
        arrays = (of.persons, of.offsets, of.weights, people.ids, people.person_of_row, people.group_of_person)
        return (of.variant, of.groups, people.groups), arrays

    (values, arrays), (other_values, others) = facts(kept), facts(made)
    return values == other_values and all(map(np.array_equal, arrays, others))
