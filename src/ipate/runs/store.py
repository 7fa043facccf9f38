"""What a run keeps in its folder, so that it can be resumed: facts, settings, allocation, record, lesson, student."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.allocation.allocation import Allocation
from ipate.engines.context import Arrays, Settings, Store, Task
from ipate.errors import InputError
from ipate.files import read_npz, write_csv, write_npz, write_text
from ipate.people.budgets import shown_counts
from ipate.release.lesson import Lesson
from ipate.release.results import Labelling, Record, ballot_figures
from ipate.runs.folder import RunFolder
from ipate.runs.ledgers import read_record, shown_folder, student_folder
from ipate.runs.task import FileTask
from ipate.runs.teaching import deploy
from ipate.runs.withdrawal import begin_without, settle


def keep_settings(folder: RunFolder, settings: Settings) -> None:
    """Write the settings of a run, and in the public folder what readers want of them."""
    for name, text in settings.pages.items():
        write_text(folder.public / name, text)
    write_text(folder.path / "settings.json", settings.to_json() + "\n")


class FolderStore(Store):
    """The store of a run that has a folder; what is stored there is never made again."""

    def __init__(self, folder: RunFolder, task: FileTask) -> None:
        self.folder, self.task = folder, task

    def once(self, name: str, make: Callable[[], Arrays], *, public: bool = False) -> Arrays:
        """Return the arrays that were stored under a name; else make and store them."""
        path = (self.folder.path if public else self.folder.private) / f"{name}.npz"
        if not path.is_file():
            write_npz(path, dict(make()))
        return read_npz(path)

    def settings(self, make: Callable[[], Settings]) -> Settings:
        """Return the settings of the run: chosen and written once, before training, and read from then on."""
        if not self.folder.begun:
            keep_settings(self.folder, make())
        return self.folder.settings

    def allocation(self, made: Allocation, task: Task) -> Allocation:
        """Return the stored allocation without the people who withdrew; it must be the one that is made now."""
        path = self.folder.private / "allocation.npz"
        if not path.is_file():
            kept = begin_without(self.folder, made, unprotected=self.task.unprotected)
        else:
            kept = settle(self.folder, Allocation.load(path))
            if not _same(kept, made.without(kept.withdrawn)):
                raise InputError(
                    f"{path}: people, budgets or settings are not those that this run began with, and people must stay "
                    "with their teachers; begin a new run in another folder"
                )
        return kept

    def tell(self, settings: Settings, allocation: Allocation) -> None:
        """Log which rows are protected, and what was decided from public facts."""
        for line in (*self.task.notes, _told(self.task, allocation), *allocation.notes, settings.reason):
            logging.getLogger("ipate").info(line)

    def record(self) -> Record | None:
        """Return the record of an earlier release; released labels are never drawn again."""
        return read_record(self.folder)

    def keep_record(self, record: Record, labelling: Labelling) -> None:
        """Write the record of a release that the ledger was charged for."""
        self.folder.write(self.folder.private / "labelling.json", record.as_json(answers=True))

    def place(self, name: str) -> Path | None:
        """Return a private folder for large files."""
        return self.folder.private / name

    def noted(self) -> dict[str, Any]:
        """Return the notes for the data owner."""
        return self.folder.read(self.folder.notes) or {}

    def note(self, **sections: Any) -> None:
        """Add sections to the notes for the data owner."""
        self.folder.note_privately(**sections)

    def publish(self, lesson: Lesson) -> None:
        """Write costs and labels, to the public folder if the record is publishable, else to the private one.

        Labels are in the order asked; the id of a query is its row in the data. A column `reinforced` says where the
        label is a student's own class, if that is so anywhere.
        """
        record, rows, classes = lesson.record, self.task.points, self.task.classes
        shown, least = shown_folder(self.folder, record), self.folder.config.budgets.min_group_size
        stated = record.as_json(answers=False)
        sizes = shown_counts((group["people"] for group in stated["groups"]), least=least)
        for group, size in zip(stated["groups"], sizes, strict=True):
            group["people"] = size
        stated["ballots"] = ballot_figures(record.ballots, record.groups, least=least)
        self.folder.write(shown / "guarantee.json", stated)
        for name, arrays in lesson.arrays.items():
            write_npz(shown / f"{name}.npz", dict(arrays))
        table, own = [], set(record.reinforced)
        for query in record.queries:
            label = int(record.labels[query])
            cells = [int(rows[query]), int(label >= 0), classes[label] if label >= 0 else ""]
            table.append([*cells, int(query in own)] if own else cells)
        write_csv(shown / "labels.csv", ["query", "answered", "label", *(["reinforced"] if own else [])], table)

    def student(self, lesson: Lesson, teach: Callable[[], Any]) -> Any:
        """Teach, score and deploy the student, unless that stage is complete."""
        shown = student_folder(self.folder, lesson.record)
        if (self.folder.private / "metrics.json").is_file() and (shown / "student.json").is_file():
            return None
        trained = teach()
        deploy(self.folder, self.task, lesson.record, trained)
        return trained

    def keep_facts(self) -> None:
        """Write the facts of the data, or check that a resumed run has the same classes and public points."""
        folder, task = self.folder, self.task
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
            "public_metrics": sorted(task.public_metrics),
            "pool": task.fingerprint,
        }
        kept = folder.read(path)
        if kept is None:
            if task.data.schema is not None:
                task.data.schema.write(folder.path / "schema.json")
            folder.write(path, facts)
        elif (kept.get("pool"), kept.get("classes")) != (facts["pool"], facts["classes"]):
            raise InputError(
                f"{path}: the public points or the classes are not those that this run began with; restore the data, "
                "or begin a new run in another folder"
            )


def _told(task: FileTask, allocation: Allocation) -> str:
    """Return one sentence about which rows are protected and which are not."""
    groups = allocation.people.groups
    counts = shown_counts((group.people for group in groups), least=task.config.budgets.min_group_size)
    sizes = ", ".join(
        f"{group.id} ε = {group.epsilon:g}: {people} people" for group, people in zip(groups, counts, strict=True)
    )
    n_public, n_test, n_private = (len(getattr(task.parts, part)) for part in ("public", "test", "private"))
    if not len(task.unprotected):
        return f"{n_private} rows are private ({sizes}); {n_public} public and {n_test} test rows come from other files"
    return (
        f"{n_public} rows are treated as public and {n_test} as test data, and no budget protects them; the other "
        f"{n_private} are private ({sizes})"
    )


def _same(kept: Allocation, made: Allocation) -> bool:
    """Whether two allocations have the same people, budgets and places."""

    def facts(of: Allocation) -> tuple[tuple[Any, ...], tuple[NDArray[Any], ...]]:
        people = of.people
        arrays = (of.persons, of.offsets, of.weights, people.ids, people.person_of_row, people.group_of_person)
        return (of.variant, of.groups, people.groups), arrays

    (values, arrays), (other_values, others) = facts(kept), facts(made)
    return values == other_values and all(map(np.array_equal, arrays, others))
