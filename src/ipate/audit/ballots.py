"""Attacks on a release of ballots: the canary's ballot moves the histogram, which is released with measured noise."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ipate._types import Floats, Ints
from ipate.allocation.allocation import Allocation
from ipate.audit.canaries import made_up_task
from ipate.audit.law import least_success, vector_epsilon, within_steps
from ipate.audit.noise import independent, upper_limit
from ipate.audit.student import Lesson, Trials, attack_student
from ipate.audit.subject import Attack, GroupAudit, Measured, Subject, silent
from ipate.data.dataset import Dataset
from ipate.engines.ballots.counting import STEP
from ipate.engines.ballots.design import FULL, GRID, SIGMA, Design, allocate_ballots, ballot_terms, make_design, voters
from ipate.engines.ballots.release import BallotRelease, PublicMaps, release, sum_private
from ipate.files import write_npz
from ipate.ledger.records import Terms
from ipate.people.budgets import Group
from ipate.people.people import People
from ipate.public.cells import PARTITIONS
from ipate.release.noise import STEPS
from ipate.runs.ballots import release_once
from ipate.runs.folder import RunFolder
from ipate.runs.ledgers import Bar, reading

_ROWS = 3  # rows of the first person of every group; the others have one
_PER_CLASS = 4.0  # Σw/σ per class of the made-up people
_CELLS = 64
_POINTS = 10  # points of the made-up pool per cell


@dataclass(frozen=True, kw_only=True, eq=False)
class Poll:
    """The made-up people, their rows, and the public maps of a release of ballots in the copy."""

    subject: Subject
    people: People
    pool: Floats
    X: Floats
    y: Ints
    maps: PublicMaps

    @cached_property
    def allocation(self) -> Allocation:
        """Who votes with which weight, as the run allocates ballots."""
        settings, seed = self.subject.settings, self.subject.config.split_seed
        return allocate_ballots(settings.variant, people=self.people, seed=seed, meter=settings.meter)

    def charged(self, where: Path) -> tuple[Mapping[str, Terms], dict[str, float]]:
        """Release the ballots as a run does, and return the accounts of its ledger and what it charged them."""
        data = Dataset(
            name="made-up rows",
            X=np.concatenate([self.X, self.pool]),
            classes=tuple(map(str, range(self.n_classes))),
            y=np.concatenate([self.y, np.zeros(len(self.pool), dtype=np.int64)]),
        )
        task = made_up_task(data, self.people, n_private=len(self.X), n_public=len(self.pool))
        folder = RunFolder.create(where / "ballots", self.subject.copied)
        write_npz(folder.private / "cells.npz", self.maps.arrays())
        release_once(folder, task=task, allocation=self.allocation, settings=self.subject.settings, bar=silent)
        with reading(folder) as ledger:
            return ledger.terms, {name: terms.epsilon(ledger.spent(name)) for name, terms in ledger.terms.items()}

    @property
    def n_classes(self) -> int:
        """The size of the run's class set."""
        return self.subject.n_classes

    def released(self, y: Ints) -> BallotRelease:
        """Release everybody's ballots with these labels of their rows."""
        return release(
            self.pool,
            self.X,
            y,
            voters(self.allocation),
            n_classes=self.n_classes,
            meter=self.subject.settings.meter,
            maps=self.maps,
        )

    def design(self, terms: Mapping[str, Terms]) -> Design:
        """Return the design of a release that is charged to these accounts."""
        cells = self.maps.cells
        return make_design(
            list(terms.values()),
            n_classes=self.n_classes,
            n_pool=len(self.pool),
            partitions=cells.partitions,
            cells=cells.cells,
        )

    def summed(self, y: Ints, design: Design) -> Ints:
        """Return the exact sum of everybody's ballots with these labels."""
        return sum_private(self.X, y, voters(self.allocation), design=design, maps=self.maps)

    def replaced(self, person: int) -> Ints:
        """Return the labels after one person's rows got the next class."""
        return np.where(self.people.person_of_row == person, (self.y + 1) % self.n_classes, self.y)


def attack_ballots(
    subject: Subject, where: Path, *, trials: Trials, error: float, bar: Bar = silent
) -> tuple[tuple[GroupAudit, ...], tuple[Measured, ...]]:
    """Release the ballots of a few made-up people as the run does, and attack the canary of every group."""
    poll = _poll(subject)
    terms, charged = poll.charged(where)
    design = poll.design(terms)
    total = poll.summed(poll.y, design)
    released = np.empty((max(2, math.ceil(trials.draws / total.size)), total.size), dtype=np.int64)
    with bar("releases drawn", len(released)) as progress:
        for index in range(len(released)):
            released[index] = poll.released(poll.y).histogram.counts.ravel()
            progress(index + 1)
    measured = _measure(released, total, error=error)
    allocation, found = poll.allocation, []
    for place, group in enumerate(poll.people.groups):
        first = int(np.flatnonzero(poll.people.group_of_person == place)[0])
        moved = [poll.summed(poll.replaced(person), design) - total for person in (first, first + 1)]
        distance = max(float(np.linalg.norm(own.astype(np.float64))) * GRID for own in moved)
        promised = subject.promised[group.id]
        account = allocation.groups[int(allocation.group_of_person[first])].id
        reached = vector_epsilon(distance, measured.most, delta=promised.delta)
        attacks = [Attack(name="ballots", releases=1, charged=charged[account], reached=reached)]
        if trials.runs:
            attacks.append(_attack_student(poll, first + 1, trials=trials, delta=promised.delta))
        told: dict[str, Any] = {"group": group.id, "promised": promised.epsilon, "delta": promised.delta}
        found.append(GroupAudit(**told, teachers=None, moved=distance / math.sqrt(2), attacks=tuple(attacks)))
    return tuple(found), (measured,)


def _attack_student(poll: Poll, person: int, *, trials: Trials, delta: float) -> Attack:
    """Attack the student of a release: the canary's row is of class 0, or of class 1 in the other data set."""
    own = poll.people.person_of_row == person

    def released(label: int) -> Lesson:
        found = poll.released(np.where(own, label, poll.y))
        return found.labelling.labels, {"sample_weight": found.decoded.sample_weight}

    lessons = (lambda: released(0)), (lambda: released(1))
    return attack_student(poll.subject, poll.pool, poll.X[own][0], lessons, trials=trials, delta=delta)


def _poll(subject: Subject) -> Poll:
    """Return people and cells: so few people that everybody's ballot has the full weight of their budget."""
    people, total = _crowd(subject)
    rng = np.random.default_rng(subject.config.split_seed)
    cells = max(_CELLS, math.ceil(1.3 * total / FULL))
    pool = rng.normal(size=(_POINTS * cells, 2))
    partitions = subject.partitions or PARTITIONS
    maps = PublicMaps.make(pool, n_classes=subject.n_classes, cells=cells, partitions=partitions)
    X = pool[rng.integers(len(pool), size=people.n_rows)]
    y = rng.integers(subject.n_classes, size=people.n_rows)
    return Poll(subject=subject, people=people, pool=pool, X=X, y=y, maps=maps)


def _crowd(subject: Subject) -> tuple[People, float]:
    """Return made-up people of the run's groups with full budgets, and their total weight."""
    wanted = _PER_CLASS * subject.n_classes / len(subject.people.groups)
    sizes, total = [], 0.0
    for terms in ballot_terms(subject.people.groups, subject.settings.meter):
        sizes.append(max(2, math.ceil(wanted / terms.account.sensitivity)))
        total += sizes[-1] * terms.account.sensitivity
    groups = tuple(
        Group(id=group.id, budget=group.budget, people=size)
        for group, size in zip(subject.people.groups, sizes, strict=True)
    )
    member = np.repeat(np.arange(len(groups)), sizes)
    rows = np.where(np.append(True, member[1:] != member[:-1]), _ROWS, 1)
    person = np.repeat(np.arange(len(member)), rows)
    ids = np.array([f"canary {index}" for index in range(len(member))])
    return People(groups=groups, ids=ids, group_of_person=member, person_of_row=person), total


def _measure(released: Ints, total: Ints, *, error: float) -> Measured:
    """Return an upper limit of σ from how often an entry of a histogram is within one deviation of the exact sum."""
    means = total.ravel().astype(np.float64) * GRID
    steps = released - np.rint(means / STEP)
    least = least_success(int((np.abs(steps) <= STEPS).sum()), steps.size, error=error)
    most = upper_limit(lambda sigma: within_steps(means, sigma, step=STEP, reach=STEPS), least, SIGMA)
    return Measured(kind="ballots", stated=SIGMA, most=most, draws=steps.size, fresh=independent(steps.ravel()))
