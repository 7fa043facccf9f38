"""What a bound is, the registry of bounds, the meter that counts costs by one of them, and what a budget affords.

A cost is a vector: Rényi costs at a list of orders, or one number (μ² under gdp, ε itself under ptr). Each bound is
one object in its own file and one line in `BOUNDS`; other modules ask its flags and methods, never its name. What a
budget affords is computed for data-independent bounds only: a plan is made before there are votes. The checks of the
numbers that go into a cost come first.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ipate._types import Floats
from ipate.errors import InputError, check_number, import_part, refuse_name

Orders: TypeAlias = Sequence[float]
CONVERSIONS = ("classic", "improved")
PAPER_ORDERS: tuple[float, ...] = tuple(float(order) for order in range(2, 51))
SAFETY = 1e-12  # budgets are read this much too small (relative), so that rounding never overspends


def check_positive(name: str, value: float) -> float:
    """Return `value` if it is finite and above 0; refuse it by name otherwise."""
    number = float(value)
    if not (np.isfinite(number) and number > 0):
        raise InputError(f"{name} is {value}: it must be a finite number above 0")
    return number


def check_budgets(kind: str, values: ArrayLike) -> Floats:
    """Return ε or δ (`kind`) of budgets as floats; refuse a number outside `ipate.errors.LIMITS`."""
    array = np.asarray(values, dtype=np.float64)
    for value in np.unique(array):
        check_number(kind, value)
    return array


def check_orders(orders: ArrayLike) -> Floats:
    """Return Rényi orders as a one-dimensional array whose values are finite and above 1."""
    array = np.atleast_1d(np.asarray(orders, dtype=np.float64))
    if array.ndim != 1 or array.size == 0:
        raise InputError(f"orders have the shape {array.shape}: they must be a list of at least one number")
    bad = array[~(np.isfinite(array) & (array > 1))]
    if bad.size:
        raise InputError(f"orders hold {bad[0]:g}: every Rényi order must be a finite number above 1")
    return array


def check_sensitivity(sensitivity: ArrayLike) -> Floats:
    """Return sensitivities as floats that are finite and not negative (0: not taking part)."""
    return check_not_negative(sensitivity, "sensitivity is")


def check_not_negative(values: ArrayLike, what: str) -> Floats:
    """Return numbers as floats that are finite, 0 or above; a message about others begins with `what`."""
    array = np.asarray(values, dtype=np.float64)
    bad = array[~(np.isfinite(array) & (array >= 0))]
    if bad.size:
        raise InputError(f"{what} {bad.flat[0]:g}: it must be a finite number, 0 or above")
    return array


@dataclass(frozen=True, kw_only=True)
class Voters:
    """Who voted what in B queries of k teachers. Private; only a bound with `needs_votes_by_group` receives it."""

    voted: NDArray[np.bool_]  # (blocs, B, C + 1): the classes that teachers of a bloc voted for, last: none
    weights: tuple[float, ...]  # the weight of a teacher of every bloc
    blocs: tuple[tuple[int, ...] | None, ...]  # by account: the blocs of its people; None if several votes may move
    abstain: bool  # whether a teacher may also vote for no class
    votes: NDArray[np.integer]  # (k, B); −1 for an abstention
    present: NDArray[np.bool_] | None = None  # (k, B): who took part, where teachers take turns and each has an account
    scale: Floats | None = None  # (B,): the weight of a participant's vote, where teachers take turns


class Bound(ABC):
    """What a release costs, and what costs mean; the defaults of the flags are the cautious choice.

    Methods take the orders (A,) of the meter, and return costs whose last axis has the length `width`: A, or 1 for a
    bound without orders. `sigma` is the scale of the noise where `noise` is "laplace".
    """

    name: str
    summary: str  # one line for reports, beginning with the name
    laplace_summary: str | None = None  # the same for labels with Laplace noise, where it differs
    data_independent: bool = False  # the charge is the same for all votes, so it may be published
    whole: bool = False  # one charge pays for a tested design, and no query is charged by itself
    has_orders: bool = True  # costs are Rényi curves
    planned_by: str = "loose"  # the bound of plans if this one needs votes or a design: it must afford no more
    own_conversion: str | None = None  # what replaces the conversion that was asked for
    needs_votes_by_group: bool = False  # `label_cost` needs `Voters`
    releases_counts: bool = False  # noisy counts may be released with a label, whose price is that of the whole vector
    noises: tuple[str, ...] = ("gaussian",)  # of labels
    batch_size: int = 8192  # queries at a time at most; fewer where a query's cost takes long to compute
    trade_off: str = "min(1, e^ε·α + δ, 1 − e^−ε·(1 − δ − α))"  # the formula of `best_power`, for reports
    recipe: tuple[str, str] | None = None  # Python text of what labels and checks cost at Δ = 1 (and order 1), if short
    laplace_recipe: str | None = None  # Python text of what labels with Laplace noise cost at Δ = moved (and order)

    @property
    def fixes_order(self) -> bool:
        """Whether every account fixes one Rényi order beforehand, as a filter that may be published needs."""
        return self.data_independent and self.has_orders

    @property
    def prices_queries(self) -> bool:
        """Whether the bound has a rule of its own for the cost of a single query, besides its worst case."""
        kind = type(self)
        return kind.check_cost is not Bound.check_cost or kind.label_cost is not Bound.label_cost

    def describe(self, noise: str) -> str:
        """Return one line for reports of labels with this noise."""
        return self.laplace_summary or self.summary if noise == "laplace" else self.summary

    def width(self, orders: Orders) -> int:
        """Return the length of a cost vector."""
        return len(orders) if self.has_orders else 1

    @abstractmethod
    def limit(self, orders: Orders, *, epsilon: ArrayLike, delta: ArrayLike, conversion: str) -> Floats:
        """Return what budgets (...) afford, (..., width): a cost fits if it is at or under this in one place."""

    @abstractmethod
    def epsilon(self, orders: Orders, cost: Floats, *, delta: ArrayLike, conversion: str) -> tuple[Floats, Floats]:
        """Return ε of composed costs (..., width), and the Rényi order that gives it (NaN without orders)."""

    @abstractmethod
    def worst_check(self, orders: Orders, *, sensitivity: ArrayLike, check_sigma: float) -> Floats:
        """Return what a check can cost at most, whatever the votes: (*sensitivity.shape, width)."""

    @abstractmethod
    def worst_label(self, orders: Orders, *, sensitivity: ArrayLike, sigma: float, noise: str) -> Floats:
        """Return what a label can cost at most, whatever the votes: (*sensitivity.shape, width)."""

    def vector_cost(self, orders: Orders, *, sensitivity: ArrayLike, sigma: float) -> Floats:
        """Return the cost of a released vector with Gaussian noise that a person moves by √2·Δ: (*shape of Δ, width).

        A label is one choice made from such a vector, and may cost less than the vector itself.
        """
        raise InputError(f"bound is {self.name!r}: it has no cost for a released vector; use gdp")

    def noise_multiplier(self, cost: float, *, order: float | None) -> float | None:
        """Return σ/Δ of the Gaussian mechanism that has this cost at every order; None unless every release is one."""
        return None

    def best_power(self, false_positives: ArrayLike, *, epsilon: ArrayLike, delta: ArrayLike) -> Floats:
        """Return the largest true positive rate of any test for a person's data, given its false positive rate.

        For (ε, δ)-DP this is min(1, e^ε·α + δ, 1 − e^−ε·(1 − δ − α)) (Wasserman and Zhou 2010; Kairouz, Oh and
        Viswanath 2015, Theorem 2.1). It is an upper bound for whoever is promised (ε, δ).
        """
        alpha, eps, off = (np.asarray(value, dtype=np.float64) for value in (false_positives, epsilon, delta))
        above = np.exp(np.minimum(eps, 700.0)) * alpha + off
        return np.clip(np.minimum(above, 1 - np.exp(-eps) * (1 - off - alpha)), 0.0, 1.0)

    def check_cost(
        self, orders: Orders, maxima: Floats, *, sensitivity: Floats, check_sigma: float, threshold: float
    ) -> Floats:
        """Return the cost of every query's check: broadcasts to (B, accounts, width).

        `maxima` (B,) is what the check compares with the threshold, `sensitivity` is (accounts,) or (B, accounts).
        """
        return _by_query(self.worst_check(orders, sensitivity=sensitivity, check_sigma=check_sigma))

    def label_cost(
        self, orders: Orders, counts: Floats, *, sensitivity: Floats, sigma: float, noise: str, voters: Voters | None
    ) -> Floats:
        """Return what the label of every query with counts (B, C) would cost: broadcasts to (B, accounts, width)."""
        return _by_query(self.worst_label(orders, sensitivity=sensitivity, sigma=sigma, noise=noise))


def _by_query(worst: Floats) -> Floats:
    """Return costs with an axis for queries, also where they are the same for all."""
    return worst if worst.ndim == 3 else worst[None]


BOUNDS: dict[str, Bound | str] = {
    "loose": "ipate.accounting.loose",
    "gdp": "ipate.accounting.gdp",
    "sup": "ipate.accounting.sup",
    "tight": "ipate.accounting.tight",
    "exact": "ipate.accounting.exact",
    "ptr": "ipate.accounting.ptr",
}
"""The bounds by name: an object, or the module whose `BOUND` it is, which is imported on first use."""


def register(bound: Bound) -> None:
    """Make a bound known by its name; a name that is taken is refused."""
    if bound.name in BOUNDS:
        raise InputError(f"bound {bound.name!r} exists already: choose another name")
    BOUNDS[bound.name] = bound


def find_bound(name: str) -> Bound:
    """Return the bound of this name, or the object that module:attribute names; refuse an unknown one."""
    found = BOUNDS.get(name) if isinstance(name, str) else None
    if found is None and isinstance(name, str) and ":" in name:
        return _from_outside(name)
    if found is None:
        refuse_name("bound", name, (*BOUNDS, "module:attribute"))
    if isinstance(found, str):
        loaded: Bound = import_module(found).BOUND
        BOUNDS[name] = found = loaded
    return found


@cache
def _from_outside(name: str) -> Bound:
    """Return the bound that module:attribute names: an object, or a class without arguments."""
    found = import_part("bound", name)
    made = found() if isinstance(found, type) else found
    if not isinstance(made, Bound):
        raise InputError(f"bound is {name!r}: it must be a Bound of ipate.accounting.bounds")
    return made


def planning_bounds() -> tuple[str, ...]:
    """Return the names of the bounds that charge query by query without votes: those a plan can be made by."""
    found = (find_bound(name) for name in tuple(BOUNDS))
    return tuple(bound.name for bound in found if bound.data_independent and not bound.whole)


@dataclass(frozen=True)
class Meter:
    """How the costs of one bound compose and convert.

    Parameters
    ----------
    bound : {"gdp", "loose", "sup", "tight", "exact", "ptr"}
        What a release is charged. Under ptr no single query has a cost: one design is charged as a whole, (ε, δ).
        A bound of your own is named as module:attribute, or made known by `ipate.accounting.bounds.register`.
    conversion : {"improved", "classic"}
        How Rényi costs become ε. gdp and ptr have their own and ignore this.
    orders : sequence of float
        Rényi orders, by default 2 to 50 as in the paper; unused under gdp and ptr.
    """

    bound: str = "gdp"
    conversion: str = "improved"
    orders: Sequence[float] = PAPER_ORDERS

    def __post_init__(self) -> None:
        own = self.definition.own_conversion
        if self.conversion not in (*CONVERSIONS, own):
            refuse_name("conversion", self.conversion, CONVERSIONS)
        object.__setattr__(self, "orders", tuple(float(order) for order in check_orders(self.orders)))
        if own is not None:
            object.__setattr__(self, "conversion", own)
        if self.whole:  # the design fixes its own orders
            object.__setattr__(self, "orders", PAPER_ORDERS)

    @property
    def definition(self) -> Bound:
        """The bound itself, with all its flags."""
        return find_bound(self.bound)

    @property
    def data_independent(self) -> bool:
        """Whether what is charged is the same for all votes, so that it may be published."""
        return self.definition.data_independent

    @property
    def whole(self) -> bool:
        """Whether one charge pays for everything: a design that was tested, not queries one by one."""
        return self.definition.whole

    @property
    def planning(self) -> "Meter":
        """The meter of plans, which are made without votes: this one, or that of the bound which plans for it."""
        if self.data_independent and not self.whole:
            return self
        other = self.definition.planned_by
        return Meter(other) if self.whole else Meter(other, self.conversion, self.orders)

    @property
    def fixes_order(self) -> bool:
        """Whether every account fixes one Rényi order beforehand, as a filter that may be published needs."""
        return self.definition.fixes_order

    @property
    def width(self) -> int:
        """The length of a cost vector."""
        return self.definition.width(self.orders)

    def at_order(self, order: float) -> "Meter":
        """Return the same meter reduced to one Rényi order, as a filter fixed beforehand needs."""
        return Meter(self.bound, self.conversion, (order,))

    def limit(self, epsilon: ArrayLike, delta: ArrayLike) -> Floats:
        """Return what (ε, δ) affords: a cost fits when it is at or under this in one place at least.

        Budgets are arrays of any shape (...); the result has the shape (..., width).
        """
        return self.definition.limit(self.orders, epsilon=epsilon, delta=delta, conversion=self.conversion)

    def epsilon(self, cost: ArrayLike, delta: ArrayLike) -> tuple[Floats, Floats]:
        """Return ε of composed costs (..., width), and the Rényi order that gives it (NaN under gdp and ptr)."""
        spent = np.asarray(cost, dtype=np.float64)
        return self.definition.epsilon(self.orders, spent, delta=delta, conversion=self.conversion)

    def worst_check(self, *, sensitivity: ArrayLike, check_sigma: float) -> Floats:
        """Return what a check can cost at most, whatever the votes: shape (*sensitivity.shape, width)."""
        return self.definition.worst_check(self.orders, sensitivity=sensitivity, check_sigma=check_sigma)

    def worst_label(self, *, sensitivity: ArrayLike, sigma: float, noise: str = "gaussian") -> Floats:
        """Return what a label can cost at most, whatever the votes: shape (*sensitivity.shape, width)."""
        return self.definition.worst_label(self.orders, sensitivity=sensitivity, sigma=sigma, noise=noise)

    def vector_cost(self, *, sensitivity: ArrayLike, sigma: float) -> Floats:
        """Return the cost of a released vector with Gaussian noise that a person moves by √2·Δ."""
        return self.definition.vector_cost(self.orders, sensitivity=sensitivity, sigma=sigma)

    def worst_query(
        self,
        *,
        sensitivity: ArrayLike,
        sigma: float,
        check_sigma: float | None,
        noise: str = "gaussian",
        counts: bool = False,
    ) -> tuple[Floats, Floats]:
        """Return what a query's check and label can cost at most, whatever the votes; no check costs 0.

        With `counts` the noisy counts are released with the label, and both cost what that vector does.
        """
        if counts:
            label = self.vector_cost(sensitivity=sensitivity, sigma=sigma)
        else:
            label = self.worst_label(sensitivity=sensitivity, sigma=sigma, noise=noise)
        if check_sigma is None:
            return np.zeros_like(label), label
        return self.worst_check(sensitivity=sensitivity, check_sigma=check_sigma), label


def queries_afforded(
    meter: Meter,
    *,
    epsilon: float,
    delta: float,
    sensitivity: float,
    sigma: float,
    check_sigma: float | None = None,
    noise: str = "gaussian",
    answer_rate: float = 1.0,
    spent: Floats | None = None,
    every_order: bool = False,
) -> int:
    """Return how many queries (ε, δ) pays for if a share `answer_rate`, from 0 to 1, of them is answered.

    Every query pays its check and answered ones their label; a query is asked only if both could be paid. `spent` is
    what was charged before; an account that has fixed its orders then pays at `every_order`.
    """
    _require_data_independent(meter)
    if not 0 <= answer_rate <= 1:
        raise InputError(f"answer_rate is {answer_rate}: it must lie between 0 and 1")
    limit = meter.limit(epsilon, delta) - (0.0 if spent is None else spent)
    check, label = meter.worst_query(sensitivity=sensitivity, sigma=sigma, check_sigma=check_sigma, noise=noise)
    found = [_queries(*costs, answer_rate) for costs in zip(limit, check, label, strict=True)]
    return min(found) if every_order else max(found)


def _queries(limit: float, check: float, label: float, rate: float) -> int:
    """Queries one order affords: the largest n whose last query could still be answered."""
    if limit < check + label:
        return 0
    per_query = check + rate * label
    if per_query == 0:
        raise InputError("sensitivity is 0: such a person pays nothing, and any number of queries is afforded")
    n = int((limit - check - label) / per_query) + 1

    def fits(n: int) -> bool:  # the last query may have to be answered too
        return n * check + (int((n - 1) * rate) + 1) * label <= limit

    while n > 0 and not fits(n):
        n -= 1
    while fits(n + 1):
        n += 1
    return n


def best_order(meter: Meter, *, epsilon: float, delta: float, label: Floats, check: Floats | None = None) -> float:
    """Return the Rényi order at which the budget pays for most queries, which a released filter fixes beforehand.

    Feldman and Zrnic, "Individual privacy accounting via a Rényi filter" (2021), hold for one fixed order.
    """
    _require_data_independent(meter)
    if not meter.fixes_order:
        raise InputError(f"bound is {meter.bound!r}: it has no Rényi order to choose")
    per_query = label if check is None else label + check
    with np.errstate(divide="ignore", invalid="ignore"):
        afforded = np.where(per_query > 0, meter.limit(epsilon, delta) / per_query, np.inf)
    return float(meter.orders[int(np.argmax(afforded))])


def _require_data_independent(meter: Meter) -> None:
    if not meter.data_independent:
        allowed = ", ".join(planning_bounds())
        raise InputError(f"bound is {meter.bound!r}: plans are made without votes, by {allowed}")
