"""The checks that every formula shares: a bad number is named, with what is allowed."""

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ipate.errors import InputError

__all__ = ["Floats", "check_delta", "check_orders", "check_positive", "check_sensitivity"]

Floats: TypeAlias = NDArray[np.float64]


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
