"""Self-supervised features of images, learnt from the pool alone: SimCLR without labels.

Two random views of an image should have similar projections, and those of different images should not (Chen, Kornblith,
Norouzi and Hinton, "A simple framework for contrastive learning of visual representations", ICML 2020). The features
are what the net computes before the projection. Nothing private enters, so they are public.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from ipate.errors import InputError
from ipate.torch.batched import BatchedNet, BatchedNorm
from ipate.torch.ensemble import as_images
from ipate.torch.loop import Compute, State, as_floats, chosen_device, numerics, visits
from ipate.torch.nets import NETS, Augmentation, Conv, Dense, Net, Norm, Optimiser, Pool, Relu, Shape
from ipate.torch.views import Views

Report: TypeAlias = Callable[[int, int], None]
NET = NETS["average"]
FEWEST = 8  # points of a pool
STRONG = Views(affine=Augmentation(degrees=25, shift=0.2, scale=0.2, shear=0.3), hole=9 / 28, brightness=0.4)
STRONG_COLOUR = Views(
    affine=Augmentation(degrees=12, shift=0.1, scale=0.15, shear=0.15), hole=0.3, colour=0.4, edges=True
)
OPTIMISER = Optimiser(rate=2e-3, decay=0.01, schedule="cycle")
_PROJECTION = (Dense(units=192, bias=False), Norm(), Relu(), Dense(units=128))
_NORM = ("weight", "bias", "running_mean", "running_var")
_SETTLED = 1024  # images at a time
_ORDER, _VIEWS = 1, (1, 2)  # random streams


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """A net that was trained without labels; it maps images to features."""

    net: Net
    image: Shape  # (channels, height, width)
    state: State  # the parameters of all layers but the last, (1, …) on the CPU

    def features(self, X: NDArray[Any], *, chunk: int = 1024, device: str | torch.device = "auto") -> NDArray[Any]:
        """Return the features of images, float32 (N, width)."""
        images, chosen = checked_images(X, self.net, image=self.image), chosen_device(device)
        model = body(self.net, self.image, self.state, chosen)
        found = [np.empty((0, self.net.shapes(self.image, 2)[-2][0]), np.float32)]
        with numerics(Compute(tf32=False, autotune=False)), torch.inference_mode():
            for start in range(0, len(images), chunk):
                block = torch.from_numpy(np.array(images[start : start + chunk])).to(chosen)
                found.append(model(as_floats(block))[0].cpu().numpy())
        return np.concatenate(found)

    def convolutions(self) -> tuple[dict[str, NDArray[Any]], list[bool]]:
        """Return every convolution's weight with its norm's parameters, and which of them a pooling follows."""
        found: dict[str, NDArray[Any]] = {}
        pools: list[bool] = []
        for place, layer in enumerate(self.net.layers[:-1]):
            if isinstance(layer, Conv):
                pools.append(False)
                found[f"{len(pools) - 1}.weight"] = self.state[f"{place}.weight"][0].numpy()
            elif isinstance(layer, Norm):
                own = {name: self.state[f"{place}.{name}"][0].double().numpy() for name in _NORM}
                deviation = np.sqrt(own["running_var"] + layer.eps)
                named = (own["weight"], own["bias"], own["running_mean"], deviation)
                names = ("scale", "shift", "mean", "deviation")
                found |= {f"{len(pools) - 1}.{name}": part for name, part in zip(names, named, strict=True)}
            elif isinstance(layer, Pool):
                pools[-1] = True
        return found, pools


def train_encoder(
    X: NDArray[Any],
    *,
    steps: int | None = None,
    batch_size: int = 1024,
    temperature: float = 0.5,
    views: Views | None = None,
    net: Net = NET,
    seed: int = 0,
    device: str | torch.device = "auto",
    compute: Compute | None = None,
    progress: Report | None = None,
) -> Encoder:
    """Train a net on the images of a pool, without labels.

    Parameters
    ----------
    X : array of shape (N, H, W), (N, H, W, C), (N, C, H, W) or flat rows
        The pool; uint8 images are read as 0 to 1, all else is used as float32.
    steps : int, optional
        The length of training. Default: 3,000, but at most 400 passes over the pool, and at least 300 steps.
    batch_size : int
        Images per step, each in two views; at most the size of the pool.
    temperature : float
        The temperature of the contrastive loss.
    views : Views, optional
        The law of random views; default: `STRONG`, and `STRONG_COLOUR` for images with several channels.
    net : Net
        The architecture; its last layer is left out.
    seed : int
        The seed of initial weights, order and views.
    device : str
        "auto", "cpu", "cuda" or another torch device.
    compute : Compute, optional
        Precision and kernels; default: bfloat16 on a GPU.
    progress : callable(done, total), optional
        Called about twenty times.
    """
    images, chosen = checked_images(X, net), chosen_device(device)
    if len(images) < FEWEST:
        raise InputError(f"the pool has {len(images)} images: features are learnt from at least {FEWEST}")
    if batch_size < 2 or not temperature > 0:
        raise InputError(f"batch_size is {batch_size} and temperature {temperature}: give at least 2, and above 0")
    size = min(batch_size, len(images))
    length = usual_steps(3000, len(images), size, rounds=400) if steps is None else steps
    image: Shape = (images.shape[1], images.shape[2], images.shape[3])
    whole = replace(net, layers=(*net.layers[:-1], *_PROJECTION))
    model = started(whole, image, n_classes=2, seed=seed, device=chosen)
    pool = torch.from_numpy(np.ascontiguousarray(images)).to(chosen)
    order = visits(len(images), seed=seed, teacher=_ORDER, length=size * length).reshape(length, size)
    law = views or (STRONG if image[0] == 1 else STRONG_COLOUR)
    streams = (
        law.draw(seed=seed, stream=stream, steps=length, batch_size=size, image=image, device=chosen)
        for stream in _VIEWS
    )
    settings = compute or usual_compute(chosen)
    step = Trainer(model, device=chosen, compute=settings, steps=length, progress=progress)
    with numerics(settings):
        for rows, first, second in zip(torch.from_numpy(order).to(chosen), *streams, strict=True):
            seen = as_floats(pool.index_select(0, rows))
            projected = step.forward(torch.cat([first.of(seen), second.of(seen)]))
            step.take(contrastive_loss(projected, temperature))
        settle(model, pool)
    kept = {name: value.detach().cpu() for name, value in model.state_dict().items()}
    if not all(value.isfinite().all() for value in kept.values()):
        raise InputError("the training of the features diverged: check the scale of the images (0 to 1, or 8-bit)")
    last = len(net.layers) - 1
    return Encoder(net=net, image=image, state={k: v for k, v in kept.items() if int(k.split(".")[0]) < last})


def contrastive_loss(projected: Tensor, temperature: float) -> Tensor:
    """Return the mean cross-entropy of finding an image's other view among all others; views of i are i and i + B."""
    unit = functional.normalize(projected, dim=1)
    scores = (unit @ unit.t() / temperature).fill_diagonal_(-torch.inf)
    half = len(unit) // 2
    return functional.cross_entropy(scores, torch.arange(2 * half, device=unit.device).roll(half))


class Trainer:
    """Optimiser, rates, precision and progress of a training of one net."""

    def __init__(
        self, model: BatchedNet, *, device: torch.device, compute: Compute, steps: int, progress: Report | None
    ) -> None:
        if steps < 1:
            raise InputError(f"steps is {steps}: it must be at least 1")
        self.model, self.device, self.compute, self.steps, self.progress = model, device, compute, steps, progress
        self.optimiser = torch.optim.AdamW(
            model.parameters(), lr=OPTIMISER.rate, weight_decay=OPTIMISER.decay, eps=OPTIMISER.eps, fused=compute.fused
        )
        self.rates: Iterator[float] = iter(OPTIMISER.rates(steps))
        self.done = 0
        if compute.channels_last:  # from the first layer's output on: an image of one channel has no order of channels
            model[0].register_forward_hook(lambda *given: given[2].contiguous(memory_format=torch.channels_last))

    def forward(self, images: Tensor) -> Tensor:
        """Return the net's outputs (B, …) in float32."""
        with torch.autocast(self.device.type, torch.bfloat16, self.compute.amp):
            found: Tensor = self.model(images)
        return found[0].float()

    def take(self, loss: Tensor) -> None:
        """Take one step down the gradient of a loss."""
        self.optimiser.param_groups[0]["lr"] = next(self.rates)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        self.done += 1
        if self.progress is not None and (self.done % max(1, self.steps // 20) == 0 or self.done == self.steps):
            self.progress(self.done, self.steps)


def settle(model: BatchedNet, pool: Tensor) -> None:
    """Set the norms' means and variances to those of the pool's images as they are; views have others.

    As in stochastic weight averaging (Izmailov et al., 2018), every part of the pool counts alike.
    """
    model.train()
    with torch.no_grad():
        for number, part in enumerate(pool.tensor_split(-(-len(pool) // _SETTLED))):
            for layer in model:
                if isinstance(layer, BatchedNorm):
                    layer.momentum = 1 / (number + 1)
            model(as_floats(part))


def started(net: Net, image: Shape, *, n_classes: int, seed: int, device: torch.device) -> BatchedNet:
    """Return one model with new weights, in training mode."""
    with torch.device(device):
        model = BatchedNet(net, 1, image=image, n_classes=n_classes)
    model.start(seed, [0])
    model.train()
    return model


def body(net: Net, image: Shape, state: State, device: torch.device) -> nn.Sequential:
    """Return all layers but the last with these parameters, in evaluation mode."""
    with torch.device(device):
        model = nn.Sequential(*list(BatchedNet(net, 1, image=image, n_classes=2))[:-1])
    model.load_state_dict(state)
    return model.eval()


def checked_images(X: NDArray[Any], net: Net, *, image: Shape | None = None) -> NDArray[Any]:
    """Return images as (N, C, H, W), after checking their shape and that every pixel is a number."""
    images = as_images(X, net)
    if image is not None and tuple(images.shape[1:]) != image:
        raise InputError(f"images have the shape {images.shape[1:]}; the net was trained on {image}")
    if images.dtype != np.uint8 and not np.isfinite(images).all():
        raise InputError("the images hold NaN or infinity")
    return images


def usual_compute(device: torch.device) -> Compute:
    """Return the default precision: bfloat16 on a GPU, float32 on a CPU."""
    on_gpu = device.type == "cuda"
    return Compute(amp=on_gpu, channels_last=on_gpu)


def usual_steps(most: int, points: int, batch_size: int, *, rounds: int) -> int:
    """Return the steps of a training: `most`, but at most so many passes over the points, and at least 300."""
    return min(most, max(300, math.ceil(rounds * points / batch_size)))
