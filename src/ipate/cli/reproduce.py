"""`ipate reproduce`: reproduce the paper's tables and figures, with the paper's values beside ours."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option, echo

from ipate.cli.options import AsJson
from ipate.cli.output import print_json, progress_bar

EXAMPLE = (
    "Examples: ipate reproduce adult-labels --data-dir DIR; ipate reproduce table1 --device cuda --data-dir DIR. "
    "Without a GPU here: ipate reproduce table1 --job-files JOBS, then on the GPU machine "
    "python -m ipate.reproduce.training JOBS --data-dir DIR --device cuda --out CACHE, then the first command again "
    "with --cache CACHE."
)


def command(
    name: Annotated[str, Argument(help="A table or figure, or 'all'; an unknown name lists them.")],
    ensembles: Annotated[int, Option(help="Ensembles per setting (the paper: 10).")] = 3,
    votings: Annotated[int, Option(help="Labelling runs per ensemble (the paper: 5).")] = 5,
    quick: Annotated[bool, Option("--quick", help="Use one ensemble and one labelling run.")] = False,
    device: Annotated[str, Option(help="The device for training: cpu, cuda or auto.")] = "auto",
    data_dir: Annotated[Path | None, Option(help="The folder with the official files of the data sets.")] = None,
    cache: Annotated[
        Path | None, Option(help="The folder of stored votes; default: 'reproduce' in the data cache.")
    ] = None,
    job_files: Annotated[
        Path | None, Option(help="Do not train: write the missing trainings as job files for another machine.")
    ] = None,
    out: Annotated[Path, Option(help="The folder for NAME.json, NAME.md and figures.")] = Path("results"),
    as_json: AsJson = False,
) -> None:
    """Reproduce a table or figure of the paper; teachers are trained once. Seeded: not for real people's data."""
    import logging

    from ipate.data.fetch import cache_folder
    from ipate.errors import InputError, PendingError, refuse_name
    from ipate.reproduce import EXPERIMENTS, OWN_RUNS, run_experiment
    from ipate.reproduce.grid import Options
    from ipate.reproduce.models import TrainedModels

    if name != "all" and name not in EXPERIMENTS:
        refuse_name("experiment", name, [*EXPERIMENTS, "all"])
    for option, value in (("ensembles", ensembles), ("votings", votings)):
        if value < 1:
            raise InputError(f"--{option} is {value}: it must be at least 1")
    if device not in ("auto", "cpu") and not device.startswith("cuda"):
        raise InputError(f"--device is {device!r}: it must be cpu, cuda or auto")
    options = Options(ensembles=1, votings=1, quick=True) if quick else Options(ensembles=ensembles, votings=votings)
    kept, log = cache or cache_folder() / "reproduce", logging.getLogger("ipate").info
    models = TrainedModels(
        cache=kept, data_dir=data_dir, device=device, jobs=job_files, log=log, progress_bar=progress_bar
    )
    found, pending = {}, []
    for wanted in EXPERIMENTS if name == "all" else (name,):
        try:
            page = run_experiment(wanted, models, options)
        except PendingError as error:
            pending += [name for name in error.jobs if name not in pending]
            continue
        stated = "" if wanted in OWN_RUNS else f" --ensembles {ensembles} --votings {votings}"
        typed = f"ipate reproduce {wanted}" + (" --quick" if quick else stated)
        written = page.write(out, command=typed)
        found[wanted] = page.json(typed)
        log(f"{wanted}: {', '.join(str(path) for path in written)}")
        if not as_json:
            echo(page.markdown(typed))
    if as_json:
        print_json({"results": found, "pending_jobs": pending})
    elif pending:
        echo(
            f"{len(pending)} jobs are in {job_files}. On a machine with a GPU: python -m ipate.reproduce.training "
            f"{job_files} --data-dir DIR --device cuda --out CACHE; then run this command again with --cache CACHE. "
            f"Those of compare: python -m ipate.reproduce.compare.runs --kept {job_files}/compare-runs.json --data-dir "
            f"DIR --place gpu --workers 7; then put that file into CACHE."
        )
