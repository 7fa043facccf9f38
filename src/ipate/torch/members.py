"""Which rows each teacher learns from, and in which order it meets them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ipate.torch.errors import InputError

__all__ = ["Ints", "Members", "as_members", "visits"]

Ints: TypeAlias = NDArray[np.integer[Any]]
_ORDER = 4  # the purpose of this stream, beside those of `streams`


@dataclass(frozen=True, kw_only=True)
class Members:
    """The rows of T teachers, one after another.

    Attributes
    ----------
    offsets : integer array of shape (T + 1,)
        Teacher t has the slots offsets[t] to offsets[t + 1] − 1.
    indices : integer array
        A row per slot; −1 is the empty slot of a person who left. Slots are public and stay, so that
        the length of training, which may depend on them, tells nobody who left.
    """

    offsets: Ints
    indices: Ints

    @property
    def n_teachers(self) -> int:
        """T."""
        return len(self.offsets) - 1

    @property
    def slots(self) -> Ints:
        """The number of slots of every teacher, empty ones included."""
        return np.diff(self.offsets)

    def rows(self, teacher: int) -> NDArray[np.int64]:
        """Return the rows that a teacher learns from."""
        own = self.indices[self.offsets[teacher] : self.offsets[teacher + 1]]
        return np.asarray(own[own >= 0], dtype=np.int64)


def as_members(members: "Members | Sequence[Any] | NDArray[Any]", *, n_rows: int) -> Members:
    """Read a list of row indices per teacher, a matrix (T, slots), or Members, and check every index."""
    if not isinstance(members, Members):
        lists = [np.asarray(own) for own in members]
        for teacher, own in enumerate(lists):
            if own.size and (own.ndim != 1 or not np.issubdtype(own.dtype, np.integer)):
                raise InputError(
                    f"members of teacher {teacher} are {own.dtype} {own.shape}: give a list of row numbers"
                )
        offsets = np.cumsum([0, *(own.size for own in lists)])
        indices = np.concatenate([np.asarray(own, dtype=np.int64).ravel() for own in lists] or [np.empty(0, np.int64)])
        members = Members(offsets=offsets, indices=indices)
    if members.n_teachers < 1:
        raise InputError("members name no teacher: there must be at least one")
    if members.offsets[0] != 0 or members.offsets[-1] != members.indices.size or np.any(members.slots < 0):
        raise InputError("offsets must rise from 0 to the number of indices")
    bad = np.flatnonzero((members.indices < -1) | (members.indices >= n_rows))
    if bad.size:
        teacher = int(np.searchsorted(members.offsets, bad[0], side="right")) - 1
        raise InputError(
            f"members of teacher {teacher} hold {members.indices[bad[0]]}: rows go from 0 to {n_rows - 1}, "
            "and −1 is an empty slot"
        )
    return members


def visits(size: int, *, seed: int, teacher: int, length: int) -> NDArray[np.int64]:
    """Return which of its `size` points a teacher meets, one after another: shuffled, again and again."""
    rounds = -(-length // size)
    generator = np.random.default_rng([seed, teacher, _ORDER])
    orders = generator.permuted(np.tile(np.arange(size), (rounds, 1)), axis=1)
    return np.asarray(orders.ravel()[:length], dtype=np.int64)
