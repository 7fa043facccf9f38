"""`ipate run`: train a student from private data, in a folder that can be resumed."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ipate.runs.config import RunConfig
    from ipate.runs.stages import RunSummary


EXAMPLE = (
    "Examples: ipate run --dataset synthetic --out first-run; ipate run hospital.toml --out march; "
    "ipate run --resume march. A TOML file has the sections data, budgets, teachers, labelling and student."
)


def command(
    config: Annotated[Path | None, typer.Argument(help="A TOML file that describes the run.")] = None,
    dataset: Annotated[str | None, typer.Option(help="synthetic, digits, mnist, fashion-mnist, svhn or adult.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="The folder with the data set's files.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; default: runs/DATE-TIME.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the run in this folder.")] = None,
    variant: Annotated[str | None, typer.Option(help="weighting, upsampling, vanishing or standard.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="One ε for everybody.")] = None,
    share: Annotated[
        list[str] | None,
        typer.Option(help="Assign consent levels at random: LEVEL=SHARE, once per level, such as high=0.54."),
    ] = None,
    teachers: Annotated[str | None, typer.Option(help="Number of teachers, or auto.")] = None,
    points_per_teacher: Annotated[
        int | None, typer.Option(help="People per teacher, if the number of teachers is auto.")
    ] = None,
    teacher: Annotated[str | None, typer.Option(help="logistic, forest, boosting, bayes or module:attribute.")] = None,
    student: Annotated[str | None, typer.Option(help="The student's model, as for --teacher.")] = None,
    public: Annotated[float | None, typer.Option(help="Number of public points, or their share if below 1.")] = None,
    test: Annotated[float | None, typer.Option(help="Number of test points, or their share if below 1.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Worker processes; -1 for all cores.")] = None,
    backend: Annotated[str | None, typer.Option(help="loky, threading, ray, dask or a joblib backend.")] = None,
    address: Annotated[str | None, typer.Option(help="Address of a running Ray cluster: HOST:PORT.")] = None,
    compare: Annotated[
        bool,
        typer.Option(help="Also train standard PATE and a model without privacy: private, for benchmark data only."),
    ] = False,
    ledger: Annotated[
        Path | None,
        typer.Option(help="A ledger shared by several runs, whose costs add up per person; default: the run's own."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the noise: the run is then NOT private.")] = None,
    split_seed: Annotated[int | None, typer.Option(help="Seed of partition, allocation and training.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
) -> None:
    """Allocate people, train teachers, label public points, train and evaluate a student; can be resumed."""
    from ipate.cli.options import whole_number
    from ipate.cli.output import print_json, progress_bar
    from ipate.runs.folder import RunFolder
    from ipate.runs.stages import execute
    from ipate.runs.task import check_models

    if resume is not None:
        beside = (config, dataset, data_dir, out, variant, epsilon, share, teachers, points_per_teacher, teacher)
        more = (student, public, test, jobs, backend, address, ledger, seed, split_seed)
        if any(value is not None for value in (*beside, *more)) or compare:
            from ipate.errors import InputError

            raise InputError(f"resume is {resume}: it takes its settings from that folder; leave out all other options")
        folder = RunFolder.open(resume)
    else:
        given: dict[str, Any] = {
            "data": {"name": dataset, "data_dir": data_dir, "public": _size(public), "test": _size(test)},
            "budgets": {"epsilon": epsilon, "shares": _shares(share)},
            "teachers": {
                "model": teacher,
                "number": whole_number(teachers),
                "points": points_per_teacher,
                "n_jobs": jobs,
            }
            | {"backend": backend, "address": address},
            "labelling": {"variant": variant},
            "student": {"model": student},
            "seed": seed,
            "split_seed": split_seed,
            "compare": compare or None,
            "ledger": ledger,
        }
        wanted = _config(config, given)
        check_models(wanted)
        folder = RunFolder.create(out or _fresh_name(), wanted)
    summary = execute(
        folder,
        bar=lambda title, total: progress_bar(title, total, quiet=as_json),
    )
    if as_json:
        print_json(_payload(summary, folder.path))
    else:
        _show(summary, folder.path)


def _config(path: Path | None, given: dict[str, Any]) -> "RunConfig":
    """Return the settings of the file, overridden by the given options."""
    import tomllib

    from ipate.errors import InputError
    from ipate.runs.config import RunConfig

    values: dict[str, Any] = {}
    if path is not None:
        RunConfig.from_file(path)  # reports errors in the terms of the file
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    elif given["data"]["name"] is None:
        raise InputError("nothing to run: name a TOML file, or a data set with --dataset")
    for key, value in given.items():
        if isinstance(value, dict):
            wanted = {name: entry for name, entry in value.items() if entry is not None}
            if wanted:
                values[key] = {**values.get(key, {}), **wanted}
        elif value is not None:
            values[key] = value
    for name in ("file", "data_dir"):  # absolute, so that a run can be resumed from any directory
        if values.get("data", {}).get(name) is not None:
            values["data"] = {**values["data"], name: Path(values["data"][name]).resolve()}
    if values.get("ledger") is not None:
        values["ledger"] = Path(values["ledger"]).resolve()
    return RunConfig.from_mapping(values)


def _size(value: float | None) -> float | int | None:
    return int(value) if value is not None and 1 <= value < math.inf else value


def _shares(values: list[str] | None) -> dict[str, float] | None:
    from ipate.errors import InputError

    if not values:
        return None
    shares = {}
    for value in values:
        name, _, number = value.partition("=")
        try:
            shares[name] = float(number)
        except ValueError:
            raise InputError(f"share is {value!r}: write LEVEL=SHARE, such as high=0.54") from None
    return shares


def _fresh_name() -> Path:
    from datetime import datetime

    return Path("runs") / datetime.now().astimezone().strftime("%Y-%m-%d-%H%M%S")


def _payload(summary: "RunSummary", path: Path) -> dict[str, Any]:
    record, settings = summary.record, summary.settings
    return {
        "run": str(path),
        "data": summary.task.data.name,
        "people": summary.task.people.n_people,
        "variant": summary.allocation.variant,
        "teachers": summary.allocation.n_teachers,
        "sigma": settings.sigma * summary.allocation.scale,
        "check_sigma": None if settings.check_sigma is None else settings.check_sigma * summary.allocation.scale,
        "threshold": None if settings.threshold is None else settings.threshold * summary.allocation.scale,
        "reason": settings.reason,
        "bound": record.bound,
        "conversion": record.conversion,
        "guarantee": record.kind,
        "statement": record.statement,
        "seeded": record.seeded,
        "stopped_by": record.stopped_by,
        "ledger": str(summary.ledger),
        "report": str(summary.report),
        "ledger_head": record.ledger_head,
        **summary.metrics,
        "groups": [group.as_json() for group in record.groups],
        "compare": summary.compare,
    }


def _show(summary: "RunSummary", path: Path) -> None:
    from ipate.allocation import find_variant
    from ipate.cli.output import cell, print_table

    payload = _payload(summary, path)
    by_level = payload.get("by_level", {})
    carried = any(group["spent_before"] for group in payload["groups"])
    print_table(
        f"{payload['data']}: {payload['people']} people, {payload['teachers']} teachers, {payload['variant']}; "
        f"{payload['bound']} bound, {summary.record.headline}",
        [
            *("group", "people", "teachers", "moves at most", "budget ε"),
            *(["before ε"] if carried else []),
            *("cost ε", "δ", "student right"),
        ],
        [
            [
                group["group"],
                str(group["people"]),
                "mixed" if group["teachers"] is None else str(group["teachers"]),
                f"{group['sensitivity']:.3g}",
                f"{group['budget']:.4g}",
                *([f"{group['spent_before']:.4f}"] if carried else []),
                f"{group['epsilon']:.4f}",
                f"{group['delta']:g}",
                cell(by_level.get(group["group"]), ".1%"),
            ]
            for group in payload["groups"]
        ],
        [],
    )
    variant = payload["variant"]
    rows = [["individualized" if find_variant(variant).individual else variant, *_outcome(payload)]]
    if payload["compare"] is not None:
        rows.append(["standard PATE, trained beside it", *_outcome(payload["compare"]["standard"])])
        rows.append(["ceiling without privacy", "—", "—", *_outcome(payload["compare"]["ceiling"])[2:]])
    else:
        rows.append(["standard PATE, by its account", str(payload["labels_of_standard_pate"]), "—", "—", "—"])
    print_table("", ["", "labels", "labels right", "student right", "worst class"], rows, [])
    private = "PRIVATE. " if payload["guarantee"] == "private" else ""
    where = f"The run is in {path}; publish from its folder 'public' only."
    if not summary.record.publishable:
        where = (
            f"The run is in {path}. There is no guarantee, so everything is in its folder 'private': publish nothing."
        )
    notes = [private + payload["statement"], where, f"The report is {summary.report}."]
    if carried:
        notes.append(f"The cost includes what earlier runs spent (before); the ledger is {payload['ledger']}.")
    if payload["compare"] is not None:
        notes.insert(1, f"The comparison is private, {payload['compare']['note']}.")
    for note in notes:
        typer.echo(note)


def _outcome(scores: dict[str, Any]) -> list[str]:
    from ipate.cli.output import cell

    by_class = scores.get("by_class") or {}
    worst = min(by_class, key=lambda name: by_class[name]) if by_class else None
    return [
        str(scores.get("labels", "—")),
        cell(scores.get("voting_accuracy"), ".1%"),
        cell(scores.get("student_accuracy"), ".1%"),
        "—" if worst is None else f"{worst} {by_class[worst]:.1%}",
    ]
