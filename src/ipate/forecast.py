"""What a public reference makes of a plan: labels to expect under gdp, sup and ptr, side by side.

A plan alone says what budgets afford whatever the votes; how many queries pass the check, and how far a test of
the teachers' agreement goes, needs a guess of the votes. Nothing here looks at private ones.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from ipate.accounting.calibration import queries_afforded
from ipate.accounting.meter import Bound, Meter
from ipate.accounting.ptr import most_queries
from ipate.designing import Reference
from ipate.errors import InputError
from ipate.panel import Panel, PanelGroup
from ipate.plan import Plan, VariantPlan, labels_in
from ipate.reference import setting_for, votes_profile
from ipate.votes import Votes

__all__ = ["Forecast", "forecast"]

_BLOCK = 2048


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What one variant may expect.

    Attributes
    ----------
    variant : str
    answer_rate : float
        The share of the reference's queries that pass the check.
    queries, labels : dict
        By bound: how many queries are asked, and how many of them end with a label, on average.
    """

    variant: str
    answer_rate: float
    queries: dict[str, int]
    labels: dict[str, int]


def forecast(plan: Plan, reference: Reference, *, pool: int) -> tuple[Forecast, ...]:
    """Return what each variant but vanishing may expect of a pool of so many points, if votes are as the reference's.

    Parameters
    ----------
    plan : Plan
        Groups, teachers and noise; its number of classes must be known.
    reference : Reference
        A simulator, or votes of other teachers: of as many as a variant has, so variants with another number of
        teachers (upsampling) are left out for votes.
    pool : int
        How many public points there are.
    """
    if plan.n_classes is None:
        raise InputError("classes is not given: a reference needs to know how many classes there are")
    found = []
    for variant in plan.variants:
        votes = reference.votes
        if variant.variant == "vanishing" or (votes is not None and votes.n_teachers != variant.n_teachers):
            continue
        if votes is None and reference.simulator is not None:
            votes = reference.simulator.votes(n_teachers=variant.n_teachers, n_classes=plan.n_classes)
        if votes is not None:
            found.append(_of_variant(variant, votes, plan.n_classes, reference, pool))
    return tuple(found)


def _panel(variant: VariantPlan) -> Panel:
    groups = tuple(
        PanelGroup(id=group.id, epsilon=group.epsilon, delta=group.delta, sensitivity=group.sensitivity)
        for group in variant.groups
    )
    if variant.variant != "weighting":
        return Panel(groups=groups, weights=np.ones(variant.n_teachers), disjoint=variant.variant == "standard")
    member = np.repeat(np.arange(len(groups)), [group.teachers for group in variant.groups])
    return Panel(groups=groups, weights=np.array([group.sensitivity for group in groups])[member], member=member)


def _of_variant(variant: VariantPlan, votes: Votes, n_classes: int, reference: Reference, pool: int) -> Forecast:
    panel, mechanism = _panel(variant), variant.mechanism
    rate = _answer_rate(panel, votes, variant)
    queries = {}
    for bound in ("gdp", "sup"):
        queries[bound] = min(pool, *(_afforded(bound, group, variant, rate) for group in panel.groups))
    setting = setting_for(panel, mechanism, n_classes=n_classes)
    profile = votes_profile(setting, panel, votes, source="a plan")
    queries["ptr"] = most_queries(profile, pool=pool, reserve=reference.reserve, fallback=reference.fallback)
    labels = {bound: min(labels_in(asked, rate), asked) for bound, asked in queries.items()}
    return Forecast(variant=variant.variant, answer_rate=rate, queries=queries, labels=labels)


def _afforded(bound: Bound, group: PanelGroup, variant: VariantPlan, rate: float) -> int:
    return queries_afforded(
        Meter(bound),
        epsilon=group.epsilon,
        delta=group.delta,
        sensitivity=group.sensitivity,
        sigma=variant.mechanism.sigma,
        check_sigma=variant.mechanism.check_sigma,
        answer_rate=rate,
    )


def _answer_rate(panel: Panel, votes: Votes, variant: VariantPlan) -> float:
    """The chance that the check passes, averaged over the reference's queries."""
    mechanism = variant.mechanism
    if mechanism.check_sigma is None or mechanism.threshold is None:
        return 1.0
    passed = 0.0
    for start in range(0, votes.n_queries, _BLOCK):
        counts = panel.tally(np.asarray(votes.votes[:, start : start + _BLOCK]), votes.n_classes).counts
        passed += float(ndtr((counts.max(axis=1) - mechanism.threshold) / mechanism.check_sigma).sum())
    return passed / votes.n_queries
