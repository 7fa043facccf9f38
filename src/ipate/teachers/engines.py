"""Where teachers are trained: any joblib backend by name on one machine, Ray on several.

joblib's own adapter for Ray retries nothing and gives results back all at once, so Ray has a thin
adapter here (`ipate.teachers.engines`); everything else goes through joblib.
"""

import os
import secrets
import socket
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from typing import Any, TypeAlias

from ipate.errors import InputError, LostWorkersError

Results: TypeAlias = Generator[tuple[int, Any], None, None]
RETRIES = 3  # how often a teacher is begun again after its worker died
_ANSWERS = "dask", "ray"  # the backends that an address is for


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A joblib backend or Ray, checked when it is made.

    Parameters
    ----------
    backend : str, optional
        "loky", "threading", "ray", "dask" or any other backend registered with joblib; joblib's own
        choice unless given.
    n_jobs : int, optional
        Teachers trained at the same time, as in joblib. Under ray, None and negative numbers mean all
        processors of the cluster.
    address : str, optional
        A running cluster (ray: host:port, ray://host:port or auto; dask: the scheduler). Without it ray
        starts on this machine, with a token that only this process knows.
    """

    backend: str | None = None
    n_jobs: int | None = None
    address: str | None = None

    def __post_init__(self) -> None:
        if self.n_jobs == 0:
            raise InputError("n_jobs is 0: it must be a number of workers, or -1 for all")
        if self.address is not None and self.backend not in _ANSWERS:
            raise InputError(f"address is {self.address!r}: it needs the backend ray or dask, not {self.backend!r}")
        if self.backend == "ray":
            check_ray(self.address)
        else:
            self._parallel()

    def run(self, function: Callable[..., Any], tasks: Mapping[int, Any], *, shared: Mapping[str, Any]) -> Results:
        """Yield (key, result) as calls end, in any order; what a dead worker had begun is begun again.

        Parameters
        ----------
        function : callable
            Called as `function(task, **shared)`; it hands errors back as values.
        tasks : mapping
            What differs between calls, by key.
        shared : mapping
            What is the same for all calls, such as arrays: put where workers reach it once.
        """
        if self.backend == "ray":
            yield from run_on_ray(
                function, tasks, shared=shared, n_jobs=self.n_jobs, address=self.address, retries=RETRIES
            )
            return
        left = dict(tasks)
        for attempt in range(RETRIES + 1):
            try:
                for key, result in self._through_joblib(function, left, shared):
                    left.pop(key)
                    yield key, result
                return
            except _broken() as error:
                if attempt == RETRIES:
                    raise LostWorkersError(
                        f"workers died {RETRIES + 1} times, and {len(left)} teachers from teacher {min(left)} on are "
                        f"not trained ({' '.join(str(error).split())[:200]}); run fewer at a time (n_jobs)"
                    ) from None

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
        """Return joblib's Parallel for this backend, and whether it hands results back one by one."""
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
            reason = " ".join(str(error).split())
            hint = "; pip install 'dask[distributed]' and name its scheduler" if self.backend == "dask" else ""
            raise InputError(f"backend is {self.backend!r}: it cannot be used ({reason}){hint}") from None


def _keyed(function: Callable[..., Any], key: int, task: Any, shared: dict[str, Any]) -> tuple[int, Any]:
    return key, function(task, **shared)


def _broken() -> tuple[type[Exception], ...]:
    """What joblib's process backends raise when a worker dies."""
    from concurrent.futures.process import BrokenProcessPool

    from joblib.externals.loky.process_executor import TerminatedWorkerError

    return BrokenProcessPool, TerminatedWorkerError


_LEAST_STORE = 80 << 20  # bytes, Ray's own minimum is 75 MiB
_PATIENCE = 5.0  # seconds to wait for a cluster's port
_TOKEN = "RAY_AUTH_TOKEN"  # noqa: S105 - the name of a variable


def check_ray(address: str | None) -> None:
    """Refuse early what could only fail late: Ray that is not installed, a cluster that does not answer."""
    if find_spec("ray") is None:
        raise InputError("backend is 'ray': Ray is not installed; pip install 'ipate[ray]'")
    if address is None or address in ("auto", "local"):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise InputError(f"address is {address!r}: write host:port, ray://host:port or auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"address is {address!r}: no Ray cluster answers there ({error})") from None


def run_on_ray(
    function: Callable[..., Any],
    tasks: Mapping[int, Any],
    *,
    shared: Mapping[str, Any],
    n_jobs: int | None,
    address: str | None,
    retries: int,
) -> Generator[tuple[int, Any], None, None]:
    """Yield (key, result) as tasks end; a task whose worker died is run again, `retries` times at most.

    A task that costs one worker after the other its life yields a sentence about that instead of a result.
    """
    waiting = iter(tasks.items())
    with _connected(shared, n_jobs=n_jobs, address=address) as ray:
        remote = ray.remote(function).options(max_retries=retries)
        kept = {name: ray.put(value) for name, value in shared.items()}
        width = _width(int(ray.cluster_resources().get("CPU", 1)), n_jobs)
        running: dict[Any, int] = {}
        try:
            while True:
                while len(running) < width and (task := next(waiting, None)) is not None:
                    running[remote.remote(task[1], **kept)] = task[0]
                if not running:
                    return
                ready, _ = ray.wait(list(running), num_returns=1)
                for reference in ready:
                    yield running.pop(reference), _fetched(ray, reference, retries)
        finally:
            for reference in running:
                ray.cancel(reference, force=True)


def _width(processors: int, n_jobs: int | None) -> int:
    """How many tasks are under way: two per processor, so that none waits, or fewer where that was asked for."""
    return n_jobs if n_jobs is not None and 0 < n_jobs < processors else 2 * max(1, processors)


def _fetched(ray: Any, reference: Any, retries: int) -> Any:
    try:
        return ray.get(reference)
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError, ray.exceptions.NodeDiedError) as error:
        reason = str(error).strip().split("\n", maxsplit=1)[0][:200]
        return f"its worker died {retries + 1} times: {reason}"


@contextmanager
def _connected(shared: Mapping[str, Any], *, n_jobs: int | None, address: str | None) -> Iterator[Any]:
    """Use the connection that is there, else join the cluster at the address, else start Ray on this machine."""
    where = address or os.environ.get("RAY_ADDRESS") or "local"
    with ExitStack() as stack:
        options: dict[str, Any] = {"address": where, "log_to_driver": False, "logging_level": "ERROR"}
        if where == "local":
            stack.enter_context(_own_token())
            folder = tempfile.TemporaryDirectory(prefix="ipate-ray-", ignore_cleanup_errors=True)
            options |= {
                "num_cpus": n_jobs if n_jobs is not None and n_jobs > 0 else None,
                "object_store_memory": _LEAST_STORE + 2 * sum(getattr(value, "nbytes", 0) for value in shared.values()),
                "include_dashboard": False,
                "_temp_dir": stack.enter_context(folder),  # readable by its owner alone
            }
        import ray

        stack.enter_context(redirect_stdout(sys.stderr))  # Ray's own threads print there when a worker dies
        if not ray.is_initialized():
            try:
                ray.init(**options)
            except (ConnectionError, RuntimeError, ValueError) as error:
                reason = " ".join(str(error).split())[:300]
                raise InputError(f"address is {where!r}: Ray cannot be reached or started there ({reason})") from None
            stack.callback(ray.shutdown)
        yield ray


@contextmanager
def _own_token() -> Iterator[None]:
    """Let a Ray that starts here take orders from this process alone, and send no statistics anywhere.

    Ray reads these variables when it is imported; where it has been, its own settings hold.
    """
    wanted = {"RAY_USAGE_STATS_ENABLED": "0"}
    if "ray" not in sys.modules and _TOKEN not in os.environ:
        wanted |= {"RAY_AUTH_MODE": "token", _TOKEN: secrets.token_hex(32)}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
