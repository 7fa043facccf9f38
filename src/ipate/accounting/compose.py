"""Charges from elsewhere: what other mechanisms cost the same people, added to ours.

Gaussian costs add exactly as μ²; anything else enters as a Rényi curve, and then the whole account
is kept in Rényi terms, because a Rényi curve cannot be turned back into a μ.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ipate.accounting import conversion as convert
from ipate.accounting import gdp
from ipate.accounting._checks import Floats, check_orders
from ipate.accounting.meter import PAPER_ORDERS
from ipate.errors import InputError

__all__ = ["Cost"]


@dataclass(frozen=True)
class Cost:
    """A person's composed cost: a Gaussian part (μ²) and a Rényi part (a curve over `orders`).

    Costs add with `+`, in any order; adaptive composition is covered for both parts. They compose
    about the same person and the same neighbouring relation (one person's data replaced).

    Examples
    --------
    >>> ours = Cost.gaussian(mu=0.2)
    >>> survey = Cost.gaussian(mu=0.1)
    >>> round((ours + survey).epsilon(delta=1e-5), 4)
    0.8197
    """

    mu2: float = 0.0
    rdp: Floats | None = None
    orders: Floats = field(default_factory=lambda: np.array(PAPER_ORDERS))

    @classmethod
    def gaussian(cls, mu: float, *, orders: ArrayLike = PAPER_ORDERS) -> "Cost":
        """Return the cost of a μ-GDP mechanism."""
        if not (np.isfinite(mu) and mu >= 0):
            raise InputError(f"mu is {mu}: it must be finite and 0 or above")
        return cls(mu2=float(mu) ** 2, orders=check_orders(orders))

    @classmethod
    def renyi(cls, rdp: ArrayLike, *, orders: ArrayLike = PAPER_ORDERS) -> "Cost":
        """Return the cost of a mechanism known by its Rényi curve."""
        alpha, curve = check_orders(orders), np.asarray(rdp, dtype=np.float64)
        if curve.shape != alpha.shape:
            raise InputError(f"rdp has the shape {curve.shape}: it must hold one cost for each of {alpha.size} orders")
        if not np.all(curve >= 0):
            raise InputError(f"rdp holds {curve[~(curve >= 0)][0]:g}: a cost is 0 or above")
        return cls(rdp=curve, orders=alpha)

    @classmethod
    def event(cls, dp_event: Any, *, orders: ArrayLike = PAPER_ORDERS) -> "Cost":
        """Return the cost of any mechanism that dp_accounting can describe, under replacement.

        The relation is ours, one person's data replaced by other data. An event that dp_accounting
        knows only for adding or removing a person, such as Poisson-sampled DP-SGD, is refused:
        state its curve for replacement yourself with `renyi`.
        """
        from dp_accounting import NeighboringRelation, UnsupportedEventError
        from dp_accounting.rdp import RdpAccountant

        alpha = check_orders(orders)
        accountant = RdpAccountant(alpha.tolist(), NeighboringRelation.REPLACE_ONE)
        try:
            accountant.compose(dp_event)
        except UnsupportedEventError as error:
            raise InputError(f"dp_accounting cannot account for this event under replacement: {error}") from error
        return cls.renyi(accountant.rdp, orders=alpha)

    def __add__(self, other: "Cost") -> "Cost":
        if not np.array_equal(self.orders, other.orders):
            raise InputError("costs at different orders cannot be added: state both at the same orders")
        curves = [cost.rdp for cost in (self, other) if cost.rdp is not None]
        total = np.asarray(np.sum(curves, axis=0)) if curves else None
        return Cost(mu2=self.mu2 + other.mu2, rdp=total, orders=self.orders)

    def curve(self) -> Floats:
        """Return the whole cost as a Rényi curve: αμ²/2 for the Gaussian part, plus the rest."""
        gaussian = self.orders * (self.mu2 / 2)
        return gaussian if self.rdp is None else gaussian + self.rdp

    def epsilon(self, *, delta: float, conversion: convert.Conversion = "improved") -> float:
        """Return ε at δ: exactly where all is Gaussian, else by the stated conversion."""
        if self.rdp is None:
            return float(gdp.epsilon_of(np.sqrt(self.mu2), delta))
        return float(convert.epsilon_of(self.curve(), self.orders, delta=delta, conversion=conversion)[0])
