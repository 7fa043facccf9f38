"""Crash-safe storage of votes on disk, one row per teacher.

A folder holds `votes.npy` (teachers × queries, mapped), `done.npy` (which teachers have voted), `learnt.npy` (a hash
of each teacher's training data) and `store.json` (the shape and fingerprint). A row is written and flushed before the
teacher is marked as done, so a marked row is complete. When the store is opened, votes of teachers whose training
data included somebody who has withdrawn are erased, before they can be used. Votes are private: only the owner can
read the folder. `ipate.engines.teachers.votes.read_votes` reads it.
"""

import json
import os
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate._types import Integers
from ipate.errors import InputError
from ipate.files import fingerprint, write_text
from ipate.models.training import vote_dtype

_VERSION = 2
_HASH = 16  # bytes
_SECONDS = 1.0  # longest time between two writes
_HELD = 1 << 26  # most bytes of votes held before a write


def learnt_from(X: NDArray[Any], y: Integers, rows: Sequence[Integers]) -> list[bytes]:
    """Return, per teacher, a hash of the content of its own rows, so that others' rows do not change it."""
    return [bytes.fromhex(fingerprint(X[own], y[own])) for own in rows]


class VoteStore:
    """The votes of k teachers on Q queries in a folder; an existing store is continued.

    `fingerprint` identifies what all votes depend on (public points, kind of teacher, seed); a store with another one
    is refused. `learnt` holds a 16-byte hash of each teacher's training data (`learnt_from`).
    `vacant` are the teachers from whose data somebody has withdrawn: if their hash has changed, their votes are erased
    and they must be trained again. A changed hash of any other teacher is refused.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        n_teachers: int,
        n_queries: int,
        n_classes: int,
        fingerprint: str,
        learnt: Sequence[bytes] | None = None,
        vacant: Collection[int] = (),
    ) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        self.n_classes = n_classes
        facts: dict[str, Any] = {
            "version": _VERSION,
            "teachers": n_teachers,
            "queries": n_queries,
            "classes": n_classes,
            "fingerprint": fingerprint,
        }
        stated = self.folder / "store.json"
        arrays: dict[Path, tuple[np.dtype[Any], tuple[int, ...]]] = {
            self.folder / "votes.npy": (vote_dtype(n_classes), (n_teachers, n_queries)),
            self.folder / "done.npy": (np.dtype(np.bool_), (n_teachers,)),
            self.folder / "learnt.npy": (np.dtype(np.uint8), (n_teachers, _HASH)),
        }
        if stated.exists():
            self._check(stated, facts)
        else:
            for path, (dtype, shape) in arrays.items():
                np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape).flush()
            write_text(stated, json.dumps(facts, indent=2) + "\n")
        self.matrix, self.done, self._from = (self._mapped(path, *kind) for path, kind in arrays.items())
        self._now = np.zeros((n_teachers, _HASH), dtype=np.uint8)
        if learnt is not None:
            self._now[:] = np.frombuffer(b"".join(learnt), dtype=np.uint8).reshape(n_teachers, _HASH)
        self._forget_those_who_learnt_otherwise(frozenset(vacant))

    def _forget_those_who_learnt_otherwise(self, vacant: frozenset[int]) -> None:
        stale = np.flatnonzero(self.done & (self._from != self._now).any(axis=1)).tolist()
        for teacher in stale:
            if teacher not in vacant:
                raise InputError(
                    f"{self.folder}: the data of teacher {teacher} changed since it voted, without a withdrawal; "
                    "restore the data, or start a new run in another folder"
                )
        for teacher in stale:
            self.forget(teacher)

    def _check(self, stated: Path, facts: dict[str, Any]) -> None:
        try:
            found = json.loads(stated.read_text())
        except (OSError, ValueError) as error:
            raise InputError(f"{stated}: not readable ({error}); remove the folder to start again") from None
        for name, wanted in facts.items():
            if found.get(name) != wanted:
                raise InputError(
                    f"{self.folder}: contains votes with {name} {found.get(name)!r}, not {wanted!r}; "
                    "use another folder, or remove this one to start again"
                )

    def _mapped(self, path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        """Map an array of the store; a missing, truncated or mismatched file is refused."""
        try:
            found: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")  # in mode r+ numpy pads with zeros
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: not readable ({error}); remove {self.folder} to start again") from None
        if found.dtype != dtype or found.shape != shape:
            raise InputError(
                f"{path}: contains {found.dtype} of the shape {found.shape}, not {dtype} of {shape}; remove "
                f"{self.folder} to start again"
            )
        return np.lib.format.open_memmap(path, mode="r+")

    def put(self, teacher: int, votes: Integers) -> None:
        """Write one teacher's votes, then mark the teacher as done."""
        self.put_all({teacher: votes})

    def put_all(self, votes: Mapping[int, Integers]) -> None:
        """Write the votes of several teachers with one flush, then mark them as done."""
        width = self.matrix.shape[1]
        for teacher, own in votes.items():
            if own.shape != (width,) or own.min(initial=0) < 0 or own.max(initial=0) >= self.n_classes:
                raise InputError(f"teacher {teacher}: its votes must be {width} class ids below {self.n_classes}")
        for teacher, own in votes.items():
            self.matrix[teacher] = own
        self.matrix.flush()  # type: ignore[attr-defined]
        teachers = list(votes)
        self._from[teachers] = self._now[teachers]
        self._from.flush()  # type: ignore[attr-defined]
        self.done[teachers] = True
        self.done.flush()  # type: ignore[attr-defined]

    @contextmanager
    def writing(self) -> Iterator[Callable[[int, Integers], None]]:
        """Yield a `put` that buffers votes and writes them together, about every second and at the end."""
        held: dict[int, Integers] = {}
        last = time.monotonic()

        def put(teacher: int, votes: Integers) -> None:
            nonlocal last
            held[teacher] = votes
            if time.monotonic() - last > _SECONDS or len(held) * votes.nbytes > _HELD:
                self.put_all(held)
                held.clear()
                last = time.monotonic()

        try:
            yield put
        finally:
            if held:
                self.put_all(held)

    def describe(self, *, groups: Sequence[str]) -> None:
        """Write every teacher's group to `groups.npy` beside the votes, for labelling."""
        if len(groups) != len(self.done):
            raise InputError(f"there are {len(groups)} groups for {len(self.done)} teachers: one per teacher is needed")
        with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as aside:
            np.save(aside, np.array(groups, dtype=np.str_), allow_pickle=False)
        os.replace(aside.name, self.folder / "groups.npy")

    def forget(self, teacher: int) -> None:
        """Erase a teacher's votes and mark it for training, for example after a withdrawal."""
        self.done[teacher] = False
        self.done.flush()  # type: ignore[attr-defined]
        self.matrix[teacher] = 0
        self.matrix.flush()  # type: ignore[attr-defined]

    @property
    def missing(self) -> tuple[int, ...]:
        """The teachers that have not voted yet."""
        return tuple(np.flatnonzero(~self.done).tolist())


def voted_in(folder: Path) -> NDArray[np.bool_]:
    """Return which teachers of a store have voted; an empty array if there is no store yet."""
    return np.load(folder / "done.npy") if _begun(folder) else np.zeros(0, dtype=np.bool_)


def erase_votes(folder: Path, teachers: Sequence[int]) -> None:
    """Erase the votes of some teachers of a store and mark them as not having voted."""
    for name in ("done.npy", "votes.npy") if _begun(folder) else ():
        rows = np.lib.format.open_memmap(folder / name, mode="r+")
        rows[list(teachers)] = 0
        rows.flush()


def _begun(folder: Path) -> bool:
    """Whether there is a store; arrays without its statement, which is written last, were left by a kill."""
    return (folder / "store.json").is_file()
