"""The release of ballots: draw in memory, commit charge and rounded histogram together, and only then release."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ipate._types import Ints
from ipate.accounting.bounds import Meter
from ipate.engines.ballots.counting import (
    CODEC,
    Decoded,
    Histogram,
    add_noise,
    decode,
    sum_ballots,
    units_by_person,
    without,
)
from ipate.engines.ballots.design import SIGMA, Design, ballot_terms, make_design
from ipate.errors import InputError
from ipate.ledger.base import Ledger, MemoryLedger
from ipate.ledger.records import Charge, Draw, noise_kind, refuse_mixed_noise
from ipate.people.budgets import Group
from ipate.people.people import People
from ipate.public.cells import PARTITIONS, Cells, make_cells
from ipate.public.features import Features, fit_features
from ipate.release.noise import NoiseSource, SecureNoise
from ipate.release.results import BallotFacts, GroupResult, Labelling, StoppedBy, state_guarantee

_ROWS = 1 << 16  # private rows at a time


@dataclass(frozen=True, kw_only=True, eq=False)
class BallotRelease:
    """What a release of ballots gave: everything here is public once it exists.

    `labelling` has a label for every point of the pool, with the cost of every group; `decoded` has the confidence and
    the weight of every label, for the student.
    """

    labelling: Labelling
    decoded: Decoded
    histogram: Histogram
    features: Features
    cells: Cells
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class PublicMaps:
    """The features and cells of a release, from the pool and the design alone; a run stores them with its settings."""

    # the names of `arrays`
    NAMES: ClassVar = ("kind", "shape", "gradients", "centre", "gain", "components", "net", "centres", "pool")

    features: Features
    cells: Cells
    pool: NDArray[np.int32]  # the cell of every point of the pool in every partition

    @classmethod
    def of(cls, pool: NDArray[Any], *, features: Features, cells: Cells) -> "PublicMaps":
        """Place the pool in its cells."""
        return cls(features=features, cells=cells, pool=cells.assign(features.transform(pool)))

    @classmethod
    def make(
        cls,
        pool: NDArray[Any],
        *,
        n_classes: int,
        cells: int,
        partitions: int = PARTITIONS,
        features: Features | None = None,
        n_jobs: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> "PublicMaps":
        """Fit features (unless given) and cells on the pool; the same pool and numbers give the same maps."""
        fitted = features or fit_features(pool, n_classes=n_classes)
        points = fitted.transform(pool)
        made = make_cells(points, cells=cells, partitions=partitions, n_jobs=n_jobs, progress=progress)
        return cls(features=fitted, cells=made, pool=made.assign(points))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the maps as plain arrays, to be stored."""
        return {**self.features.arrays(), **self.cells.arrays(), "pool": self.pool}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "PublicMaps":
        """Return the maps that `arrays` describes."""
        cells = Cells.from_arrays(arrays)
        return cls(features=Features.from_arrays(arrays), cells=cells, pool=np.asarray(arrays["pool"], dtype=np.int32))


@dataclass(frozen=True, kw_only=True, eq=False)
class Placed:
    """Private rows in their cells: (rows, partitions), and which of them can be read."""

    cells: NDArray[np.int32]
    readable: NDArray[np.bool_]

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.cells)


def place(X: Any, maps: PublicMaps) -> Placed:
    """Return the cells of private rows, of which slices are taken; each row's depend on that row alone."""
    cells = np.empty((len(X), maps.cells.partitions), dtype=np.int32)
    readable = np.empty(len(X), dtype=bool)
    for start in range(0, len(X), _ROWS):
        part = slice(start, start + _ROWS)
        rows = np.asarray(X[part])
        readable[part] = maps.features.readable(rows)
        cells[part] = maps.cells.assign(maps.features.transform(rows))
    return Placed(cells=cells, readable=readable)


def sum_private(X: Any, y: NDArray[np.integer], people: People, *, design: Design, maps: PublicMaps) -> Ints:
    """Return the exact sum of the ballots of private rows, in multiples of the grid: private, and without noise.

    `X` has the rows, or their places. A site of several sends this sum of its own people; sums of sites are added as
    they are.
    """
    if len(X) != len(y) or len(y) != people.n_rows:
        raise InputError(f"there are {len(X)} rows, {len(y)} labels and {people.n_rows} rows of people")
    if maps.cells.centres.shape[:2] != design.shape[:2]:
        raise InputError(f"the cells have the shape {maps.cells.centres.shape[:2]}, and the design {design.shape[:2]}")
    placed = X if isinstance(X, Placed) else place(X, maps)
    return sum_ballots(
        placed.cells,
        y,
        units=units_by_person(design, people),
        person_of_row=people.person_of_row,
        shape=design.shape,
        readable=placed.readable,
    )


def release(
    pool: NDArray[Any],
    X: Any,
    y: NDArray[np.integer],
    people: People,
    *,
    n_classes: int,
    ledger: Ledger | None = None,
    meter: Meter | None = None,
    maps: PublicMaps | None = None,
    features: Features | None = None,
    partitions: int = PARTITIONS,
    withdrawn: Collection[str] = (),
    noise: NoiseSource | None = None,
    n_jobs: int | None = None,
) -> BallotRelease:
    """Label the whole pool by one release of everybody's ballots.

    Parameters
    ----------
    pool : array
        The public points.
    X, y : array
        Private rows, of which slices are taken, and their class ids. A label of −1 or a value that is not finite makes
        a row cast no vote, and nobody can see that.
    people : People
        Whose row is whose, and everybody's budget. People who withdrew stay in it, see `withdrawn`.
    n_classes : int
        The size of the public class set.
    ledger : Ledger, optional
        Its accounts are the people's groups (`ballot_terms`). Default: a ledger in memory. If it holds a histogram of
        this run, that one is used again: noise is never drawn twice.
    meter : Meter, optional
        The bound of a ledger in memory. Default: gdp.
    maps : PublicMaps, optional
        Stored features and cells. Default: `features`, or those of the rule in `ipate.public.features`, and k-means.
    withdrawn : collection of str
        Ids of people whose ballots are empty. Their weights still count, so that nobody's leaving can be seen.
    noise : NoiseSource, optional
        Default: secure noise.

    Returns
    -------
    BallotRelease
    """
    book = ledger or MemoryLedger(ballot_terms(people.groups, meter))
    source = noise or SecureNoise()
    refuse_mixed_noise(str(book.path or "this ledger"), book.noise, noise_kind(seeded=source.seeded))
    _check_accounts(book, people)
    stored = Histogram.of(book)
    if stored is not None:
        r, m, _ = stored.counts.shape
        maps = maps or PublicMaps.make(
            pool, n_classes=n_classes, cells=m, partitions=r, features=features, n_jobs=n_jobs
        )
        return _result(book, stored, maps, people, ())
    spent = {account: book.spent(account) for account in book.terms}
    settled = None if maps is None else maps.cells
    design = make_design(
        list(book.terms.values()),
        n_classes=n_classes,
        n_pool=len(pool),
        spent=spent,
        partitions=partitions if settled is None else settled.partitions,
        cells=None if settled is None else settled.cells,
    )
    design.check_useful(private=bool(book.private_history))
    maps = maps or PublicMaps.make(
        pool, n_classes=n_classes, cells=design.cells, partitions=partitions, features=features, n_jobs=n_jobs
    )
    kept = without(people, np.asarray(y, dtype=np.int64), withdrawn)
    total = sum_private(X, kept, people, design=design, maps=maps)
    drawn = Histogram(counts=add_noise(total, source), cells=maps.cells.fingerprint)
    charge_ballots(book, design, drawn, seeded=source.seeded)
    return _result(book, drawn, maps, people, () if book.private_history else design.notes)


def charge_ballots(book: Ledger, design: Design, drawn: Histogram, *, seeded: bool) -> None:
    """Commit the charge of every account with the rounded histogram; only when this returns may it be released.

    Everybody is charged in full, whether they have rows or not: who cast a ballot is private.
    """
    bounds = {terms.meter.bound for terms in design.terms.values()}
    book.charge(
        Charge(
            cost=design.costs,
            sensitivity={account: np.asarray(weight) for account, weight in design.weights.items()},
            draws=(Draw(mechanism="vector", sigma=SIGMA),),
            keys=(CODEC,),
            scope="run",
            bound=bounds.pop(),
            seeded=seeded,
            codec=CODEC,
            payload=drawn.payload,
        )
    )


def _check_accounts(book: Ledger, people: People) -> None:
    wanted = {group.id: group for group in people.groups}
    found = {account: terms.account.group for account, terms in book.terms.items()}
    if {account: group.budget for account, group in found.items()} != {name: g.budget for name, g in wanted.items()}:
        raise InputError(f"the ledger's accounts are {sorted(found)}, and the people's groups {sorted(wanted)}")


def _result(book: Ledger, drawn: Histogram, maps: PublicMaps, people: People, notes: tuple[str, ...]) -> BallotRelease:
    if drawn.cells != maps.cells.fingerprint:
        raise InputError(
            "the stored histogram belongs to other cells than these: use the pool and the stored maps of the run"
        )
    decoded = decode(drawn.counts, maps.pool)
    return BallotRelease(
        labelling=labelling_of(book, drawn, decoded, people.groups),
        decoded=decoded,
        histogram=drawn,
        features=maps.features,
        cells=maps.cells,
        notes=notes,
    )


def labelling_of(book: Ledger, drawn: Histogram, decoded: Decoded, groups: Sequence[Group]) -> Labelling:
    """Return the labels of the pool's points, and every group's cost and weight as the ledger recorded them."""
    size = len(decoded.labels)
    seeded = book.noise == "seeded"
    meter = next(iter(book.terms.values())).meter
    stopped_by: StoppedBy = "other" if book.private_history else "account"
    return Labelling(
        queries=np.arange(size),
        labels=decoded.labels,
        answered=np.ones(size, dtype=bool),
        reinforced=np.zeros(size, dtype=bool),
        repeated=np.zeros(size, dtype=bool),
        stopped_by="pool",
        guarantee=state_guarantee(meter, stopped_by=stopped_by, seeded=seeded),
        seeded=seeded,
        meter=meter,
        groups=tuple(_group_results(book, groups)),
        ballots=_facts(book, drawn),
        confidence=decoded.confidence,
    )


def _weights(book: Ledger) -> dict[str, float]:
    """Return the weight of one person's ballot by account id, as the ledger recorded it."""
    charges = (charge for charge in book.charges if charge.codec == CODEC)
    return {account: float(weight) for charge in charges for account, weight in charge.sensitivity.items()}


def _facts(book: Ledger, drawn: Histogram) -> BallotFacts:
    partitions, cells, classes = drawn.counts.shape
    total = math.fsum(
        weight * (book.terms[account].account.group.people or 0) for account, weight in _weights(book).items()
    )
    return BallotFacts(partitions=partitions, cells=cells, classes=classes, sigma=SIGMA, weight=total)


def _group_results(book: Ledger, groups: Sequence[Group]) -> list[GroupResult]:
    """Return the cost and the weight of every group, as the ledger recorded them."""
    before, terms, moved = book.before, book.terms, _weights(book)
    return [
        GroupResult(
            group=group,
            weight=moved[group.id],
            sensitivity=moved[group.id],
            cost=book.epsilon(group.id),
            before=before[group.id],
            order=terms[group.id].meter.orders[0] if terms[group.id].meter.fixes_order else None,
        )
        for group in groups
    ]
