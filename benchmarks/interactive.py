"""Interactive against Confident with a partly trained student, at equal budgets, on a synthetic task.

    python benchmarks/interactive.py [--seeds 10]

A linear task of 10 classes: 100 teachers of 150 private points each, and a public pool of 3,000
points. A first student is trained on the few labels that Confident buys with a quarter of ε; then
either aggregator spends ε on the rest of the pool. Counted are public points that end with the right label: those
answered by the teachers, and for Interactive also those where the student was confirmed (reinforced).
Both runs are charged by gdp to the same accounts, so both are releasable.
"""

import argparse

import numpy as np
from numpy.typing import NDArray

from ipate.accounting.bounds import Meter
from ipate.labelling.aggregators import Confident, Interactive, Mechanism, NamedAggregator
from ipate.labelling.loop import label
from ipate.labelling.noise import SeededNoise
from ipate.labelling.results import Labelling
from ipate.votes import Votes
from ipate.votes.panel import Panel

TEACHERS, CLASSES, POINTS, POOL, FEATURES = 100, 10, 150, 3000, 20
Floats = NDArray[np.float64]


def centroids(X: Floats, y: NDArray[np.int64], shrink: float = 1.0) -> Floats:
    """Return a nearest-centroid model, shrunk towards the common mean where a class has few points."""
    mean = X.mean(axis=0)
    rows = [(X[y == c].sum(axis=0) + shrink * mean) / (np.count_nonzero(y == c) + shrink) for c in range(CLASSES)]
    return np.stack(rows)


def probabilities(model: Floats, X: Floats) -> Floats:
    """Return the softmax of negative squared distances, as a student's probabilities."""
    score = -0.5 * ((X[:, None, :] - model[None]) ** 2).sum(axis=2)
    score -= score.max(axis=1, keepdims=True)
    odds = np.exp(score)
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def make_task(seed: int) -> tuple[Votes, Floats]:
    """Draw the classes, train the teachers, let them vote on the pool."""
    rng = np.random.default_rng(seed)
    centre = rng.normal(size=(CLASSES, FEATURES)) * 0.75
    truth = rng.integers(CLASSES, size=POOL)
    pool = centre[truth] + rng.normal(size=(POOL, FEATURES))
    votes = np.empty((TEACHERS, POOL), dtype=np.uint8)
    for teacher in range(TEACHERS):
        y = rng.integers(CLASSES, size=POINTS)
        X = centre[y] + rng.normal(size=(POINTS, FEATURES))
        votes[teacher] = probabilities(centroids(X, y), pool).argmax(axis=1)
    return Votes(votes=votes, n_classes=CLASSES, groups=("all",) * TEACHERS, labels=truth), pool


def spend(
    *,
    votes: Votes,
    aggregator: NamedAggregator,
    epsilon: float,
    order: NDArray[np.int64],
    seed: int,
    probs: Floats | None = None,
) -> Labelling:
    """Label with one uniform budget under the gdp account."""
    panel = Panel.from_votes(votes, [("all", epsilon, 1e-5, None)])
    return label(votes, panel, aggregator, Meter("gdp"), order=order, noise=SeededNoise(seed), student_probs=probs)


def right(votes: Votes, result: Labelling) -> int:
    """Count the public points that end with the right label."""
    truth = np.asarray(votes.labels)[result.queries]
    return int(np.count_nonzero((result.answered | result.reinforced) & (result.labels == truth)))


def main() -> None:
    """Print both counts per seed and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--gamma", type=float, default=0.9)
    args = parser.parse_args()
    sigma, check_sigma = 0.16 * TEACHERS, 0.6 * TEACHERS
    confident = Confident(mechanism=Mechanism(sigma=sigma, check_sigma=check_sigma, threshold=0.8 * TEACHERS))
    # the check asks whether the votes contradict the student by half of all weight
    interactive = Interactive(
        mechanism=Mechanism(sigma=sigma, check_sigma=check_sigma, threshold=0.5 * TEACHERS), gamma=args.gamma
    )
    wins, ratios = 0, []
    print("seed  first labels  student right  confident  interactive  reinforced")
    for seed in range(args.seeds):
        votes, pool = make_task(seed)
        order = np.random.default_rng(1000 + seed).permutation(POOL)
        first = spend(votes=votes, aggregator=confident, epsilon=args.epsilon / 4, order=order, seed=seed)
        known = first.queries[first.answered]
        student = centroids(pool[known], first.labels[first.answered])
        probs = probabilities(student, pool)
        rest = order[len(first.queries) :]
        one = spend(votes=votes, aggregator=confident, epsilon=args.epsilon, order=rest, seed=100 + seed)
        other = spend(
            votes=votes, aggregator=interactive, epsilon=args.epsilon, order=rest, seed=100 + seed, probs=probs
        )
        counts = right(votes, one), right(votes, other)
        wins += counts[1] > counts[0]
        ratios.append(counts[1] / max(1, counts[0]))
        good = float(np.mean(probs.argmax(axis=1) == votes.labels))
        print(
            f"{seed:>4}  {len(known):>12}  {good:>13.1%}  {counts[0]:>9}  {counts[1]:>11}  {other.reinforced.sum():>10}"
        )
    print(
        f"interactive ended with more right labels in {wins} of {args.seeds} seeds, "
        f"{np.mean(ratios):.2f} times as many on average"
    )


if __name__ == "__main__":
    main()
