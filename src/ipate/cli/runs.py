"""`ipate runs`: list the runs in a folder and their progress."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, echo

from ipate.cli.options import AsJson
from ipate.cli.output import print_json, print_table

if TYPE_CHECKING:
    from ipate.runs.listing import RunState

EXAMPLE = (
    "Examples: ipate runs; ipate runs studies --json. Continue an interrupted run with "
    "ipate run --resume FOLDER. Numbers of labels are private unless the guarantee is releasable."
)


def command(
    folder: Annotated[Path, Argument(help="The folder of the runs.")] = Path("runs"), as_json: AsJson = False
) -> None:
    """List runs with their state: complete, interrupted, running, or broken with the reason."""
    from ipate.runs.listing import list_runs

    found = list_runs(folder)
    if as_json:
        print_json({"folder": str(folder), "runs": [_payload(run) for run in found]})
        return
    if not found:
        echo(f"There are no runs in {folder}.")
        return
    print_table(
        f"{len(found)} {'run' if len(found) == 1 else 'runs'} in {folder}",
        ["run", "state", "begun (UTC)", "data", "engine", "done", "labels", "guarantee"],
        [_row(run, folder) for run in found],
        [f"{_name(run, folder)}: {run.why}" for run in found if run.why],
    )


def _payload(run: "RunState") -> dict[str, Any]:
    shown = {name: value for name, value in asdict(run).items() if name != "path"}
    voted = None if run.teachers is None else {"voted": run.teachers[0], "all": run.teachers[1]}
    return {"run": str(run.path), **shown, "teachers": voted}


def _name(run: "RunState", folder: Path) -> str:
    return run.path.name if run.path != folder else str(folder)


def _row(run: "RunState", folder: Path) -> list[str]:
    last = run.done[-1] if run.done else "—"
    if run.teachers is not None and run.teachers[0] < run.teachers[1]:
        last = f"{run.teachers[0]} of {run.teachers[1]} teachers"
    return [
        _name(run, folder),
        run.state,
        run.begun[:16].replace("T", " ") or "—",
        run.data or "—",
        ", ".join(filter(None, (run.engine, run.variant))) or "—",
        last,
        "—" if run.labels is None else f"{run.labels:,}{' (private)' if run.labels_private else ''}",
        run.guarantee or "—",
    ]
