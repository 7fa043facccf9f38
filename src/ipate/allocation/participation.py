"""Which teachers vote on which query, for any query, from a seed: nothing but the fractions is stored.

A *voting* here is a query counted from 0 in the order asked. A group of t teachers with the fraction f fills seats:
voting q takes the seats from ⌊qtf⌋ to ⌊(q+1)tf⌋, so numbers differ by at most one between votings. Seats are filled in
cycles of t, each a fresh shuffle of the t teachers, so after any number of votings two teachers of a group differ by at
most one. Where f > ½, who is absent rotates instead. A voting may straddle two cycles; the second shuffle is then
rearranged so that nobody is asked for twice (`separate`).
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ipate._types import Bools, Ints
from ipate.errors import InputError, show

_UNIT = 1 << 24  # seats per voting are kept as whole multiples of 1/_UNIT: no rounding, anywhere
_BLOCK = 1 << 16  # seats whose shuffles are drawn in one go


def separate(order: Ints, before: Ints, *, trail: Ints, lead: Ints, fixed: Ints) -> Ints:
    """Rearrange shuffles so that the first `lead` entries of each miss the last `trail` of its predecessor.

    `order` and `before` have shape (rows, t): shuffles of 0 … t − 1, and the one that precedes each. The last `fixed`
    entries of every row stay, so that rows can be computed in any order. It needs trail + lead + fixed ≤ t.
    """
    rows, t = order.shape
    place = np.arange(t)
    taken = np.zeros((rows, t), dtype=bool)
    np.put_along_axis(taken, before, place >= (t - trail)[:, None], axis=1)
    clash = np.take_along_axis(taken, order, axis=1) & (lead > 0)[:, None]
    rank = np.where(place >= (t - fixed)[:, None], 2, clash).astype(np.int8)
    return np.take_along_axis(order, np.argsort(rank, axis=1, kind="stable"), axis=1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Participation:
    """The schedule of vanishing: group by group, a rotation that is reshuffled every cycle."""

    seed: int  # public
    fractions: Mapping[str, float]  # the share of the votings in which a group's teachers take part, by group id
    teacher_groups: tuple[str, ...]  # every teacher's group, k ids

    def __post_init__(self) -> None:
        for name in self.teacher_groups:
            if name not in self.fractions:
                raise InputError(f"group {show(name)} has teachers and no fraction: every group needs one")
        for name, fraction in self.fractions.items():
            if not 0 <= fraction <= 1:
                raise InputError(f"fraction of {show(name)} is {fraction!r}: it must lie between 0 and 1")

    @property
    def n_teachers(self) -> int:
        """The number of teachers, k."""
        return len(self.teacher_groups)

    @cached_property
    def rotations(self) -> tuple["_Rotation", ...]:
        """One rotation per group that has teachers."""
        names = np.array(self.teacher_groups)
        made = []
        for name in dict.fromkeys(self.teacher_groups):
            teachers = np.flatnonzero(names == name)
            rate = round(self.fractions[name] * len(teachers) * _UNIT)
            absent = 2 * rate > len(teachers) * _UNIT
            step = len(teachers) * _UNIT - rate if absent else rate
            made.append(_Rotation(name, teachers, step, absent, self.seed))
        return tuple(made)

    def participants(self, votings: ArrayLike) -> Bools:
        """Return who takes part: bool, shape (k, B), for votings counted from 0 in the order held."""
        index = _check(votings)
        present = np.empty((self.n_teachers, index.size), dtype=bool)
        for rotation in self.rotations:
            present[rotation.teachers] = rotation.present(index)
        return present

    def in_order(self, n_queries: int, order: Ints | None) -> Bools:
        """Return who takes part in each query of a file, shape (k, n_queries); the n-th one asked is voting n."""
        held = self.participants(np.arange(n_queries))
        if order is None:
            return held
        present = np.zeros_like(held)
        present[:, order] = held[:, : len(order)]
        return present

    def sensitivity(self, votings: ArrayLike) -> NDArray[np.float64]:
        """Return what a participant's vote weighs in each voting: k over the number who take part; 0 if nobody does."""
        index = _check(votings)
        numbers = np.asarray(sum(rotation.numbers(index) for rotation in self.rotations), dtype=np.int64)
        return np.where(numbers > 0, self.n_teachers / np.maximum(numbers, 1), 0.0)

    def most_turns(self, votings: int) -> dict[str, int]:
        """Return in how many of the first votings a teacher of each group takes part at most, by id."""
        return {rotation.name: rotation.most_turns(votings) for rotation in self.rotations}

    @property
    def worst_sensitivity(self) -> float:
        """The most that one vote can ever weigh: k over the fewest who take part."""
        fewest = sum(rotation.fewest for rotation in self.rotations)
        return self.n_teachers / max(fewest, 1)


def _check(votings: ArrayLike) -> Ints:
    index = np.atleast_1d(np.asarray(votings))
    if index.ndim != 1 or index.dtype.kind not in "iu" or (index.size and int(index.min()) < 0):
        raise InputError("votings must be whole numbers, counted from 0 in the order held")
    return index.astype(np.int64)


class _Rotation:
    """One group's rotation; `step` is the number of seats per voting in units of 1/_UNIT."""

    def __init__(self, name: str, teachers: Ints, step: int, absent: bool, seed: int) -> None:
        self.name, self.teachers, self.step, self.absent = name, teachers, step, absent
        digest = hashlib.sha256(name.encode()).digest()[:16]
        self.key = (seed, *(int(word) for word in np.frombuffer(digest, dtype="<u4")))

    @property
    def fewest(self) -> int:
        t = len(self.teachers)
        return t - -(-self.step // _UNIT) if self.absent else self.step // _UNIT

    def numbers(self, index: Ints) -> Ints:
        """How many of the group take part in each voting."""
        seats = ((index + 1) * self.step) // _UNIT - (index * self.step) // _UNIT
        return np.asarray(len(self.teachers) - seats if self.absent else seats)

    def most_turns(self, votings: int) -> int:
        """In how many of the first votings the busiest teacher takes part."""
        seats, t = votings * self.step // _UNIT, len(self.teachers)
        return votings - seats // t if self.absent else -(-seats // t)

    def present(self, index: Ints) -> Bools:
        """Who of the group takes part, shape (t, B)."""
        t = len(self.teachers)
        seated = np.zeros((t, index.size), dtype=bool)
        first = index * self.step // _UNIT
        count = (index + 1) * self.step // _UNIT - first
        if count.any():
            column = np.repeat(np.arange(index.size), count)
            within = np.arange(column.size) - np.repeat(np.cumsum(count) - count, count)
            cycle, place = np.divmod(np.repeat(first, count) + within, t)
            cycles, row = np.unique(cycle, return_inverse=True)
            seated[self._cycles(cycles)[row, place], column] = True
        return ~seated if self.absent else seated

    def _cycles(self, cycles: Ints) -> Ints:
        """Who has which seat of the given cycles, shape (cycles, t)."""
        t = len(self.teachers)
        wanted = np.unique(np.concatenate([cycles, np.maximum(cycles - 1, 0)]))
        per_block = max(1, _BLOCK // t)
        drawn = np.concatenate(
            [
                _shuffles(self.key, int(block), per_block, t)[wanted[wanted // per_block == block] % per_block]
                for block in np.unique(wanted // per_block)
            ]
        )
        own, before = (drawn[np.searchsorted(wanted, c)] for c in (cycles, np.maximum(cycles - 1, 0)))
        trail, lead = self._straddle(cycles)
        fixed, _ = self._straddle(cycles + 1)
        return separate(own, before, trail=trail, lead=lead, fixed=fixed)

    def _straddle(self, cycles: Ints) -> tuple[Ints, Ints]:
        """How many seats of one voting lie before and after the start of each cycle."""
        start = cycles * len(self.teachers)
        voting = np.maximum(start * _UNIT - 1, 0) // self.step
        low, high = voting * self.step // _UNIT, (voting + 1) * self.step // _UNIT
        crossed = (low < start) & (start < high)
        return np.where(crossed, start - low, 0), np.where(crossed, high - start, 0)


@lru_cache(maxsize=32)
def _shuffles(key: tuple[int, ...], block: int, rows: int, t: int) -> Ints:
    """Independent shuffles of 0 … t − 1, one per row, the same for the same key and block."""
    rng = np.random.default_rng([*key, block])
    return np.asarray(rng.permuted(np.tile(np.arange(t), (rows, 1)), axis=1))
