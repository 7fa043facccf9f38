"""The two engines of `PATEClassifier.fit`: teachers that vote, and people who cast ballots."""

from contextlib import closing
from functools import partial
from typing import Any

import numpy as np

from ipate._types import Ints
from ipate.allocation.allocation import Allocation
from ipate.data.frames import as_numbers, n_rows
from ipate.engines.ballots.design import allocate_ballots, voters
from ipate.engines.ballots.release import release
from ipate.engines.teachers.influence import single_class_groups
from ipate.engines.teachers.variants import allocate
from ipate.engines.teachers.votes import Votes
from ipate.errors import InputError
from ipate.ledger.base import Ledger, MemoryLedger
from ipate.ledger.sqlite import withdrawals_on
from ipate.models.named import dry_fit
from ipate.models.training import Notes, train_and_vote, vote_dtype
from ipate.models.workers import Engine
from ipate.people.people import People
from ipate.planning.settings import designed
from ipate.public.features import Kind, fit_features
from ipate.release.noise import make_noise
from ipate.release.results import Labelling
from ipate.runs.asking import ask, plan_queries
from ipate.runs.fitting import Label, charged_terms, run_labelling
from ipate.students.confidence import guess
from ipate.students.fitted import student_of


def by_teachers(model: Any, X: Any, y: Ints, people: People, pool: Any, *, seed: int) -> Label:
    """Train the teachers of a classifier, and return the function that labels the pool with their votes."""
    settings, n_classes = model.choice_, len(model.classes_)
    dealt = allocate(model.variant, people=people, n_teachers=settings.n_teachers, seed=seed)
    model.allocation_ = allocation = _without_withdrawn(model, dealt)
    model._tell(settings.reason, *allocation.notes)
    numbers = pool if settings.queries == "random" else as_numbers(pool, pool)[1]
    asking = plan_queries(
        numbers, settings, n_classes=n_classes, seed=seed, n_jobs=model.n_jobs, kind=_embedding(model, numbers)
    )
    asked = [str(index) for index in asking.first.tolist()]
    settings = model.choice_ = designed(settings, allocation, n_classes=n_classes, queries=asked)
    votes, model.private_notes_ = collect_votes(
        model._teacher(),
        X,
        y,
        allocation=allocation,
        pool=pool,
        n_classes=n_classes,
        seed=seed,
        engine=Engine(backend=model.backend, n_jobs=model.n_jobs, address=model.address),
        cpu_seconds=model.cpu_seconds,
    )

    def label(ledger: Ledger | None) -> tuple[Labelling, Ledger]:
        book = MemoryLedger(charged_terms(allocation, settings)) if ledger is None else ledger

        def answered(order: Ints, after: Labelling | None = None, probs: Any = None) -> Labelling:
            given = {"noise_seed": model.noise_seed, "order": order, "after": after, "student_probs": probs}
            return run_labelling(votes, allocation, settings, ledger=book, **given)[0]

        student, total_weight = student_of(model), float(allocation.weights.sum())
        own = partial(guess, student, student.make({}, seed=seed), pool, classes=model.classes_.tolist())
        taught = partial(own, total_weight=total_weight)
        return ask(asking, answered, n_classes=n_classes, total_weight=total_weight, guess=taught), book

    return label


def by_ballots(model: Any, X: Any, y: Ints, people: People, pool: Any, *, seed: int) -> Label:
    """Return the function that releases the ballots of a classifier's people."""
    settings = model.choice_
    dealt = allocate_ballots(model.variant, people=people, seed=seed, meter=settings.meter)
    model.allocation_ = allocation = _without_withdrawn(model, dealt)
    model._tell(settings.reason, *allocation.notes)
    model.private_notes_ = {"rows_without_class": int((y < 0).sum())}
    n_classes = len(model.classes_)
    rows, points = as_numbers(X, pool)
    features = fit_features(points, n_classes=n_classes, kind=_embedding(model, points))

    def label(ledger: Ledger | None) -> tuple[Labelling, Ledger]:
        book = MemoryLedger(charged_terms(allocation, settings)) if ledger is None else ledger
        found = release(
            points,
            rows,
            y,
            voters(allocation),
            n_classes=n_classes,
            ledger=book,
            features=features,
            noise=make_noise(model.noise_seed),
            n_jobs=model.n_jobs,
            withdrawn=people.ids[list(allocation.withdrawn)].tolist(),
        )
        model._tell(*found.notes)
        model._decoded = found.decoded  # for the student
        return found.labelling, book

    return label


def _without_withdrawn(model: Any, allocation: Allocation) -> Allocation:
    """Return the allocation with empty places for the people who withdrew from the classifier's ledger."""
    gone = {} if model.ledger is None else withdrawals_on(model.ledger).withdrawn
    ids = allocation.people.ids.tolist()
    return allocation.without(tuple(index for index, person in enumerate(ids) if person in gone))


def _embedding(model: Any, pool: Any) -> Kind | None:
    """Return the kind of features in which a classifier's queries and cells are chosen.

    "auto" is what suits its student.
    """
    if model.embedding not in ("auto", "given", "learnt"):
        raise InputError(f"embedding is {model.embedding!r}: it must be auto, given or learnt")
    return student_of(model).embedding(np.shape(pool)[1:]) if model.embedding == "auto" else model.embedding


def collect_votes(
    teacher: Any,
    X: Any,
    y: Ints,
    *,
    allocation: Allocation,
    pool: Any,
    n_classes: int,
    engine: Engine,
    cpu_seconds: float | None,
    seed: int,
) -> tuple[Votes, dict[str, Any]]:
    """Try the teacher on made-up rows, train those of an allocation, and return their votes on the pool.

    The second result is what private rows made fail, warn or unusable, for the data owner alone.
    """
    notes: Notes = {}
    rows = [allocation.rows_of_teacher(index) for index in range(allocation.n_teachers)]
    dry_fit(teacher, pool, n_classes=n_classes, rows=max(map(len, rows)), engine=engine, cpu_seconds=cpu_seconds)
    votes = np.zeros((len(rows), n_rows(pool)), dtype=vote_dtype(n_classes))
    voted = train_and_vote(
        teacher,
        X,
        y,
        rows=rows,
        X_public=pool,
        n_classes=n_classes,
        cpu_seconds=cpu_seconds,
        seed=seed,
        notes=notes,
        n_jobs=engine.n_jobs,
        backend=engine.backend,
        address=engine.address,
    )
    with closing(voted):
        for number, own in voted:
            votes[number] = own
    groups = [str(group) for group in single_class_groups(allocation, y)]
    private = {"teachers": notes, "groups": groups, "rows_without_class": int((y < 0).sum())}
    return Votes(votes=votes, n_classes=n_classes), private
