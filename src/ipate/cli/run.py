"""`ipate run`: train a student from private data, in a folder that can be resumed."""

from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option, echo

from ipate.cli import options
from ipate.cli.options import (
    AcceptLargerBudgets,
    AsJson,
    CpuSeconds,
    FreshLedger,
    MaxGroups,
    MergeWithin,
    MinGroupSize,
    whole_number,
)
from ipate.cli.output import (
    BUDGET_COLUMNS,
    CLOSED,
    COST_COLUMNS,
    StoppedError,
    budget_cells,
    cell,
    cost_cells,
    labels_given,
    print_blocks,
    print_json,
    print_table,
    progress_bar,
)
from ipate.cli.plan import show_run
from ipate.errors import BudgetExceededError, InputError

if TYPE_CHECKING:
    from ipate.cli.output import Rows
    from ipate.config import RunConfig
    from ipate.runs.stages import RunSummary

EXAMPLE = (
    "Examples: ipate run --dataset synthetic --out first-run; ipate run hospital.toml --out march; ipate run --file "
    "patients.csv --public-file public.csv --label sick --classes no,yes --person patient --epsilon 2; "
    "ipate run --resume march. A TOML file has the sections data, budgets, teachers, labelling and student."
)


def command(
    config: Annotated[Path | None, Argument(help="A TOML file that describes the run.")] = None,
    dataset: Annotated[str | None, Option(help="A data set by name: synthetic or digits.")] = None,
    file: Annotated[Path | None, Option(help="A file of people instead of a data set: csv, parquet or npz.")] = None,
    public_file: Annotated[Path | None, Option(help="The public points: a file with the same columns.")] = None,
    test_file: Annotated[Path | None, Option(help="Labelled test rows, public: scores are published.")] = None,
    schema_file: Annotated[Path | None, Option(help="The schema.json of an earlier run.")] = None,
    label: Annotated[str | None, Option(help="The column of the class.")] = None,
    classes: Annotated[str | None, Option(help="The class set, which is public: A,B,C.")] = None,
    level: Annotated[str | None, Option(help="The column of consent levels; needs --policy.")] = None,
    policy: Annotated[Path | None, Option(help="TOML file with the ε of each consent level.")] = None,
    epsilon_column: Annotated[str | None, Option(help="The column of ε, instead of consent levels.")] = None,
    person: Annotated[str | None, Option(help="The column with the id of each row's person.")] = None,
    features: Annotated[str | None, Option(help="The feature columns: A,B,C; default: all others.")] = None,
    drop: Annotated[str | None, Option(help="Columns to leave out: A,B,C.")] = None,
    categories: Annotated[str | None, Option(help="Columns of categories, with the public file's values.")] = None,
    dates: Annotated[str | None, Option(help="Columns of ISO dates: A,B,C.")] = None,
    missing: Annotated[str | None, Option(help="Columns that get an indicator of missing values.")] = None,
    public_column: Annotated[
        str | None, Option(help="The column that says who agreed to be public or test data: public, test or empty.")
    ] = None,
    public_without_protection: Annotated[
        bool, Option("--public-without-protection", help="Let --public and --test take people of the file.")
    ] = False,
    allow_overlap: Annotated[
        bool, Option("--allow-overlap", help="For benchmarks: public rows may be private ones. No guarantee remains.")
    ] = False,
    out: Annotated[Path | None, Option(help="The run's folder; default: runs/DATE-TIME.")] = None,
    resume: Annotated[Path | None, Option(help="Continue the run in this folder.")] = None,
    voting: Annotated[
        str | None,
        Option(help="Who votes: teachers, ballots (one weighted vote per person for all labels at once), or auto."),
    ] = None,
    embedding: Annotated[
        str | None,
        Option(help="Cells of ballots: auto, given (columns are an embedding), or learnt (images, torch)."),
    ] = None,
    queries: Annotated[
        str | None,
        Option(help="Points that teachers are asked: random, typical, coverage; default: by the student."),
    ] = None,
    counts: Annotated[
        bool | None, Option("--counts/--no-counts", help="Release noisy counts with labels; default: if of use.")
    ] = None,
    variant: Annotated[str | None, Option(help="weighting, upsampling, vanishing or standard.")] = None,
    epsilon: Annotated[float | None, Option(help="One ε for everybody.")] = None,
    share: Annotated[
        list[str] | None,
        Option(help="Assign consent levels at random: LEVEL=SHARE, once per level, such as high=0.54."),
    ] = None,
    merge_within: MergeWithin = None,
    max_groups: MaxGroups = None,
    min_group_size: MinGroupSize = None,
    teachers: Annotated[str | None, Option(help="Number of teachers, or auto.")] = None,
    points_per_teacher: Annotated[
        int | None, Option(help="People per teacher, if the number of teachers is auto.")
    ] = None,
    teacher: Annotated[str | None, Option(help="logistic, forest, boosting, bayes or module:attribute.")] = None,
    student: Annotated[
        str | None, Option(help="The student's model, as for --teacher, graph, or semi (images); default: by the data.")
    ] = None,
    public: Annotated[float | None, Option(help="Number of public points, or their share if below 1.")] = None,
    test: Annotated[float | None, Option(help="Number of test points, or their share if below 1.")] = None,
    jobs: Annotated[int | None, Option(help="Worker processes; -1 for all cores.")] = None,
    backend: Annotated[str | None, Option(help="loky, threading, ray, dask or a joblib backend.")] = None,
    address: Annotated[str | None, Option(help="Address of a running Ray cluster: HOST:PORT.")] = None,
    cpu_seconds: CpuSeconds = None,
    compare: Annotated[
        bool,
        Option(help="Also train standard PATE and a model without privacy: no guarantee, for benchmark data only."),
    ] = False,
    benchmark: Annotated[
        bool, Option("--benchmark", help="State that nobody in the file is real; --compare needs it on files.")
    ] = False,
    ledger: Annotated[
        Path | None,
        Option(help="The ledger that is charged; default: beside the data file, shared by all runs about its people."),
    ] = None,
    fresh_ledger: FreshLedger = False,
    new_people: Annotated[bool, Option(help="Accept people who are mostly unknown to the ledger.")] = False,
    accept_larger_budgets: AcceptLargerBudgets = False,
    seed: Annotated[int | None, Option(help="Seed of the noise: the run is then NOT private.")] = None,
    split_seed: Annotated[int | None, Option(help="Seed of partition, allocation and training.")] = None,
    min_labels: Annotated[
        int | None, Option(min=0, help="Refuse a run that expects fewer labels; default: 3 per class.")
    ] = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Show what the run affords, as ipate plan does; train and write nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Allocate people, train teachers, label public points, train and evaluate a student; can be resumed."""
    from ipate.runs.folder import RunFolder, check_new
    from ipate.runs.stages import begin, execute
    from ipate.runs.task import check_models, prepare

    engine = {"n_jobs": jobs, "backend": backend, "address": address, "cpu_seconds": cpu_seconds}
    given = _stated(
        data=_stated(
            name=dataset,
            file=file,
            public_file=public_file,
            test_file=test_file,
            schema_file=schema_file,
            label=label,
            classes=options.names(classes),
            level=level,
            epsilon=epsilon_column,
            person=person,
            features=options.names(features),
            drop=options.names(drop),
            categories=options.names(categories),
            dates=options.names(dates),
            missing=options.names(missing),
            public_column=public_column,
            public=options.size(public),
            test=options.size(test),
            public_without_protection=public_without_protection or None,
            allow_overlap=allow_overlap or None,
        ),
        budgets=_stated(
            epsilon=epsilon,
            shares=options.shares(share),
            **options.policy_of(policy),
            merge_within=merge_within,
            max_groups=whole_number(max_groups),
            min_group_size=min_group_size,
        ),
        teachers=_stated(model=teacher, number=whole_number(teachers), points=points_per_teacher, **engine),
        labelling=_stated(
            voting=voting, embedding=embedding, queries=queries, counts=counts, variant=variant, min_labels=min_labels
        ),
        student=_stated(model=student),
        seed=seed,
        split_seed=split_seed,
        compare=compare or None,
        benchmark=benchmark or None,
        ledger=ledger,
        fresh_ledger=fresh_ledger or None,
        new_people=new_people or None,
        accept_larger_budgets=accept_larger_budgets or None,
    )
    if resume is None:
        wanted = _config(config, given)
        check_models(wanted)
        check_new(out)
        task = prepare(wanted)  # before the folder is created, so that bad input leaves nothing behind
        if dry_run:
            show_run(wanted, task, as_json=as_json)
            return
        chosen = out or Path("runs") / datetime.now().astimezone().strftime("%Y-%m-%d-%H%M%S")
        folder = begin(chosen, wanted, task)
    elif config is not None or out is not None or given or dry_run:
        raise InputError(f"resume is {resume}: it takes its settings from that folder; leave out all other options")
    else:
        folder, task = RunFolder.open(resume), None
    try:
        summary = execute(folder, task=task, bar=partial(progress_bar, quiet=as_json))
    except KeyboardInterrupt:
        raise StoppedError(f"continue with `ipate run --resume {folder.path}`") from None
    except (InputError, BudgetExceededError):
        if resume is None:
            folder.discard()
        if resume is None and out is None:
            with suppress(OSError):  # other runs are in it
                folder.path.parent.rmdir()
        raise
    if as_json:
        print_json(_payload(summary, folder.path))
    else:
        _show(summary, folder.path)


INPUTS = ("engine", "variant", "teachers", "sigma", "laplace_scale", "check_sigma", "threshold")
_PARTS = {  # keys that may name a part from outside
    "teachers": ("model",),
    "student": ("model",),
    "labelling": ("voting", "variant", "aggregator", "bound"),
}


def _stated(**options: Any) -> dict[str, Any]:
    """Return the options that are given; a section without any is left out."""
    return {name: value for name, value in options.items() if value is not None and value != {}}


def _config(path: Path | None, given: dict[str, Any]) -> "RunConfig":
    """Return the settings of the file, overridden by the given options."""
    import tomllib

    from ipate.config import RunConfig

    values: dict[str, Any] = {}
    if path is not None:
        RunConfig.from_file(path)  # reports errors in the terms of the file
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    elif given.get("data", {}).keys().isdisjoint({"name", "file"}):
        raise InputError("nothing to run: name a TOML file, a data set with --dataset, or a file with --file")
    for key, value in given.items():
        values[key] = {**values.get(key, {}), **value} if isinstance(value, dict) else value
    parts = [values.get(section, {}).get(key, "") for section, keys in _PARTS.items() for key in keys]
    if path is not None and any(":" in str(name) for name in parts):  # modules may lie beside the file
        values.setdefault("code", path.parent)
    paths = ("file", "public_file", "test_file", "schema_file")
    for within, name in (*((values["data"], key) for key in paths), (values, "ledger"), (values, "code")):
        if within.get(name) is not None:  # absolute, so that a run can be resumed from any directory
            within[name] = Path(within[name]).resolve()
    return RunConfig.from_mapping(values)


def _payload(summary: "RunSummary", path: Path) -> dict[str, Any]:
    from ipate.release.results import ballot_figures, blocks

    record, settings = summary.record, summary.settings
    inputs = {
        "data": summary.task.data.name,
        "people": summary.task.people.n_people,
        "unprotected": len(summary.task.unprotected),
        **{name: summary.described[name] for name in INPUTS},
        "reason": settings.reason,
        "bound": record.bound,
        "conversion": record.conversion,
    }
    released, scores = summary.released_metrics, summary.private_metrics
    found = blocks(
        record.guarantee,
        inputs=inputs,
        outcome={
            "stopped_by": record.stopped_by,
            "ledger_head": record.ledger_head,
            "ballots": ballot_figures(record.ballots, record.groups, least=summary.least),
            **released,
        },
        groups=record.groups,
        scores={**scores, "compare": summary.compare},
        least=summary.least,
    )
    files = {"run": str(path), "ledger": str(summary.ledger), "report": str(summary.report)}
    files |= {"student": str(summary.student), "notes": str(summary.notes)}
    return {**found, "files": files}


def _voters(summary: "RunSummary") -> str:
    number = summary.described["teachers"]
    return f"{number} teachers" if number else str(summary.trained.engine.title)


def _show(summary: "RunSummary", path: Path) -> None:
    from ipate.runs.comparison import NAMES

    record, compare = summary.record, summary.compare
    people, unprotected = summary.task.people.n_people, len(summary.task.unprotected)
    alone = f", {unprotected:,} more used without protection as pool or test data" if unprotected else ""
    promised = "protected" if record.publishable else "without a guarantee"
    right = summary.released_metrics.get("student_accuracy")
    notes = []
    if "labels_of_standard_pate" in summary.metrics:
        notes.append(f"Standard PATE would afford {summary.metrics['labels_of_standard_pate']} labels, by its account.")
    if right is not None:
        notes.append(f"The student is right on {right:.1%} of the public test data.")
    if summary.carried:
        notes.append(f"The cost includes what earlier runs spent (before); the ledger is {summary.ledger}.")
    print_blocks(
        record.guarantee,
        about=f"{summary.task.data.name}, {people:,} people {promised}{alone}; "
        f"{_voters(summary)}, {summary.allocation.variant}, {record.bound} bound",
        outcome=labels_given(record, least=summary.least),
        inputs=_inputs(summary),
        costs=_costs(summary),
        scores=_scores(summary),
        notes=notes,
    )
    if compare is not None:
        print_table(
            f"{CLOSED} (NO GUARANTEE): comparison",
            ["", "labels", "labels right", "student right", "worst class"],
            [_compared(name, title, summary, compare) for name, title in NAMES.items()],
            [f"{compare['statement']} It is {compare['note']}."],
        )
    if record.publishable:
        echo(f"The run is in {path}; publish from its folder 'public' only.")
    else:
        echo(f"The run is in {path}. There is no guarantee, so everything is in its folder 'private': publish nothing.")
    echo(f"The report is {summary.report}.")
    echo(f"Notes for the data owner alone are in {summary.notes}: read them before the student is used.")
    echo(f"The student is in {summary.student}; predict with: ipate predict {path} DATA.csv --out predictions.csv")


def _inputs(summary: "RunSummary") -> "tuple[list[str], Rows]":
    from ipate.people.budgets import shown_counts

    rows, taught = [], bool(summary.described["teachers"])
    sizes = shown_counts((group.group.people for group in summary.record.groups), least=summary.least)
    for group, people in zip(summary.record.groups, sizes, strict=True):
        teachers = [] if not taught else ["mixed" if group.teachers is None else str(group.teachers)]
        rows.append([group.id, str(people), *teachers, *budget_cells(group)])
    return ["group", "people", *(["teachers"] if taught else []), *BUDGET_COLUMNS], rows


def _costs(summary: "RunSummary") -> "tuple[list[str], Rows]":
    groups, before = summary.record.groups, ["before ε"] if summary.carried else []
    rows = [[*([f"{group.before:.4f}"] if before else []), *cost_cells(group)] for group in groups]
    return [*before, *COST_COLUMNS], rows


def _scores(summary: "RunSummary") -> "Rows":
    """Return the private scores as rows of a table; those of the comparison have their own."""
    names = {
        "voting_accuracy": "labels right",
        "student_accuracy": "student right",
        "balanced_accuracy": "student right, mean over classes",
        "majority_accuracy": "always the most frequent class right",
    }
    found = summary.private_metrics
    rows = [[title, cell(found[name], ".1%")] for name, title in names.items() if found.get(name) is not None]
    for kind in ("by_class", "by_level"):
        what = kind.removeprefix("by_")
        rows += [[f"student right, {what} {name}", f"{share:.1%}"] for name, share in (found.get(kind) or {}).items()]
    return rows


def _compared(name: str, title: str, summary: "RunSummary", compare: dict[str, Any]) -> list[str]:
    """Return one row of the comparison; the run itself is what the comparison leaves out."""
    if name not in compare:
        return [f"{title} (this run)", *_cells(summary.metrics)]
    return [title, *_cells(compare[name])]


def _cells(scores: dict[str, Any]) -> list[str]:
    by_class = scores.get("by_class") or {}
    worst = min(by_class, key=lambda name: by_class[name]) if by_class else None
    return [
        str(scores.get("labels", "—")),
        cell(scores.get("voting_accuracy"), ".1%"),
        cell(scores.get("student_accuracy"), ".1%"),
        "—" if worst is None else f"{worst} {by_class[worst]:.1%}",
    ]
