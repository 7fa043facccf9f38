"""Where teachers are trained: any joblib backend by name on one machine, Ray on several.

joblib's own adapter for Ray retries nothing and gives results back all at once, so Ray has a thin
adapter here (`ipate.teachers.cluster`); everything else goes through joblib.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

from ipate.errors import InputError, IpateError

__all__ = ["Engine", "LostWorkersError"]

Results: TypeAlias = Generator[tuple[int, Any], None, None]
RETRIES = 3  # how often a teacher is begun again after its worker died
_ANSWERS = "dask", "ray"  # the backends that an address is for


class LostWorkersError(IpateError):
    """Workers died again and again, so some teachers could not be trained."""


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
            from ipate.teachers.cluster import check_ray

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
            from ipate.teachers.cluster import run_on_ray

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
