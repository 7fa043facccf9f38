"""Trained teachers: their votes, chunk by chunk, and themselves, as arrays or as ordinary models."""

import hashlib
import json
import os
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ipate.errors import InputError, TeacherFailure
from ipate.torch.batched import BatchedNet
from ipate.torch.chunks import as_floats, as_images
from ipate.torch.compute import Compute, chosen_device, numerics
from ipate.torch.loop import State
from ipate.torch.nets import NETS, Net, Shape, single

_AT_ONCE = {"cuda": 1 << 29, "cpu": 1 << 23}  # numbers of a forward pass held at a time


@dataclass(frozen=True, kw_only=True)
class Ensemble:
    """T trained teachers.

    Attributes
    ----------
    net : Net
        Their architecture.
    image : (channels, height, width)
    n_classes : int
        Every teacher votes in the full set of classes, whichever it has seen.
    state : dict of tensors (T, …)
        All parameters, named as in one model.
    silent : tuple of int
        Teachers without data, or that failed: they vote `fixed_class`, a public choice.
    failures : tuple of TeacherFailure
    """

    net: Net
    image: Shape
    n_classes: int
    state: State
    silent: tuple[int, ...] = ()
    fixed_class: int = 0
    failures: tuple[TeacherFailure, ...] = ()

    @property
    def n_teachers(self) -> int:
        """T."""
        return len(next(iter(self.state.values())))

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
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
        """Yield (start, logits (T, B, classes)) for a chunk of points at a time; silent teachers say nothing useful."""
        if chunk < 1:
            raise InputError(f"chunk is {chunk}: it must be at least 1")
        images = as_images(X, self.net)
        if tuple(images.shape[1:]) != self.image:
            raise InputError(f"images have the shape {images.shape[1:]}; the teachers learnt from {self.image}")
        settings = compute or Compute()
        size = min(chunk, max(1, len(images)))
        models = self._parts(max(1, self._at_once() // size), settings)
        for start in range(0, len(images), chunk):
            block = np.array(images[start : start + chunk])
            if block.dtype != np.uint8 and not np.isfinite(block).all():
                raise InputError(f"points {start} to {start + len(block) - 1}: features hold NaN or infinity")
            shown = as_floats(torch.from_numpy(block).to(self.device))
            with numerics(settings), torch.inference_mode():
                with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=settings.amp):
                    said = [model(shown) for model in models]
                found = torch.cat(said).float()
            yield start, found

    def vote(
        self, X: NDArray[Any], *, chunk: int = 1024, compute: Compute | None = None
    ) -> Iterator[tuple[int, NDArray[np.integer[Any]]]]:
        """Yield (start, votes (T, B)) for a chunk of points at a time, as uint8, or int16 beyond 256 classes."""
        kind = np.uint8 if self.n_classes <= 256 else np.int16
        for start, logits in self.logits(X, chunk=chunk, compute=compute):
            found = logits.argmax(dim=2).to(torch.int16).cpu().numpy()
            votes: NDArray[np.integer[Any]] = found.astype(kind)
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
        """Write a votes file for these points; see `ipate.torch.ensemble.write_votes`."""

        def votes_from(start: int) -> Iterator[NDArray[np.integer[Any]]]:
            return (votes for _, votes in self.vote(X[start:], chunk=chunk, compute=compute))

        return write_votes(
            path, votes_from, n_teachers=self.n_teachers, n_queries=len(X), n_classes=self.n_classes,
            groups=groups, weights=weights, labels=labels, identity=self.identity() + _digest(X),
        )  # fmt: skip

    def identity(self) -> str:
        """Return a digest of everything that decides how the teachers vote."""
        digest = hashlib.sha256(repr((self.net, self.image, self.n_classes, self.silent, self.fixed_class)).encode())
        for name, value in self.state.items():
            digest.update(name.encode())
            digest.update(value.cpu().contiguous().numpy().data)
        return digest.hexdigest()

    def save(self, path: str | Path) -> None:
        """Write all parameters as an npz without pickle; for the built-in nets."""
        if NETS.get(self.net.name) != self.net:
            raise InputError(f"the net {self.net.name!r} is not built in: save its `state` yourself")
        about = {"net": self.net.name, "image": self.image, "n_classes": self.n_classes}
        about |= {"silent": self.silent, "fixed_class": self.fixed_class}
        arrays: dict[str, Any] = {f"state/{name}": value.cpu().numpy() for name, value in self.state.items()}
        np.savez(path, about=np.array(json.dumps(about)), **arrays)

    @classmethod
    def load(cls, path: str | Path, *, device: str | torch.device = "auto") -> "Ensemble":
        """Read what `save` wrote."""
        chosen = chosen_device(device)
        with np.load(path, allow_pickle=False) as file:
            about = json.loads(str(file["about"]))
            names = [name for name in file.files if name.startswith("state/")]
            state = {name.removeprefix("state/"): torch.from_numpy(file[name]).to(chosen) for name in names}
        return cls(
            net=NETS[about["net"]], image=tuple(about["image"]), n_classes=about["n_classes"], state=state,
            silent=tuple(about["silent"]), fixed_class=about["fixed_class"],
        )  # fmt: skip

    def _at_once(self) -> int:
        """Return how many (teacher, image) pairs go through the net together."""
        numbers = _AT_ONCE.get(self.device.type, 1 << 24)
        return max(1, numbers // self.net.activations(self.image, self.n_classes))

    def _parts(self, teachers: int, compute: Compute) -> list[BatchedNet]:
        """Return models of some teachers each, looking at the ensemble's own parameters."""
        made = []
        for start in range(0, self.n_teachers, teachers):
            own = {name: value[start : start + teachers] for name, value in self.state.items()}
            count = len(next(iter(own.values())))
            with torch.device("meta"):
                model = BatchedNet(self.net, count, image=self.image, n_classes=self.n_classes, conv="grouped")
            model.load_state_dict(own, assign=True)
            made.append(model.eval())
        return made


def _digest(X: NDArray[Any]) -> str:
    digest = hashlib.sha256()
    for start in range(0, len(X), 1024):
        digest.update(np.ascontiguousarray(X[start : start + 1024]).data)
    return digest.hexdigest()


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
