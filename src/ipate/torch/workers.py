"""Worker processes for machines without a GPU: one torch thread each, data through mapped files.

Two torch threads that share cores with others can be slower than one; processes are not.
"""

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from ipate.torch.chunks import Data

__all__ = ["WorkerDiedError", "mapped", "run_tasks", "shared"]

T = TypeVar("T")
_data: list[Data] = []


class WorkerDiedError(RuntimeError):
    """A worker process ended without an answer (killed, out of memory)."""


@contextmanager
def shared(data: Data) -> Iterator[str]:
    """Put the data into files that workers map, for as long as they are needed."""
    with tempfile.TemporaryDirectory(prefix="ipate-") as folder:
        for name in ("images", "labels", "weights"):
            array = getattr(data, name)
            if array is not None:
                np.save(Path(folder) / f"{name}.npy", array, allow_pickle=False)
        yield folder


def mapped() -> Data:
    """Return the data of this worker."""
    return _data[0]


def _prepare(folder: str | None) -> None:
    torch.set_num_threads(1)
    if folder is None:
        return
    arrays = {file.stem: np.load(file, mmap_mode="r", allow_pickle=False) for file in Path(folder).glob("*.npy")}
    _data[:] = [Data(images=arrays["images"], labels=arrays["labels"], weights=arrays.get("weights"))]


def run_tasks(
    function: Callable[[Any], T], tasks: Sequence[Any], *, n_jobs: int, folder: str | None = None
) -> Iterator[tuple[int, T | BaseException]]:
    """Yield (task's position, its result or the exception it raised) as tasks end, whatever others do.

    A worker that dies takes its pool along: the tasks that were left are then run one per process,
    so that the one that kills its process is found and the others are not lost.
    """
    left = set(range(len(tasks)))
    for position, outcome in _pool(function, {i: tasks[i] for i in left}, n_jobs, folder):
        if not isinstance(outcome, BrokenProcessPool):
            left.discard(position)
            yield position, outcome
    for position in sorted(left):
        for _, outcome in _pool(function, {position: tasks[position]}, 1, folder):
            died = isinstance(outcome, BrokenProcessPool)
            yield position, WorkerDiedError("its worker process died") if died else outcome


def _pool(
    function: Callable[[Any], T], tasks: dict[int, Any], n_jobs: int, folder: str | None
) -> Iterator[tuple[int, T | BaseException]]:
    context = multiprocessing.get_context("spawn")
    with _one_thread():
        pool = ProcessPoolExecutor(min(n_jobs, len(tasks)), context, initializer=_prepare, initargs=(folder,))
        try:
            running: dict[Future[T], int] = {pool.submit(function, task): i for i, task in tasks.items()}
            while running:
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    error = future.exception()
                    yield running.pop(future), future.result() if error is None else error
        finally:
            pool.shutdown(wait=sys.exc_info()[0] is None, cancel_futures=True)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let processes that start meanwhile begin with one thread, before torch is loaded there."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
