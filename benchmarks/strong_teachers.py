"""Labels under the releasable gdp account with one uniform budget: what more and stronger teachers buy.

    python benchmarks/strong_teachers.py --votes votes.npz [--seeds 5]

Votes come from `benchmarks/teachers.py --out … --labels`. Noise scales with the number of teachers k:
σ = .205k, σ_T = .4k, T = .95k unless said. Queries are shuffled by the seed; noise is seeded, so the
figures can be repeated.
"""

import argparse
import math
from pathlib import Path

import numpy as np

from ipate.accounting.bounds import Meter
from ipate.engines.teachers.aggregators import Confident, Mechanism
from ipate.engines.teachers.loop import label
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.votes import Votes, read_votes
from ipate.release.noise import SeededNoise


def main() -> None:
    """Print labels and their accuracy at ε = ln 2, 1 and 2."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--votes", type=Path, required=True, nargs="+")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sigma", type=float, default=0.205)
    parser.add_argument("--check-sigma", type=float, default=0.4)
    parser.add_argument("--threshold", type=float, default=0.95)
    args = parser.parse_args()
    print(f"σ = {args.sigma}k, σ_T = {args.check_sigma}k, T = {args.threshold}k; mean of {args.seeds} seeds")
    print("file                      k  teacher  plurality  labels (right) at ε = ln 2         1              2")
    for path in args.votes:
        votes = read_votes(path, classes=10)
        truth = np.asarray(votes.labels)
        k = votes.n_teachers
        single = float(np.mean(np.asarray(votes.votes) == truth))
        counts = np.stack([(np.asarray(votes.votes) == c).sum(axis=0) for c in range(10)], axis=1)
        plurality = float(np.mean(counts.argmax(axis=1) == truth))
        ballot = Votes(votes=votes.votes, n_classes=10, groups=("everyone",) * k, labels=truth)
        cells = [cell(ballot, epsilon, args) for epsilon in (math.log(2), 1.0, 2.0)]
        print(f"{path.stem:24} {k:>4}  {single:.3f}    {plurality:.4f}     " + "   ".join(cells))


def cell(votes: Votes, epsilon: float, args: argparse.Namespace) -> str:
    """Return the mean number of labels and their accuracy at one budget."""
    k = votes.n_teachers
    mechanism = Mechanism(sigma=args.sigma * k, check_sigma=args.check_sigma * k, threshold=args.threshold * k)
    panel = Panel.from_votes(votes, [("everyone", epsilon, 1e-5, None)])
    found = []
    for seed in range(args.seeds):
        order = np.random.default_rng(seed).permutation(votes.n_queries)
        run = label(votes, panel, Confident(mechanism=mechanism), Meter("gdp"), order=order, noise=SeededNoise(seed))
        right = np.asarray(votes.labels)[run.queries][run.answered] == run.labels[run.answered]
        found.append((run.n_labels, float(right.mean())))
    labels, accuracy = np.mean(found, axis=0)
    return f"{labels:7.0f} ({accuracy:.4f})"


if __name__ == "__main__":
    main()
