"""Votes on disk, teacher by teacher: what was voted stays when a run is interrupted.

A folder with `votes.npy` (teachers × queries, mapped), `done.npy` (which teachers have voted) and
`store.json` (what the votes belong to). A teacher's row is written, flushed and only then marked, so a
row that is marked is whole. Votes are private: the folder is readable by its owner alone.
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.errors import InputError
from ipate.tables import write_text

__all__ = ["VoteStore"]

_VERSION = 1


class VoteStore:
    """The votes of k teachers on Q queries, in a folder.

    Parameters
    ----------
    folder : path
        Made if it is not there; an existing store is continued.
    n_teachers, n_queries, n_classes : int
        The shape of the votes.
    fingerprint : str
        What the votes depend on (data, allocation, teacher); a store made for something else is refused.
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, n_teachers: int, n_queries: int, n_classes: int, fingerprint: str
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
        if stated.exists():
            self._check(stated, facts)
        else:
            dtype = np.uint8 if n_classes <= 256 else np.uint16
            shape = (n_teachers, n_queries)
            np.lib.format.open_memmap(self._votes, mode="w+", dtype=dtype, shape=shape).flush()
            np.lib.format.open_memmap(self._done, mode="w+", dtype=np.bool_, shape=(n_teachers,)).flush()
            write_text(stated, json.dumps(facts, indent=2) + "\n")
        self.matrix: NDArray[Any] = np.lib.format.open_memmap(self._votes, mode="r+")
        self.done: NDArray[np.bool_] = np.lib.format.open_memmap(self._done, mode="r+")

    @property
    def _votes(self) -> Path:
        return self.folder / "votes.npy"

    @property
    def _done(self) -> Path:
        return self.folder / "done.npy"

    def _check(self, stated: Path, facts: dict[str, Any]) -> None:
        try:
            found = json.loads(stated.read_text())
        except (OSError, ValueError) as error:
            raise InputError(f"{stated}: not readable ({error}); remove the folder to start afresh") from None
        for name, wanted in facts.items():
            if found.get(name) != wanted:
                raise InputError(
                    f"{self.folder}: holds votes with {name} {found.get(name)!r}, not {wanted!r}; "
                    "use another folder, or remove this one to start afresh"
                )

    def put(self, teacher: int, votes: NDArray[np.integer[Any]]) -> None:
        """Write one teacher's votes, then mark the teacher as done."""
        if votes.shape != (self.matrix.shape[1],) or votes.min(initial=0) < 0 or votes.max(initial=0) >= self.n_classes:
            raise InputError(
                f"teacher {teacher}: its votes must be {self.matrix.shape[1]} class ids below {self.n_classes}"
            )
        self.matrix[teacher] = votes
        self.matrix.flush()  # type: ignore[attr-defined]
        self.done[teacher] = True
        self.done.flush()  # type: ignore[attr-defined]

    def forget(self, teacher: int) -> None:
        """Mark a teacher for training again, as when one of its people withdrew."""
        self.done[teacher] = False
        self.done.flush()  # type: ignore[attr-defined]

    @property
    def missing(self) -> tuple[int, ...]:
        """The teachers that have not voted yet."""
        return tuple(np.flatnonzero(~self.done).tolist())
