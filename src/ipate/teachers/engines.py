"""Engines that train teachers: worker processes or any joblib backend on one machine, Ray on several.

Worker processes (loky) and Ray have their own adapters here, because joblib's do not tell which task ended a worker.
"""

import os
import secrets
import socket
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from typing import Any, TypeAlias

from ipate.errors import InputError, LostWorkersError
from ipate.teachers import workers
from ipate.teachers.isolation import describe
from ipate.teachers.workers import Died

Results: TypeAlias = Generator[tuple[int, Any], None, None]
_CLUSTERS = "dask", "ray"  # the backends that accept an address
_MIN_STORE = 80 << 20  # bytes; Ray's own minimum is 75 MiB
_TIMEOUT = 5.0  # seconds to wait for a cluster's port
_TOKEN = "RAY_AUTH_TOKEN"  # noqa: S105 - the name of an environment variable


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A joblib backend or Ray; settings that cannot work are refused at construction.

    Without an address, Ray starts on this machine, with a token that only this process knows.
    """

    backend: str | None = None  # "loky", "ray" or any backend registered with joblib; default: joblib's own choice
    n_jobs: int | None = None  # as in joblib; with Ray, None and negative numbers mean all processors of the cluster
    address: str | None = None  # of a running cluster: host:port, ray://host:port or auto; for dask, the scheduler
    retries: int = 1  # how often a teacher is started again after its worker died

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
            yield from workers.run(function, tasks, shared=shared, n_workers=n_workers, retries=self.retries)
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
