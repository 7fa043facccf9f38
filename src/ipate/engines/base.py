"""The interface of engines: an engine turns private rows into a lesson for the student.

Everything that an engine decides before its release follows from public facts: ids and budgets of people, sizes, the
pool, and options. An engine does not know whether its run has a folder or lives in memory (`Store`), nor where rows
come from (`Task`). A new engine is a folder with a subclass of `Engine` and one line in `ipate.engines.choose.ENGINES`,
or a class elsewhere that is named as module:attribute.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ipate._types import Floats
from ipate.accounting.bounds import Meter
from ipate.allocation.allocation import Allocation
from ipate.engines.context import Bar, Facts, Settings, StandingOf, Store, Task, silent
from ipate.errors import InputError
from ipate.ledger.base import Checked, Ledger
from ipate.ledger.records import NoiseKind, Terms, noise_kind
from ipate.ledger.standing import Standing
from ipate.models.workers import Backend
from ipate.people.budgets import MIN_GROUP_SIZE, Group, shown_counts
from ipate.people.people import People
from ipate.public.features import Kind
from ipate.release.description import Description, Manner, Parameters, from_outside
from ipate.release.lesson import Lesson
from ipate.release.results import Labelling, Record
from ipate.students.student import Student

Guess: TypeAlias = Callable[["Round[Any]", Labelling], Floats | None]


@dataclass(frozen=True, kw_only=True)
class Means:
    """What an engine has to work with: groups of people, sizes, and what earlier runs left of the budgets.

    `student` is the one that will learn from the lesson; it may suit a rule of queries or a number of labels. `notes`
    say how budgets were merged. Numbers of people below `min_group_size` are not shown.
    """

    groups: tuple[Group, ...]
    n_pool: int
    n_classes: int
    seed: int = 0
    student: Student | None = None
    standing: Standing | None = None
    min_group_size: int = MIN_GROUP_SIZE
    parties: bool = False
    notes: tuple[str, ...] = ()

    @property
    def n_people(self) -> int:
        """The number of people."""
        return sum(group.people or 0 for group in self.groups)

    def shown(self, people: int | None) -> int | str | None:
        """Return a number of people as it may be shown beside those of the groups."""
        return shown_counts([people, *(group.people for group in self.groups)], least=self.min_group_size)[0]


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table of a forecast, with its notes."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What an engine would give these people on this pool, from public facts alone.

    `facts` are keys of a plan's JSON: plain data, in which only keys named `people` count people. `tables` show the
    same to a reader.
    """

    facts: Mapping[str, Any]
    tables: tuple[Table, ...]
    notes: tuple[str, ...] = ()


S = TypeVar("S", bound=Settings)


@dataclass(frozen=True, kw_only=True, eq=False)
class Round(Generic[S]):
    """What every step of an engine needs to know about the round that it works on.

    A run has one round. `guess` returns a student's probabilities at the pool from the labels found so far.
    """

    task: Task
    settings: S
    allocation: Allocation
    store: Store
    noise_seed: int | None = None
    compute: Backend = field(default_factory=Backend)
    student: Student | None = None
    bar: Bar = silent
    guess: Guess | None = None

    @property
    def noise(self) -> NoiseKind:
        """The kind of noise: from a seed, or from the secure generator of the operating system."""
        return noise_kind(seeded=self.noise_seed is not None)

    def recorded(self, result: Labelling, ledger: Ledger) -> Record:
        """Return the stored record of a labelling that the ledger was charged for."""
        found = result.overlapping() if self.task.overlap else result
        head = "" if ledger.head is None else str(ledger.head)
        record = Record.of(found, n_public=self.task.shape[0], ledger_head=head)
        self.store.keep_record(record, found)
        return record


@dataclass(frozen=True, kw_only=True)
class Attacks:
    """The attacks of `ipate audit` on an engine.

    `by` names a function as module:attribute, see `ipate.audit.auditing`. `real_people` says whether it can attack the
    allocation of a run, rather than made-up people alone.
    """

    by: str
    real_people: bool = False


class Engine(ABC, Generic[S]):
    """A way to turn private rows into a lesson; its fields are its options.

    `settle` to `restore` are the steps of a run, in this order. `forecast`, `describe`, `attacks` and `exchange` are
    optional; a feature that needs one of them says that it does not cover the engine.
    """

    name: ClassVar[str]
    title: ClassVar[str]  # who acts, in the plural: "teachers"
    trains: ClassVar[bool] = False  # whether models are trained on private rows, which is a stage of its own
    attacks: ClassVar[Attacks | None] = None  # None: `ipate audit` does not cover the engine
    embedding: str = "auto"

    @property
    @abstractmethod
    def meter(self) -> Meter:
        """The bound and the conversion that count costs."""

    def group_limit(self, facts: Facts) -> int | None:
        """Return the largest number of groups, of which more are merged downwards; None for no limit."""
        return None if isinstance(facts.max_groups, str) else facts.max_groups

    @abstractmethod
    def chosen(self, means: Means) -> S:
        """Return the settings, every "auto" resolved from public facts and from what is left of the budgets."""

    @abstractmethod
    def read(self, values: dict[str, Any]) -> S:
        """Return the settings that were stored as plain data."""

    def check_useful(self, settings: S, means: Means, *, needed: int | str = "auto", key: str = "min_labels") -> None:
        """Refuse settings from which a student could learn nothing useful, before anything is trained."""

    def means(self, facts: Facts, standing: StandingOf) -> Means:
        """Return the groups that the engine can serve, with what is left of their budgets."""
        people = facts.people.merged(max_groups=self.group_limit(facts), min_group_size=facts.min_group_size)
        return Means(
            groups=people.groups,
            n_pool=facts.n_pool,
            n_classes=facts.n_classes,
            seed=facts.seed,
            student=facts.student,
            standing=standing(people, self.meter),
            min_group_size=facts.min_group_size,
            parties=facts.parties,
            notes=people.notes,
        )

    def settle(self, facts: Facts, standing: StandingOf, *, needed: int | str = "auto", key: str = "min_labels") -> S:
        """Return the settings of a run, which state how budgets are merged; refuse what is of no use."""
        means = self.means(facts, standing)
        settings = self.chosen(means)
        self.check_useful(settings, means, needed=needed, key=key)
        return replace(settings, max_groups=self.group_limit(facts), min_group_size=facts.min_group_size)

    @abstractmethod
    def allocate(self, people: People, settings: S, seed: int) -> Allocation:
        """Return who sits where; `people` are those of the settings' groups."""

    @abstractmethod
    def terms(self, run: Round[S]) -> list[Terms]:
        """Return the accounts that are charged."""

    def maps(self, run: Round[S]) -> Any:
        """Return what the pool alone decides, stored by the round: cells, queries."""
        del run
        return None

    def check(self, run: Round[S], checked: Checked) -> None:
        """Refuse a run whose accounts cannot pay for anything."""

    def try_out(self, run: Round[S]) -> None:
        """Try the models on made-up rows, so that wrong ones fail before private rows are used."""

    @abstractmethod
    def prepare(self, run: Round[S], maps: Any) -> Any:
        """Return what is made of private rows before the ledger is locked; it can be resumed."""

    @abstractmethod
    def release(self, run: Round[S], maps: Any, inputs: Any, ledger: Ledger) -> Lesson:
        """Charge the release to the ledger, then make it visible; noise is never drawn twice."""

    def lesson(self, run: Round[S], found: Labelling) -> Lesson:
        """Return what a labelling teaches before it is complete, for an engine that asks in rounds."""
        return Lesson(record=Record.of(found, n_public=run.task.shape[0]))

    @abstractmethod
    def restore(self, run: Round[S], maps: Any, record: Record, ledger: Ledger) -> Lesson:
        """Return the lesson of an earlier release, checked against the ledger, which decides."""

    def kind(self, run: Round[S]) -> Kind | None:
        """Return the features in which queries and cells are chosen; "auto" is what suits the student."""
        if self.embedding not in ("auto", "given", "learnt"):
            raise InputError(f"embedding is {self.embedding!r}: it must be auto, given or learnt")
        if self.embedding != "auto":
            return cast("Kind", self.embedding)
        return None if run.student is None else run.student.embedding(run.task.shape[1:])

    def offer(self, means: Means) -> str:
        """Return what this engine would give to people for whom another one was refused; empty if nothing."""
        return ""

    def forecast(self, means: Means, *, bar: Bar = silent) -> Forecast | None:
        """Return what budgets afford, for plans; None if plans do not cover this engine."""
        return None

    def varied(self, settings: S, variant: str, facts: Facts) -> S:
        """Return the same settings for another variant, for a comparison."""
        del facts
        return replace(settings, variant=variant)

    def raw_accuracy(self, store: Store, task: Task) -> dict[str, float | None]:
        """Return how often models of private rows are right on the pool: without noise, for a comparison alone."""
        del store, task
        return {"accuracy": None, "plurality_accuracy": None}

    def standard_labels(self, settings: S, groups: Sequence[Group], record: Record) -> int | None:
        """Return how many labels standard PATE affords at the strictest budget; None where that says nothing."""
        return None

    def parts(self, settings: S) -> dict[str, object]:
        """Return the parts that the promise rests on, by kind: those from outside are named wherever it is stated."""
        return {"engine": self, "bound": settings.meter.definition}

    def report(self, settings: S, allocation: Allocation) -> Description:
        """Return what the engine states about a release for its report."""
        used = Parameters(
            engine=settings.engine,
            variant=allocation.variant,
            rule=allocation.layout.rule,
            bound=settings.meter.bound,
            conversion=settings.meter.conversion,
            reason=settings.reason,
        )
        manner = Manner(
            individual=settings.individual,
            outside=from_outside(**self.parts(settings)),
            rows=(("engine", settings.engine),),
        )
        return Description(parameters=used, manner=manner)

    def describe(self, settings: S, allocation: Allocation) -> Mapping[str, Any]:
        """Return the parameters of a release for card and JSON, by name."""
        found = self.report(settings, allocation)
        used, outside = found.parameters, found.manner.outside
        return {
            "engine": used.engine,
            "variant": used.variant,
            "teachers": used.teachers,
            "teacher": used.teacher_model,
            "sigma": used.sigma,
            "laplace_scale": used.laplace_scale,
            "check_sigma": used.check_sigma,
            "threshold": used.threshold,
            **({"not_proven": ", ".join(outside)} if outside else {}),
        }

    def trained(self, private: Path) -> NDArray[np.bool_]:
        """Return which models of private rows a run has trained, from its private folder; empty before the first."""
        del private
        return np.zeros(0, dtype=np.bool_)

    def forget(self, private: Path, models: Sequence[int]) -> None:
        """Erase what some models learnt from a run's private folder, because a person withdrew."""
