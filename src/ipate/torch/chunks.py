"""The data of the teachers that are trained together: their own rows and nobody else's."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ipate.errors import InputError, TeacherFailure
from ipate.torch.nets import Net, visits


@dataclass(frozen=True, kw_only=True)
class Data:
    """Images (N, C, H, W) as uint8 or float32, their labels and perhaps weights."""

    images: NDArray[Any]
    labels: NDArray[Any]
    weights: NDArray[np.float32] | None = None


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Rows copied teacher by teacher; the last one is blank, for teachers that have no data to learn from.

    Attributes
    ----------
    teachers : tuple of int
        Who they are in the ensemble: their random streams go by this number.
    images, labels, weights : arrays
        Of length n₁ + … + n_T + 1.
    order : int32 array of shape (T, steps·B)
        Which row a teacher meets when.
    idle : tuple of int
        The teachers without data.
    failures : tuple of TeacherFailure
        The teachers whose data cannot be used; they see only the blank row.
    """

    teachers: tuple[int, ...]
    images: NDArray[Any]
    labels: NDArray[np.int64]
    weights: NDArray[np.float32] | None
    order: NDArray[np.int32]
    idle: tuple[int, ...]
    failures: tuple[TeacherFailure, ...]


def as_images(X: NDArray[Any], net: Net, *, name: str = "X") -> NDArray[Any]:
    """Bring images to (N, C, H, W): uint8 stays (and is read as 0 to 1), all else becomes float32.

    Parameters
    ----------
    X : array of shape (N, C, H, W), (N, H, W) or (N, features)
        Flat rows are the net's own images, or square ones of one channel.
    """
    X = np.asarray(X) if not isinstance(X, np.memmap) else X
    if X.dtype.kind not in "buif":
        raise InputError(f"{name} is of type {X.dtype}: images are numbers")
    if X.dtype != np.uint8:
        X = X.astype(np.float32, copy=False)
    if X.ndim == 2:
        features, side = X.shape[1], round(X.shape[1] ** 0.5)
        square = (1, side, side) if side * side == features else None
        shape = net.image if int(np.prod(net.image)) == features else square
        if shape is None:
            raise InputError(f"{name} has {features} features per row: not an image; give (N, C, H, W)")
        return X.reshape(len(X), *shape)
    if X.ndim == 3:
        return X[:, None]
    if X.ndim == 4 and X.shape[1] <= 4:
        return X
    raise InputError(f"{name} has the shape {X.shape}: give images as (N, C, H, W) with at most 4 channels")


def take_chunk(
    data: Data, teachers: Sequence[int], rows: Sequence[NDArray[np.int64]], *, n_classes: int, length: int, seed: int
) -> Chunk:
    """Copy the rows of some teachers and lay out in which order each of them meets its own."""
    images: list[NDArray[Any]] = []
    order = np.empty((len(teachers), length), dtype=np.int32)
    blank = sum(len(own) for own in rows)
    start, idle, failures = 0, [], []
    for position, (teacher, own) in enumerate(zip(teachers, rows, strict=True)):
        pixels = data.images[own]
        reason = _unusable(pixels, data.labels[own], n_classes)
        images.append(np.zeros_like(pixels) if reason else pixels)
        if reason:
            failures.append(TeacherFailure(teacher=teacher, points=tuple(own.tolist()), reason=reason))
        elif not own.size:
            idle.append(teacher)
        if reason or not own.size:
            order[position] = blank
        else:
            order[position] = start + visits(own.size, seed=seed, teacher=teacher, length=length)
        start += own.size
    images.append(np.zeros((1, *data.images.shape[1:]), dtype=data.images.dtype))
    every = np.concatenate([*rows, np.empty(0, np.int64)])
    labels = np.append(data.labels[every].astype(np.int64), 0)
    failed = {failure.teacher for failure in failures}
    labels[:-1][np.repeat([teacher in failed for teacher in teachers], [len(own) for own in rows])] = 0
    return Chunk(
        teachers=tuple(teachers),
        images=np.concatenate(images),
        labels=labels,
        weights=None if data.weights is None else np.append(data.weights[every], np.float32(1)),
        order=order,
        idle=tuple(idle),
        failures=tuple(failures),
    )


def _unusable(pixels: NDArray[Any], labels: NDArray[Any], n_classes: int) -> str | None:
    """Say what is wrong with a teacher's data, if anything is."""
    if pixels.dtype != np.uint8 and not np.isfinite(pixels).all():
        return "its features hold NaN or infinity"
    if labels.size and (labels.min() < 0 or labels.max() >= n_classes):
        return f"its labels go from {labels.min()} to {labels.max()}; classes go from 0 to {n_classes - 1}"
    return None


def as_floats(images: Tensor) -> Tensor:
    """Return images as float32: bytes become 0 to 1."""
    return images.to(torch.float32).div_(255) if images.dtype == torch.uint8 else images
