"""The teachers and students of the experiments: each is trained once and kept, here or on another machine.

Budgets are given out at random, so one ensemble serves the baseline, weighting and vanishing. Upsampling has its own
ensembles, which depend on copies and shares only, not on the budgets.
"""

import math
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate._types import Integers
from ipate.data.dataset import Dataset, Partition, partition
from ipate.engines.teachers.variants import allocate
from ipate.engines.teachers.votes import count_votes
from ipate.errors import InputError
from ipate.people.people import People
from ipate.students.student import has_gpu
from paper.data import load
from paper.experiments import DELTA, SETUPS, Setup
from paper.jobs import (
    FOREST,
    GRAPH,
    SEMI,
    Job,
    PendingError,
    Result,
    read_job,
    read_result,
    run_forests,
    write_job,
    write_result,
)
from paper.pool_students import run_pool_student
from paper.times import announce, training_seconds

_BUDGET_STREAM = 1  # seeds who has which budget
_DEAL_STREAM = 2  # seeds which people each teacher learns from
_SIZE_RATIO = 1.3  # students whose numbers of labels lie within this factor are trained together
_STUDENT_EPOCHS = 50
_SILENCE = 30.0  # seconds between two lines on the progress of a training


@dataclass(frozen=True, kw_only=True)
class EnsembleSpec:
    """What an ensemble depends on; two ensembles with the same specification have the same votes."""

    setup: str  # a key of `SETUPS`
    replicate: int  # seeds the split, the deal and the training
    shares: tuple[float, ...] = ()  # upsampling: which share of the people
    copies: tuple[int, ...] = ()  # is in how many teachers; empty: everybody in one
    skew: bool = False  # shares are of the second class (Adult's high incomes); the first has no further copies

    @property
    def name(self) -> str:
        """The name of the ensemble's files."""
        kind = "skew" if self.skew else "up"
        parts = "".join(f"-{kind}{c}x{round(100 * s)}" for s, c in zip(self.shares, self.copies, strict=True) if c > 1)
        return f"{self.setup}{parts}-e{self.replicate}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Ensemble:
    """Votes of an ensemble (teachers, points) on the public points, which are rows of the data set."""

    spec: EnsembleSpec
    votes: Integers
    truth: Integers
    public: NDArray[np.int64]

    @property
    def setup(self) -> Setup:
        """The experiment that it belongs to."""
        return SETUPS[self.spec.setup]

    @property
    def n_teachers(self) -> int:
        """The number of teachers that voted."""
        return len(self.votes)

    @property
    def n_classes(self) -> int:
        """The number of classes, which is public."""
        return int(max(self.truth.max(), self.votes.max())) + 1

    def teacher_accuracy_of(self, label: int) -> float:
        """Return the mean accuracy of one teacher on the public points of one class."""
        return float(np.mean(self.votes[:, self.truth == label] == label))

    @cached_property
    def plurality(self) -> NDArray[np.intp]:
        """The class that most teachers vote for, per public point."""
        return np.asarray(count_votes(self.votes, int(self.votes.max()) + 1).argmax(axis=1))


def teacher_accuracy(ensembles: Iterable[Ensemble]) -> float:
    """Return the mean accuracy of one teacher of some ensembles, in per cent."""
    return float(np.mean([100 * float(np.mean(ensemble.votes == ensemble.truth)) for ensemble in ensembles]))


@dataclass(frozen=True, kw_only=True, eq=False)
class Student:
    """A student to be trained on labelled public points; the replicate's split gives its test points."""

    key: tuple[Any, ...]
    replicate: int
    rows: NDArray[np.int64]
    labels: NDArray[np.int64]


def split(setup: Setup, dataset: Dataset, *, seed: int) -> Partition:
    """Split a data set as the paper does: at random, or by the official parts (MNIST's first 50,000 rows private)."""
    if setup.test is not None:
        return partition(dataset.n_rows, public=setup.public, test=setup.test, seed=seed)
    if dataset.test_rows is None:
        raise InputError(f"{setup.name}: the data set {dataset.name!r} has no official test part")
    if setup.dataset == "mnist":
        train: NDArray[np.int64] = np.setdiff1d(np.arange(dataset.n_rows), dataset.test_rows)
        private, public = np.split(train, [-setup.public])
        return Partition(private=private, public=public, test=dataset.test_rows.copy())
    return partition(dataset.n_rows, public=setup.public, test=dataset.test_rows, seed=seed)


def copies_group(spec: EnsembleSpec, y: NDArray[np.int64], *, seed: int) -> NDArray[np.int64]:
    """Draw every private point's index into `copies` in the given shares (of the second class if skewed)."""
    rng = np.random.default_rng([seed, _BUDGET_STREAM])
    rows = rng.permutation(np.flatnonzero(y == 1) if spec.skew else len(y))
    ends = np.floor(np.cumsum(spec.shares) * len(rows) + 0.5).astype(int)
    found = np.zeros(len(y), dtype=np.int64)
    for index, (start, stop) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        found[rows[start:stop]] = index
    return found


class TrainedModels:
    """Provides trained ensembles and students, from the cache or by training.

    With a folder for `jobs`, missing models are written there as job files instead, and a PendingError is raised;
    graph students, which take a second each on a CPU, are trained here nevertheless.
    """

    def __init__(
        self,
        *,
        cache: str | Path,
        data_dir: str | Path | None = None,
        device: str = "auto",
        jobs: str | Path | None = None,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.cache, self.data_dir, self.device, self.log = Path(cache), data_dir, device, log
        self.jobs = None if jobs is None else Path(jobs)
        self._data: dict[str, Dataset] = {}
        self._parts: dict[tuple[str, int], Partition] = {}

    def dataset(self, name: str) -> Dataset:
        """Return a data set, loaded once."""
        if name not in self._data:
            self._data[name] = load(name, data_dir=self.data_dir)
        return self._data[name]

    def partition(self, setup: Setup, replicate: int) -> Partition:
        """Return a replicate's private, public and test rows."""
        key = (setup.name, replicate)
        if key not in self._parts:
            self._parts[key] = split(setup, self.dataset(setup.dataset), seed=replicate)
        return self._parts[key]

    def require(self, specs: Iterable[EnsembleSpec]) -> None:
        """Make sure that these ensembles are in the cache: train them, or write all their jobs at once."""
        self._results([self._teacher_job(spec) for spec in dict.fromkeys(specs)])

    def ensembles(self, specs: Iterable[EnsembleSpec]) -> list[Ensemble]:
        """Return the votes of ensembles."""
        found = []
        for spec in specs:
            (result,) = self._results([self._teacher_job(spec)])
            public = self.partition(SETUPS[spec.setup], spec.replicate).public
            found.append(Ensemble(spec=spec, votes=result.predicted, truth=result.truth, public=public))
        return found

    def student_predictions(
        self, setup: Setup, batches: Mapping[str, Sequence[Student]]
    ) -> dict[tuple[Any, ...], tuple[NDArray[Any], NDArray[Any]]]:
        """Train all students with labels; return, by key, what each predicts of its test points, and the true classes.

        A further batch leaves the kept results of others valid.
        """
        made = self.student_jobs(setup, batches)
        found = {}
        for (job, students), result in zip(made, self._results([job for job, _ in made]), strict=True):
            for student, predicted, pool in zip(students, result.predicted, np.asarray(job.pool), strict=True):
                found[student.key] = (predicted, result.truth[pool])
        return found

    def student_accuracies(
        self, setup: str, batches: Mapping[str, Sequence[Student]]
    ) -> Mapping[tuple[Any, ...], list[float]]:
        """Train the students of votings; return their test accuracies in per cent, by the key of their votings."""
        found: defaultdict[tuple[Any, ...], list[float]] = defaultdict(list)
        for (*key, _, _), (predicted, truth) in self.student_predictions(SETUPS[setup], batches).items():
            found[tuple(key)].append(100 * float(np.mean(predicted == truth)))
        return found

    def student_jobs(self, setup: Setup, batches: Mapping[str, Sequence[Student]]) -> list[tuple[Job, list[Student]]]:
        """Return the training jobs of students, each with the students that it trains."""
        return [one for name, students in batches.items() for one in self._batch_jobs(setup, students, name)]

    def complete(self, jobs: Iterable[Job]) -> None:
        """Make sure that the results of these jobs are in the cache: train them, or write all of them at once.

        Students that need a GPU are left out where there is none.
        """
        self._results([job for job in jobs if self._trainable(job)])

    def accuracies(self, jobs: Sequence[Job]) -> list[float]:
        """Return the test accuracy of each job's only student, in per cent.

        It is NaN where the student is not in the cache and needs a GPU that is not here.
        """
        kept = [job for job in jobs if self._trainable(job) or read_result(job, self.cache) is not None]
        found = {job.name: result for job, result in zip(kept, self._results(kept), strict=True)}
        return [
            100 * float(np.mean(found[job.name].predicted == found[job.name].truth)) if job.name in found else math.nan
            for job in jobs
        ]

    @property
    def has_gpu(self) -> bool:
        """Whether trainings run on a GPU of this machine."""
        return self.device != "cpu" and has_gpu()

    def _trainable(self, job: Job) -> bool:
        """Whether a missing result is made here, or a job file of it written."""
        return job.preset != SEMI or self.jobs is not None or self.has_gpu

    def _teacher_job(self, spec: EnsembleSpec) -> Job:
        """Return the training job of an ensemble; `allocate` deals the rows, as in every run of the package."""
        setup = SETUPS[spec.setup]
        dataset, parts = self.dataset(setup.dataset), self.partition(setup, spec.replicate)
        group = np.zeros(len(parts.private), dtype=np.int64)
        if spec.copies:
            group = copies_group(spec, dataset.y[parts.private], seed=spec.replicate)
        copies = np.array(spec.copies or (1,), dtype=np.float64)
        people = People.from_budgets(copies[group], delta=DELTA)
        variant, options = ("upsampling", {"rule": "proportional"}) if spec.copies else ("standard", {})
        made = allocate(
            variant, people=people, n_teachers=setup.n_teachers, seed=spec.replicate * 1000 + _DEAL_STREAM, **options
        )
        return Job(
            name=spec.name,
            kind="teachers",
            dataset=setup.dataset,
            preset=setup.teacher,
            n_classes=dataset.n_classes,
            seed=spec.replicate,
            offsets=made.offsets,
            indices=parts.private[made.persons],
            asked=parts.public,
            epochs=setup.epochs,
        )

    def _batch_jobs(self, setup: Setup, students: Sequence[Student], name: str) -> list[tuple[Job, list[Student]]]:
        """Return the jobs of one batch; students with similar numbers of labels share one, as epochs mean the same."""
        replicates = sorted({student.replicate for student in students})
        tests = np.stack([self.partition(setup, replicate).test for replicate in replicates])
        sizes: dict[int, list[Student]] = {}
        for student in students:
            if len(student.rows):
                sizes.setdefault(int(math.log(len(student.rows), _SIZE_RATIO)), []).append(student)
        return [
            (
                Job(
                    name=f"{name}-students-{size:02d}",
                    kind="students",
                    dataset=setup.dataset,
                    preset=setup.student,
                    n_classes=self.dataset(setup.dataset).n_classes,
                    seed=size,
                    offsets=np.cumsum([0, *(len(student.rows) for student in own)]),
                    indices=np.concatenate([student.rows for student in own]),
                    labels=np.concatenate([student.labels for student in own]),
                    asked=tests,
                    pool=np.array([replicates.index(student.replicate) for student in own]),
                    epochs=None if setup.student == FOREST else _STUDENT_EPOCHS,
                ),
                own,
            )
            for size, own in sorted(sizes.items())
        ]

    def _results(self, jobs: Sequence[Job]) -> list[Result]:
        found = [read_result(job, self.cache) for job in jobs]
        missing = [job for job, result in zip(jobs, found, strict=True) if result is None]
        written = [job for job in missing if job.preset != GRAPH]
        if written and self.jobs is not None:
            self._write_jobs(written, self.jobs)
            raise PendingError([job.name for job in written], self.jobs)
        announce(self.log, f"{len(missing)} trainings", training_seconds(missing, gpu=self.has_gpu))
        return [
            result or self._train(job, f"{number} of {len(jobs)}")
            for number, (job, result) in enumerate(zip(jobs, found, strict=True), start=1)
        ]

    def _write_jobs(self, jobs: Sequence[Job], folder: Path) -> None:
        """Number jobs after those in the folder; skip a job that is there, replace an outdated one of the same name."""
        there = {re.sub(r"^\d+-", "", path.name): path for path in sorted(folder.glob("*.job.npz"))}
        order = len(there)
        for job in jobs:
            old = there.get(f"{job.name}.job.npz")
            if old is not None and read_job(old).digest() == job.digest():
                continue
            if old is not None:
                old.unlink()
            write_job(job, folder, order=order)
            order += 1

    def _train(self, job: Job, which: str) -> Result:
        """Train a job's models here and keep the result."""
        self.log(f"{which}: training {job.n_models} {job.kind} of {job.name}")
        told = time.monotonic()

        def progress(done: int, total: int) -> None:
            nonlocal told
            if time.monotonic() - told > _SILENCE:
                told = time.monotonic()
                self.log(f"{job.name}: {100 * done // total}%")

        result = self._run(job, progress)
        write_result(job, result, self.cache)
        return result

    def _run(self, job: Job, progress: Callable[[int, int], None]) -> Result:
        dataset = self.dataset(job.dataset)
        if job.preset == FOREST:
            return run_forests(job, (dataset.features(), dataset.y), progress=progress)
        if job.preset == GRAPH:
            return run_pool_student(job, (dataset.X, dataset.y))
        try:
            from paper.training import run_job
        except ModuleNotFoundError as error:
            raise InputError(
                f"{job.name} needs PyTorch: pip install 'ipate[torch]', or train it elsewhere (--job-files DIR)"
            ) from error
        return run_job(job, (dataset.X, dataset.y), device=self.device, progress=progress)
