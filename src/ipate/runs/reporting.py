"""The report of a run, written from its folder and its ledger."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ipate.allocation.allocation import Allocation
from ipate.config import check_report
from ipate.errors import InputError
from ipate.files import json_text, write_text
from ipate.release.history import Extract
from ipate.release.results import Record
from ipate.report.assemble import Report, Source, assemble, check_target, write_facts
from ipate.report.exports import events_payload, group_events, why_no_events
from ipate.report.facts import Audience, Comparison, Facts, Identity, Outcome, Owner, Scores
from ipate.report.registry import as_yaml, registry_record
from ipate.report.registry import model_card as card_of
from ipate.report.statement import owed, stayed_out
from ipate.runs.comparison import OTHERS
from ipate.runs.folder import RunFolder, refuse_public
from ipate.runs.ledgers import read_record, reading, student_folder
from ipate.runs.provenance import consent_facts, identity_of, private_fingerprint
from ipate.runs.task import engine_of
from ipate.runs.withdrawal import left_before, withdrawals


def write_report(
    run_folder: str | Path | RunFolder, *, audience: Audience = "public", out: str | Path | None = None
) -> Report:
    """Write `report.html` and `report.json` of a run.

    Parameters
    ----------
    run_folder : path or RunFolder
        A run that has labelled its pool.
    audience : {"public", "private"}
        A public report contains only what may be published; a private one is for the data owner and is marked so on
        every page.
    out : path, optional
        The HTML file; the JSON file is written beside it. By default both go to the folder `public` or `private` of the
        run.

    Returns
    -------
    Report
        The two files and the facts that they were written from.
    """
    folder = run_folder if isinstance(run_folder, RunFolder) else RunFolder.open(Path(run_folder))
    html = _target(folder, audience, out)
    facts = assemble(_source(folder, audience), audience, lambda outcome: _owner(folder, outcome))
    return write_facts(facts, html)


def write_exports(
    run_folder: str | Path | RunFolder,
    facts: Facts,
    *,
    registry: Path | None = None,
    model_card: Path | None = None,
    events: Path | None = None,
) -> tuple[Path, ...]:
    """Write what others' formats want of a report, all from public facts, and return the files.

    `registry` is a record of the Differential Privacy Deployments Registry, `model_card` a card with front matter, and
    `events` the composition as events of dp_accounting. Nothing is written if one of them cannot be.
    """
    folder = run_folder if isinstance(run_folder, RunFolder) else RunFolder.open(Path(run_folder))
    texts: dict[Path, str] = {}
    if registry is not None:
        texts[registry] = as_yaml(registry_record(facts))
    if model_card is not None:
        student = folder.read(folder.path / facts.student_folder / "student.json") if facts.student_folder else None
        if student is None and facts.publishable:
            raise InputError(f"{folder.path}: the run has no student, so there is no model card")
        texts[model_card] = card_of(facts, student or {})
    if events is not None:
        if not group_events(facts):
            raise InputError(f"{folder.path}: the run has no events for dp_accounting, because {why_no_events(facts)}")
        texts[events] = json_text(events_payload(facts))
    for path in texts:
        if not path.absolute().parent.is_dir():
            raise InputError(f"{path.parent}: no such folder")
    for path, text in texts.items():
        write_text(path, text)
    return tuple(texts)


def report_fit(
    source: Source, path: str | Path, *, private: bool, label_accuracy: float | None, **responsible: str | None
) -> Path:
    """Write the report of a fit without a folder, and return the path of the HTML file.

    Parameters
    ----------
    source : Source
        The record and the allocation of the fit, what its engine states (`Engine.report`), and facts about its data.
    path : path
        The HTML file.
    private : bool
        Whether the report is for the data owner.
    label_accuracy : float or None
        The share of labels that are right, where true labels are known; it is private.
    **responsible
        `controller` and `contact`, as in `[report]` of a run's configuration.
    """
    about, html, record = check_report(**responsible), check_target(path), source.record
    if source.extract.answers and source.described.manner.by_query:
        record.check_answers(source.extract.answers)
    source = replace(source, identity=Identity(controller=about.controller, contact=about.contact))

    def owner(outcome: Outcome) -> Owner:
        scores = Scores(labels=record.n_labels, queries=record.n_queries, label_accuracy=label_accuracy)
        return Owner(outcome=outcome, scores=scores)

    return write_facts(assemble(source, "private" if private else "public", owner), html).html


def _target(folder: RunFolder, audience: Audience, out: str | Path | None) -> Path:
    if out is None:
        return (folder.private if audience == "private" else folder.public) / "report.html"
    path = check_target(out)
    if audience == "private":
        refuse_public(path, "a private report", near=folder.path)
    return path


def _source(folder: RunFolder, audience: Audience) -> Source:
    """Return the input of a report; a rolled-back ledger is refused."""
    config, record, data = folder.config, None, folder.read(folder.path / "data.json")
    if (folder.private / "labelling.json").is_file():
        with reading(folder) as ledger:
            extract = Extract.of(ledger)
        record = read_record(folder)
    if record is None or data is None:
        raise InputError(
            f"{folder.path}: the run has not labelled yet; finish it with ipate run --resume {folder.path}"
        )
    allocation = Allocation.load(folder.private / "allocation.npz")
    described = engine_of(folder).report(folder.settings, allocation)
    if described.manner.by_query and (audience == "private" or record.publishable):
        record.check_answers(extract.answers)
    return Source(
        record=record,
        allocation=allocation,
        described=described,
        data_name=config.data.file.name if config.data.file is not None else str(data["name"]),
        data_source="" if config.data.file is not None else str(data["source"]),
        data_notes=tuple(data["notes"]),
        classes=tuple(data["classes"]),
        n_test=int(data["rows"]["test"]),
        overlap=bool(data["overlap"]),
        unprotected=int(data["unprotected"]),
        min_group_size=config.budgets.min_group_size,
        public_scores=_public_scores(folder, data),
        student_folder=_student(folder, record),
        student_model=config.student.model,
        noise_seed=config.seed,
        split_seed=config.split_seed,
        versions=folder.facts["versions"],
        later_versions=tuple(folder.facts.get("resumed_with", ())),
        levels=config.budgets.epsilon is None and config.data.epsilon is None,
        by_row=not data.get("person_ids", config.data.person is not None),
        identity=identity_of(folder, data),
        extract=extract,
        withdrawn=len(withdrawals(folder)),
    )


def _scores(found: Mapping[str, Any]) -> Scores:
    same = ("labels", "queries", "student_accuracy", "balanced_accuracy", "majority_accuracy", "by_class", "by_level")
    return Scores(label_accuracy=found.get("voting_accuracy"), **{name: found.get(name) for name in same})


def _student(folder: RunFolder, record: Record) -> str:
    """Return the path of the deployed student below the run's folder, or nothing if there is none."""
    path = student_folder(folder, record)
    return path.relative_to(folder.path).as_posix() if (path / "student.json").is_file() else ""


def _public_scores(folder: RunFolder, data: Mapping[str, Any]) -> Scores | None:
    """Return the scores that were found with public labels alone."""
    known = set(data["public_metrics"]) - {"labels", "queries"}
    found = folder.read(folder.private / "metrics.json") or {}
    scores = _scores({name: value for name, value in found.items() if name in known})
    return None if scores == Scores() else scores


def _owner(folder: RunFolder, outcome: Outcome) -> Owner:
    metrics = folder.read(folder.private / "metrics.json") or folder.read(folder.public / "metrics.json") or {}
    compare = folder.read(folder.private / "compare.json") or {}
    teachers, comparison = compare.get("teachers") or {}, None
    if compare:
        comparison = Comparison(
            note=str(compare.get("note", "")),
            standard=_scores(compare.get("standard") or {}),
            ceiling=_scores(compare.get("ceiling") or {}),
            others={title: _scores(compare[name]) for name, title in OTHERS.items() if name in compare},
        )
    return Owner(
        outcome=outcome,
        scores=_scores(metrics),
        standard_labels=metrics.get("labels_of_standard_pate"),
        teacher_accuracy=teachers.get("accuracy"),
        plurality_accuracy=teachers.get("plurality_accuracy"),
        comparison=comparison,
        owed=(*map(owed, withdrawals(folder)), *(stayed_out(*entry) for entry in left_before(folder).items())),
        consent=consent_facts(folder),
        fingerprint=private_fingerprint(folder),
    )
