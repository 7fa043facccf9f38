"""A fit in memory or in a folder: its arrays as a task, its ledger, and the checks of private rows and labels."""

import logging
import secrets
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ipate._types import Ints
from ipate.accounting.bounds import Meter
from ipate.allocation.allocation import Allocation
from ipate.data.frames import as_numbers, check_form, column_of, is_frame, n_rows, numbers_alone
from ipate.data.overlap import check_overlap
from ipate.engines.context import Book, MemoryStore, Settings, Task
from ipate.errors import ClassesWarning, InputError, LedgerWarning, PublicRowsWarning, RepeatedFitWarning
from ipate.ledger.admission import Roster
from ipate.ledger.base import Checked, Ledger, MemoryLedger, Opening
from ipate.ledger.finding import LEDGER, Choice, choose_ledger
from ipate.ledger.records import NoiseKind
from ipate.ledger.standing import Standing
from ipate.people.grouping import refusing_large_delta
from ipate.people.ids import plain_ids, warn_alike
from ipate.people.people import People
from ipate.people.people import make_people as group_people
from ipate.release.history import Extract
from ipate.release.lesson import Lesson

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
make_people = refusing_large_delta()(group_people)
_VALUE_FREE = ("Found array with ", "Input X contains ", "Input y contains ")  # of scikit-learn, without cells


@dataclass(frozen=True, kw_only=True, eq=False)
class ArrayTask(Task):
    """Private rows and public points in memory: arrays, sparse matrices or frames, with people and class ids."""

    name: str
    people: People
    classes: tuple[Any, ...]
    fingerprint: str
    X: Any
    y: Ints
    points_given: Any
    known: Ints | None = None  # the truth of the pool
    extra: tuple[Any, Ints] | None = None
    unprotected: tuple[str, ...] = ()
    everybody: tuple[str, ...] = ()  # ids of all people of the rows that were given, also of those taken as public
    overlap: bool = False
    seed: int = 0
    new_people: bool = False
    accept_larger_budgets: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of public points and the shape of one."""
        return (n_rows(self.points_given), *getattr(self.points_given, "shape", ())[1:])

    def pool(self, form: str = "model") -> Any:
        """Return the public points."""
        return as_numbers(self.points_given, self.points_given)[1] if form == "numbers" else self.points_given

    def rows(self, form: str = "model") -> Any:
        """Return the private rows."""
        return as_numbers(self.X, self.points_given)[0] if form == "numbers" else self.X

    @property
    def codes(self) -> Ints:
        """The class id of every private row."""
        return self.y

    @property
    def truth(self) -> Ints | None:
        """The class ids of the public points, for scoring only."""
        return self.known

    @property
    def labelled(self) -> tuple[Any, Ints] | None:
        """Further public rows with their class ids."""
        return self.extra

    def roster(self, allocation: Allocation) -> Roster:
        """Return the people of the fit for its ledger, with the answers that the classifier's parameters give."""
        return Roster(
            people=allocation.members(),
            unprotected=self.unprotected,
            new_people=self.new_people,
            accept_larger_budgets=self.accept_larger_budgets,
            overlap=self.overlap,
            withdrawn=allocation.former(),
        )


class FitBook(Book):
    """The ledger of a fit: a file that several fits share, in which each is a run of its own."""

    def __init__(
        self, path: str | Path, task: ArrayTask, *, noise: NoiseKind, fresh: bool, run: str | None = None
    ) -> None:
        self.named, self.task, self.noise, self.fresh = Path(path), task, noise, fresh
        self.run = run or f"fit {secrets.token_hex(8)}"
        self.ledger: Ledger | None = None
        self.extract: Extract | None = None

    @cached_property
    def chosen(self) -> Choice:
        """The ledger, found by its people where noise is secure, and others whose charges it does not count."""
        if self.noise != "secure":
            return Choice(path=self.named, announcement="")
        people = frozenset(self.task.everybody)
        return choose_ledger(self.named, beside=None, people=people, run=self.run, fresh=self.fresh)

    def standing(self, people: People, meter: Meter) -> Standing | None:
        """Return what earlier fits left of the budgets; None if there are none."""
        if self.fresh:
            return None
        everybody = frozenset(self.task.everybody)
        roster = Roster(
            people=dict.fromkeys(people.ids.tolist(), ""),
            unprotected=set(everybody) - set(people.ids.tolist()),
            overlap=self.task.overlap,
        )
        return LEDGER.standing(self.chosen.path, people, roster, meter=meter, noise=self.noise)

    @property
    def begun(self) -> bool:
        """Whether this fit was opened on its ledger before."""
        return False

    def withdrawn(self, people: People) -> tuple[int, ...]:
        """Return the people, by index, who withdrew from the ledger."""
        gone = LEDGER.withdrawals(self.chosen.path).withdrawn
        return tuple(index for index, person in enumerate(people.ids.tolist()) if person in gone)

    def check(self, opening: Opening) -> Checked:
        """Refuse a fit that the ledger does not admit, before any teacher is trained."""
        return LEDGER.check(self.chosen.path, replace(opening, run=self.run))

    @contextmanager
    def begin(self, opening: Opening) -> Iterator[Ledger]:
        """Open the ledger; every label is charged there before it is used."""
        if self.chosen.announcement:
            logging.getLogger("ipate").info(self.chosen.announcement)
        asked = replace(opening, run=self.run, replaces=self.chosen.replaces)
        with LEDGER.begin(self.chosen.path, asked) as book:
            yield book
            self.keep(book)

    @contextmanager
    def read(self) -> Iterator[Ledger]:
        """Open the ledger of the fit read-only."""
        with LEDGER.read(self.chosen.path, self.run) as book:
            yield book
            self.keep(book)

    def keep(self, book: Ledger) -> None:
        """Keep the balances and the history in memory, after the file is closed."""
        opening = {account: book.spent(account) for account in book.terms}
        self.ledger = MemoryLedger(tuple(book.terms.values()), opening=opening, noise=self.noise)
        self.extract = Extract.of(book)


class FitStore(MemoryStore):
    """The memory of a fit: people who withdrew from its ledger keep empty places, and notes are told."""

    def __init__(self, book: Book, say: Callable[..., None], keep: Callable[[Lesson, Allocation], None]) -> None:
        super().__init__()
        self.book, self.say, self.keep = book, say, keep
        self._allocation: Allocation | None = None

    def allocation(self, made: Allocation, task: Task) -> Allocation:
        """Return the allocation without the people who withdrew from the ledger."""
        self._allocation = made.without(self.book.withdrawn(task.people))
        return self._allocation

    def publish(self, lesson: Lesson) -> None:
        """Pass on what was paid for, before a student is trained that may fail."""
        if self._allocation is not None:
            self.keep(lesson, self._allocation)

    def tell(self, settings: Settings, allocation: Allocation) -> None:
        """Tell what was decided from public facts."""
        self.say(settings.reason, *allocation.notes)


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
