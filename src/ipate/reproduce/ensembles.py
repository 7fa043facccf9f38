"""Ensembles of the paper's experiments: which points each teacher learns from, and their votes, once and for all.

Where budgets are given out at random, one ensemble serves the baseline, weighting and vanishing alike: which
teachers belong to which group is drawn afterwards. Upsampling has ensembles of its own, which depend on the copies
and shares only, not on the budgets. Votes are kept in a folder and taken from there the next time.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.budgets import People
from ipate.data import Dataset, Partition, load
from ipate.errors import InputError
from ipate.jobs import Job, Result, read_result, write_result
from ipate.reproduce.settings import DELTA, SETUPS, Setup, split
from ipate.variants import allocate

__all__ = ["Ensemble", "Spec", "Workshop", "groups_of"]

FOREST = "forest"
_BUDGETS, _DEAL = 1, 2  # streams: who has which budget, and who goes to which teacher


@dataclass(frozen=True, kw_only=True)
class Spec:
    """An ensemble by what it depends on.

    Attributes
    ----------
    setup : str
        A key of `SETUPS`.
    replicate : int
        Numbers the repetitions: it seeds the split, the deal and the training.
    shares, copies : tuples, optional
        Upsampling: which share of the people is in how many teachers. Empty: everybody in one.
    skew : bool
        Copies above the first go to the second class only (Adult's high incomes), `shares` are shares of it.
    """

    setup: str
    replicate: int
    shares: tuple[float, ...] = ()
    copies: tuple[int, ...] = ()
    skew: bool = False

    @property
    def name(self) -> str:
        """A file name."""
        kind = "skew" if self.skew else "up"
        parts = "".join(f"-{kind}{c}x{round(100 * s)}" for s, c in zip(self.shares, self.copies, strict=True) if c > 1)
        return f"{self.setup}{parts}-e{self.replicate}"


def groups_of(spec: Spec, y: NDArray[np.int64], *, seed: int) -> NDArray[np.int64]:
    """Return every private point's place in `copies`, at random in the given shares (of the second class if skewed)."""
    rng = np.random.default_rng([seed, _BUDGETS])
    rows = rng.permutation(np.flatnonzero(y == 1) if spec.skew else len(y))
    ends = np.floor(np.cumsum(spec.shares) * len(rows) + 0.5).astype(int)
    found = np.zeros(len(y), dtype=np.int64)
    for place, (start, stop) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        found[rows[start:stop]] = place
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Ensemble:
    """Votes of an ensemble on the public points.

    Attributes
    ----------
    votes : uint8 array (teachers, points)
    truth : integer array (points,)
    public, test : integer arrays
        Rows of the data set.
    """

    spec: Spec
    votes: NDArray[np.integer[Any]]
    truth: NDArray[np.integer[Any]]
    public: NDArray[np.int64]
    test: NDArray[np.int64]
    meta: Mapping[str, Any]

    @property
    def setup(self) -> Setup:
        """The experiment that it belongs to."""
        return SETUPS[self.spec.setup]

    @property
    def n_teachers(self) -> int:
        """How many teachers voted."""
        return len(self.votes)

    @cached_property
    def teacher_accuracy(self) -> float:
        """The mean accuracy of one teacher on the public points."""
        return float(np.mean(self.votes == self.truth))

    def teacher_accuracy_of(self, label: int) -> float:
        """The mean accuracy of one teacher on the public points of one class."""
        own = self.truth == label
        return float(np.mean(self.votes[:, own] == label))


class Workshop:
    """Makes ensembles, or takes them from the cache; can write down as job files what it would have to train.

    Parameters
    ----------
    cache : path
        Where votes are kept.
    data_dir : path, optional
        Where the data sets' files are.
    device : str
        Where torch trains: "cpu", "cuda" or "auto".
    train : bool
        Train what is missing; else whoever asks for it gets an error.
    say : callable
        Receives lines for the user.
    """

    def __init__(
        self, *, cache: str | Path, data_dir: str | Path | None = None, device: str = "auto", train: bool = True,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:  # fmt: skip
        self.cache, self.data_dir, self.device, self.train, self.say = Path(cache), data_dir, device, train, say
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

    def job(self, spec: Spec) -> Job:
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
            epochs=setup.epochs, steps=setup.steps,
        )  # fmt: skip

    def ensemble(self, spec: Spec) -> Ensemble:
        """Return an ensemble's votes, from the cache or by training."""
        job = self.job(spec)
        found = read_result(job, self.cache) or self.run(job)
        parts = self.partition(SETUPS[spec.setup], spec.replicate)
        return Ensemble(
            spec=spec, votes=found.predicted, truth=found.truth, public=parts.public, test=parts.test, meta=found.meta
        )

    def missing(self, specs: Sequence[Spec]) -> list[Job]:
        """Return the jobs of those ensembles whose votes are not in the cache."""
        return [job for job in map(self.job, specs) if read_result(job, self.cache) is None]

    def run(self, job: Job) -> Result:
        """Train a job's models here and keep the result."""
        if not self.train:
            raise InputError(f"{job.name} is not in {self.cache}: train it here, or elsewhere as a job (--jobs)")
        self.say(f"training {job.n_models} {job.kind} of {job.name}")
        dataset = self.dataset(job.dataset)
        if job.preset == FOREST:
            result = _forests(job, dataset, self.cache)
        else:
            from ipate.torch.jobs import run_job

            result = run_job(job, (dataset.X, dataset.y), device=self.device)
        write_result(job, result, self.cache)
        return result


def _forests(job: Job, dataset: Dataset, cache: Path) -> Result:
    """Train random forests of scikit-learn's defaults, 100 trees each (section 'Datasets and Models')."""
    import time

    from sklearn.ensemble import RandomForestClassifier

    from ipate.teachers.ensemble import train_and_vote
    from ipate.teachers.store import VoteStore

    start, digest = time.perf_counter(), job.digest()
    rows = [job.indices[job.offsets[t] : job.offsets[t + 1]].astype(np.int64) for t in range(job.n_models)]
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        store = VoteStore(
            folder, n_teachers=job.n_models, n_queries=len(job.asked), n_classes=job.n_classes, fingerprint=digest
        )
        train_and_vote(
            RandomForestClassifier(n_estimators=100), dataset.features(), dataset.y, rows=rows,
            X_public=dataset.features(job.asked), store=store, seed=job.seed, n_jobs=-1,
        )  # fmt: skip
        votes = np.array(store.matrix)
    meta = {"train_s": round(time.perf_counter() - start, 2), "device": "cpu", "models": job.n_models}
    return Result(predicted=votes, truth=dataset.y[job.asked], digest=digest, meta=meta)
