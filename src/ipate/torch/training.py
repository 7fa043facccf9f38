"""Training of ensembles and students: chunks of teachers in one batched model each, or in worker processes."""

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from ipate.errors import InputError, TrainingError
from ipate.torch.batched import BatchedNet
from ipate.torch.ensemble import Ensemble, Members, Student, as_images, as_members
from ipate.torch.loop import Compute, Data, Settings, State, Task, Trained, chosen_device, train_chunk
from ipate.torch.nets import Preset, find_preset

T = TypeVar("T")
Report: TypeAlias = Callable[[int, int], None]
_data: list[Data] = []  # in a worker process: the data of its tasks


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

    A teacher's result is a function of its own rows, the seed and its number; the rows of other teachers do
    not change it. Other chunks change it at most by rounding, because they may choose other kernels.

    Parameters
    ----------
    X : array of shape (N, C, H, W), (N, H, W) or (N, features)
        uint8 images are read as 0 to 1; all else is used as float32.
    y : integer array of shape (N,)
        Classes from 0 to n_classes − 1.
    members : list of row indices per teacher, or Members
        −1 is an empty slot.
    n_classes : int
        Public; every teacher votes among all of them.
    preset : str or Preset
        Architecture, augmentation, optimiser and length of training.
    epochs, steps : optional
        Another length of training. All teachers take the same number of steps: epochs count passes over
        the mean number of slots, which is public, so nobody's data determines it.
    seed : int
        The seed of initial weights, orders, augmentation and dropout, but of no privacy noise.
    device : str
        "auto", "cpu", "cuda" or another torch device.
    teachers_per_batch : int, optional
        How many teachers are trained in one batched model. Default: as many as fit on a GPU, one on a CPU.
    n_jobs : int
        Worker processes of one thread each, on a CPU; −1 is one per core. They are spawned, so a script
        needs `if __name__ == "__main__":`.
    fixed_class : int
        The vote of a teacher without data.
    on_failure : "raise" or "fixed"
        Raise a TrainingError, which holds the ensemble of the others, or let the teachers that failed vote
        the fixed class.
    compute : Compute, optional
        Precision and kernels.
    progress : callable(done, total), optional
        Called from time to time; counts steps × teachers.
    """
    chosen = find_preset(preset).lasting(epochs=epochs, steps=steps)
    ensemble = _train(
        X,
        y,
        members,
        n_classes=n_classes,
        preset=chosen,
        seed=seed,
        device=device,
        together=teachers_per_batch,
        n_jobs=chosen_jobs(n_jobs),
        fixed_class=fixed_class,
        compute=compute or Compute(),
        progress=progress,
    )
    if ensemble.failures and on_failure == "raise":
        raise TrainingError(ensemble.failures, ensemble)
    return ensemble


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
    """Train a student on labelled public points, or also on people who need no protection.

    Parameters
    ----------
    X, y, n_classes, preset, epochs, steps, seed, device, compute, progress
        As in `train_ensemble`.
    sample_weight : array of shape (N,), optional
        The weight of each point; only ratios matter.
    """
    if not np.size(y):
        raise InputError("there are no labels to train a student on")
    chosen = find_preset(preset).lasting(epochs=epochs, steps=steps)
    weights = None if sample_weight is None else _relative(sample_weight, np.size(y))
    ensemble = _train(
        X,
        y,
        [np.arange(len(X))],
        weights=weights,
        n_classes=n_classes,
        preset=chosen,
        seed=seed,
        device=device,
        together=1,
        compute=compute or Compute(),
        progress=progress,
    )
    if ensemble.failures:
        raise InputError(f"the student could not be trained: {ensemble.failures[0].reason}")
    return Student(ensemble=ensemble)


def _relative(weights: NDArray[Any], size: int) -> NDArray[np.float32]:
    """Return weights with a mean of 1."""
    given = np.asarray(weights, dtype=np.float64)
    if given.shape != (size,) or not np.isfinite(given).all() or given.min() < 0 or given.sum() <= 0:
        raise InputError("sample_weight must hold one finite number per point, 0 or above, and not only zeros")
    return np.asarray(given / given.mean(), dtype=np.float32)


def _train(
    X: NDArray[Any],
    y: NDArray[Any],
    members: Members | Sequence[Any] | NDArray[Any],
    *,
    preset: Preset,
    n_classes: int,
    seed: int,
    device: str | torch.device,
    compute: Compute,
    together: int | None,
    progress: Report | None,
    weights: NDArray[np.float32] | None = None,
    n_jobs: int = 1,
    fixed_class: int = 0,
) -> Ensemble:
    """Check the input and train all teachers, some together at a time; those that failed are named in the ensemble."""
    images, labels = as_images(X, preset.net), np.asarray(y)
    if labels.shape != (len(images),) or labels.dtype.kind not in "iub":
        raise InputError(f"y is {labels.dtype} {labels.shape}: it must hold one integer class per row of X")
    if n_classes < 2:
        raise InputError(f"n_classes is {n_classes}: there must be at least 2")
    if not 0 <= fixed_class < n_classes:
        raise InputError(f"fixed_class is {fixed_class}: classes go from 0 to {n_classes - 1}")
    if seed < 0:
        raise InputError(f"seed is {seed}: it must be 0 or above")
    image = (images.shape[1], images.shape[2], images.shape[3])
    preset.net.shapes(image, n_classes)
    known = as_members(members, n_rows=len(labels))
    chosen = chosen_device(device)
    if compute.cuda_graph and chosen.type != "cuda":
        raise InputError(f"cuda_graph needs a GPU: the device is {chosen.type}")
    settings = Settings(
        preset=preset,
        image=image,
        n_classes=n_classes,
        steps=preset.n_steps(float(known.slots.mean())),
        seed=seed,
        device=chosen,
        compute=compute,
    )
    together = together or _teachers_that_fit(settings)
    everyone, data = range(known.n_teachers), Data(images=images, labels=labels, weights=weights)
    chunks = [everyone[start : start + together] for start in range(0, len(everyone), together)]
    tasks = [
        Task(teachers=tuple(chunk), rows=tuple(known.rows(teacher) for teacher in chunk), settings=settings)
        for chunk in chunks
    ]
    count = _Counter(progress, total=len(everyone) * settings.steps)
    if n_jobs > 1 and chosen.type == "cpu" and len(tasks) > 1:
        done = list(_in_workers(tasks, data, n_jobs, count))
    else:
        done = [part for task in tasks for part in _attempt(task, data, count)]
    return _assembled(done, settings, fixed_class)


def chosen_jobs(n_jobs: int) -> int:
    """Return the number of worker processes; −1 is one per core that this process may use."""
    if n_jobs == -1:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if n_jobs < 1:
        raise InputError(f"n_jobs is {n_jobs}: it must be at least 1, or −1 for one per core")
    return n_jobs


def _teachers_that_fit(settings: Settings) -> int:
    """Return how many teachers to train together: as many as fit in half of a GPU's free memory; one on a CPU."""
    if settings.device.type != "cuda":
        return 1
    free, _ = torch.cuda.mem_get_info(settings.device)
    net, image, n_classes = settings.preset.net, settings.image, settings.n_classes
    activations = 4 * 3 * settings.preset.batch_size * net.activations(image, n_classes)
    parameters = 4 * 5 * net.parameters(image, n_classes)
    return max(1, int(free // 2 // (activations + parameters)))


class _Counter:
    """Adds up the steps of all teachers and reports them."""

    def __init__(self, report: Report | None, *, total: int) -> None:
        self.report, self.total, self.done = report, total, 0

    def add(self, steps: int) -> None:
        self.done += steps
        if self.report is not None:
            self.report(self.done, self.total)


def _attempt(task: Task, data: Data, count: _Counter) -> Iterator[Trained]:
    """Train a task; if that raises, try its halves, so that only the teacher that raises is lost."""
    before = count.done
    try:
        yield train_chunk(task, data, lambda steps: count.add(steps * len(task.teachers)))
        return
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
    if task.settings.device.type == "cuda":  # here, not above: an exception keeps the memory of its frames
        torch.cuda.empty_cache()
    count.done = before
    half = len(task.teachers) // 2
    if not half:
        yield _failed(task, reason)
        return
    for own in (slice(half), slice(half, None)):
        yield from _attempt(replace(task, teachers=task.teachers[own], rows=task.rows[own]), data, count)


def _failed(task: Task, reason: str) -> Trained:
    """Return the teachers of a task that could not be trained; they have no parameters."""
    failures = tuple(task.failure(position, reason) for position in range(len(task.teachers)))
    return Trained(teachers=task.teachers, state={}, failures=failures)


def _assembled(done: list[Trained], settings: Settings, fixed_class: int) -> Ensemble:
    """Join the parts in the order of the teachers; teachers without parameters get zeros."""
    failures = tuple(sorted((f for part in done for f in part.failures), key=lambda failure: failure.teacher))
    parts = sorted(done, key=lambda part: part.teachers[0])
    some = next((part.state for part in parts if part.state), None) or _untrained(settings)
    state = parts[0].state
    if len(parts) > 1 or not state:
        state = {
            name: torch.cat([p.state.get(name, value.new_zeros(len(p.teachers), *value.shape[1:])) for p in parts])
            for name, value in some.items()
        }
    silent = {teacher for part in done for teacher in part.idle} | {failure.teacher for failure in failures}
    return Ensemble(
        net=settings.preset.net,
        image=settings.image,
        n_classes=settings.n_classes,
        state=state,
        silent=tuple(sorted(silent)),
        fixed_class=fixed_class,
        failures=failures,
    )


def _untrained(settings: Settings) -> State:
    """Return the parameters of one teacher that was not trained, for their shapes."""
    with torch.device(settings.device):
        net = BatchedNet(settings.preset.net, 1, image=settings.image, n_classes=settings.n_classes)
    return {name: value.detach() for name, value in net.state_dict().items()}


class WorkerDiedError(RuntimeError):
    """A worker process ended without a result, for example because it was killed or ran out of memory."""


def _in_workers(tasks: list[Task], data: Data, n_jobs: int, count: _Counter) -> Iterator[Trained]:
    """Train the tasks in worker processes, which map the data from the files of a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="ipate-") as folder:
        for name, array in vars(data).items():
            if array is not None:
                np.save(Path(folder) / f"{name}.npy", array, allow_pickle=False)
        for position, outcome in run_tasks(_work, tasks, n_jobs=n_jobs, folder=folder):
            task = tasks[position]
            count.add(task.settings.steps * len(task.teachers))
            if isinstance(outcome, BaseException):
                yield _failed(task, f"{type(outcome).__name__}: {outcome}")
            else:
                done, arrays = outcome
                yield replace(done, state={name: torch.from_numpy(value) for name, value in arrays.items()})


def _work(task: Task) -> tuple[Trained, dict[str, NDArray[Any]]]:
    """Train a task in a worker process; its parameters travel as numpy arrays."""
    done = train_chunk(task, _data[0])
    return replace(done, state={}), {name: value.numpy() for name, value in done.state.items()}


def _prepare(folder: str | None) -> None:
    """Prepare a worker process: one thread, no output (which would depend on private rows), and the data."""
    torch.set_num_threads(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)
    if folder is not None:
        arrays = {file.stem: np.load(file, mmap_mode="r", allow_pickle=False) for file in Path(folder).glob("*.npy")}
        _data[:] = [Data(**arrays)]


def run_tasks(
    function: Callable[[Any], T], tasks: Sequence[Any], *, n_jobs: int, folder: str | None = None
) -> Iterator[tuple[int, T | BaseException]]:
    """Yield (task's position, its result or the exception it raised) as tasks end."""
    left = dict(enumerate(tasks))
    for position, outcome in _pool(function, dict(left), n_jobs, folder):
        if not isinstance(outcome, BrokenProcessPool):
            del left[position]
            yield position, outcome
    for position, task in left.items():  # a worker died, which broke the pool: one process per task finds which one
        for _, outcome in _pool(function, {position: task}, 1, folder):
            died = isinstance(outcome, BrokenProcessPool)
            yield position, WorkerDiedError("its worker process died") if died else outcome


def _pool(
    function: Callable[[Any], T], tasks: dict[int, Any], n_jobs: int, folder: str | None
) -> Iterator[tuple[int, T | BaseException]]:
    context = multiprocessing.get_context("spawn")
    with _one_thread():
        pool = ProcessPoolExecutor(min(n_jobs, len(tasks)), context, initializer=_prepare, initargs=(folder,))
        try:
            positions = {pool.submit(function, task): position for position, task in tasks.items()}
            for future in as_completed(positions):
                error = future.exception()
                yield positions.pop(future), future.result() if error is None else error
        finally:
            pool.shutdown(wait=sys.exc_info()[0] is None, cancel_futures=True)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Set the environment so that new processes use one thread from the moment they load torch."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ[name] for name in names if name in os.environ}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)
        os.environ.update(before)
