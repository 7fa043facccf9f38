"""The data sets and budgets of the comparison: every method sees the same private rows, pool, test rows, ε and δ."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate._types import Floats
from paper.data import load

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Mix:
    """The budgets of all people: one ε, or several with the share of people who have each, dealt at random."""

    name: str
    epsilon: tuple[float, ...]
    shares: tuple[float, ...] = (1.0,)

    @property
    def individual(self) -> bool:
        """Whether people have different budgets."""
        return len(self.epsilon) > 1

    @property
    def strictest(self) -> str:
        """The name of the uniform budget that everybody would have to be given."""
        return next(mix.name for mix in BUDGETS.values() if mix.epsilon == (min(self.epsilon),))

    def groups(self, people: int, seed: int) -> NDArray[np.int64]:
        """Return the place in `epsilon` of every person's budget."""
        ends = np.rint(np.cumsum(self.shares) * people).astype(np.int64)
        dealt = np.repeat(np.arange(len(ends)), np.diff([0, *ends]))
        return np.random.default_rng([seed, 17]).permutation(dealt)

    def of_people(self, people: int, seed: int) -> Floats:
        """Return everybody's ε."""
        return np.asarray(self.epsilon)[self.groups(people, seed)]


_SHARES = {"54/37/9%": (0.54, 0.37, 0.09), "34/43/23%": (0.34, 0.43, 0.23)}
_LEVELS = {".1/.5/2": (0.1, 0.5, 2.0), "1/2/3": (1.0, 2.0, 3.0)}
BUDGETS: Mapping[str, Mix] = MappingProxyType(
    {
        name: Mix(name=name, epsilon=(value,))
        for name, value in ((".1", 0.1), (".3", 0.3), ("ln 2", math.log(2)), ("1", 1.0), ("3", 3.0))
    }
    | {
        f"{share} at {level}": Mix(name=f"{share} at {level}", epsilon=values, shares=shares)
        for level, values in _LEVELS.items()
        for share, shares in _SHARES.items()
    }
)
"""Every budget by name: five uniform ones and four mixes."""
ON_IMAGES = (".1", "ln 2", "1", "54/37/9% at .1/.5/2")


def delta_for(people: int) -> float:
    """Return δ of everybody: the smaller of 1e-5 and 1/(10·people), as in every run of ipate."""
    return min(1e-5, 1 / (10 * people))


@dataclass(frozen=True, kw_only=True, eq=False)
class World:
    """Rows of people, of the public pool and for the test, with their class ids; images are bytes (N, H, W)."""

    name: str
    seed: int
    private: tuple[Array, Array]
    pool: tuple[Array, Array]
    test: tuple[Array, Array]
    n_classes: int
    delta: float
    pool_rows: NDArray[np.int64]  # the rows of the pool in the data set
    test_rows: NDArray[np.int64]

    @property
    def people(self) -> int:
        """The number of people; each has one row."""
        return len(self.private[1])


@dataclass(frozen=True, kw_only=True)
class Spec:
    """One data set of the comparison: its size, its budgets and the number of runs."""

    name: str
    title: str
    people: int
    pool: int
    make: Callable[[int, Path | None], tuple[Array, Array, int]]  # rows, classes, number of classes
    test: int = 5000
    runs: int = 5
    budgets: tuple[str, ...] = tuple(BUDGETS)
    images: bool = False
    official: bool = False  # people are the first rows, pool and test are drawn from the rest


def _digits(seed: int, data_dir: Path | None) -> tuple[Array, Array, int]:
    data = load("digits")
    return data.features().astype(np.float64), data.y, 10


def _synthetic(people: int) -> Callable[[int, Path | None], tuple[Array, Array, int]]:
    def make(seed: int, data_dir: Path | None) -> tuple[Array, Array, int]:
        data = load("synthetic", n_people=people + 10_000, seed=seed + 500)
        return data.features().astype(np.float64), data.y, 6

    return make


def _adult(seed: int, data_dir: Path | None) -> tuple[Array, Array, int]:
    data = load("adult", data_dir=data_dir, encoding="onehot")
    return data.features().astype(np.float64), data.y, 2


def _mnist(seed: int, data_dir: Path | None) -> tuple[Array, Array, int]:
    data = load("mnist", data_dir=data_dir)
    return np.asarray(data.X), data.y, 10


SPECS: Mapping[str, Spec] = MappingProxyType(
    {
        spec.name: spec
        for spec in (
            Spec(name="digits", title="Digits, 1,100 people", people=1100, pool=400, make=_digits),
            *(
                Spec(
                    name=f"synthetic-{n}",
                    title=f"Synthetic hospital, {n:,} people",
                    people=n,
                    pool=5000,
                    make=_synthetic(n),
                )
                for n in (1000, 2000, 5000, 40_000)
            ),
            Spec(name="adult", title="Adult, 32,222 people", people=32_222, pool=8000, make=_adult),
            Spec(
                name="mnist",
                title="MNIST, 60,000 people",
                people=60_000,
                pool=9000,
                test=1000,
                make=_mnist,
                runs=3,
                budgets=ON_IMAGES,
                images=True,
                official=True,
            ),
        )
    }
)
"""Every data set by name."""


def make_world(name: str, seed: int, data_dir: Path | None = None, *, shrink: int = 1) -> World:
    """Deal the rows of a data set to people, pool and test by a seed; `shrink` divides all sizes, for a quick try."""
    spec = SPECS[name]
    X, y, n_classes = spec.make(seed, data_dir)
    people, pool, test = (max(60, size // shrink) for size in (spec.people, spec.pool, spec.test))
    generator = np.random.default_rng(1000 + seed)
    if spec.official:
        order = np.concatenate([np.arange(people), spec.people + generator.permutation(pool + test)])
    else:
        order = generator.permutation(len(X))
    parts = np.split(order, [people, people + pool])
    rows = [(X[part], y[part]) for part in (*parts[:2], parts[2][:test])]
    return World(
        name=name,
        seed=seed,
        private=rows[0],
        pool=rows[1],
        test=rows[2],
        n_classes=n_classes,
        delta=delta_for(people),
        pool_rows=parts[1],
        test_rows=parts[2][:test],
    )
