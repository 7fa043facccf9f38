"""The steps of `PATEClassifier.fit` before labelling: classes, people, the public pool, the votes."""

import secrets
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ipate.allocation.allocation import Allocation
from ipate.errors import ClassesWarning, InputError, PublicRowsWarning
from ipate.labelling.history import Extract
from ipate.labelling.loop import account_terms
from ipate.labelling.results import Labelling
from ipate.ledger.memory import MemoryLedger
from ipate.ledger.records import Ledger, noise_kind
from ipate.ledger.sqlite import SqliteLedger
from ipate.people.people import People
from ipate.people.policy import Policy
from ipate.planning.settings import Settings, run_labelling
from ipate.teachers.ensemble import fingerprint, train_and_vote
from ipate.votes import Votes
from ipate.votes.store import VoteStore

Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Given:
    """What `fit` was told about people: budgets or levels per row, and whose row it is."""

    budgets: Any = None
    levels: Any = None
    policy: Any = None
    person_id: Any = None

    def __post_init__(self) -> None:
        for name in ("budgets", "levels", "person_id"):  # by position from here on, whatever index they came with
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else np.asarray(value))

    def of(self, rows: Ints) -> "Given":
        """Return the same for some of the rows."""

        def taken(values: Any) -> Any:
            return None if values is None else values[rows]

        return Given(
            budgets=taken(self.budgets),
            levels=taken(self.levels),
            policy=self.policy,
            person_id=taken(self.person_id),
        )


def find_classes(y: NDArray[Any], classes: Sequence[Any] | None) -> NDArray[Any]:
    """Return the classes as given, or as y has them, with a warning that they are then public."""
    found = np.unique(y if classes is None else np.asarray(classes))
    if classes is None:
        warnings.warn(
            f"taking the {len(found)} classes from y, which treats the set of classes as public: pass classes=[…] to "
            "say which there are",
            ClassesWarning,
            stacklevel=3,
        )
    if len(found) < 2:
        raise InputError(f"there is one class, {found.tolist()[0]!r}: a classifier needs at least 2 classes")
    return found


def encode(classes: NDArray[Any], y: ArrayLike, what: str) -> Ints:
    """Return y as indices into the classes; refuse a value that is none of them."""
    values = np.asarray(y)
    places = np.searchsorted(classes, values)
    known = classes[np.minimum(places, len(classes) - 1)] == values
    if not np.all(known):
        bad = values[~known].tolist()[0]
        raise InputError(f"{what} holds {bad!r}: the classes are {', '.join(map(str, classes.tolist()))}")
    return places.astype(np.int64)


def make_people(n: int, given: Given, *, epsilon: float | None, delta: float | str) -> People:
    """Return the people of n rows with their budgets, from whatever was given."""
    if given.budgets is not None and given.levels is not None:
        raise InputError("budgets and levels are both given: give one of them")
    people_there = n if given.person_id is None else len(np.unique(given.person_id.astype(str)))
    usual = min(1e-5, 0.1 / people_there) if delta == "auto" else float(delta)
    if given.levels is not None:
        if given.policy is None:
            raise InputError("levels are given without a policy: say which ε each level means")
        rule = given.policy
        if isinstance(rule, Mapping):
            rule = Policy.from_mapping(rule)
        stated = None if delta == "auto" and rule.delta is not None else usual
        people = People.from_levels(given.levels, policy=rule, delta=stated, person_id=given.person_id)
    else:
        if given.budgets is None and epsilon is None:
            raise InputError("no budgets: pass budgets= or levels= and policy= to fit, or epsilon= to PATEClassifier")
        rows = np.full(n, epsilon, dtype=np.float64) if given.budgets is None else np.asarray(given.budgets)
        people = People.from_budgets(rows, delta=usual, person_id=given.person_id)
    if people.n_rows != n:
        name = "levels" if given.levels is not None else "budgets"
        raise InputError(f"{name} has {people.n_rows} entries and X has {n} rows: there must be one per row")
    return people


def split_public(people: People, share: float | None, *, seed: int) -> tuple[Ints, Ints]:
    """Return the rows that stay private and those of the people who are treated as public."""
    if share is None:
        raise InputError(
            "X_public is not given: the student learns from public points alone. Pass X_public= to fit, or set "
            "public_fraction= to say that a share of the people may be treated as public"
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


def collect_votes(
    teacher: Any,
    X: NDArray[Any],
    y: Ints,
    *,
    allocation: Allocation,
    pool: NDArray[Any],
    truth: Ints | None,
    n_classes: int,
    seed: int,
    n_jobs: int | None,
    backend: str | None,
    address: str | None,
) -> Votes:
    """Train the allocation's teachers and return their votes on the pool; nothing stays on disk."""
    rows = [allocation.rows_of_teacher(index) for index in range(allocation.n_teachers)]
    with tempfile.TemporaryDirectory(prefix="ipate-") as folder:
        store = VoteStore(
            folder,
            n_teachers=len(rows),
            n_queries=len(pool),
            n_classes=n_classes,
            fingerprint=fingerprint("kept for the length of one fit"),
        )
        train_and_vote(
            teacher, X, y, rows=rows, X_public=pool, store=store, seed=seed, n_jobs=n_jobs, backend=backend,
            address=address,
        )  # fmt: skip
        return Votes(votes=np.array(store.matrix), n_classes=n_classes, labels=truth)


Floats = NDArray[np.float64]


def charge_labels(
    votes: Votes,
    allocation: Allocation,
    settings: Settings,
    *,
    path: str | Path | None,
    pool: str,
    noise_seed: int | None,
    order: NDArray[np.int64],
) -> tuple[Labelling, Ledger, Extract]:
    """Label the pool; with a path, every label is in that ledger before anything of it is seen.

    Parameters
    ----------
    path : path, optional
        A ledger that several fits share: each starts from what its people have left.
    pool : str
        What the public points are; fits on the same points share their answers.
    """
    if path is None:
        result, ledger = run_labelling(votes, allocation, settings, noise_seed=noise_seed, order=order)
        return result, ledger, Extract.of(ledger)
    noise = noise_kind(seeded=noise_seed is not None)
    terms = account_terms(allocation.panel(), settings.meter, settings.aggregator(allocation.scale))
    with SqliteLedger.open(
        path, terms, run=f"fit {secrets.token_hex(8)}", pool=pool, people=allocation.members(), noise=noise
    ) as book:
        result, _ = run_labelling(votes, allocation, settings, noise_seed=noise_seed, ledger=book, order=order)
        kept = MemoryLedger(terms, opening={account: book.spent(account) for account in book.terms}, noise=noise)
        return result, kept, Extract.of(book)
