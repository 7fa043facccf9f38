"""What a plan says, as values, and the public rules that fill in what nobody said."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtr

from ipate.accounting.bounds import Meter, planning_bounds, queries_afforded
from ipate.accounting.ptr.search import most_queries
from ipate.allocation import BASELINE, VARIANTS, find_variant, lay_out
from ipate.errors import InputError, check_count, check_number, show
from ipate.labelling.aggregators import Mechanism
from ipate.labelling.tested import setting_for
from ipate.people.budgets import Account, Group
from ipate.planning.afforded import (
    RATES,
    THRESHOLD,
    Chances,
    Guaranteed,
    MoreTeachers,
    Plan,
    VariantPlan,
    default_mechanism,
    labels_in,
    plan_variant,
)
from ipate.planning.reference import Reference, votes_profile
from ipate.votes import Votes
from ipate.votes.panel import Panel

FEWER_POINTS = (
    "At equal σ/k, labels grow with k² until teachers have too little data. Weak teachers agree on easy points only, "
    "so labels get easier and more biased: the student's accuracy decides, not the number of labels. Choose k on a "
    "public task, never by looking at private votes."
)


def make_plan(
    *,
    groups: Sequence[Group],
    n_teachers: int,
    mechanism: Mechanism | None = None,
    meter: Meter | None = None,
    n_classes: int | None = None,
    parties: bool = False,
    seed: int = 0,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> Plan:
    """Plan every variant for these groups.

    Parameters
    ----------
    groups : sequence of Group
        Each with its number of people.
    n_teachers : int
        k, before upsampling scales it.
    mechanism : Mechanism, optional
        σ, σ_T and T at k teachers; `default_mechanism` unless said.
    meter : Meter, optional
        A data-independent bound; gdp unless said.
    n_classes : int, optional
        How many classes there are, a public fact.
    parties : bool
        The groups are parties that cannot share their data.
    seed : int
        The public split seed, for vanishing's rotation.
    options : mapping, optional
        Further options by variant, as `variants.lay_out` takes them.
    """
    counted = Meter() if meter is None else meter
    if counted.whole or not counted.data_independent:
        known = ", ".join(planning_bounds())
        raise InputError(f"bound is {counted.bound!r}: a plan is made before there are votes; allowed are {known}")
    if n_classes is not None:
        check_count("classes", n_classes, least=2)
    k = check_count("n_teachers", n_teachers)
    noise = default_mechanism(k) if mechanism is None else mechanism
    extra = options or {}

    def one(variant: str, k: int, noise: Mechanism, rates: Sequence[float]) -> VariantPlan:
        layout = lay_out(variant, groups=groups, n_teachers=k, seed=seed, **extra.get(variant, {}))
        return plan_variant(layout, noise, counted, rates)

    made = {variant: one(variant, k, noise, RATES) for variant in VARIANTS}
    standard = made[BASELINE].guaranteed
    planned = tuple(replace(plan, guaranteed=_beside(plan.guaranteed, standard)) for plan in made.values())
    reasons = {name: variant.suits(groups, parties=parties) for name, variant in VARIANTS.items()}
    suits, why = next((name, reason) for name, reason in reasons.items() if reason is not None)
    return Plan(
        groups=tuple(groups),
        n_teachers=k,
        n_classes=n_classes,
        meter=counted,
        variants=planned,
        more=_more_teachers(groups, k, noise, one),
        suits=suits,
        why=why,
        chances=_chances(k, noise, n_classes),
        notes=_notes(groups, k, planned),
    )


def _beside(own: Sequence[Guaranteed], standard: Sequence[Guaranteed]) -> tuple[Guaranteed, ...]:
    pairs = zip(own, standard, strict=True)
    return tuple(replace(mine, ratio=mine.labels / theirs.labels if theirs.labels else None) for mine, theirs in pairs)


def _more_teachers(
    groups: Sequence[Group], k: int, noise: Mechanism, one: Callable[..., VariantPlan]
) -> tuple[MoreTeachers, ...]:
    """The table over k, at equal σ/k and all queries answered; without schedules, which are slow to follow."""
    people = sum(group.people or 0 for group in groups)
    rows = []
    for factor in (0.5, 1, 2, 4, 8):
        teachers = max(1, int(k * factor))
        if teachers > people or (factor < 1 and (teachers < len(groups) or 2 * teachers != k)):
            continue
        labels: dict[str, int | None] = {}
        for variant in (name for name, made in VARIANTS.items() if not made.takes_turns):
            try:
                labels[variant] = one(variant, teachers, noise.scaled(teachers / k), (1.0,)).guaranteed[0].labels
            except InputError:  # too few teachers for so many copies
                labels[variant] = None
        rows.append(MoreTeachers(n_teachers=teachers, people_per_teacher=people / teachers, labels=labels))
    return tuple(rows)


def _chances(k: int, noise: Mechanism, n_classes: int | None) -> Chances:
    """Φ((k−T)/σ_T), and ∫ φ(z)·Φ(z + gap/σ)^(C−1) dz for the gap between plurality and the others."""
    from scipy.special import ndtr

    passes, share = None, THRESHOLD
    if noise.check_sigma is not None and noise.threshold is not None:
        passes, share = float(ndtr((k - noise.threshold) / noise.check_sigma)), noise.threshold / k
    right = None
    if n_classes is not None and 0 < share <= 1:
        gap = k * (share - (1 - share) / (n_classes - 1)) / noise.sigma
        z = np.linspace(-10, 10, 2001)
        density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
        right = min(1.0, float((density * ndtr(z + gap) ** (n_classes - 1)).sum() * 0.01))
    return Chances(unanimous_passes=passes, share=share, label_right=right)


def _notes(groups: Sequence[Group], k: int, planned: Sequence[VariantPlan]) -> tuple[str, ...]:
    people = sum(group.people or 0 for group in groups)
    notes = [f"{people} people, {k} teachers, {people / k:.4g} people each."]
    worst = max(groups, key=lambda group: group.delta)
    if check_number("delta", worst.delta) >= 1 / people:
        notes.append(f"δ = {worst.delta:g} of group {show(worst.id)} is 1/N or more: it should be well below.")
    notes += [
        f"{plan.variant} affords fewer labels than standard here: it costs the strict more than it gives."
        for plan in planned
        if plan.guaranteed[-1].ratio is not None and plan.guaranteed[-1].ratio < 1
    ]
    return tuple(notes)


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
    """Return what each variant without turns may expect of a pool of so many points, if votes are as the reference's.

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
        if find_variant(variant.variant).takes_turns or (votes is not None and votes.n_teachers != variant.n_teachers):
            continue
        if votes is None and reference.simulator is not None:
            votes = reference.simulator.votes(n_teachers=variant.n_teachers, n_classes=plan.n_classes)
        if votes is not None:
            found.append(_of_variant(variant, votes, plan.n_classes, reference, pool))
    return tuple(found)


def _of_variant(variant: VariantPlan, votes: Votes, n_classes: int, reference: Reference, pool: int) -> Forecast:
    panel, mechanism = variant.layout.panel(), variant.mechanism
    rate = _answer_rate(panel, votes, variant)
    queries = {}
    for bound in ("gdp", "sup"):
        queries[bound] = min(pool, *(_afforded(bound, group, variant, rate) for group in panel.groups))
    setting = setting_for(panel, mechanism, n_classes=n_classes)
    profile = votes_profile(setting, panel, votes, source="a plan")
    queries["ptr"] = most_queries(profile, pool=pool, reserve=reference.reserve, fallback=reference.fallback)
    labels = {bound: min(labels_in(asked, rate), asked) for bound, asked in queries.items()}
    return Forecast(variant=variant.variant, answer_rate=rate, queries=queries, labels=labels)


def _afforded(bound: str, group: Account, variant: VariantPlan, rate: float) -> int:
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
