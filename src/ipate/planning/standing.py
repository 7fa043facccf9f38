"""What earlier runs on a ledger left of people's budgets, for the chooser of settings and for plans."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ipate._types import Floats
from ipate.accounting.bounds import Meter
from ipate.allocation.layout import Layout
from ipate.ledger.admission import Roster
from ipate.ledger.carry import usual_order
from ipate.ledger.records import NoiseKind, Terms
from ipate.ledger.sqlite import SqliteLedger, opening_accounts, runs_on
from ipate.people.budgets import Account, Budget
from ipate.people.people import People


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


def left_in(standing: Standing | None, layout: Layout) -> dict[str, Left]:
    """Return what is left to the accounts of a layout, by id; an account whose people paid nothing is left out."""
    found: dict[str, Left] = {}
    budgets = {account.id: account.group.budget for account in layout.groups}
    for group, home in layout.home.items():
        if standing is not None and group in standing.groups:
            own = standing.groups[group]
            found[home] = own if home not in found else found[home].joined(own, budgets[home])
    return found


def read_standing(path: Path, people: People, roster: Roster, *, meter: Meter, noise: NoiseKind) -> Standing | None:
    """Return what a ledger's runs left to the groups of `people`; None if they have spent nothing.

    Nothing is written, and questions that a ledger asks before a run are left to the run itself. `meter` is the run's.
    After private charges no balance is looked at: even whether a budget is spent would tell about them, for any ε that
    somebody cares to try.
    """
    if runs_on(path) and private_history(path):
        return Standing(ledger=path.name, groups={}, private=True)
    unit = meter.planning if meter.whole else meter
    fixed = unit.fixes_order
    terms = [
        Terms(
            account=Account(group=group, sensitivity=1.0),
            meter=unit.at_order(usual_order(group.epsilon, group.delta)) if fixed else unit,
        )
        for group in people.groups
    ]
    names = [group.id for group in people.groups]
    homes = {
        person: names[place] for person, place in zip(people.ids.tolist(), people.group_of_person.tolist(), strict=True)
    }
    asked = replace(roster, people=homes, new_people=True, accept_larger_budgets=True)
    rows = opening_accounts(path, terms, run="", noise=noise, people=asked)
    if not any(row.opening.any() for row in rows):
        return None
    groups = {
        row.id: Left(meter=row.terms.meter.planning, spent=row.opening, fixed=fixed)
        for row in rows
        if row.opening.any()
    }
    return Standing(ledger=path.name, groups=groups)


def private_history(path: Path) -> bool:
    """Whether what is left of budgets on a ledger may depend on private votes."""
    with SqliteLedger.open(path, readonly=True) as ledger:
        return bool(ledger.private_history)
