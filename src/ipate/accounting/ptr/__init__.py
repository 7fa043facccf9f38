"""Graded propose-test-release: its bound, which charges one private test, and what is public before any vote is seen.

Every weight, and so every count, is a whole multiple of a *lattice*, a power of two: sums and gaps of votes are exact.
Distances between data sets are measured in moved weight, in whole steps of a *grid*, a multiple of the lattice. A
person of group g moves at most Δ_g, that is `steps` = ⌈Δ_g/grid⌉ of them: rounding up only asks for more.
"""

import math
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike

from ipate.accounting._argmax import check_counts
from ipate.accounting.bounds import Bound, Floats, Orders, check_orders, check_positive
from ipate.errors import InputError, check_number

# Default Rényi orders of a design: low ones serve the levels where passing is unlikely.
ORDERS = (1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0, 24.0, 32.0, 48.0, 64.0)
_FINEST = 2.0**-10
_COARSEST = 2.0**20


@dataclass(frozen=True, kw_only=True)
class PtrGroup:
    """A group's public figures: its id, its budget (ε, δ), and the weight Δ that one of its people moves."""

    id: str
    epsilon: float
    delta: float
    sensitivity: float

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not self.id:
            raise InputError(f"a group's id is {self.id!r}: it must be a text that is not empty")
        check_positive(f"epsilon of group {self.id!r}", self.epsilon)
        check_number("delta", self.delta, what=f"delta of group {self.id!r}")
        check_positive(f"sensitivity of group {self.id!r}", self.sensitivity)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The release as everybody may know it."""

    sigma: float
    classes: int
    total_weight: float  # W, the weight of all teachers together (k in standard PATE): no count exceeds it
    groups: tuple[PtrGroup, ...]  # weighting: Δ is the weight of the group's teachers; upsampling: the copies u
    check_sigma: float | None = None  # σ_T and T: both or neither
    threshold: float | None = None
    grid: float = 1.0  # one level: a power of two
    lattice: float = 1.0  # what every weight and count is a whole multiple of: a power of two, at most the grid
    orders: tuple[float, ...] = ORDERS  # the Rényi orders that a design may use

    def __post_init__(self) -> None:
        check_positive("sigma", self.sigma)
        check_positive("total_weight", self.total_weight)
        if (self.check_sigma is None) != (self.threshold is None):
            missing = "threshold" if self.threshold is None else "check_sigma"
            raise InputError(f"{missing} is not given: a check needs both check_sigma and threshold")
        if self.check_sigma is not None and self.threshold is not None:
            check_positive("check_sigma", self.check_sigma)
            if not math.isfinite(self.threshold):
                raise InputError(f"threshold is {self.threshold}: it must be a finite number of votes")
        if self.classes < 2:
            raise InputError(f"classes is {self.classes}: there must be at least 2")
        ids = [group.id for group in self.groups]
        if not ids:
            raise InputError("there are no groups: at least one budget is needed")
        if len(set(ids)) != len(ids):
            raise InputError(f"duplicate group id {next(i for i in ids if ids.count(i) > 1)!r}: ids must differ")
        heavy = [group for group in self.groups if group.sensitivity > self.total_weight]
        if heavy:
            raise InputError(f"group {heavy[0].id!r} moves {heavy[0].sensitivity:g}, more than all teachers weigh")
        check_orders(self.orders)
        if list(self.orders) != sorted(set(self.orders)):
            raise InputError("orders must differ and grow")
        self._check_lattice()

    def _check_lattice(self) -> None:
        for name, step in (("grid", self.grid), ("lattice", self.lattice)):
            if math.frexp(step)[0] != 0.5 or not _FINEST <= step <= _COARSEST:
                raise InputError(f"{name} is {step}: it must be a power of two such as 1, 0.5 or 0.25")
        if self.lattice > self.grid:
            raise InputError(f"lattice is {self.lattice:g}: it must not be coarser than the grid {self.grid:g}")
        weights = {"total_weight": self.total_weight}
        weights |= {f"sensitivity of group {group.id!r}": group.sensitivity for group in self.groups}
        for name, weight in weights.items():
            if weight % self.lattice:
                raise InputError(f"{name} is {weight:g}: it must be a multiple of the lattice {self.lattice:g}")

    def steps(self, group: PtrGroup) -> int:
        """How far, in steps of the grid, one person of a group moves a data set: rounded up."""
        return math.ceil(group.sensitivity / self.grid)

    def group(self, name: str) -> PtrGroup:
        """The group with this id."""
        for group in self.groups:
            if group.id == name:
                return group
        raise InputError(f"group {name!r} is not in the setting: its groups are {[g.id for g in self.groups]}")

    def check_counts(self, counts: Floats) -> Floats:
        """Return histograms (Q, C) as floats; refuse any that the setting does not cover."""
        array = check_counts(counts)
        if array.shape[1] != self.classes:
            raise InputError(f"counts have the shape {array.shape}: they must be (queries, {self.classes})")
        if array.size and array.sum(axis=1).max() > self.total_weight:
            raise InputError(f"a query has more votes than the total weight {self.total_weight:g} of the setting")
        if np.any(array % self.lattice):
            raise InputError(f"counts are not multiples of the lattice {self.lattice:g}: put the weights on it")
        return array


class Ptr(Bound):
    """One charge of (ε, δ) for a tested design: the cost is ε itself, and the design fixes conversion and orders."""

    name = "ptr"
    summary = "ptr: one private test, then all labels or none; it holds for all votes"
    data_independent = True
    whole = True
    has_orders = False
    planned_by = "gdp"
    own_conversion = "improved"

    def limit(self, orders: Orders, *, epsilon: ArrayLike, delta: ArrayLike, conversion: str) -> Floats:
        """Return ε of the budgets, (..., 1)."""
        return np.broadcast_arrays(np.asarray(epsilon, dtype=np.float64), delta)[0][..., None].copy()

    def epsilon(self, orders: Orders, cost: Floats, *, delta: ArrayLike, conversion: str) -> tuple[Floats, Floats]:
        """Return the cost, which is ε; there is no order."""
        return np.asarray(cost[..., 0]), np.full(cost.shape[:-1], np.nan)

    def worst_check(self, orders: Orders, *, sensitivity: ArrayLike, check_sigma: float) -> NoReturn:
        """Refuse: no query has a cost of its own."""
        raise InputError("bound is 'ptr': it charges a tested design as a whole, and no query by itself")

    def worst_label(self, orders: Orders, *, sensitivity: ArrayLike, sigma: float, noise: str) -> NoReturn:
        """Refuse: no query has a cost of its own."""
        self.worst_check(orders, sensitivity=sensitivity, check_sigma=sigma)


BOUND = Ptr()
