"""What a budget affords, as one number: the rules by which influence is shared out between groups.

A person who can move the weight Δ pays Δ² times what weight 1 costs, so influence that is proportional
to what a budget affords lets all groups exhaust together. Which number that is depends on the accounting.
"""

import difflib
import math
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NoReturn, Protocol

from ipate.accounting import gdp
from ipate.errors import InputError
from ipate.tables import check_number, show

__all__ = ["Budget", "affordance", "check_count", "check_distinct", "refuse_name"]


class Budget(Protocol):
    """Anything with an id and a budget (ε, δ): a group of people, of a panel, of an allocation."""

    @property
    def id(self) -> str:
        """The group's id."""
        ...

    @property
    def epsilon(self) -> float:
        """ε of the budget."""
        ...

    @property
    def delta(self) -> float:
        """δ of the budget."""
        ...


def affordance(rule: str, group: Budget) -> float:
    """Return what a group's budget affords: the weight that it may have, up to a common factor.

    Parameters
    ----------
    rule : {"gdp", "proportional", "classic", "uniform"}
        `gdp`: μ with (ε, δ) ⇔ μ-GDP, exact for Gaussian noise (Dong, Roth and Su 2022, Corollary 1).
        `proportional`: ε, as in the paper's appendix. `classic`: √(ε+L) − √L with L = ln(1/δ), the root
        of the largest ρ with ρ + 2√(ρL) ≤ ε, which the classic conversion affords. `uniform`: 1.
    """
    epsilon = check_number("epsilon", group.epsilon, of=group.id)
    delta = check_number("delta", group.delta, of=group.id)
    if rule == "gdp":
        return _mu(epsilon, delta)
    if rule == "proportional":
        return epsilon
    if rule == "classic":
        tail = -math.log(delta)
        return epsilon / (math.sqrt(epsilon + tail) + math.sqrt(tail))
    if rule != "uniform":
        refuse_name("rule", rule, ("gdp", "proportional", "classic", "uniform"))
    return 1.0


@lru_cache(maxsize=4096)
def _mu(epsilon: float, delta: float) -> float:
    return float(gdp.mu_of(epsilon, delta))


def refuse_name(what: str, name: object, allowed: Collection[str]) -> NoReturn:
    """Refuse a name that does not exist, with all that do and the nearest of them."""
    nearest = difflib.get_close_matches(str(name).casefold(), allowed, n=1, cutoff=0.0)[0]
    raise InputError(f"{what} is {show(name)}: allowed are {', '.join(allowed)}; nearest is {nearest!r}")


def check_count(what: str, value: object, *, least: int = 1) -> int:
    """Return a whole number that is at least `least`; refuse anything else by name."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or int(value.__index__()) < least:
        raise InputError(f"{what} is {show(value)}: it must be a whole number, {least} or above")
    return int(value.__index__())


def check_distinct(groups: Sequence[Budget]) -> None:
    """Refuse an empty list of groups, and an id that stands twice: costs follow ids."""
    ids = [group.id for group in groups]
    if not ids:
        raise InputError("there are no groups: at least one is needed")
    for place, name in enumerate(ids):
        if name in ids[:place]:
            raise InputError(f"group {show(name)} is there twice: ids must differ")
