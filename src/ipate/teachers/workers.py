"""Worker processes on this machine that survive the death of one: the task that ended it is found and given up.

Arrays are mapped from files in a folder that only its owner can read, so that every worker shares one copy.
"""

import os
import pickle
import shutil
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ipate.errors import LostWorkersError

if TYPE_CHECKING:
    from joblib.externals.loky import ProcessPoolExecutor

_IDLE = 60  # seconds after which an idle worker ends
_WATCH = 1.0  # seconds between looks at the parent process
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - on Linux, files that live in memory; the folder in it is our own
_THREADS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
_idle: dict[object, "ProcessPoolExecutor"] = {}  # pools that wait for the next tasks, by `_kind`
_loaded: dict[str, dict[str, Any]] = {}  # in a worker process: what its tasks share, by folder


class Died(str):
    """The result of a task whose worker processes all died: a sentence that says so."""

    __slots__ = ()


def run(
    function: Callable[..., Any], tasks: Mapping[int, Any], *, shared: Mapping[str, Any], n_workers: int, retries: int
) -> Generator[tuple[int, Any], None, None]:
    """Yield (key, result) of every `function(task, **shared)` as calls end, in any order.

    If a worker dies, the tasks that were in flight are run again one at a time, so that the one that ends its worker
    is known; after `retries` of these runs its result is a `Died`. The others are not affected.
    """
    left = dict(tasks)
    with _folder_of(shared) as folder:
        while left:
            suspects: list[int] = []
            before = len(left)
            for key, result in _pool(
                function, dict(left), folder, n_workers=n_workers, width=2 * n_workers, lost=suspects
            ):
                del left[key]
                yield key, result
            for key in suspects:
                yield key, _alone(function, left.pop(key), folder, retries)
            if len(left) == before:
                raise LostWorkersError("no worker process can be started; is there enough memory for one?")


def _alone(function: Callable[..., Any], task: Any, folder: str, retries: int) -> Any:
    """Return the result of one task that has a worker to itself."""
    for _ in range(retries):
        if found := list(_pool(function, {0: task}, folder, n_workers=1, width=1, lost=[])):
            return found[0][1]
    return Died(f"its worker process died {retries + 1} times")


def _pool(
    function: Callable[..., Any], tasks: Mapping[int, Any], folder: str, *, n_workers: int, width: int, lost: list[int]
) -> Iterator[tuple[int, Any]]:
    """Yield results until all tasks are done or a worker dies; `lost` then receives the tasks in flight."""
    from concurrent.futures.process import BrokenProcessPool

    executor = _workers(n_workers)
    waiting, running = iter(list(tasks.items())), dict[Future[Any], int]()
    finished = False
    try:
        while not lost:
            while len(running) < width and (task := next(waiting, None)) is not None:
                try:
                    running[executor.submit(_call, function, task[1], folder)] = task[0]
                except BrokenProcessPool:
                    break
            if not running:
                break
            with warnings.catch_warnings():  # a worker that ended because it was idle or large is replaced
                warnings.filterwarnings("ignore", message="A worker stopped while some jobs", category=UserWarning)
                done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                key = running.pop(future)
                if isinstance(future.exception(), BrokenProcessPool):
                    lost.append(key)
                else:
                    yield key, future.result()
        wait(running)
        for future, key in running.items():
            if isinstance(future.exception(), BrokenProcessPool):
                lost.append(key)
            else:
                yield key, future.result()
        finished = not lost
    finally:
        if not finished or _idle.setdefault(_kind(n_workers), executor) is not executor:
            _await_start(running)
            executor.shutdown(wait=False, kill_workers=True)


def _await_start(futures: Iterable[Future[Any]]) -> None:
    """Wait, a second at most, until the pool's own thread has seen every task.

    Where a pool is killed before that, the thread of loky 3.6 fails with a KeyError, and its traceback is printed.
    """
    end = time.monotonic() + 1
    while not all(future.running() or future.done() for future in futures) and time.monotonic() < end:
        time.sleep(0.001)


def _workers(number: int) -> "ProcessPoolExecutor":
    """Return silent workers of our own: joblib's reusable ones belong to everything else in this process."""
    from concurrent.futures.process import BrokenProcessPool

    from joblib.externals.loky import ProcessPoolExecutor

    if kept := _idle.pop(_kind(number), None):
        try:
            kept.submit(int)
            return kept
        except BrokenProcessPool:  # one of them was killed while it had nothing to do
            kept.shutdown(wait=False, kill_workers=True)
    return ProcessPoolExecutor(
        max_workers=number, timeout=_IDLE, initializer=_begin, initargs=(os.getpid(),), env=_THREADS
    )


def _kind(number: int) -> object:
    """Return what makes workers usable again: their number, and the modules that they can import."""
    return number, tuple(sys.path)


def _begin(home: int) -> None:
    """Let a worker print nothing, take no ^C, which its parent handles, and end when its parent does.

    What a dying process or a library writes depends on private rows. A worker whose parent is killed while it sends a
    task would wait for the rest of it for ever, with private rows in its memory.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)
    os.close(nowhere)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(home,), daemon=True).start()


def _end_with(home: int) -> None:
    """End this process when the process `home` is no longer its parent; on Windows a parent never changes."""
    while os.getppid() == home:
        time.sleep(_WATCH)
    os._exit(1)


def _call(function: Callable[..., Any], task: Any, folder: str) -> Any:
    if folder not in _loaded:
        _loaded.clear()
        _loaded[folder] = _read(Path(folder))
    return function(task, **_loaded[folder])


@contextmanager
def _folder_of(shared: Mapping[str, Any]) -> Iterator[str]:
    """Write what all tasks share to a new folder, which is removed afterwards, or when this process dies."""
    from joblib.externals.loky.backend import resource_tracker
    from joblib.externals.loky.backend.reduction import dumps  # classes of scripts and notebooks by value

    arrays = {name: value for name, value in shared.items() if isinstance(value, np.ndarray) and value.dtype != object}
    size = sum(value.nbytes for value in arrays.values())
    room = shutil.disk_usage(_SHARED_MEMORY).free if os.access(_SHARED_MEMORY, os.W_OK) else 0
    folder = tempfile.mkdtemp(prefix="ipate-", dir=_SHARED_MEMORY if room > 2 * size else None)  # its owner's alone
    resource_tracker.register(folder, "folder")
    try:
        for name, value in arrays.items():
            np.save(Path(folder) / f"{name}.npy", value, allow_pickle=False)
        rest = {name: value for name, value in shared.items() if name not in arrays}
        Path(folder, "rest.pickle").write_bytes(dumps(rest))
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        resource_tracker.unregister(folder, "folder")


def _read(folder: Path) -> dict[str, Any]:
    mapped = {file.stem: np.load(file, mmap_mode="r", allow_pickle=False) for file in folder.glob("*.npy")}
    rest: dict[str, Any] = pickle.loads(Path(folder, "rest.pickle").read_bytes())  # noqa: S301 - written by our parent
    return rest | {name: array.view(np.ndarray) for name, array in mapped.items()}
