"""A semi-supervised student: FixMatch from self-supervised weights, with first targets from label spreading or ballots.

Sohn et al., "FixMatch: simplifying semi-supervised learning with consistency and confidence", NeurIPS 2020: a point's
prediction in a weak view, where it is sure, is the target of a stronger view. What differs: training starts from the
weights of `ipate.torch.contrastive`, and in its first part the targets are given ones. All of it is post-processing of
released labels.
"""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from torch.optim.swa_utils import get_ema_multi_avg_fn

from ipate.errors import InputError
from ipate.torch.contrastive import (
    NET,
    Encoder,
    Report,
    Trainer,
    checked_images,
    settle,
    started,
    train_encoder,
    usual_compute,
    usual_steps,
)
from ipate.torch.ensemble import Ensemble, Student
from ipate.torch.loop import Compute, as_floats, chosen_device, numerics, visits
from ipate.torch.nets import Augmentation
from ipate.torch.views import Views

WEAK = Views(affine=Augmentation(degrees=5, shift=0.07))
MILD = Views(affine=Augmentation(degrees=15, shift=0.15, scale=0.12, shear=0.15), hole=7 / 28)
WEAK_COLOUR = Views(affine=Augmentation(degrees=4, shift=0.05), edges=True)
MILD_COLOUR = Views(
    affine=Augmentation(degrees=10, shift=0.08, scale=0.12, shear=0.12), hole=0.25, colour=0.4, edges=True
)
_LABELLED, _POOL, _WEAK, _STRONG = 11, 12, 13, 14  # random streams


def train_fixmatch(
    X: NDArray[Any],
    labels: NDArray[Any],
    *,
    n_classes: int,
    sample_weight: NDArray[Any] | None = None,
    first_targets: NDArray[Any] | None = None,
    encoder: Encoder | None = None,
    steps: int | None = None,
    batch_size: tuple[int, int] = (64, 448),
    threshold: float = 0.95,
    first_share: float = 0.3,
    average: float = 0.999,
    seed: int = 0,
    device: str | torch.device = "auto",
    compute: Compute | None = None,
    progress: Report | None = None,
) -> Student:
    """Train a student on the whole pool, of which some points have labels.

    Parameters
    ----------
    X : array of shape (N, H, W), (N, H, W, C), (N, C, H, W) or flat rows
        The pool.
    labels : integer array of shape (N,)
        Class ids, −1 without a label.
    n_classes : int
        The number of classes.
    sample_weight : array of shape (N,), optional
        How much each label counts; only ratios matter.
    first_targets : array of shape (N,) or (N, n_classes), optional
        Class ids (−1: none) or distributions (zeros: none) that the points are taught in the first part of training,
        such as labels that were spread over the pool.
    encoder : Encoder, optional
        Where training starts; default: `train_encoder` on this pool with this seed. Images with several channels
        start from new weights instead.
    steps : int, optional
        The length of training. Default: 70 passes over the pool and at least 1,800 steps; but at most 100 passes, and
        at least 300 steps.
    batch_size : (int, int)
        Labelled points, and points of the whole pool, per step.
    threshold : float
        The probability from which the student's own prediction is a target.
    first_share : float
        The part of the steps that uses the first targets.
    average : float
        The decay of the average of the weights, which is the result.
    seed, device, compute, progress
        As in `train_encoder`; `progress` counts the steps of FixMatch alone.
    """
    chosen, targets = chosen_device(device), np.asarray(labels)
    weights = _checked(X, targets, n_classes, sample_weight)
    net, shape = (NET, None) if encoder is None else (encoder.net, encoder.image)
    images = checked_images(X, net, image=shape)
    image = (images.shape[1], images.shape[2], images.shape[3])
    colour = image[0] > 1
    if encoder is None and not colour:
        encoder = train_encoder(X, seed=seed, device=chosen, compute=compute)
    few, many = min(batch_size[0], max(8, 2 * len(weights))), min(batch_size[1], len(images))
    if few < 1 or many < 1:
        raise InputError(f"batch_size is {batch_size}: give two numbers, each at least 1")
    passes = math.ceil(70 * len(images) / many)
    length = usual_steps(max(1800, passes), len(images), many, rounds=100) if steps is None else steps
    model = started(net, image, n_classes=n_classes, seed=seed, device=chosen)
    if encoder is not None:
        model.load_state_dict({name: value.to(chosen) for name, value in encoder.state.items()}, strict=False)
    settings = compute or usual_compute(chosen)
    step = Trainer(model, device=chosen, compute=settings, steps=length, progress=progress)
    given = np.full(len(images), -1) if first_targets is None else first_targets
    first = torch.from_numpy(_distributions(given, len(images), n_classes)).to(chosen)
    pool = torch.from_numpy(np.ascontiguousarray(images)).to(chosen)
    classes = torch.from_numpy(np.maximum(targets, 0).astype(np.int64)).to(chosen)
    counted = torch.zeros(len(images), device=chosen)
    labelled = np.flatnonzero(targets >= 0)
    counted[torch.from_numpy(labelled).to(chosen)] = torch.from_numpy(weights).to(chosen)
    of_labels = _rows(labelled, few, length, seed, _LABELLED).to(chosen)
    of_pool = _rows(np.arange(len(images)), many, length, seed, _POOL).to(chosen)
    given_to: dict[str, Any] = {"seed": seed, "steps": length, "image": image, "device": chosen}
    weak = (WEAK_COLOUR if colour else WEAK).draw(stream=_WEAK, batch_size=many, **given_to)
    strong = (MILD_COLOUR if colour else MILD).draw(stream=_STRONG, batch_size=few + many, **given_to)
    kept = _Average(model.state_dict(), average)
    with numerics(settings):
        for number, (own, rows, plain, moved) in enumerate(zip(of_labels, of_pool, weak, strong, strict=True)):
            seen = as_floats(pool.index_select(0, torch.cat([own, rows])))
            with torch.no_grad():
                sure, guess = step.forward(plain.of(seen[few:])).softmax(dim=1).max(dim=1)
            wanted = functional.one_hot(guess, n_classes) * (sure >= threshold)[:, None]
            if number < first_share * length:
                told = first.index_select(0, rows)
                wanted = torch.where(told.sum(dim=1, keepdim=True) > 0, told, wanted)
            log = functional.log_softmax(step.forward(moved.of(seen)), dim=1)
            right = functional.nll_loss(log[:few], classes.index_select(0, own), reduction="none")
            loss = (right * counted.index_select(0, own)).mean() - (wanted * log[few:]).sum(dim=1).mean()
            step.take(loss)
            kept.add(model.state_dict())
        model.load_state_dict(kept.state)
        settle(model, pool)
    state = {name: value.detach() for name, value in model.state_dict().items()}
    if not all(value.isfinite().all() for value in state.values()):
        raise InputError("the training of the student diverged: check the scale of the images (0 to 1, or 8-bit)")
    return Student(ensemble=Ensemble(net=net, image=image, n_classes=n_classes, state=state))


class _Average:
    """The running average of a state; its decay rises to the stated one, so that the start is forgotten."""

    def __init__(self, state: dict[str, Tensor], decay: float) -> None:
        self.state = {name: value.detach().clone() for name, value in state.items()}
        self.decay, self.steps = decay, 0

    def add(self, state: dict[str, Tensor]) -> None:
        self.steps += 1
        decay = min(self.decay, self.steps / (self.steps + 9))
        update = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
        with torch.no_grad():
            update(list(self.state.values()), [value.detach() for value in state.values()], self.steps)


def _rows(known: NDArray[Any], size: int, steps: int, seed: int, stream: int) -> Tensor:
    """Return every step's rows (steps, size): shuffled passes over the given ones."""
    order = known[visits(len(known), seed=seed, teacher=stream, length=size * steps)]
    return torch.from_numpy(order.reshape(steps, size))


def _checked(X: Any, labels: NDArray[Any], n_classes: int, sample_weight: Any) -> NDArray[np.float32]:
    """Return the weights of the labelled points, with a mean of 1."""
    if labels.shape != (len(X),) or labels.dtype.kind not in "iu":
        raise InputError(f"labels are {labels.dtype} {labels.shape}: give one class id per point, −1 without a label")
    if n_classes < 2 or (labels.size and not -1 <= labels.min() <= labels.max() < n_classes):
        raise InputError(f"labels go from {labels.min()} to {labels.max()}; class ids go from 0 to {n_classes - 1}")
    known = labels >= 0
    if not known.any():
        raise InputError("no point has a label, so there is nothing to teach the student")
    weights = np.ones(len(labels)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    if weights.shape != labels.shape:
        raise InputError(f"sample_weight has the shape {weights.shape}: there are {len(labels)} points")
    own = weights[known]
    if not np.isfinite(own).all() or own.min() < 0 or own.sum() <= 0:
        raise InputError("sample_weight of labelled points must be finite, 0 or above, and not only zeros")
    return np.asarray(own / own.mean(), dtype=np.float32)


def _distributions(targets: Any, n: int, n_classes: int) -> NDArray[np.float32]:
    """Return first targets as distributions, (n, classes), with zeros where there is none."""
    given = np.asarray(targets)
    if given.shape == (n, n_classes) and np.isfinite(given).all() and given.min() >= 0:
        return given.astype(np.float32)
    if given.shape != (n,) or given.dtype.kind not in "iu" or given.min() < -1 or given.max() >= n_classes:
        raise InputError(
            f"first_targets are {given.dtype} {given.shape}: give a class id (−1: none) or {n_classes} probabilities "
            f"for each of {n} points"
        )
    found = np.zeros((n, n_classes), dtype=np.float32)
    found[np.flatnonzero(given >= 0), given[given >= 0]] = 1
    return found
