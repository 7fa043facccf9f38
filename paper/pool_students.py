"""ipate's students that use the whole pool, "graph" and "semi", as training jobs: they choose their own queries.

A job holds the noisy counts that every point of the pool would get. Its student asks for some of them, in the features
that suit it: three quarters by coverage, the others where the released ones leave most doubt. All of it is
post-processing of what was asked. What students of one pool share (features, graph, first queries) is made once.
"""

import hashlib
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate._types import Floats, Ints
from ipate.errors import InputError
from ipate.public.features import pool_encoder, unit_length
from ipate.public.graph import Graph, make_graph
from ipate.public.queries import choose_queries, next_queries, second_round
from ipate.release.noise import STEPS
from ipate.students.confidence import posterior
from ipate.students.spreading import pool_graph
from ipate.students.student import STUDENTS
from paper.jobs import SEMI, Job, Result, narrow


def ask_points(
    points: Floats, graph: Graph, known: Floats, m: int, *, seed: int, rule: str = "coverage", first: Ints | None = None
) -> tuple[Ints, Floats]:
    """Return the m points that are asked, and what is then known of the pool: their rows of `known`, zeros elsewhere.

    Coverage asks in two rounds. `first` are the points of the first round, if they were chosen before.
    """
    if first is None:
        first = first_queries(points, graph, m, seed=seed, rule=rule)
    targets = np.zeros_like(known)
    targets[first] = known[first]
    if len(first) == m:
        return first, targets
    more = next_queries(points, graph, targets, m - len(first), seed=seed)
    targets[more] = known[more]
    return np.concatenate([first, more]), targets


def first_queries(points: Floats, graph: Graph, m: int, *, seed: int, rule: str = "coverage") -> Ints:
    """Return the points of the first round: all m, or three quarters of them by coverage."""
    later = second_round(m) if rule == "coverage" else 0
    return choose_queries(rule, points, m - later, seed=seed, graph=graph)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Pool:
    """What all students of one kind on one pool share."""

    points: Floats
    graph: Graph
    options: dict[str, Any]  # of the student's `fit`
    first: dict[tuple[int, int], Ints] = field(default_factory=dict)  # (number of queries, seed) → first round

    def ask(self, known: Floats, m: int, *, seed: int) -> tuple[Ints, Floats]:
        if (m, seed) not in self.first:
            self.first[m, seed] = first_queries(self.points, self.graph, m, seed=seed)
        return ask_points(self.points, self.graph, known, m, seed=seed, first=self.first[m, seed])


_POOLS: dict[tuple[Any, ...], _Pool] = {}  # the last one


def _pool(job: Job, images: NDArray[Any], device: str) -> _Pool:
    key = (job.preset, job.n_classes, job.steps, images.shape, hashlib.sha256(images.tobytes()).hexdigest())
    if key not in _POOLS:
        _POOLS.clear()
        if job.preset == SEMI:
            encoder = pool_encoder(images, steps=job.steps, device=device)
            points = unit_length(encoder.features(images, device=device))
            made = _Pool(points=points, graph=make_graph(points), options={"encoder": encoder})
        else:
            own = pool_graph(images, n_classes=job.n_classes)
            made = _Pool(points=own.points, graph=own.graph, options={"made": own})
        _POOLS[key] = made
    return _POOLS[key]


def run_pool_student(job: Job, data: tuple[NDArray[Any], NDArray[Any]], *, device: str = "auto") -> Result:
    """Ask for the counts of a job, teach its student and let it predict the test points."""
    (X, y), start, student = data, time.perf_counter(), STUDENTS[job.preset]
    asking, counts = job.asking, job.counts
    if asking is None or counts is None:
        raise InputError(f"job {job.name!r}: the student {job.preset!r} needs counts")
    images = np.ascontiguousarray(X[job.indices])
    pool = _pool(job, images, device)
    known = posterior(counts, step=1 / STEPS, total_weight=asking.signal)
    asked, targets = pool.ask(known, asking.queries, seed=asking.seed)
    told = time.perf_counter()
    options = {"steps": job.steps, "encoder_steps": job.steps, "device": device} if job.preset == SEMI else {}
    model = student.make(options, seed=job.seed)
    labels = np.where(targets.any(axis=1), targets.argmax(axis=1), -1)
    trained = student.teach(model, images, labels, classes=range(job.n_classes), targets=targets, **pool.options)
    predicted = np.asarray(trained.predict(X[job.asked[0]]))[None]
    right = float(np.mean(labels[asked] == y[job.indices][asked]))
    meta = {
        "train_s": round(time.perf_counter() - told, 2),
        "ask_s": round(told - start, 2),
        "models": 1,
        "device": _device(job, device),
        "labels": len(asked),
        "labels_right": right,
    }
    return Result(predicted=predicted, truth=narrow(y[job.asked]), meta=meta)


def _device(job: Job, device: str) -> str:
    if job.preset != SEMI:
        return "cpu"
    import torch

    from ipate.torch.loop import chosen_device

    return torch.cuda.get_device_name() if chosen_device(device).type == "cuda" else "cpu"
