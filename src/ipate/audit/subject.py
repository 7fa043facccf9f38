"""What an audit found: the attacks on every group's canary beside what was promised and charged.

What is audited: a run's settings, what it promised to each group, and the people of the copy.

The copy of a run in a temporary folder: its teachers, its ledger and its labelling, on made-up rows and votes.

Everything here is the code that a run uses: the allocation, the training and voting of teachers, the ledger on disk,
the labelling loop and its charges.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate._types import Floats, Ints
from ipate.allocation.allocation import Allocation
from ipate.audit.canaries import roll_call
from ipate.config import RunConfig
from ipate.engines.teachers.aggregators import Mechanism
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.variants import allocate
from ipate.engines.teachers.votes import Votes
from ipate.errors import MOST_EPSILON, InputError
from ipate.ledger.records import Terms
from ipate.options import TeacherConfig
from ipate.people.budgets import Budget, Group
from ipate.people.people import People
from ipate.planning.settings import Settings
from ipate.release.results import Labelling
from ipate.runs.fitting import run_labelling
from ipate.runs.folder import RunFolder
from ipate.runs.ledgers import Bar, opened
from ipate.runs.voting import collect_votes

FOUND = "ABOVE THE PROMISE"
PASSED = "nothing above the promise"
UNPROMISED = "the run promises nothing; nothing above what its settings promise with secure noise"


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One attack on one group: `releases` of one kind, what the ledger charged for them, and the ε that they show.

    `charged` is None where the ledger has no price for these releases alone.
    """

    name: str
    releases: int
    charged: float | None
    reached: float


@dataclass(frozen=True, kw_only=True)
class GroupAudit:
    """The attacks on the canary of one group: the person of it who can move most.

    `promised` is the ε that its people consented to, `teachers` the number of teachers that the canary's rows reach
    (None for ballots), and `moved` the weight of votes, or of a ballot, that they move.
    """

    group: str
    promised: float
    delta: float
    moved: float
    teachers: int | None
    attacks: tuple[Attack, ...]

    @property
    def reached(self) -> float:
        """The largest lower bound on ε."""
        return max((attack.reached for attack in self.attacks), default=0.0)

    def exceeds(self, attack: Attack) -> bool:
        """Whether an attack shows more than was promised, or more than the ledger charged for these releases."""
        return attack.reached > self.promised or (attack.charged is not None and attack.reached > attack.charged)

    @property
    def found(self) -> bool:
        """Whether any attack shows more than was promised or charged."""
        return any(map(self.exceeds, self.attacks))


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One kind of noise: its stated deviation, an upper limit that was measured, and whether draws are independent.

    Under Laplace noise, both figures are its scale.
    """

    kind: str
    noise: str = "gaussian"
    stated: float
    most: float
    draws: int
    fresh: bool = True


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The result of an audit.

    `private` says that it used who learns from whom among real people, or figures of a run whose guarantee is not
    releasable.
    """

    run: str
    voting: str
    guarantee: str
    confidence: float
    people: str
    private: bool
    groups: tuple[GroupAudit, ...]
    noise: tuple[Measured, ...]
    notes: tuple[str, ...]
    seconds: float

    @property
    def found(self) -> bool:
        """Whether an attack shows more than was promised or charged, or noise was not drawn afresh."""
        return any(group.found for group in self.groups) or not all(measured.fresh for measured in self.noise)

    @property
    def verdict(self) -> str:
        """The verdict in a few words."""
        return FOUND if self.found else PASSED if self.guarantee == "releasable" else UNPROMISED

    def as_json(self) -> dict[str, Any]:
        """Return the audit in JSON form."""
        kept = {**asdict(self), "found": self.found, "verdict": self.verdict}
        for stated, group in zip(kept["groups"], self.groups, strict=True):
            stated |= {"reached": group.reached, "found": group.found}
        return kept


STORED = "the run's own people, with made-up rows"
MADE_UP = "made-up people"
_FEW = 1  # people of a group whose number is not shown


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """A run as the audit knows it: no private row, no label of one and no vote is among it.

    `promised` has the strictest budget that consent, policy and record state for each group of `people`. `allocation`
    says who learns from whom in the copy; it is None for ballots.
    """

    run: str
    config: RunConfig
    settings: Settings
    n_classes: int
    n_queries: int
    partitions: int | None
    guarantee: str
    people: People
    promised: Mapping[str, Budget]
    allocation: Allocation | None
    source: str
    private: bool

    @property
    def copied(self) -> RunConfig:
        """The configuration of the copy: the run's, without its data, its ledger and its seed."""
        stated = self.config.model_dump()
        plain = {name: stated[name] for name in ("budgets", "labelling", "student", "split_seed", "code")}
        made = RunConfig.from_mapping({**plain, "data": {"name": "synthetic"}})
        roll = TeacherConfig(model="ipate.audit.canaries:Roll", backend="sequential", n_jobs=1)
        return made.model_copy(update={"teachers": roll})


def read_subject(path: Path, *, on_real_people: bool = False) -> Subject:
    """Read a finished run; refuse one that promises nothing that can be attacked.

    The allocation of real people is read only if that is asked for: by default made-up people of the same groups are
    allocated anew.
    """
    folder = RunFolder.open(path)
    facts, stated = folder.read(folder.path / "data.json"), _stated(folder)
    if facts is None or stated is None:
        raise InputError(f"{path}: the run has released no labels yet; continue it with ipate run --resume {path}")
    settings = folder.settings
    meter = settings.meter
    if meter.whole or not meter.data_independent:
        why = "ptr charges a release as a whole" if meter.whole else "its costs are no guarantee"
        attacks = "benchmarks/ptr_attacks.py attacks its test" if meter.whole else "use gdp, loose or sup"
        raise InputError(f"{path}: bound is {meter.bound!r}, which ipate audit does not cover: {why}; {attacks}")
    real = folder.config.data.file is not None and not folder.config.benchmark
    if on_real_people and settings.ballots:
        raise InputError("--on-real-people is for teachers: ballots are audited on made-up people, leave it out")
    use_stored = not settings.ballots and (on_real_people or not real)
    if use_stored:
        kept = Allocation.load(folder.private / "allocation.npz")
        people = _two_rows_each(kept.people)
        allocation: Allocation | None = replace(kept, people=people, withdrawn=())
    else:
        people = _made_up(stated["groups"])
        allocation = None
        if not settings.ballots:
            allocation = allocate(
                settings.variant,
                people=people,
                n_teachers=settings.n_teachers,
                seed=folder.config.split_seed,
                **settings.options,
            )
    ballots = stated.get("ballots")
    return Subject(
        run=folder.id,
        config=folder.config,
        settings=settings,
        n_classes=len(facts["classes"]),
        n_queries=int(stated["n_queries"]),
        partitions=None if ballots is None else int(ballots["partitions"]),
        guarantee=str(stated["kind"]),
        people=people,
        allocation=allocation,
        promised=_promises(people, folder.config, stated["groups"]),
        source=STORED if use_stored else MADE_UP,
        private=real and (use_stored or stated["kind"] != "releasable"),  # the number of queries is private then
    )


def _stated(folder: RunFolder) -> dict[str, Any] | None:
    """Return what the run states about its costs."""
    for shown in (folder.public, folder.private):
        if (found := folder.read(shown / "guarantee.json")) is not None:
            return found
    return None


def _promises(people: People, config: RunConfig, stated: list[dict[str, Any]]) -> dict[str, Budget]:
    """Return the strictest budget that people, policy and the run's own record state for every group."""
    recorded = {entry["group"]: Budget(entry["budget"], entry["delta"]) for entry in stated}
    policy = config.budgets.policy or {}
    found = {}
    for group in people.groups:
        told = [group.budget, *([recorded[group.id]] if group.id in recorded else [])]
        epsilon = min([budget.epsilon for budget in told] + [policy.get(group.id, np.inf)])
        found[group.id] = Budget(epsilon, min(budget.delta for budget in told))
    return found


def _two_rows_each(people: People) -> People:
    """Return the same people with two rows each, one of either made-up class, so that every teacher has to learn."""
    return replace(people, person_of_row=np.repeat(np.arange(people.n_people), 2))


def _made_up(stated: list[dict[str, Any]]) -> People:
    """Return as many made-up people as the run states for each group, with the same budgets."""
    sizes = [entry["people"] if isinstance(entry["people"], int) else _FEW for entry in stated]
    groups = tuple(
        Group(id=entry["group"], budget=Budget(entry["budget"], entry["delta"]), people=size)
        for entry, size in zip(stated, sizes, strict=True)
    )
    group = np.repeat(np.arange(len(groups)), sizes)
    made = People(
        groups=groups,
        ids=np.array([f"canary {index}" for index in range(len(group))]),
        group_of_person=group,
        person_of_row=np.arange(len(group)),
    )
    return _two_rows_each(made)


_ENTRIES = 40_000_000  # teachers × people whose numbers are asked
_POOL = 200_000  # largest made-up pool
_NOBODY = np.zeros(0, dtype=np.str_)


@contextmanager
def silent(*_: Any) -> Iterator[Any]:
    """Show no progress."""
    yield lambda done: None


@dataclass(frozen=True, kw_only=True, eq=False)
class Charged:
    """One labelling of a copy: how many queries were asked and answered, and what its ledger charged, by account.

    Queries in which an account's teachers had no vote, because they were dropped or not their turn, do not count.
    """

    labelling: Labelling
    asked: Mapping[str, int]
    answered: Mapping[str, int]
    spent: Mapping[str, Floats]
    constant: bool  # whether every query had the same price


@dataclass(frozen=True, kw_only=True, eq=False)
class Copy:
    """The copy of a run with teachers."""

    subject: Subject
    where: Path
    number: Iterator[int] = field(default_factory=count)

    @property
    def allocation(self) -> Allocation:
        """Who learns from whom in the copy."""
        if self.subject.allocation is None:
            raise TypeError("ballots have no teachers")
        return self.subject.allocation

    @property
    def mechanism(self) -> Mechanism:
        """The noise parameters that the run states."""
        return self.subject.settings.aggregator(self.allocation.scale).mechanism

    def folder(self) -> RunFolder:
        """Return a new run folder with the run's configuration and no charges."""
        return RunFolder.create(self.where / f"copy-{next(self.number)}", self.subject.copied)

    def reached(self, bar: Bar = silent) -> tuple[Ints, NDArray[np.bool_]]:
        """Return people and, (k, people), which teachers' votes show that they were trained on their rows."""
        people = self.subject.people
        most = max(1, _ENTRIES // max(1, self.allocation.n_teachers))
        asked = np.arange(people.n_people)
        if len(asked) > most:
            asked = np.sort(np.random.default_rng(0).choice(asked, size=most, replace=False))
        task = roll_call(people, asked)
        votes = collect_votes(self.folder(), "votes", task=task, allocation=self.allocation, bar=bar)
        return asked, np.asarray(votes.votes, dtype=bool)

    def votes(self, own: Ints, n_queries: int) -> Votes:
        """Return the same votes (k,) on so many queries."""
        small = own.astype(np.int16 if self.subject.n_classes > 127 else np.int8)
        return Votes(votes=np.broadcast_to(small[:, None], (len(own), n_queries)), n_classes=self.subject.n_classes)

    def counts(self, own: Ints, n_queries: int) -> Floats:
        """Return the weighted counts of these votes, (queries, classes), as the labelling counts them."""
        votes, panel = self.votes(own, n_queries), Panel.of(self.allocation.layout)
        turns = self.allocation.participation
        if turns is None:
            counted = panel.tally(np.asarray(own)[:, None], votes.n_classes, blocs=False).counts
            return np.broadcast_to(counted, (n_queries, votes.n_classes))
        return panel.tally(np.asarray(votes.votes), votes.n_classes, turns.in_order(n_queries, None)).counts

    def charged(self, own: Ints) -> Charged:
        """Label made-up points with these votes until the copy's own ledger stops it, or the pool ends."""
        settings = self.subject.settings
        n_pool = 2 * self.subject.n_queries + 100
        while True:
            points = n_pool if settings.n_queries is None else settings.n_queries
            with opened(self.folder(), self.allocation, settings, pool="made-up points", unprotected=_NOBODY) as ledger:
                found, _ = run_labelling(self.votes(own, points), self.allocation, settings, ledger=ledger)
                spent, charges = {account: ledger.spent(account) for account in ledger.terms}, ledger.charges
            if found.stopped_by != "pool" or settings.n_queries is not None or n_pool >= _POOL:
                break
            n_pool *= 4
        constant = settings.stop != "drop" and self.allocation.participation is None
        asked, answered = dict.fromkeys(spent, found.n_queries), dict.fromkeys(spent, found.n_labels)
        if not constant:
            for name in spent:
                moving = [np.broadcast_to(c.sensitivity[name], len(c.queries)) > 0 for c in charges]
                asked[name] = sum(int(part.sum()) for part in moving)
                answered[name] = sum(int((m & c.answered).sum()) for m, c in zip(moving, charges, strict=True))
        return Charged(labelling=found, asked=asked, answered=answered, spent=spent, constant=constant)

    @cached_property
    def terms(self) -> Mapping[str, Terms]:
        """The accounts of the copy's ledger."""
        with opened(
            self.folder(), self.allocation, self.subject.settings, pool="made-up points", unprotected=_NOBODY
        ) as ledger:
            return ledger.terms

    def sampled(self, own: Ints, n_queries: int) -> Iterator[Labelling]:
        """Label so many queries with these votes, in as many labellings as the largest budgets need."""
        layout = self.allocation.layout
        rich = tuple(account.with_budget(Budget(MOST_EPSILON, account.delta)) for account in layout.groups)
        allocation = replace(self.allocation, layout=replace(layout, groups=rich))
        settings = replace(self.subject.settings, stop="budget", max_labels=None, n_queries=None)
        left = n_queries
        while left > 0:
            found, _ = run_labelling(self.votes(own, left), allocation, settings)
            yield found
            left -= max(1, found.n_queries)
