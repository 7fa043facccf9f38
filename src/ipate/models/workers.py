"""Worker processes on this machine that survive the death of one: the task that ended it is found and given up.

Arrays are mapped from files in a folder that only its owner can read, so that every worker shares one copy.

Engines that train teachers: worker processes or any joblib backend on one machine, Ray on several.

Worker processes (loky) and Ray have their own adapters here, because joblib's do not tell which task ended a worker.
"""

import os
import pickle
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ipate.errors import InputError, LostWorkersError
from ipate.models.isolation import describe

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


Results: TypeAlias = Generator[tuple[int, Any], None, None]
_CLUSTERS = "dask", "ray"  # the backends that accept an address
_MIN_STORE = 80 << 20  # bytes; Ray's own minimum is 75 MiB
_TIMEOUT = 5.0  # seconds to wait for a cluster's port
_TOKEN = "RAY_AUTH_TOKEN"  # noqa: S105 - the name of an environment variable


@dataclass(frozen=True, kw_only=True)
class Backend:
    """A joblib backend or Ray; settings that cannot work are refused at construction.

    Without an address, Ray starts on this machine, with a token that only this process knows.
    """

    backend: str | None = None  # "loky", "ray" or any backend registered with joblib; default: joblib's own choice
    n_jobs: int | None = None  # as in joblib; with Ray, None and negative numbers mean all processors of the cluster
    address: str | None = None  # of a running cluster: host:port, ray://host:port or auto; for dask, the scheduler
    retries: int = 1  # how often a teacher is started again after its worker died
    device: str = "auto"  # where nets are trained: auto, cpu or cuda
    cpu_seconds: float | None = None  # the limit of CPU time of one teacher's fit, or of its vote

    def __post_init__(self) -> None:
        if self.n_jobs == 0:
            raise InputError("n_jobs is 0: it must be a number of workers, or -1 for all")
        if self.address is not None and self.backend not in _CLUSTERS:
            raise InputError(f"address is {self.address!r}: it needs the backend ray or dask, not {self.backend!r}")
        if self.backend == "ray":
            check_ray(self.address)
        else:
            self._parallel()

    def run(self, function: Callable[..., Any], tasks: Mapping[int, Any], *, shared: Mapping[str, Any]) -> Results:
        """Yield (key, result) of every `function(task, **shared)` as calls end, in any order.

        An exception of a call is raised. Arrays in `shared` are sent to the workers once. In worker processes and with
        Ray, a task whose worker dies is started again up to `retries` times, and then its result is a `Died`.
        """
        if self.backend == "ray":
            yield from self._through_ray(function, tasks, shared)
            return
        if n_workers := self.n_workers:
            yield from run(function, tasks, shared=shared, n_workers=n_workers, retries=self.retries)
            return
        try:
            yield from self._through_joblib(function, dict(tasks), shared)
        except _broken() as error:
            raise LostWorkersError(
                f"a worker of the backend {self.backend!r} died ({describe(error, 200)}); use the backend loky or ray"
            ) from None

    @property
    def n_workers(self) -> int:
        """The number of worker processes of our own; 0 for every other backend, and for one job unless asked for."""
        if self.backend == "ray":
            return 0
        parallel, _ = self._parallel()
        count = int(parallel._backend.effective_n_jobs(parallel.n_jobs))
        if type(parallel._backend).__name__ != "LokyBackend" or (self.backend is None and count == 1):
            return 0
        return count

    def _through_joblib(
        self, function: Callable[..., Any], tasks: dict[int, Any], shared: Mapping[str, Any]
    ) -> Results:
        from joblib import delayed

        parallel, streams = self._parallel()
        calls = (delayed(_keyed)(function, key, task, dict(shared)) for key, task in list(tasks.items()))
        if streams:
            yield from parallel(calls)
            return
        while chunk := list(islice(calls, 4 * abs(parallel.n_jobs))):
            yield from parallel(chunk)

    def _parallel(self) -> tuple[Any, bool]:
        """Return joblib's Parallel for this backend, and whether it returns results one by one."""
        from joblib import Parallel, parallel_config

        where = {} if self.address is None else {"scheduler_host": self.address}
        try:
            if self.backend is None:
                return Parallel(n_jobs=self.n_jobs, return_as="generator_unordered"), True
            with parallel_config(backend=self.backend, **where):
                try:
                    return Parallel(n_jobs=self.n_jobs, return_as="generator_unordered"), True
                except ValueError:
                    return Parallel(n_jobs=self.n_jobs), False
        except (ImportError, ValueError, OSError) as error:
            hint = "; pip install 'dask[distributed]' and give its address" if self.backend == "dask" else ""
            raise InputError(f"backend is {self.backend!r}: it cannot be used ({_one_line(error)}){hint}") from None

    def _through_ray(
        self, function: Callable[..., Any], tasks: Mapping[int, Any], shared: Mapping[str, Any]
    ) -> Results:
        """Yield results as tasks end."""
        waiting = iter(tasks.items())
        with self._connected_ray(shared) as ray:
            remote = ray.remote(function).options(max_retries=self.retries)
            kept = {name: ray.put(value) for name, value in shared.items()}
            processors = max(1, int(ray.cluster_resources().get("CPU", 1)))
            width = 2 * processors  # tasks in flight, so that no processor idles
            if self.n_jobs is not None and 0 < self.n_jobs < processors:
                width = self.n_jobs
            running: dict[Any, int] = {}
            try:
                while True:
                    while len(running) < width and (task := next(waiting, None)) is not None:
                        running[remote.remote(task[1], **kept)] = task[0]
                    if not running:
                        return
                    ready, _ = ray.wait(list(running), num_returns=1)
                    for reference in ready:
                        yield running.pop(reference), _fetched(ray, reference, self.retries)
            finally:
                for reference in running:
                    ray.cancel(reference, force=True)

    @contextmanager
    def _connected_ray(self, shared: Mapping[str, Any]) -> Iterator[Any]:
        """Use an existing connection, else join the cluster at the address, else start Ray on this machine."""
        where = self.address or os.environ.get("RAY_ADDRESS") or "local"
        with ExitStack() as stack:
            options: dict[str, Any] = {"address": where, "log_to_driver": False, "logging_level": "ERROR"}
            if where == "local":
                stack.enter_context(_own_token())
                folder = tempfile.TemporaryDirectory(prefix="ipate-ray-", ignore_cleanup_errors=True)
                size = sum(getattr(value, "nbytes", 0) for value in shared.values())
                options |= {
                    "num_cpus": self.n_jobs if self.n_jobs is not None and self.n_jobs > 0 else None,
                    "object_store_memory": _MIN_STORE + 2 * size,
                    "include_dashboard": False,
                    "_temp_dir": stack.enter_context(folder),  # readable by its owner alone
                }
            import ray

            silent = stack.enter_context(open(os.devnull, "w"))  # Ray's threads print when a worker dies
            stack.enter_context(redirect_stdout(silent))
            stack.enter_context(redirect_stderr(silent))
            if not ray.is_initialized():
                try:
                    ray.init(**options)
                except (ConnectionError, RuntimeError, ValueError) as error:
                    raise InputError(
                        f"address is {where!r}: Ray cannot be reached or started there ({_one_line(error)})"
                    ) from None
                stack.callback(ray.shutdown)
            yield ray


def _keyed(function: Callable[..., Any], key: int, task: Any, shared: dict[str, Any]) -> tuple[int, Any]:
    return key, function(task, **shared)


def _one_line(error: BaseException) -> str:
    """Return an error's message as one line of at most 300 characters."""
    return " ".join(str(error).split())[:300]


def _broken() -> tuple[type[Exception], ...]:
    """Return the errors that joblib's process backends raise when a worker dies."""
    from concurrent.futures.process import BrokenProcessPool

    return (BrokenProcessPool,)


def check_ray(address: str | None) -> None:
    """Check before any work that Ray is installed and that the cluster answers."""
    if find_spec("ray") is None:
        raise InputError("backend is 'ray': Ray is not installed; pip install 'ipate[ray]'")
    if address is None or address in ("auto", "local"):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise InputError(f"address is {address!r}: it must be host:port, ray://host:port or auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_TIMEOUT).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"address is {address!r}: no Ray cluster answers there ({error})") from None


def _fetched(ray: Any, reference: Any, retries: int) -> Any:
    try:
        return ray.get(reference)
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError, ray.exceptions.NodeDiedError) as error:
        reason = str(error).strip().split("\n", maxsplit=1)[0][:200]
        return Died(f"its worker died {retries + 1} times: {reason}")


@contextmanager
def _own_token() -> Iterator[None]:
    """Let a local Ray accept commands from this process alone, and disable its usage statistics.

    Ray reads these variables when it is imported, so they have no effect if it already was.
    """
    wanted = {"RAY_USAGE_STATS_ENABLED": "0"}
    if "ray" not in sys.modules and _TOKEN not in os.environ:
        wanted |= {"RAY_AUTH_MODE": "token", _TOKEN: secrets.token_hex(32)}
    before = {name: os.environ[name] for name in wanted.keys() & os.environ.keys()}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name in wanted:
            os.environ.pop(name, None)
        os.environ.update(before)
