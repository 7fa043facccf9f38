"""The training loop of a chunk of teachers, all at once, without waiting for the device until the end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from ipate.errors import InputError, TeacherFailure
from ipate.torch.batched import AUGMENT, ORDER, BatchedNet, ConvMode, affine_maps, moved, stream_keys
from ipate.torch.nets import Preset, Shape

Progress: TypeAlias = Callable[[int], None]
State: TypeAlias = dict[str, Tensor]
_MAPS = 1 << 21  # affine maps drawn at a time
_EAGER = 3  # steps before a graph is recorded


@dataclass(frozen=True, kw_only=True)
class Compute:
    """Switches between equivalent ways to compute (precision, kernels); results differ at most by rounding.

    Batched convolutions run as grouped convolutions ("grouped"), as patches times matrices ("matmul"), or as
    patches in the first layer only ("first"). "auto" is "first" on a GPU, else "grouped".
    """

    conv: Literal["auto"] | ConvMode = "auto"
    amp: bool = False  # matrix products and convolutions in bfloat16; parameters and norms stay float32
    tf32: bool = True  # TF32 in float32 matrix products on a GPU
    fused: bool = True  # the optimiser updates all parameters in one kernel
    compile: bool = False  # pass the net through `torch.compile`, which is slow to start
    cuda_graph: bool = False  # record a step once and replay it, which is faster where steps are tiny; GPU only
    channels_last: bool = False  # store images with their channels innermost
    autotune: bool = True  # cuDNN times its algorithms on the first step
    deterministic: bool = False  # cuDNN takes algorithms that give the same bits every time

    def conv_mode(self, device: torch.device) -> ConvMode:
        """Return how convolutions run on a device."""
        if self.conv == "auto":
            return "first" if device.type == "cuda" else "grouped"
        return self.conv


def chosen_device(device: str | torch.device) -> torch.device:
    """Return the device; "auto" is the GPU if there is one, else the CPU."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    chosen = torch.device(device)
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise InputError("device is 'cuda', but torch sees no GPU here: use 'cpu' or 'auto'")
    return chosen


@contextmanager
def numerics(compute: Compute) -> Iterator[None]:
    """Set torch's global switches, and restore them at the end."""
    cudnn = torch.backends.cudnn
    before = (torch.get_float32_matmul_precision(), cudnn.benchmark, cudnn.deterministic)
    torch.set_float32_matmul_precision("high" if compute.tf32 else "highest")
    cudnn.benchmark = compute.autotune and not compute.deterministic
    cudnn.deterministic = compute.deterministic
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        cudnn.benchmark, cudnn.deterministic = before[1:]


@dataclass(frozen=True, kw_only=True)
class Data:
    """Images (N, C, H, W) as uint8 or float32, their labels, and weights if there are any."""

    images: NDArray[Any]
    labels: NDArray[Any]
    weights: NDArray[np.float32] | None = None


def as_floats(images: Tensor) -> Tensor:
    """Return images as float32; bytes are scaled to 0 to 1."""
    return images.to(torch.float32).div_(255) if images.dtype == torch.uint8 else images


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


@dataclass(frozen=True, kw_only=True)
class Task:
    """Teachers to train together, with everything that a worker needs except the data."""

    teachers: tuple[int, ...]  # their numbers in the ensemble, which choose their random streams
    rows: tuple[NDArray[np.int64], ...]
    settings: Settings

    def failure(self, position: int, reason: str) -> TeacherFailure:
        """Return the failure of one of these teachers."""
        points = tuple(self.rows[position].tolist())
        return TeacherFailure(teacher=self.teachers[position], points=points, reason=reason)


@dataclass(frozen=True, kw_only=True)
class Trained:
    """Teachers whose training has ended; without a state, none of them was trained."""

    teachers: tuple[int, ...]
    state: State
    idle: tuple[int, ...] = ()
    failures: tuple[TeacherFailure, ...] = ()


def train_chunk(task: Task, data: Data, progress: Progress | None = None) -> Trained:
    """Train the teachers of a task together; `progress` is called about twenty times, with the steps since then."""
    settings, chunk = task.settings, _take_chunk(task, data)
    with numerics(settings.compute):
        step = _Step(task, chunk)
        runner = _recorded(step) if settings.compute.cuda_graph else step.run
        every, rates = max(1, settings.steps // 20), settings.preset.optimiser.rates(settings.steps)
        for number, ((rows, maps), rate) in enumerate(zip(_batches(task, chunk), rates, strict=True), start=1):
            step.set_rate(rate)
            runner(rows, maps)
            if progress is not None and (number % every == 0 or number == settings.steps):
                progress((number - 1) % every + 1)
        state = {name: value.detach() for name, value in step.net.state_dict().items()}
    finite = torch.stack([value.flatten(1).isfinite().all(dim=1) for value in state.values()]).all(dim=0).tolist()
    unused = {*chunk.idle, *(failure.teacher for failure in chunk.failures)}
    lost = [
        task.failure(position, "its training diverged")
        for position, (teacher, fine) in enumerate(zip(task.teachers, finite, strict=True))
        if not fine and teacher not in unused
    ]
    return Trained(teachers=task.teachers, state=state, idle=chunk.idle, failures=(*chunk.failures, *lost))


@dataclass(frozen=True, kw_only=True)
class _Chunk:
    """What the teachers of a task learn from."""

    data: Data  # their rows, copied teacher by teacher, and one blank row at the end: n₁ + … + n_T + 1
    order: NDArray[np.int32]  # (T, steps·B): the rows that each teacher sees, one after another
    idle: tuple[int, ...]  # teachers without data: they see only the blank row
    failures: tuple[TeacherFailure, ...]  # teachers whose data cannot be used: they see only the blank row


def _take_chunk(task: Task, data: Data) -> _Chunk:
    """Copy the rows of the teachers and lay out the order in which each of them sees its own."""
    settings, everyone = task.settings, np.concatenate(task.rows)
    blank = np.zeros((1, *data.images.shape[1:]), dtype=data.images.dtype)
    images = np.concatenate([data.images[everyone], blank])
    labels = np.append(data.labels[everyone].astype(np.int64), 0)
    weights = None if data.weights is None else np.append(data.weights[everyone], np.float32(1))
    length = settings.steps * settings.preset.batch_size
    order = np.full((len(task.teachers), length), everyone.size, dtype=np.int32)  # the blank row
    start, idle, failures = 0, [], []
    for position, (teacher, rows) in enumerate(zip(task.teachers, task.rows, strict=True)):
        own = slice(start, start + rows.size)
        reason = _unusable(images[own], labels[own], settings.n_classes)
        if reason is not None:
            images[own], labels[own] = 0, 0
            failures.append(task.failure(position, reason))
        elif rows.size:
            order[position] = start + visits(rows.size, seed=settings.seed, teacher=teacher, length=length)
        else:
            idle.append(teacher)
        start += rows.size
    data = Data(images=images, labels=labels, weights=weights)
    return _Chunk(data=data, order=order, idle=tuple(idle), failures=tuple(failures))


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
    generator = np.random.default_rng([seed, teacher, ORDER])
    orders = generator.permuted(np.tile(np.arange(size), (rounds, 1)), axis=1)
    return np.asarray(orders.ravel()[:length], dtype=np.int64)


def _batches(task: Task, chunk: _Chunk) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Yield every step's rows (B·T,) and affine maps (B·T, 2, 3), both in the order (B, T)."""
    settings, steps, models = task.settings, task.settings.steps, len(task.teachers)
    size, augmentation = settings.preset.batch_size, settings.preset.augmentation
    order = torch.from_numpy(chunk.order).to(settings.device)
    rows = order.view(models, steps, size).permute(1, 2, 0).reshape(steps, size * models)
    keys = stream_keys(settings.seed, task.teachers, AUGMENT).to(settings.device)
    block = max(1, _MAPS // (size * models))
    for start in range(0, steps, block):
        count = min(block, steps - start)
        maps = None
        if augmentation is not None:
            maps = affine_maps(augmentation, keys=keys, start=start, steps=count, batch_size=size, image=settings.image)
        for offset in range(count):
            yield rows[start + offset], None if maps is None else maps[offset]


class _Step:
    """One optimiser step of all teachers of a task."""

    def __init__(self, task: Task, chunk: _Chunk) -> None:
        settings = task.settings
        device, compute, chosen = settings.device, settings.compute, settings.preset.optimiser
        self.settings, self.models = settings, len(task.teachers)
        data = chunk.data
        self.images = torch.from_numpy(data.images).to(device)
        self.labels = torch.from_numpy(data.labels).to(device)
        self.weights = None if data.weights is None else torch.from_numpy(data.weights).to(device)
        with torch.device(device):
            self.net = BatchedNet(
                settings.preset.net,
                self.models,
                image=settings.image,
                n_classes=settings.n_classes,
                conv=compute.conv_mode(device),
            )
        self.net.start(settings.seed, task.teachers)
        self.net.train()
        compiled = compute.compile
        self.forward: Callable[[Tensor], Tensor] = torch.compile(self.net, dynamic=False) if compiled else self.net
        kind = torch.optim.AdamW if chosen.decay else torch.optim.Adam
        self.optimiser: torch.optim.Optimizer = kind(
            self.net.parameters(),
            lr=torch.tensor(chosen.rate, device=device) if compute.cuda_graph else chosen.rate,
            eps=chosen.eps,
            weight_decay=chosen.decay,
            fused=compute.fused,
            capturable=compute.cuda_graph,
        )

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
            logits.float().flatten(0, 1),
            self._by_teacher(self.labels, rows),
            reduction="none",
            label_smoothing=preset.label_smoothing,
        )
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
