"""The student: one model, trained on the labels that were released."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ipate.errors import InputError
from ipate.torch.compute import Compute, chosen_device
from ipate.torch.ensemble import Ensemble
from ipate.torch.nets import Members
from ipate.torch.presets import Preset, find_preset
from ipate.torch.training import Report, checked, train_on


@dataclass(frozen=True, kw_only=True)
class Student:
    """A trained student: an ensemble of one."""

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

    def save(self, path: str | Path) -> None:
        """Write the student as an npz, without pickle."""
        self.ensemble.save(path)

    @classmethod
    def load(cls, path: str | Path, *, device: str | torch.device = "auto") -> "Student":
        """Read what `save` wrote."""
        ensemble = Ensemble.load(path, device=device)
        if ensemble.n_teachers != 1:
            raise InputError(f"{path} holds {ensemble.n_teachers} models: a student is one")
        return cls(ensemble=ensemble)


def train_student(
    X: NDArray[Any],
    y: NDArray[Any],
    *,
    n_classes: int,
    preset: str | Preset = "small",
    epochs: float | None = None,
    steps: int | None = None,
    sample_weight: NDArray[Any] | None = None,
    seed: int = 0,
    device: str | torch.device = "auto",
    compute: Compute | None = None,
    progress: Report | None = None,
) -> Student:
    """Train a student on labelled public points, and perhaps on people who need no protection.

    Parameters
    ----------
    X, y : arrays
        As in `train_ensemble`.
    sample_weight : array of shape (N,), optional
        How much each point counts; only ratios matter.
    epochs, steps, seed, device, compute, progress
        As in `train_ensemble`.
    """
    chosen = find_preset(preset).lasting(epochs=epochs, steps=steps)
    data = checked(X, y, chosen, n_classes=n_classes, fixed_class=0, seed=seed)
    if not len(data.labels):
        raise InputError("there are no labels to train a student on")
    if sample_weight is not None:
        data = replace(data, weights=_relative(sample_weight, len(data.labels)))
    everything = Members(offsets=np.array([0, len(data.labels)]), indices=np.arange(len(data.labels)))
    ensemble = train_on(
        data, everything, preset=chosen, n_classes=n_classes, seed=seed, device=chosen_device(device),
        teachers_per_batch=1, n_jobs=1, fixed_class=0, on_failure="fixed", compute=compute or Compute(),
        progress=progress,
    )  # fmt: skip
    if ensemble.failures:
        raise InputError(f"the student could not be trained: {ensemble.failures[0].reason}")
    return Student(ensemble=ensemble)


def _relative(weights: NDArray[Any], size: int) -> NDArray[np.float32]:
    """Return weights with a mean of 1."""
    given = np.asarray(weights, dtype=np.float64)
    if given.shape != (size,) or not np.isfinite(given).all() or given.min() < 0 or given.sum() <= 0:
        raise InputError("sample_weight must hold one finite number per point, 0 or above, and not only zeros")
    return np.asarray(given / given.mean(), dtype=np.float32)
