"""Where models are trained once and kept: ensembles and students, from the cache, here, or elsewhere as jobs."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ipate.allocation import allocate
from ipate.data import load
from ipate.data.dataset import Dataset
from ipate.data.partition import Partition
from ipate.errors import InputError, PendingError
from ipate.people.people import People
from ipate.reproduce.ensembles import Ensemble, Spec, groups_of
from ipate.reproduce.jobs import FOREST, Job, Result, read_job, read_result, run_forests, write_job, write_result
from ipate.reproduce.settings import DELTA, SETUPS, Setup, split

Watch: TypeAlias = Callable[[str, int], AbstractContextManager[Callable[[int], Any]]]
_DEAL = 2  # the stream of who goes to which teacher
_STEP = 1.3  # students whose numbers of labels lie within this factor are trained together
_STUDENT_EPOCHS = 50


@dataclass(frozen=True, kw_only=True, eq=False)
class Pupil:
    """A student to be trained: public points with the labels that they were given.

    Attributes
    ----------
    key : tuple
        Whose result it is.
    replicate : int
        The split it belongs to: its test points.
    rows, labels : integer arrays
    """

    key: tuple[Any, ...]
    replicate: int
    rows: NDArray[np.int64]
    labels: NDArray[np.int64]


class Workshop:
    """Trains what an experiment needs, or takes it from the cache, or writes it down as job files.

    Parameters
    ----------
    cache : path
        Where votes and predictions are kept.
    data_dir : path, optional
        Where the data sets' files are.
    device : str
        Where torch trains: "cpu", "cuda" or "auto".
    jobs : path, optional
        Do not train: write jobs here and raise a PendingError.
    say : callable
        Receives lines for the user.
    watch : callable, optional
        Given what is being done and a total, a context that yields a function of how much is done.
    """

    def __init__(
        self, *, cache: str | Path, data_dir: str | Path | None = None, device: str = "auto",
        jobs: str | Path | None = None, say: Callable[[str], None] = lambda line: None, watch: Watch | None = None,
    ) -> None:  # fmt: skip
        self.cache, self.data_dir, self.device, self.say = Path(cache), data_dir, device, say
        self.jobs = None if jobs is None else Path(jobs)
        self.watch: Watch = watch or (lambda what, total: nullcontext(lambda done: None))
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

    def teachers(self, spec: Spec) -> Job:
        """Return the training job of an ensemble: the rows of every teacher, dealt by the product's own code."""
        setup = SETUPS[spec.setup]
        dataset, parts = self.dataset(setup.dataset), self.partition(setup, spec.replicate)
        place = np.zeros(len(parts.private), dtype=np.int64)
        if spec.copies:
            place = groups_of(spec, dataset.y[parts.private], seed=spec.replicate)
        copies = np.array(spec.copies or (1,), dtype=np.float64)
        people = People.from_budgets(copies[place], delta=DELTA)
        variant, options = ("upsampling", {"rule": "proportional"}) if spec.copies else ("standard", {})
        made = allocate(
            variant, people=people, n_teachers=setup.n_teachers, seed=spec.replicate * 1000 + _DEAL, **options
        )
        return Job(
            name=spec.name, kind="teachers", dataset=setup.dataset, preset=setup.teacher, n_classes=dataset.n_classes,
            seed=spec.replicate, offsets=made.offsets, indices=parts.private[made.persons], asked=parts.public,
            epochs=setup.epochs,
        )  # fmt: skip

    def need(self, specs: Iterable[Spec]) -> None:
        """Make sure that these ensembles are in the cache: train them, or write all their jobs at once."""
        self._results([self.teachers(spec) for spec in dict.fromkeys(specs)])

    def ensemble(self, spec: Spec) -> Ensemble:
        """Return an ensemble's votes."""
        found = self._results([self.teachers(spec)])[0]
        parts = self.partition(SETUPS[spec.setup], spec.replicate)
        return Ensemble(
            spec=spec, votes=found.predicted, truth=found.truth, public=parts.public, test=parts.test, meta=found.meta
        )

    def students(
        self, setup: Setup, batches: Mapping[str, Sequence[Pupil]]
    ) -> dict[tuple[Any, ...], tuple[NDArray[Any], NDArray[Any]]]:
        """Train all students and return, by key, what each predicts of its test points, and their true classes.

        Of one batch (its name is the results'), students with similar numbers of labels are trained together, so that
        epochs mean the same to all of them; a batch that was kept stays as it is where others are added. Students
        without labels are left out.
        """
        made = [one for name, pupils in batches.items() for one in self._classes(setup, pupils, name)]
        found = {}
        for (job, own), result in zip(made, self._results([job for job, _ in made]), strict=True):
            pools = job.pool if job.pool is not None else ()
            for pupil, said, pool in zip(own, result.predicted, pools, strict=True):
                found[pupil.key] = (said, result.truth[pool])
        return found

    def _classes(self, setup: Setup, pupils: Sequence[Pupil], name: str) -> list[tuple[Job, list[Pupil]]]:
        """Return the jobs of one batch, by the number of labels, with the students of each."""
        replicates = sorted({pupil.replicate for pupil in pupils})
        tests = np.stack([self.partition(setup, replicate).test for replicate in replicates])
        sizes: dict[int, list[Pupil]] = {}
        for pupil in pupils:
            if len(pupil.rows):
                sizes.setdefault(int(math.log(len(pupil.rows), _STEP)), []).append(pupil)
        return [
            (Job(
                name=f"{name}-students-{size:02d}", kind="students", dataset=setup.dataset, preset=setup.student,
                n_classes=self.dataset(setup.dataset).n_classes, seed=size,
                offsets=np.cumsum([0, *(len(pupil.rows) for pupil in own)]),
                indices=np.concatenate([pupil.rows for pupil in own]),
                labels=np.concatenate([pupil.labels for pupil in own]), asked=tests,
                pool=np.array([replicates.index(pupil.replicate) for pupil in own]),
                epochs=None if setup.student == FOREST else _STUDENT_EPOCHS,
            ), own)
            for size, own in sorted(sizes.items())
        ]  # fmt: skip

    def _results(self, jobs: Sequence[Job]) -> list[Result]:
        found = [read_result(job, self.cache) for job in jobs]
        missing = [job for job, result in zip(jobs, found, strict=True) if result is None]
        if missing and self.jobs is not None:
            self._write(missing, self.jobs)
            raise PendingError([job.name for job in missing], self.jobs)
        made = []
        for number, (job, result) in enumerate(zip(jobs, found, strict=True), start=1):
            made.append(result or self._train(job, f"{number} of {len(jobs)}"))
        return made

    def _write(self, jobs: Sequence[Job], folder: Path) -> None:
        """Write jobs after those that are there; one that another experiment has asked for already stands once."""
        there = {re.sub(r"^\d+-", "", path.name): path for path in sorted(folder.glob("*.job.npz"))}
        order = len(there)
        for job in jobs:
            old = there.get(f"{job.name}.job.npz")
            if old is not None and read_job(old).digest() == job.digest():
                continue
            if old is not None:  # an older plan's
                old.unlink()
            write_job(job, folder, order=order)
            order += 1

    def _train(self, job: Job, which: str) -> Result:
        """Train a job's models here and keep the result."""
        self.say(f"{which}: training {job.n_models} {job.kind} of {job.name}")
        dataset = self.dataset(job.dataset)
        with self.watch(job.name, 100) as seen:
            result = self._run(job, dataset, lambda done, total: seen(100 * done // total))
        write_result(job, result, self.cache)
        return result

    def _run(self, job: Job, dataset: Dataset, progress: Callable[[int, int], None]) -> Result:
        if job.preset == FOREST:
            return run_forests(job, (dataset.features(), dataset.y), progress=progress)
        try:
            from ipate.reproduce.training import run_job
        except ModuleNotFoundError as error:
            raise InputError(
                f"{job.name} needs PyTorch: pip install 'ipate[torch]', or train it elsewhere (--jobs DIR)"
            ) from error
        return run_job(job, (dataset.X, dataset.y), device=self.device, progress=progress)
