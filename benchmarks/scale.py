"""Time and memory of counting, labelling and accounting, from 250 teachers × 10,000 queries to 10,000 × 1,000,000.

Makes votes of imaginary teachers in a store on disk (bytes, teachers × queries, mapped), counts them with
weights, labels every query with secure noise under a gdp account of three groups, and accounts for the answers
by the sup bound. Every size runs in a process of its own on one core; seconds are processor time.

    python benchmarks/scale.py [--quick] [--all] [--plot docs/scale.svg]

--quick takes the smallest sizes; without --all it stops at a tenth of the full 10 GB of votes.
"""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

GROUPS = (("high", 1.0, 0.54), ("average", 2.0, 0.37), ("low", 3.0, 0.09))
WEIGHTS = {"high": 0.68, "average": 1.27, "low": 1.82}
TEACHERS = (250, 1_000, 10_000)
QUERIES = (10_000, 100_000, 1_000_000)
CLASSES = 10


def write_store(folder: Path, *, teachers: int, queries: int) -> None:
    """Write a store of random votes with a plurality, a few teachers at a time."""
    rng = np.random.default_rng(0)
    truth = rng.integers(CLASSES, size=queries, dtype=np.uint8)
    votes = np.lib.format.open_memmap(folder / "votes.npy", mode="w+", dtype=np.uint8, shape=(teachers, queries))
    noise = rng.integers(256, size=queries + 65_536, dtype=np.uint8)  # a window of it per teacher: votes that differ
    for row in range(teachers):
        start = int(rng.integers(65_536))
        own = noise[start : start + queries]
        votes[row] = np.where(own < 40, own % CLASSES, truth)
        if row % 64 == 63:
            votes.flush()
    votes.flush()
    names = np.repeat(
        [name for name, *_ in GROUPS], np.diff(np.round(np.cumsum([0, 0.54, 0.37, 0.09]) * teachers).astype(int))
    )
    np.save(folder / "groups.npy", np.random.default_rng(1).permutation(names))  # no group's teachers stand together
    np.save(folder / "classes.npy", np.array(CLASSES))


def measure(folder: Path) -> dict[str, float]:
    """Run the three stages in this process; return seconds of each, votes counted per second, peak memory."""
    from ipate.accounting.bounds import Meter
    from ipate.engines.teachers.account import account_for
    from ipate.engines.teachers.aggregators import Confident, Mechanism
    from ipate.engines.teachers.loop import label
    from ipate.engines.teachers.panel import Panel
    from ipate.engines.teachers.votes import read_votes, weigh_votes

    before = _peak()
    start = time.process_time()
    votes = read_votes(folder)
    k, queries = votes.votes.shape
    weights = np.array([WEIGHTS[name] for name in votes.groups or ()])
    read = time.process_time()
    for first in range(0, queries, 65_536):
        weigh_votes(votes.votes[:, first : first + 65_536], CLASSES, weights)
    counted = time.process_time()
    panel = Panel.from_votes(votes, [(name, 3e3 * epsilon, 1e-5, None) for name, epsilon, _ in GROUPS], weights=weights)
    mechanism = Mechanism(sigma=0.16 * k, check_sigma=0.6 * k, threshold=0.8 * k)
    result = label(votes, panel, Confident(mechanism=mechanism), Meter("gdp"))
    labelled = time.process_time()
    if result.n_queries != queries:
        raise SystemExit(f"only {result.n_queries} of {queries} queries were asked")
    account_for(votes, panel, mechanism, Meter("sup"), answered=result.answered.astype(np.int8))
    return {
        "read": read - start,
        "count": counted - read,
        "label": labelled - counted,
        "account": time.process_time() - labelled,
        "votes_per_second": k * queries / (counted - read),
        "peak_mib": _peak(),
        "start_mib": before,
    }


def _peak() -> float:
    """MiB that this process held at most; Linux keeps a parent's figure in ru_maxrss, so it is asked elsewhere."""
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if "VmHWM" in line) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def kernel() -> None:
    """Print how fast a block in memory is counted, best of several tries: the processor's share, without the file's."""
    from ipate.engines.teachers.votes import count_votes, weigh_votes

    rng = np.random.default_rng(0)
    votes = rng.integers(CLASSES, size=(10_000, 8192), dtype=np.uint8)
    weights = rng.choice(list(WEIGHTS.values()), size=len(votes), p=[share for *_, share in GROUPS])
    for name, count in (
        ("counted", lambda: count_votes(votes, CLASSES)),
        ("weighted", lambda: weigh_votes(votes, CLASSES, weights)),
    ):
        best = min(_seconds(count) for _ in range(9))
        print(f"10,000 teachers × 8,192 queries in memory, {name}: {votes.size / best:.3g} votes/s")


def _seconds(function: Callable[[], Any]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def run(teachers: int, queries: int, place: Path) -> dict[str, Any]:
    """Write a store, measure it in a fresh process, remove it."""
    folder = Path(tempfile.mkdtemp(dir=place))
    try:
        write_store(folder, teachers=teachers, queries=queries)
        done = subprocess.run(
            [sys.executable, __file__, "--measure", str(folder)], check=True, capture_output=True, text=True
        )
        return {"teachers": teachers, "queries": queries, **json.loads(done.stdout)}
    finally:
        shutil.rmtree(folder)


def show(row: dict[str, Any]) -> None:
    """Print a line of the table."""
    stages = " ".join(f"{row[name]:>8.2f}" for name in ("read", "count", "label", "account"))
    print(
        f"{row['teachers']:>8} {row['queries']:>9} {stages} {row['votes_per_second']:>15.3g} {row['peak_mib']:>8.0f}",
        flush=True,
    )


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw time and memory against the number of queries, a line per number of teachers."""
    import matplotlib as mpl

    mpl.use("svg" if path.suffix == ".svg" else "agg")
    mpl.rcParams.update({"svg.hashsalt": "ipate", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    for teachers, colour in zip(TEACHERS, ("#3b6ea8", "#c8663c", "#4d8f57"), strict=True):
        own = [row for row in rows if row["teachers"] == teachers]
        asked = [row["queries"] for row in own]
        total = [row["count"] + row["label"] for row in own]
        left.loglog(asked, total, "o-", color=colour, label=f"{teachers:,} teachers")
        right.semilogx(asked, [row["peak_mib"] for row in own], "o-", color=colour)
    left.set(xlabel="queries", ylabel="seconds on one core", title="count, then count and label")
    left.legend(frameon=False)
    right.set(xlabel="queries", ylabel="MiB", title="peak memory of the process", ylim=(0, 1100))
    right.axhline(1024, color="#999999", linestyle=":", linewidth=1)
    right.annotate("1 GiB", (min(QUERIES), 1024), textcoords="offset points", xytext=(0, -11), color="#666666")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    """Run all sizes and print a table; write the plot where one is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="250 and 1,000 teachers, 10,000 and 100,000 queries")
    parser.add_argument("--all", action="store_true", help="also 10,000 teachers × 1,000,000 queries: 10 GB on disk")
    parser.add_argument("--teachers", type=int, nargs="+", default=TEACHERS)
    parser.add_argument("--queries", type=int, nargs="+", default=QUERIES)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the votes are written")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure is not None:
        print(json.dumps(measure(args.measure)))
        return
    most = 10**8 if args.quick else 10**10 if args.all else 10**9
    kernel()
    weights = ", ".join(map(str, WEIGHTS.values()))
    print(f"{CLASSES} classes, three groups of weights {weights}; processor seconds, one core")
    stages = " ".join(f"{name:>8}" for name in ("read", "count", "label", "account"))
    print(f"{'teachers':>8} {'queries':>9} {stages} {'votes counted/s':>15} {'peak MiB':>8}")
    rows = []
    for teachers in args.teachers:
        for queries in args.queries:
            if teachers * queries <= most:
                rows.append(run(teachers, queries, args.folder))
                show(rows[-1])
    if args.plot is not None:
        plot(rows, args.plot)


if __name__ == "__main__":
    main()
