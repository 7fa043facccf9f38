"""Learnt features and the semi-supervised student on MNIST: nearest neighbours, ballots and few labels of teachers.

    PYTHONPATH=src python benchmarks/semi.py --data-dir DIR [--votes VOTES.npz] [--seeds 3] [--workers 6]

DIR holds the four official idx files, packed (.gz) or not. The pool is 9,000 of the 10,000 test points, chosen by the
seed; the people are the 60,000 training points. A student is scored on the 61,000 points outside its pool, and on the
1,000 of them that nobody used. Needs numpy, torch and scikit-learn; noise is seeded, so nothing here is private.
Every line is JSON:

- `features`: how often a pool point and its nearest neighbour have one class, for the net's features, for those in
  whole numbers, and for the points on the grid; and whether CPU and GPU agree on the latter to the last bit.
- `ballots`: 16 partitions of the learnt features, δ = 1e-5; the 70% of the largest margin are the labelled set, all
  labels are first targets. `pool` is the share of right labels, `sure` that of the labelled set.
- `teachers`: 1,000 teachers, m queries at the densest points of m k-means cells, σ = √(2m)/μ, no check, posterior
  confidence as weight, spread labels as first targets. Votes are those of a file (--votes), of teachers trained here
  (--ensembles), or simulated: a point's share of right votes is Beta distributed with mean .88, 70% of the wrong votes
  are for one random class, and the concentration is such that this class has fewer votes at 97.2% of points. Then the
  plurality of 1,000 teachers is right at 97.0 to 97.1% of 9,000 points, and it leads by .80 of the votes on average, by
  .21, .38, .70 and .92 at the 5, 10, 25 and 50% quantiles. Points are equally hard wherever they lie, which is harsher
  than real teachers are at typical points.
"""

import argparse
import gzip
import json
import math
import multiprocessing
import tempfile
import time
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import betainc, softmax
from sklearn.cluster import KMeans

from ipate.accounting.gdp import mu_of
from ipate.ballots.counting import decode
from ipate.public import exact
from ipate.public.cells import PARTITIONS, make_cells, usual_cells
from ipate.public.features import fit_features
from ipate.torch.contrastive import Encoder, train_encoder
from ipate.torch.fixmatch import train_fixmatch
from ipate.torch.nets import NETS
from ipate.torch.training import train_ensemble

PEOPLE, CLASSES, DELTA, SURE, TEACHERS = 60_000, 10, 1e-5, 0.7, 1_000
BALLOTS = (0.05, 0.1, 1.0)
QUERIES = {0.1: 30, 0.2: 60, math.log(2): 200, 1.0: 300}
Job = dict[str, Any]


def main() -> None:
    """Run all jobs in worker processes that share the GPU, and print a line for each as it ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--votes", type=Path, help="votes (teachers × pool) and public (rows of the 70,000)")
    parser.add_argument("--ensembles", type=int, default=0, help="train real teachers for so many of the seeds too")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--encoder-steps", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--pool", type=int, default=9_000)
    parser.add_argument("--people", type=int, default=PEOPLE)
    args = parser.parse_args()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        base = {
            name: value
            for name, value in vars(args).items()
            if name in ("data_dir", "encoder_steps", "steps", "pool", "people")
        }
        base["folder"] = folder
        worlds: list[Job] = [base | {"seed": seed, "votes": None} for seed in range(args.seeds)]
        if args.votes is not None:
            worlds.append(base | {"seed": args.seeds, "votes": args.votes})
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(args.workers, context) as pool:
            first = {pool.submit(learn_features, world): world for world in worlds}
            later = []
            for done in as_completed(first):
                if not show(done, began):
                    continue
                own = first[done]
                if own["votes"] is None:
                    later += [pool.submit(by_ballots, own | {"epsilon": epsilon}) for epsilon in BALLOTS]
                later += [pool.submit(by_teachers, own | {"epsilon": epsilon}) for epsilon in QUERIES]
            real = {pool.submit(train_teachers, world): world for world in worlds[: args.ensembles]}
            for done in as_completed(later):
                show(done, began)
            last = []
            for done in as_completed(real):
                if show(done, began):
                    path = Path(folder) / f"{real[done]['seed']}-counts.npy"
                    last += [pool.submit(by_teachers, real[done] | {"epsilon": e, "counts": path}) for e in QUERIES]
            for done in as_completed(last):
                show(done, began)


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


def learn_features(job: Job) -> Job:
    """Train an encoder on a pool and store it with the points of all rows on the grid."""
    X, y, pool, _ = world_of(job)
    start = time.perf_counter()
    encoder = train_encoder(X[pool], seed=job["seed"], steps=job["encoder_steps"])
    trained = time.perf_counter() - start
    features = fit_features(X[pool], n_classes=CLASSES, kind="learnt", encoder=encoder)
    net = features.net
    assert net is not None
    points = features.transform(X)
    spent = time.perf_counter() - start - trained
    some, gpu = net.features(X[:64]), exact._gpu
    exact._gpu = lambda: None
    same = bool(np.array_equal(some, net.features(X[:64])))
    exact._gpu = gpu
    stored: dict[str, Any] = {f"state/{name}": value.numpy() for name, value in encoder.state.items()}
    np.savez(Path(job["folder"]) / f"{job['seed']}.npz", points=points, **stored)
    near = {"net": encoder.features(X[pool]), "exact": net.features(X[pool]), "grid": points[pool]}
    agree = {name: agreement(found, y[pool]) for name, found in near.items()}
    return {
        "what": "features", "seed": job["seed"], **agree, "dimensions": features.dimensions, "cpu_equals_gpu": same,
        "encoder_s": trained, "transform_s": spent, "device": device_name(),
    }  # fmt: skip


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


def read_features(job: Job) -> tuple[NDArray[np.float64], Encoder]:
    """Return what `learn_features` stored."""
    with np.load(Path(job["folder"]) / f"{job['seed']}.npz") as file:
        names = [name for name in file.files if name.startswith("state/")]
        state = {name.removeprefix("state/"): torch.from_numpy(file[name]) for name in names}
        return file["points"], Encoder(net=NETS["average"], image=(1, 28, 28), state=state)


def by_ballots(job: Job) -> Job:
    """Release the ballots of 60,000 people and teach a student."""
    _, y, pool, _ = world_of(job)
    points, encoder = read_features(job)
    start = time.perf_counter()
    people, weight = job["people"], float(mu_of(job["epsilon"], DELTA)) / math.sqrt(2)
    m = usual_cells(people * weight, n_classes=CLASSES, n_pool=len(pool))
    cells = make_cells(points[pool], cells=m, partitions=PARTITIONS, n_jobs=3)
    where = cells.assign(points[:people])
    flat = np.stack(
        [np.bincount(own.astype(np.int64) * CLASSES + y[:people], minlength=m * CLASSES) for own in where.T]
    )
    generator = np.random.default_rng([job["seed"], 1])
    noisy = flat * (weight / math.sqrt(PARTITIONS)) + generator.normal(size=flat.shape)
    found = decode(np.rint(noisy * 8).astype(np.int64).reshape(PARTITIONS, m, CLASSES), cells.assign(points[pool]))
    order = np.argsort(-found.margins, kind="stable")
    sure = order[: round(SURE * len(order))]
    labels = np.full(len(pool), -1)
    labels[sure] = found.labels[sure]
    made = time.perf_counter() - start
    right = found.labels == y[pool]
    figures = {"cells": m, "pool": float(right.mean()), "sure": float(right[sure].mean()), "ballots_s": made}
    return figures | taught(job, "ballots", labels, encoder, first_targets=found.labels)


def train_teachers(job: Job) -> Job:
    """Train 1,000 teachers of 60 people each, preset "small", and store the counts of their votes on the pool."""
    X, y, pool, _ = world_of(job)
    start = time.perf_counter()
    members = np.array_split(np.random.default_rng([job["seed"], 4]).permutation(job["people"]), TEACHERS)
    ensemble = train_ensemble(X, y, members, n_classes=CLASSES, steps=job["steps"], seed=job["seed"])
    votes = np.concatenate([own for _, own in ensemble.vote(X[pool])], axis=1)
    np.save(Path(job["folder"]) / f"{job['seed']}-counts.npy", of_votes(votes))
    alone = float((votes == y[pool]).mean())
    return {"what": "ensemble", "seed": job["seed"], "alone": alone, "ensemble_s": time.perf_counter() - start}


def by_teachers(job: Job) -> Job:
    """Ask typical points, and teach a student from noisy labels."""
    _, y, pool, _ = world_of(job)
    points, encoder = read_features(job)
    mu, m = float(mu_of(job["epsilon"], DELTA)), QUERIES[job["epsilon"]]
    if job["votes"] is not None:
        with np.load(job["votes"]) as file:
            counts = of_votes(np.asarray(file["votes"]))
    else:
        counts = np.load(job["counts"]) if "counts" in job else simulated(y[pool], job["seed"])
    k = int(counts[0].sum())
    asked = typical(points[pool], m, job["seed"])
    sigma = math.sqrt(2 * m) / mu
    noisy = counts[asked] + np.random.default_rng([job["seed"], 2]).normal(0, sigma, (m, CLASSES))
    noisy = np.rint(noisy * (8 / sigma)) * (sigma / 8)
    labels, weights = np.full(len(pool), -1), np.zeros(len(pool))
    labels[asked] = noisy.argmax(axis=1)
    weights[asked] = softmax(0.5 * k * noisy / sigma**2, axis=1).max(axis=1)
    figures = {
        "teachers": k, "plurality": float((counts.argmax(axis=1) == y[pool]).mean()), "queries": m,
        "noise": sigma / k, "right": float((labels[asked] == y[pool][asked]).mean()),
    }  # fmt: skip
    return figures | taught(job, "teachers", labels, encoder, sample_weight=weights)


def taught(job: Job, what: str, labels: NDArray[np.int64], encoder: Encoder, **options: Any) -> Job:
    """Train a student and score it outside the pool."""
    X, y, pool, rest = world_of(job)
    start = time.perf_counter()
    student = train_fixmatch(
        X[pool], labels, n_classes=CLASSES, encoder=encoder, steps=job["steps"], seed=job["seed"], **options
    )
    spent = time.perf_counter() - start
    right = student.predict(X) == y
    outside = np.ones(len(X), dtype=bool)
    outside[pool] = False
    scores = {"accuracy": float(right[outside].mean()), "unused": float(right[rest].mean()) if len(rest) else None}
    given = Path(job["votes"]).name if job["votes"] else "trained" if "counts" in job else "simulated"
    votes = {"votes": given} if what == "teachers" else {}
    head = {"what": what, **votes, "seed": job["seed"], "epsilon": job["epsilon"], **scores}
    return head | {"in_pool": float(right[pool].mean()), "student_s": spent}


def typical(points: NDArray[np.float64], m: int, seed: int) -> NDArray[np.int64]:
    """Return the densest point of each of m cells: that of the smallest mean distance to its 20 nearest neighbours."""
    unit = points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-12)
    cell = KMeans(m, n_init=1, random_state=seed).fit_predict(unit)
    away = np.empty(len(unit))
    for start in range(0, len(unit), 1000):
        near = -np.partition(-(unit[start : start + 1000] @ unit.T), 21, axis=1)[:, :21]
        away[start : start + 1000] = (1 - near).mean(axis=1)
    return np.array([own[away[own].argmin()] for c in range(m) if len(own := np.flatnonzero(cell == c))])


def simulated(labels: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Return simulated counts of 1,000 teachers, (points, classes), as the docstring above states them."""
    mean, rival, wrong = 0.88, 0.7, 0.028
    edge = rival / (1 + rival)  # the share of right votes below which the rival has more
    size = brentq(lambda c: betainc(mean * c, (1 - mean) * c, edge) - wrong, 0.5, 50)
    generator = np.random.default_rng([seed, 3])
    share = generator.beta(mean * size, (1 - mean) * size, len(labels))
    other = (labels + generator.integers(1, CLASSES, len(labels))) % CLASSES
    law = np.repeat(((1 - rival) * (1 - share) / (CLASSES - 2))[:, None], CLASSES, axis=1)
    rows = np.arange(len(labels))
    law[rows, labels], law[rows, other] = share, rival * (1 - share)
    return generator.multinomial(TEACHERS, law / law.sum(axis=1, keepdims=True))


def of_votes(votes: NDArray[Any]) -> NDArray[np.int64]:
    """Return the counts of votes (teachers, points), (points, classes)."""
    return np.stack([(votes == c).sum(axis=0) for c in range(CLASSES)], axis=1)


if __name__ == "__main__":
    main()
