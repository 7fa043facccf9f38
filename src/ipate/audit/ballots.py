"""Attacks on a release of ballots: the canary's ballot moves the histogram, which is released with measured noise."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ipate._types import Ints
from ipate.audit.auditing import Attack, Attacked, GroupAudit, Measured, Subject, Trials
from ipate.audit.canaries import MadeUp, attack_student, charging, copied
from ipate.audit.law import independent, least_success, upper_limit, vector_epsilon, within_steps
from ipate.engines.ballots.counting import STEP
from ipate.engines.ballots.design import FULL, GRID, SIGMA, Design, ballot_terms, make_design, voters
from ipate.engines.ballots.engine import BallotSettings
from ipate.engines.ballots.release import Placed, PublicMaps, sum_private
from ipate.engines.base import Round
from ipate.engines.context import Bar, silent
from ipate.ledger.base import Ledger, MemoryLedger
from ipate.ledger.records import Terms
from ipate.people.budgets import Group
from ipate.people.people import People
from ipate.public.cells import PARTITIONS
from ipate.release.lesson import Lesson
from ipate.release.noise import STEPS

_ROWS = 3  # rows of the first person of every group; the others have one
_PER_CLASS = 4.0  # Σw/σ per class of the made-up people
_CELLS = 64
_POINTS = 10  # points of the made-up pool per cell


@dataclass(frozen=True, kw_only=True, eq=False)
class Poll:
    """The made-up people, their rows, and the public maps of a release of ballots in the copy."""

    subject: Subject[BallotSettings]
    task: MadeUp
    run: Round[BallotSettings]
    maps: PublicMaps

    @cached_property
    def placed(self) -> Placed:
        """The rows in their cells, as the run prepares them."""
        placed: Placed = self.subject.engine.prepare(self.run, self.maps)
        return placed

    @property
    def people(self) -> People:
        """The made-up people."""
        return self.task.people

    def charged(self, where: Path) -> tuple[Mapping[str, Terms], dict[str, float]]:
        """Release the ballots as a run does, and return the accounts of its ledger and what it charged them."""
        with charging(self.run, self.subject.engine.terms(self.run), where / "ballots") as ledger:
            self.released(self.task.y, ledger)
            return ledger.terms, {name: terms.epsilon(ledger.spent(name)) for name, terms in ledger.terms.items()}

    def released(self, y: Ints, ledger: Ledger | None = None) -> Lesson:
        """Release everybody's ballots with these labels of their rows, on a ledger or on one in memory."""
        engine, run = self.subject.engine, replace(self.run, task=replace(self.task, y=y))
        return engine.release(run, self.maps, self.placed, ledger or MemoryLedger(engine.terms(run)))

    def design(self, terms: Mapping[str, Terms]) -> Design:
        """Return the design of a release that is charged to these accounts."""
        cells = self.maps.cells
        return make_design(
            list(terms.values()),
            n_classes=self.subject.n_classes,
            n_pool=self.task.shape[0],
            partitions=cells.partitions,
            cells=cells.cells,
        )

    def summed(self, y: Ints, design: Design) -> Ints:
        """Return the exact sum of everybody's ballots with these labels."""
        return sum_private(self.placed, y, voters(self.run.allocation), design=design, maps=self.maps)

    def replaced(self, person: int) -> Ints:
        """Return the labels after one person's rows got the next class."""
        own, y = self.people.person_of_row == person, self.task.y
        return np.where(own, (y + 1) % self.subject.n_classes, y)


def attack(subject: Subject[BallotSettings], where: Path, *, trials: Trials, bar: Bar = silent) -> Attacked:
    """Release the ballots of a few made-up people as the run does, and attack the canary of every group."""
    poll = _poll(subject, where)
    terms, charged = poll.charged(where)
    design = poll.design(terms)
    total = poll.summed(poll.task.y, design)
    released = np.empty((max(2, math.ceil(trials.draws / total.size)), total.size), dtype=np.int64)
    with bar("releases drawn", len(released)) as progress:
        for index in range(len(released)):
            released[index] = poll.released(poll.task.y).arrays["ballots"]["histogram"].ravel()
            progress(index + 1)
    measured = _measure(released, total, error=trials.error)
    allocation, found = poll.run.allocation, []
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
    return Attacked(groups=tuple(found), noise=(measured,))


def _attack_student(poll: Poll, person: int, *, trials: Trials, delta: float) -> Attack:
    """Attack the student of a release: the canary's row is of class 0, or of class 1 in the other data set."""
    own, y = poll.people.person_of_row == person, poll.task.y

    def released(label: int) -> Lesson:
        return poll.released(np.where(own, label, y))

    return attack_student(poll.subject, poll.task.points_, poll.task.X[own][0], released, trials=trials, delta=delta)


def _poll(subject: Subject[BallotSettings], where: Path) -> Poll:
    """Return people and cells: so few people that everybody's ballot has the full weight of their budget."""
    people, total = _crowd(subject)
    seed, n_classes = subject.config.split_seed, subject.n_classes
    rng = np.random.default_rng(seed)
    cells = max(_CELLS, math.ceil(1.3 * total / FULL))
    pool = rng.normal(size=(_POINTS * cells, 2))
    partitions = int((subject.stated.get("ballots") or {}).get("partitions", PARTITIONS))
    maps = PublicMaps.make(pool, n_classes=n_classes, cells=cells, partitions=partitions)
    X = pool[rng.integers(len(pool), size=people.n_rows)]
    y = rng.integers(n_classes, size=people.n_rows)
    task = MadeUp(people=people, X=X, y=y, points_=pool, classes=subject.classes, seed=seed)
    allocation = subject.engine.allocate(people, subject.settings, seed)
    return Poll(subject=subject, task=task, run=copied(subject, task, where, allocation=allocation), maps=maps)


def _crowd(subject: Subject[BallotSettings]) -> tuple[People, float]:
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
