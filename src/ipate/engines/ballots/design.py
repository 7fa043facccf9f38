"""The design of a release of ballots, from public figures alone: weights, number of cells, cost of every account.

A person's ballot moves the histogram by at most √2 times their weight w (docs/proofs/ballots.md), so it costs them
2w²/σ² in μ², and w = μ/√2 uses up a budget of μ. The noise has σ = 1 throughout: only ratios of weights to σ matter.

Who casts ballots: an allocation without teachers, in which every person votes for themselves.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ipate._types import Floats
from ipate.accounting.bounds import Meter, best_order
from ipate.allocation.allocation import Allocation
from ipate.allocation.layout import Layout, check_distinct, strictest_of
from ipate.engines.base import Table
from ipate.engines.context import BASELINE
from ipate.errors import BudgetExceededError, InputError, check_count, counted
from ipate.ledger.records import Terms
from ipate.ledger.standing import Standing
from ipate.people.budgets import Account, Group
from ipate.people.people import People
from ipate.public.cells import PARTITIONS, usual_cells

SIGMA = 1.0
GRID = 2.0**-20  # what a person adds to an entry of the histogram is a whole multiple of this
ENOUGH = 12.0  # Σw/σ per class: below it, labels are unreliable
POINTS_PER_CLASS = 5  # a smaller pool has fewer cells than classes
LEAST = 1.0  # Σw/σ per class: below it, labels are noise
_UP = 2.0**-51  # the root of the partitions and its product are each off by 2^-53 at most (relative)
VARIANTS = ("weighting", BASELINE)  # by each budget, or at the strictest one
FULL = 10.0  # Σw/(mσ): beyond it, more weight improves no label, so the rest stays in the accounts


def about(weight: float) -> str:
    """Format the weight of all ballots for a sentence, rounded down to two digits: more would tell groups' sizes."""
    step = 10.0 ** (math.floor(math.log10(weight)) - 1) if weight > 0 else 1.0
    return f"{math.floor(weight / step + 1e-9) * step:,.10g}"


def figure(weight: float) -> str:
    """Format a weight for a table: three digits, or all of a larger whole number."""
    return f"{weight:,.0f}" if weight >= 100 else f"{weight:.3g}"


@dataclass(frozen=True, kw_only=True)
class Design:
    """Everything about a release of ballots that is public before it: it depends on no private row.

    `units` has, by account id, what one row adds to its cell in each partition, in multiples of `GRID`.
    """

    units: Mapping[str, int]
    people: Mapping[str, int]  # by account id, everybody who was ever counted in, whether they have rows or not
    terms: Mapping[str, Terms]
    partitions: int
    cells: int
    n_classes: int
    affordable: float  # Σw/σ that all budgets together afford
    share: float  # of it that is used

    @cached_property
    def weights(self) -> dict[str, float]:
        """The weight w of one person's ballot, by account id: √r·u, rounded up."""
        root = math.sqrt(self.partitions)
        exact = root == int(root)
        found = {account: root * (units * GRID) for account, units in self.units.items()}
        return found if exact else {account: weight * (1 + _UP) for account, weight in found.items()}

    @property
    def costs(self) -> dict[str, Floats]:
        """The cost of one person's ballot, by account id, whether or not they cast one."""
        return {account: _price(self.terms[account], weight) for account, weight in self.weights.items()}

    @property
    def total(self) -> float:
        """Σw/σ of all people."""
        return math.fsum(self.people[account] * weight for account, weight in self.weights.items())

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of the histogram: partitions, cells, classes."""
        return self.partitions, self.cells, self.n_classes

    @property
    def per_class(self) -> float:
        """Σw/σ per class, by which a user can tell before the release whether labels will be reliable."""
        return self.affordable / self.n_classes

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know, from public figures alone."""
        found = []
        if self.per_class < ENOUGH:
            found.append(
                f"ballots: the budgets afford a total weight of {about(self.affordable)} noise deviations for "
                f"{self.n_classes} classes, {about(self.per_class)} per class; below {ENOUGH:g} per class many labels "
                "will be wrong: more people or larger budgets are needed"
            )
        if self.share < 1:
            full = self.total > 0.99 * FULL * self.cells * SIGMA
            why = f"; more would improve no label with {self.cells} cells, so" if full else ", and"
            found.append(
                f"ballots: {100 * self.share:.0f}% of the affordable weight is used{why} the rest of every budget "
                "stays in the account"
            )
        return tuple(found)

    def check_useful(self, *, private: bool = False) -> None:
        """Refuse a release whose labels would be noise, because little or nothing is left of the budgets.

        Where what is left is `private`, how much it is is not told.
        """
        if self.per_class < LEAST:
            weight = "too little" if private else f"a total weight of {self.affordable:.2g} noise deviations"
            raise BudgetExceededError(
                f"ballots: what is left of the budgets affords {weight} for {self.n_classes} classes; below {LEAST:g} "
                "per class labels are noise, so nothing was charged: more people or larger budgets are needed"
            )

    def as_json(self) -> dict[str, Any]:
        """Return the design as plain data."""
        return {
            "partitions": self.partitions,
            "cells": self.cells,
            "classes": self.n_classes,
            "sigma": SIGMA,
            "affordable_weight": self.affordable,
            "share_used": self.share,
            "weight": self.total,
            "weight_per_class": self.per_class,
            "weights": self.weights,
        }


def ballot_terms(groups: Sequence[Group], meter: Meter | None = None) -> list[Terms]:
    """Return one account per group; its sensitivity is the weight that the whole budget affords.

    Under loose and sup every account has one Rényi order, the one at which its budget affords most.
    """
    unit = meter or Meter("gdp")
    if unit.whole or not unit.data_independent:
        raise InputError(f"bound is {unit.bound!r}: ballots have a cost for all data; use gdp")
    made = []
    for group in groups:
        own = unit
        if unit.fixes_order:
            price = unit.vector_cost(sensitivity=1.0, sigma=SIGMA)
            own = unit.at_order(best_order(unit, epsilon=group.epsilon, delta=group.delta, label=price))
        blank = Terms(account=Account(group=group, sensitivity=0.0), meter=own)
        weight = _affordable(blank, blank.limit)
        made.append(Terms(account=Account(group=group, sensitivity=weight), meter=own))
    return made


def make_design(
    terms: Sequence[Terms],
    *,
    n_classes: int,
    n_pool: int,
    spent: Mapping[str, Floats] | None = None,
    partitions: int = PARTITIONS,
    cells: int | None = None,
) -> Design:
    """Choose weights and the number of cells from budgets, what was spent of them, classes and pool.

    The numbers of people of the groups include people who have withdrawn, so that nobody's leaving can be seen.
    """
    check_count("n_classes", n_classes, least=2)
    if check_count("the number of points in the pool", n_pool) < POINTS_PER_CLASS * n_classes:
        raise InputError(
            f"the pool has {counted(n_pool, 'point')} for {n_classes} classes: ballots need at least "
            f"{POINTS_PER_CLASS * n_classes}, {POINTS_PER_CLASS} per class, and some hundred give good labels; nothing "
            "was charged"
        )
    root = math.sqrt(check_count("partitions", partitions))
    held = {entry.account.id: entry for entry in terms}
    people = {
        name: check_count(f"the number of people of group {name!r}", entry.account.people)
        for name, entry in held.items()
    }
    left = {name: entry.limit - (spent or {}).get(name, np.zeros(entry.meter.width)) for name, entry in held.items()}
    weights = {name: _affordable(entry, left[name]) for name, entry in held.items()}
    total = math.fsum(people[name] * weight for name, weight in weights.items())
    m = usual_cells(total / SIGMA, n_classes=n_classes, n_pool=n_pool) if cells is None else check_count("cells", cells)
    share = min(1.0, FULL * m * SIGMA / total) if total > 0 else 1.0
    units = {name: math.floor(share * weight / root / GRID) for name, weight in weights.items()}
    for name, entry in held.items():  # a last bit of rounding must not pass the budget
        while units[name] > 0 and not np.all(_price(entry, root * (units[name] * GRID) * (1 + 1e-15)) <= left[name]):
            units[name] -= 1
    if not any(units.values()):
        raise BudgetExceededError("no budget is left for ballots: nobody's ballot would have any weight")
    return Design(
        units=units,
        people=people,
        terms=held,
        partitions=partitions,
        cells=m,
        n_classes=n_classes,
        affordable=total / SIGMA,
        share=share,
    )


def state_design(
    terms: Sequence[Terms], *, shape: tuple[int, int, int], units: Mapping[str, int] | None = None
) -> Design:
    """Return the design of ballots that were cast elsewhere with these units; default: those of whole budgets.

    Units that a budget does not afford are refused.
    """
    partitions, cells, n_classes = shape
    endless = 2**53  # so many cells that no part of a budget is left over
    whole = make_design(terms, n_classes=n_classes, n_pool=endless, partitions=partitions, cells=endless)
    if units is None:
        return replace(whole, cells=cells)
    if set(units) != set(whole.units):
        raise InputError(f"units are given for {sorted(units)}, and the groups are {sorted(whole.units)}")
    for name, most in whole.units.items():
        if not 0 <= units[name] <= most:
            raise InputError(f"units of group {name!r} is {units[name]}: its budget affords whole numbers up to {most}")
    if not any(units.values()):
        raise InputError("all units are 0: nobody's ballot has any weight")
    made = replace(whole, cells=cells, units=dict(units))
    return replace(made, share=min(1.0, made.total / whole.total))


def _price(terms: Terms, weight: float) -> Floats:
    """Return the cost of a ballot of this weight: that of a vector which moves by √2·w."""
    return terms.meter.vector_cost(sensitivity=weight, sigma=SIGMA)


def _affordable(terms: Terms, left: Floats) -> float:
    """Return the weight whose cost is what is left: costs grow with its square."""
    best = float(np.min(left / _price(terms, 1.0)))  # an account that has fixed several orders pays at all of them
    return math.sqrt(best) if best > 0 else 0.0


def ballot_layout(variant: str, groups: Sequence[Group], meter: Meter | None = None, **options: object) -> Layout:
    """Return the accounts of a release of ballots: a person's weight is what their budget affords.

    Under "weighting" every group has its own budget, under "standard" everybody has the strictest one. The other
    variants are about several teachers per person, and ballots have none.
    """
    check_distinct(groups)
    if options:
        raise InputError(
            f"{next(iter(options))!r} is an option of teachers: ballots are weighted by what budgets afford"
        )
    named, home, notes = _counted(variant, groups)
    accounts = tuple(terms.account for terms in ballot_terms(named, meter))
    return Layout(
        variant=variant,
        rule="gdp",
        groups=accounts,
        teachers={group.id: 0 for group in named},
        home=home,
        weights=np.zeros(0),
        teacher_groups=(),
        copies={group.id: 1 for group in named},
        notes=notes,
    )


def _counted(variant: str, groups: Sequence[Group]) -> tuple[tuple[Group, ...], Mapping[str, str], tuple[str, ...]]:
    """Return the groups that count, where every group counts, and what somebody should know."""
    if variant not in VARIANTS:
        raise InputError(f"variant is {variant!r}: ballots are weighted by budgets; use weighting or standard")
    if variant == BASELINE:
        everyone, notes = strictest_of(groups)
        return (everyone,), {group.id: everyone.id for group in groups}, notes
    return tuple(groups), {group.id: group.id for group in groups}, ()


def allocate_ballots(variant: str, *, people: People, seed: int, meter: Meter | None = None) -> Allocation:
    """Return the allocation of ballots; people who withdraw from it stay counted, and their ballots are empty."""
    return Allocation(
        layout=ballot_layout(variant, people.groups, meter),
        people=people,
        seed=seed,
        offsets=np.zeros(1, dtype=np.int64),
        persons=np.zeros(0, dtype=np.int64),
    )


def voters(allocation: Allocation) -> People:
    """Return the people of an allocation in the groups that they count with."""
    groups = tuple(account.group for account in allocation.groups)
    return replace(allocation.people, groups=groups, group_of_person=allocation.group_of_person.copy())


def state_ballots(design: Design, standing: Standing | None) -> str:
    """Return the reason for the size of a release of ballots, unless what is left of the budgets is private."""
    if standing is not None and standing.private:
        return "ballots; their weight is not stated, because what earlier runs left of the budgets is private"
    left = "" if standing is None else " from what earlier runs left of the budgets"
    return (
        f"ballots with a total weight of {about(design.total)} noise deviations{left}, "
        f"{about(design.total / design.n_classes)} per class, in {counted(design.partitions, 'partition')} of "
        f"{counted(design.cells, 'cell')}"
    )


def tabulate(designs: Mapping[str, Design], n_pool: int) -> Table:
    """Return what ballots weigh, by whose budget counts."""
    told = (
        "Every person casts one weighted vote and all labels cost one release (--voting ballots). Labels are reliable "
        f"from a weight of {ENOUGH:g} per class; about 6 per cell are aimed at."
    )
    return Table(
        title=f"Ballots: one release that labels all {n_pool} points of the pool",
        columns=("budgets", "all ballots weigh", "per class", "cells", "per cell", "used"),
        rows=tuple(
            (
                "the strictest for all" if name == BASELINE else "individual",
                figure(design.affordable),
                figure(design.per_class),
                f"{design.partitions} × {design.cells}",
                figure(design.total / design.cells),
                f"{design.share:.0%}",
            )
            for name, design in designs.items()
        ),
        notes=(told, *(note for name, design in designs.items() if name != BASELINE for note in design.notes)),
    )
