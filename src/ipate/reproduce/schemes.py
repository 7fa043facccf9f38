"""How an ensemble's votes are weighed and whose account pays, for every variant that the paper compares.

Budgets were given out at random, so an ensemble's teachers are exchangeable: the first of them are the first
group's. What the published code charges is not a variant but a mistake (`as_published`): it is kept here to
measure what it does.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from ipate.allocation import lay_out
from ipate.allocation.layout import Layout
from ipate.allocation.participation import Participation
from ipate.errors import InputError, ReproductionWarning
from ipate.labelling.aggregators import Mechanism
from ipate.people.budgets import Account, Budget, Group
from ipate.reproduce.ensembles import Ensemble
from ipate.reproduce.settings import DELTA
from ipate.votes.panel import Panel

Budgets: TypeAlias = Mapping[str, tuple[float, float]]
"""Group id → (ε, share of the people)."""
_PEOPLE = 100_000  # shares as whole people


@dataclass(frozen=True, kw_only=True, eq=False)
class Scheme:
    """A way to vote: who weighs what, whose account pays, with which noise, and who takes turns."""

    name: str
    panel: Panel
    mechanism: Mechanism
    schedule: Participation | None = None


def budgets(epsilons: Sequence[float], shares: Sequence[float]) -> Budgets:
    """Name groups by their budgets."""
    return {f"{epsilon:.4g}": (epsilon, share) for epsilon, share in zip(epsilons, shares, strict=True)}


def two(lower: float, higher: float, share: float) -> Budgets:
    """Return two groups; `share` of the people have the higher budget."""
    return {"low": (lower, 1 - share), "high": (higher, share)}


def standard(ensemble: Ensemble, given: Budgets, *, mechanism: Mechanism | None = None) -> Scheme:
    """Everybody is charged against the smallest budget, as standard PATE has to."""
    epsilon = min(value for value, _ in given.values())
    group = Account.of(Group(id="everybody", budget=Budget(epsilon, DELTA)), 1.0)
    k = ensemble.n_teachers
    panel = Panel(groups=(group,), weights=np.ones(k), member=np.zeros(k, dtype=np.intp))
    return Scheme(name="standard", panel=panel, mechanism=mechanism or ensemble.setup.mechanism)


def weighting(
    ensemble: Ensemble, given: Budgets, *, rule: str = "proportional", mechanism: Mechanism | None = None
) -> Scheme:
    """One group per teacher, weights by a rule of `ipate.allocation.weights_for`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReproductionWarning)
        layout = lay_out("weighting", groups=_groups(given), n_teachers=ensemble.n_teachers, rule=rule)
    return Scheme(
        name=f"weighting, {rule}", panel=_panel(layout), mechanism=mechanism or ensemble.setup.mechanism
    )  # fmt: skip


def as_published(scheme: Scheme) -> Scheme:
    """Pair budgets with weights by rank, as the published code does by sorting both: reproduction only.

    Teachers vote as before; a group whose weight is the i-th smallest is charged against the i-th smallest budget,
    whoever its people are.
    """
    panel = scheme.panel
    by_weight = sorted(range(len(panel.groups)), key=lambda place: panel.groups[place].sensitivity)
    by_budget = sorted(group.epsilon for group in panel.groups)
    budget = dict(zip(by_weight, by_budget, strict=True))
    groups = tuple(group.with_budget(Budget(budget[place], group.delta)) for place, group in enumerate(panel.groups))
    return replace(scheme, name=f"{scheme.name}, charged as published", panel=replace(panel, groups=groups))


def published(ensemble: Ensemble, given: Budgets) -> Scheme:
    """Weigh by Algorithm 2 and charge as the published code does: reproduction only."""
    return as_published(weighting(ensemble, given, rule="algorithm2"))


def upsampling(ensemble: Ensemble, given: Budgets) -> Scheme:
    """The ensemble's own copies, charged against the budgets in their order; noise and threshold scale with k."""
    spec, setup = ensemble.spec, ensemble.setup
    if len(spec.copies) != len(given):
        raise InputError(f"{spec.name} has {len(spec.copies)} groups of copies, and there are {len(given)} budgets")
    groups = tuple(
        Account.of(Group(id=name, budget=Budget(epsilon, DELTA)), float(copies))
        for (name, (epsilon, _)), copies in zip(given.items(), spec.copies, strict=True)
    )
    factor, base = ensemble.n_teachers / setup.n_teachers, setup.mechanism
    mechanism = Mechanism(
        sigma=base.sigma * factor,
        check_sigma=(base.check_sigma or 0) * factor,
        threshold=(base.threshold or 0) * factor,
    )
    return Scheme(
        name="upsampling", panel=Panel(groups=groups, weights=np.ones(ensemble.n_teachers)), mechanism=mechanism
    )


def vanishing(ensemble: Ensemble, given: Budgets, *, power: float = 4, seed: int = 0) -> Scheme:
    """Strict groups' teachers sit out: (ε_g/ε_max)^4 of the votings as in the paper's experiments."""
    layout = lay_out(
        "vanishing", groups=_groups(given), n_teachers=ensemble.n_teachers, seed=seed, power=power
    )  # fmt: skip
    return Scheme(
        name="vanishing", panel=_panel(layout), mechanism=ensemble.setup.mechanism, schedule=layout.participation
    )


def _groups(given: Budgets) -> list[Group]:
    return [
        Group(id=name, budget=Budget(epsilon, DELTA), people=round(share * _PEOPLE))
        for name, (epsilon, share) in given.items()
    ]


def _panel(layout: Layout) -> Panel:
    place = {group.id: index for index, group in enumerate(layout.groups)}
    return Panel(
        groups=tuple(
            Account.of(Group(id=g.id, budget=Budget(g.epsilon, g.delta)), g.sensitivity) for g in layout.groups
        ),
        weights=layout.weights.copy(),
        member=np.array([place[name] for name in layout.teacher_groups or ()], dtype=np.intp),
        rotating=layout.participation is not None,
    )
