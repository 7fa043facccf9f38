"""That votes, panel, ledger and the order of queries belong together, before anything is asked."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ipate.accounting.meter import Meter
from ipate.errors import InputError
from ipate.ledger import Ledger
from ipate.panel import Panel
from ipate.votes import Votes

__all__ = ["check_fits", "check_order", "check_probs"]

Floats = NDArray[np.float64]


def check_fits(panel: Panel, votes: Votes, ledger: Ledger, meter: Meter, probs: Floats | None) -> None:
    """Refuse parts of different runs: other teachers, other accounts, other budgets, another unit."""
    if panel.n_teachers != votes.n_teachers:
        raise InputError(f"the panel has {panel.n_teachers} teachers and the votes {votes.n_teachers}: they must agree")
    if panel.rotating != (votes.participation is not None):
        raise InputError("participation: votes and panel must both say that teachers take turns, or neither")
    if probs is not None:
        check_probs(probs, votes.n_queries, votes.n_classes)
    epsilon, delta = panel.budgets
    book = ledger.terms
    for index, account in enumerate(panel.account_ids):
        terms = book.get(account)
        if terms is None:
            raise InputError(f"account {account!r} is not in the ledger: open it for this panel")
        group = panel.groups[int(panel.account_group[index])].id
        if (terms.group, terms.epsilon, terms.delta) != (group, epsilon[index], delta[index]):
            raise InputError(
                f"account {account!r}: the ledger has the budget {terms.epsilon:g} at δ = {terms.delta:g} for group "
                f"{terms.group!r}, the panel {epsilon[index]:g} at {delta[index]:g} for {group!r}: they must agree"
            )
        unit = terms.meter
        orders_agree = unit.orders == meter.orders
        if (
            meter.data_independent and not meter.whole and meter.bound != "gdp"
        ):  # such an account fixed one order when it was opened
            orders_agree = len(unit.orders) == 1 and unit.orders[0] in meter.orders
        if (unit.bound, unit.conversion) != (meter.bound, meter.conversion) or not orders_agree:
            raise InputError(
                f"account {account!r} is kept in {unit.bound}, {unit.conversion}, and this run charges {meter.bound}, "
                f"{meter.conversion}, at other orders perhaps: one account has one unit"
            )


def check_order(order: Sequence[int] | NDArray[np.integer] | None, n_queries: int) -> NDArray[np.int64]:
    """Return the positions to ask, in order; each a whole number below the number of queries."""
    if order is None:
        return np.arange(n_queries, dtype=np.int64)
    positions = np.asarray(order)
    if positions.ndim != 1 or (positions.size and positions.dtype.kind not in "iu"):
        raise InputError(f"order is {positions.dtype} of shape {positions.shape}: it must be a list of positions")
    bad = positions[(positions < 0) | (positions >= n_queries)]
    if bad.size:
        raise InputError(f"order holds {bad[0]}: positions go from 0 to {n_queries - 1}")
    return positions.astype(np.int64)


def check_probs(probs: NDArray[np.generic], n_queries: int, n_classes: int) -> Floats:
    """Return probabilities as floats; refuse a wrong shape, values outside [0, 1] or a wrong sum."""
    if probs.shape != (n_queries, n_classes) or probs.dtype.kind not in "fiu":
        raise InputError(
            f"student_probs are {probs.dtype} of shape {probs.shape}: "
            f"they must be numbers of shape ({n_queries}, {n_classes}), queries × classes"
        )
    values = probs.astype(np.float64)
    bad = ~((values >= 0) & (values <= 1))  # NaN is bad
    if bad.any():
        row = int(np.flatnonzero(bad.any(axis=1))[0])
        raise InputError(f"student_probs hold {values[bad][0]:g} in row {row}: a probability lies in [0, 1]")
    sums = values.sum(axis=1)
    wrong = np.flatnonzero(np.abs(sums - 1) > 1e-4)
    if wrong.size:
        raise InputError(f"student_probs sum to {sums[wrong[0]]:.6g} in row {wrong[0]}: every row must sum to 1")
    return values
