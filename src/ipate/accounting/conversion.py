"""From Rényi costs to (ε, δ), and from a budget back to what each order may spend.

Both conversions hold for any mechanism whose divergences are bounded as stated. dp_accounting
converts one curve at a time; histories need a million, so the formula stands here once more and
the tests hold it to dp_accounting's values.
"""

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from ipate.accounting._checks import Floats, check_delta, check_orders, check_positive
from ipate.errors import InputError

__all__ = ["Conversion", "epsilon_of", "rdp_limit"]

Conversion: TypeAlias = Literal["classic", "improved"]
_SAFETY = 1e-12  # budgets are read this much too small (relative), so that rounding never overspends


def epsilon_of(rdp: ArrayLike, orders: ArrayLike, *, delta: ArrayLike, conversion: Conversion) -> tuple[Floats, Floats]:
    """Return the smallest ε over all orders, and the order that gives it.

    Where nothing was released (the cost is 0 at every order) ε is 0 and the order is NaN.

    Parameters
    ----------
    rdp : array of shape (..., A)
        Composed Rényi costs.
    orders : array of shape (A,)
        The orders they belong to.
    delta : scalar or array of shape (...)
        δ of every account.
    conversion : {"classic", "improved"}
        classic: rdp + ln(1/δ)/(α−1), Mironov (2017), Proposition 3.
        improved: rdp + ln(1−1/α) − ln(αδ)/(α−1), Canonne, Kamath and Steinke, "The discrete
        Gaussian for differential privacy" (2020), Proposition 12; never below 0.

    Returns
    -------
    epsilon, order : arrays of shape (...)
    """
    alpha = check_orders(orders)
    cost = np.asarray(rdp, dtype=np.float64)
    if cost.shape[-1:] != alpha.shape:
        raise InputError(f"rdp has the shape {cost.shape}: its last axis must hold the {alpha.size} orders")
    epsilon = cost + _offset(alpha, delta, conversion)
    best = np.argmin(epsilon, axis=-1)
    least = np.maximum(np.take_along_axis(epsilon, best[..., None], axis=-1)[..., 0], 0.0)
    nothing = ~np.any(cost, axis=-1)
    return np.where(nothing, 0.0, least), np.where(nothing, np.nan, alpha[best])


def rdp_limit(orders: ArrayLike, *, epsilon: ArrayLike, delta: ArrayLike, conversion: Conversion) -> Floats:
    """Return, per order, the Rényi cost that exactly uses up (ε, δ); −inf where nothing fits.

    An account is within its budget when its cost is at or under this limit at one order at least.
    For a filter whose stopping rule is released, that order must be fixed beforehand.
    """
    alpha = check_orders(orders)
    eps = np.asarray(epsilon, dtype=np.float64)
    for value in np.unique(eps):
        check_positive("epsilon", value)
    limit = eps[..., None] * (1 - _SAFETY) - _offset(alpha, delta, conversion)
    return np.where(limit > 0, limit, -np.inf)


def _offset(alpha: Floats, delta: ArrayLike, conversion: str) -> Floats:
    """What a conversion adds to the Rényi cost at every order."""
    target = np.asarray(delta, dtype=np.float64)
    for value in np.unique(target):
        check_delta(value)
    log_delta = np.log(target)[..., None]
    if conversion == "classic":
        return np.asarray(-log_delta / (alpha - 1))
    if conversion == "improved":
        return np.asarray(np.log1p(-1 / alpha) - (np.log(alpha) + log_delta) / (alpha - 1))
    raise InputError(f"conversion is {conversion!r}: it must be 'classic' or 'improved'")
