"""Labels that budgets buy on real teachers' votes: rules, bounds and variants side by side in one run.

    python benchmarks/real_votes.py --votes votes.npz [--seeds 10]

The votes file holds 250 teachers' votes on MNIST points (`votes`) and the truth (`labels`). Queries
are shuffled by the seed; noise is seeded, so the figures can be repeated. Parameters are the
paper's: σ = 40, σ_T = 150, T = 200, δ = 1e-5, orders 2 to 50.
"""

import argparse
import math
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

from ipate.accounting.bounds import Meter
from ipate.engines.teachers.aggregators import Confident, Mechanism
from ipate.engines.teachers.loop import label
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.variants import teachers_for, weights_for
from ipate.engines.teachers.votes import Votes, read_votes
from ipate.errors import ReproductionWarning
from ipate.people.budgets import Budget, Group
from ipate.release.noise import SeededNoise
from ipate.release.results import Labelling

DELTA = 1e-5
THREE = {"high": (1.0, 54), "average": (2.0, 37), "low": (3.0, 9)}
UNIFORM = {"everyone": (math.log(2), 100)}


def run(votes: Votes, groups: dict[str, tuple[float, int]], rule: str, meter: Meter, seeds: int) -> list[Labelling]:
    """Label with every seed and return the results."""
    sizes = teachers_for(sizes={name: share for name, (_, share) in groups.items()}, n_teachers=votes.n_teachers)
    names = tuple(name for name, count in sizes.items() for _ in range(count))
    budgets = [Group(id=name, budget=Budget(epsilon, DELTA)) for name, (epsilon, _) in groups.items()]
    weight = weights_for(rule=rule, groups=budgets, teachers_per_group=Counter(names))
    weights = np.array([weight[name] for name in names])
    ballot = Votes(votes=votes.votes, n_classes=votes.n_classes, groups=names, labels=votes.labels)
    panel = Panel.from_votes(ballot, [(g.id, g.epsilon, g.delta, None) for g in budgets], weights=weights)
    aggregator = Confident(mechanism=Mechanism(sigma=40, check_sigma=150, threshold=200))
    return [
        label(
            ballot,
            panel,
            aggregator,
            meter,
            order=np.random.default_rng(seed).permutation(ballot.n_queries),
            noise=SeededNoise(seed),
        )
        for seed in range(seeds)
    ]


def main() -> None:
    """Print one row per rule and bound."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--votes", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    warnings.simplefilter("ignore", ReproductionWarning)
    votes = read_votes(args.votes, classes=10)
    cases = [
        ("uniform ln 2", UNIFORM, "uniform", Meter("tight", "classic")),
        ("54/37/9% at 1/2/3", THREE, "proportional", Meter("tight", "classic")),
        ("54/37/9% at 1/2/3", THREE, "algorithm2", Meter("tight", "classic")),
        ("54/37/9% at 1/2/3", THREE, "gdp", Meter("exact", "improved")),
        ("54/37/9% at 1/2/3", THREE, "gdp", Meter("sup", "improved")),
        ("54/37/9% at 1/2/3", THREE, "gdp", Meter("gdp")),
        ("54/37/9% at 1/2/3", THREE, "gdp", Meter("loose", "improved")),
    ]
    print(f"mean of {args.seeds} seeds; 'used' is the share of each group's budget at the stop")
    base = math.nan
    for title, groups, rule, meter in cases:
        start = time.perf_counter()
        results = run(votes, groups, rule, meter, args.seeds)
        seconds = (time.perf_counter() - start) / args.seeds
        labels = float(np.mean([result.n_labels for result in results]))
        if rule == "proportional":
            base = labels
        right = float(np.mean([accuracy(votes, result) for result in results]))
        used = {
            name: float(np.mean([next(g for g in r.groups if g.id == name).cost for r in results])) / groups[name][0]
            for name in groups
        }
        first = Counter(g.id for r in results for g in r.groups if g.labels_until_exhausted is not None)
        print(
            f"{title:18} {rule:13} {meter.bound:6} {meter.conversion:9} {results[0].guarantee.kind:10} "
            f"{labels:7.0f} labels ({labels / base:4.2f} of proportional+tight), {right:.1%} right; used "
            + ", ".join(f"{name} {share:.1%}" for name, share in used.items())
            + f"; exhausted first: {dict(first)}; {seconds:.2f} s a run"
        )


def accuracy(votes: Votes, result: Labelling) -> float:
    """Share of released labels that are right."""
    truth = np.asarray(votes.labels)[result.queries]
    return float(np.mean(result.labels[result.answered] == truth[result.answered]))


if __name__ == "__main__":
    main()
