"""Every variant side by side: what it affords, which one suits, and what more teachers would do."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ipate.accounting.meter import DATA_INDEPENDENT, Meter
from ipate.budgets import Group
from ipate.errors import InputError
from ipate.mechanism import Mechanism
from ipate.plan.afforded import plan_variant, scaled
from ipate.plan.figures import RATES, THRESHOLD, Chances, Guaranteed, MoreTeachers, Plan, VariantPlan, default_mechanism
from ipate.tables import check_number, show
from ipate.variants import VARIANTS, lay_out
from ipate.variants.rules import check_count

__all__ = ["FEWER_POINTS", "make_plan"]

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
        known = ", ".join(DATA_INDEPENDENT)
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
    standard = made["standard"].guaranteed
    planned = tuple(replace(plan, guaranteed=_beside(plan.guaranteed, standard)) for plan in made.values())
    suits, why = _suits(groups, parties)
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
    """The table over k, at equal σ/k and all queries answered; without vanishing, which is slow to follow."""
    people = sum(group.people or 0 for group in groups)
    rows = []
    for factor in (0.5, 1, 2, 4, 8):
        teachers = max(1, int(k * factor))
        if teachers > people or (factor < 1 and (teachers < len(groups) or 2 * teachers != k)):
            continue
        labels: dict[str, int | None] = {}
        for variant in ("standard", "upsampling", "weighting"):
            try:
                labels[variant] = one(variant, teachers, scaled(noise, teachers / k), (1.0,)).guaranteed[0].labels
            except InputError:  # too few teachers for so many copies
                labels[variant] = None
        rows.append(MoreTeachers(n_teachers=teachers, people_per_teacher=people / teachers, labels=labels))
    return tuple(rows)


def _suits(groups: Sequence[Group], parties: bool) -> tuple[str, str]:
    if len({(group.epsilon, group.delta) for group in groups}) == 1 and not parties:
        return "standard", "Everybody has the same budget: every variant is standard PATE."
    if parties:
        return "weighting", (
            "The groups are parties that cannot share data: weighting trains every teacher on one group's data "
            "alone, and only votes meet."
        )
    return "upsampling", (
        "Budgets are people's own and their data may be pooled: upsampling mixes all groups in every teacher, so "
        "no teacher depends on who chose which budget. Parties that cannot share data want weighting."
    )


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
