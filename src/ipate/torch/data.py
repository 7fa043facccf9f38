"""The rows of teachers: who learns from which, images in one form, and chunks of teachers trained together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ipate.errors import InputError, TeacherFailure
from ipate.torch.nets import Net

Ints: TypeAlias = NDArray[np.integer[Any]]
_ORDER = 4  # the purpose of this random stream; 1 to 3 are those of `ipate.torch.batched`


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
        """The number of teachers, T."""
        return len(self.offsets) - 1

    @property
    def slots(self) -> Ints:
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


@dataclass(frozen=True, kw_only=True)
class Data:
    """Images (N, C, H, W) as uint8 or float32, their labels, and weights if there are any."""

    images: NDArray[Any]
    labels: NDArray[Any]
    weights: NDArray[np.float32] | None = None


def as_images(X: NDArray[Any], net: Net) -> NDArray[Any]:
    """Return images as (N, C, H, W): uint8 stays (and is read as 0 to 1), all else becomes float32.

    X is (N, C, H, W), (N, H, W) or (N, features); flat rows are the net's own images, or square ones of one channel.
    """
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
    raise InputError(f"X has the shape {X.shape}: give images as (N, C, H, W) with at most 4 channels")


def as_floats(images: Tensor) -> Tensor:
    """Return images as float32; bytes are scaled to 0 to 1."""
    return images.to(torch.float32).div_(255) if images.dtype == torch.uint8 else images


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """The rows of the teachers that are trained together, copied teacher by teacher, and one blank row at the end."""

    teachers: tuple[int, ...]  # their numbers in the ensemble, which choose their random streams
    images: NDArray[Any]  # images, labels and weights have the length n₁ + … + n_T + 1
    labels: NDArray[np.int64]
    weights: NDArray[np.float32] | None
    order: NDArray[np.int32]  # (T, steps·B): the rows that each teacher sees, one after another
    idle: tuple[int, ...]  # teachers without data: they see only the blank row
    failures: tuple[TeacherFailure, ...]  # teachers whose data cannot be used: they see only the blank row


def take_chunk(
    data: Data, teachers: Sequence[int], rows: Sequence[NDArray[np.int64]], *, n_classes: int, length: int, seed: int
) -> Chunk:
    """Copy the rows of some teachers and lay out the order in which each of them sees its own."""
    images: list[NDArray[Any]] = []
    labels: list[NDArray[np.int64]] = []
    sizes = [own.size for own in rows]
    order = np.full((len(teachers), length), sum(sizes), dtype=np.int32)  # the blank row
    start, idle, failures = 0, [], []
    for position, (teacher, own) in enumerate(zip(teachers, rows, strict=True)):
        pixels, classes = data.images[own], data.labels[own]
        reason = _unusable(pixels, classes, n_classes)
        if reason is not None:
            pixels, classes = np.zeros_like(pixels), np.zeros_like(classes)
            failures.append(TeacherFailure(teacher=teacher, points=tuple(own.tolist()), reason=reason))
        elif own.size:
            order[position] = start + visits(own.size, seed=seed, teacher=teacher, length=length)
        else:
            idle.append(teacher)
        images.append(pixels)
        labels.append(classes.astype(np.int64))
        start += own.size
    blank = np.zeros((1, *data.images.shape[1:]), dtype=data.images.dtype)
    weights = data.weights
    if weights is not None:
        weights = np.concatenate([*(weights[own] for own in rows), np.ones(1, np.float32)])
    return Chunk(
        teachers=tuple(teachers),
        images=np.concatenate([*images, blank]),
        labels=np.concatenate([*labels, np.zeros(1, np.int64)]),
        weights=weights,
        order=order,
        idle=tuple(idle),
        failures=tuple(failures),
    )


def _unusable(pixels: NDArray[Any], labels: NDArray[Any], n_classes: int) -> str | None:
    """Return why a teacher's data cannot be used, or None if it can."""
    if pixels.dtype != np.uint8 and not np.isfinite(pixels).all():
        return "its features hold NaN or infinity"
    if labels.size and (labels.min() < 0 or labels.max() >= n_classes):
        return f"its labels go from {labels.min()} to {labels.max()}; classes go from 0 to {n_classes - 1}"
    return None


def visits(size: int, *, seed: int, teacher: int, length: int) -> NDArray[np.int64]:
    """Return the order in which a teacher sees its `size` points: shuffled rounds, cut off after `length`."""
    rounds = -(-length // size)
    generator = np.random.default_rng([seed, teacher, _ORDER])
    orders = generator.permuted(np.tile(np.arange(size), (rounds, 1)), axis=1)
    return np.asarray(orders.ravel()[:length], dtype=np.int64)
