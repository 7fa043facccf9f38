"""Measure queries and students: flipped clusters, accuracy at equal budgets, seconds and memory.

    python benchmarks/students.py flips --data-dir FOLDER --votes votes.npz [--seeds 10]
    python benchmarks/students.py mnist --data-dir FOLDER [--votes votes.npz [--simulate]] [--seeds 3]
    python benchmarks/students.py synthetic [--seeds 5]
    python benchmarks/students.py adult --data-dir FOLDER [--seeds 3]
    python benchmarks/students.py neighbours --data-dir FOLDER
    python benchmarks/students.py cost

FOLDER holds the official files of MNIST and Adult; the votes file holds 250 teachers' votes on 9,000 MNIST points
(`votes`), the rows of these points (`public`) and the truth (`labels`), which is used for scoring alone. Without it,
`mnist` trains 1,000 logistic teachers of 60 people each on public features; with `--simulate` it draws the votes of
1,000 teachers from the shares of those 250, flattened until a teacher alone is 88% right. Every budget is spent under
the releasable gdp account with δ = 1e-5: m queries with σ = √(2m)/μ. Noise is seeded: nothing here is a private
release.
"""

import argparse
import math
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors
from sklearn.svm import SVC

from ipate.accounting.gdp import mu_of
from ipate.public.features import fit_features
from ipate.public.graph import Graph, make_graph, usual_alpha
from ipate.public.queries import choose_queries, next_queries, second_round
from ipate.students.confidence import posterior
from ipate.students.spreading import GraphStudent

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from paper.data import load

Array = NDArray[Any]
DELTA = 1e-5
SMALLEST = 0.0067  # share of the pool from which a sub-cluster counts
TWO_ROUNDS = "coverage + lowest margin"


def shown(values: Any, scale: float = 100.0) -> str:
    """Mean ± sd."""
    own = scale * np.array(list(values), dtype=np.float64)
    return f"{own.mean():.2f} ± {own.std(ddof=1) if len(own) > 1 else 0:.2f}"


def one_hot(labels: Array, at: Array, n: int, classes: int) -> Array:
    """Targets of the points `at`, zeros elsewhere."""
    targets = np.zeros((n, classes))
    targets[at, labels] = 1.0
    return targets


def ask(rule: str, points: Array, graph: Graph, m: int, *, seed: int, answers: Array) -> Array:
    """The points that a rule asks; `answers` are what would be released at every point, (points, classes)."""
    if rule != TWO_ROUNDS:
        return choose_queries(rule, points, m, seed=seed, graph=graph)
    later = second_round(m)
    first = choose_queries("coverage", points, m - later, seed=seed, graph=graph)
    targets = np.zeros(answers.shape)
    targets[first] = answers[first]
    return np.concatenate([first, next_queries(points, graph, targets, later, seed=seed)])


def flips(args: argparse.Namespace) -> None:
    """Print how many seeds have no flipped sub-cluster, without noise, for each rule, number of queries and pool."""
    data = load("mnist", data_dir=args.data_dir)
    with np.load(args.votes) as kept:
        rows, votes = kept["public"], kept["votes"]
    plurality = np.stack([(votes == c).sum(axis=0) for c in range(10)], axis=1).argmax(axis=1)
    rules = ("random", "typical", "coverage", TWO_ROUNDS)
    print(
        f"seeds {args.first} to {args.first + args.seeds - 1}; 15 true sub-clusters per class; a flip is a sub-cluster"
    )
    print("of at least .67% of the pool (in brackets: .28%), more than half of it wrong; labels have no noise")
    print(
        "| pool | features | queries | rule | seeds without a flip | flips | pool right | labels right |\n|"
        + " --- |" * 8
    )
    cases = [("of the votes", "gradients", m) for m in (60, 30, 20)]
    cases += [("of the votes", "pixels", 60), ("fresh", "gradients", 60), ("fresh", "gradients", 30)]
    for pool, kind, m in cases:
        found: dict[str, list[tuple[float, ...]]] = {rule: [] for rule in rules}
        made: tuple[Array, Graph, Array, Array] | None = None
        for seed in range(args.first, args.first + args.seeds):
            if pool == "fresh":  # labels are true: nobody has voted on these points
                own = np.random.default_rng(seed).choice(len(data.X), len(rows), replace=False)
                made = prepared(data.X[own], data.y[own], kind)
                labels = data.y[own]
            else:
                labels = plurality
                made = made or prepared(data.X[rows], data.y[rows], kind)
            for rule in rules:
                found[rule].append(judge(made, labels, rule, m, seed=seed))
        for rule, cells in found.items():
            large, small, right, released = np.array(cells).T
            clear = f"{(large == 0).sum()} of {len(cells)} ({(small == 0).sum()})"
            count = f"{large.sum():.0f} ({small.sum():.0f})"
            cells_ = (pool, kind, m, rule, clear, count, shown(right), f"{100 * released.mean():.1f}")
            print("| " + " | ".join(map(str, cells_)) + " |", flush=True)


def prepared(images: Array, truth: Array, kind: str) -> tuple[Array, Graph, Array, Array]:
    """Points, graph, truth, and 15 sub-clusters of every true class, for judging alone."""
    if kind == "pixels":
        points = images.reshape(len(images), -1) / 255.0
    else:
        points = fit_features(images, n_classes=10).directions(images)
    parts = np.zeros(len(points), dtype=np.int64)
    for c in range(10):
        parts[truth == c] = 15 * c + KMeans(15, n_init=1, random_state=0).fit_predict(points[truth == c])
    return points, make_graph(points), truth, parts


def judge(made: tuple[Array, Graph, Array, Array], labels: Array, rule: str, m: int, *, seed: int) -> tuple[float, ...]:
    """Flips among large sub-clusters, among those of .28% too, the share of the pool that is right, and of labels."""
    points, graph, truth, parts = made
    at = ask(rule, points, graph, m, seed=seed, answers=np.eye(10)[labels])
    spread = graph.spread(one_hot(labels[at], at, len(points), 10), alpha=usual_alpha(m, len(points)))
    wrong = spread.argmax(axis=1) != truth
    size = np.bincount(parts)
    flipped = np.bincount(parts, weights=wrong) > size / 2
    large, small = (int((flipped & (size >= share * len(points))).sum()) for share in (SMALLEST, 0.0028))
    return large, small, 1 - wrong.mean(), float(np.mean(labels[at] == truth[at]))


def rule_for(epsilon: float, k: int, classes: int, n: int) -> tuple[int, float]:
    """The number of queries at σ = .28k, from 6 per class to every 9th point, and the σ that spends the budget."""
    mu = float(mu_of(epsilon, DELTA))
    m = int(np.clip((mu * 0.28 * k) ** 2 / 2, 6 * classes, n // 9))
    return m, math.sqrt(2 * m) / mu


def logistic_votes(points: Array, labels: Array, pool: Array, classes: int, k: int) -> Array:
    """Counts on the pool of k logistic teachers with equally many points each."""
    counts = np.zeros((len(pool), classes))
    for rows in np.array_split(np.arange(len(points)), k):
        seen = np.unique(labels[rows])
        found = np.full(len(pool), seen[0])
        if len(seen) > 1:
            found = LogisticRegression(max_iter=200).fit(points[rows], labels[rows]).predict(pool)
        counts[np.arange(len(pool)), found] += 1
    return counts


def mnist_counts(args: argparse.Namespace, seed: int) -> tuple[str, int, Array, Array, Array, Array, Array]:
    """An ensemble: its name, teachers, pool points and classes, counts, test points and classes."""
    data = load("mnist", data_dir=args.data_dir)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(data.X))
    kept = None if args.votes is None else dict(np.load(args.votes))
    rows = order[:9000] if kept is None else kept["public"]
    rest = order[~np.isin(order, rows)]
    features = fit_features(data.X[rows], n_classes=10)
    points = features.directions(data.X) * math.sqrt(features.dimensions)
    pool, truth, test, wanted = points[rows], data.y[rows], points[rest], data.y[rest]
    if kept is None:
        people = rest[:60_000]
        counts = logistic_votes(points[people], data.y[people], pool, 10, 1000)
        return "1,000 logistic teachers of 60 on gradients", 1000, pool, truth, counts, test, wanted
    real = np.stack([(kept["votes"] == c).sum(axis=0) for c in range(10)], axis=1)
    if not args.simulate:
        return "250 of the paper's teachers", 250, pool, truth, real, test, wanted
    share = real / real.sum(axis=1, keepdims=True)
    power = next(p for p in np.arange(1.0, 0.0, -0.01) if tempered(share, p)[range(len(pool)), truth].mean() < 0.88)
    drawn = rng.multinomial(1000, tempered(share, power))
    return "1,000 strong teachers, simulated", 1000, pool, truth, drawn, test, wanted


def tempered(share: Array, power: float) -> Array:
    """Shares of votes, flattened, so that single teachers are weaker and their plurality is the same."""
    found = np.asarray(share**power)
    return np.asarray(found / found.sum(axis=1, keepdims=True))


UNUSED = "graph, posterior, last 1,000"  # on MNIST the test points that no teacher learnt from
STUDENTS = (
    "supervised, random",
    "supervised, coverage",
    "graph, random",
    "graph, coverage",
    "graph, posterior",
    UNUSED,
    "graph, two rounds",
    "graph, SVC",
)


def students(
    ensemble: tuple[Any, ...], epsilon: float, *, seed: int, graph: Graph, points: Array, options: dict[str, Any]
) -> tuple[int, float, dict[str, float], list[float]]:
    """The number of queries, σ/k, the test accuracy of every student, and how many labels were right by rule."""
    _, k, pool, truth, counts, test, wanted = ensemble
    classes = counts.shape[1]
    m, sigma = rule_for(epsilon, k, classes, len(pool))
    rng = np.random.default_rng([seed, round(1000 * epsilon)])
    noisy = counts + sigma * rng.standard_normal(counts.shape)  # one draw per point; only those of queries are used
    bayes = posterior(np.rint(8 * noisy / sigma).astype(np.int64), step=sigma / 8, total_weight=k)
    found, right = {}, []
    at = {rule: ask(rule, points, graph, m, seed=seed, answers=bayes) for rule in ("random", "coverage", TWO_ROUNDS)}
    for rule in ("random", "coverage"):
        labels = noisy[at[rule]].argmax(axis=1)
        right.append(float(np.mean(labels == truth[at[rule]])))
        alone = LogisticRegression(max_iter=300).fit(pool[at[rule]], labels) if len(np.unique(labels)) > 1 else None
        found[f"supervised, {rule}"] = math.nan if alone is None else float(alone.score(test, wanted))
        hard = GraphStudent(**options).fit(pool, one_hot(labels, at[rule], len(pool), classes))
        found[f"graph, {rule}"] = float(hard.score(test, wanted))
    more: dict[str, tuple[str, Any]] = {
        "graph, posterior": ("coverage", None),
        "graph, two rounds": (TWO_ROUNDS, None),
        "graph, SVC": ("coverage", SVC(C=5)),
    }
    for name, (rule, estimator) in more.items():
        targets = np.zeros((len(pool), classes))
        targets[at[rule]] = bayes[at[rule]]
        student = GraphStudent(estimator, **options).fit(pool, targets)
        found[name] = float(student.score(test, wanted))
        if name == "graph, posterior":
            found[UNUSED] = float(student.score(test[-1000:], wanted[-1000:]))
    return m, sigma / k, found, right


def table(title: str, results: dict[float, list[tuple[int, float, dict[str, float], list[float]]]]) -> None:
    """Print the accuracies of one ensemble."""
    print(
        f"\n{title}\n\n| ε | queries (σ/k) | right: random, coverage | "
        + " | ".join(STUDENTS)
        + " |\n|"
        + " --- |" * 11
    )
    for epsilon, runs in results.items():
        m, noise = runs[0][:2]
        cells = " | ".join(shown(run[2][name] for run in runs) for name in STUDENTS)
        right = ", ".join(f"{100 * np.mean([run[3][i] for run in runs]):.0f}%" for i in (0, 1))
        print(f"| {epsilon:.3g} | {m} ({noise:.2f}) | {right} | {cells} |", flush=True)


def mnist(args: argparse.Namespace) -> None:
    """Print the accuracy on all points outside the pool, of students with gradients as features."""
    results: dict[float, list[Any]] = {}
    said = []
    for seed in range(args.first, args.first + args.seeds):
        ensemble = mnist_counts(args, seed)
        name, k, pool, truth, counts = ensemble[:5]
        said.append((counts[np.arange(len(pool)), truth].mean() / k, (counts.argmax(axis=1) == truth).mean()))
        graph = make_graph(pool)
        for epsilon in args.epsilon or (0.1, 0.2, 0.5, math.log(2), 1.0):
            own = students(ensemble, epsilon, seed=seed, graph=graph, points=pool, options={"features": "given"})
            results.setdefault(epsilon, []).append(own)
    alone, plurality = np.mean(said, axis=0)
    table(f"{name}: {alone:.1%} right alone, plurality {plurality:.1%}; {args.seeds} seeds, % right of 61,000", results)


def synthetic(args: argparse.Namespace) -> None:
    """Print the accuracy on 10,000 synthetic patients, of 20,000 people, a pool of 2,000 and 400 logistic teachers."""
    results: dict[float, list[Any]] = {}
    for seed in range(args.first, args.first + args.seeds):
        data = load("synthetic", n_people=32_000, seed=seed)
        on_table(data, (20_000, 2000, 10_000), args.epsilon or (0.1, 0.2, 0.5, math.log(2), 1.0, 2.0), seed, results)
    table(f"synthetic, 20,000 people, 400 logistic teachers of 50; {args.seeds} seeds, % right of 10,000", results)


def adult(args: argparse.Namespace) -> None:
    """Print the accuracy on Adult, where classes are no clusters: 33,000 people, 660 logistic teachers."""
    results: dict[float, list[Any]] = {}
    data = load("adult", data_dir=args.data_dir, encoding="onehot")
    for seed in range(args.first, args.first + args.seeds):
        on_table(data, (33_000, 7000, 5222), args.epsilon or (0.2, math.log(2), 2.0), seed, results)
    table(f"Adult, 33,000 people, 660 logistic teachers of 50; {args.seeds} seeds, % right of 5,222", results)


def on_table(data: Any, sizes: tuple[int, ...], budgets: Any, seed: int, results: dict[float, list[Any]]) -> None:
    """Train logistic teachers of 50 people each, and add the results of one seed."""
    X, y = data.X.astype(np.float64), data.y
    order = np.random.default_rng(seed).permutation(len(X))
    people, pool, test = np.split(order[: sum(sizes)], np.cumsum(sizes)[:2])
    k = len(people) // 50
    counts = logistic_votes(X[people], y[people], X[pool], data.n_classes, k)
    ensemble = (data.name, k, X[pool], y[pool], counts, X[test], y[test])
    points = fit_features(X[pool], n_classes=data.n_classes).directions(X[pool])
    graph = make_graph(points)
    for epsilon in budgets:
        own = students(ensemble, epsilon, seed=seed, graph=graph, points=points, options={})
        results.setdefault(epsilon, []).append(own)


def neighbours(args: argparse.Namespace) -> None:
    """Print how often a point and its nearest neighbour in the pool have the same class, and the largest class."""
    print("| data | features | pool | same class as its nearest neighbour | largest class |\n|" + " --- |" * 5)
    sets = {
        "mnist": (load("mnist", data_dir=args.data_dir), 9000),
        "synthetic": (load("synthetic", n_people=32_000, seed=args.first), 2000),
        "adult": (load("adult", data_dir=args.data_dir, encoding="onehot"), 7000),
    }
    for name, (data, n) in sets.items():
        rows = np.random.default_rng(args.first).choice(len(data.X), n, replace=False)
        pool, truth = data.X[rows], data.y[rows]
        made = {"of the pool": fit_features(pool, n_classes=data.n_classes).directions(pool)}
        if data.kind == "image":
            made["pixels"] = pool.reshape(n, -1) / 255.0
        for kind, points in made.items():
            nearest = NearestNeighbors(n_neighbors=1).fit(points).kneighbors(return_distance=False)[:, 0]
            same, largest = np.mean(truth == truth[nearest]), np.bincount(truth).max() / n
            print(f"| {name} | {kind} | {n:,} | {same:.1%} | {largest:.1%} |", flush=True)


def cost(args: argparse.Namespace) -> None:
    """Print seconds and memory of every step, one thread, on made-up points of 60 columns."""
    print("| pool | step | seconds of processor time | peak memory, MiB |\n| --- | --- | --- | --- |")
    for n in args.points or (9000, 100_000):
        rng = np.random.default_rng(0)
        points = rng.standard_normal((200, 60))[rng.integers(0, 200, n)] + 0.8 * rng.standard_normal((n, 60))

        def took(step: str, start: float, n: int = n) -> None:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(f"| {n:,} | {step} | {time.process_time() - start:.1f} | {peak:.0f} |", flush=True)

        took("(before)", time.process_time())
        start = time.process_time()
        graph = make_graph(points)
        took("graph", start)
        for m in (60, 300):
            start = time.process_time()
            asked = choose_queries("coverage", points, m, seed=0, graph=graph)
            took(f"coverage, {m} queries", start)
        targets = one_hot(rng.integers(0, 10, len(asked)), asked, n, 10)
        start = time.process_time()
        graph.spread(targets, alpha=0.99)
        took("spreading 10 classes", start)
        start = time.process_time()
        next_queries(points, graph, targets, 20, seed=0)
        took("second round", start)
        start = time.process_time()
        GraphStudent(features="given").fit(points, targets)
        took("GraphStudent().fit, the graph included", start)


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {
        "flips": flips,
        "neighbours": neighbours,
        "mnist": mnist,
        "synthetic": synthetic,
        "adult": adult,
        "cost": cost,
    }
    parser.add_argument("part", choices=parts)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--votes", type=Path)
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--first", type=int, default=100, help="the first seed")
    parser.add_argument("--epsilon", type=float, nargs="+")
    parser.add_argument("--points", type=int, nargs="+")
    args = parser.parse_args()
    args.seeds = args.seeds or {"flips": 10, "mnist": 3, "adult": 3}.get(args.part, 5)
    if args.part == "flips" and args.votes is None:
        parser.error("flips needs --votes")
    start = time.process_time()
    parts[args.part](args)
    print(f"\n{time.process_time() - start:.0f} s of processor time")


if __name__ == "__main__":
    main()
