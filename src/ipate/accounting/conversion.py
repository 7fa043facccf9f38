"""Conversion between Rényi costs and (ε, δ), and checks of the numbers that go in."""

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ipate.errors import InputError, refuse_name

Floats: TypeAlias = NDArray[np.float64]
CONVERSIONS = ("classic", "improved")
_SAFETY = 1e-12  # budgets are read this much too small (relative), so that rounding never overspends


def check_positive(name: str, value: float) -> float:
    """Return `value` if it is finite and above 0; refuse it by name otherwise."""
    number = float(value)
    if not (np.isfinite(number) and number > 0):
        raise InputError(f"{name} is {value}: it must be a finite number above 0")
    return number


def check_delta(value: float, name: str = "delta") -> float:
    """Return δ if it lies strictly between 0 and 1; refuse it by name otherwise."""
    number = float(value)
    if not 0 < number < 1:
        raise InputError(f"{name} is {value}: it must lie strictly between 0 and 1, for example 1e-5")
    return number


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
    array = np.asarray(sensitivity, dtype=np.float64)
    bad = array[~(np.isfinite(array) & (array >= 0))]
    if bad.size:
        raise InputError(f"sensitivity is {bad.flat[0]:g}: it must be a finite number, 0 or above")
    return array


def epsilon_of(rdp: ArrayLike, orders: ArrayLike, *, delta: ArrayLike, conversion: str) -> tuple[Floats, Floats]:
    """Return the smallest ε over all orders for composed Rényi costs (..., A), and the order that gives it.

    classic: rdp + ln(1/δ)/(α−1), Mironov (2017), Proposition 3. improved: rdp + ln(1−1/α) − ln(αδ)/(α−1), Canonne,
    Kamath and Steinke, "The discrete Gaussian for differential privacy" (2020), Proposition 12; never below 0.
    Where nothing was released (the cost is 0 at every order) ε is 0 and the order is NaN.
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


def rdp_limit(orders: ArrayLike, *, epsilon: ArrayLike, delta: ArrayLike, conversion: str) -> Floats:
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
    if conversion != "improved":
        refuse_name("conversion", conversion, CONVERSIONS)
    return np.asarray(np.log1p(-1 / alpha) - (np.log(alpha) + log_delta) / (alpha - 1))
