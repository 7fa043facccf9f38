"""Labels on real teachers' votes by graded propose-test-release, beside gdp, sup and the paper's tight rule.

    python benchmarks/ptr.py --votes votes.npz [--seeds 5] [--accuracy 0.9] [--reserve 0.1] [--fallback] [--ptr-only]

The votes file holds teachers' votes (`votes`) and the truth (`labels`). The reference is a simulator with public
parameters: it never sees the file. Queries are shuffled by the seed, the first m are asked; noise is seeded, so the
figures can be repeated. Parameters are the paper's: σ = 40, σ_T = 150, T = 200, δ = 1e-5. 'pass' is the mean of the
private probability to pass, which a real run would never show; labels are those after a pass. At the end the time of
a design and a test of 9,000 queries, 17 orders and 100 radii. With --ptr-only neither the other bounds nor that time.
"""

import argparse
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from ipate.accounting.bounds import Meter
from ipate.accounting.ladder import hash_queries, make_design, most_queries, pass_probability
from ipate.accounting.ptr import total_costs
from ipate.engines.teachers.aggregators import Confident, Mechanism
from ipate.engines.teachers.loop import label
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.reference import Simulator, simulated_profile
from ipate.engines.teachers.tested import on_lattice, query_ids, setting_for
from ipate.engines.teachers.variants import teachers_for, weights_for
from ipate.engines.teachers.votes import Votes, read_votes
from ipate.people.budgets import Budget, Group
from ipate.release.noise import SeededNoise
from ipate.release.results import Labelling

DELTA = 1e-5
MECHANISM = Mechanism(sigma=40, check_sigma=150, threshold=200)
CASES = {
    "ε = 1": {"everyone": (1.0, 100)},
    "ε = 2": {"everyone": (2.0, 100)},
    "54/37/9% at 1/2/3": {"high": (1.0, 54), "average": (2.0, 37), "low": (3.0, 9)},
}


def ensemble(votes: Votes, groups: dict[str, tuple[float, int]]) -> tuple[Votes, Panel]:
    """Deal the teachers to the groups, weighted by what their budgets afford."""
    sizes = teachers_for(sizes={name: share for name, (_, share) in groups.items()}, n_teachers=votes.n_teachers)
    names = tuple(name for name, count in sizes.items() for _ in range(count))
    budgets = [Group(id=name, budget=Budget(epsilon, DELTA)) for name, (epsilon, _) in groups.items()]
    weight = weights_for(rule="gdp", groups=budgets, teachers_per_group=Counter(names))
    ballot = Votes(votes=votes.votes, n_classes=votes.n_classes, groups=names, labels=votes.labels)
    weights = np.array([weight[name] for name in names])
    return ballot, Panel.from_votes(ballot, [(g.id, g.epsilon, g.delta, None) for g in budgets], weights=weights)


def graded(votes: Votes, panel: Panel, args: argparse.Namespace) -> str:
    """Design from the simulator, test the real votes, release: one cell of the table."""
    start = time.perf_counter()
    setting = setting_for(panel, MECHANISM, n_classes=votes.n_classes)
    panel = on_lattice(panel, setting.lattice)
    profile = simulated_profile(setting, panel, Simulator(accuracy=args.accuracy, spread=args.spread))
    m = most_queries(profile, pool=votes.n_queries, reserve=args.reserve, fallback=args.fallback)
    designed = time.perf_counter() - start
    passing, labels, right, seconds = [], [], [], []
    for seed in range(args.seeds):
        order = np.random.default_rng(seed).permutation(votes.n_queries)[:m]
        ids = query_ids(votes)
        design = make_design(
            profile,
            n_queries=m,
            queries_hash=hash_queries(ids[i] for i in order),
            reserve=args.reserve,
            fallback=args.fallback,
        )
        start = time.perf_counter()
        passing.append(pass_probability(design, panel.tally(votes.votes[:, order], votes.n_classes).counts))
        seconds.append(time.perf_counter() - start)
        noise = SeededNoise(seed)
        loop = label(votes, endless(panel), Confident(mechanism=MECHANISM), Meter("gdp"), order=order, noise=noise)
        labels.append(loop.n_labels)
        right.append(accuracy(votes, loop))
    return (
        f"ptr   {np.mean(labels):7.0f} labels of {m} queries, {np.mean(right):.1%} right, pass {np.mean(passing):.3f} "
        f"(least {min(passing):.3f}), {design.levels} levels; design {designed:.1f} s, test {np.mean(seconds):.1f} s"
    )


def endless(panel: Panel) -> Panel:
    """The same teachers with budgets that never stop the loop: the design has paid for all of its queries."""
    rows = [(g.id, 1e4, DELTA, g.sensitivity) for g in panel.groups]
    names = tuple(panel.groups[i].id for i in panel.member) if panel.member is not None else None
    ballot = Votes(votes=np.zeros((panel.n_teachers, 1), dtype=int), n_classes=2, groups=names)
    return Panel.from_votes(ballot, rows, weights=panel.weights)


def other(votes: Votes, panel: Panel, meter: Meter, seeds: int) -> str:
    """Label until a budget is met, under another bound."""
    found = []
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(votes.n_queries)
        run = label(votes, panel, Confident(mechanism=MECHANISM), meter, order=order, noise=SeededNoise(seed))
        found.append((run.n_labels, accuracy(votes, run)))
    labels, right = np.mean(found, axis=0)
    kind = "releasable" if meter.bound != "tight" else "not releasable"
    return f"{meter.bound:5} {labels:7.0f} labels, {right:.1%} right, {kind}"


def accuracy(votes: Votes, run: Labelling) -> float:
    """Share of released labels that are right."""
    truth = np.asarray(votes.labels)[run.queries]
    return float(np.mean(run.labels[run.answered] == truth[run.answered]))


def timing(votes: Votes) -> str:
    """Design and test for every query of the file, 17 orders and 100 radii."""
    ballot, panel = ensemble(votes, CASES["ε = 2"])
    setting = setting_for(panel, MECHANISM, n_classes=votes.n_classes)
    start = time.perf_counter()
    simulator = Simulator(accuracy=0.999, spread=1.0, queries=votes.n_queries)
    profile = simulated_profile(setting, panel, simulator, radii=100)
    made = most_queries(profile, pool=votes.n_queries, reserve=0.1)
    design = make_design(profile, n_queries=made, queries_hash="timing", reserve=0.1)
    middle = time.perf_counter()
    pass_probability(design, panel.tally(ballot.votes[:, :made], ballot.n_classes).counts)
    end = time.perf_counter()
    real = replace(setting, grid=0.25, lattice=2.0**-6)
    counts = panel.tally(ballot.votes, ballot.n_classes).counts
    total_costs(real, real.groups[0], counts, np.arange(100))
    last = time.perf_counter()
    return (
        f"{votes.n_queries} simulated queries, {len(setting.orders)} orders, 100 radii: design {middle - start:.1f} s; "
        f"test of {made} real ones {end - middle:.1f} s; all costs of {votes.n_queries} real ones for one "
        f"group on the lattice of weights, {last - end:.1f} s"
    )


def main() -> None:
    """Print one row per case and bound."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--votes", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--accuracy", type=float, default=0.9, help="the simulator's teachers (default .9)")
    parser.add_argument("--spread", type=float, default=2.0, help="the simulator's spread of difficulty (default 2)")
    parser.add_argument("--reserve", type=float, default=0.1)
    parser.add_argument("--fallback", action="store_true")
    parser.add_argument("--ptr-only", action="store_true")
    args = parser.parse_args()
    votes = read_votes(args.votes, classes=10)
    print(
        f"simulator: accuracy {args.accuracy}, spread {args.spread}; reserve {args.reserve}; mean of {args.seeds} seeds"
    )
    for title, groups in CASES.items():
        ballot, panel = ensemble(votes, groups)
        print(f"{title:18} {graded(ballot, panel, args)}", flush=True)
        if args.ptr_only:
            continue
        for meter in (Meter("gdp"), Meter("sup", "improved"), Meter("tight", "classic")):
            print(f"{title:18} {other(ballot, panel, meter, args.seeds)}", flush=True)
    if not args.ptr_only:
        print(timing(votes))


if __name__ == "__main__":
    main()
