"""The audit of a run: what it promised, the attacks of its engine on a copy, and what they found.

An engine names its attacks (`ipate.engines.base.Attacks`): a function of a `Subject`, a folder, `trials` and `bar` that
returns `Attacked`. It repeats the steps of the pipeline on made-up people, with ledgers of its own.
"""

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from ipate.allocation.allocation import Allocation
from ipate.config import RunConfig
from ipate.engines.base import Engine
from ipate.engines.context import Bar, Settings, silent
from ipate.errors import InputError, import_part
from ipate.people.budgets import Budget, Group
from ipate.people.people import People
from ipate.pipeline import Pupil
from ipate.runs.folder import RunFolder
from ipate.runs.task import make_student, request_of
from ipate.students.student import find_student

FOUND = "ABOVE THE PROMISE"
PASSED = "nothing above the promise"
UNPROMISED = "the run promises nothing; nothing above what its settings promise with secure noise"
STORED = "the run's own people, with made-up rows"
MADE_UP = "made-up people"
CONFIDENCE = 0.999
DRAWS = 200_000
FEWEST = 10  # trainings of a student
_FEW = 1  # people of a group whose number is not shown

S = TypeVar("S", bound=Settings)


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
class Attacked:
    """What the attacks of an engine found: the groups, the measured noise, and what a reader should know."""

    groups: tuple[GroupAudit, ...]
    noise: tuple[Measured, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Trials:
    """How much is drawn, and how likely a bound may be wrong.

    `draws` is the number of answers per kind of noise, `runs` that of trainings of the student. `error` holds for all
    kinds of noise together, `student_error` for the student of one group.
    """

    draws: int
    runs: int
    error: float
    student_error: float


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The result of an audit.

    `private` says that it used who learns from whom among real people, or figures of a run whose guarantee is not
    releasable.
    """

    run: str
    engine: str
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject(Generic[S]):
    """A run as the audit knows it: no private row, no label of one and no vote is among it.

    `stated` is what the run states about its costs, and `promised` has the strictest budget that consent, policy and
    record state for each group of `people`. `allocation` says who learns from whom in the copy.
    """

    run: str
    config: RunConfig
    engine: Engine[S]
    settings: S
    n_classes: int
    stated: Mapping[str, Any]
    people: People
    promised: Mapping[str, Budget]
    allocation: Allocation
    source: str
    private: bool

    @property
    def guarantee(self) -> str:
        """The kind of guarantee of the run."""
        return str(self.stated["kind"])

    @property
    def n_queries(self) -> int:
        """How many points the run asked."""
        return int(self.stated["n_queries"])

    @property
    def classes(self) -> tuple[str, ...]:
        """As many made-up classes as the run has."""
        return tuple(map(str, range(self.n_classes)))

    @cached_property
    def pupil(self) -> Pupil:
        """The run's student, untrained."""
        return Pupil(student=find_student(self.config.student.model), model=make_student(self.config))


def audit(
    run: Path,
    *,
    confidence: float = CONFIDENCE,
    draws: int = DRAWS,
    student_runs: int = 0,
    on_real_people: bool = False,
    bar: Bar = silent,
) -> Audit:
    """Attack a run in a copy and return the largest lower bound on ε that was reached, group by group.

    Parameters
    ----------
    run : Path
        The folder of a finished run; nothing in it is changed.
    confidence : float
        The probability with which all bounds hold at once.
    draws : int
        How many answers measure each kind of noise.
    student_runs : int
        How often the student is trained again, with and without each group's canary; 0 leaves this attack out.
    on_real_people : bool
        For a run on a file of people: read its allocation, who learns from whom, which is private. Otherwise made-up
        people of the same groups are allocated anew.
    """
    if not 0.5 <= confidence < 1:
        raise InputError(f"confidence is {confidence:g}: it must be from 0.5 to below 1")
    if draws < 1000:
        raise InputError(f"draws is {draws}: at least 1000 are needed")
    begun = time.monotonic()
    subject, attack = read_subject(run, on_real_people=on_real_people)
    _check_student(subject.config, student_runs)
    error = (1 - confidence) / (2 if student_runs else 1)
    trials = Trials(runs=student_runs, draws=draws, error=error, student_error=error / len(subject.people.groups))
    with tempfile.TemporaryDirectory(prefix="ipate-audit-") as where:
        found: Attacked = import_part("attack", attack)(subject, Path(where), trials=trials, bar=bar)
    return Audit(
        run=subject.run,
        engine=subject.engine.name,
        guarantee=subject.guarantee,
        confidence=confidence,
        people=subject.source,
        private=subject.private,
        noise=found.noise,
        groups=tuple(sorted(found.groups, key=lambda group: group.promised)),  # the strictest first, as in reports
        notes=tuple(_notes(subject, found)),
        seconds=time.monotonic() - begun,
    )


def _check_student(config: RunConfig, runs: int) -> None:
    """Refuse a number of retrainings that shows nothing, and a student that made-up points do not suit."""
    if runs != 0 and runs < FEWEST:
        raise InputError(f"student_runs is {runs}: it must be 0 or at least {FEWEST}: half of them set a threshold")
    if runs and find_student(config.student.model).images:
        raise InputError(
            f"student is {config.student.model!r}: it learns from images, and the audit's points are made up; leave "
            "out --student-runs"
        )


def _notes(subject: Subject[Any], found: Attacked) -> Iterator[str]:
    """Yield what a reader of the result should know."""
    yield (
        f"People: {subject.source}. No private row, label or vote was read. The bounds are lower bounds on ε: finding "
        "nothing is no proof."
    )
    if subject.guarantee == "none":
        yield "The run itself promises nothing; what its settings promise with secure noise was audited."
    yield from found.notes
    for group in found.groups:
        if group.found:
            worst = max(group.attacks, key=lambda attack: (group.exceeds(attack), attack.reached))
            reach = "" if group.teachers is None else f" reaches {group.teachers} of the teachers and"
            charged = "" if worst.charged is None else f" and the ledger charged {worst.charged:.4g}"
            yield (
                f"Group {group.group}: one person{reach} moves a weight of {group.moved:.4g}; {worst.name} show "
                f"ε ≥ {worst.reached:.4g}, {group.promised:.4g} was promised{charged}."
            )


def read_subject(path: Path, *, on_real_people: bool = False) -> tuple[Subject[Any], str]:
    """Read a finished run, and the name of what attacks it; refuse a run that promises nothing that can be attacked.

    The allocation of real people is read only if that is asked for: by default made-up people of the same groups are
    allocated anew.
    """
    folder = RunFolder.open(path)
    facts, stated = folder.read(folder.path / "data.json"), _stated(folder)
    if facts is None or stated is None:
        raise InputError(f"{path}: the run has released no labels yet; continue it with ipate run --resume {path}")
    config, settings = folder.config, folder.settings
    engine: Engine[Any] = request_of(config).named(settings.engine)
    attacks, meter = engine.attacks, settings.meter
    if attacks is None:
        raise InputError(f"{path}: engine is {engine.name!r}, which ipate audit does not cover: it names no attacks")
    if meter.whole or not meter.data_independent:
        why = "ptr charges a release as a whole" if meter.whole else "its costs are no guarantee"
        advice = "benchmarks/ptr_attacks.py attacks its test" if meter.whole else "use gdp, loose or sup"
        raise InputError(f"{path}: bound is {meter.bound!r}, which ipate audit does not cover: {why}; {advice}")
    if on_real_people and not attacks.real_people:
        raise InputError(f"--on-real-people: {engine.title} are audited on made-up people; leave it out")
    real = config.data.file is not None and not config.benchmark
    use_stored = attacks.real_people and (on_real_people or not real)
    if use_stored:
        kept = Allocation.load(folder.private / "allocation.npz")
        people = _two_rows_each(kept.people)
        allocation = replace(kept, people=people, withdrawn=())
    else:
        people = _made_up(stated["groups"])
        allocation = engine.allocate(people, settings, config.split_seed)
    subject = Subject(
        run=folder.id,
        config=config,
        engine=engine,
        settings=settings,
        n_classes=len(facts["classes"]),
        stated=stated,
        people=people,
        allocation=allocation,
        promised=_promises(people, config, stated["groups"]),
        source=STORED if use_stored else MADE_UP,
        private=real and (use_stored or stated["kind"] != "releasable"),  # the number of queries is private then
    )
    return subject, attacks.by


def _stated(folder: RunFolder) -> dict[str, Any] | None:
    """Return what the run states about its costs."""
    for shown in (folder.public, folder.private):
        if (found := folder.read(shown / "guarantee.json")) is not None:
            return found
    return None


def _promises(people: People, config: RunConfig, stated: Sequence[Mapping[str, Any]]) -> dict[str, Budget]:
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


def _made_up(stated: Sequence[Mapping[str, Any]]) -> People:
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
