"""Reproduce the paper's tables and figures, with the paper's values beside ours.

    python -m paper errata --data-dir DIR                  # one page, 3 ensembles × 5 votings
    python -m paper table1 --only mnist --device cuda --data-dir DIR
    python -m paper table1 --job-files JOBS                # train on another machine: docs/reproduce.md
    python -m paper run adult.toml                         # `ipate run`, which also knows the paper's data sets

Teachers are trained once, and their votes are kept in the cache. Runs are seeded: they are not for real people's data.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from ipate.errors import InputError, IpateError, refuse_name
from ipate.files import json_text
from paper import DATA, EXPERIMENTS, OWN_RUNS, run_experiment
from paper.experiments import TABLE1
from paper.fetch import cache_folder
from paper.grid import Options
from paper.jobs import PendingError
from paper.models import TrainedModels
from paper.times import announce, page_seconds

_LOG = logging.getLogger("paper")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0, 1 where something failed, 2 where the input cannot be used."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["run"]:
        import paper.data  # noqa: F401  (adds the data sets)
        from ipate.cli.app import main as ipate

        ipate(given)
    args = _parser().parse_args(given)
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("paper: %(message)s"))
    _LOG.addHandler(handler)
    _LOG.setLevel(logging.INFO)
    try:
        _reproduce(args)
    except (IpateError, OSError) as error:
        sys.stderr.write(f"paper: {error}\n")
        return 2 if isinstance(error, InputError) else 1
    except KeyboardInterrupt:
        sys.stderr.write("paper: interrupted; run the same command again to continue\n")
        return 130
    finally:
        _LOG.removeHandler(handler)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m paper", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("name", help=f"{', '.join(EXPERIMENTS)}, or all")
    add("--ensembles", type=int, default=3, help="ensembles per setting (the paper: 10); default: 3")
    add("--votings", type=int, default=5, help="labelling runs per ensemble (the paper: 5); default: 5")
    add("--quick", action="store_true", help="one ensemble and one labelling run")
    add(
        "--only",
        nargs="+",
        default=(),
        metavar="DATA",
        help="some data sets of table1 (mnist, svhn) or beyond (these, adult)",
    )
    add("--row", help=f"one row of table1: {' or '.join(TABLE1)}".replace("%", "%%"))
    add("--device", default="auto", help="the device for training: cpu, cuda or auto")
    add("--data-dir", type=Path, help="the folder with the official files of the data sets")
    add("--cache", type=Path, help="the folder of stored votes; default: 'paper' in the data cache")
    add("--job-files", type=Path, help="do not train: write missing trainings as job files for another machine")
    add("--out", type=Path, default=Path("results"), help="the folder for NAME.json, NAME.md and figures")
    add("--json", action="store_true", help="print JSON instead of pages")
    return parser


def _reproduce(args: argparse.Namespace) -> None:
    name, options = args.name, _options(args)
    models = TrainedModels(
        cache=args.cache or cache_folder() / "paper",
        data_dir=args.data_dir,
        device=args.device,
        jobs=args.job_files,
        log=_LOG.info,
    )
    found, pending = {}, []
    for wanted in EXPERIMENTS if name == "all" else (name,):
        seconds = page_seconds(wanted, ensembles=options.ensembles, votings=options.votings)
        announce(_LOG.info, f"{wanted}, when all votes are there", seconds)
        try:
            page = run_experiment(wanted, models, options)
        except PendingError as error:
            pending += [job for job in error.jobs if job not in pending]
            continue
        typed = _typed(wanted, options)
        written = page.write(args.out, command=typed)
        found[wanted] = page.json(typed)
        _LOG.info("%s: %s", wanted, ", ".join(str(path) for path in written))
        if not args.json:
            sys.stdout.write(page.markdown(typed) + "\n")
    if args.json:
        sys.stdout.write(json_text({"results": found, "pending_jobs": pending}))
    elif pending:
        folder = args.job_files
        sys.stdout.write(
            f"{len(pending)} jobs are in {folder}. On a machine with a GPU: python -m paper.training {folder} "
            "--data-dir DIR --device cuda --out CACHE; then run this command again with --cache CACHE. Those of "
            f"compare: python -m paper.compare.runs --kept {folder}/compare-runs.json --data-dir DIR --place gpu "
            "--workers 7; then put that file into CACHE.\n"
        )


def _options(args: argparse.Namespace) -> Options:
    """Check what was typed."""
    name = args.name
    if name != "all" and name not in EXPERIMENTS:
        refuse_name("experiment", name, [*EXPERIMENTS, "all"])
    for option in ("ensembles", "votings"):
        if (value := getattr(args, option)) < 1:
            raise InputError(f"--{option} is {value}: it must be at least 1")
    if args.device not in ("auto", "cpu") and not args.device.startswith("cuda"):
        raise InputError(f"--device is {args.device!r}: it must be cpu, cuda or auto")
    if args.only and name not in DATA:
        raise InputError(f"--only is for {', '.join(DATA)}: {name} needs all of its data sets")
    for data in args.only:
        if data not in DATA[name]:
            refuse_name("--only", data, DATA[name])
    if args.row is not None and name != "table1":
        raise InputError("--row is for table1: leave it out")
    if args.row not in (None, *TABLE1):
        refuse_name("--row", args.row, list(TABLE1))
    repeated = (1, 1) if args.quick else (args.ensembles, args.votings)
    return Options(ensembles=repeated[0], votings=repeated[1], quick=args.quick, only=tuple(args.only), row=args.row)


def _typed(name: str, options: Options) -> str:
    """Return the command that makes a page."""
    parts = [f"python -m paper {name}"]
    if options.quick:
        parts.append("--quick")
    elif name not in OWN_RUNS:
        parts.append(f"--ensembles {options.ensembles} --votings {options.votings}")
    parts += [f"--only {' '.join(options.only)}"] if options.only else []
    parts += [f"--row {options.row}"] if options.row else []
    return " ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
