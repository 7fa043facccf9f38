"""Training jobs as files, so that training can run on another machine with a GPU.

A job is an npz file that says which rows of a data set each model learns from, and which points the models are asked
about afterwards; the images stay in the data set's own files. `python -m paper.training` runs a folder of
jobs and writes one result file per job. A result carries the digest of its job and is accepted for no other.
"""

import hashlib
import itertools
import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ipate._types import Integers
from ipate.errors import InputError, IpateError
from ipate.files import read_npz, replacing


class PendingError(IpateError):
    """Results are not in the cache; jobs that compute them were written to a folder."""

    def __init__(self, jobs: Sequence[str], folder: Path) -> None:
        self.jobs, self.folder = tuple(jobs), folder
        super().__init__(f"{len(jobs)} jobs are in {folder}: run them, bring their results to the cache, call again")


_ARRAYS = ("offsets", "indices", "asked", "labels", "pool", "counts")


@dataclass(frozen=True, kw_only=True)
class Counts:
    """How a student uses noisy counts of the whole pool."""

    queries: int  # how many points it asks for theirs
    seed: int  # of the choice of these points
    signal: float  # Σw/σ: the total weight of all teachers in deviations of the noise


@dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """Models to train together, and the points that they are asked about afterwards.

    Teachers learn the data set's own labels and all vote on `asked`; students learn `labels`, and each predicts the
    points of its own pool. Model m learns from the rows indices[offsets[m]:offsets[m + 1]]. One student that chooses
    its own queries among all `indices` has, in place of labels, the noisy counts that each of these points would get.
    """

    name: str  # also the result's file name
    kind: Literal["teachers", "students"]
    dataset: str
    preset: str
    n_classes: int
    seed: int  # of training; it seeds no privacy noise
    offsets: Integers
    indices: Integers
    asked: Integers  # rows to predict: (points,) for teachers, (pools, points) for students
    labels: Integers | None = None  # students: the label of each entry of `indices`
    pool: Integers | None = None  # students: the row of `asked` that each is tested on
    epochs: float | None = None  # epochs or steps replace the preset's length of training
    steps: int | None = None
    counts: Integers | None = None  # (points, classes): noisy counts of the entries of `indices`, in steps of σ/8
    asking: Counts | None = None  # and how they are used

    def __post_init__(self) -> None:
        if self.kind not in ("teachers", "students"):
            raise InputError(f"job {self.name!r}: kind is {self.kind!r}: it must be teachers or students")
        if self.offsets.ndim != 1 or len(self.offsets) < 2 or self.offsets[-1] != len(self.indices):
            raise InputError(f"job {self.name!r}: offsets must rise from 0 to the number of indices")
        students = self.kind == "students"
        learnt = (self.labels is not None) + (self.counts is not None)
        if students != (learnt == 1) or students != (self.pool is not None):
            raise InputError(f"job {self.name!r}: students need a pool, and labels or counts; teachers have neither")
        if (self.counts is None) != (self.asking is None):
            raise InputError(f"job {self.name!r}: it has counts without saying how they are used, or the reverse")
        if self.counts is not None and (self.n_models, len(self.counts)) != (1, len(self.indices)):
            raise InputError(f"job {self.name!r}: counts must be those of all points of one student")
        if self.labels is not None and self.labels.shape != self.indices.shape:
            raise InputError(f"job {self.name!r}: there are {self.labels.size} labels for {self.indices.size} points")
        axes = 1 + students
        if self.asked.ndim != axes:
            raise InputError(f"job {self.name!r}: asked has the shape {self.asked.shape}: it must have {axes} axes")

    @property
    def n_models(self) -> int:
        """The number of models to train."""
        return len(self.offsets) - 1

    def about(self) -> dict[str, Any]:
        """Return everything but the arrays and the name."""
        found = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in (*_ARRAYS, "name", "asking")}
        return found if self.asking is None else {**found, "asking": asdict(self.asking)}

    def digest(self) -> str:
        """Return a digest of everything that decides the result, which excludes the name."""
        found = hashlib.sha256(json.dumps(self.about(), sort_keys=True).encode())
        for name in _ARRAYS:
            array = getattr(self, name)
            if array is not None:
                found.update(f"{name}{array.shape}".encode())
                found.update(np.ascontiguousarray(array, dtype="<i8").data)
        return found.hexdigest()


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """What a job's models predicted."""

    predicted: Integers  # (models, points): votes of teachers, or each student's predictions of its own pool
    truth: Integers  # the data set's classes of `asked`, in the shape of `asked`; for scoring only
    meta: dict[str, Any]  # device, seconds and the like


def narrow(array: NDArray[Any]) -> Integers:
    """Return whole numbers in the smallest type that holds them."""
    least, largest = (int(array.min()), int(array.max())) if array.size else (0, 0)
    return np.asarray(array, dtype=np.min_scalar_type(largest if least >= 0 else min(least, -largest - 1)))


def write_job(job: Job, folder: str | Path, *, order: int | None = None) -> Path:
    """Write a job as FOLDER/NAME.job.npz, compressed, in the smallest integers; `order` goes before the name."""
    first = "" if order is None else f"{order:03d}-"
    arrays = {name: narrow(array) for name in _ARRAYS if (array := getattr(job, name)) is not None}
    return _write(Path(folder) / f"{first}{job.name}.job.npz", {"about": np.array(json.dumps(job.about())), **arrays})


def read_job(path: str | Path) -> Job:
    """Read a job file; nothing is unpickled."""
    file = Path(path)
    if not file.is_file():
        raise InputError(f"{file}: no such file")
    arrays: dict[str, Any] = {**read_npz(file, ("about", *_ARRAYS))}
    about = _json(file, arrays.pop("about", None))
    known = {field.name for field in fields(Job)} - {"name"}
    if not set(about) <= known or not {"offsets", "indices", "asked"} <= set(arrays):
        raise InputError(f"{file}: not a job file; `python -m paper NAME --job-files DIR` writes them")
    if "asking" in about:
        about["asking"] = Counts(**about["asking"])
    return Job(name=re.sub(r"^\d{3,}-", "", file.name.removesuffix(".job.npz")), **about, **arrays)


def write_result(job: Job, result: Result, folder: str | Path) -> Path:
    """Write a result as FOLDER/NAME.votes.npz or NAME.students.npz, in column order, which compresses better."""
    arrays = {
        "votes": np.asfortranarray(narrow(result.predicted)),
        "labels": narrow(result.truth),
        "classes": np.array(job.n_classes),
        "meta": np.array(json.dumps({**result.meta, "job": job.name, "digest": job.digest()})),
    }
    return _write(_result_file(job, folder), arrays)


def read_result(job: Job, folder: str | Path) -> Result | None:
    """Read the result of exactly this job from a folder; None where there is none."""
    file = _result_file(job, folder)
    if not file.is_file():
        return None
    arrays = read_npz(file, ("votes", "labels", "meta"))
    meta = _json(file, arrays.get("meta"))
    if meta.get("digest") != job.digest() or not {"votes", "labels"} <= set(arrays):
        return None
    return Result(predicted=arrays["votes"], truth=arrays["labels"], meta=meta)


def _result_file(job: Job, folder: str | Path) -> Path:
    return Path(folder) / f"{job.name}.{'votes' if job.kind == 'teachers' else 'students'}.npz"


def _json(file: Path, array: NDArray[Any] | None) -> dict[str, Any]:
    try:
        found = json.loads(str(array))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InputError(f"{file}: not a file of a training job")
    return found


def _write(path: Path, arrays: dict[str, NDArray[Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    return path


FOREST = "forest"  # the preset of jobs that train random forests
GRAPH, SEMI = "graph", "semi"  # ipate's students that use the whole pool: on a CPU, and with a GPU


def run_forests(
    job: Job,
    data: tuple[NDArray[Any], NDArray[np.int64]],
    *,
    n_jobs: int = -1,
    progress: Callable[[int, int], None] | None = None,
) -> Result:
    """Train forests with scikit-learn's defaults, 100 trees each (the paper, 'Datasets and Models'), and ask them."""
    X, y = data
    start = time.perf_counter()
    teachers = job.kind == "teachers"
    predicted = _teacher_votes(job, X, y, n_jobs, progress) if teachers else _student_predictions(job, X, n_jobs)
    took = round(time.perf_counter() - start, 2)
    meta = {"train_s": took, "ask_s": 0.0, "device": "cpu", "models": job.n_models}
    return Result(predicted=predicted, truth=y[job.asked], meta=meta)


def _teacher_votes(
    job: Job, X: NDArray[Any], y: NDArray[np.int64], n_jobs: int, progress: Callable[[int, int], None] | None
) -> NDArray[Any]:
    from sklearn.ensemble import RandomForestClassifier

    from ipate.models.training import train_and_vote

    rows = [job.indices[a:b].astype(np.int64) for a, b in itertools.pairwise(job.offsets)]
    votes = np.empty((job.n_models, len(job.asked)), dtype=np.int64)
    notes: dict[int, list[str]] = {}
    for teacher, own in train_and_vote(
        RandomForestClassifier(n_estimators=100),
        X,
        y,
        rows=rows,
        X_public=X[job.asked],
        n_classes=job.n_classes,
        seed=job.seed,
        n_jobs=n_jobs,
        progress=None if progress is None else lambda n: progress(n, job.n_models),
        notes=notes,
    ):
        votes[teacher] = own
    for teacher, lines in notes.items():  # the data is public, so a failure is an error
        if lines[0].startswith("failed: "):
            raise IpateError(f"teacher {teacher} {lines[0]}")
    return narrow(votes)


def _student_predictions(job: Job, X: NDArray[Any], n_jobs: int) -> NDArray[Any]:
    from joblib import Parallel, delayed

    labels = np.asarray(job.labels)
    tasks = enumerate(zip(itertools.pairwise(job.offsets), np.asarray(job.pool), strict=True))
    predicted = Parallel(n_jobs=n_jobs)(
        delayed(_one_student)(X[job.indices[a:b]], labels[a:b], X[job.asked[pool]], seed=job.seed * 10_000 + number)
        for number, ((a, b), pool) in tasks
    )
    return np.stack(predicted)


def _one_student(X: NDArray[Any], y: NDArray[Any], X_test: NDArray[Any], *, seed: int) -> NDArray[Any]:
    """Train one forest; a student whose labels are all of one class predicts that class."""
    from sklearn.ensemble import RandomForestClassifier

    if len(np.unique(y)) < 2:
        return np.full(len(X_test), y[0], dtype=np.uint8)
    forest = RandomForestClassifier(n_estimators=100, random_state=seed).fit(X, y)
    return np.asarray(forest.predict(X_test), dtype=np.uint8)
