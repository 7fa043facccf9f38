"""Measure ballots: accuracy with the public feature rule, where it fails, what a million people cost, and kills.

    python benchmarks/ballots.py [--only digits cancer synthetic-1000 …] [--seeds 5] [--data-dir FOLDER]
    python benchmarks/ballots.py --part paired | teachers | failures | cost | kills

Accuracy is percent right on held-out rows, mean ± sd over fresh splits, of a logistic student that is taught by the
released labels with their confidence weights; δ = 1/(10·people). "automatic" is the rule of `ipate.public.features`,
"hand-set" are features that were chosen for each data set. Noise is seeded: nothing here is a private release.
"""

import argparse
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.engines.ballots.counting import Decoded, Histogram
from ipate.engines.ballots.design import ballot_terms, make_design
from ipate.engines.ballots.release import PublicMaps, release
from ipate.ledger.admission import Roster
from ipate.ledger.base import Opening
from ipate.ledger.sqlite import SqliteLedger
from ipate.people.people import People
from ipate.public.features import Features, fit_features
from ipate.release.noise import SecureNoise, SeededNoise
from ipate.students.student import find_student

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from paper.data import load

Array = NDArray[Any]
MIX = (0.54, 0.37, 0.09)
BUDGETS: dict[str, tuple[float, ...]] = {
    "0.1": (0.1,),
    "1": (1.0,),
    "3": (3.0,),
    "54/37/9% at .1/.5/2": (0.1, 0.5, 2.0),
    "54/37/9% at 1/2/3": (1.0, 2.0, 3.0),
}
STRICTEST = {"54/37/9% at .1/.5/2": "0.1", "54/37/9% at 1/2/3": "1"}


@dataclass(frozen=True, kw_only=True)
class Split:
    """Fresh private, pool and test rows of a data set, and how its features were set by hand."""

    private: tuple[Array, Array]
    pool: tuple[Array, Array]
    test: tuple[Array, Array]
    n_classes: int
    hand: Callable[[Array], Features] | int | None  # features, the number of principal components, or as they are


def split(X: Array, y: Array, people: int, pool: int, *, seed: int, hand: Any, n_test: int = 10_000) -> Split:
    """Deal rows to people, pool and test at random."""
    order = np.random.default_rng(1000 + seed).permutation(len(X))
    parts = np.split(order, [people, people + pool])
    parts[2] = parts[2][:n_test]
    rows = [(X[part], y[part]) for part in parts]
    return Split(private=rows[0], pool=rows[1], test=rows[2], n_classes=int(y.max()) + 1, hand=hand)


def digits(seed: int, data_dir: str | None) -> Split:
    """The 1,797 digits of 8 × 8 pixels: 1,100 people, a pool of 400."""
    data = load("digits")
    return split(data.X.astype(np.float64), data.y, 1100, 400, seed=seed, hand=20)


def cancer(seed: int, data_dir: str | None) -> Split:
    """Breast cancer: 350 people, a pool of 100."""
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    return split(X, y, 350, 100, seed=seed, hand=6)


def synthetic(people: int) -> Callable[[int, str | None], Split]:
    """Synthetic patients with a pool of 5,000."""

    def made(seed: int, data_dir: str | None) -> Split:
        data = load("synthetic", n_people=people + 10_000, seed=seed + 500)
        return split(data.X.astype(np.float64), data.y, people, 5000, seed=seed, hand=None)

    return made


def adult(seed: int, data_dir: str | None) -> Split:
    """Adult, one-hot: 32,222 people, a pool of 8,000."""
    data = load("adult", data_dir=data_dir, encoding="onehot")
    return split(data.X.astype(np.float64), data.y, 32_222, 8000, seed=seed, hand=None)


def mnist(seed: int, data_dir: str | None) -> Split:
    """MNIST: 60,000 people, a pool of 9,000; by hand, 64 principal components of the same gradients."""
    data = load("mnist", data_dir=data_dir)
    return split(data.X, data.y, 60_000, 9000, seed=seed, hand=64)


SETS: dict[str, Callable[[int, str | None], Split]] = {
    "digits": digits,
    "cancer": cancer,
    **{f"synthetic-{people}": synthetic(people) for people in (1000, 2000, 5000, 40_000)},
    "adult": adult,
    "mnist": mnist,
}


def standardise(pool: Array, *others: Array) -> list[Array]:
    """Scale flat rows by the pool's means and deviations."""
    flat = [rows.reshape(len(rows), -1).astype(np.float64) for rows in (pool, *others)]
    mean, spread = flat[0].mean(axis=0), flat[0].std(axis=0)
    return [(rows - mean) / np.where(spread > 0, spread, 1.0) for rows in flat]


def by_hand(data: Split) -> tuple[Features, Array, Array]:
    """Features as set by hand, with pool and private rows in the form that they take."""
    from sklearn.decomposition import PCA

    pool, private = data.pool[0], data.private[0]
    if data.hand is None:
        return fit_features(pool, n_classes=data.n_classes, kind="given"), pool, private
    if pool.ndim == 3 and pool.shape[1] >= 16:
        from ipate.public.integers import gradients

        pool, private = (
            np.concatenate(
                [gradients(part.astype(float), bytes_=True) for part in np.array_split(rows, len(rows) // 2000)]
            )
            for rows in (pool, private)
        )
    elif pool.ndim == 3:
        pool, private = (rows.reshape(len(rows), -1) for rows in (pool, private))
    else:
        pool, private = standardise(pool, private)
    fitted = PCA(data.hand, svd_solver="covariance_eigh").fit(pool)
    pool, private = fitted.transform(pool), fitted.transform(private)
    return fit_features(pool, n_classes=data.n_classes, kind="given"), pool, private


def people_of(n: int, budget: tuple[float, ...], seed: int) -> People:
    """People with one ε, or with three in the shares of `MIX`, dealt at random."""
    ends = np.rint(np.cumsum(MIX) * n).astype(int)
    own = np.repeat(budget, np.diff([0, *ends])) if len(budget) > 1 else np.full(n, budget[0])
    return People.from_budgets(np.random.default_rng(seed).permutation(own), delta=1 / (10 * n))


def student_rows(data: Split, features: Features) -> tuple[Array, Array]:
    """Pool and test rows as the student sees them: features of large images, else standardised values or pixels."""
    pool, test = data.pool[0], data.test[0]
    if features.gradients:
        points = features.transform(pool)
        scale = 4 / points[:, 0].std()
        return scale * points, scale * features.transform(test)
    if pool.ndim == 3:
        return pool.reshape(len(pool), -1), test.reshape(len(test), -1)
    first, second = standardise(pool, test)
    return first, second


def score(data: Split, rows: tuple[Array, Array], labels: Array, decoded: Decoded | None = None) -> tuple[float, float]:
    """Percent right of a logistic student on the test rows, and of its worst class."""
    from sklearn.linear_model import LogisticRegression

    student = find_student(LogisticRegression(max_iter=1000))
    known: dict[str, Any] = {} if decoded is None else {"sample_weight": decoded.sample_weight}
    if decoded is not None and student.reviews and decoded.reviewable:
        known["review"] = decoded.review
    trained = student.fit(student.make({}), rows[0], labels, n_classes=data.n_classes, **known)
    right = trained.predict(rows[1]) == data.test[1]
    return 100 * float(right.mean()), 100 * min(right[data.test[1] == c].mean() for c in range(data.n_classes))


def teach(
    data: Split,
    features: Features,
    pool: Array,
    private: Array,
    budget: tuple[float, ...],
    *,
    seed: int,
    kept: dict[Any, PublicMaps],
    rows: tuple[Array, Array],
    draw: int = 0,
) -> tuple[tuple[float, float], int, float, tuple[str, ...]]:
    """Release ballots and teach a student: its scores, the number of cells, Σw/σ and what the user is told."""
    people = people_of(len(private), budget, seed)
    design = make_design(ballot_terms(people.groups), n_classes=data.n_classes, n_pool=len(pool))
    key = (id(features), design.cells)
    if key not in kept:
        kept[key] = PublicMaps.make(pool, n_classes=data.n_classes, cells=design.cells, features=features)
    found = release(
        pool,
        private,
        data.private[1],
        people,
        n_classes=data.n_classes,
        maps=kept[key],
        noise=SeededNoise(seed + 100_000 * draw),
    )
    right = score(data, rows, found.labelling.labels, found.decoded)
    return right, design.cells, design.affordable, found.notes


def shown(values: Iterable[float]) -> str:
    """Mean ± sd."""
    own = np.array(list(values))
    return f"{own.mean():.1f} ± {own.std(ddof=1) if len(own) > 1 else 0:.1f}"


def accuracy(names: Iterable[str], *, seeds: range, data_dir: str | None, budgets: list[str]) -> None:
    """Print the table of accuracies."""
    print(
        "| data | ε | cells | Σw/σ | automatic | hand-set | everybody at the strictest ε | ceiling |\n|" + " --- |" * 8
    )
    for name in names:
        found: dict[tuple[str, str], list[float]] = {}
        figures: dict[str, tuple[int, float]] = {}
        ceiling = []
        for seed in seeds:
            data = SETS[name](seed, data_dir)
            auto = fit_features(data.pool[0], n_classes=data.n_classes)
            rows = student_rows(data, auto)
            kept: dict[Any, PublicMaps] = {}
            ceiling.append(score(data, rows, data.pool[1])[0])
            ways = {"auto": (auto, data.pool[0], data.private[0]), "hand": by_hand(data)}
            for budget in budgets:
                for way, (features, pool, private) in ways.items():
                    (right, _), cells, weight, _ = teach(
                        data, features, pool, private, BUDGETS[budget], seed=seed, kept=kept, rows=rows
                    )
                    found.setdefault((budget, way), []).append(right)
                    figures[budget] = (cells, weight)
        for budget in budgets:
            strictest = STRICTEST.get(budget)
            cells, weight = figures[budget]
            least = shown(found[strictest, "auto"]) if strictest in budgets else ""
            auto_, hand = (shown(found[budget, way]) for way in ("auto", "hand"))
            line = f"| {name} | {budget} | {cells} | {weight:.0f} | {auto_} | {hand} | {least} | {shown(ceiling)} |"
            print(line, flush=True)


def paired(names: Iterable[str], *, seeds: range, draws: int, data_dir: str | None, budgets: list[str]) -> None:
    """Print how far automatic features are from hand-set ones on the same splits, each with several draws of noise."""
    print("| data | ε | automatic | hand-set | difference ± standard error |\n|" + " --- |" * 5)
    for name in names:
        found: dict[str, list[list[float]]] = {budget: [] for budget in budgets}
        for seed in seeds:
            data = SETS[name](seed, data_dir)
            auto = fit_features(data.pool[0], n_classes=data.n_classes)
            rows, kept = student_rows(data, auto), dict[Any, PublicMaps]()
            ways = ((auto, data.pool[0], data.private[0]), by_hand(data))
            for budget in budgets:
                own = [
                    [
                        teach(data, *way, BUDGETS[budget], seed=seed, kept=kept, rows=rows, draw=draw)[0][0]
                        for way in ways
                    ]
                    for draw in range(draws)
                ]
                found[budget].append(np.mean(own, axis=0).tolist())
        for budget in budgets:
            right = np.array(found[budget])
            gap = right[:, 0] - right[:, 1]
            error = gap.std(ddof=1) / np.sqrt(len(gap)) if len(gap) > 1 else 0.0
            cells = f"{shown(right[:, 0])} | {shown(right[:, 1])} | {gap.mean():+.1f} ± {error:.1f}"
            print(f"| {name} | {budget} | {cells} |", flush=True)


def teachers(names: Iterable[str], *, seeds: int, data_dir: str | None, budgets: list[str]) -> None:
    """Print what PATE gives on the same splits: logistic teachers and defaults, but one label per class is enough."""
    from sklearn.linear_model import LogisticRegression

    from ipate import PATEClassifier
    from ipate.errors import IpateError

    print("| data | ε | PATE, weighting | labels | PATE at the strictest ε | labels |\n|" + " --- |" * 6)
    for name in names:
        found: dict[tuple[str, str], list[tuple[float, int]]] = {}
        for seed in range(seeds):
            data = SETS[name](seed, data_dir)
            pool, private, test = standardise(data.pool[0], data.private[0], data.test[0])
            for budget in budgets:
                people = people_of(len(private), BUDGETS[budget], seed)
                epsilon = np.array([group.epsilon for group in people.groups])[people.group_of_person]
                for variant in ("weighting", "standard") if budget in STRICTEST else ("weighting",):
                    model = PATEClassifier(
                        LogisticRegression(max_iter=1000),
                        LogisticRegression(max_iter=1000),
                        variant=variant,
                        verbose=0,
                        delta=1 / (10 * len(private)),
                        classes=range(data.n_classes),
                        random_state=seed,
                        noise_seed=seed,
                        n_jobs=1,
                        backend="sequential",
                        min_labels=data.n_classes,
                    )
                    try:
                        model.fit(private, data.private[1], budgets=epsilon, X_public=pool)
                        right = 100 * float(model.score(test, data.test[1]))
                        found.setdefault((budget, variant), []).append((right, int((model.labels_ >= 0).sum())))
                    except IpateError:  # fewer labels are expected than there are classes
                        found.setdefault((budget, variant), [])
        for budget in budgets:
            cells = []
            for variant in ("weighting", "standard"):
                own = found.get((budget, variant))
                refused = ["" if own is None else "refused", ""]
                cells += [shown(r for r, _ in own), f"{np.mean([n for _, n in own]):.0f}"] if own else refused
            print(f"| {name} | {budget} | {' | '.join(cells)} |", flush=True)


def failures(*, seeds: int) -> None:
    """Print where ballots fail: synthetic patients, 5,000 people, ε = 1."""

    def keep(data: Split, chosen: Array) -> Split:
        pool = (data.pool[0][chosen], data.pool[1][chosen])
        return Split(**{**vars(data), "pool": pool})

    def useless(data: Split, n: int, seed: int) -> Split:
        rng = np.random.default_rng(seed)
        wide = {
            part: (np.column_stack([rows, rng.standard_normal((len(rows), n))]), y)
            for part, (rows, y) in (("private", data.private), ("pool", data.pool), ("test", data.test))
        }
        return Split(**{**vars(data), **wide})

    every = np.arange(5000)
    cases: dict[str, Callable[[Split, int], Split]] = {
        "pool of 5,000": lambda data, seed: data,
        **{f"pool of {n:,}": lambda data, seed, n=n: keep(data, every[:n]) for n in (1500, 500, 150, 60)},  # type: ignore[misc]
        "9 in 10 of one class missing from the pool": lambda data, seed: keep(
            data, (data.pool[1] != 3) | (every % 10 == 0)
        ),
        "one class missing from the pool": lambda data, seed: keep(data, data.pool[1] != 3),
        "pool moved by .5 sd in every feature": lambda data, seed: Split(
            **{**vars(data), "pool": (data.pool[0] + 0.5, data.pool[1])}
        ),
        "20 useless features": lambda data, seed: useless(data, 20, seed),
        "100 useless features": lambda data, seed: useless(data, 100, seed),
    }
    print("| case | automatic | worst class | as given | told beforehand |\n|" + " --- |" * 5)
    for case, change in cases.items():
        auto: list[float] = []
        given: list[float] = []
        worst, told = [], set()
        for seed in range(seeds):
            data = change(SETS["synthetic-5000"](seed, None), seed)
            features = fit_features(data.pool[0], n_classes=6)
            rows = student_rows(data, features)
            for own, kept in ((features, auto), (fit_features(data.pool[0], n_classes=6, kind="given"), given)):
                (right, least), _, _, notes = teach(
                    data, own, data.pool[0], data.private[0], (1.0,), seed=seed, kept={}, rows=rows
                )
                kept.append(right)
                if own is features:
                    worst.append(least)
                    told |= set(notes)
        line = "; ".join(sorted(note.split(":")[1].strip() for note in told)) or "nothing"
        print(f"| {case} | {shown(auto)} | {shown(worst)} | {shown(given)} | {line} |", flush=True)


def cost() -> None:
    """Print seconds and memory for up to a million people, 20 columns and a pool of 20,000."""
    rng = np.random.default_rng(0)
    pool = rng.standard_normal((20_000, 20))
    clock = time.perf_counter(), time.process_time()
    maps = PublicMaps.make(pool, n_classes=6, cells=500, n_jobs=2)
    print(f"features and 16 × 500 cells of a pool of 20,000: {_took(clock)}", flush=True)
    for people in (125_000, 250_000, 500_000, 1_000_000):
        X, y = rng.standard_normal((people, 20), dtype=np.float32), rng.integers(0, 6, people)
        who = People.from_budgets(np.full(people, 1.0), delta=1e-7)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        clock = time.perf_counter(), time.process_time()
        release(pool, X, y, who, n_classes=6, maps=maps, noise=SecureNoise())
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        memory = f"peak memory {peak / 1024:.0f} MiB ({before / 1024:.0f} before)"
        print(f"{people:,} people: {_took(clock)}, {memory}", flush=True)


def _took(start: tuple[float, float]) -> str:
    elapsed, used = time.perf_counter() - start[0], time.process_time() - start[1]
    return f"{elapsed:.1f} s ({used:.1f} s of processor time)"


def kills(wanted: int) -> None:
    """Kill releasing processes at random moments: nothing uncharged is seen, and no second draw is made."""
    rng, chance = np.random.default_rng(0), random.Random(0)
    y, pool = rng.integers(0, 3, 600), rng.standard_normal((200, 3))
    X = rng.standard_normal((600, 3)) + y[:, None]
    people = People.from_budgets(np.tile([0.5, 1.0, 2.0], 200), delta=1e-4)
    members = {str(name): people.groups[g].id for name, g in zip(people.ids, people.group_of_person, strict=True)}
    maps = PublicMaps.make(pool, n_classes=3, cells=6, partitions=4)

    opening = Opening(terms=ballot_terms(people.groups), roster=Roster(people=members))

    def work(path: Path, told: Path) -> None:
        with SqliteLedger.begin(path, opening) as book:
            found = release(pool, X, y, people, n_classes=3, ledger=book, maps=maps)
        with open(told, "a", encoding="utf-8") as file:
            file.write(found.histogram.fingerprint + "\n")

    killed = committed = silent = 0
    with tempfile.TemporaryDirectory(prefix="ipate-ballots-") as name:
        start = time.perf_counter()
        work(Path(name) / "first.sqlite", Path(name) / "first.told")
        unit = time.perf_counter() - start
        number = 0
        while killed < wanted:
            path, told = Path(name) / f"{number}.sqlite", Path(name) / f"{number}.told"
            number += 1
            for _ in range(3):
                child = os.fork()
                if child == 0:
                    work(path, told)
                    os._exit(0)
                time.sleep(unit * 1.3 * chance.random())
                os.kill(child, signal.SIGKILL)
                killed += os.WIFSIGNALED(os.waitpid(child, 0)[1])
            seen = told.read_text().splitlines() if told.exists() else []
            try:
                with SqliteLedger.read(path) as book:
                    stored, spent = Histogram.of(book), [book.spent(a).any() for a in book.terms]
                    charges = len(book.charges)
            except Exception:  # killed before the file was complete
                stored, spent, charges = None, [], 0
            if (stored is None) != (not any(spent)) or charges > 1 or (stored is None and seen):
                raise AssertionError("a charge without its histogram, a second charge, or a release that nobody paid")
            if stored is not None and any(line != stored.fingerprint for line in seen):
                raise AssertionError("another histogram was seen than the one that was charged")
            committed += stored is not None
            silent += stored is not None and not seen
            work(path, told)
            final = told.read_text().splitlines()
            if len(set(final)) != 1 or (stored is not None and final[-1] != stored.fingerprint):
                raise AssertionError("a second draw was made")
    print(
        f"{killed} kills, {number} ledgers: {committed} had been charged when they were inspected, {silent} of them "
        "before anything was seen; nothing uncharged was seen and no second draw was made"
    )


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--part", choices=["accuracy", "paired", "teachers", "failures", "cost", "kills"], default="accuracy"
    )
    parser.add_argument("--only", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--budgets", nargs="+", choices=list(BUDGETS), default=list(BUDGETS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0, help="of accuracy and paired")
    parser.add_argument("--draws", type=int, default=8, help="of noise for every split, of paired")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--data-dir")
    asked = parser.parse_args()
    seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
    if asked.part == "accuracy":
        accuracy(asked.only, seeds=seeds, data_dir=asked.data_dir, budgets=asked.budgets)
    elif asked.part == "paired":
        paired(asked.only, seeds=seeds, draws=asked.draws, data_dir=asked.data_dir, budgets=asked.budgets)
    elif asked.part == "teachers":
        teachers(asked.only, seeds=asked.seeds, data_dir=asked.data_dir, budgets=asked.budgets)
    elif asked.part == "failures":
        failures(seeds=asked.seeds)
    elif asked.part == "cost":
        cost()
    else:
        kills(asked.kills)
    return 0


if __name__ == "__main__":
    sys.exit(main())
