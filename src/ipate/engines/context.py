"""What surrounds an engine: public facts, its settings, the task of a run, where it is stored, and its ledger."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ipate._types import Ints
from ipate.accounting.bounds import Meter
from ipate.allocation.allocation import Allocation
from ipate.errors import InputError
from ipate.ledger.admission import Roster
from ipate.ledger.base import Checked, Ledger, MemoryLedger, Opening
from ipate.ledger.records import Terms
from ipate.ledger.standing import Standing
from ipate.people.budgets import MIN_GROUP_SIZE
from ipate.people.people import People
from ipate.release.lesson import Lesson
from ipate.release.results import Labelling, Record
from ipate.students.student import Student

Arrays: TypeAlias = Mapping[str, NDArray[Any]]
Progress: TypeAlias = Callable[[int], None]
Bar: TypeAlias = Callable[[str, int], AbstractContextManager[Progress]]  # a title and a total
StandingOf: TypeAlias = Callable[[People, Meter], Standing | None]
FORMAT = "ipate settings 2"
BASELINE = "standard"  # the variant in which every person counts at the strictest budget


@contextmanager
def silent(_title: str, _total: int) -> Iterator[Progress]:
    """Return the bar that shows nothing."""
    yield lambda _done: None


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The public facts by which an engine and its settings are chosen; budgets of people are not merged."""

    people: People
    n_pool: int
    n_classes: int
    student: Student | None = None
    seed: int = 0  # the split seed
    max_groups: int | str = "auto"
    min_group_size: int = MIN_GROUP_SIZE
    parties: bool = False  # the groups belong to parties that cannot share their data


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What every engine's settings have: all of it is public, chosen once and stored as JSON."""

    engine: ClassVar[str]
    variant: str
    meter: Meter
    reason: str
    max_groups: int | None = None  # budgets are merged to so many groups
    min_group_size: int = 1  # and groups of fewer people join the next stricter one

    @property
    def asks_student(self) -> bool:
        """Whether the release needs the probabilities of a student of the labels so far."""
        return False

    @property
    def individual(self) -> bool:
        """Whether budgets decide about influence."""
        return self.variant != BASELINE

    def merged(self, people: People) -> People:
        """Return the people in the groups of these settings."""
        if not people.n_people:
            return people
        return people.merged(max_groups=self.max_groups, min_group_size=self.min_group_size)

    @property
    def pages(self) -> Mapping[str, str]:
        """Copies of parts of the settings for readers, by name of a public file."""
        return {}

    def plain(self) -> dict[str, Any]:
        """Return the settings as plain data in full precision."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        meter = {"bound": self.meter.bound, "conversion": self.meter.conversion, "orders": list(self.meter.orders)}
        return {**values, "meter": meter}

    @classmethod
    def from_plain(cls, values: dict[str, Any]) -> Self:
        """Return the settings that `plain` described."""
        return cls(**{**values, "meter": Meter(**values["meter"])})

    def to_json(self) -> str:
        """Return the settings as JSON, with the name of their engine."""
        stated = {"format": FORMAT, "engine": self.engine, **self.plain()}
        return json.dumps(stated, indent=2, ensure_ascii=False, allow_nan=False)


class Task(ABC):
    """The rows, people and public points of one run, whatever they come from.

    `form` says how rows are wanted: "model" as models of tables read them, "images" with channels first, "numbers" as
    slices of numeric arrays.
    """

    name: str
    people: People  # of the private rows
    classes: tuple[Any, ...]  # in the order of their ids
    fingerprint: str  # of the public points and the classes: runs on the same pool share answers
    unprotected: tuple[str, ...] = ()  # people whose rows are used as pool or test data
    overlap: bool = False  # private rows may also be in the pool, so there is no guarantee
    seed: int = 0  # of partition, allocation and training
    notes: tuple[str, ...] = ()  # what was dropped or changed of the data; public

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The number of public points and the shape of one."""

    @abstractmethod
    def pool(self, form: str = "model") -> Any:
        """Return the public points."""

    @abstractmethod
    def rows(self, form: str = "model") -> Any:
        """Return the private rows."""

    @property
    def points(self) -> Ints:
        """The numbers by which the public points are named in what is published."""
        return np.arange(self.shape[0])

    @property
    @abstractmethod
    def codes(self) -> Ints:
        """The class id of every private row, −1 for a row without one."""

    @property
    def truth(self) -> Ints | None:
        """The class ids of the public points, −1 for unknown ones, for scoring only."""
        return None

    @property
    def labelled(self) -> tuple[Any, Ints] | None:
        """Further public rows with their class ids, for the student."""
        return None

    @abstractmethod
    def roster(self, allocation: Allocation) -> Roster:
        """Return the people of the run for its ledger, with the answers to what a ledger may ask."""

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        return len(self.classes)


@dataclass(frozen=True, kw_only=True, eq=False)
class GivenTask(Task):
    """What was made elsewhere, such as votes or sums of ballots: no rows are here, and nobody's id is known."""

    name: str
    people: People  # groups alone (`People.unnamed`)
    n_points: int
    classes: tuple[Any, ...]
    fingerprint: str
    accept_larger_budgets: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of public points."""
        return (self.n_points,)

    def pool(self, form: str = "model") -> Any:
        """Refuse: the points are elsewhere."""
        raise InputError(f"{self.name}: the public points are not here")

    def rows(self, form: str = "model") -> Any:
        """Refuse: the rows are elsewhere."""
        raise InputError(f"{self.name}: the private rows are not here")

    @property
    def codes(self) -> Ints:
        """No class ids."""
        return np.zeros(0, dtype=np.int64)

    def roster(self, allocation: Allocation) -> Roster:
        """Return no people: accounts are known by their ids."""
        return Roster(accept_larger_budgets=self.accept_larger_budgets)


class Store(ABC):
    """Where a run keeps what must not be made twice: a folder, which can be resumed, or memory."""

    @abstractmethod
    def once(self, name: str, make: Callable[[], Arrays], *, public: bool = False) -> Arrays:
        """Return the arrays that were stored under a name; else make and store them."""

    @abstractmethod
    def settings(self, make: Callable[[], "Settings"]) -> "Settings":
        """Return the settings that were stored; else make and store them."""

    @abstractmethod
    def allocation(self, made: Allocation, task: Task) -> Allocation:
        """Return the stored allocation, which must equal the one made now, without the people who withdrew."""

    @abstractmethod
    def tell(self, settings: "Settings", allocation: Allocation) -> None:
        """Tell the caller what was decided from public facts, once the ledger admits the run."""

    @abstractmethod
    def record(self) -> Record | None:
        """Return the record of an earlier release; None if there is none."""

    @abstractmethod
    def keep_record(self, record: Record, labelling: Labelling) -> None:
        """Store the record of a release that the ledger was charged for."""

    @abstractmethod
    def publish(self, lesson: Lesson) -> None:
        """Make a lesson visible, before a student exists."""

    @abstractmethod
    def student(self, lesson: Lesson, teach: Callable[[], Any]) -> Any:
        """Return the deployed student of a lesson; else teach and deploy it."""

    @abstractmethod
    def noted(self) -> dict[str, Any]:
        """Return the notes for the data owner."""

    @abstractmethod
    def note(self, **sections: Any) -> None:
        """Keep what private rows made fail, warn or unusable, for the data owner alone."""

    def place(self, name: str) -> Path | None:
        """Return a private folder for large files; None where everything is in memory."""
        del name
        return None


class MemoryStore(Store):
    """A run in memory, which cannot be resumed."""

    def __init__(self) -> None:
        self.notes: dict[str, Any] = {}
        self._record: Record | None = None
        self.labelling: Labelling | None = None

    def once(self, name: str, make: Callable[[], Arrays], *, public: bool = False) -> Arrays:
        """Make the arrays."""
        return make()

    def settings(self, make: Callable[[], "Settings"]) -> "Settings":
        """Make the settings."""
        return make()

    def allocation(self, made: Allocation, task: Task) -> Allocation:
        """Return the allocation without the people who withdrew from the ledger."""
        return made

    def tell(self, settings: "Settings", allocation: Allocation) -> None:
        """Tell nothing."""

    def record(self) -> Record | None:
        """Return the record of the release; None before it."""
        return self._record

    def keep_record(self, record: Record, labelling: Labelling) -> None:
        """Keep the record and the labelling."""
        self._record, self.labelling = record, labelling

    def publish(self, lesson: Lesson) -> None:
        """Show nothing: the caller reads the lesson."""

    def student(self, lesson: Lesson, teach: Callable[[], Any]) -> Any:
        """Teach the student."""
        return teach()

    def noted(self) -> dict[str, Any]:
        """Return the notes for the data owner."""
        return self.notes

    def note(self, **sections: Any) -> None:
        """Keep the notes for the data owner."""
        self.notes.update(sections)


class Book(ABC):
    """The ledger that a run charges, before and while it is open."""

    @abstractmethod
    def standing(self, people: People, meter: Meter) -> Standing | None:
        """Return what earlier runs left of the budgets; None if they have spent nothing."""

    def withdrawn(self, people: People) -> tuple[int, ...]:
        """Return the people, by index, who withdrew from the ledger."""
        del people
        return ()

    @property
    @abstractmethod
    def begun(self) -> bool:
        """Whether this run has been opened on its ledger."""

    @abstractmethod
    def check(self, opening: Opening) -> Checked:
        """Refuse a run that the ledger does not admit; nothing is written and no lock is held."""

    @abstractmethod
    def begin(self, opening: Opening) -> AbstractContextManager[Ledger]:
        """Open the ledger for charging; balances carry over from earlier runs by person id."""

    @abstractmethod
    def read(self) -> AbstractContextManager[Ledger]:
        """Open the ledger of a run that has been charged, read-only."""


class MemoryBook(Book):
    """A ledger in memory for one run: nothing is carried over."""

    def __init__(self) -> None:
        self.ledger: Ledger | None = None

    def standing(self, people: People, meter: Meter) -> Standing | None:
        """Return None: there are no earlier runs."""
        return None

    @property
    def begun(self) -> bool:
        """Whether the ledger was opened."""
        return self.ledger is not None

    def check(self, opening: Opening) -> Checked:
        """Return nothing: every account is new."""
        return Checked()

    @contextmanager
    def begin(self, opening: Opening) -> Iterator[Ledger]:
        """Open the ledger."""
        self.ledger = self.ledger or MemoryLedger(opening.terms)
        yield self.ledger

    @contextmanager
    def read(self) -> Iterator[Ledger]:
        """Return the ledger of the run."""
        if self.ledger is None:
            raise InputError("this run has charged nothing yet")
        yield self.ledger


class GivenBook(MemoryBook):
    """A ledger that a context manager opens, or memory where it opens none; `finish` sees both while it is open."""

    def __init__(
        self,
        opened: Callable[[list[Terms]], AbstractContextManager[Ledger | None]],
        finish: Callable[[Labelling, Ledger | None], None],
    ) -> None:
        super().__init__()
        self._opened, self._finish = opened, finish
        self.durable: Ledger | None = None
        self.store = MemoryStore()

    @contextmanager
    def begin(self, opening: Opening) -> Iterator[Ledger]:
        """Open the ledger."""
        with self._opened(list(opening.terms)) as found:
            self.durable = found
            self.ledger = found or MemoryLedger(opening.terms)
            yield self.ledger
            if self.store.labelling is not None:
                self._finish(self.store.labelling, found)
