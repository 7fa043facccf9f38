"""How votes are weighted and which account pays, for every variant that the paper compares.

Budgets are given out at random, so an ensemble's teachers are exchangeable: the first ones belong to the first group.
The published code pairs weights and budgets wrongly; `as_published` reproduces that error to measure its effect.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from ipate.allocation import lay_out
from ipate.allocation.layout import Layout
from ipate.allocation.participation import Participation
from ipate.errors import InputError, ReproductionWarning
from ipate.labelling.aggregators import Mechanism
from ipate.people.budgets import Account, Budget, Group
from ipate.reproduce.models import Ensemble
from ipate.reproduce.paper import DELTA, HIGHER, LOWER, SHARES, TABLE1
from ipate.votes.panel import Panel

Budgets: TypeAlias = Mapping[str, tuple[float, float]]
"""Group id → (ε, share of the people)."""
_PEOPLE = 100_000  # shares are converted to whole people


@dataclass(frozen=True, kw_only=True, eq=False)
class Scheme:
    """The weights and accounts of a variant, its noise, and for vanishing who takes part in which query."""

    panel: Panel
    mechanism: Mechanism
    schedule: Participation | None = None


def two_groups(lower: float, higher: float, share: float) -> Budgets:
    """Return two groups; `share` of the people have the higher budget."""
    return {"low": (lower, 1 - share), "high": (higher, share)}


BASELINE_BUDGETS = two_groups(LOWER, LOWER, 0.5)
TWO_GROUPS: Mapping[tuple[str, float], Budgets] = MappingProxyType(
    {(higher, share): two_groups(LOWER, HIGHER[higher], share) for higher in HIGHER for share in SHARES}
)
"""(higher budget, share of the people who have it) → the two groups of the main experiments."""
THREE_GROUPS: Mapping[str, Budgets] = MappingProxyType(
    {name: dict(zip("123", zip((1.0, 2.0, 3.0), shares, strict=True), strict=True)) for name, shares in TABLE1.items()}
)
"""Table 1's shares → its groups at ε = 1, 2 and 3, whose ids are their budgets."""


def setting_name(higher: str, share: float) -> str:
    """Name one of `TWO_GROUPS` for a table's row."""
    return f"{share:.0%} at {higher}"


def standard(ensemble: Ensemble, given: Budgets, *, mechanism: Mechanism | None = None) -> Scheme:
    """Charge everybody against the smallest budget, as standard PATE must."""
    epsilon = min(value for value, _ in given.values())
    group = Account(group=Group(id="everybody", budget=Budget(epsilon, DELTA)), sensitivity=1.0)
    k = ensemble.n_teachers
    panel = Panel(groups=(group,), weights=np.ones(k), member=np.zeros(k, dtype=np.intp))
    return Scheme(panel=panel, mechanism=mechanism or ensemble.setup.mechanism)


def weighting(
    ensemble: Ensemble, given: Budgets, *, rule: str = "proportional", mechanism: Mechanism | None = None
) -> Scheme:
    """Give every teacher one group, and its votes a weight by one of the rules of weighting."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReproductionWarning)
        layout = lay_out("weighting", groups=_groups(given), n_teachers=ensemble.n_teachers, rule=rule)
    return Scheme(panel=_panel(layout), mechanism=mechanism or ensemble.setup.mechanism)


def as_published(scheme: Scheme) -> Scheme:
    """Pair budgets with weights by rank, as the published code does by sorting both: for reproduction only.

    Votes keep their weights; the group with the i-th smallest weight is charged against the i-th smallest budget,
    whichever budget its people have.
    """
    panel = scheme.panel
    by_weight = sorted(range(len(panel.groups)), key=lambda place: panel.groups[place].sensitivity)
    by_budget = sorted(group.epsilon for group in panel.groups)
    budget = dict(zip(by_weight, by_budget, strict=True))
    groups = tuple(group.with_budget(Budget(budget[place], group.delta)) for place, group in enumerate(panel.groups))
    return replace(scheme, panel=replace(panel, groups=groups))


def published(ensemble: Ensemble, given: Budgets) -> Scheme:
    """Weight by Algorithm 2 and charge as the published code does: for reproduction only."""
    return as_published(weighting(ensemble, given, rule="algorithm2"))


def upsampling(ensemble: Ensemble, given: Budgets) -> Scheme:
    """Charge the ensemble's groups of copies against the budgets in their order; noise and threshold scale with k."""
    spec, setup = ensemble.spec, ensemble.setup
    if len(spec.copies) != len(given):
        raise InputError(f"{spec.name} has {len(spec.copies)} groups of copies, and there are {len(given)} budgets")
    groups = tuple(
        Account(group=Group(id=name, budget=Budget(epsilon, DELTA)), sensitivity=float(copies))
        for (name, (epsilon, _)), copies in zip(given.items(), spec.copies, strict=True)
    )
    factor, base = ensemble.n_teachers / setup.n_teachers, setup.mechanism
    mechanism = Mechanism(
        sigma=base.sigma * factor,
        check_sigma=(base.check_sigma or 0) * factor,
        threshold=(base.threshold or 0) * factor,
    )
    return Scheme(panel=Panel(groups=groups, weights=np.ones(ensemble.n_teachers)), mechanism=mechanism)


def vanishing(ensemble: Ensemble, given: Budgets, *, power: float = 4) -> Scheme:
    """Let a group's teachers vote on a fraction (ε_g/ε_max)^power of the queries; the paper's experiments have 4."""
    layout = lay_out("vanishing", groups=_groups(given), n_teachers=ensemble.n_teachers, seed=0, power=power)
    return Scheme(panel=_panel(layout), mechanism=ensemble.setup.mechanism, schedule=layout.participation)


def _groups(given: Budgets) -> list[Group]:
    return [
        Group(id=name, budget=Budget(epsilon, DELTA), people=round(share * _PEOPLE))
        for name, (epsilon, share) in given.items()
    ]


def _panel(layout: Layout) -> Panel:
    place = {group.id: index for index, group in enumerate(layout.groups)}
    return Panel(
        groups=tuple(
            Account(group=Group(id=g.id, budget=Budget(g.epsilon, g.delta)), sensitivity=g.sensitivity)
            for g in layout.groups
        ),
        weights=layout.weights.copy(),
        member=np.array([place[name] for name in layout.teacher_groups or ()], dtype=np.intp),
        rotating=layout.participation is not None,
    )
