"""Votes files: teachers' votes on public points, validated strictly and processed in chunks.

An npz holds `votes` (teachers × queries, integer class ids, −1 abstains) and optionally `weights` and `groups` (one
per teacher), `participation` (teachers × queries), `labels` (the truth, for scoring only), `classes` and `queries`
(ids). Pickled objects are never loaded. Members stored without compression are memory-mapped.
"""

import json
import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.errors import ClassesWarning, InputError
from ipate.files import read_npy, read_npz
from ipate.votes.counting import Ints, row_blocks

_KNOWN = ("votes", "weights", "groups", "participation", "labels", "classes", "queries")
_KINDS = {  # numpy's kinds of number that an array may have, and the rule in words
    "weights": ("iuf", "are", "they must be numbers"),
    "participation": ("b", "is", "it must be bool, whether a teacher takes part in a query"),
    "labels": ("iu", "are", "they must be integers, the classes' ids"),
}
_STORE = "a votes file is an npz with an array 'votes', a folder with votes.npy, or an npy"


@dataclass(frozen=True, kw_only=True)
class Votes:
    """The votes of k teachers on Q queries, with optional facts about teachers and queries.

    Attributes
    ----------
    votes : integer array of shape (k, Q)
        Class ids from 0 to `n_classes` − 1; −1 abstains.
    n_classes : int
        C, the number of classes; public.
    weights : float array of shape (k,), optional
        The teachers' weights, used as given.
    groups : tuple of k strings, optional
        The group on whose people each teacher was trained; None if teachers mix groups (upsampling).
    participation : bool array of shape (k, Q), optional
        Which teachers take part in which query (vanishing).
    labels : integer array of shape (Q,), optional
        The truth, for scoring only.
    queries : tuple of Q strings, optional
        Ids of the queries. Default: row numbers.
    """

    votes: Ints
    n_classes: int
    weights: NDArray[np.float64] | None = None
    groups: tuple[str, ...] | None = None
    participation: NDArray[np.bool_] | None = None
    labels: Ints | None = None
    queries: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        _check_votes(self.votes, self.n_classes)
        k, q = self.votes.shape
        for name, wanted, meaning in (
            ("weights", (k,), "one per teacher"),
            ("groups", (k,), "one per teacher"),
            ("participation", (k, q), "teachers × queries"),
            ("labels", (q,), "one per query"),
            ("queries", (q,), "one per query"),
        ):
            value = getattr(self, name)
            found = value.shape if isinstance(value, np.ndarray) else wanted if value is None else (len(value),)
            if found != wanted:
                raise InputError(f"{name} have the shape {found}: it must be {wanted}, {meaning}")
        if self.weights is not None:
            check_weights(self.weights)

    @property
    def n_teachers(self) -> int:
        """The number of teachers, k."""
        return int(self.votes.shape[0])

    @property
    def n_queries(self) -> int:
        """The number of queries, Q."""
        return int(self.votes.shape[1])

    @cached_property
    def abstains(self) -> bool:
        """Whether any teacher abstains on any query."""
        if self.votes.dtype.kind == "u":
            return False
        return any(block.size and int(block.min()) < 0 for block in row_blocks(self.votes))


def read_votes(path: str | Path, *, classes: int | None = None) -> Votes:
    """Read a votes file and validate it strictly.

    Parameters
    ----------
    path : path
        An npz file; a folder with `votes.npy` and optionally the other arrays of an npz, such as `groups.npy`; or
        an npy file with the votes alone. Arrays in a folder are memory-mapped.
    classes : int, optional
        The number of classes. Default: `classes` in the file, or else 1 + the largest id, with a warning, because
        the set of classes is then treated as public.
    """
    file = Path(path)
    if file.is_dir():
        arrays = _read_store(file)
    elif not file.is_file():
        raise InputError(f"{file}: no such file; {_STORE}")
    elif file.suffix == ".npy":
        arrays = {"votes": read_npy(file)}
    else:
        arrays = read_npz(file, _KNOWN)
    if "votes" not in arrays:
        found = ", ".join(sorted(arrays)) or "nothing"
        raise InputError(f"{file}: contains {found}; it must contain 'votes' (teachers × queries, class ids)")
    votes = arrays["votes"]
    if votes.ndim != 2 or votes.size == 0:
        raise InputError(f"{file}: votes have the shape {votes.shape}; it must be teachers × queries, not empty")
    if not np.issubdtype(votes.dtype, np.integer):
        raise InputError(f"{file}: votes are {votes.dtype}; they must be integers, the classes' ids")
    try:
        n_classes = _number_of_classes(votes, arrays.get("classes"), classes)
        for name, (kinds, verb, rule) in _KINDS.items():
            if name in arrays and arrays[name].dtype.kind not in kinds:
                raise InputError(f"{name} {verb} {arrays[name].dtype}: {rule}")
        return Votes(
            votes=votes,
            n_classes=n_classes,
            weights=np.array(arrays["weights"], dtype=np.float64) if "weights" in arrays else None,
            groups=read_ids("groups", arrays.get("groups")),
            participation=arrays.get("participation"),
            labels=arrays.get("labels"),
            queries=read_ids("queries", arrays.get("queries")),
        )
    except InputError as error:
        raise InputError(f"{file}: {error}") from None


def _read_store(folder: Path) -> dict[str, NDArray[Any]]:
    """Memory-map the arrays of a folder; an incomplete vote store is refused."""
    arrays = {name: read_npy(folder / f"{name}.npy") for name in _KNOWN if (folder / f"{name}.npy").is_file()}
    if (folder / "store.json").is_file():
        try:
            arrays.setdefault("classes", np.array(int(json.loads((folder / "store.json").read_text())["classes"])))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{folder / 'store.json'}: not readable ({error})") from None
        done = read_npy(folder / "done.npy")
        if not done.all():
            raise InputError(
                f"{folder}: {int(np.count_nonzero(~done))} of {done.size} teachers have not voted; train them first"
            )
    return arrays


def _number_of_classes(votes: Ints, stored: NDArray[Any] | None, given: int | None) -> int:
    """Return C: as given, or as stored, or inferred from the votes with a warning."""
    if given is not None:
        if given < 2:
            raise InputError(f"classes is {given}: there must be at least 2")
        return given
    if stored is not None:
        if stored.ndim == 0 and np.issubdtype(stored.dtype, np.integer) and int(stored) >= 2:
            return int(stored)
        if stored.ndim == 1 and stored.size >= 2:  # the classes' names
            return int(stored.size)
        raise InputError(f"classes is {stored!r}: it must be a number of at least 2, or a list of names")
    largest = max(int(block.max()) for block in row_blocks(votes))
    if largest < 1:
        raise InputError("no vote is for a class above 0: state the number of classes (--classes N)")
    warnings.warn(
        f"the classes 0 to {largest} are inferred from the votes: this treats the set of classes as public "
        "(state it with --classes N or 'classes' in the file)",
        ClassesWarning,
        stacklevel=3,
    )
    return largest + 1


def _check_votes(votes: Ints, n_classes: int) -> None:
    signed = votes.dtype.kind != "u"
    for block in row_blocks(votes):
        low, high = int(block.min()) if signed else 0, int(block.max())
        if low < -1 or high >= n_classes:
            bad = low if low < -1 else high
            raise InputError(f"votes contain {bad}: class ids go from 0 to {n_classes - 1}, and −1 abstains")


def check_weights(weights: NDArray[np.float64]) -> None:
    """Refuse teachers' weights that are negative or not finite."""
    bad = weights[~(np.isfinite(weights) & (weights >= 0))]
    if bad.size:
        raise InputError(f"weights contain {bad[0]:g}: each must be a finite number, 0 or above")


def read_ids(name: str, array: NDArray[Any] | None) -> tuple[str, ...] | None:
    """Return ids as strings, so that 1 and '1' are the same id; floats are refused, their text is not stable."""
    if array is None:
        return None
    if array.ndim != 1 or array.dtype.kind not in "iuUS":
        raise InputError(f"{name} are {array.dtype} of shape {array.shape}: they must be a list of ids")
    if array.dtype.kind == "S":
        try:
            array = np.char.decode(array, "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{name} contain {error.object!r}: ids must be text in UTF-8") from None
    return tuple(str(value).strip() for value in array.tolist())
