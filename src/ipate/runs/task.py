"""What a run starts from: the data, parted, and the people of its private part with their budgets."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.data import load
from ipate.data.dataset import Dataset
from ipate.data.files import read_data
from ipate.data.partition import Partition, partition
from ipate.errors import InputError
from ipate.people.people import People
from ipate.people.policy import Policy
from ipate.runs.config import RunConfig
from ipate.students import find_student, wants_images
from ipate.teachers.models import NETS, make_model

Ints = NDArray[np.int64]
DEFAULT_POLICY = {"high": 1.0, "average": 2.0, "low": 3.0}


@dataclass(frozen=True, kw_only=True)
class Task:
    """The data of a run, parted, with its people: everything that later stages start from."""

    data: Dataset
    parts: Partition
    people: People

    def features(self, rows: Ints, *, model: str = "") -> NDArray[Any]:
        """Return rows as a model wants them: images for nets, channels first, one line of numbers otherwise."""
        if not wants_images(model):
            return np.asarray(self.data.features(rows))
        if self.data.kind != "image":
            raise InputError(f"model is {model!r}: it needs images, and {self.data.name} is a table")
        images = np.asarray(self.data.features(rows, flat=False))
        return np.moveaxis(images, 3, 1) if images.ndim == 4 else images


def prepare(config: RunConfig) -> Task:
    """Load the data, part it, and find the people of the private part with their budgets."""
    wanted = config.data
    if wanted.file is not None:
        data = read_data(
            wanted.file, label=wanted.label or "", level=wanted.level, epsilon=wanted.epsilon, person=wanted.person,
            classes=wanted.classes,
        )  # fmt: skip
    else:
        data = load(wanted.name or "", data_dir=wanted.data_dir)
    parts = partition(
        data.n_rows,
        public=0.1 if wanted.public is None else wanted.public,
        test=0.1 if wanted.test is None else wanted.test,
        seed=config.split_seed,
        person_id=data.person_id,
    )
    return Task(data=data, parts=parts, people=_people(data, parts.private, config))


def _people(data: Dataset, private: Ints, config: RunConfig) -> People:
    """Budgets of the private rows: their own ε, their level under the policy, drawn levels, or one ε."""
    budgets = config.budgets
    persons = private if data.person_id is None else data.person_id[private]  # a row of the data, or whose it is
    there = len(np.unique(persons))
    delta = min(1e-5, 0.1 / there) if budgets.delta == "auto" else float(budgets.delta)
    if (data.epsilon is not None or data.levels is not None) and budgets.shares is not None:
        raise InputError("budgets.shares is given: the data says what its people consent to; leave it out")
    if config.data.file is not None:
        _refuse_conflicts(data, config)
    if data.epsilon is not None:
        return People.from_budgets(data.epsilon[private], delta=delta, person_id=persons)
    if budgets.epsilon is not None:
        return People.from_budgets(np.full(len(private), budgets.epsilon), delta=delta, person_id=persons)
    levels = None if data.levels is None else data.levels[private]
    if levels is None:
        if budgets.shares is None:
            raise InputError(
                f"{data.name} has no consent levels: set budgets.epsilon, or budgets.policy and budgets.shares to draw "
                "levels at random"
            )
        levels = _drawn(budgets.shares, len(private), config.split_seed)
    policy = Policy.from_mapping(budgets.policy or DEFAULT_POLICY)
    return People.from_levels(levels, policy=policy, delta=delta, person_id=persons)


def _refuse_conflicts(data: Dataset, config: RunConfig) -> None:
    """People's own consent is never overridden, and what a level means is never guessed."""
    budgets = config.budgets
    if (data.epsilon is not None or data.levels is not None) and budgets.epsilon is not None:
        raise InputError(
            f"budgets.epsilon is {budgets.epsilon:g}: the file says what its people consent to; leave it out"
        )
    if data.levels is not None and budgets.policy is None:
        raise InputError("budgets.policy is not given: say which ε each consent level of the file means")


def _drawn(shares: dict[str, float], n: int, seed: int) -> NDArray[np.str_]:
    """Levels in the given shares, to people at random."""
    names = list(shares)
    edges = np.round(np.cumsum(list(shares.values())) / sum(shares.values()) * n).astype(int)
    levels = np.array(names)[np.searchsorted(edges, np.arange(n), side="right")]
    return np.random.default_rng([seed, 1]).permutation(levels)


def make_models(config: RunConfig) -> tuple[Any, Any]:
    """Return the teacher and the student of a run, not yet trained."""
    teacher = make_model(config.teachers.model, config.teachers.options)
    wanted, kind = config.student, find_student(config.student.model)
    return teacher, kind.make(wanted.options, seed=config.split_seed, n_jobs=config.teachers.n_jobs)


def check_engine(config: RunConfig) -> None:
    """Refuse an engine that is not there, before anything is made for it."""
    from ipate.teachers.engines import Engine

    wanted = config.teachers
    if wanted.model in NETS and (wanted.backend is not None or wanted.address is not None):
        raise InputError(
            f"backend is {wanted.backend!r}: {wanted.model} trains in one batched model on a GPU, or in its own "
            "worker processes; leave backend and address out, or name a scikit-learn teacher"
        )
    Engine(backend=wanted.backend, n_jobs=wanted.n_jobs, address=wanted.address)
