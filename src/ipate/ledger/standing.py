"""What earlier runs on a ledger left of people's budgets, for the chooser of settings and for plans."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ipate._types import Floats
from ipate.accounting.bounds import Meter
from ipate.people.budgets import Account, Budget


@dataclass(frozen=True, kw_only=True, eq=False)
class Left:
    """What earlier runs charged to the member of a group who paid most, in the unit that the next run counts in.

    `fixed` says that the orders of the unit are settled, so that a cost must fit at all of them.
    """

    meter: Meter
    spent: Floats
    fixed: bool

    def epsilon(self, budget: Budget) -> float:
        """Return the ε at a budget's δ that was spent: the largest over orders that are settled, else the best."""
        if not self.fixed:
            return float(self.meter.epsilon(self.spent, budget.delta)[0])
        units = (self.meter.at_order(order) for order in self.meter.orders)
        return max(float(unit.epsilon([cost], budget.delta)[0]) for unit, cost in zip(units, self.spent, strict=True))

    def share(self, budget: Budget) -> float:
        """Return the share of a budget that is left, from 0 to 1."""
        limit = self.meter.limit(budget.epsilon, budget.delta)
        left = np.clip(limit - self.spent, 0.0, None) / np.where(
            limit > 0, limit, np.inf
        )  # an order may afford nothing
        return float(left.min() if self.fixed else left.max())

    def of(self, limit: Floats, meter: Meter, budget: Budget) -> Floats:
        """Return what is left of a limit in another unit: exact in its own one, and else the same share."""
        return np.maximum(limit - self.spent, 0.0) if meter == self.meter else limit * self.share(budget)

    def joined(self, other: "Left", budget: Budget) -> "Left":
        """Return what is left to an account of both: the larger spending, or in different units the smaller share."""
        if self.meter == other.meter:
            return replace(self, spent=np.maximum(self.spent, other.spent))
        return min(self, other, key=lambda left: left.share(budget))


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What earlier runs on a ledger left to groups of people; groups that paid nothing are left out.

    If a run was charged by costs that depend on private votes, what is left is `private` and no group is listed: plans
    then count whole budgets and say so.
    """

    ledger: str  # the name of its file
    groups: Mapping[str, Left]
    private: bool = False

    def joined(self, group: str, into: str, budget: Budget) -> "Standing":
        """Return the standing after the people of a group have joined another one that has this budget."""
        found = [self.groups[name] for name in (group, into) if name in self.groups]
        if not found:
            return self
        both = found[0] if len(found) == 1 else found[0].joined(found[1], budget)
        return replace(self, groups={**self.groups, into: both})


def left_in(standing: Standing | None, accounts: Sequence[Account], homes: Mapping[str, str]) -> dict[str, Left]:
    """Return what is left to accounts, by id; an account whose people paid nothing is left out.

    `homes` says for every group of people in which account they are.
    """
    found: dict[str, Left] = {}
    budgets = {account.id: account.group.budget for account in accounts}
    for group, home in homes.items():
        if standing is not None and group in standing.groups:
            own = standing.groups[group]
            found[home] = own if home not in found else found[home].joined(own, budgets[home])
    return found
