"""Which engine turns private rows into labels, teachers or ballots, from public figures alone."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

from ipate.accounting.bounds import Meter
from ipate.allocation import BASELINE
from ipate.ballots.design import ENOUGH, Design, about, ballot_terms, make_design
from ipate.ballots.voters import ballot_layout
from ipate.errors import BudgetExceededError, InputError, refuse_name
from ipate.people.budgets import Budget, Group

Voting: TypeAlias = Literal["teachers", "ballots"]
ENGINES = ("teachers", "ballots", "auto")
BALLOTS = "ballots"
_ANYBODY = Group(id="anybody", budget=Budget(1.0, 1e-5), people=1)
POOL_PER_CLASS = 50  # points: a smaller pool has too few cells for ballots


def ballot_design(
    groups: Sequence[Group], *, n_public: int, n_classes: int, variant: str = "weighting", meter: Meter | None = None
) -> Design:
    """Return the release of ballots that these budgets afford on a pool of `n_public` points."""
    counted = [account.group for account in ballot_layout(variant, groups, meter).groups]
    return make_design(ballot_terms(counted, meter), n_classes=n_classes, n_pool=n_public)


def ballot_designs(groups: Sequence[Group], *, n_public: int, n_classes: int) -> dict[str, Design]:
    """Return the designs for everybody's own budget and for the strictest one, by variant; none if all are tiny."""
    try:
        return {
            name: ballot_design(groups, n_public=n_public, n_classes=n_classes, variant=name)
            for name in (BASELINE, "weighting")
        }
    except BudgetExceededError:
        return {}


def suits_ballots(variant: str, bound: str) -> bool:
    """Whether ballots know a variant, and a bound prices them for all data."""
    try:
        meter = Meter(bound)
        return not meter.whole and meter.data_independent and bool(ballot_layout(variant, (_ANYBODY,), meter).groups)
    except InputError:
        return False


def choose_voting(
    asked: str, groups: Sequence[Group], *, n_public: int, n_classes: int, nets: bool = False, suited: bool = True
) -> tuple[Voting, str]:
    """Return the engine, and for "auto" the reason for it.

    "auto" takes ballots where they are reliable, because they gave the better student in every cell of the comparison
    in docs/ballots.md: all weights together must be 12 times the noise per class, and the pool must have 50 points
    per class. Teachers that are nets (`nets`) learn features of their own, which ballots do not have. `suited` is false
    where something else that was asked for is for teachers alone.
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
    designs = ballot_designs(groups, n_public=n_public, n_classes=n_classes)
    per_class = designs["weighting"].per_class if designs else 0.0
    if per_class < ENOUGH:
        return "teachers", (
            f"auto chose teachers, because all ballots together weigh {about(per_class)} noise deviations per class, "
            f"and {ENOUGH:g} are needed"
        )
    return "ballots", f"auto chose ballots, whose weight is {about(per_class)} noise deviations per class"
