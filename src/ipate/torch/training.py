"""Training an ensemble: all teachers of a chunk in one batched model, or chunks in worker processes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from ipate.errors import InputError, TeacherFailure, TrainingError
from ipate.torch import compute as workers
from ipate.torch.chunks import Data, as_images, take_chunk
from ipate.torch.compute import Compute, chosen_device, chosen_jobs, teachers_that_fit
from ipate.torch.ensemble import Ensemble
from ipate.torch.loop import Progress, State, train_chunk
from ipate.torch.nets import Members, Shape, as_members
from ipate.torch.presets import Preset, find_preset

Report: TypeAlias = Callable[[int, int], None]
_Rows: TypeAlias = tuple[NDArray[np.int64], ...]


@dataclass(frozen=True, kw_only=True)
class _Task:
    """Teachers to train together, with all that a worker needs but the data."""

    teachers: tuple[int, ...]
    rows: _Rows
    preset: Preset
    n_classes: int
    steps: int
    seed: int
    device: torch.device
    compute: Compute

    def part(self, start: int, stop: int) -> "_Task":
        """Return the task of some of its teachers."""
        return replace(self, teachers=self.teachers[start:stop], rows=self.rows[start:stop])


@dataclass(frozen=True, kw_only=True)
class _Done:
    """Trained teachers."""

    teachers: tuple[int, ...]
    state: State
    idle: tuple[int, ...] = ()
    failures: tuple[TeacherFailure, ...] = ()


def train_ensemble(
    X: NDArray[Any],
    y: NDArray[Any],
    members: Members | Sequence[Any] | NDArray[Any],
    *,
    n_classes: int,
    preset: str | Preset = "small",
    epochs: float | None = None,
    steps: int | None = None,
    seed: int = 0,
    device: str | torch.device = "auto",
    teachers_per_batch: int | None = None,
    n_jobs: int = 1,
    fixed_class: int = 0,
    on_failure: Literal["raise", "fixed"] = "raise",
    compute: Compute | None = None,
    progress: Report | None = None,
) -> Ensemble:
    """Train one teacher on each list of rows.

    A teacher's result is a function of its own rows, the seed and its number: what others learn from,
    and how teachers are chunked or spread over processes, changes it at most by rounding (another
    chunk length may choose other kernels), and with the same chunks not at all.

    Parameters
    ----------
    X : array of shape (N, C, H, W), (N, H, W) or (N, features)
        uint8 images are read as 0 to 1; all else is used as float32.
    y : integer array of shape (N,)
        Classes from 0 to n_classes − 1.
    members : list of row indices per teacher, or Members
        −1 is an empty slot.
    n_classes : int
        Public; every teacher votes in all of them.
    preset : str or Preset
        Architecture, augmentation, optimiser and length of training.
    epochs, steps : optional
        Another length than the preset's. All teachers take the same number of steps: epochs count
        passes over the mean number of slots, which is public. Nobody's data decides it.
    seed : int
        Of weights, orders, augmentation and dropout; not of any privacy noise.
    device : str
        "auto", "cpu", "cuda", …
    teachers_per_batch : int, optional
        How many are trained in one batched model: as many as fit on a GPU, one on a CPU.
    n_jobs : int
        Worker processes of one thread each, on a CPU; −1 is one per core. They are spawned: a script
        needs `if __name__ == "__main__":`.
    fixed_class : int
        What a teacher without data votes.
    on_failure : "raise" or "fixed"
        Raise a TrainingError, which holds the others' ensemble, or let teachers that failed vote the
        fixed class.
    compute : Compute, optional
        Precision and kernels.
    progress : callable(done, total), optional
        Called now and then, in teachers × steps.

    Returns
    -------
    Ensemble
    """
    chosen = find_preset(preset).lasting(epochs=epochs, steps=steps)
    data = checked(X, y, chosen, n_classes=n_classes, fixed_class=fixed_class, seed=seed)
    known = as_members(members, n_rows=len(data.labels))
    return train_on(
        data, known, preset=chosen, n_classes=n_classes, seed=seed, device=chosen_device(device),
        teachers_per_batch=teachers_per_batch, n_jobs=chosen_jobs(n_jobs), fixed_class=fixed_class,
        on_failure=on_failure, compute=compute or Compute(), progress=progress,
    )  # fmt: skip


def train_on(
    data: Data,
    members: Members,
    *,
    preset: Preset,
    n_classes: int,
    seed: int,
    device: torch.device,
    teachers_per_batch: int | None,
    n_jobs: int,
    fixed_class: int,
    on_failure: Literal["raise", "fixed"],
    compute: Compute,
    progress: Report | None,
) -> Ensemble:
    """Train on data that was checked; the parameters are those of `train_ensemble`."""
    if compute.cuda_graph and device.type != "cuda":
        raise InputError(f"cuda_graph needs a GPU: the device is {device.type}")
    image: Shape = (data.images.shape[1], data.images.shape[2], data.images.shape[3])
    steps = preset.n_steps(float(members.slots.mean()))
    together = teachers_per_batch or teachers_that_fit(
        preset.net, image=image, n_classes=n_classes, batch_size=preset.batch_size, device=device
    )
    everyone = range(members.n_teachers)
    tasks = [
        _Task(
            teachers=tuple(teachers), rows=tuple(members.rows(teacher) for teacher in teachers), preset=preset,
            n_classes=n_classes, steps=steps, seed=seed, device=device, compute=compute,
        )
        for teachers in (everyone[start : start + together] for start in range(0, len(everyone), together))
    ]  # fmt: skip
    count = _Counter(progress, total=len(everyone) * steps)
    if n_jobs > 1 and device.type == "cpu" and len(tasks) > 1:
        done = list(_in_workers(tasks, data, n_jobs, count))
    else:
        done = [part for task in tasks for part in _attempt(task, data, count)]
    ensemble = _assembled(done, preset, image, n_classes, fixed_class)
    if ensemble.failures and on_failure == "raise":
        raise TrainingError(ensemble.failures, ensemble)
    return ensemble


class _Counter:
    """Adds up the steps of all teachers for whoever watches."""

    def __init__(self, report: Report | None, *, total: int) -> None:
        self.report, self.total, self.done = report, total, 0

    def add(self, steps: int) -> None:
        self.done += steps
        if self.report is not None:
            self.report(self.done, self.total)


def checked(X: NDArray[Any], y: NDArray[Any], preset: Preset, *, n_classes: int, fixed_class: int, seed: int) -> Data:
    """Bring images and labels to the form that training wants, and refuse what cannot be used."""
    images, labels = as_images(X, preset.net), np.asarray(y)
    if labels.shape != (len(images),) or labels.dtype.kind not in "iub":
        raise InputError(f"y is {labels.dtype} {labels.shape}: it must hold one integer class per row of X")
    if n_classes < 2:
        raise InputError(f"n_classes is {n_classes}: there must be at least 2")
    if not 0 <= fixed_class < n_classes:
        raise InputError(f"fixed_class is {fixed_class}: classes go from 0 to {n_classes - 1}")
    if seed < 0:
        raise InputError(f"seed is {seed}: it must be 0 or above")
    preset.net.shapes((images.shape[1], images.shape[2], images.shape[3]), n_classes)
    return Data(images=images, labels=labels)


def _train(task: _Task, data: Data, progress: Progress | None = None) -> _Done:
    """Train the teachers of a task together and find those whose parameters are no numbers."""
    chunk = take_chunk(
        data, task.teachers, task.rows, n_classes=task.n_classes, length=task.steps * task.preset.batch_size,
        seed=task.seed,
    )  # fmt: skip
    state = train_chunk(
        chunk, preset=task.preset, n_classes=task.n_classes, steps=task.steps, seed=task.seed, device=task.device,
        compute=task.compute, progress=progress,
    )  # fmt: skip
    sound = torch.stack([value.flatten(1).isfinite().all(dim=1) for value in state.values()]).all(dim=0).tolist()
    lost = [
        TeacherFailure(teacher=teacher, points=tuple(rows.tolist()), reason="its training diverged")
        for teacher, rows, fine in zip(task.teachers, task.rows, sound, strict=True)
        if not fine
    ]
    return _Done(teachers=task.teachers, state=state, idle=chunk.idle, failures=(*chunk.failures, *lost))


def _attempt(task: _Task, data: Data, count: _Counter) -> Iterator[_Done]:
    """Train a task; where that raises, try its halves, so that only the teacher that raises is lost."""
    before = count.done
    try:
        yield _train(task, data, lambda steps: count.add(steps * len(task.teachers)))
        return
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
    if task.device.type == "cuda":  # here, not above: an exception holds on to the memory of its frames
        torch.cuda.empty_cache()
    count.done = before
    half = len(task.teachers) // 2
    if half:
        yield from _attempt(task.part(0, half), data, count)
        yield from _attempt(task.part(half, len(task.teachers)), data, count)
    else:
        yield _failed(task, reason)


def _work(task: _Task) -> tuple[dict[str, NDArray[Any]], tuple[int, ...], tuple[TeacherFailure, ...]]:
    """Train a task in a worker process."""
    done = _train(task, workers.mapped())
    return {name: value.numpy() for name, value in done.state.items()}, done.idle, done.failures


def _in_workers(tasks: list[_Task], data: Data, n_jobs: int, count: _Counter) -> Iterator[_Done]:
    with workers.shared(data) as folder:
        for position, outcome in workers.run_tasks(_work, tasks, n_jobs=n_jobs, folder=folder):
            task = tasks[position]
            count.add(task.steps * len(task.teachers))
            if isinstance(outcome, BaseException):
                reason = f"{type(outcome).__name__}: {outcome}"
                yield from (_failed(task.part(i, i + 1), reason) for i in range(len(task.teachers)))
                continue
            state = {name: torch.from_numpy(value) for name, value in outcome[0].items()}
            yield _Done(teachers=task.teachers, state=state, idle=outcome[1], failures=outcome[2])


def _failed(task: _Task, reason: str) -> _Done:
    """Return a teacher that could not be trained; it has no parameters."""
    failure = TeacherFailure(teacher=task.teachers[0], points=tuple(task.rows[0].tolist()), reason=reason)
    return _Done(teachers=task.teachers, state={}, failures=(failure,))


def _assembled(done: list[_Done], preset: Preset, image: Shape, n_classes: int, fixed_class: int) -> Ensemble:
    """Put the parts together in the teachers' order; teachers that have no parameters get zeros."""
    failures = tuple(sorted((f for part in done for f in part.failures), key=lambda failure: failure.teacher))
    parts = sorted(done, key=lambda part: part.teachers[0])
    trained = [part.state for part in parts if part.state]
    if not trained:
        raise RuntimeError(f"no teacher could be trained; the first of them: {failures[0]}")
    state = trained[0]
    if len(parts) > 1:
        state = {
            name: torch.cat([p.state.get(name, torch.zeros_like(value[:1])) for p in parts])
            for name, value in trained[0].items()
        }
    silent = {teacher for part in done for teacher in part.idle} | {failure.teacher for failure in failures}
    return Ensemble(
        net=preset.net, image=image, n_classes=n_classes, state=state, silent=tuple(sorted(silent)),
        fixed_class=fixed_class, failures=failures,
    )  # fmt: skip
