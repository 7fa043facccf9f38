"""The steps of `PATEClassifier.fit`, and the labelling, which `ipate run` shares."""

import logging
import secrets
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ipate._types import Ints
from ipate.accounting.bounds import Meter, queries_afforded
from ipate.allocation.allocation import Allocation
from ipate.data.frames import check_form, column_of, is_frame, n_rows, numbers_alone
from ipate.data.overlap import check_overlap
from ipate.engines.ballots.design import ballot_terms
from ipate.engines.teachers.loop import account_terms, label, open_ledger
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.tested import label_tested
from ipate.engines.teachers.votes import Votes
from ipate.errors import ClassesWarning, InputError, IpateError, LedgerWarning, PublicRowsWarning, RepeatedFitWarning
from ipate.ledger.admission import Roster
from ipate.ledger.base import Ledger, MemoryLedger
from ipate.ledger.finding import choose_ledger
from ipate.ledger.records import NoiseKind, Terms, noise_kind
from ipate.ledger.sqlite import SqliteLedger
from ipate.people.budgets import Group
from ipate.people.grouping import refusing_large_delta
from ipate.people.ids import plain_ids, warn_alike
from ipate.people.people import People
from ipate.people.people import make_people as group_people
from ipate.planning.settings import Settings, designed
from ipate.planning.standing import Standing, read_standing
from ipate.release.history import Extract
from ipate.release.noise import make_noise
from ipate.release.results import Labelling, Record
from ipate.students.confidence import check_guesses
from ipate.students.student import Student

Label: TypeAlias = Callable[[Ledger | None], tuple[Labelling, Ledger]]  # labels a pool on a ledger, or one in memory
_REPEATS = (  # modules that fit clones of an estimator, or call a function that does, many times
    "sklearn.model_selection.",
    "sklearn.calibration",
    "sklearn.ensemble.",
    "sklearn.feature_selection.",
    "sklearn.multiclass",
    "sklearn.multioutput",
    "dask_ml.",
    "hyperopt.",
    "optuna.",
    "ray.tune.",
    "skopt.",
)
_VALUE_FREE = ("Found array with ", "Input X contains ", "Input y contains ")  # of scikit-learn, without cells
make_people = refusing_large_delta()(group_people)


def find_classes(y: NDArray[Any], classes: Sequence[Any] | None) -> NDArray[Any]:
    """Return the given classes, or those of y with a warning that the set of classes is then public."""
    found = np.unique(y if classes is None else np.asarray(classes))
    if classes is None:
        warnings.warn(
            f"taking the {len(found)} classes from y, which treats the set of classes as public: pass "
            "classes=[…] to name them",
            ClassesWarning,
            stacklevel=3,
        )
    if len(found) < 2:
        raise InputError(f"there is one class, {found.tolist()[0]!r}: a classifier needs at least 2 classes")
    return found


def check_ledger_use(ledger: Any, *, seeded: bool, named: bool) -> None:
    """Refuse a ledger without person ids; warn that without a ledger the next fit spends the same budgets again."""
    if ledger is not None and not named:
        raise InputError(
            f"ledger is {str(ledger)!r} without person_id: give the person's id of each row, so that later fits find "
            "what each person has spent"
        )
    if ledger is None and not seeded:
        warnings.warn(
            "no ledger is named, so budgets are counted for this fit alone and the next fit spends them again: pass "
            "ledger= and person_id=",
            LedgerWarning,
            stacklevel=3,
        )


def check_ids(people: People, *, named: bool) -> tuple[str, ...]:
    """Return everybody's id, and warn about given ids that look alike."""
    ids = tuple(people.ids.tolist())
    warn_alike(ids if named else (), where="person_id")
    return ids


def check_copies(private: Any, public: Any, table: Any, *, what: str, ids: tuple[str, Sequence[str]] | None) -> None:
    """Refuse public features that are copies of private rows, or whose table names people of the private rows.

    `ids` is the name of the column of ids and everybody's id; `table` is the public frame as it was given.
    """
    advice = "use other public data; for benchmarks, allow_overlap=True"
    named = None if ids is None else column_of(table, ids[0])
    if ids is None or named is None:
        check_overlap(private, public, what=what, advice=advice)
    else:
        own = np.array(ids[1])
        check_overlap(private, public, what=what, private_ids=own, public_ids=np.array(plain_ids(named)), advice=advice)


def roster_of(model: Any, everybody: Sequence[str]) -> Roster:
    """Return the people of a fit for its ledger, with the answers that the classifier's parameters give."""
    people = model.allocation_.people.ids.tolist()
    return Roster(
        people=model.allocation_.members(),
        unprotected=set(everybody) - set(people),
        new_people=model.new_people,
        accept_larger_budgets=model.accept_larger_budgets,
        overlap=model.allow_overlap,
        withdrawn=model.allocation_.former(),
    )


def standing_of(model: Any, people: People, everybody: Sequence[str]) -> Standing | None:
    """Return what earlier fits on a classifier's ledger left of the budgets; None if there are none."""
    if model.ledger is None or model.fresh_ledger:
        return None
    path, seeded = Path(model.ledger), model.noise_seed is not None
    if not seeded:
        path = choose_ledger(path, beside=None, people=frozenset(everybody)).path
    unprotected = set(everybody) - set(people.ids.tolist())
    roster = Roster(people=dict.fromkeys(people.ids.tolist(), ""), unprotected=unprotected, overlap=model.allow_overlap)
    meter = Meter(model.bound, model.conversion)
    return read_standing(path, people, roster, meter=meter, noise=noise_kind(seeded=seeded))


def encode(classes: NDArray[Any], y: ArrayLike, what: str) -> Ints:
    """Return y as indices into the classes; raise `InputError` for an unknown value."""
    values = np.asarray(y)
    places = np.searchsorted(classes, values)
    known = classes[np.minimum(places, len(classes) - 1)] == values
    if not np.all(known):
        bad = values[~known].tolist()[0]
        raise InputError(f"{what} holds {bad!r}: the classes are {', '.join(map(str, classes.tolist()))}")
    return places.astype(np.int64)


def refuse_parameters(given: Mapping[str, Any]) -> None:
    """Refuse parameters of `fit` that are not supported, such as weights of rows, with the reason."""
    if "sample_weight" in given:
        raise InputError(
            "fit was given sample_weight, which is not supported: a person's influence follows from their budget, and "
            "other weights of private rows would change it; weight classes inside the teacher (class_weight=) instead"
        )
    for name in given:
        raise TypeError(f"PATEClassifier.fit() got an unexpected keyword argument {name!r}")


def warn_in_search(*, shared: bool) -> None:
    """Warn if `fit` was called by a cross-validation, a search or an ensemble, unless a ledger is shared."""
    frame = sys._getframe(1)
    while not shared and frame.f_back is not None:
        frame = frame.f_back
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith(_REPEATS):
            warnings.warn(
                f"fit was called from {module}, which may fit many times: every fit spends the budgets of its people "
                "again, and no ledger is shared, so nobody's costs are added up. Choose models on public data, or set "
                "ledger= and person_id= so that all fits together stay within everybody's budget",
                RepeatedFitWarning,
                stacklevel=3,
            )
            return


def check_targets(X: Any, y: Any) -> NDArray[Any]:
    """Return labels whose set is taken as public, one per row; refuse others by shape or kind, without a value."""
    from sklearn.utils.multiclass import type_of_target
    from sklearn.utils.validation import column_or_1d

    if y is None:
        raise InputError("fit requires y to be passed, but the target y is None: give one class per row")
    labels, rows = np.asarray(y), n_rows(X)
    if labels.shape not in ((rows,), (rows, 1)):
        raise InputError(f"y has the shape {labels.shape} and X {rows} rows: one label per row is needed")
    kind = type_of_target(column_or_1d(labels, warn=True), input_name="y")
    if kind not in ("binary", "multiclass"):
        raise InputError(
            f"y is {'of mixed or unusual types' if kind == 'unknown' else kind}. Unknown label type: {kind}; a "
            "classifier needs a class per row, as text or as whole numbers"
        )
    return np.ravel(labels)


def hiding_values(validate: Callable[[], tuple[Any, Any]]) -> tuple[Any, Any]:
    """Return validated private rows; an error of scikit-learn or numpy may quote cells, and is replaced.

    It is raised outside of the handler, so that the error with the cells is not its context.
    """
    try:
        return validate()
    except InputError:
        raise
    except Exception as error:
        line, typed = str(error).partition("\n")[0], isinstance(error, TypeError)
    if typed:
        raise TypeError("X or y holds bytes or other Python objects: each argument must be a string or a real number")
    if line.startswith(_VALUE_FREE):
        advice = " Rows with such cells are left out if classes=[…] names the classes" if "contains" in line else ""
        raise InputError(line + advice)
    raise InputError(
        "X and y cannot be read as numbers and classes, and the cell in question is private, so it is not shown: "
        "convert text to numbers, or pass classes=[…], with which a cell that is no number is a missing one"
    )


def declared_rows(model: Any, X: Any, y: Any, classes: Sequence[Any]) -> tuple[Any, NDArray[Any], Ints]:
    """Return private features, the declared classes and class ids, −1 for a label that is no class.

    No private cell is refused, because a refusal would be visible: only shapes and column names are checked.
    """
    from sklearn.utils.validation import validate_data

    if is_frame(X):
        validate_data(model, X, reset=True, skip_check_array=True)
    else:
        X = numbers_alone(X)
        check_form(X, "X")
        X = validate_data(model, X, ensure_all_finite=False, accept_sparse="csr", allow_nd=True, ensure_min_samples=2)
    labels = np.asarray(y, dtype=object)
    if labels.shape != (n_rows(X),):
        raise InputError(f"y has the shape {labels.shape} and X {n_rows(X)} rows: one label per row is needed")
    found = find_classes(labels, classes)
    place = {value: index for index, value in enumerate(found.tolist())}
    return X, found, np.array([_code(place, value) for value in labels.tolist()], dtype=np.int64)


def _code(place: Mapping[Any, int], label: Any) -> int:
    """Return the class id of a label; −1 for an object that is no class, whatever it does when it is compared."""
    try:
        return place.get(label, -1)
    except Exception:  # not hashable, for example a tuple with a list in it
        return -1


def split_public(people: People, share: float | None, *, seed: int) -> tuple[Ints, Ints]:
    """Return the private rows, and the rows of people who are treated as public."""
    if share is None:
        raise InputError(
            "X_public is not given: the student is trained on public points only. Pass X_public= to fit, or set "
            "public_fraction= to treat a share of the people as public"
        )
    if not 0 < float(share) < 1:
        raise InputError(f"public_fraction is {share!r}: it must lie between 0 and 1")
    count = min(max(1, round(float(share) * people.n_people)), people.n_people - 1)
    chosen = np.random.default_rng(seed).permutation(people.n_people)[:count]
    public = np.isin(people.person_of_row, chosen)
    warnings.warn(
        f"public_fraction: {count} of {people.n_people} people are treated as public; no budget protects them",
        PublicRowsWarning,
        stacklevel=3,
    )
    return np.flatnonzero(~public), np.flatnonzero(public)


def try_student(student: Student, model: Any, points: Any, *, settings: Settings, n_classes: int) -> None:
    """Refuse a student that cannot learn made-up labels of public points, or give probabilities where they are needed.

    `model` is the untrained student. Nothing is charged before this.
    """
    if settings.n_first is not None:
        check_guesses(student, model)
    student.try_on(model, points, n_classes=n_classes)


def run_labelling(
    votes: Votes,
    allocation: Allocation,
    settings: Settings,
    *,
    noise_seed: int | None = None,
    ledger: Ledger | None = None,
    order: Ints | None = None,
    overlap: bool = False,
    progress: Callable[[int], None] | None = None,
    after: Labelling | None = None,
    student_probs: NDArray[np.float64] | None = None,
) -> tuple[Labelling, Ledger]:
    """Label the pool with the votes of the teachers of an allocation; return the labelling and its ledger.

    With `overlap`, private data is also in the pool or the test data, and the labelling has no guarantee. `after` is
    the labelling that this one continues. An aggregator that compares votes with a student needs `student_probs`;
    without them its check compares votes alone, at the same cost.
    """
    aggregator = settings.aggregator(allocation.scale)
    aggregator = aggregator.without_student() if student_probs is None else aggregator
    ballot = replace(votes, groups=allocation.teacher_groups, weights=allocation.weights)
    if allocation.participation is not None:
        asked = order if after is None or order is None else np.concatenate([after.queries, order])
        present = allocation.participation.in_order(votes.n_queries, asked)
        ballot = replace(ballot, participation=present, weights=None)
    panel = Panel.of(allocation.layout)
    book = open_ledger(panel, settings.meter, aggregator) if ledger is None else ledger
    if settings.meter.whole:
        listed = np.arange(votes.n_queries) if order is None else order
        chosen = designed(settings, allocation, n_classes=votes.n_classes, queries=[str(i) for i in listed.tolist()])
        if chosen.design is None:
            raise InputError("bound is 'ptr' without a design or a reference to make one from")
        tested = label_tested(
            ballot,
            panel,
            aggregator,
            chosen.design,
            order=order,
            noise=make_noise(noise_seed),
            ledger=book,
            progress=progress,
        )
        return (tested.overlapping() if overlap else tested), book
    result = label(
        ballot,
        panel,
        aggregator,
        settings.meter,
        stop=settings.stop,
        max_labels=settings.max_labels,
        order=order,
        noise=make_noise(noise_seed),
        ledger=book,
        progress=progress,
        after=after,
        student_probs=student_probs,
    )
    return (result.overlapping() if overlap else result), book


def charged_terms(allocation: Allocation, settings: Settings) -> list[Terms]:
    """Return the accounts that a labelling of this allocation charges, by ballots or by teachers."""
    if settings.ballots:
        return ballot_terms([account.group for account in allocation.groups], settings.meter)
    return account_terms(Panel.of(allocation.layout), settings.meter, settings.aggregator(allocation.scale))


def check_passed(record: Record, passed: bool | None) -> None:
    """Raise `IpateError` if the private test of the bound ptr was not passed and there is nothing to learn from."""
    if passed is False and not record.n_labels:
        raise IpateError(
            "the private test was not passed: no label was released, but the budgets are spent as after a pass; "
            "fitting the same people again would spend them twice"
        )


def standard_labels(settings: Settings, groups: Sequence[Group], record: Record) -> int:
    """Return how many labels standard PATE affords at the strictest budget, by data-independent accounting.

    The pool and the share of queries that are answered are those of the record.
    """
    answer_rate = record.n_labels / max(1, record.n_queries)
    known = settings.meter.data_independent and not settings.meter.whole
    meter = settings.meter if known else Meter("gdp")
    noise = settings.aggregator().mechanism
    queries = queries_afforded(
        meter,
        epsilon=min(group.epsilon for group in groups),
        delta=min(group.delta for group in groups),
        sensitivity=1.0,
        sigma=noise.sigma,
        check_sigma=noise.check_sigma,
        noise=noise.noise,
        answer_rate=answer_rate,
    )
    labels = int(min(queries, len(record.labels)) * answer_rate)
    return labels if settings.max_labels is None else min(labels, settings.max_labels)


def charge_labels(
    label: Label,
    terms: Sequence[Terms],
    *,
    path: str | Path | None,
    pool: str,
    noise: NoiseKind,
    roster: Roster,
    fresh: bool,
) -> tuple[Labelling, Ledger, Extract]:
    """Label the pool; with a path, every label is charged to that ledger before it is released.

    Fits that share a ledger carry balances over, and fits with the same `pool` fingerprint share answers.
    """
    if path is None:
        result, ledger = label(None)
        return result, ledger, Extract.of(ledger)
    replaces = None
    if noise == "secure":
        chosen = choose_ledger(Path(path), beside=None, people=roster.everybody, fresh=fresh)
        path, replaces = chosen.path, chosen.replaces
        logging.getLogger("ipate").info(chosen.announcement)
    with SqliteLedger.open(
        path, terms, run=f"fit {secrets.token_hex(8)}", pool=pool, people=roster, noise=noise, replaces=replaces
    ) as book:
        result, _ = label(book)
        opening = {account: book.spent(account) for account in book.terms}
        kept = MemoryLedger(tuple(book.terms.values()), opening=opening, noise=noise)
        return result, kept, Extract.of(book)
