"""How training is computed: device, precision, kernels and worker processes; results differ at most by rounding."""

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch

from ipate.errors import InputError
from ipate.torch.batched import ConvMode
from ipate.torch.data import Data

T = TypeVar("T")
_data: list[Data] = []  # in a worker process: the data of its tasks


@dataclass(frozen=True, kw_only=True)
class Compute:
    """Switches between equivalent ways to compute.

    Attributes
    ----------
    conv : "auto", "grouped", "matmul" or "first"
        How batched convolutions run: as grouped convolutions, as patches times matrices, or as patches in
        the first layer only. "auto" is "first" on a GPU, else "grouped".
    amp : bool
        Run matrix products and convolutions in bfloat16; parameters and norms stay float32.
    tf32 : bool
        Allow TF32 in float32 matrix products on a GPU.
    fused : bool
        Let the optimiser update all parameters in one kernel.
    compile : bool
        Pass the net through `torch.compile`, which is slow to start.
    cuda_graph : bool
        Record a training step once and replay it, which is faster where steps are tiny. GPU only.
    channels_last : bool
        Store images with their channels innermost.
    autotune : bool
        Let cuDNN time its algorithms on the first step.
    deterministic : bool
        Ask cuDNN for algorithms that give the same bits every time.
    """

    conv: Literal["auto"] | ConvMode = "auto"
    amp: bool = False
    tf32: bool = True
    fused: bool = True
    compile: bool = False
    cuda_graph: bool = False
    channels_last: bool = False
    autotune: bool = True
    deterministic: bool = False

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


def chosen_jobs(n_jobs: int) -> int:
    """Return the number of worker processes; −1 is one per core that this process may use."""
    if n_jobs == -1:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if n_jobs < 1:
        raise InputError(f"n_jobs is {n_jobs}: it must be at least 1, or −1 for one per core")
    return n_jobs


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


class WorkerDiedError(RuntimeError):
    """A worker process ended without a result, for example because it was killed or ran out of memory."""


@contextmanager
def shared(data: Data) -> Iterator[str]:
    """Write the data to a temporary folder, whose files the workers map into memory."""
    with tempfile.TemporaryDirectory(prefix="ipate-") as folder:
        for name in ("images", "labels", "weights"):
            array = getattr(data, name)
            if array is not None:
                np.save(Path(folder) / f"{name}.npy", array, allow_pickle=False)
        yield folder


def mapped() -> Data:
    """Return the data of this worker process."""
    return _data[0]


def _prepare(folder: str | None) -> None:
    torch.set_num_threads(1)
    if folder is not None:
        arrays = {file.stem: np.load(file, mmap_mode="r", allow_pickle=False) for file in Path(folder).glob("*.npy")}
        _data[:] = [Data(**arrays)]


def run_tasks(
    function: Callable[[Any], T], tasks: Sequence[Any], *, n_jobs: int, folder: str | None = None
) -> Iterator[tuple[int, T | BaseException]]:
    """Yield (task's position, its result or the exception it raised) as tasks end.

    A worker that dies breaks its pool: the tasks that are left are then run one per process, so that
    the task that kills its process is found and the others are not lost.
    """
    left = dict(enumerate(tasks))
    for position, outcome in _pool(function, dict(left), n_jobs, folder):
        if not isinstance(outcome, BrokenProcessPool):
            del left[position]
            yield position, outcome
    for position, task in left.items():
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
