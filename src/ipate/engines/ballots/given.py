"""Ballots that were summed elsewhere: their file, everything that is checked of it, and their one release.

An npz holds `ballots`, the sum of all ballots in whole multiples of the grid, (partitions, cells, classes), or one such
sum per group, and `cells`, the cell of every public point in every partition, (points, partitions). With one partition
both may lack its axis. Optional are `groups` and `units` (ids of the groups, and what one row of a member adds to its
cell in every partition), `classes` (their number or names), `queries` (ids of the points), `labels` (the truth, for
scoring only) and `maps` (the fingerprint of the cells). Pickled objects are never loaded.
"""

import logging
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ipate._types import Ints
from ipate.accounting.bounds import Meter
from ipate.allocation.allocation import Allocation
from ipate.engines.ballots.counting import Decoded, Histogram, add_noise, decode
from ipate.engines.ballots.design import SIGMA, Design, allocate_ballots, ballot_terms, state_design
from ipate.engines.ballots.release import charge_ballots, labelling_of
from ipate.engines.base import Engine, Means, Round
from ipate.engines.context import Settings
from ipate.errors import InputError, check_count, show
from ipate.files import fingerprint, read_ids, read_npz
from ipate.ledger.base import Ledger, MemoryLedger
from ipate.ledger.records import Terms
from ipate.people.budgets import Group, GroupRow
from ipate.people.people import People
from ipate.release.lesson import Lesson
from ipate.release.noise import NoiseSource, make_noise
from ipate.release.results import Labelling, Record

_KNOWN = ("ballots", "cells", "groups", "units", "classes", "queries", "labels", "maps")
_EXACT = 2**53


@dataclass(frozen=True, kw_only=True, eq=False)
class GivenBallots:
    """The sum of ballots that were cast elsewhere, which is private, and the public facts that belong to it."""

    total: Ints  # (partitions, cells, classes), in multiples of the grid
    cells: NDArray[np.integer[Any]]  # (points, partitions): of the public points
    groups: tuple[Group, ...]
    design: Design
    meter: Meter
    queries: tuple[str, ...] | None = None
    labels: NDArray[np.integer[Any]] | None = None
    maps: str | None = None  # what the ballots of all labellings of the same people in the same cells share

    @property
    def pool(self) -> str:
        """What a ledger knows these ballots by: their cells if the file names them, else the ballots themselves."""
        return self.maps or fingerprint(self.total)

    def run(self, seed: int | None) -> str:
        """Return the name of a labelling; the same ballots, budgets, units and bound give the same, whatever points."""
        about = [(group.id, group.epsilon, group.delta, group.people) for group in self.groups]
        mark = fingerprint(self.total, sorted(about), sorted(self.design.units.items()), self.meter, seed)
        return f"label {mark[:16]}"


def holds_ballots(path: Path) -> bool:
    """Whether a file is an npz with the array `ballots`; what else is wrong with it, its reader says."""
    try:
        with zipfile.ZipFile(path) as archive:
            return "ballots.npy" in archive.namelist()
    except (OSError, ValueError, RuntimeError, zipfile.BadZipFile):
        return False


def read_ballots(path: Path, rows: Sequence[GroupRow], *, delta: float, meter: Meter) -> GivenBallots:
    """Read ballots that were summed elsewhere and check all that can be checked of a sum.

    `rows` are the groups, each with its number of people; `delta` is that of groups without one.
    """
    arrays = read_npz(path, _KNOWN)
    try:
        if "cells" not in arrays:
            raise InputError("has no array 'cells': it must hold the cell of every public point in every partition")
        groups = [_group(row, delta) for row in rows]
        cells, ballots = _axes(arrays["cells"], arrays["ballots"])
        shape: tuple[int, int, int] = ballots.shape[-3:]
        ids = read_ids("groups", arrays.get("groups"))
        design = state_design(ballot_terms(groups, meter), shape=shape, units=_units(ids, arrays.get("units")))
        if ids is not None and set(ids) != set(design.units):
            raise InputError(
                f"groups are {show(sorted(ids))}, and those of the group file {show(sorted(design.units))}"
            )
        _check_points(cells, shape, arrays)
        maps = arrays.get("maps")
        return GivenBallots(
            total=_total(ballots, ids, design),
            cells=cells,
            groups=tuple(groups),
            design=design,
            meter=meter,
            queries=read_ids("queries", arrays.get("queries")),
            labels=arrays.get("labels"),
            maps=None if maps is None else str(maps),
        )
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def check_sum(ballots: NDArray[Any], *, most: int) -> Ints:
    """Return a sum of ballots, (partitions, cells, classes), if it can be one of people whose units sum to `most`.

    Everybody adds whole numbers, 0 or above, and in every partition no more than their units. No message states a sum:
    sums are private.
    """
    if most >= _EXACT:
        raise InputError(f"units of all people sum to {most}: an exact sum is below {_EXACT}")
    if ballots.dtype.kind not in "iu":
        raise InputError(f"ballots are {ballots.dtype}: they must be integers, whole multiples of the grid 2^-20")
    if int(ballots.min()) < 0:
        raise InputError("ballots hold a negative number: what people add is 0 or above")
    for k, table in enumerate(ballots):
        if sum(table.ravel().tolist()) > most:  # whole numbers of Python, which do not overflow
            raise InputError(f"ballots of partition {k} sum to more than the declared units of all people, {most}")
    return ballots.astype(np.int64)


def release_given(
    ballots: GivenBallots, *, noise: NoiseSource, ledger: Ledger | None = None
) -> tuple[Labelling, Decoded]:
    """Draw the noise once, commit it with the charge of everybody, and label the public points.

    If the ledger (default: in memory) holds the histogram of this run already, that one is used again and nothing is
    charged.
    """
    book = ledger or MemoryLedger(list(ballots.design.terms.values()))
    stored = Histogram.of(book)
    if stored is None:
        cells = ballots.maps or fingerprint(ballots.cells)
        stored = Histogram(counts=add_noise(ballots.total, noise), cells=cells)
        charge_ballots(book, replace(ballots.design, terms=book.terms), stored, seeded=noise.seeded)
    decoded = decode(stored.counts, ballots.cells)
    return labelling_of(book, stored, decoded, ballots.groups), decoded


def _group(row: GroupRow, delta: float) -> Group:
    if row.people is None:
        raise InputError(f"group {show(row.group)} has no number of people: add a column people to the group file")
    if row.weight is not None or row.sensitivity is not None:
        raise InputError(
            f"group {show(row.group)} has a weight or sensitivity: those of ballots are 'units' in the npz"
        )
    return row.as_group(delta)


def _axes(cells: NDArray[Any], ballots: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return cells as (points, partitions) and ballots as ([groups,] partitions, cells, classes)."""
    if cells.ndim == 1:
        cells, ballots = cells[:, None], np.expand_dims(ballots, -3) if ballots.ndim >= 2 else ballots
    if cells.ndim != 2 or not cells.size or cells.dtype.kind not in "iu":
        raise InputError(
            f"cells are {cells.dtype} of the shape {cells.shape}: they must be integers, points × partitions"
        )
    if ballots.ndim not in (3, 4) or not ballots.size or ballots.shape[-3] != cells.shape[1] or ballots.shape[-1] < 2:
        raise InputError(
            f"ballots have the shape {ballots.shape} for {cells.shape[1]} partitions: it must be (partitions, cells, "
            "classes), or that for every group, with 2 classes or more"
        )
    return cells, ballots


def _units(ids: Sequence[str] | None, units: NDArray[Any] | None) -> Mapping[str, int] | None:
    if ids is not None and len(set(ids)) < len(ids):
        raise InputError(f"groups are {show(list(ids))}: ids must be unique")
    if units is None:
        return None
    if ids is None or units.shape != (len(ids),) or units.dtype.kind not in "iu":
        raise InputError(f"units are {units.dtype} of the shape {units.shape}: they must be integers, one per 'groups'")
    return dict(zip(ids, units.tolist(), strict=True))


def _check_points(cells: NDArray[Any], shape: tuple[int, int, int], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse public facts that contradict each other."""
    if not 0 <= int(cells.min()) <= int(cells.max()) < shape[1]:
        raise InputError(
            f"cells go from {cells.min()} to {cells.max()}: the ballots have the cells 0 to {shape[1] - 1}"
        )
    for name in ("queries", "labels"):
        if name in arrays and arrays[name].shape != (len(cells),):
            raise InputError(f"{name} have the shape {arrays[name].shape}: there are {len(cells)} points")
    if "labels" in arrays and arrays["labels"].dtype.kind not in "iu":
        raise InputError(f"labels are {arrays['labels'].dtype}: they must be integers, the classes' ids")
    if "classes" in arrays:
        stated = arrays["classes"]
        number = stated.size if stated.ndim else check_count("classes", stated[()])
        if number != shape[2]:
            raise InputError(f"classes has {number} classes, and the ballots have {shape[2]}")


def _total(ballots: NDArray[Any], ids: Sequence[str] | None, design: Design) -> Ints:
    """Return the sum over the groups, each of which is checked by itself where the file has them."""
    most = {name: people * design.units[name] for name, people in design.people.items()}
    if ballots.ndim == 4:
        if ids is None or len(ids) != len(ballots):
            raise InputError(f"ballots are given for {len(ballots)} groups: 'groups' must hold their ids in this order")
        ballots = np.sum([check_sum(own, most=most[name]) for name, own in zip(ids, ballots, strict=True)], axis=0)
    return check_sum(ballots, most=sum(most.values()))


@dataclass(frozen=True, kw_only=True)
class SumSettings(Settings):
    """The public parameters of a sum of ballots as they were given."""

    engine: ClassVar[str] = "ipate.engines.ballots.given:SummedBallots"


@dataclass(kw_only=True, eq=False)
class SummedBallots(Engine[SumSettings]):
    """Release a sum of ballots that were cast elsewhere, or at several sites; every parameter is given."""

    name: ClassVar[str] = "ipate.engines.ballots.given:SummedBallots"
    title: ClassVar[str] = "ballots"

    given: GivenBallots

    @property
    def meter(self) -> Meter:
        """The bound and the conversion that count costs."""
        return self.given.meter

    def chosen(self, means: Means) -> SumSettings:
        """Return the parameters as they are given."""
        return SumSettings(variant="weighting", meter=self.meter, reason="parameters as given")

    def read(self, values: dict[str, object]) -> SumSettings:
        """Refuse: such a release has no folder."""
        raise InputError("ballots from elsewhere have no stored settings")

    def allocate(self, people: People, settings: SumSettings, seed: int) -> Allocation:
        """Return the accounts; whose ballots were cast is not known here."""
        return allocate_ballots("weighting", people=people, seed=seed, meter=self.meter)

    def terms(self, run: Round[SumSettings]) -> list[Terms]:
        """Return one account per group."""
        return list(self.given.design.terms.values())

    def prepare(self, run: Round[SumSettings], maps: object) -> GivenBallots:
        """Return the sum."""
        return self.given

    def release(self, run: Round[SumSettings], maps: object, inputs: GivenBallots, ledger: Ledger) -> Lesson:
        """Draw the noise once, and commit it with the charge of everybody."""
        for note in inputs.design.notes:
            logging.getLogger("ipate").warning(note)
        found, decoded = release_given(inputs, noise=make_noise(run.noise_seed), ledger=ledger)
        arrays = {"labels": decoded.labels, "confidence": decoded.confidence, "sample_weight": decoded.sample_weight}
        return Lesson(record=run.recorded(found, ledger), weights=decoded.sample_weight, arrays={"confidence": arrays})

    def restore(self, run: Round[SumSettings], maps: object, record: Record, ledger: Ledger) -> Lesson:
        """Return the labels of a record; a stored histogram comes from the ledger, which the release itself asks."""
        return Lesson(record=record)

    def describe(self, settings: SumSettings, allocation: Allocation) -> dict[str, object]:
        """Return the parameters of the release, by name."""
        return {"engine": "ballots", "variant": None, "teachers": 0, "sigma": SIGMA}
