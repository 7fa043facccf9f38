"""A run in a folder from its input to its report; a resumed run reads the files of completed stages."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ipate.allocation.allocation import Allocation
from ipate.config import RunConfig
from ipate.engines.context import Bar, Settings
from ipate.errors import IpateError
from ipate.pipeline import Trained, train
from ipate.release.results import Record
from ipate.report.facts import Audience
from ipate.runs.comparison import compared
from ipate.runs.folder import RunFolder
from ipate.runs.ledgers import FolderBook, ledger_path, standing_of, student_folder
from ipate.runs.provenance import keep_provenance
from ipate.runs.reporting import write_report
from ipate.runs.store import FolderStore, keep_settings
from ipate.runs.task import FileTask, check_models, options_of, prepare
from ipate.runs.withdrawal import settle


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """The results of a run, for the summary table and for JSON."""

    task: FileTask
    trained: Trained
    record: Record
    allocation: Allocation
    metrics: dict[str, Any]
    compare: dict[str, Any] | None
    ledger: Path
    report: Path
    student: Path
    notes: Path  # for the data owner alone; every run has them
    least: int  # people of a group that is counted in what leaves the data owner

    @property
    def settings(self) -> Settings:
        """The public settings."""
        return self.trained.settings

    @property
    def described(self) -> Mapping[str, Any]:
        """The parameters of the release, by name."""
        return self.trained.engine.describe(self.settings, self.allocation)

    @property
    def carried(self) -> bool:
        """Whether earlier runs on the same ledger have a cost."""
        return any(group.before > 0 for group in self.record.groups)

    @property
    def released_metrics(self) -> dict[str, Any]:
        """The metrics that follow from releases, budgets and public data alone: public if the guarantee permits it."""
        known = self.task.public_metrics
        return {name: value for name, value in self.metrics.items() if name in known}

    @property
    def private_metrics(self) -> dict[str, Any]:
        """The other metrics, which were found with true labels of people: never public."""
        known = self.task.public_metrics
        return {name: value for name, value in self.metrics.items() if name not in known}


def execute(folder: RunFolder, *, bar: Bar, task: FileTask | None = None) -> RunSummary:
    """Run every stage that is not complete yet; notes are logged under the name ipate.

    `bar` makes a progress bar from a title and a total, as a context manager; `task` is the input of a run if it was
    prepared already.
    """
    with folder.locked():
        folder.note_versions()
        check_models(folder.config)
        task = task or prepare(folder.config)
        store = FolderStore(folder, task)
        store.keep_facts()
        keep_provenance(folder, task)
        folder.note_privately(data=list(task.data.private_notes))  # whatever they are: every run has the file
        options = options_of(folder.config, n_classes=task.n_classes, image=task.image)
        trained = train(task, options, book=FolderBook(folder, task), store=store, bar=bar)
        record = trained.lesson.record
        audience: Audience = "public" if record.publishable else "private"
        if trained.lesson.failed:
            report = write_report(folder, audience=audience).html
            raise IpateError(
                "the private test was not passed: no label was released, and the budgets are spent, as they would be "
                f"after a pass; {report} states it. People's budgets pay for one test; do not run it again"
            )
        compare = compared(folder, task, options, trained, bar) if folder.config.compare else None
        report = write_report(folder, audience=audience).html
        metrics = folder.read(folder.private / "metrics.json") or {}
    return RunSummary(
        task=task,
        trained=trained,
        record=record,
        allocation=trained.allocation,
        metrics=metrics,
        compare=compare,
        ledger=ledger_path(folder),
        report=report,
        student=student_folder(folder, record),
        notes=folder.notes,
        least=folder.config.budgets.min_group_size,
    )


def begin(path: Path, config: RunConfig, task: FileTask) -> RunFolder:
    """Create the folder of a run with its settings; a run that is refused leaves nothing behind."""
    options = options_of(config, n_classes=task.n_classes, image=task.image)
    settings = options.request.settle(options.facts(task), partial(standing_of, task))
    if options.pupil is not None:
        options.pupil.check(settings)
    folder = RunFolder.create(path, config)
    keep_settings(folder, settings)
    return folder


def allocated(folder: RunFolder) -> Allocation:
    """Return the run's current allocation; make it if there is none yet."""
    path = folder.private / "allocation.npz"
    if path.is_file():
        return settle(folder, Allocation.load(path))
    task = prepare(folder.config)
    options, book = options_of(folder.config, n_classes=task.n_classes, image=task.image), FolderBook(folder, task)
    store = FolderStore(folder, task)
    settings = store.settings(lambda: options.request.settle(options.facts(task), book.standing))
    engine = options.request.named(settings.engine)
    return store.allocation(engine.allocate(settings.merged(task.people), settings, task.seed), task)
