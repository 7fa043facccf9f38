"""The way from private rows to a student; runs, fits, merged sites and votes from elsewhere all go it.

They differ in their task (where rows, people and public points come from), in their store (a folder that can be
resumed, or memory) and in the ledger that they charge.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ipate.allocation.allocation import Allocation
from ipate.data.frames import take
from ipate.engines.base import Engine, Guess, Round
from ipate.engines.choose import Request
from ipate.engines.context import Bar, Book, Facts, Settings, Store, Task, silent
from ipate.ledger.base import Opening
from ipate.ledger.records import noise_kind
from ipate.models.workers import Backend
from ipate.people.budgets import MIN_GROUP_SIZE
from ipate.release.lesson import Lesson
from ipate.release.results import Labelling
from ipate.students.confidence import check_guesses, guess
from ipate.students.student import Student


@dataclass(frozen=True, kw_only=True)
class Pupil:
    """The student of a run, and the untrained model that it is."""

    student: Student
    model: Any

    @property
    def form(self) -> str:
        """The form in which the student reads points."""
        return "images" if self.student.images else "model"

    def check(self, settings: Settings) -> None:
        """Refuse a student without the probabilities that the release needs."""
        if settings.asks_student:
            check_guesses(self.student, self.model)

    def try_on(self, task: Task, settings: Settings) -> None:
        """Refuse a student that cannot learn made-up labels of the pool, or lacks probabilities that are needed."""
        self.check(settings)
        points = take(task.pool(self.form), np.arange(min(TRIED, task.shape[0])))
        self.student.try_on(self.model, points, n_classes=task.n_classes)

    def taught(self, task: Task, lesson: Lesson) -> Any:
        """Return the student that learnt a lesson."""
        pool = task.pool(self.form)
        return self.student.learn(self.model, pool, lesson, classes=task.classes, labelled=task.labelled)


TRIED = 2000  # points on which a student is tried before anything is charged


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is asked of a run, whatever its engine."""

    request: Request
    pupil: Pupil | None  # None: the lesson is all that is wanted
    noise_seed: int | None = None
    max_groups: int | str = "auto"
    min_group_size: int = MIN_GROUP_SIZE
    compute: Backend = field(default_factory=Backend)

    def facts(self, task: Task) -> Facts:
        """Return the public facts of a task by which engine and settings are chosen."""
        return Facts(
            people=task.people,
            n_pool=task.shape[0],
            n_classes=task.n_classes,
            student=None if self.pupil is None else self.pupil.student,
            seed=task.seed,
            max_groups=self.max_groups,
            min_group_size=self.min_group_size,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Trained:
    """What a run gave: its public settings, who sat where, the lesson, and the student."""

    engine: Engine[Any]
    settings: Settings
    allocation: Allocation
    lesson: Lesson
    student: Any  # None where no student was asked for, or where a test failed


def train(task: Task, options: Options, *, book: Book, store: Store, bar: Bar = silent) -> Trained:
    """Choose, deal, prepare, charge, release, and teach; a step whose result is stored is not made again."""
    settings = store.settings(lambda: options.request.settle(options.facts(task), book.standing))
    engine: Engine[Any] = options.request.named(settings.engine)
    dealt = engine.allocate(settings.merged(task.people), settings, task.seed)
    allocation = store.allocation(dealt, task)  # equal to the stored one, without the people who withdrew
    run = Round(
        task=task,
        settings=settings,
        allocation=allocation,
        store=store,
        noise_seed=options.noise_seed,
        compute=options.compute,
        student=None if options.pupil is None else options.pupil.student,
        bar=bar,
        guess=_guesser(task, options, store, engine),
    )
    maps = engine.maps(run)  # public: queries, cells
    record = store.record()
    if record is not None:
        with book.read() as ledger:  # the ledger decides, files are checked
            lesson = engine.restore(run, maps, record, ledger)
    else:
        opening = Opening(
            terms=engine.terms(run),
            roster=task.roster(allocation),
            pool=task.fingerprint,
            noise=noise_kind(seeded=options.noise_seed is not None),
        )
        if not book.begun:  # reads only: refuses before training, and holds no lock
            engine.check(run, book.check(opening))
        store.tell(settings, allocation)
        if options.pupil is not None:
            options.pupil.try_on(task, settings)
        engine.try_out(run)  # on made-up rows: wrong models fail here
        inputs = engine.prepare(run, maps)  # of private rows; can be resumed
        with book.begin(opening) as ledger:  # the lock from here; a withdrawal since then refuses, uncharged
            lesson = engine.release(run, maps, inputs, ledger)
    store.publish(lesson)  # before a student exists
    student = None
    if options.pupil is not None and not lesson.failed:
        pupil = options.pupil
        student = store.student(lesson, lambda: pupil.taught(task, lesson))
    return Trained(engine=engine, settings=settings, allocation=allocation, lesson=lesson, student=student)


def _guesser(task: Task, options: Options, store: Store, engine: Engine[Any]) -> Guess | None:
    """Return what gives a student's probabilities from the labels so far; they are stored before they are used."""
    pupil = options.pupil
    if pupil is None:
        return None

    def guessed(run: Round[Any], found: Labelling) -> Any:
        def make() -> dict[str, Any]:
            lesson = engine.lesson(run, found)
            probs = guess(pupil.student, pupil.model, task.pool(pupil.form), lesson, classes=task.classes)
            return {"probs": np.zeros((0, task.n_classes)) if probs is None else probs}

        probs = store.once("student-probs", make)["probs"]
        return probs if len(probs) else None

    return guessed
