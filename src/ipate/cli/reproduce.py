"""`ipate reproduce`: the paper's tables and figures, ours beside theirs."""

import sys
from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = (
    "Examples: ipate reproduce adult-labels --data-dir DIR; ipate reproduce table1 --device cuda --data-dir DIR. "
    "Without a GPU here: ipate reproduce table1 --jobs JOBS, then on the GPU machine "
    "python -m ipate.reproduce.training JOBS --data-dir DIR --device cuda --out CACHE, then the first command again "
    "with --cache CACHE."
)


def command(
    name: Annotated[str, typer.Argument(help="A table or figure, or 'all'; an unknown name lists them.")],
    ensembles: Annotated[int, typer.Option(help="Ensembles per setting (the paper: 10).")] = 3,
    votings: Annotated[int, typer.Option(help="Voting processes per ensemble (the paper: 5).")] = 5,
    quick: Annotated[bool, typer.Option("--quick", help="One ensemble, one voting.")] = False,
    device: Annotated[str, typer.Option(help="Where torch trains: cpu, cuda or auto.")] = "auto",
    data_dir: Annotated[Path | None, typer.Option(help="Where the data sets' official files are.")] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Where votes are kept; the data cache's folder 'reproduce' unless said.")
    ] = None,
    jobs: Annotated[
        Path | None, typer.Option(help="Train nothing: write what is missing as job files for another machine.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where results go: NAME.json, NAME.md and figures.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="The result on stdout as JSON, nothing else.")] = False,
) -> None:
    """Reproduce a table or figure of the paper; votes are trained once and kept. Seeded: not for real people."""
    from ipate.cli.output import print_json, progress_bar
    from ipate.data.fetch import cache_folder
    from ipate.errors import InputError, PendingError, refuse_name
    from ipate.reproduce import EXPERIMENTS, run_experiment
    from ipate.reproduce.grid import Options
    from ipate.reproduce.models import TrainedModels

    if name != "all" and name not in EXPERIMENTS:
        refuse_name("experiment", name, [*EXPERIMENTS, "all"])
    for option, value in (("ensembles", ensembles), ("votings", votings)):
        if value < 1:
            raise InputError(f"--{option} is {value}: it must be at least 1")
    if device not in ("auto", "cpu") and not device.startswith("cuda"):
        raise InputError(f"--device is {device!r}: it must be cpu, cuda or auto")
    options = Options(ensembles=1, votings=1) if quick else Options(ensembles=ensembles, votings=votings)
    models = TrainedModels(
        cache=cache or cache_folder() / "reproduce",
        data_dir=data_dir,
        device=device,
        jobs=jobs,
        log=_say,
        progress_bar=progress_bar,
    )
    found, pending = {}, []
    for wanted in EXPERIMENTS if name == "all" else (name,):
        try:
            page = run_experiment(wanted, models, options)
        except PendingError as error:
            pending += [name for name in error.jobs if name not in pending]
            continue
        typed = f"ipate reproduce {wanted}" + (" --quick" if quick else f" --ensembles {ensembles} --votings {votings}")
        written = page.write(out, command=typed)
        found[wanted] = page.json(typed)
        _say(f"{wanted}: {', '.join(str(path) for path in written)}")
        if not as_json:
            typer.echo(page.markdown(typed))
    if as_json:
        print_json({"results": found, "pending_jobs": pending})
    elif pending:
        typer.echo(
            f"{len(pending)} jobs are in {jobs}. On a machine with a GPU: python -m ipate.reproduce.training {jobs} "
            f"--data-dir DIR --device cuda --out CACHE; then call this again with --cache CACHE."
        )


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
