"""Interactive against Confident with a partly trained student, at equal budgets, on a synthetic task.

    python benchmarks/interactive.py [--seeds 10] [--fits]

A linear task of 10 classes: 100 teachers of 150 private points each, and a public pool of 3,000
points. A first student is trained on the few labels that Confident buys with a quarter of ε; then
either aggregator spends ε on the rest of the pool. Counted are public points that end with the right label: those
answered by the teachers, and for Interactive also those where the student was confirmed (reinforced).
Both runs are charged by gdp to the same accounts, so both are releasable.

With --fits, `PATEClassifier` is fitted with either aggregator to the synthetic patients (20,000 people, a pool of
2,000), with the settings that it chooses itself and the same seeds of partition and noise. Here the budget pays for the
first student too. Printed are the labels of the teachers, the points with the student's own class, how many of both
are right, how often the final student is right on the other rows, and the epsilon that was spent.
"""

import argparse
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ipate import PATEClassifier, load
from ipate.accounting.bounds import Meter
from ipate.data.dataset import partition
from ipate.engines.teachers.aggregators import Confident, Interactive, Mechanism, NamedAggregator
from ipate.engines.teachers.loop import label
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.votes import Votes
from ipate.release.noise import SeededNoise
from ipate.release.results import Labelling

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


def compare_fits(seeds: int, epsilon: float) -> None:
    """Print what either aggregator gives a fit on the synthetic patients, and the means."""
    rows: dict[str, list[tuple[float, ...]]] = {"confident": [], "interactive": []}
    print("seed  aggregator   labels  own classes  right  student right  epsilon")
    for seed in range(seeds):
        data = load("synthetic", n_people=50_000, seed=seed)
        parts = partition(data.n_rows, public=2000, test=28_000, seed=seed)
        for name, found in rows.items():
            model = PATEClassifier(
                epsilon=epsilon,
                aggregator=name,
                classes=range(len(data.classes)),
                random_state=seed,
                noise_seed=seed,
                verbose=0,
            )
            public = data.y[parts.public]
            model.fit(data.X[parts.private], data.y[parts.private], X_public=data.X[parts.public], y_public=public)
            result = model._record
            score = float(np.mean(model.predict(data.X[parts.test]) == data.y[parts.test]))
            spent = model.guarantees_[0].cost
            found.append((result.n_labels, len(result.reinforced), model.vote_accuracy_ or 0.0, score, spent))
            print(_row(str(seed), name, found[-1]), flush=True)
    wins = sum(one[3] > other[3] for one, other in zip(rows["interactive"], rows["confident"], strict=True))
    for name, found in rows.items():
        print(_row("mean", name, np.mean(found, axis=0).tolist()))
    print(f"at epsilon = {epsilon:g} the student of interactive was better in {wins} of {seeds} fits")


def _row(seed: str, name: str, figures: Sequence[float]) -> str:
    labels, own, share, student, spent = figures
    return f"{seed:>4}  {name:<11}  {labels:>6.0f}  {own:>11.0f}  {share:>5.1%}  {student:>13.1%}  {spent:>7.3f}"


def main() -> None:
    """Print both counts per seed and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--gamma", type=float, default=0.9)
    parser.add_argument("--fits", action="store_true", help="compare whole fits on the synthetic patients")
    args = parser.parse_args()
    if args.fits:
        compare_fits(args.seeds, args.epsilon)
        return
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
