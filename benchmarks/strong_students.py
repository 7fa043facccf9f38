"""The table of 1,000 strong teachers of `python -m paper beyond` alone, without the ensembles of its other tables.

    python benchmarks/strong_students.py --data-dir DIR --cache CACHE [--job-files JOBS] [--ensembles 3] [--votings 5]

With --job-files it writes what is missing as job files for `python -m paper.training`: first the ensembles,
and when their votes are in CACHE the students, the paper's and `semi`. Use another CACHE than for the whole page. Noise
is seeded, so nothing here is private.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from paper.grid import Options
from paper.jobs import PendingError
from paper.models import TrainedModels
from paper.strong import STRONG, strong_teachers


def main() -> None:
    """Print the tables and what they show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--job-files", type=Path)
    parser.add_argument("--setups", nargs="+", choices=STRONG, default=STRONG[:1])
    parser.add_argument("--ensembles", type=int, default=3)
    parser.add_argument("--votings", type=int, default=5)
    args = parser.parse_args()
    models = TrainedModels(
        cache=args.cache,
        data_dir=args.data_dir,
        jobs=args.job_files,
        log=lambda line: print(line, file=sys.stderr),
    )
    options = Options(ensembles=args.ensembles, votings=args.votings)
    try:
        tables, findings = strong_teachers(models, options, setups=args.setups)
    except PendingError as error:
        raise SystemExit(str(error)) from None
    print("\n\n".join([*(table.markdown() for table in tables), *findings]))


if __name__ == "__main__":
    main()
