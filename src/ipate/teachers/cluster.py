"""Ray, the engine past one machine: plain remote tasks, which Ray itself retries where a worker dies.

Arrays are put into the object store once and mapped by every worker. At most two tasks per processor are
under way, so results never pile up there, and each is fetched and dropped as soon as it is ready.
"""

import os
import secrets
import socket
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout
from importlib.util import find_spec
from typing import Any

from ipate.errors import InputError

__all__ = ["check_ray", "run_on_ray"]

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
