"""Plans: the number of labels that budgets afford under every variant, computed before there are votes.

How many labels settings are expected to give, by profiles of teachers, and the reasons that state it.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr

from ipate.accounting._argmax import argmax_log_law
from ipate.accounting.bounds import Meter, planning_bounds, queries_afforded
from ipate.allocation.layout import Layout
from ipate.engines.base import Means
from ipate.engines.context import BASELINE
from ipate.engines.teachers.aggregators import Mechanism
from ipate.engines.teachers.tuning import Choice, Profile
from ipate.engines.teachers.variants import VARIANTS, find_variant, lay_out
from ipate.errors import InputError, check_count, show
from ipate.ledger.standing import Left, Standing, left_in
from ipate.people.budgets import Account, Group

if TYPE_CHECKING:
    from ipate.engines.teachers.settings import TeacherSettings

RATES = (0.5, 0.75, 1.0)
FEWER_POINTS = (
    "At equal σ/k, labels grow with k² until teachers have too little data. Weak teachers agree on easy points only, "
    "so labels get easier and more biased: the student's accuracy decides, not the number of labels. Choose k on a "
    "public task, never by looking at private votes."
)
_SHARE = 0.8  # assumed share of the votes for the plurality if there is no threshold
_MOST = 50_000  # longest rotation that is simulated; longer ones get a lower bound
_ROTATION = range(1 << 36)  # numbers of queries in which the lower bound is searched
_CELLS = 1 << 21


@dataclass(frozen=True, kw_only=True)
class Guaranteed:
    """The queries and labels that all budgets afford at an answer rate; `binding` is the first exhausted group."""

    rate: float
    queries: int
    labels: int
    binding: str
    ratio: float | None = None  # of its labels to those of standard

    def beside(self, standard: "Guaranteed") -> "Guaranteed":
        """Return the same with its ratio to standard."""
        return replace(self, ratio=self.labels / standard.labels if standard.labels else None)


@dataclass(frozen=True, kw_only=True)
class GroupPlan:
    """A group's influence, and how many queries its own budget affords at each answer rate."""

    account: Account
    teachers: int
    influence: float  # weight of its teachers, copies of its people, or share of queries its teachers vote on
    queries: tuple[int | None, ...]  # None: far more than those of the binding group


@dataclass(frozen=True, kw_only=True)
class VariantPlan:
    """The plan of one variant: its teachers, noise and groups, and the guaranteed labels."""

    layout: Layout
    people_per_teacher: float
    mechanism: Mechanism
    influence: str
    groups: tuple[GroupPlan, ...]
    guaranteed: tuple[Guaranteed, ...]

    @property
    def variant(self) -> str:
        """The variant's name."""
        return self.layout.variant

    @property
    def n_teachers(self) -> int:
        """The number of teachers, after scaling by upsampling."""
        return self.layout.n_teachers

    def facts(self) -> dict[str, Any]:
        """Return the variant's plan as a dictionary for JSON."""
        return {
            "variant": self.variant,
            "rule": self.layout.rule,
            "n_teachers": self.n_teachers,
            "people_per_teacher": self.people_per_teacher,
            "scale": self.layout.scale,
            **self.mechanism.parameters,
            "groups": [self._group(group) for group in self.groups],
            "guaranteed": [asdict(given) for given in self.guaranteed],
            "notes": list(self.layout.notes),
        }

    def _group(self, group: GroupPlan) -> dict[str, Any]:
        return {
            "group": group.account.id,
            **{name: getattr(group.account, name) for name in ("epsilon", "delta", "people")},
            "teachers": group.teachers,
            "sensitivity": group.account.sensitivity,
            self.influence: group.influence,
            "queries": {f"{given.rate:g}": n for given, n in zip(self.guaranteed, group.queries, strict=True)},
        }


@dataclass(frozen=True, kw_only=True)
class MoreTeachers:
    """The labels that another number of teachers affords at equal σ/k if every query is answered."""

    n_teachers: int
    people_per_teacher: float
    labels: Mapping[str, int | None]


@dataclass(frozen=True, kw_only=True)
class Chances:
    """The probabilities that a unanimous vote passes the check, and that a label is the plurality class.

    The plurality is assumed to have the share T/k of the votes; the rest is spread evenly.
    """

    unanimous_passes: float | None
    share: float
    label_right: float | None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The number of labels that budgets afford under every variant.

    Attributes
    ----------
    groups, meter
        The groups, bound and conversion that the plan is for.
    n_teachers, n_classes : int
        The number of teachers before upsampling scales it, and of classes (None if not given).
    variants, more : tuple
        One plan per variant, and the labels that other numbers of teachers afford.
    suits, why : str
        The recommended variant and the reason.
    chances : Chances
        The probabilities of passing the check and of a correct label.
    notes : tuple of str
        Remarks on group sizes, δ and variants.
    """

    groups: tuple[Group, ...]
    n_teachers: int
    n_classes: int | None
    meter: Meter
    variants: tuple[VariantPlan, ...]
    more: tuple[MoreTeachers, ...]
    suits: str
    why: str
    chances: Chances
    notes: tuple[str, ...]

    def facts(self) -> dict[str, Any]:
        """Return the plan as a dictionary for JSON."""
        return {
            "groups": [{"id": g.id, "epsilon": g.epsilon, "delta": g.delta, "people": g.people} for g in self.groups],
            "n_people": sum(group.people or 0 for group in self.groups),
            "n_teachers": self.n_teachers,
            "classes": self.n_classes,
            "bound": self.meter.bound,
            "conversion": self.meter.conversion,
            "variants": [variant.facts() for variant in self.variants],
            "more_teachers": [asdict(row) for row in self.more],
            "suits": self.suits,
            "why": self.why,
            "chances": asdict(self.chances),
        }


def make_plan(
    *,
    groups: Sequence[Group],
    n_teachers: int,
    mechanism: Mechanism,
    meter: Meter | None = None,
    n_classes: int | None = None,
    parties: bool = False,
    seed: int = 0,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    standing: Standing | None = None,
) -> Plan:
    """Plan every variant for these groups.

    Parameters
    ----------
    groups : sequence of Group
        The groups, each with its number of people.
    n_teachers : int
        The number of teachers before upsampling scales it.
    mechanism : Mechanism
        Noise and threshold for `n_teachers` teachers, as in `Settings`.
    meter : Meter, optional
        A data-independent bound. Default: `Meter()`.
    n_classes : int, optional
        For the probability of a correct label.
    parties : bool
        Whether the groups belong to parties that cannot share their data.
    seed : int
        The public split seed.
    options : mapping, optional
        Further options of `ipate.engines.teachers.variants.lay_out`, by variant. A variant from outside that is named
        here as module:attribute is planned too.
    standing : Standing, optional
        What earlier runs left of the budgets. Default: all of them.
    """
    counted = Meter() if meter is None else meter
    if counted.whole or not counted.data_independent:
        known = ", ".join(planning_bounds())
        raise InputError(f"bound is {counted.bound!r}: a plan needs a bound that does not use votes: {known}")
    if n_classes is not None:
        check_count("classes", n_classes, least=2)
    k = check_count("n_teachers", n_teachers)
    extra = options or {}

    def one(variant: str, k: int, noise: Mechanism, rates: Sequence[float]) -> VariantPlan:
        layout = lay_out(variant, groups=groups, n_teachers=k, seed=seed, **extra.get(variant, {}))
        return plan_variant(layout, noise, counted, rates, standing=standing)

    planning = {name: find_variant(name) for name in (*VARIANTS, *extra)}
    made = {variant: one(variant, k, mechanism, RATES) for variant in planning}
    standard = made[BASELINE].guaranteed
    planned = tuple(
        replace(plan, guaranteed=tuple(map(Guaranteed.beside, plan.guaranteed, standard))) for plan in made.values()
    )
    reasons = {name: variant.suits(groups, parties=parties) for name, variant in planning.items()}
    suits, why = next((name, reason) for name, reason in reasons.items() if reason is not None)
    return Plan(
        groups=tuple(groups),
        n_teachers=k,
        n_classes=n_classes,
        meter=counted,
        variants=planned,
        more=_more_teachers(
            groups, k, mechanism, one, [name for name, variant in planning.items() if not variant.takes_turns]
        ),
        suits=suits,
        why=why,
        chances=_chances(k, mechanism, n_classes),
        notes=_notes(groups, k, planned),
    )


def _more_teachers(
    groups: Sequence[Group], k: int, noise: Mechanism, one: Callable[..., VariantPlan], variants: Sequence[str]
) -> tuple[MoreTeachers, ...]:
    """Return the table over k at equal σ/k if all queries are answered; rotations are left out, which are slow."""
    people = sum(group.people or 0 for group in groups)
    rows = []
    for factor in (0.5, 1, 2, 4, 8):
        teachers = max(1, int(k * factor))
        if teachers > people or (factor < 1 and (teachers < len(groups) or 2 * teachers != k)):
            continue
        labels: dict[str, int | None] = {}
        for variant in variants:
            try:
                labels[variant] = one(variant, teachers, noise.scaled(teachers / k), (1.0,)).guaranteed[0].labels
            except InputError:  # too few teachers for the copies
                labels[variant] = None
        rows.append(MoreTeachers(n_teachers=teachers, people_per_teacher=people / teachers, labels=labels))
    return tuple(rows)


def _chances(k: int, noise: Mechanism, n_classes: int | None) -> Chances:
    """Compute Φ((k−T)/σ_T), and how likely the plurality wins against the others with the noise of labels."""
    passes, share = None, _SHARE
    if noise.check_sigma is not None and noise.threshold is not None:
        passes, share = float(ndtr((k - noise.threshold) / noise.check_sigma)), noise.threshold / k
    right = None
    if n_classes is not None and 0 < share <= 1:
        votes = np.full(n_classes, k * (1 - share) / (n_classes - 1))
        votes[0] = k * share
        right = min(1.0, float(np.exp(argmax_log_law(votes, noise.sigma, noise.noise)[0])))
    return Chances(unanimous_passes=passes, share=share, label_right=right)


def _notes(groups: Sequence[Group], k: int, planned: Sequence[VariantPlan]) -> tuple[str, ...]:
    people = sum(group.people or 0 for group in groups)
    notes = [f"{people} people, {k} teachers, {people / k:.4g} people each."]
    worst = max(groups, key=lambda group: group.delta)
    if worst.delta >= 1 / people:
        notes.append(f"δ = {worst.delta:g} of group {show(worst.id)} is at least 1/N: it should be well below 1/N.")
    notes += [
        f"{plan.variant} affords fewer labels than standard here: one group is exhausted earlier than under standard."
        for plan in planned
        if plan.guaranteed[-1].ratio is not None and plan.guaranteed[-1].ratio < 1
    ]
    return tuple(notes)


def labels_in(queries: int, rate: float) -> int:
    """Return how many labels result from `queries` queries if the last one is answered."""
    return int((queries - 1) * rate) + 1 if queries else 0


def plan_variant(
    layout: Layout, noise: Mechanism, meter: Meter, rates: Sequence[float], *, standing: Standing | None = None
) -> VariantPlan:
    """Return what a variant's layout affords at these answer rates; the noise is scaled with the number of teachers."""
    own, left = noise.scaled(layout.scale), left_in(standing, layout.groups, layout.home)
    queries = [_group_queries(layout, own, meter, rate, left) for rate in rates]
    guaranteed = []
    for rate, paid in zip(rates, queries, strict=True):
        least, binding = min((n, name) for name, n in paid.items() if n is not None)
        guaranteed.append(Guaranteed(rate=rate, queries=least, labels=labels_in(least, rate), binding=binding))
    variant = find_variant(layout.variant)
    influence = variant.group_influence(layout)
    slots = sum(group.people * layout.copies[group.id] for group in layout.groups)
    return VariantPlan(
        layout=layout,
        people_per_teacher=slots / layout.n_teachers,
        mechanism=own,
        influence=variant.influence,
        groups=tuple(
            GroupPlan(
                account=group,
                teachers=layout.teachers[group.id],
                influence=influence[group.id],
                queries=tuple(paid[group.id] for paid in queries),
            )
            for group in layout.groups
        ),
        guaranteed=tuple(guaranteed),
    )


def afforded(
    account: Account,
    noise: Mechanism,
    meter: Meter,
    rate: float,
    *,
    sensitivity: float | None = None,
    left: Left | None = None,
) -> int:
    """Return how many queries one account affords at an answer rate; the default sensitivity is the account's.

    `left` is what earlier runs left of its budget.
    """
    return queries_afforded(
        meter if left is None else left.meter,
        spent=None if left is None else left.spent,
        every_order=left is not None and left.fixed,
        epsilon=account.epsilon,
        delta=account.delta,
        sensitivity=account.sensitivity if sensitivity is None else sensitivity,
        sigma=noise.sigma,
        check_sigma=noise.check_sigma,
        noise=noise.noise,
        answer_rate=rate,
    )


def _group_queries(
    layout: Layout, noise: Mechanism, meter: Meter, rate: float, left: Mapping[str, Left]
) -> dict[str, int | None]:
    """Return how many queries each group's own budget affords, by id.

    A rotation is simulated: a group is exhausted at the first query that one of its teachers cannot afford. A label's
    cost is multiplied by the answer rate, because it is unknown which queries will be answered; at rate 1 this is
    exact. Long rotations get a lower bound from the busiest teacher at the largest sensitivity.
    """
    schedule = layout.participation
    if schedule is None:
        return {group.id: afforded(group, noise, meter, rate, left=left.get(group.id)) for group in layout.groups}
    floor: dict[str, int | None] = {}
    for group in layout.groups:
        turns = afforded(group, noise, meter, rate, sensitivity=schedule.worst_sensitivity, left=left.get(group.id))
        floor[group.id] = bisect_right(_ROTATION, turns, key=lambda n: schedule.most_turns(n)[group.id]) - 1
    if min(n for n in floor.values() if n is not None) > _MOST:
        return floor
    ends: dict[str, int | None] = dict.fromkeys(floor)
    names = np.array(schedule.teacher_groups)
    of_teacher = [layout.by_id[name] for name in schedule.teacher_groups]
    limit = meter.limit([g.epsilon for g in of_teacher], [g.delta for g in of_teacher])
    for teacher, group in enumerate(of_teacher):
        if group.id in left:
            limit[teacher] = left[group.id].of(limit[teacher], meter, group.group.budget)
    spent = np.zeros_like(limit)
    start, step = 0, max(16, min(4096, _CELLS // limit.size))
    while None in ends.values() and start <= 4 * min((n for n in ends.values() if n is not None), default=_MOST):
        queries = np.arange(start, start + step)
        present = schedule.participants(queries)
        moved, place = np.unique(schedule.sensitivity(queries), return_inverse=True)
        check, label = meter.worst_query(
            sensitivity=moved, sigma=noise.sigma, check_sigma=noise.check_sigma, noise=noise.noise
        )
        worth, worst = (check + rate * label)[place], (check + label)[place]  # expected and largest cost, (B, width)
        after = spent + np.einsum("tb,bw->tw", present, worth)
        waiting = np.isin(names, [name for name, end in ends.items() if end is None])
        close = waiting & ~np.any(after + worst.max(axis=0) <= limit, axis=1)
        if close.any():
            paid = np.cumsum(present[close, :, None] * worth, axis=1) + spent[close, None, :]
            before = paid - present[close, :, None] * worth
            stuck = present[close] & ~np.any(before + worst <= limit[close, None, :], axis=2)
            for name in dict.fromkeys(names[close].tolist()):
                first = stuck[names[close] == name].any(axis=0)
                ends[name] = start + int(np.argmax(first)) if first.any() else None
        spent, start = after, start + step
    return ends if any(end is not None for end in ends.values()) else floor


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The labels and their accuracy for each profile, and the plan that they follow from."""

    plan: VariantPlan
    labels: tuple[float, ...]
    right: tuple[float, ...]


def expect(settings: "TeacherSettings", means: Means, profiles: Sequence[Profile]) -> Expected:
    """Return what the settings give for each profile, by the settings' own bound or the one that plans for it."""
    mechanism = settings.aggregator().mechanism
    found = [_answered(profile, mechanism, settings.n_teachers) for profile in profiles]
    plan = _plan(settings, means, [max(rate, 1e-6) for rate, _ in found])
    limit = means.n_pool if settings.max_labels is None else min(means.n_pool, settings.max_labels)
    most = means.n_pool if settings.n_queries is None else settings.n_queries
    asked = [min(queries, most) for queries in _queries(plan, settings.stop)]
    return Expected(
        plan=plan,
        labels=tuple(min(rate * n, limit) for (rate, _), n in zip(found, asked, strict=True)),
        right=tuple(right for _, right in found),
    )


def _plan(settings: "TeacherSettings", means: Means, rates: Sequence[float]) -> VariantPlan:
    """Return what the settings' variant affords at these answer rates, by the settings' meter of plans."""
    layout = lay_out(
        settings.variant, groups=means.groups, n_teachers=settings.n_teachers, seed=means.seed, **settings.options
    )
    return plan_variant(
        layout, settings.aggregator().mechanism, settings.meter.planning, rates, standing=means.standing
    )


def first_round(settings: "TeacherSettings", means: Means) -> int | None:
    """Return how many points are asked before a student is trained whose probabilities the aggregator needs; else None.

    They are a third of those that all budgets, or what is left of them, surely afford: if every check passes.
    """
    if "student_probs" not in settings.aggregator_options:
        return None
    (sure,) = _plan(settings, means, [1.0]).guaranteed
    return max(1, min(sure.queries, means.n_pool) // 3)


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
    settings: "TeacherSettings", choice: Choice | None, means: Means, *, requested: Mapping[str, Any]
) -> str:
    """Return the reason for the settings of teachers: what was chosen, by which profiles, and what that affords."""
    if choice is None:
        return "parameters as given"
    symbols = {"sigma": "σ", "check_sigma": "σ_T", "threshold": "T", "scale": "the scale of Laplace noise"}
    given = [symbol for name, symbol in symbols.items() if requested[name] not in ("auto", None)]
    if given:
        return f"auto chose {settings.n_teachers} teachers; {', '.join(given)} as given"
    affords = _affords(settings, choice, means)
    return f"auto chose {choice.reason}{affords}"


def _affords(settings: "TeacherSettings", choice: Choice, means: Means) -> str:
    """Return how many labels the chosen settings afford, by which bound, and how many are right, as an end of a line.

    A choice without profiles has a fixed number of labels.
    """
    bound, meter, standing = settings.meter.bound, settings.meter.planning, means.standing
    if standing is not None and standing.private:
        return (
            "; how many labels that affords is not stated, because earlier runs were charged by costs that depend on "
            "private votes, and what they left is private"
        )
    if not choice.profiles:
        return ""
    if settings.meter.whole:
        return f"; its design decides how many labels the bound {bound} gives"
    found = expect(settings, means, choice.profiles)
    what = "this" if standing is None else "what earlier runs left of the budgets"
    more = "" if meter == settings.meter else f"; {bound} affords no fewer, and the votes decide how many more"
    return (
        f": by {choice.profiles[0].source} and the bound {meter.bound} {what} affords about "
        f"{int(np.mean(found.labels)):,} labels, {np.mean(found.right):.0%} of them right{more}"
    )
