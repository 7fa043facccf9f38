"""The training loop of a chunk: all its teachers at once, without waiting for the device until the end."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from ipate.torch.batched import AUGMENT, BatchedNet, stream_keys, uniform
from ipate.torch.compute import Compute, numerics
from ipate.torch.data import Chunk, as_floats
from ipate.torch.nets import Augmentation, Preset, Shape

Progress: TypeAlias = Callable[[int], None]
State: TypeAlias = dict[str, Tensor]
_DRAWS = 5  # random numbers per image: angle, two shifts, scale, shear
_MAPS = 1 << 21  # affine maps drawn at a time
_EAGER = 3  # steps before a graph is recorded


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How all teachers of an ensemble are trained."""

    preset: Preset
    image: Shape
    n_classes: int
    steps: int  # the same for every teacher, whatever the number of its rows
    seed: int
    device: torch.device
    compute: Compute


def train_chunk(chunk: Chunk, settings: Settings, progress: Progress | None = None) -> State:
    """Train the teachers of a chunk together and return their parameters, each (T, …).

    `progress` is called about twenty times, with the number of steps since the last call.
    """
    with numerics(settings.compute):
        step = _Step(chunk, settings)
        runner = _recorded(step) if settings.compute.cuda_graph else step.run
        every, rates = max(1, settings.steps // 20), settings.preset.optimiser.rates(settings.steps)
        for number, ((rows, maps), rate) in enumerate(zip(_batches(chunk, settings), rates, strict=True), start=1):
            step.set_rate(rate)
            runner(rows, maps)
            if progress is not None and (number % every == 0 or number == settings.steps):
                progress((number - 1) % every + 1)
        return {name: value.detach() for name, value in step.net.state_dict().items()}


def _batches(chunk: Chunk, settings: Settings) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Yield every step's rows (B·T,) and affine maps (B·T, 2, 3), both in the order (B, T)."""
    preset, steps, size, models = settings.preset, settings.steps, settings.preset.batch_size, len(chunk.teachers)
    order = torch.from_numpy(chunk.order).to(settings.device)
    rows = order.view(models, steps, size).permute(1, 2, 0).reshape(steps, size * models)
    keys = stream_keys(settings.seed, chunk.teachers, AUGMENT).to(settings.device)
    block = max(1, _MAPS // (size * models))
    for start in range(0, steps, block):
        count = min(block, steps - start)
        maps = None
        if preset.augmentation is not None:
            maps = affine_maps(
                preset.augmentation, keys=keys, start=start, steps=count, batch_size=size, image=settings.image
            )
        for offset in range(count):
            yield rows[start + offset], None if maps is None else maps[offset]


def affine_maps(
    augmentation: Augmentation, *, keys: Tensor, start: int, steps: int, batch_size: int, image: Shape
) -> Tensor:
    """Draw the maps (steps, B·T, 2, 3) of the steps from `start` on, with one random stream per key (T,).

    They map output to input coordinates, as `affine_grid` expects; images are in the order (B, T).
    """
    order = torch.arange(start * batch_size, (start + steps) * batch_size, dtype=torch.int64, device=keys.device)
    counter = order[:, None, None] * _DRAWS + torch.arange(_DRAWS, device=keys.device)
    drawn = uniform(keys[None, :, None], counter) * 2 - 1  # (steps·B, T, 5)
    angle = drawn[..., 0] * math.radians(augmentation.degrees)
    across, down = drawn[..., 1] * 2 * augmentation.shift, drawn[..., 2] * 2 * augmentation.shift
    scale = 1 / (1 + drawn[..., 3] * augmentation.scale)
    shear = drawn[..., 4] * augmentation.shear
    cos, sin = angle.cos() * scale, angle.sin() * scale
    _, height, width = image
    ratio = height / width
    rows = (cos, (cos * shear - sin) * ratio, across, sin / ratio, sin * shear + cos, down)
    return torch.stack(rows, dim=-1).view(steps, -1, 2, 3)


def moved(images: Tensor, maps: Tensor) -> Tensor:
    """Transform every image (N, C, H, W) by its own map (N, 2, 3); pixels from outside the image are 0."""
    grid = functional.affine_grid(maps, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


class _Step:
    """One optimiser step of all teachers of a chunk."""

    def __init__(self, chunk: Chunk, settings: Settings) -> None:
        device, compute, chosen = settings.device, settings.compute, settings.preset.optimiser
        self.settings, self.models = settings, len(chunk.teachers)
        self.images = torch.from_numpy(chunk.images).to(device)
        self.labels = torch.from_numpy(chunk.labels).to(device)
        self.weights = None if chunk.weights is None else torch.from_numpy(chunk.weights).to(device)
        with torch.device(device):
            self.net = BatchedNet(
                settings.preset.net, self.models, image=settings.image, n_classes=settings.n_classes,
                conv=compute.conv_mode(device),
            )  # fmt: skip
        self.net.start(settings.seed, chunk.teachers)
        self.net.train()
        compiled = compute.compile
        self.forward: Callable[[Tensor], Tensor] = torch.compile(self.net, dynamic=False) if compiled else self.net
        kind = torch.optim.AdamW if chosen.decay else torch.optim.Adam
        self.optimiser: torch.optim.Optimizer = kind(
            self.net.parameters(), lr=torch.tensor(chosen.rate, device=device) if compute.cuda_graph else chosen.rate,
            eps=chosen.eps, weight_decay=chosen.decay, fused=compute.fused, capturable=compute.cuda_graph,
        )  # fmt: skip

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next step."""
        for group in self.optimiser.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def run(self, rows: Tensor, maps: Tensor | None) -> None:
        """Take one step on these rows (B·T,), whose images are transformed by these maps."""
        self.optimiser.zero_grad(set_to_none=True)
        loss = self.loss(rows, maps)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()

    def loss(self, rows: Tensor, maps: Tensor | None) -> Tensor:
        """Return the sum of the teachers' mean losses, whose gradient is every teacher's own."""
        compute, preset = self.settings.compute, self.settings.preset
        images = as_floats(self.images.index_select(0, rows))
        if maps is not None:
            images = moved(images, maps)
        images = images.view(-1, self.models * images.shape[1], *images.shape[2:])
        if compute.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        with torch.autocast(images.device.type, torch.bfloat16, compute.amp, cache_enabled=not compute.cuda_graph):
            logits = self.forward(images)
        losses = functional.cross_entropy(
            logits.float().flatten(0, 1), self._by_teacher(self.labels, rows), reduction="none",
            label_smoothing=preset.label_smoothing,
        )  # fmt: skip
        if self.weights is not None:
            losses = losses * self._by_teacher(self.weights, rows)
        return losses.sum() / preset.batch_size

    def _by_teacher(self, values: Tensor, rows: Tensor) -> Tensor:
        """Return the values of rows (B·T,) in the order (T, B)."""
        return values.index_select(0, rows).view(-1, self.models).t().reshape(-1)


def _recorded(step: _Step) -> Callable[[Tensor, Tensor | None], None]:
    """Return a function that runs the first steps eagerly, records the next one, and replays it from then on."""
    device = step.settings.device
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    held: list[Tensor | None] = []
    done = 0

    def run(rows: Tensor, maps: Tensor | None) -> None:
        nonlocal done
        if done < _EAGER:
            stream.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(stream):
                step.run(rows, maps)
            torch.cuda.current_stream(device).wait_stream(stream)
        else:
            if not held:
                held.extend([rows.clone(), None if maps is None else maps.clone()])
                step.optimiser.zero_grad(set_to_none=True)
                with torch.cuda.graph(graph):
                    step.run(held[0], held[1])  # type: ignore[arg-type]
            for kept, new in zip(held, (rows, maps), strict=True):
                if kept is not None and new is not None:
                    kept.copy_(new)
            graph.replay()
        done += 1

    return run
