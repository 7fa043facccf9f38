"""Which people each teacher learns from, and whose account pays for its votes.

An allocation is made once, from public facts and a public seed, and never rearranged: a person who withdraws
leaves an empty slot, because moving anybody else would let one person change many votes.

Allocations on disk: one npz without pickle, arrays as they are and the rest as JSON text.
"""

import json
import zipfile
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ipate._types import Ints
from ipate.allocation.layout import Layout, Merge
from ipate.allocation.participation import Participation, separate
from ipate.errors import InputError, check_count, show
from ipate.files import replacing
from ipate.people.budgets import Account, Budget, Group
from ipate.people.people import People

EMPTY = -1


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Allocation:
    """The people of every teacher, with the layout that says what their votes weigh and cost.

    Attributes
    ----------
    layout : Layout
        Weights, copies or schedule, groups and their sensitivities.
    people : People
        Everybody, those who withdrew included: how many there are and their budgets stay as they are.
    seed : int
        The public seed of the deal.
    offsets : array of shape (k + 1,)
        Where each teacher's slots begin.
    persons : array of shape (slots,)
        A person's index in each slot, −1 in an empty one.
    withdrawn : tuple of int
        Who withdrew, by index, in that order.
    """

    layout: Layout
    people: People
    seed: int
    offsets: Ints
    persons: Ints
    withdrawn: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for array in (self.offsets, self.persons):
            array.flags.writeable = False
        shape_fits = self.offsets.shape == (self.n_teachers + 1,) and self.offsets[-1] == len(self.persons)
        if not shape_fits or self.offsets[0] != 0 or np.any(np.diff(self.offsets) < 0):
            raise InputError("the allocation's offsets do not fit its teachers and slots")
        if self.persons.size and not -1 <= self.persons.min() <= self.persons.max() < self.people.n_people:
            raise InputError("the allocation's slots hold people that do not exist")
        self._refuse_undercharging()

    def __repr__(self) -> str:
        """Return the sizes, without anybody's id."""
        return f"Allocation({self.variant}, {self.n_teachers} teachers, {self.people!r}, seed={self.seed})"

    def _refuse_undercharging(self) -> None:
        """Refuse an allocation in which somebody can move more than their group is charged for."""
        filled, n_people = self.persons >= 0, self.people.n_people
        weight = np.repeat(self.weights, self.teacher_sizes)[filled]
        allowed = np.array([group.sensitivity for group in self.groups])[self.group_of_person]
        if self.participation is not None:  # whoever takes part: one vote per person
            weight, allowed = np.ones(len(weight)), np.ones(n_people)
        moved = np.bincount(self.persons[filled], weights=weight, minlength=n_people)
        over = np.flatnonzero(moved > allowed)
        if over.size:
            who = int(over[0])
            raise InputError(
                f"person {show(str(self.people.ids[who]))} can move the weight {moved[who]:g} and is charged "
                f"for {allowed[who]:g}: a sensitivity must cover all teachers that hold a person"
            )

    @property
    def variant(self) -> str:
        """Which variant made it."""
        return self.layout.variant

    @property
    def groups(self) -> tuple[Account, ...]:
        """The account of every group: its budget, its people and what one of them can move."""
        return self.layout.groups

    @property
    def weights(self) -> NDArray[np.float64]:
        """Every teacher's weight, shape (k,)."""
        return self.layout.weights

    @property
    def teacher_groups(self) -> tuple[str, ...] | None:
        """Every teacher's group id; None where teachers mix groups."""
        return self.layout.teacher_groups

    @property
    def participation(self) -> Participation | None:
        """Who takes part in which voting; None where everybody always does."""
        return self.layout.participation

    @property
    def scale(self) -> float:
        """The factor for σ, σ_T and T."""
        return self.layout.scale

    @property
    def merged(self) -> tuple[Merge, ...]:
        """Which groups count with a stricter one."""
        return self.layout.merged

    @property
    def notes(self) -> tuple[str, ...]:
        """What somebody should know, in sentences: about the people, then about the layout."""
        return (*self.people.notes, *self.layout.notes)

    @property
    def n_teachers(self) -> int:
        """How many teachers there are."""
        return self.layout.n_teachers

    @cached_property
    def group_of_person(self) -> Ints:
        """Every person's group by position in `groups`, merged people where they count."""
        return _home_of(self.people, self.layout)

    @property
    def teacher_sizes(self) -> Ints:
        """How many slots each teacher has, empty ones included."""
        return np.asarray(np.diff(self.offsets))

    def people_of_teacher(self, teacher: int) -> Ints:
        """Return the indices of the people that a teacher learns from."""
        index = check_count("teacher", teacher, least=0)
        if index >= self.n_teachers:
            raise InputError(f"teacher is {index}: there are {self.n_teachers}, counted from 0")
        slots = self.persons[self.offsets[index] : self.offsets[index + 1]]
        return np.asarray(slots[slots != EMPTY])

    def rows_of_teacher(self, teacher: int) -> Ints:
        """Return the rows of the data that a teacher learns from: all rows of each of its people."""
        own = self.people_of_teacher(teacher)
        rows, start = self.people.rows_by_person
        counts = start[own + 1] - start[own]
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.sort(rows[np.repeat(start[own], counts) + within])

    def teachers_of(self, index: int) -> tuple[int, ...]:
        """Return the teachers that hold a person, by the person's index."""
        slots = np.flatnonzero(self.persons == index)
        return tuple((np.searchsorted(self.offsets, slots, side="right") - 1).tolist())

    def withdraw(self, person: str | int | None = None, *, index: int | None = None) -> tuple[Self, tuple[int, ...]]:
        """Empty a person's slots; nobody else moves.

        Parameters
        ----------
        person : str or int
            The person's id (7 and '7' are one id), or else
        index : int
            the person's index in `people.ids`.

        Returns
        -------
        allocation : Allocation
            The new allocation; this one stays as it is.
        teachers : tuple of int
            The teachers to train again; one that is left without data votes a fixed public class.
        """
        if (person is None) == (index is None):
            raise InputError("withdraw needs a person's id or an index: give one of the two")
        who = self.people.index_of(person) if person is not None else check_count("index", index, least=0)
        if who >= self.people.n_people:
            raise InputError(f"index is {who}: there are {self.people.n_people} people, counted from 0")
        if who in self.withdrawn:
            raise InputError(f"person {show(str(self.people.ids[who]))} has withdrawn already")
        return self.without((*self.withdrawn, who)), self.teachers_of(who)

    def without(self, people: tuple[int, ...]) -> Self:
        """Return the allocation after these people, by index, and nobody else withdrew."""
        persons = np.where(np.isin(self.persons, people), EMPTY, self.persons)
        return replace(self, persons=persons, withdrawn=people)

    @property
    def vacant(self) -> frozenset[int]:
        """The teachers with an empty slot."""
        teacher = np.repeat(np.arange(self.n_teachers), self.teacher_sizes)
        return frozenset(teacher[self.persons == EMPTY].tolist())

    def members(self) -> dict[str, str]:
        """Return person → account: their group, or the teacher that holds them where teachers take turns.

        Those who withdrew are in no account: what is released from then on does not concern them.
        """
        ids = [str(person) for person in self.people.ids.tolist()]
        if self.participation is None:
            names, left = [group.id for group in self.groups], frozenset(self.withdrawn)
            homes = enumerate(self.group_of_person.tolist())
            return {ids[index]: names[place] for index, place in homes if index not in left}
        teacher = np.repeat(np.arange(self.n_teachers), self.teacher_sizes)
        slots = zip(self.persons.tolist(), teacher.tolist(), strict=True)
        return {ids[person]: f"teacher {number}" for person, number in slots if person >= 0}

    def former(self) -> dict[str, str]:
        """Return person → account of those who withdrew, as it would be if they had not."""
        if not self.withdrawn:
            return {}
        whole = replace(self, withdrawn=())
        if self.participation is not None:  # the account is that of a teacher, and slots that were emptied name nobody
            whole = replace(
                whole, persons=make_allocation(people=self.people, layout=self.layout, seed=self.seed).persons
            )
        homes = whole.members()
        return {person: homes[person] for person in self.people.ids[list(self.withdrawn)].tolist()}

    def save(self, path: str | Path) -> None:
        """Write the allocation to an npz file, whole or not at all; it names people, so keep it private."""
        save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> "Allocation":
        """Read an allocation that `save` wrote; nothing is unpickled."""
        return load(path)


def make_allocation(*, people: People, layout: Layout, seed: int) -> Allocation:
    """Deal the people to the teachers of a layout.

    All people are shuffled once, then dealt in turn; where groups have teachers of their own, each group among these.
    So one group gives the same deal under every variant.
    """
    number = check_count("seed", seed, least=0)
    rng = np.random.default_rng(number)
    order = rng.permutation(people.n_people)
    home = _home_of(people, layout)[order]
    copies = np.array([layout.copies[group.id] for group in layout.groups])[home]
    if layout.teacher_groups is None:
        persons, teachers = _deal_slots(order, copies, layout.n_teachers, rng)
    else:
        parts, start = [], 0
        for position, group in enumerate(layout.groups):
            own = home == position
            who, where = _deal_slots(order[own], copies[own], layout.teachers[group.id], rng)
            parts.append((who, where + start))
            start += layout.teachers[group.id]
        persons, teachers = (np.concatenate(column) for column in zip(*parts, strict=True))
    sizes = np.bincount(teachers, minlength=layout.n_teachers)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    placed = np.argsort(teachers * people.n_people + persons)
    return Allocation(layout=layout, people=people, seed=number, offsets=offsets, persons=persons[placed])


def _home_of(people: People, layout: Layout) -> Ints:
    """Return every person's group, by position in the layout's groups (merged people: where they count)."""
    position = {group.id: place for place, group in enumerate(layout.groups)}
    for group in people.groups:
        if group.id not in layout.home:
            raise InputError(f"group {group.id!r} is not in the layout: it must be made from these people")
    return np.array([position[layout.home[group.id]] for group in people.groups])[people.group_of_person]


def _deal_slots(order: Ints, copies: Ints, n_teachers: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Deal people in the given order to teachers, as often as they have copies, never twice to one.

    Returns the person and the teacher of every slot. A person's copies are adjacent and slots go to the teachers in
    rounds, so sizes differ by at most one. With single copies a round is 0, 1, 2, …; with several it is a new shuffle,
    so that every pair of teachers shares about as many people. A person at the end of a round continues in the next,
    which `separate` arranges; where somebody is in more than half of all teachers it cannot, and rounds stay in order.
    """
    persons = np.repeat(order, copies)
    slots, most = len(persons), int(copies.max(initial=1))
    turn = np.arange(slots)
    if most == 1 or 2 * most > n_teachers:
        return persons, turn % n_teachers
    rounds = -(-slots // n_teachers)
    drawn = rng.permuted(np.tile(np.arange(n_teachers), (rounds, 1)), axis=1)
    begin = np.cumsum(copies) - copies
    starts = np.arange(rounds + 1) * n_teachers
    inside = starts < slots
    holder = np.searchsorted(begin, np.minimum(starts, slots - 1), side="right") - 1
    trail = np.where(inside, starts - begin[holder], 0)
    lead = np.where(trail > 0, begin[holder] + copies[holder] - starts, 0)
    before = np.concatenate([drawn[:1], drawn[:-1]])
    final = separate(drawn, before, trail=trail[:-1], lead=lead[:-1], fixed=trail[1:])
    return persons, final.ravel()[:slots]


_FORMAT = "ipate allocation 2"
_AS_THEY_ARE = ("variant", "rule", "teachers", "home", "copies", "scale")  # fields of a layout that JSON can hold


def save(allocation: Allocation, path: str | Path) -> None:
    """Write the allocation aside in the same folder, to disk, then rename it into place."""
    with replacing(path) as file:
        np.savez(file, allow_pickle=False, **_arrays(allocation))


def load(path: str | Path) -> Allocation:
    """Read what `save` wrote, and check it as a new allocation is checked."""
    try:
        with np.load(Path(path), allow_pickle=False) as archive:
            if not isinstance(archive, np.lib.npyio.NpzFile) or "meta" not in archive:
                raise InputError(f"{path} is no allocation: it must be an npz file that ipate has saved")
            meta = json.loads(str(archive["meta"]))
            if meta.get("format") != _FORMAT:
                raise InputError(f"{path} has the format {meta.get('format')!r}: it must be {_FORMAT!r}")
            return _allocation(meta, {name: archive[name] for name in archive.files if name != "meta"})
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; an allocation is an npz file that ipate has saved") from None
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is no readable allocation ({' '.join(str(error).split())})") from None


def _arrays(allocation: Allocation) -> dict[str, Any]:
    layout, people, schedule = allocation.layout, allocation.people, allocation.participation
    meta = {
        "format": _FORMAT,
        "seed": allocation.seed,
        "withdrawn": allocation.withdrawn,
        "layout": {
            **{name: getattr(layout, name) for name in _AS_THEY_ARE},
            "groups": [asdict(account) for account in layout.groups],
            "participation": None if schedule is None else {"seed": schedule.seed, "fractions": schedule.fractions},
            "merged": [asdict(merge) for merge in layout.merged],
            "notes": layout.notes,
        },
        "people": {"n": people.n_people, "groups": [asdict(group) for group in people.groups], "notes": people.notes},
    }
    arrays: dict[str, NDArray[Any]] = {
        "meta": np.array(json.dumps(meta, allow_nan=False, default=dict)),
        "offsets": allocation.offsets,
        "persons": _narrow(allocation.persons),
        "weights": layout.weights,
        "group_of_person": _narrow(people.group_of_person),
    }
    if layout.teacher_groups is not None:
        position = {group.id: place for place, group in enumerate(layout.groups)}
        arrays["teacher_groups"] = np.array([position[name] for name in layout.teacher_groups])
    if not np.array_equal(people.ids, _numbers(people.n_people)):
        arrays["ids"] = people.ids
    if not np.array_equal(people.person_of_row, np.arange(people.n_people)):
        arrays["person_of_row"] = _narrow(people.person_of_row)
    return arrays


def _allocation(meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Allocation:
    kept, n_people = meta["layout"], meta["people"]["n"]
    groups = tuple(
        Account(group=_group(account["group"]), sensitivity=account["sensitivity"]) for account in kept["groups"]
    )
    teacher_groups = None
    if "teacher_groups" in arrays:
        teacher_groups = tuple(groups[place].id for place in arrays["teacher_groups"].tolist())
    schedule = None
    if kept["participation"] is not None and teacher_groups is not None:
        schedule = Participation(**kept["participation"], teacher_groups=teacher_groups)
    layout = Layout(
        **{name: kept[name] for name in _AS_THEY_ARE},
        groups=groups,
        weights=arrays["weights"],
        teacher_groups=teacher_groups,
        participation=schedule,
        merged=tuple(Merge(**merge) for merge in kept["merged"]),
        notes=tuple(kept["notes"]),
    )
    people = People(
        groups=tuple(map(_group, meta["people"]["groups"])),
        ids=arrays["ids"] if "ids" in arrays else _numbers(n_people),
        group_of_person=arrays["group_of_person"].astype(np.int64),
        person_of_row=arrays.get("person_of_row", np.arange(n_people)).astype(np.int64),
        notes=tuple(meta["people"]["notes"]),
    )
    return Allocation(
        layout=layout,
        people=people,
        seed=meta["seed"],
        offsets=arrays["offsets"],
        persons=arrays["persons"].astype(np.int64),
        withdrawn=tuple(meta["withdrawn"]),
    )


def _group(kept: dict[str, Any]) -> Group:
    return Group(id=kept["id"], budget=Budget(**kept["budget"]), people=kept["people"])


def _numbers(n: int) -> NDArray[np.str_]:
    """The ids of people who are known by their row numbers alone: not worth storing."""
    return np.arange(n).astype(np.str_)


def _narrow(array: NDArray[np.int64]) -> NDArray[Any]:
    small = array.size == 0 or max(-int(array.min()), int(array.max())) < 2**31
    return array.astype(np.int32) if small else array
