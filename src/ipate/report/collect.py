"""From a run's folder to facts: what was noted when it ran, its record, and the ledger that it was charged to."""

from collections.abc import Mapping
from typing import Any

from ipate.allocation.allocation import Allocation
from ipate.errors import InputError
from ipate.report.assemble import Source, assemble
from ipate.report.facts import Audience, Comparison, Facts, Outcome, Owner, Scores
from ipate.report.statement import owed
from ipate.runs.folder import RunFolder
from ipate.runs.ledgers import openings_of, reading, reused_by
from ipate.runs.record import read_record
from ipate.runs.withdrawal import withdrawals


def collect(folder: RunFolder, audience: Audience) -> Facts:
    """Return what a report of this run may say to this audience; an older copy of its ledger is refused."""
    return assemble(_source(folder), audience, lambda outcome: _owner(folder, outcome))


def _source(folder: RunFolder) -> Source:
    config, record = folder.config, read_record(folder)
    data = folder.read(folder.path / "data.json")
    path = folder.private / "allocation.npz"
    if record is None or data is None or not path.is_file():
        raise InputError(
            f"{folder.path}: the run has not labelled yet; finish it with ipate run --resume {folder.path}"
        )
    allocation = Allocation.load(path)
    settings = folder.settings
    with reading(folder) as ledger:
        paid = ledger.stored().answers
        opening = openings_of(folder, ledger)
        reused = frozenset(int(query) for query in reused_by(folder, ledger) if query.isdecimal())  # not a test's
        private_history = bool(ledger.private_history)
        charged = None
        if allocation.withdrawn and not settings.meter.data_independent:  # their teachers' votes are erased
            charged = {account: ledger.spent(account) for account in ledger.terms}
    return Source(
        record=record,
        allocation=allocation,
        settings=settings,
        data_name=config.data.file.name if config.data.file is not None else str(data["name"]),
        data_source="" if config.data.file is not None else str(data["source"]),
        data_notes=tuple(data["notes"]),
        classes=tuple(data["classes"]),
        n_classes=len(data["classes"]),
        n_test=int(data["rows"]["test"]),
        teacher_model=config.teachers.model,
        student_model=config.student.model,
        noise_seed=config.seed,
        split_seed=config.split_seed,
        versions=folder.facts["versions"],
        later_versions=tuple(folder.facts.get("resumed_with", ())),
        levels=config.budgets.epsilon is None and config.data.epsilon is None,
        votes=folder.private / "votes" / "votes.npy",
        opening={account: spent for account, spent in opening.items() if spent.any()},
        reused=reused,
        charged=charged,
        private_history=private_history,
        paid=paid,
    )


def _scores(found: Mapping[str, Any]) -> Scores:
    return Scores(
        labels=found.get("labels"),
        queries=found.get("queries"),
        label_accuracy=found.get("voting_accuracy"),
        student_accuracy=found.get("student_accuracy"),
        by_class=found.get("by_class"),
        by_level=found.get("by_level"),
    )


def _owner(folder: RunFolder, outcome: Outcome) -> Owner:
    metrics = folder.read(folder.private / "metrics.json") or folder.read(folder.public / "metrics.json") or {}
    compare = folder.read(folder.private / "compare.json")
    teachers = (compare or {}).get("teachers") or {}
    return Owner(
        outcome=outcome,
        scores=_scores(metrics),
        standard_labels=metrics.get("labels_of_standard_pate"),
        teacher_accuracy=teachers.get("accuracy"),
        plurality_accuracy=teachers.get("plurality_accuracy"),
        comparison=None
        if compare is None
        else Comparison(
            note=str(compare.get("note", "")),
            standard=_scores(compare.get("standard") or {}),
            ceiling=_scores(compare.get("ceiling") or {}),
        ),
        owed=tuple(owed(entry) for entry in withdrawals(folder)),
    )
