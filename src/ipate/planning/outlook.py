"""What a student can expect before any training: labels and their accuracy by the stated profiles of teachers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import ndtr

from ipate.accounting._argmax import argmax_log_law
from ipate.accounting.bounds import Meter
from ipate.allocation import VARIANTS, find_variant, lay_out
from ipate.ballots.design import ENOUGH, about
from ipate.errors import InputError
from ipate.labelling.aggregators import Mechanism
from ipate.people.budgets import Budget, Group
from ipate.planning.choose import SKILLS, Profile, reference_profile
from ipate.planning.plan import VariantPlan, plan_variant
from ipate.planning.settings import Settings, choose_settings
from ipate.planning.voting import ballot_designs

LABELS_PER_CLASS = 1  # a run that affords fewer, whatever its teachers are, is refused before training


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """What a variant with these settings is expected to give its student.

    Attributes
    ----------
    variant, n_teachers, people_per_teacher
        The variant, its number of teachers after scaling, and the people whom each learns from.
    labels, fewest, most : int
        The number of labels on average over the profiles, and for the worst and the best of them.
    right : float
        The expected accuracy of the labels, on average over the profiles.
    clean : int
        The number of correct labels that teach as much: labels × ((right − 1/C)/(1 − 1/C))².
    needed : int
        How many labels the run must afford with the best profile.
    """

    variant: str
    n_teachers: int
    people_per_teacher: float
    labels: int
    fewest: int
    most: int
    right: float
    clean: int
    needed: int

    @property
    def useful(self) -> bool:
        """Whether the best profile affords as many labels as a student needs."""
        return self.most >= self.needed


@dataclass(frozen=True, kw_only=True)
class Step:
    """What it would bring if the people of one group allowed as much as the next looser one."""

    group: str
    people: int
    epsilon: float
    to: float
    labels: int


def foresee(settings: Settings, groups: Sequence[Group], *, n_public: int, n_classes: int, seed: int = 0) -> Outlook:
    """Return what the settings afford these groups on a pool of `n_public` points, by the reference profiles.

    A bound that depends on votes is replaced by gdp, which affords no more.
    """
    known = settings.meter.data_independent and not settings.meter.whole
    meter = settings.meter if known else Meter("gdp")
    layout = lay_out(
        settings.variant, groups=groups, n_teachers=settings.n_teachers, seed=seed, **dict(settings.options)
    )
    mechanism = settings.aggregator().mechanism
    points = max(1, sum(group.people or 0 for group in groups) // settings.n_teachers)
    found = [
        _answered(reference_profile(n_classes, points, skill=skill), mechanism, settings.n_teachers) for skill in SKILLS
    ]
    plan = plan_variant(layout, mechanism, meter, [max(rate, 1e-6) for rate, _ in found])
    limit = n_public if settings.max_labels is None else min(n_public, settings.max_labels)
    most = n_public if settings.n_queries is None else settings.n_queries
    asked = [min(queries, most) for queries in _queries(plan, settings.stop)]
    labels = [min(rate * n, limit) for (rate, _), n in zip(found, asked, strict=True)]
    skill = [max(0.0, (right - 1 / n_classes) / (1 - 1 / n_classes)) for _, right in found]
    needed = LABELS_PER_CLASS * n_classes
    return Outlook(
        variant=settings.variant,
        n_teachers=plan.n_teachers,
        people_per_teacher=plan.people_per_teacher,
        labels=int(np.mean(labels)),
        fewest=int(min(labels)),
        most=int(max(labels)),
        right=float(np.mean([right for _, right in found])),
        clean=int(np.mean(np.array(labels) * np.array(skill) ** 2)),
        needed=needed if settings.max_labels is None else min(needed, settings.max_labels),
    )


def check_useful(
    choose: Callable[[Sequence[Group]], Settings],
    groups: Sequence[Group],
    *,
    n_public: int,
    n_classes: int,
    seed: int,
    needed: int | None = None,
    key: str = "one per class",
) -> None:
    """Refuse budgets and a pool from which a student could learn nothing useful, before anything is trained.

    The rule is public: with the best of the reference profiles they must afford one label per class, or `needed`, which
    the message calls `key`. Bounds that depend on votes may afford more than a plan knows, and are not refused; nor are
    ballots, which warn. The message says what ballots would afford.
    """
    settings = choose(groups)
    if settings.ballots or settings.meter.whole or not settings.meter.data_independent:
        return
    found = foresee(settings, groups, n_public=n_public, n_classes=n_classes, seed=seed)
    needed = found.needed if needed is None else needed
    if found.most >= needed:
        return
    doubled = [replace(group, budget=Budget(2 * group.epsilon, group.delta)) for group in groups]
    more = foresee(choose(doubled), doubled, n_public=n_public, n_classes=n_classes, seed=seed).most
    raise InputError(
        f"these budgets and this pool afford {found.most} labels at most for {n_classes} classes, and a student needs "
        f"{needed} ({key}): nothing was trained and nobody's budget was spent. Larger budgets (twice every ε affords "
        f"{more}), more people, a larger pool (it has {n_public} points) or fewer classes would help; ipate plan shows "
        f"what affords how much{_ballots(groups, n_public, n_classes)}"
    )


def _ballots(groups: Sequence[Group], n_public: int, n_classes: int) -> str:
    """Return what ballots would afford the same people, to be added to a refusal of teachers."""
    designs = ballot_designs(groups, n_public=n_public, n_classes=n_classes)
    if not designs:
        return ""
    found = designs["weighting"]
    reliable = "which is reliable" if found.per_class >= ENOUGH else f"where {ENOUGH:g} are reliable"
    return (
        f". Ballots (voting = 'ballots') would label all {n_public} points at once: together they weigh "
        f"{about(found.per_class)} noise deviations per class, {reliable}"
    )


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


@dataclass(frozen=True, kw_only=True)
class Prospect:
    """The chosen settings and what they afford, every other variant with its own settings, and more consent."""

    settings: Settings
    outlook: Outlook
    others: tuple[Outlook, ...]
    steps: tuple[Step, ...]

    def facts(self) -> dict[str, Any]:
        """Return the prospect as a dictionary for JSON."""
        outlook = [asdict(found) | {"useful": found.useful} for found in (self.outlook, *self.others)]
        return {"outlook": outlook, "more_consent": [asdict(step) for step in self.steps]}


def prospect(
    groups: Sequence[Group],
    *,
    n_public: int,
    n_classes: int,
    request: Mapping[str, Any],
    options: Mapping[str, Mapping[str, Any]] | None = None,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Prospect:
    """Return what these people and this pool afford, by the chooser that a run uses.

    `request` holds the other arguments of `choose_settings`, `options` those of the other variants by name.
    """
    done = 0

    def chosen(groups: Sequence[Group], **change: Any) -> Settings:
        return choose_settings(groups=groups, n_public=n_public, n_classes=n_classes, **{**request, **change})

    def found(settings: Settings, groups: Sequence[Group]) -> Outlook:
        nonlocal done
        made = foresee(settings, groups, n_public=n_public, n_classes=n_classes, seed=seed)
        done += 1
        if progress is not None:
            progress(done)
        return made

    settings = chosen(groups)
    tested: dict[str, Any] = {}
    if settings.meter.whole:  # a design is for one layout; what it adds is not known here
        tested = {"reference": None, "design": None, "bound": "gdp"}
    others = []
    for name, variant in VARIANTS.items():
        if name == settings.variant or (settings.stop == "drop" and not variant.groups_can_leave):
            continue
        own = {"options": (options or {}).get(name, {}), "variant": name, **tested}
        try:
            others.append(found(chosen(groups, **own), groups))
        except InputError:  # this variant needs more teachers
            continue
    steps = []
    for group, epsilon, moved in more_consent(groups):
        labels = found(chosen(moved, **tested), moved).labels
        steps.append(Step(group=group.id, people=group.people or 0, epsilon=group.epsilon, to=epsilon, labels=labels))
    return Prospect(settings=settings, outlook=found(settings, groups), others=tuple(others), steps=tuple(steps))


def more_consent(groups: Sequence[Group]) -> Iterator[tuple[Group, float, tuple[Group, ...]]]:
    """Yield each group with the ε of the next looser one, and all groups after its people allowed as much.

    If everybody has one ε, the step is to twice as much.
    """
    ordered = sorted(groups, key=lambda group: (group.epsilon, group.id))
    if len(ordered) == 1:
        (only,) = ordered
        yield only, 2 * only.epsilon, (replace(only, budget=Budget(2 * only.epsilon, only.delta)),)
        return
    for group, looser in pairwise(ordered):
        if looser.epsilon == group.epsilon:
            continue
        moved = replace(looser, people=(looser.people or 0) + (group.people or 0))
        yield group, looser.epsilon, tuple(moved if g is looser else g for g in groups if g is not group)
