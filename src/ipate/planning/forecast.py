"""How many labels settings are expected to give, by profiles of teachers, and the reasons that state it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr

from ipate.accounting._argmax import argmax_log_law
from ipate.engines.ballots.design import Design, about, counted
from ipate.engines.teachers.aggregators import Mechanism
from ipate.engines.teachers.variants import find_variant, lay_out
from ipate.people.budgets import Group
from ipate.planning.choose import Choice, Profile
from ipate.planning.plan import VariantPlan, plan_variant
from ipate.planning.standing import Standing

if TYPE_CHECKING:
    from ipate.planning.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The labels and their accuracy for each profile, and the plan that they follow from."""

    plan: VariantPlan
    labels: tuple[float, ...]
    right: tuple[float, ...]


def expect(
    settings: "Settings",
    groups: Sequence[Group],
    profiles: Sequence[Profile],
    *,
    n_public: int,
    seed: int = 0,
    standing: Standing | None = None,
) -> Expected:
    """Return what the settings give for each profile, by the settings' own bound or the one that plans for it."""
    mechanism = settings.aggregator().mechanism
    found = [_answered(profile, mechanism, settings.n_teachers) for profile in profiles]
    plan = _plan(settings, groups, [max(rate, 1e-6) for rate, _ in found], seed=seed, standing=standing)
    limit = n_public if settings.max_labels is None else min(n_public, settings.max_labels)
    most = n_public if settings.n_queries is None else settings.n_queries
    asked = [min(queries, most) for queries in _queries(plan, settings.stop)]
    return Expected(
        plan=plan,
        labels=tuple(min(rate * n, limit) for (rate, _), n in zip(found, asked, strict=True)),
        right=tuple(right for _, right in found),
    )


def _plan(
    settings: "Settings", groups: Sequence[Group], rates: Sequence[float], *, seed: int, standing: Standing | None
) -> VariantPlan:
    """Return what the settings' variant affords at these answer rates, by the settings' meter of plans."""
    layout = lay_out(settings.variant, groups=groups, n_teachers=settings.n_teachers, seed=seed, **settings.options)
    return plan_variant(layout, settings.aggregator().mechanism, settings.meter.planning, rates, standing=standing)


def first_round(
    settings: "Settings", groups: Sequence[Group], *, n_public: int, seed: int, standing: Standing | None
) -> int | None:
    """Return how many points are asked before a student is trained whose probabilities the aggregator needs; else None.

    They are a third of those that all budgets, or what is left of them, surely afford: if every check passes.
    """
    if "student_probs" not in settings.aggregator_options:
        return None
    (sure,) = _plan(settings, groups, [1.0], seed=seed, standing=standing).guaranteed
    return max(1, min(sure.queries, n_public) // 3)


def _answered(profile: Profile, noise: Mechanism, k: int) -> tuple[float, float]:
    """Return the share of queries that pass the check, and how many of their labels are right."""
    passed = np.ones(len(profile.shares))
    if noise.check_sigma is not None and noise.threshold is not None:
        passed = ndtr((profile.shares.max(axis=1) * k - noise.threshold) / noise.check_sigma)
    right = np.exp(argmax_log_law(profile.shares, noise.sigma / k, noise.noise)[:, 0])
    return float(passed.mean()), float(passed @ right / max(float(passed.sum()), 1e-300))


def _queries(plan: VariantPlan, stop: str) -> list[int]:
    """Return the queries that the budgets afford for each profile; with "drop", until the last group has left."""
    if stop != "drop" or not find_variant(plan.variant).groups_can_leave:
        return [given.queries for given in plan.guaranteed]
    by_group = [[n for n in own if n is not None] for own in zip(*(g.queries for g in plan.groups), strict=True)]
    return [max(own, default=0) for own in by_group]


def state_teachers(
    settings: "Settings",
    choice: Choice | None,
    groups: Sequence[Group],
    *,
    requested: Mapping[str, Any],
    n_public: int,
    seed: int,
    standing: Standing | None,
) -> str:
    """Return the reason for the settings of teachers: what was chosen, by which profiles, and what that affords."""
    if choice is None:
        return "parameters as given"
    symbols = {"sigma": "σ", "check_sigma": "σ_T", "threshold": "T", "scale": "the scale of Laplace noise"}
    given = [symbol for name, symbol in symbols.items() if requested[name] not in ("auto", None)]
    if given:
        return f"auto chose {settings.n_teachers} teachers; {', '.join(given)} as given"
    affords = _affords(settings, choice, groups, n_public=n_public, seed=seed, standing=standing)
    return f"auto chose {choice.reason}{affords}"


def _affords(
    settings: "Settings",
    choice: Choice,
    groups: Sequence[Group],
    *,
    n_public: int,
    seed: int,
    standing: Standing | None,
) -> str:
    """Return how many labels the chosen settings afford, by which bound, and how many are right, as an end of a line.

    A choice without profiles has a fixed number of labels.
    """
    bound, meter = settings.meter.bound, settings.meter.planning
    if standing is not None and standing.private:
        return (
            "; how many labels that affords is not stated, because earlier runs were charged by costs that depend on "
            "private votes, and what they left is private"
        )
    if not choice.profiles:
        return ""
    if settings.meter.whole:
        return f"; its design decides how many labels the bound {bound} gives"
    found = expect(settings, groups, choice.profiles, n_public=n_public, seed=seed, standing=standing)
    what = "this" if standing is None else "what earlier runs left of the budgets"
    more = "" if meter == settings.meter else f"; {bound} affords no fewer, and the votes decide how many more"
    return (
        f": by {choice.profiles[0].source} and the bound {meter.bound} {what} affords about "
        f"{int(np.mean(found.labels)):,} labels, {np.mean(found.right):.0%} of them right{more}"
    )


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
