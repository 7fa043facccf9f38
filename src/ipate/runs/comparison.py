"""The comparison of a run with other engines and with no privacy at all, on benchmark data only.

It uses the private data again, uncharged, and part of it without noise, so it has no guarantee.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ipate.allocation.allocation import Allocation
from ipate.engines.context import BASELINE, Bar, MemoryBook, MemoryStore, Settings, Task
from ipate.errors import IpateError
from ipate.pipeline import Options, Trained, train
from ipate.release.results import COMPARED
from ipate.runs.folder import RunFolder
from ipate.runs.store import FolderStore
from ipate.runs.task import FileTask
from ipate.runs.teaching import evaluate, student_scores

NAMES: dict[str, str] = {
    "standard": "standard PATE",
    "individualized": "individualized PATE",
    "ballots_strictest": "ballots at the strictest ε",
    "ballots": "ballots with individual budgets",
    "ceiling": "ceiling without privacy",
}
"""What a run is compared with, in the order of tables; the run itself is left out."""
OTHERS = {name: title for name, title in NAMES.items() if name not in ("standard", "ceiling")}
_ENGINES: dict[str, tuple[str, str]] = {  # the engine, and the variant: everybody's own budget or the strictest
    "standard": ("teachers", "standard"),
    "individualized": ("teachers", "weighting"),
    "ballots_strictest": ("ballots", "standard"),
    "ballots": ("ballots", "weighting"),
}


NOTHING = {"labels": 0, "student_accuracy": None}


class _Beside(MemoryStore):
    """The memory of a compared engine: the people who withdrew from the run stay out."""

    def __init__(self, withdrawn: tuple[int, ...], settings: Settings | None) -> None:
        super().__init__()
        self.withdrawn, self.given = withdrawn, settings

    def settings(self, make: Callable[[], Settings]) -> Settings:
        """Return the settings of the run, where the compared engine is the same."""
        return self.given or make()

    def allocation(self, made: Allocation, task: Task) -> Allocation:
        """Return the allocation without the people who withdrew."""
        return made.without(self.withdrawn)


def compared(folder: RunFolder, task: FileTask, options: Options, trained: Trained, bar: Bar) -> dict[str, Any]:
    """Score the other engines and a student without privacy, unless that stage is complete."""
    path, settings, pupil = folder.private / "compare.json", trained.settings, options.pupil
    kept = folder.read(path)
    if kept is not None or pupil is None:
        return kept or {}
    found: dict[str, Any] = {
        "guarantee": "none",
        "statement": COMPARED,
        "note": "for benchmark data only: on real people this would spend their budgets a second time",
        "teachers": trained.engine.raw_accuracy(FolderStore(folder, task), task),
    }
    withdrawn, facts = trained.allocation.withdrawn, options.facts(task)
    for name, (engine, variant) in _ENGINES.items():
        if (engine, variant != BASELINE) == (settings.engine, settings.individual):
            continue
        same = trained.engine.varied(settings, variant, facts) if engine == settings.engine else None
        request = replace(options.request.varied(engine, variant), needed=0)  # however few labels: they are counted
        asked = replace(options, request=request)
        try:
            other = train(task, asked, book=MemoryBook(), store=_Beside(withdrawn, same), bar=bar)
        except IpateError:  # the budgets afford nothing
            found[name] = NOTHING
            continue
        record = other.lesson.record
        found[name] = evaluate(task, other.student, record) if record.n_labels else NOTHING
    here = task.parts.private[~np.isin(task.people.person_of_row, withdrawn)]
    ceiling = pupil.student.teach(pupil.model, task.features(here, pupil.form), task.data.y[here], classes=task.classes)
    found["ceiling"] = student_scores(ceiling, task)
    folder.write(path, found)
    return found
