"""Votes files, written while the teachers vote: memory stays flat and an interrupted file is continued.

An npz with `votes` (teachers × queries, class ids), `classes`, and `groups`, `weights` and `labels`
where given. Votes are stored query after query (Fortran order): appending is all it takes.
"""

import json
import os
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.torch.errors import InputError

__all__ = ["write_votes"]

_BLOCK = 1 << 24


def write_votes(
    path: str | Path,
    votes_from: Callable[[int], Iterator[NDArray[np.integer[Any]]]],
    *,
    n_teachers: int,
    n_queries: int,
    n_classes: int,
    groups: Sequence[str] | None = None,
    weights: Sequence[float] | None = None,
    labels: NDArray[Any] | None = None,
    identity: str = "",
) -> Path:
    """Write a votes file; what stands in `PATH.part` from an interrupted call is kept and continued.

    Parameters
    ----------
    path : path
        The npz file; it appears when it is complete.
    votes_from : callable
        Given a query's number, an iterator over the votes (T, B) of the queries from there on.
    groups, weights : sequences of length T, optional
        Passed through.
    labels : array of length Q, optional
        The truth, for scoring only; passed through.
    identity : str
        Names what votes on what: a part that was written for something else is not continued.
    """
    extra = _extras(n_teachers, n_queries, groups, weights, labels)
    target = Path(path)
    part, note = target.with_name(target.name + ".part"), target.with_name(target.name + ".part.json")
    kind = np.dtype(np.uint8 if n_classes <= 256 else np.int16)
    about = json.dumps([identity, n_teachers, n_queries, n_classes])
    if not (part.is_file() and note.is_file() and note.read_text() == about):
        part.unlink(missing_ok=True)
        note.write_text(about)
    width = n_teachers * kind.itemsize
    with part.open("ab") as file:
        done = file.tell() // width
        file.truncate(done * width)
        for votes in votes_from(done) if done < n_queries else ():
            file.write(np.ascontiguousarray(votes.T, dtype=kind).data)
    _pack(target, part, shape=(n_teachers, n_queries), kind=kind, arrays={"classes": np.array(n_classes), **extra})
    part.unlink()
    note.unlink()
    return target


def _extras(
    n_teachers: int, n_queries: int, groups: Sequence[str] | None, weights: Sequence[float] | None,
    labels: NDArray[Any] | None,
) -> dict[str, NDArray[Any]]:  # fmt: skip
    arrays: dict[str, NDArray[Any]] = {}
    if groups is not None:
        arrays["groups"] = np.array([str(group) for group in groups])
    if weights is not None:
        arrays["weights"] = np.asarray(weights, dtype=np.float64)
    if labels is not None:
        arrays["labels"] = np.asarray(labels)
    for name, array in arrays.items():
        wanted = n_queries if name == "labels" else n_teachers
        if array.shape != (wanted,):
            raise InputError(f"{name} have the shape {array.shape}: it must be ({wanted},)")
        if array.dtype.hasobject:
            raise InputError(f"{name} hold Python objects: give numbers or text")
    return arrays


def _pack(
    target: Path, part: Path, *, shape: tuple[int, int], kind: np.dtype[Any], arrays: dict[str, NDArray[Any]]
) -> None:
    """Put the raw votes and the small arrays into an npz beside the target, then in its place."""
    fresh = target.with_name(target.name + ".new")
    header = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": True, "shape": shape}
    with zipfile.ZipFile(fresh, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        with archive.open("votes.npy", "w", force_zip64=True) as member, part.open("rb") as raw:
            np.lib.format.write_array_header_1_0(member, header)
            while block := raw.read(_BLOCK):
                member.write(block)
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    os.replace(fresh, target)
