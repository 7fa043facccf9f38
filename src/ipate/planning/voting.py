"""Which engine turns private rows into labels, teachers or ballots, from public figures alone."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Literal, TypeAlias

from ipate.accounting.bounds import Meter
from ipate.engines.ballots.design import (
    ENOUGH,
    POINTS_PER_CLASS,
    Design,
    about,
    ballot_layout,
    ballot_terms,
    make_design,
)
from ipate.engines.teachers.variants import BASELINE
from ipate.errors import BudgetExceededError, InputError, refuse_name
from ipate.people.budgets import Budget, Group
from ipate.planning.standing import Standing, left_in

Voting: TypeAlias = Literal["teachers", "ballots"]
ENGINES = ("teachers", "ballots", "auto")
BALLOTS = "ballots"
_ANYBODY = Group(id="anybody", budget=Budget(1.0, 1e-5), people=1)
POOL_PER_CLASS = 50  # points: a smaller pool has too few cells for ballots


def ballot_design(
    groups: Sequence[Group],
    *,
    n_public: int,
    n_classes: int,
    variant: str = "weighting",
    meter: Meter | None = None,
    standing: Standing | None = None,
) -> Design:
    """Return the release of ballots that these budgets, or what is left of them, afford on a pool of `n_public` points.

    What is left is counted in the unit of the ledger.
    """
    layout = ballot_layout(variant, groups, meter)
    left = left_in(standing, layout)
    terms = [
        replace(entry, meter=left[entry.account.id].meter) if entry.account.id in left else entry
        for entry in ballot_terms([account.group for account in layout.groups], meter)
    ]
    spent = {name: own.spent for name, own in left.items()}
    return make_design(terms, n_classes=n_classes, n_pool=n_public, spent=spent)


def ballot_designs(
    groups: Sequence[Group], *, n_public: int, n_classes: int, standing: Standing | None = None
) -> dict[str, Design]:
    """Return the designs for everybody's own budget and for the strictest one, by variant.

    One that has no budget is left out, because all are tiny or spent, and both are where the pool is too small.
    """
    found: dict[str, Design] = {}
    for name in (BASELINE, "weighting") if n_public >= POINTS_PER_CLASS * n_classes else ():
        with suppress(BudgetExceededError):
            found[name] = ballot_design(groups, n_public=n_public, n_classes=n_classes, variant=name, standing=standing)
    return found


def suits_ballots(variant: str, bound: str) -> bool:
    """Whether ballots know a variant, and a bound prices them for all data."""
    try:
        meter = Meter(bound)
        return not meter.whole and meter.data_independent and bool(ballot_layout(variant, (_ANYBODY,), meter).groups)
    except InputError:
        return False


def choose_voting(
    asked: str,
    groups: Sequence[Group],
    *,
    n_public: int,
    n_classes: int,
    nets: bool = False,
    suited: bool = True,
    standing: Standing | None = None,
) -> tuple[Voting, str]:
    """Return the engine, and for "auto" the reason for it.

    "auto" takes ballots where they are reliable, because they gave the better student in every cell of the comparison
    in docs/ballots.md: all weights together must be 12 times the noise per class, and the pool must have 50 points
    per class. Teachers that are nets (`nets`) learn features of their own, which ballots do not have. `suited` is false
    where something else that was asked for is for teachers alone. What earlier runs left of the budgets counts, unless
    it is private (`standing`).
    """
    if asked not in ENGINES:
        refuse_name("voting", asked, ENGINES)
    if asked != "auto":
        return ("ballots" if asked == BALLOTS else "teachers"), ""
    if not suited:
        return "teachers", "auto chose teachers, because parameters of teachers are given"
    if nets:
        return "teachers", "auto chose teachers, because nets learn features of their own"
    if n_public < POOL_PER_CLASS * n_classes:
        return "teachers", (
            f"auto chose teachers, because the pool has {n_public} points for {n_classes} classes, and cells of "
            f"ballots need {POOL_PER_CLASS} per class"
        )
    designs = ballot_designs(groups, n_public=n_public, n_classes=n_classes, standing=standing)
    whole = " of whole budgets" if standing is not None and standing.private else ""
    per_class = designs["weighting"].per_class if "weighting" in designs else 0.0
    if per_class < ENOUGH:
        return "teachers", (
            f"auto chose teachers, because all ballots{whole} together weigh {about(per_class)} noise deviations per "
            f"class, and {ENOUGH:g} are needed"
        )
    return "ballots", f"auto chose ballots{whole}, whose weight is {about(per_class)} noise deviations per class"
