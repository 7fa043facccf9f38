"""Training jobs of random forests: the paper's teachers and students on tables, with scikit-learn alone."""

import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.errors import InputError
from ipate.jobs import Job, Result

__all__ = ["FOREST", "run_forests"]

FOREST = "forest"  # what a job calls them in place of a torch preset


def run_forests(
    job: Job,
    data: tuple[NDArray[Any], NDArray[np.int64]],
    *,
    n_jobs: int = -1,
    progress: Callable[[int, int], None] | None = None,
) -> Result:
    """Train forests of scikit-learn's defaults, 100 trees each (the paper, 'Datasets and Models'), and ask them.

    Parameters
    ----------
    job : Job
    data : (X, y)
        The data set's features and classes.
    n_jobs : int
        Processes, as in joblib.
    progress : callable(done, total), optional
        Receives how many teachers have voted.
    """
    X, y = data
    start = time.perf_counter()
    predicted = _votes(job, X, y, n_jobs, progress) if job.pool is None else _students(job, X, n_jobs)
    meta = {
        "train_s": round(time.perf_counter() - start, 2), "ask_s": 0.0, "device": "cpu", "models": job.n_models,
    }  # fmt: skip
    return Result(predicted=predicted, truth=y[job.asked], digest=job.digest(), meta=meta)


def _votes(
    job: Job, X: NDArray[Any], y: NDArray[np.int64], n_jobs: int, progress: Callable[[int, int], None] | None
) -> NDArray[Any]:
    from sklearn.ensemble import RandomForestClassifier

    from ipate.teachers import VoteStore, train_and_vote

    rows = [job.indices[job.offsets[t] : job.offsets[t + 1]].astype(np.int64) for t in range(job.n_models)]
    with tempfile.TemporaryDirectory() as folder:
        store = VoteStore(
            folder, n_teachers=job.n_models, n_queries=len(job.asked), n_classes=job.n_classes,
            fingerprint=job.digest(),
        )  # fmt: skip
        train_and_vote(
            RandomForestClassifier(n_estimators=100), X, y, rows=rows, X_public=X[job.asked], store=store,
            seed=job.seed, n_jobs=n_jobs, progress=None if progress is None else lambda n: progress(n, job.n_models),
        )  # fmt: skip
        return np.array(store.matrix)


def _students(job: Job, X: NDArray[Any], n_jobs: int) -> NDArray[Any]:
    from joblib import Parallel, delayed

    if job.labels is None or job.pool is None:
        raise InputError(f"job {job.name!r} has no labels: students need them")
    bounds = zip(job.offsets[:-1], job.offsets[1:], job.pool, strict=True)
    said = Parallel(n_jobs=n_jobs)(
        delayed(_one_student)(
            X[job.indices[a:b]], job.labels[a:b], X[job.asked[pool]], seed=int(job.seed * 10_000 + number)
        )
        for number, (a, b, pool) in enumerate(bounds)
    )
    return np.stack(said)


def _one_student(X: NDArray[Any], y: NDArray[Any], X_test: NDArray[Any], *, seed: int) -> NDArray[Any]:
    """Train one forest; a student that saw one class only says that class."""
    from sklearn.ensemble import RandomForestClassifier

    if len(np.unique(y)) < 2:
        return np.full(len(X_test), y[0], dtype=np.uint8)
    said = RandomForestClassifier(n_estimators=100, random_state=seed).fit(X, y).predict(X_test)
    return np.asarray(said, dtype=np.uint8)
