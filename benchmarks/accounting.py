"""How fast the accounting is, on one core: our bounds beside a plain implementation, in one run.

    python benchmarks/accounting.py --votes VOTES.npz [--orders 2:50] [--seconds 2]

The unit is a query·group: the cost of one label for one group at all orders. Only ratios within a
run mean something; absolute speeds depend on the machine. Times are processor time of this one
thread, so that neighbours on a shared machine disturb them less.
"""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy is loaded: one core

import argparse
import math
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ipate.accounting import exact, tight
from ipate.accounting.bounds import Meter
from ipate.cli.options import parse_orders
from ipate.engines.teachers.account import account_for
from ipate.engines.teachers.aggregators import Mechanism
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.votes import Votes, count_votes, read_votes
from ipate.errors import ClassesWarning

Floats = NDArray[np.float64]
SIGMA = 40.0
WEIGHTS = (0.68, 1.27, 1.82)  # 54, 37 and 9% of the people at ε = 1, 2 and 3, weights in the ratio of μ
GOALS = {"tight": 1e6, "exact": 2e3}


def plain_tight(counts: Sequence[float], orders: Sequence[float], sensitivity: float, sigma: float) -> list[float]:
    """Papernot 2018, Theorem 6 with Propositions 7 and 10, one query and one group, as it is usually written."""
    scale = sigma / sensitivity
    n = [count / sensitivity for count in counts]
    top = max(range(len(n)), key=lambda j: n[j])
    q = sum(math.erfc((n[top] - n[j]) / (2 * scale)) / 2 for j in range(len(n)) if j != top)
    q = min(q, 1 - 1 / len(n))
    log_q = math.log(q) if q > 0 else -math.inf
    costs = []
    for order in orders:
        loose = order / scale**2
        if q <= 0:
            costs.append(0.0)
            continue
        alpha2 = scale * math.sqrt(-log_q)
        alpha1 = alpha2 + 1
        eps1, eps2 = alpha1 / scale**2, alpha2 / scale**2
        if order >= alpha1 or alpha2 <= 1 or -log_q <= eps2:
            costs.append(loose)
            continue
        log_limit = (alpha2 - 1) * eps2 - alpha2 * math.log(alpha1 / (alpha1 - 1) * alpha2 / (alpha2 - 1))
        if log_q > log_limit:
            costs.append(loose)
            continue
        log_a = math.log1p(-q) - math.log1p(-math.exp((log_q + eps2) * (alpha2 - 1) / alpha2))
        log_b = eps1 - log_q / (alpha1 - 1)
        first = math.log1p(-q) + (order - 1) * log_a
        second = log_q + (order - 1) * log_b
        largest = max(first, second)
        total = largest + math.log(math.exp(first - largest) + math.exp(second - largest))
        costs.append(min(total / (order - 1), loose))
    return costs


@dataclass(frozen=True)
class Speed:
    """One line of the table: what was measured, on how much, how fast."""

    what: str
    pairs: int
    seconds: float
    goal: float | None = None

    @property
    def rate(self) -> float:
        """Query·groups a second."""
        return self.pairs / self.seconds


def measure(what: str, work: Callable[[], object], pairs: int, seconds: float, goal: float | None = None) -> Speed:
    """Time the best of as many runs as fit into `seconds`, at least one."""
    best, until = math.inf, time.perf_counter() + seconds
    while best == math.inf or time.perf_counter() < until:
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return Speed(what, pairs, best, goal)


def compare(counts: Floats, orders: Sequence[float], seconds: float) -> tuple[Speed, Speed, float]:
    """Time plain and vectorised tight on the same queries and groups; also their largest relative difference."""
    few = min(len(counts), 400)
    rows = counts[:few].tolist()
    plain_costs: list[list[list[float]]] = []

    def plain() -> None:
        plain_costs[:] = [[plain_tight(row, orders, w, SIGMA) for w in WEIGHTS] for row in rows]

    def ours() -> Floats:
        return tight.label_rdp(counts, orders, sensitivity=WEIGHTS, sigma=SIGMA)

    slow = measure("tight, plain Python, query by query", plain, few * len(WEIGHTS), seconds)
    fast = measure("tight, ours", ours, len(counts) * len(WEIGHTS), seconds, GOALS["tight"])
    truth = np.array(plain_costs)
    apart = float(np.max(np.abs(ours()[:few] - truth) / np.maximum(truth, 1e-12)))
    return slow, fast, apart


def nudged(counts: Floats, *, classes: bool) -> Floats:
    """Make every histogram unlike all others by a tiny amount; with `classes` also every class of it.

    Nothing can then be computed once for several queries; nor, with `classes`, for several classes.
    """
    rng = np.random.default_rng(0)
    if classes:
        return np.asarray(counts + rng.uniform(0.0, 1e-4, counts.shape))
    return np.asarray(counts * (1 + rng.uniform(0.0, 1e-6, (len(counts), 1))))


def exact_account(counts: Floats, orders: Sequence[float]) -> Floats:
    """All moves of one vote of every group's weight, both directions."""
    voted = counts >= 0.5
    return np.stack(
        [
            exact.group_label_rdp(
                exact.label_rdp_by_source(counts, orders, weight=w, sigma=SIGMA, sources=voted), voted
            )
            for w in WEIGHTS
        ],
        axis=1,
    )


def three_groups(votes: Votes) -> tuple[Votes, Panel]:
    """Name three groups of teachers (54, 37 and 9%) in a file that has none."""
    k = votes.n_teachers
    names = tuple(str(sum(i >= round(share * k) for share in (0.54, 0.91))) for i in range(k))
    ballot = Votes(votes=votes.votes, n_classes=votes.n_classes, groups=names)
    rows = [(name, float(1 + int(name)), 1e-5, None) for name in sorted(set(names))]
    return ballot, Panel.from_votes(ballot, rows, weights=np.array([WEIGHTS[int(name)] for name in names]))


def account_speed(votes: Votes, bound: str, orders: Sequence[float], seconds: float) -> Speed:
    """Time `account_for` from votes to ε, check and label, for three groups."""
    ballot, panel = three_groups(votes)
    mechanism = Mechanism(sigma=SIGMA, check_sigma=150.0, threshold=200.0)
    meter = Meter(bound, "improved", orders)
    pairs = votes.n_queries * len(panel.groups)
    return measure(
        f"account, {bound}: votes to ε, with checks",
        lambda: account_for(ballot, panel, mechanism, meter),
        pairs,
        seconds,
    )


STREAM = """
import resource, sys, time
from ipate.engines.teachers.account import account_for
from ipate.accounting.bounds import Meter
from ipate.engines.teachers.aggregators import Mechanism
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.votes import read_votes
votes = read_votes(sys.argv[1])
panel = Panel.from_votes(votes, [("all", 1.0, 1e-5, None)])
orders = [float(order) for order in sys.argv[2].split(",")]
start = time.perf_counter()
account_for(votes, panel, Mechanism(sigma=40.0, check_sigma=60.0, threshold=12.0), Meter("tight", "improved", orders))
seconds = time.perf_counter() - start
unit = 1 if sys.platform == "darwin" else 1024
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit, seconds)
"""


def stream(n_queries: int, orders: Sequence[float]) -> tuple[int, float]:
    """Account for synthetic votes in a process of its own: its peak memory in bytes, and the seconds."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "votes.npz"
        ballot = rng.integers(0, 10, (20, n_queries), dtype=np.uint8)
        np.savez(path, votes=ballot, groups=np.array(["all"] * 20), classes=np.array(10))
        ran = subprocess.run(
            [sys.executable, "-c", STREAM, str(path), ",".join(map(str, orders))],
            check=True,
            capture_output=True,
            text=True,
        )
    peak, seconds = ran.stdout.split()
    return int(peak), float(seconds)


def show(speeds: Sequence[Speed], reference: Speed) -> None:
    """Print the table: speeds, and how many times the plain implementation each is."""
    print(f"{'what':58} {'query·groups':>12} {'per second':>12} {'× plain':>9}  goal")
    for speed in speeds:
        goal = "" if speed.goal is None else f"{speed.goal:,.0f}: {'met' if speed.rate >= speed.goal else 'missed'}"
        print(f"{speed.what:58} {speed.pairs:12,} {speed.rate:12,.0f} {speed.rate / reference.rate:9,.1f}  {goal}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--votes", required=True, help="npz with 'votes', teachers × queries")
    parser.add_argument("--orders", default="2:50", help="Rényi orders, FIRST:LAST or a list")
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each measurement")
    parser.add_argument("--stream", type=int, default=1_000_000, help="queries of the memory test; 0 leaves it out")
    chosen = parser.parse_args()
    orders = parse_orders(chosen.orders)
    warnings.simplefilter("ignore", ClassesWarning)
    votes = read_votes(chosen.votes)
    counts = count_votes(votes.votes, votes.n_classes).astype(np.float64)
    unlike, all_unlike = nudged(counts, classes=False), nudged(counts, classes=True)
    alike = len(np.unique(np.sort(counts, axis=1), axis=0))
    print(
        f"{votes.n_teachers} teachers, {votes.n_queries:,} queries ({alike:,} histograms up to the order of classes), "
        f"{votes.n_classes} classes, {len(orders)} orders, three groups of weights {WEIGHTS}, σ = {SIGMA:g}, one core\n"
    )
    slow, fast, apart = compare(counts, orders, chosen.seconds)
    _, alone, _ = compare(unlike, orders, chosen.seconds)
    labels = len(counts) * len(WEIGHTS)
    pairs = [
        measure(what, partial(exact_account, table, orders), labels, chosen.seconds, GOALS["exact"])
        for what, table in (
            ("exact, all pairs, both directions", counts),
            ("exact, no two histograms alike", unlike),
            ("exact, no two histograms and no two classes alike", all_unlike),
        )
    ]
    whole = [account_speed(votes, bound, orders, chosen.seconds) for bound in ("gdp", "tight", "exact")]
    show([slow, fast, replace(alone, what="tight, ours, no two histograms alike"), *pairs, *whole], slow)
    print(f"\ntight: {fast.rate / slow.rate:,.0f} times the plain implementation (goal 100), ", end="")
    print(f"{alone.rate / slow.rate:,.0f} times where no two queries are alike; they differ by {apart:.1e} at most")
    if chosen.stream:
        peak, seconds = stream(chosen.stream, orders)
        print(f"memory: {chosen.stream:,} synthetic queries of 20 teachers, one group, tight: ", end="")
        print(f"{peak / 2**20:,.0f} MiB at most (goal under 1,024), {seconds:.1f} s")


if __name__ == "__main__":
    main()
