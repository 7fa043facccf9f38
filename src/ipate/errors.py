"""All exceptions and warnings, and checks of single values."""

import difflib
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NoReturn


class IpateError(Exception):
    """The base class of all errors that ipate raises."""


class InputError(IpateError, ValueError):
    """An invalid value; the message names it and says what is allowed."""


class TooFewLabelsError(InputError):
    """Budgets and pool afford too few labels for a student."""


class BudgetExceededError(IpateError):
    """A charge exceeds an account's budget; nothing was charged and nothing released."""


class DeltaWarning(UserWarning):
    """A δ of 1/N or more, which permits publishing the data of one of N people."""


class PolicyWarning(UserWarning):
    """A policy that gives 'high' privacy a larger ε than 'low'."""


class ClassesWarning(UserWarning):
    """The set of classes was read off the labels or votes, so it is treated as public."""


class PublicRowsWarning(UserWarning):
    """Rows of the training data were treated as public: the guarantee does not cover them."""


class RepeatedFitWarning(UserWarning):
    """A cross-validation or a search fits on private data, and each of its fits spends everybody's budget again."""


class ReproductionWarning(UserWarning):
    """A rule for comparison with the paper only, which gives large strict groups more weight."""


class SimilarIdsWarning(UserWarning):
    """Ids of people differ only in case or leading zeros, so one person may have two budgets."""


class LedgerWarning(UserWarning):
    """A fit without a ledger: budgets are counted for this fit alone, and the next fit spends them again."""


class LostWorkersError(IpateError):
    """Worker processes cannot be started or replaced, so some teachers could not be trained."""


@dataclass(frozen=True, kw_only=True)
class TeacherFailure:
    """A teacher that could not be trained: its index, its training rows, and the reason."""

    teacher: int
    points: tuple[int, ...]
    reason: str

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.points[:8])) + (", …" if len(self.points) > 8 else "")
        return f"teacher {self.teacher} ({len(self.points)} points: {shown}): {self.reason}"


class TrainingError(IpateError, RuntimeError):
    """Some teachers failed; the others are trained and kept.

    Attributes
    ----------
    failures : tuple of TeacherFailure
    ensemble : Ensemble
        All teachers; those that failed vote for a fixed class.
    """

    def __init__(self, failures: Sequence[TeacherFailure], ensemble: Any) -> None:
        self.failures, self.ensemble = tuple(failures), ensemble
        rest = f"; and {len(self.failures) - 3} more" if len(self.failures) > 3 else ""
        named = "; ".join(str(failure) for failure in self.failures[:3])
        super().__init__(f"{len(self.failures)} of {ensemble.n_teachers} teachers failed: {named}{rest}")


LEAST_EPSILON, MOST_EPSILON, LEAST_DELTA = 1e-12, 1e4, 1e-12
"""Budgets are limited to what doubles account for exactly and what can be called protection."""
LIMITS: Mapping[str, tuple[Callable[[Any], Any], str]] = {
    "epsilon": (
        lambda value: (value >= LEAST_EPSILON) & (value <= MOST_EPSILON),
        (
            f"it must be a finite number above 0, from {LEAST_EPSILON:g} (less is lost in rounding) to "
            f"{MOST_EPSILON:,.0f} (more, a factor above e^{MOST_EPSILON:.0f}, protects nobody)"
        ),
    ),
    "delta": (
        lambda value: (value >= LEAST_DELTA) & (value < 1),
        f"it must lie strictly between 0 and 1, for example 1e-5, and not below {LEAST_DELTA:g} (lost in rounding)",
    ),
    "sensitivity": (lambda value: (value >= 0) & (value < math.inf), "it must be a finite number, 0 or above"),
    "weight": (lambda value: (value >= 0) & (value < math.inf), "it must be a finite number, 0 or above"),
}
"""For each quantity a test, which works on numbers and arrays and fails for NaN, and its description."""


def show(value: object) -> str:
    """Return the value as one short line, so that every message stays on one line."""
    plain = value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value
    text = " ".join(repr(plain).split("\n"))
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text)} characters)"


def check_number(kind: str, value: object, *, what: str | None = None, of: object = None) -> float:
    """Return `value` as a float if it is a number within `LIMITS[kind]`; refuse it otherwise.

    The message calls the value `what`, or else the `kind` of `of`.
    """
    test, allowed = LIMITS[kind]
    try:
        number = math.nan if isinstance(value, bool | str | bytes) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not test(number):
        name = what or (kind if of is None else f"{kind} of {show(of)}")
        raise InputError(f"{name} is {show(value)}: {allowed}")
    return number


def check_id(value: object, *, what: str = "group") -> str:
    """Return an id if it is printable text without surrounding spaces; '01' and '1' are two ids."""
    if not isinstance(value, str) or not value or value != value.strip() or not value.isprintable():
        raise InputError(f"{what} is {show(value)}: it must be printable text without surrounding spaces")
    return str(value)


def nearest(name: object, names: Iterable[str]) -> str:
    """Return the one of `names` that was probably meant, ignoring case; there must be at least one."""
    folded = {other.casefold(): other for other in names}
    return folded[difflib.get_close_matches(str(name).casefold(), folded, n=1, cutoff=0.0)[0]]


def unknown_name(what: str, name: object, allowed: Collection[str]) -> str:
    """Return the message for an unknown name, which lists the allowed names and the nearest of them."""
    return f"{what} is {show(name)}: allowed are {', '.join(allowed)}; nearest is {show(nearest(name, allowed))}"


def refuse_name(what: str, name: object, allowed: Collection[str]) -> NoReturn:
    """Refuse an unknown name with the message of `unknown_name`."""
    raise InputError(unknown_name(what, name, allowed))


def check_count(what: str, value: object, *, least: int = 1) -> int:
    """Return a whole number that is at least `least`; refuse anything else."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or int(value.__index__()) < least:
        raise InputError(f"{what} is {show(value)}: it must be a whole number, {least} or above")
    return int(value.__index__())


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def import_part(what: str, name: str) -> Any:
    """Return the object that module:attribute names, such as an engine or a model that is not part of this package."""
    module, _, attribute = name.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"{what} is {name!r}: it cannot be imported ({error}); a module is looked for on Python's path and in the "
            "folder of the TOML file"
        ) from None
