"""Consent policies: a mapping from consent levels to ε, usually set by an ethics board."""

import datetime as dt
import math
import tomllib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ipate.errors import InputError, PolicyWarning, check_id, check_number, show, unknown_name
from ipate.files import FilePath

_SETTINGS = ("max_epsilon", "delta", "version", "date")  # keys of a policy that are no levels


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The ε of every consent level, with an optional upper limit and δ.

    Levels name the degree of privacy, so 'high' has the smallest ε.

    Attributes
    ----------
    levels : mapping of str to float
        The ε of every level.
    max_epsilon : float, optional
        The largest ε that is allowed.
    delta : float, optional
        The default δ, and the largest that is allowed.
    version : str, optional
        The version of the policy, which people agree to.
    date : date, optional
        The day from which the version is valid.
    """

    levels: Mapping[str, float]
    max_epsilon: float | None = None
    delta: float | None = None
    version: str | None = None
    date: dt.date | None = None

    def __post_init__(self) -> None:
        if not self.levels:
            raise InputError("the policy has no levels: it must have at least one, such as high = 1.0")
        levels = {check_id(name, what="level"): value for name, value in self.levels.items()}
        for name, value in levels.items():
            if name in _SETTINGS or set(name) & set("=+,"):
                taken = ", ".join(_SETTINGS)
                raise InputError(f"level is {show(name)}: it must not contain = + , or be one of {taken}")
            levels[name] = check_number("epsilon", value, what=f"epsilon of level {show(name)}")
        object.__setattr__(self, "levels", MappingProxyType(levels))
        if self.delta is not None:
            object.__setattr__(self, "delta", check_number("delta", self.delta, what="delta of the policy"))
        if self.max_epsilon is not None:
            most = check_number("epsilon", self.max_epsilon, what="max_epsilon")
            object.__setattr__(self, "max_epsilon", most)
            for name, value in levels.items():
                if value > most:
                    allowed = f"at most max_epsilon = {most!r} is allowed"
                    raise InputError(f"epsilon of level {show(name)} is {value!r}: {allowed}")
        if levels.get("high", 0.0) > levels.get("low", math.inf):
            warnings.warn(
                f"the policy gives 'high' epsilon = {levels['high']!r} and 'low' {levels['low']!r}: "
                "levels name privacy, so 'high' should have the smaller epsilon",
                PolicyWarning,
                stacklevel=3,
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_mapping, ({**self.levels, **{name: getattr(self, name) for name in _SETTINGS}},)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """Make a policy from level names and their ε, and optionally `max_epsilon`, `delta`, `version` and `date`."""
        levels = {name: value for name, value in mapping.items() if name not in _SETTINGS}
        version, since = mapping.get("version"), mapping.get("date")
        return cls(
            levels=levels,
            max_epsilon=mapping.get("max_epsilon"),
            delta=mapping.get("delta"),
            version=None if version is None else check_version(version),
            date=None if since is None else check_date(since, what="date of the policy"),
        )

    @classmethod
    def from_file(cls, path: FilePath) -> Self:
        """Read a policy from a TOML file of lines such as `high = 1.0`."""
        try:
            with open(path, "rb") as file:
                return cls.from_mapping(tomllib.load(file))
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{path} is not valid TOML: {' '.join(str(error).split())}") from None
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    def unknown(self, level: object) -> str:
        """Return the message for an unknown level, with the allowed levels and the most similar one."""
        return unknown_name("level", level, tuple(self.levels))


def check_version(value: Any) -> str:
    """Return the version of a policy as text; a number is read as text, so that 2 and "2" are the same version."""
    text = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not text or len(text) > 60:
        raise InputError(f"version of the policy is {show(value)}: it must be text of 1 to 60 characters")
    return text


def check_date(value: Any, *, what: str) -> dt.date:
    """Return a day from a date, or from text such as 2026-01-31."""
    if isinstance(value, dt.datetime):
        return value.date()
    if isinstance(value, dt.date):
        return value
    try:
        return dt.datetime.fromisoformat(str(value).strip()).date()
    except ValueError:
        raise InputError(f"{what} is {show(value)}: it must be a day such as 2026-01-31") from None


def check_consent_day(value: Any, *, what: str) -> dt.date:
    """Return a day of consent; refuse one that is in the future in every time zone."""
    day = check_date(value, what=what)
    if day > dt.datetime.now(dt.UTC).date() + dt.timedelta(days=1):
        raise InputError(f"{what} is {show(value)}: it is in the future")
    return day


def agreed_before(days: NDArray[np.str_], person: NDArray[np.int64], since: dt.date) -> NDArray[np.bool_]:
    """Return the rows of people whose latest day of consent is before a policy was valid: they agreed to another one.

    `person` has the number of the person of every row.
    """
    numbers = np.asarray(days, dtype="datetime64[D]").astype(np.int64)
    latest = np.full(int(person.max(initial=-1)) + 1, np.iinfo(np.int64).min)
    np.maximum.at(latest, person, numbers)
    return np.asarray(latest[person] < np.datetime64(since, "D").astype(np.int64))
