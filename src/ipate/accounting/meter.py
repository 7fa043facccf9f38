"""One value that knows how a bound's costs add up: the unit of every account.

A cost is a vector: Rényi costs at a list of orders, or the single number μ² under gdp. A meter
turns budgets into limits on such vectors and vectors back into ε; it remembers nothing. Under ptr a
whole release is charged at once, and its cost is ε itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike

from ipate.accounting import conversion as convert
from ipate.accounting import gdp, loose
from ipate.accounting.conversion import Floats, check_orders
from ipate.errors import InputError

Bound: TypeAlias = Literal["loose", "gdp", "sup", "tight", "exact"]
Whole: TypeAlias = Literal["ptr"]
Conversion: TypeAlias = Literal["classic", "improved", "gdp"]
BOUNDS: tuple[Bound, ...] = get_args(Bound)
CONVERSIONS: tuple[Conversion, ...] = get_args(Conversion)
DATA_INDEPENDENT: tuple[Bound, ...] = ("loose", "gdp", "sup")
PAPER_ORDERS: tuple[float, ...] = tuple(float(order) for order in range(2, 51))


@dataclass(frozen=True)
class Meter:
    """How the costs of one bound compose and convert.

    Parameters
    ----------
    bound : {"loose", "gdp", "sup", "tight", "exact", "ptr"}
        What a release is charged. Under ptr no single query has a cost: one design is charged as a whole, (ε, δ).
    conversion : {"classic", "improved", "gdp"}
        How Rényi costs become ε. The gdp bound has its own and ignores this.
    orders : sequence of float
        Rényi orders, 2 to 50 as in the paper unless said; unused under gdp.
    """

    bound: Bound | Whole = "gdp"
    conversion: Conversion = "improved"
    orders: Sequence[float] = PAPER_ORDERS

    def __post_init__(self) -> None:
        if self.bound not in (*BOUNDS, "ptr"):
            raise InputError(f"bound is {self.bound!r}: it must be one of {', '.join(BOUNDS)}, ptr")
        if self.conversion not in CONVERSIONS:
            raise InputError(f"conversion is {self.conversion!r}: it must be one of {', '.join(CONVERSIONS)}")
        object.__setattr__(self, "orders", tuple(float(order) for order in check_orders(self.orders)))
        if self.bound == "gdp":
            object.__setattr__(self, "conversion", "gdp")
        elif self.bound == "ptr":  # the design fixes its own conversion and orders
            object.__setattr__(self, "conversion", "improved")
            object.__setattr__(self, "orders", PAPER_ORDERS)
        elif self.conversion == "gdp":
            raise InputError(f"conversion is 'gdp': bound {self.bound!r} needs 'classic' or 'improved'")

    @property
    def data_independent(self) -> bool:
        """Whether what is charged is the same for all votes, so that it may be published."""
        return self.whole or self.bound in DATA_INDEPENDENT

    @property
    def whole(self) -> bool:
        """Whether one charge pays for everything: a design that was tested, not queries one by one."""
        return self.bound == "ptr"

    @property
    def width(self) -> int:
        """The length of a cost vector."""
        return 1 if self.whole or self.bound == "gdp" else len(self.orders)

    def at_order(self, order: float) -> "Meter":
        """Return the same meter reduced to one Rényi order, as a filter fixed beforehand needs."""
        return Meter(self.bound, self.conversion, (order,))

    def limit(self, epsilon: ArrayLike, delta: ArrayLike) -> Floats:
        """Return what (ε, δ) affords: a cost fits when it is at or under this in one place at least.

        Budgets are arrays of any shape (...); the result has the shape (..., width).
        """
        if self.whole:
            return np.broadcast_arrays(np.asarray(epsilon, dtype=np.float64), delta)[0][..., None].copy()
        if self.bound == "gdp":
            return np.asarray(gdp.mu_of(epsilon, delta) ** 2)[..., None]
        return convert.rdp_limit(self.orders, epsilon=epsilon, delta=delta, conversion=self._rdp)

    def epsilon(self, cost: ArrayLike, delta: ArrayLike) -> tuple[Floats, Floats]:
        """Return ε of composed costs (..., width), and the Rényi order that gives it (NaN under gdp and ptr)."""
        spent = np.asarray(cost, dtype=np.float64)
        if self.whole:
            return np.asarray(spent[..., 0]), np.full(spent.shape[:-1], np.nan)
        if self.bound == "gdp":
            epsilon = gdp.epsilon_of(np.sqrt(spent[..., 0]), delta)
            return epsilon, np.full(epsilon.shape, np.nan)
        return convert.epsilon_of(spent, self.orders, delta=delta, conversion=self._rdp)

    def worst_check(self, *, sensitivity: ArrayLike, check_sigma: float) -> Floats:
        """Return what a check can cost at most, whatever the votes: shape (*sensitivity.shape, width)."""
        self._by_query()
        if self.bound == "gdp":
            return gdp.check_mu2(sensitivity=sensitivity, check_sigma=check_sigma)[..., None]
        if self.bound == "sup":
            from ipate.accounting import sup

            return sup.check_rdp(self.orders, sensitivity=sensitivity, check_sigma=check_sigma)
        return loose.check_rdp(self.orders, sensitivity=sensitivity, check_sigma=check_sigma)

    def worst_label(self, *, sensitivity: ArrayLike, sigma: float) -> Floats:
        """Return what a label can cost at most, whatever the votes: shape (*sensitivity.shape, width)."""
        self._by_query()
        if self.bound == "gdp":
            return gdp.label_mu2(sensitivity=sensitivity, sigma=sigma)[..., None]
        if self.bound == "sup":
            from ipate.accounting import sup

            return sup.label_rdp(self.orders, sensitivity=sensitivity, sigma=sigma)
        return loose.label_rdp(self.orders, sensitivity=sensitivity, sigma=sigma)

    def _by_query(self) -> None:
        if self.whole:
            raise InputError("bound is 'ptr': it charges a tested design as a whole, and no query by itself")

    @property
    def _rdp(self) -> convert.Conversion:
        return "classic" if self.conversion == "classic" else "improved"
