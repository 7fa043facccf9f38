"""How fast a million queries are labelled with gdp accounting, and how much memory that takes.

Makes votes of imaginary teachers on disk (uint8, stored plainly so that they are mapped), labels all
of them with budgets large enough, and prints time and peak memory for a tenth of the queries and for
all, and for a tenth with the ledger on disk, in one run on one core:

    python benchmarks/labelling.py [--queries 1000000] [--teachers 250] [--classes 10]
"""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

GROUPS = (("high", 1.0), ("average", 2.0), ("low", 3.0))


def write_votes(path: Path, *, teachers: int, queries: int, classes: int) -> None:
    """Write random votes with a plurality, one teacher at a time."""
    rng = np.random.default_rng(0)
    truth = rng.integers(classes, size=queries, dtype=np.uint8)
    votes = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=(teachers, queries))
    for row in range(teachers):
        wrong = rng.random(queries, dtype=np.float32) < 0.15
        votes[row] = np.where(wrong, rng.integers(classes, size=queries, dtype=np.uint8), truth)
    votes.flush()


def label_all(path: Path, classes: int, limit: int, *, durable: bool) -> None:
    """Label the first `limit` queries in this process; print seconds, labels and peak memory."""
    from contextlib import nullcontext

    from ipate.accounting.bounds import Meter
    from ipate.engines.teachers.aggregators import Confident, Mechanism
    from ipate.engines.teachers.loop import account_terms, label
    from ipate.engines.teachers.panel import Panel
    from ipate.engines.teachers.votes import Votes
    from ipate.ledger.base import Opening
    from ipate.ledger.sqlite import SqliteLedger

    matrix = np.load(path, mmap_mode="r")[:, :limit]
    k = matrix.shape[0]
    names = tuple(GROUPS[i % len(GROUPS)][0] for i in range(k))
    start = time.perf_counter()
    votes = Votes(votes=matrix, n_classes=classes, groups=names)
    panel = Panel.from_votes(votes, [(name, 3e3 * epsilon, 1e-5, None) for name, epsilon in GROUPS])
    mechanism = Mechanism(sigma=0.16 * k, check_sigma=0.6 * k, threshold=0.8 * k)
    meter, aggregator = Meter("gdp"), Confident(mechanism=mechanism)
    terms = account_terms(panel, meter, aggregator)
    with SqliteLedger.begin(path.with_suffix(".sqlite"), Opening(terms=terms)) if durable else nullcontext() as ledger:
        result = label(votes, panel, aggregator, meter, ledger=ledger)
    seconds = time.perf_counter() - start
    if result.n_queries != limit:
        raise SystemExit(f"only {result.n_queries} of {limit} queries were asked")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    mapped = Path("/proc/self/status").read_text() if Path("/proc/self/status").exists() else ""
    anonymous = next((int(line.split()[1]) / 1024 for line in mapped.splitlines() if "RssAnon" in line), peak)
    print(f"{limit} {seconds:.2f} {result.n_labels} {peak:.0f} {anonymous:.0f}")


def main() -> None:
    """Run both sizes, each in a process of its own, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=1_000_000)
    parser.add_argument("--teachers", type=int, default=250)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--durable", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run is not None:
        label_all(args.run, args.classes, args.queries, durable=args.durable)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "votes.npy"
        write_votes(path, teachers=args.teachers, queries=args.queries, classes=args.classes)
        print(f"{args.teachers} teachers, {args.classes} classes, gdp account of 3 groups, secure noise, one core")
        heads = (
            f"{'queries':>9} {'seconds':>8} {'queries/s':>10} {'labels':>8} {'peak MiB':>9} {'without mapped file':>20}"
        )
        print(f"{heads} ledger")
        tenth = args.queries // 10
        for queries, ledger in ((tenth, "in memory"), (args.queries, "in memory"), (tenth, "on disk")):
            command = [sys.executable, __file__, "--run", str(path), "--queries", str(queries)]
            command += ["--classes", str(args.classes), *(["--durable"] if ledger == "on disk" else [])]
            row = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
            rate = queries / float(row[1])
            print(f"{row[0]:>9} {row[1]:>8} {rate:>10.0f} {row[2]:>8} {row[3]:>9} {row[4]:>20} {ledger}")


if __name__ == "__main__":
    main()
