"""Graded propose-test-release: one private test in front of a whole release, and the bound that charges it."""

from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike

from ipate.accounting.bounds import Bound, Orders
from ipate.accounting.conversion import Floats
from ipate.errors import InputError


class Ptr(Bound):
    """One charge of (ε, δ) for a tested design: the cost is ε itself, and the design fixes conversion and orders."""

    name = "ptr"
    summary = "ptr: one private test, then all labels or none; it holds for all votes"
    data_independent = True
    whole = True
    has_orders = False
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
