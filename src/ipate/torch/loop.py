"""The training loop of a chunk: all its teachers at once, nothing waits for the device until the end."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from ipate.torch import streams
from ipate.torch.batched import BatchedNet
from ipate.torch.chunks import Chunk, as_floats
from ipate.torch.compute import Compute, numerics
from ipate.torch.nets import Shape
from ipate.torch.presets import Preset
from ipate.torch.streams import affine_maps, moved

Progress: TypeAlias = Callable[[int], None]
State: TypeAlias = dict[str, Tensor]
_MAPS = 1 << 21  # affine maps drawn in one go
_EAGER = 3  # steps before a graph is recorded


def train_chunk(
    chunk: Chunk,
    *,
    preset: Preset,
    n_classes: int,
    steps: int,
    seed: int,
    device: torch.device,
    compute: Compute,
    progress: Progress | None = None,
) -> State:
    """Train the teachers of a chunk together and return their parameters, each (T, …).

    Parameters
    ----------
    chunk : Chunk
    steps : int
        The same for every teacher, whatever the sizes of others.
    progress : callable, optional
        Called now and then with the number of steps done since the last call.
    """
    image: Shape = (chunk.images.shape[1], chunk.images.shape[2], chunk.images.shape[3])
    with numerics(compute):
        step = _Step(chunk, preset=preset, n_classes=n_classes, image=image, seed=seed, device=device, compute=compute)
        every, waiting = max(1, steps // 20), 0
        runner = _recorded(step) if compute.cuda_graph and device.type == "cuda" else step.run
        plan = _plan(chunk, preset=preset, image=image, steps=steps, seed=seed, device=device)
        for (rows, maps), rate in zip(plan, preset.optimiser.rates(steps), strict=True):
            step.set_rate(rate)
            runner(rows, maps)
            waiting += 1
            if progress is not None and waiting == every:
                progress(waiting)
                waiting = 0
        if progress is not None and waiting:
            progress(waiting)
        return {name: value.detach() for name, value in step.net.state_dict().items()}


def _plan(
    chunk: Chunk, *, preset: Preset, image: Shape, steps: int, seed: int, device: torch.device
) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Yield every step's rows (B·T,) and affine maps (B·T, 2, 3), both in the order (B, T)."""
    size, models = preset.batch_size, len(chunk.teachers)
    order = torch.from_numpy(chunk.order).to(device)
    rows = order.view(models, steps, size).permute(1, 2, 0).reshape(steps, size * models)
    keys = streams.keys(seed, list(chunk.teachers), streams.AUGMENT).to(device)
    block = max(1, _MAPS // (size * models))
    for start in range(0, steps, block):
        count = min(block, steps - start)
        maps = None
        if preset.augmentation is not None:
            maps = affine_maps(preset.augmentation, keys=keys, start=start, steps=count, batch_size=size, image=image)
        for offset in range(count):
            yield rows[start + offset], None if maps is None else maps[offset]


class _Step:
    """One optimiser step of all teachers of a chunk."""

    def __init__(
        self, chunk: Chunk, *, preset: Preset, n_classes: int, image: Shape, seed: int, device: torch.device,
        compute: Compute,
    ) -> None:  # fmt: skip
        self.device, self.compute, self.preset = device, compute, preset
        self.models = len(chunk.teachers)
        self.images = torch.from_numpy(chunk.images).to(device)
        self.labels = torch.from_numpy(chunk.labels).to(device)
        self.weights = None if chunk.weights is None else torch.from_numpy(chunk.weights).to(device)
        with torch.device(device):
            net = BatchedNet(preset.net, self.models, image=image, n_classes=n_classes, conv=compute.conv_mode(device))
        net.start(seed, chunk.teachers)
        self.net = net.train()
        self.forward: Callable[[Tensor], Tensor] = torch.compile(net, dynamic=False) if compute.compile else net
        self.optimiser = _optimiser(net, preset, device, compute)

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next step."""
        for group in self.optimiser.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def run(self, rows: Tensor, maps: Tensor | None) -> None:
        """Take one step on these rows (B·T,), moved by these maps."""
        self.optimiser.zero_grad(set_to_none=True)
        loss = self.loss(rows, maps)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()

    def loss(self, rows: Tensor, maps: Tensor | None) -> Tensor:
        """Return the sum over teachers of each one's mean loss: its gradient is every teacher's own."""
        images = as_floats(self.images.index_select(0, rows))
        if maps is not None:
            images = moved(images, maps)
        images = images.view(-1, self.models * images.shape[1], *images.shape[2:])
        if self.compute.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        with self._autocast():
            logits = self.forward(images)
        labels = self.labels.index_select(0, rows).view(-1, self.models).t().reshape(-1)
        losses = functional.cross_entropy(
            logits.float().flatten(0, 1), labels, reduction="none", label_smoothing=self.preset.label_smoothing
        )
        if self.weights is not None:
            losses = losses * self.weights.index_select(0, rows).view(-1, self.models).t().reshape(-1)
        return losses.sum() / self.preset.batch_size

    def _autocast(self) -> AbstractContextManager[Any]:
        if not self.compute.amp:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16, cache_enabled=not self.compute.cuda_graph)


def _optimiser(net: BatchedNet, preset: Preset, device: torch.device, compute: Compute) -> torch.optim.Optimizer:
    chosen, recorded = preset.optimiser, compute.cuda_graph and device.type == "cuda"
    rate = torch.tensor(chosen.rate, device=device) if recorded else chosen.rate
    kind = torch.optim.AdamW if chosen.decay else torch.optim.Adam
    return kind(
        net.parameters(), lr=rate, eps=chosen.eps, weight_decay=chosen.decay, fused=compute.fused, capturable=recorded
    )


def _recorded(step: _Step) -> Callable[[Tensor, Tensor | None], None]:
    """Return a function that takes the first steps as they are, records the next, and replays it from then on."""
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream(step.device)  # type: ignore[no-untyped-call]
    held: list[Tensor | None] = []
    done = 0

    def run(rows: Tensor, maps: Tensor | None) -> None:
        nonlocal done
        if done < _EAGER:
            stream.wait_stream(torch.cuda.current_stream(step.device))
            with torch.cuda.stream(stream):
                step.run(rows, maps)
            torch.cuda.current_stream(step.device).wait_stream(stream)
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
