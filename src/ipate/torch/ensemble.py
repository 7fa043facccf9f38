"""Ensembles: the rows that each teacher learns from, the trained teachers with their votes, and the student."""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ipate._types import Integers
from ipate.errors import InputError, TeacherFailure
from ipate.torch.batched import BatchedNet
from ipate.torch.loop import Compute, State, as_floats, chosen_device, numerics
from ipate.torch.nets import NETS, Net, Shape, single

_AT_ONCE = {"cuda": 1 << 29, "cpu": 1 << 23}  # activations of a forward pass held at a time


@dataclass(frozen=True, kw_only=True)
class Members:
    """The rows of T teachers, one after another.

    Slots are public and stay when a person leaves, so that the length of training, which may depend on
    them, tells nobody who left.
    """

    offsets: Integers  # (T + 1,): teacher t has the slots offsets[t] to offsets[t + 1] − 1
    indices: Integers  # a row per slot; −1 is the empty slot of a person who left

    @property
    def n_teachers(self) -> int:
        """The number of teachers, T."""
        return len(self.offsets) - 1

    @property
    def slots(self) -> Integers:
        """The number of slots of every teacher, including empty ones."""
        return np.diff(self.offsets)

    def rows(self, teacher: int) -> NDArray[np.int64]:
        """Return the rows that a teacher learns from."""
        own = self.indices[self.offsets[teacher] : self.offsets[teacher + 1]]
        return np.asarray(own[own >= 0], dtype=np.int64)


def as_members(members: Members | Sequence[Any] | NDArray[Any], *, n_rows: int) -> Members:
    """Read a list of row indices per teacher, a matrix (T, slots), or Members, and check every index."""
    if not isinstance(members, Members):
        lists = [np.asarray(own) for own in members]
        for teacher, own in enumerate(lists):
            if own.size and (own.ndim != 1 or not np.issubdtype(own.dtype, np.integer)):
                raise InputError(
                    f"members of teacher {teacher} are {own.dtype} {own.shape}: give a list of row numbers"
                )
        offsets = np.cumsum([0, *(own.size for own in lists)])
        indices = np.concatenate([np.empty(0, np.int64), *(own.astype(np.int64).ravel() for own in lists)])
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


def as_images(X: NDArray[Any], net: Net) -> NDArray[Any]:
    """Return images as (N, C, H, W), as uint8 or float32; flat rows are the net's own images, or square grey ones."""
    X = np.asarray(X) if not isinstance(X, np.memmap) else X
    if X.dtype.kind not in "buif":
        raise InputError(f"X is of type {X.dtype}: images must be numbers")
    if X.dtype != np.uint8:
        X = X.astype(np.float32, copy=False)
    if X.ndim == 2:
        features, side = X.shape[1], round(X.shape[1] ** 0.5)
        square = (1, side, side) if side * side == features else None
        shape = net.image if int(np.prod(net.image)) == features else square
        if shape is None:
            raise InputError(f"X has {features} features per row: not an image; give (N, C, H, W)")
        return X.reshape(len(X), *shape)
    if X.ndim == 3:
        return X[:, None]
    if X.ndim == 4 and X.shape[1] <= 4:
        return X
    if X.ndim == 4 and X.shape[3] <= 4:
        return np.moveaxis(X, 3, 1)
    raise InputError(f"X has the shape {X.shape}: give images as (N, C, H, W) or (N, H, W, C), at most 4 channels")


@dataclass(frozen=True, kw_only=True)
class Ensemble:
    """T trained teachers; every one votes among all classes, whichever it has seen."""

    net: Net
    image: Shape  # (channels, height, width) of the images that they were trained on
    n_classes: int
    state: State  # all parameters as tensors (T, …), named as in one model
    silent: tuple[int, ...] = ()  # teachers that have no data or that failed; they vote `fixed_class`
    fixed_class: int = 0  # a public choice
    failures: tuple[TeacherFailure, ...] = ()  # which teachers failed, and why

    @property
    def n_teachers(self) -> int:
        """The number of teachers, T."""
        return len(next(iter(self.state.values())))

    @property
    def device(self) -> torch.device:
        """The device that holds the parameters."""
        return next(iter(self.state.values())).device

    def to(self, device: str | torch.device) -> "Ensemble":
        """Return the ensemble on another device."""
        chosen = chosen_device(device)
        return replace(self, state={name: value.to(chosen) for name, value in self.state.items()})

    def member(self, teacher: int) -> nn.Sequential:
        """Return one teacher as an ordinary torch model on the CPU, in evaluation mode."""
        model = single(self.net, image=self.image, n_classes=self.n_classes)
        own = {name: value[teacher].cpu().clone() for name, value in self.state.items()}
        model.load_state_dict({**model.state_dict(), **own})
        return model.eval()

    def logits(
        self, X: NDArray[Any], *, chunk: int = 1024, compute: Compute | None = None
    ) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield (start, logits (T, B, classes)) chunk by chunk; the logits of silent teachers mean nothing."""
        if chunk < 1:
            raise InputError(f"chunk is {chunk}: it must be at least 1")
        images = as_images(X, self.net)
        if tuple(images.shape[1:]) != self.image:
            raise InputError(f"images have the shape {images.shape[1:]}; the teachers were trained on {self.image}")
        settings = compute or Compute()
        pairs = _AT_ONCE.get(self.device.type, 1 << 24) // self.net.activations(self.image, self.n_classes)
        models = self._parts(max(1, pairs // min(chunk, max(1, len(images)))))  # pairs of a teacher and an image
        for start in range(0, len(images), chunk):
            block = np.array(images[start : start + chunk])
            if block.dtype != np.uint8 and not np.isfinite(block).all():
                raise InputError(f"points {start} to {start + len(block) - 1}: features hold NaN or infinity")
            points = as_floats(torch.from_numpy(block).to(self.device))
            with numerics(settings), torch.inference_mode():
                with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=settings.amp):
                    parts = [model(points) for model in models]
                found = torch.cat(parts).float()
            yield start, found

    def vote(
        self, X: NDArray[Any], *, chunk: int = 1024, compute: Compute | None = None
    ) -> Iterator[tuple[int, NDArray[np.integer[Any]]]]:
        """Yield (start, votes (T, B)) chunk by chunk, as uint8, or as int16 for more than 256 classes."""
        for start, logits in self.logits(X, chunk=chunk, compute=compute):
            found = logits.argmax(dim=2).to(torch.int16).cpu().numpy()
            votes: NDArray[np.integer[Any]] = found.astype(self._vote_type())
            votes[list(self.silent)] = self.fixed_class
            yield start, votes

    def write_votes(
        self,
        path: str | Path,
        X: NDArray[Any],
        *,
        chunk: int = 1024,
        groups: Sequence[str] | None = None,
        weights: Sequence[float] | None = None,
        labels: NDArray[Any] | None = None,
        compute: Compute | None = None,
    ) -> Path:
        """Write the votes on these points as an npz file, and return its path.

        Groups and weights (one per teacher) and labels (the truth, for scoring only) are copied into the
        file. It appears when it is complete: votes are first appended to `PATH.part`, and what an interrupted
        call left there is continued, unless it was written for other teachers or other points.
        """
        target, n_teachers, n_queries = Path(path), self.n_teachers, len(X)
        extra = _extras(n_teachers, n_queries, groups, weights, labels)
        part, note, fresh = (target.with_name(target.name + end) for end in (".part", ".part.json", ".new"))
        points = hashlib.sha256(np.ascontiguousarray(X).data).hexdigest()
        about = json.dumps([self.identity() + points, n_teachers, n_queries, self.n_classes])
        if not (part.is_file() and note.is_file() and note.read_text() == about):
            part.unlink(missing_ok=True)
            note.write_text(about)
        kind = self._vote_type()
        width = n_teachers * kind.itemsize
        with part.open("ab") as file:
            done = file.tell() // width
            file.truncate(done * width)  # a query that was written incompletely
            for _, votes in self.vote(X[done:], chunk=chunk, compute=compute) if done < n_queries else ():
                file.write(np.ascontiguousarray(votes.T, dtype=kind).data)
        shape, empty = (n_teachers, n_queries), part.stat().st_size == 0  # an empty file cannot be mapped
        written = np.empty(shape, kind) if empty else np.memmap(part, kind, mode="r", shape=shape, order="F")
        with fresh.open("wb") as file:
            np.savez(file, votes=written, classes=self.n_classes, **extra)
        os.replace(fresh, target)
        part.unlink()
        note.unlink()
        return target

    def identity(self) -> str:
        """Return a digest of everything that determines the teachers' votes."""
        digest = hashlib.sha256(repr((self.net, self.image, self.n_classes, self.silent, self.fixed_class)).encode())
        for name, value in self.state.items():
            digest.update(name.encode())
            digest.update(value.cpu().contiguous().numpy().data)
        return digest.hexdigest()

    def save(self, path: str | Path | IO[bytes]) -> None:
        """Write all parameters as an npz file without pickle; the net must be a built-in one."""
        if NETS.get(self.net.name) != self.net:
            raise InputError(f"the net {self.net.name!r} is not built in: save its `state` yourself")
        about = {"net": self.net.name, "image": self.image, "n_classes": self.n_classes}
        about |= {"silent": self.silent, "fixed_class": self.fixed_class}
        arrays: dict[str, Any] = {f"state/{name}": value.cpu().numpy() for name, value in self.state.items()}
        np.savez(path, about=np.array(json.dumps(about)), **arrays)

    @classmethod
    def load(cls, path: str | Path | IO[bytes], *, device: str | torch.device = "auto") -> "Ensemble":
        """Read an ensemble that `save` wrote."""
        chosen = chosen_device(device)
        with np.load(path, allow_pickle=False) as file:
            about = json.loads(str(file["about"]))
            names = [name for name in file.files if name.startswith("state/")]
            state = {name.removeprefix("state/"): torch.from_numpy(file[name]).to(chosen) for name in names}
        return cls(
            net=NETS[about["net"]],
            image=tuple(about["image"]),
            n_classes=about["n_classes"],
            state=state,
            silent=tuple(about["silent"]),
            fixed_class=about["fixed_class"],
        )

    def _vote_type(self) -> np.dtype[Any]:
        return np.dtype(np.uint8 if self.n_classes <= 256 else np.int16)

    def _parts(self, teachers: int) -> list[BatchedNet]:
        """Return models of so many teachers each, which use the ensemble's own parameters without a copy."""
        made = []
        for start in range(0, self.n_teachers, teachers):
            own = {name: value[start : start + teachers] for name, value in self.state.items()}
            count = min(teachers, self.n_teachers - start)
            with torch.device("meta"):
                model = BatchedNet(self.net, count, image=self.image, n_classes=self.n_classes)
            model.load_state_dict(own, assign=True)
            made.append(model.eval())
        return made


@dataclass(frozen=True, kw_only=True)
class Student:
    """A trained student: an ensemble of one model."""

    ensemble: Ensemble

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        return self.ensemble.n_classes

    def predict_proba(self, X: NDArray[Any], *, chunk: int = 1024) -> NDArray[np.float32]:
        """Return the probabilities of all classes, (N, classes)."""
        found = [logits[0].softmax(dim=1).cpu().numpy() for _, logits in self.ensemble.logits(X, chunk=chunk)]
        return np.concatenate([np.empty((0, self.n_classes), np.float32), *found])

    def predict(self, X: NDArray[Any], *, chunk: int = 1024) -> NDArray[np.int64]:
        """Return the most probable class of every point."""
        return np.asarray(self.predict_proba(X, chunk=chunk).argmax(axis=1), dtype=np.int64)

    def model(self) -> nn.Sequential:
        """Return the student as an ordinary torch model on the CPU."""
        return self.ensemble.member(0)

    def save(self, path: str | Path | IO[bytes]) -> None:
        """Write the student as an npz file without pickle."""
        self.ensemble.save(path)

    @classmethod
    def load(cls, path: str | Path | IO[bytes], *, device: str | torch.device = "auto") -> "Student":
        """Read a student that `save` wrote."""
        ensemble = Ensemble.load(path, device=device)
        if ensemble.n_teachers != 1:
            raise InputError(f"{path} holds {ensemble.n_teachers} models: a student is a single model")
        return cls(ensemble=ensemble)


def _extras(
    n_teachers: int,
    n_queries: int,
    groups: Sequence[str] | None,
    weights: Sequence[float] | None,
    labels: NDArray[Any] | None,
) -> dict[str, Any]:
    """Return the small arrays of a votes file, after checking their shapes."""
    ids = None if groups is None else [str(group) for group in groups]
    given = {"groups": (ids, None), "weights": (weights, np.float64), "labels": (labels, None)}
    arrays = {name: np.asarray(values, kind) for name, (values, kind) in given.items() if values is not None}
    for name, array in arrays.items():
        wanted = n_queries if name == "labels" else n_teachers
        if array.shape != (wanted,):
            raise InputError(f"{name} have the shape {array.shape}: the shape must be ({wanted},)")
        if array.dtype.hasobject:
            raise InputError(f"{name} hold Python objects: give numbers or text")
    return arrays
