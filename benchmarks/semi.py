"""Learnt features and the student "semi" on images: nearest neighbours, flips, ballots and few labels of teachers.

    PYTHONPATH=src python benchmarks/semi.py --data-dir DIR [--kept FOLDER] [--votes VOTES.npz] [--seeds 3]

DIR holds the four official idx files of MNIST, packed (.gz) or not; with --svhn FILE.npz (X, y: the official training
images, then the official test images) SVHN is measured too. The pool is 9,000 of the 10,000 test points, chosen by the
seed; the people are the 60,000 training points. A student is scored on the 61,000 points outside its pool, and on the
1,000 of them that nobody used. Encoders and the counts of votes are stored in FOLDER and used again from there. Needs
numpy, torch, scikit-learn and a GPU; noise is seeded, so nothing here is private. Every line is JSON:

- `features`: how often a pool point and its nearest neighbour have one class, for the net's features, for those in
  whole numbers, and for the points on the grid; and whether CPU and GPU agree on the latter to the last bit.
- `flips`, with --flips N, from stored encoders and without a GPU: sub-clusters of at least .67% of the pool of which
  more than half is wrong after spreading 60 true labels, by rule, among 15 sub-clusters of every true class, with N
  seeds of the queries.
- `ballots`: 16 partitions of the learnt features, δ = 1e-5, and the student "semi" with its defaults. `pool` is the
  share of right labels.
- `teachers`: 1,000 teachers of 60 people, preset "small". The number of queries is the student's, σ = √(2m)/μ, no
  check; points by coverage in two rounds, noisy counts, and the student "semi". Each line is one voting. With `mix` the
  teachers are split at random among groups of these shares and budgets, weighted by their μ. `way` leaves out parts:
  "random" and "typical" queries, "coverage", "counts" as confidence, and no spreading in any of these.
- `ingredients`, with --ingredients and no GPU: what a logistic student of the learnt features has from labels of
  random, typical and covering points, with the confidence of noisy counts, and after spreading.
- `svhn`, with --svhn: ballots at ε = 2 in histograms of oriented gradients, and the student "semi" with its defaults.
- With --votes: the same for the votes of a file (teachers × pool) on its pool `public` (rows of the 70,000).
"""

import argparse
import gzip
import itertools
import json
import math
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from ipate.accounting.gdp import mu_of
from ipate.engines.ballots.counting import decode
from ipate.public import integers as exact
from ipate.public.cells import PARTITIONS, make_cells, usual_cells
from ipate.public.features import fit_features, unit_length
from ipate.public.graph import make_graph, margins, usual_alpha
from ipate.release.noise import STEPS, in_steps
from ipate.students.confidence import posterior
from ipate.students.student import Semi
from ipate.torch.contrastive import Encoder, train_encoder
from ipate.torch.fixmatch import train_fixmatch
from ipate.torch.nets import NETS
from ipate.torch.training import train_ensemble

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from paper.pool_students import ask_points

PEOPLE, CLASSES, DELTA, TEACHERS, VOTINGS = 60_000, 10, 1e-5, 1_000, 3
BALLOTS = (0.05, 0.1, 1.0)
BUDGETS = (0.2, math.log(2), 1.0)
MIXES = {
    "50/50% at ln 2/ln 8": ((0.5, math.log(2)), (0.5, math.log(8))),
    "54/37/9% at 1/2/3": ((0.54, 1.0), (0.37, 2.0), (0.09, 3.0)),
}
WAYS = ("random", "typical", "coverage", "counts")
Job = dict[str, Any]


def main() -> None:
    """Run all jobs in worker processes that share the GPU, and print a line for each as it ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--kept", type=Path, default=Path("build/semi"))
    parser.add_argument("--votes", type=Path, help="votes (teachers × pool) and public (rows of the 70,000)")
    parser.add_argument("--svhn", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=math.inf, help="start nothing new after so many seconds")
    parser.add_argument("--encoder-steps", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--pool", type=int, default=9_000)
    parser.add_argument("--people", type=int, default=PEOPLE)
    parser.add_argument("--flips", type=int, default=0, help="count flips alone, with so many new seeds of the queries")
    parser.add_argument("--ingredients", action="store_true", help="measure the parts with a logistic student alone")
    args = parser.parse_args()
    args.kept.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    base = {
        n: v for n, v in vars(args).items() if n in ("data_dir", "kept", "encoder_steps", "steps", "pool", "people")
    }
    worlds: list[Job] = [base | {"seed": seed, "votes": None} for seed in range(args.seeds)]
    if args.flips or args.ingredients:
        for world in worlds:
            if args.flips:
                print(json.dumps(flips(world | {"query_seeds": range(10, 10 + args.flips)})), flush=True)
            for line in ingredients(world) if args.ingredients else ():
                print(json.dumps(line), flush=True)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.workers, context) as pool:
        until = {"until": began + args.seconds}
        apart = [] if args.svhn is None else [pool.submit(street_numbers, base | {"svhn": args.svhn, "seed": 200})]
        first = [pool.submit(prepare, world) for world in worlds]
        if args.votes is not None:
            own = base | {"seed": 100, "votes": args.votes}
            first.append(pool.submit(learn_features, own))
        if sum(show(done, began) for done in as_completed(first)) < len(first):
            raise SystemExit("no encoder or no teachers: nothing more can be measured")
        if args.votes is not None:
            some = [own | until | {"epsilon": 1.0, "voting": voting} for voting in range(VOTINGS)]
            apart += [pool.submit(by_teachers, job) for job in some]
        for alike in zip(*(jobs_of(world) for world in worlds), strict=True):
            apart += [pool.submit(work, job | until) for work, job in alike]
        for done in as_completed(apart):
            show(done, began)


def jobs_of(world: Job) -> list[tuple[Callable[[Job], Job], Job]]:
    """Return what follows when encoder and teachers of a pool are there."""
    found: list[tuple[Callable[[Job], Job], Job]] = [(by_ballots, world | {"epsilon": e}) for e in BALLOTS]
    for voting in range(VOTINGS):
        found += [(by_teachers, world | {"epsilon": epsilon, "voting": voting}) for epsilon in BUDGETS]
    found += [(by_teachers, world | {"epsilon": math.log(2), "voting": 0, "mix": mix}) for mix in MIXES]
    return found + [(by_teachers, world | {"epsilon": math.log(2), "voting": 0, "way": way}) for way in WAYS]


def show(done: Future[Job], began: float) -> bool:
    """Print a line of figures, or what failed; return whether there are figures."""
    error = done.exception()
    line = done.result() if error is None else {"error": f"{type(error).__name__}: {error}"}
    figures = {name: round(value, 5) if isinstance(value, float) else value for name, value in line.items()}
    print(json.dumps(figures | {"at_s": round(time.perf_counter() - began, 1)}), flush=True)
    return error is None


def idx(folder: Path, name: str) -> NDArray[np.uint8]:
    """Read an idx file of bytes: two zeros, type 8, the number of axes, their lengths, the bytes."""
    packed = folder / f"{name}.gz"
    data = gzip.decompress(packed.read_bytes()) if packed.is_file() else (folder / name).read_bytes()
    axes = data[3]
    shape = np.frombuffer(data, ">i4", axes, 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * axes).reshape(shape)


def world_of(job: Job) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return all images, those of people first, and their classes; the rows of the pool and of the unused."""
    X = np.concatenate([idx(job["data_dir"], f"{part}-images-idx3-ubyte") for part in ("train", "t10k")])
    y = np.concatenate([idx(job["data_dir"], f"{part}-labels-idx1-ubyte") for part in ("train", "t10k")])
    if job["votes"] is not None:
        with np.load(job["votes"]) as file:
            return X, y.astype(np.int64), np.asarray(file["public"], dtype=np.int64), np.empty(0, np.int64)
    kept = np.r_[: job["people"], PEOPLE : len(X)]
    shuffled = job["people"] + np.random.default_rng(job["seed"]).permutation(len(X) - PEOPLE)
    return X[kept], y[kept].astype(np.int64), shuffled[: job["pool"]], shuffled[9_000:]


def prepare(job: Job) -> Job:
    """Train what is not stored yet for a pool: its encoder, and the teachers that vote on it."""
    return learn_features(job) | train_teachers(job)


def learn_features(job: Job) -> Job:
    """Train an encoder on a pool and store it, and compare its features with those in whole numbers."""
    X, y, pool, _ = world_of(job)
    path, start = Path(job["kept"]) / f"encoder-{job['seed']}.npz", time.perf_counter()
    if not path.is_file():
        encoder = train_encoder(X[pool], seed=job["seed"], steps=job["encoder_steps"])
        stored: dict[str, Any] = {name: value.numpy() for name, value in encoder.state.items()}
        np.savez(path, **stored)
    trained = time.perf_counter() - start
    encoder = read_encoder(job)
    features = fit_features(X[pool], n_classes=CLASSES, kind="learnt", encoder=encoder)
    net = features.net
    assert net is not None
    points = features.transform(X)
    spent = time.perf_counter() - start - trained
    some, gpu = net.features(X[:64]), exact._gpu
    exact._gpu = lambda: None
    same = bool(np.array_equal(some, net.features(X[:64])))
    exact._gpu = gpu
    np.save(Path(job["kept"]) / f"points-{job['seed']}.npy", points)
    near = {"net": unit_length(encoder.features(X[pool])), "exact": net.features(X[pool]), "grid": points[pool]}
    agree = {name: agreement(found, y[pool]) for name, found in near.items()}
    return {
        "what": "features",
        "seed": job["seed"],
        **agree,
        "dimensions": features.dimensions,
        "cpu_equals_gpu": same,
        "encoder_s": trained,
        "transform_s": spent,
        "device": device_name(),
    }


def device_name() -> str:
    """Return the device that "auto" takes."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


def agreement(points: NDArray[Any], labels: NDArray[np.int64]) -> float:
    """Return the share of points whose nearest neighbour by Euclidean distance has the same class."""
    found = np.asarray(points, dtype=np.float64)
    squares, right = np.square(found).sum(axis=1), 0
    for start in range(0, len(found), 1000):
        away = squares - 2 * found[start : start + 1000] @ found.T
        away[np.arange(len(away)), start + np.arange(len(away))] = np.inf
        right += int((labels[away.argmin(axis=1)] == labels[start : start + 1000]).sum())
    return right / len(found)


def read_encoder(job: Job) -> Encoder:
    """Return the stored encoder of a pool."""
    with np.load(Path(job["kept"]) / f"encoder-{job['seed']}.npz") as file:
        state = {name: torch.from_numpy(file[name]) for name in file.files}
    return Encoder(net=NETS["average"], image=(1, 28, 28), state=state)


def by_ballots(job: Job) -> Job:
    """Release the ballots of all people and teach a student."""
    _, y, pool, _ = world_of(job)
    points, start = np.load(Path(job["kept"]) / f"points-{job['seed']}.npy"), time.perf_counter()
    found, cells = cast(points, y, pool, job["people"], job)
    figures = {"cells": cells, "pool": float((found.labels == y[pool]).mean())}
    figures["ballots_s"] = time.perf_counter() - start
    return figures | taught(job, "ballots", found.labels, sample_weight=found.sample_weight)


def cast(
    points: NDArray[np.float64], y: NDArray[np.int64], pool: NDArray[np.int64], people: int, job: Job
) -> tuple[Any, int]:
    """Return what the pool's points get from the ballots of the first rows, and the number of cells."""
    weight = float(mu_of(job["epsilon"], DELTA)) / math.sqrt(2)
    m = usual_cells(people * weight, n_classes=CLASSES, n_pool=len(pool))
    cells = make_cells(points[pool], cells=m, partitions=PARTITIONS, n_jobs=8)
    where = cells.assign(points[:people])
    flat = np.stack(
        [np.bincount(own.astype(np.int64) * CLASSES + y[:people], minlength=m * CLASSES) for own in where.T]
    )
    generator = np.random.default_rng([job["seed"], 1])
    noisy = flat * (weight / math.sqrt(PARTITIONS)) + generator.normal(size=flat.shape)
    steps = np.rint(noisy * 8).astype(np.int64).reshape(PARTITIONS, m, CLASSES)
    return decode(steps, cells.assign(points[pool])), m


def train_teachers(job: Job) -> Job:
    """Train 1,000 teachers of 60 people each, preset "small", and store the counts of their votes on the pool."""
    X, y, pool, _ = world_of(job)
    path, start = Path(job["kept"]) / f"counts-{job['seed']}.npy", time.perf_counter()
    if not path.is_file():
        members = np.array_split(np.random.default_rng([job["seed"], 4]).permutation(job["people"]), TEACHERS)
        ensemble = train_ensemble(X, y, members, n_classes=CLASSES, steps=job["steps"], seed=job["seed"])
        np.save(path, of_votes(np.concatenate([own for _, own in ensemble.vote(X[pool])], axis=1)))
    counts = np.load(path)
    alone = float(counts[np.arange(len(pool)), y[pool]].sum() / counts.sum())
    return {
        "alone": alone,
        "plurality": float((counts.argmax(axis=1) == y[pool]).mean()),
        "ensemble_s": time.perf_counter() - start,
    }


def by_teachers(job: Job) -> Job:
    """Ask points of the pool, and teach a student from what was released."""
    X, y, pool, _ = world_of(job)
    known, m, noise = released(job)
    way, points = job.get("way"), unit_length(read_encoder(job).features(X[pool]))
    rule = way if way in ("random", "typical") else "coverage"
    asked, targets = ask_points(points, make_graph(points, n_jobs=2), known, m, seed=job["seed"], rule=rule)
    right = float((known[asked].argmax(axis=1) == y[pool][asked]).mean())
    figures = {"queries": len(asked), "noise": noise, "right": right}
    figures |= {name: job[name] for name in ("voting", "mix", "way") if name in job}
    if way is None:
        return figures | taught(job, "teachers", targets.argmax(axis=1), targets=targets)
    labels = np.where(targets.any(axis=1), targets.argmax(axis=1), -1)
    return figures | taught(job, "teachers", labels, sample_weight=targets.max(axis=1) if way == "counts" else None)


def released(job: Job) -> tuple[NDArray[np.float64], int, float]:
    """Return the posterior that noisy counts of every point would give, the number of queries, and σ/k."""
    generator = np.random.default_rng([job["seed"], 2, job["voting"]])
    if job["votes"] is not None:
        with np.load(job["votes"]) as file:
            counts = of_votes(np.asarray(file["votes"])).astype(float)
    else:
        counts = np.load(Path(job["kept"]) / f"counts-{job['seed']}.npy").astype(float)
    k, q = counts[0].sum(), float(mu_of(job["epsilon"], DELTA))
    if "mix" in job:
        counts, q = weighted(counts, MIXES[job["mix"]], generator)
    m = Semi().labels_wanted(int(k), q, n_classes=CLASSES)
    assert m is not None
    sigma = math.sqrt(2 * m) / q
    steps = in_steps(counts + generator.normal(0, sigma, counts.shape), sigma=sigma)
    return posterior(steps, step=sigma / STEPS, total_weight=k), m, sigma / k


def ingredients(job: Job) -> Iterator[Job]:
    """Yield what a logistic student of learnt features gains from each part, at every budget and voting."""
    X, y, pool, _ = world_of(job)
    every = unit_length(read_encoder(job).features(X))
    points, outside = every[pool], np.setdiff1d(np.arange(len(X)), pool)
    graph, scaled = make_graph(points), StandardScaler().fit(points).transform(every)
    for epsilon, voting in itertools.product(BUDGETS, range(VOTINGS)):
        known, m, _ = released(job | {"epsilon": epsilon, "voting": voting})
        scores: Job = {}
        for rule in ("random", "typical", "coverage"):
            asked, targets = ask_points(points, graph, known, m, seed=job["seed"], rule=rule)
            spread = graph.spread(targets, alpha=usual_alpha(m, len(points)))
            for part, rows, told, weights in (
                ("labels", asked, targets, None),
                ("counts", asked, targets, targets.max(axis=1)),
                ("spreading", np.arange(len(points)), spread, margins(spread)),
            ):
                model = LogisticRegression(max_iter=1000).fit(
                    scaled[pool[rows]], told[rows].argmax(axis=1), None if weights is None else weights[rows]
                )
                scores[f"{rule}, {part}"] = float((model.predict(scaled[outside]) == y[outside]).mean())
        head = {"what": "ingredients", "seed": job["seed"], "epsilon": epsilon, "voting": voting, "queries": m}
        yield head | scores


def weighted(
    counts: NDArray[np.float64], mix: tuple[tuple[float, float], ...], generator: np.random.Generator
) -> tuple[NDArray[np.float64], float]:
    """Split teachers at random among groups, point by point, and return the weighted counts with the least μ/w."""
    k = int(counts[0].sum())
    sizes = np.diff(np.rint(np.cumsum([0, *(share for share, _ in mix)]) * k)).astype(int)
    mu = np.array([float(mu_of(epsilon, DELTA)) for _, epsilon in mix])
    weights = mu * k / (mu @ sizes)
    left, found = counts.astype(np.int64), np.zeros_like(counts)
    for size, weight in zip(sizes[:-1], weights[:-1], strict=True):
        own = np.stack([generator.multivariate_hypergeometric(row, size) for row in left])
        left, found = left - own, found + weight * own
    return found + weights[-1] * left, float((mu / weights).min())


def flips(job: Job) -> Job:
    """Count flipped sub-clusters after spreading 60 true labels over the learnt features, by rule of the queries."""
    X, y, pool, _ = world_of(job)
    truth, points = y[pool], unit_length(read_encoder(job).features(X[pool]))
    part = np.zeros(len(truth), dtype=int)
    for c in range(CLASSES):
        own = truth == c
        part[own] = 15 * c + KMeans(15, n_init=3, random_state=0).fit_predict(points[own])
    size = np.bincount(part, minlength=15 * CLASSES)
    graph, found = make_graph(points, n_jobs=2), {}
    for rule in ("random", "typical", "coverage"):
        for seed in job["query_seeds"]:
            asked, targets = ask_points(points, graph, np.eye(CLASSES)[truth], 60, seed=seed, rule=rule)
            wrong = graph.spread(targets, alpha=usual_alpha(len(asked), len(truth))).argmax(axis=1) != truth
            share = np.bincount(part, weights=wrong, minlength=len(size)) / np.maximum(size, 1)
            large = size >= 0.0067 * len(truth)
            found[f"{rule}-{seed}"] = int(((share > 0.5) & large).sum())
    return {"what": "flips", "seed": job["seed"], **found}


def street_numbers(job: Job) -> Job:
    """Ballots on SVHN at ε = 2: the official training images are people, 26,000 of the test images the pool."""
    with np.load(job["svhn"]) as file:
        X, y = file["X"], file["y"].astype(np.int64)
    people, own, student = 73_257, job | {"epsilon": 2.0}, Semi()
    pool, start = np.arange(people, people + 26_000), time.perf_counter()
    features = fit_features(X[pool], n_classes=CLASSES, kind=student.embedding(X.shape[1:]))
    points = features.transform(X)
    near = agreement(features.directions(X[pool]), y[pool])
    found, cells = cast(points, y, pool, people, own)
    released = time.perf_counter() - start
    made = student.fit(
        student.make({"steps": job["steps"]}, seed=0),
        X[pool],
        found.labels,
        n_classes=CLASSES,
        sample_weight=found.sample_weight,
    )
    right = made.predict(X) == y
    outside = np.ones(len(X), dtype=bool)
    outside[pool] = False
    return {
        "what": "svhn",
        "epsilon": 2.0,
        "cells": cells,
        "agreement": near,
        "ballots_s": released,
        "pool": float((found.labels == y[pool]).mean()),
        "in_pool": float(right[pool].mean()),
        "accuracy": float(right[outside].mean()),
        "student_s": time.perf_counter() - start - released,
    }


def taught(job: Job, what: str, labels: NDArray[np.int64], **options: Any) -> Job:
    """Train a student and score it outside the pool."""
    head = {"what": what, "seed": job["seed"], "epsilon": job["epsilon"]}
    if time.perf_counter() > job.get("until", math.inf):
        return head | {"skipped": "no time"}
    X, y, pool, rest = world_of(job)
    start, encoder = time.perf_counter(), read_encoder(job)
    if "way" in job:  # without spreading
        student: Any = train_fixmatch(
            X[pool], labels, n_classes=CLASSES, encoder=encoder, steps=job["steps"], seed=job["seed"], **options
        )
    else:
        made = Semi().make({"steps": job["steps"]}, seed=job["seed"])
        student = Semi().fit(made, X[pool], labels, n_classes=CLASSES, encoder=encoder, **options)
    spent = time.perf_counter() - start
    right = student.predict(X) == y
    outside = np.ones(len(X), dtype=bool)
    outside[pool] = False
    scores = {"accuracy": float(right[outside].mean()), "unused": float(right[rest].mean()) if len(rest) else None}
    return head | scores | {"in_pool": float(right[pool].mean()), "student_s": spent}


def of_votes(votes: NDArray[Any]) -> NDArray[np.int64]:
    """Return the counts of votes (teachers, points), (points, classes)."""
    return np.stack([(votes == c).sum(axis=0) for c in range(CLASSES)], axis=1)


if __name__ == "__main__":
    main()
