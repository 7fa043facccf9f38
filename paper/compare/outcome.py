"""What one run of one method gave, and how a model is scored: alike for every method."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ipate.files import replacing
from paper.compare.worlds import Mix, World

Predict = Callable[[NDArray[Any]], NDArray[Any]]
PER_RUN = ("encoder", "forests")  # these belong to the pool of one run; others serve all runs
_DIGITS = 3  # of percentages in the kept results


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of one run; accuracies are in per cent.

    `accuracy` is that on the test rows, None where the method gave no model; `outside` that on all rows outside the
    pool, for students that saw no private row; `groups` that on the people's own rows, by group of budgets.
    """

    accuracy: float | None
    outside: float | None = None
    groups: tuple[float, ...] | None = None
    seconds: float = 0.0
    where: str = "CPU"
    note: str = ""

    def json(self) -> dict[str, Any]:
        """Return the outcome as plain data, without what is empty."""
        found = {name: value for name, value in asdict(self).items() if value not in (None, "", ())}
        found |= {"seconds": round(self.seconds, 2), "accuracy": self.accuracy}
        return found if self.groups is None else found | {"groups": list(self.groups)}

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        """Read what `json` returned."""
        groups = values.get("groups")
        return cls(**{**values, "groups": None if groups is None else tuple(groups)})


def percent(right: NDArray[np.bool_]) -> float:
    """Return a share in per cent."""
    return round(100 * float(right.mean()), _DIGITS)


def scored(predict: Predict, world: World, mix: Mix | None, *, public: bool = False) -> Outcome:
    """Score a model on the test rows and, under individual budgets, on the rows of every group's people.

    `public` says that it saw no private row, so that these rows, too, are fresh to it.
    """
    right = np.asarray(predict(world.test[0])) == world.test[1]
    found = Outcome(accuracy=percent(right))
    own = mix is not None and mix.individual
    if not (own or public):
        return found
    inside = np.asarray(predict(world.private[0])) == world.private[1]
    if own and mix is not None:
        group = mix.groups(world.people, world.seed)
        found = replace(found, groups=tuple(percent(inside[group == g]) for g in range(len(mix.epsilon))))
    if public:
        found = replace(found, outside=percent(np.concatenate([inside, right])))
    return found


@dataclass(frozen=True, kw_only=True)
class Studio:
    """The folder in which prepared models and votes are kept, and how long trainings are (None: as by default)."""

    folder: Path
    steps: int | None = None

    def file(self, what: str, world: World) -> Path:
        """Return the file of something prepared."""
        return self.folder / f"{world.name}-{what}-{world.seed if what in PER_RUN else 0}.npz"

    def store(self, what: str, world: World, arrays: dict[str, NDArray[Any]]) -> None:
        """Keep arrays."""
        path = self.file(what, world)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)

    def load(self, what: str, world: World) -> dict[str, NDArray[Any]]:
        """Return what was kept."""
        with np.load(self.file(what, world), allow_pickle=False) as file:
            return dict(file)

    @property
    def options(self) -> dict[str, Any]:
        """The options of the semi-supervised student."""
        return {} if self.steps is None else {"steps": self.steps}


class Clock:
    """Seconds since it was started."""

    def __init__(self) -> None:
        self.start = time.perf_counter()

    def on(self, outcome: Outcome, *, where: str = "CPU", note: str = "") -> Outcome:
        """Return the outcome with the seconds so far, the machine and a note."""
        return replace(outcome, seconds=time.perf_counter() - self.start, where=where, note=note)


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit libraries to one thread: runs go side by side in processes."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        yield
