"""Weighting: every teacher learns from one group and votes with the weight that its budget affords.

Nobody's data is copied and groups are never mixed, so it suits parties that cannot share data. Weights and budgets are
matched by group id: the published code sorts both and pairs them by position, which charges strict people a lax
group's weight.

Upsampling: more teachers learn from people who allow more, in whole copies.

A person in u teachers can move u votes, so copies in the ratio of what budgets afford let all groups
exhaust together (the paper's Algorithm 1, without its scaling by powers of ten, which yields 69 and 208
copies where 1 and 3 will do). The exact u is what is charged, however well it fits.

Vanishing: every teacher learns from one group, and teachers of strict groups sit out some queries.

A vote costs its people only where it was cast, so a fraction (μ_g/μ_max)² of the queries lets all groups exhaust
together. Votes are scaled by k over the number who take part. The schedule is public: no amplification by subsampling
is claimed, and every teacher has an account of its own.

Variants: ways to turn a budget into influence on the votes.

Each variant is one object and one entry of `VARIANTS`; nobody else compares its name. It makes a `Layout` from public
facts (budgets, numbers of people and teachers), and `allocate` deals the people to its teachers. Nothing here knows of
noise, training or labels.
"""

import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ipate._types import Floats
from ipate.allocation.allocation import Allocation, make_allocation
from ipate.allocation.layout import Layout, Merge, check_charged, check_distinct
from ipate.allocation.participation import Participation
from ipate.engines.teachers.influence import (
    AFFORDANCES,
    Standard,
    TrainedElsewhere,
    Variant,
    affordance,
    check_groups,
    teacher_weights,
)
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.votes import Votes
from ipate.errors import InputError, ReproductionWarning, check_count, import_part, refuse_name, show
from ipate.people.budgets import Account, Group, shown_count
from ipate.people.people import People

RULES = (*AFFORDANCES, "algorithm2")


def weights_for(
    *, rule: str = "gdp", groups: Sequence[Group], teachers_per_group: Mapping[str, int]
) -> dict[str, float]:
    """Return the weight of each group's teachers, by id; over all k teachers they sum to k.

    w_g ∝ what the budget affords (`AFFORDANCES`); `algorithm2` is w_g ∝ ε_g · teachers of g, as the paper's
    Algorithm 2 and its published code have it, and draws a `ReproductionWarning`.
    """
    check_distinct(groups)
    if rule not in RULES:
        refuse_name("rule", rule, RULES)
    counts = {}
    for group in groups:
        if group.id not in teachers_per_group:
            raise InputError(f"group {show(group.id)} has no number of teachers: every group needs one")
        counts[group.id] = check_count(f"teachers of group {show(group.id)}", teachers_per_group[group.id])
    for name in teachers_per_group:
        if name not in counts:
            raise InputError(f"group {show(name)} has teachers and no budget: every group needs one")
    if rule == "algorithm2":
        warnings.warn(
            "algorithm2 multiplies a group's weight by its number of teachers, so that large strict groups "
            "exhaust first: use it to reproduce the paper only, and gdp otherwise",
            ReproductionWarning,
            stacklevel=2,
        )
        wanted = {group.id: affordance("proportional", group.budget) * counts[group.id] for group in groups}
    else:
        wanted = {group.id: affordance(rule, group.budget) for group in groups}
    largest = max(wanted.values())  # dividing by it first makes equal budgets weigh exactly 1
    shares = {name: value / largest for name, value in wanted.items()}
    total = sum(shares[name] * counts[name] for name in sorted(shares))
    return {name: share * sum(counts.values()) / total for name, share in shares.items()}


def teachers_for(*, sizes: Mapping[str, int], n_teachers: int) -> dict[str, int]:
    """Share k teachers out in proportion to people: largest remainders, at least 1 each, sums to k.

    Whole numbers throughout; ties go to the smaller id, so that the order of groups changes nothing.
    """
    k = check_count("n_teachers", n_teachers)
    if len(sizes) > k:
        raise InputError(
            f"there are {len(sizes)} groups and {k} teachers: every group needs a teacher of its own, "
            f"so n_teachers must be {len(sizes)} or above"
        )
    people = sum(sizes.values())
    teachers = {name: max(1, k * size // people) for name, size in sizes.items()}

    def missing(name: str) -> int:
        return k * sizes[name] - people * teachers[name]

    names = sorted(sizes)
    while sum(teachers.values()) < k:
        teachers[max(names, key=missing)] += 1
    while sum(teachers.values()) > k:
        teachers[min((name for name in names if teachers[name] > 1), key=missing)] -= 1
    return teachers


def blocs_of(*, groups: Sequence[Group], n_teachers: int) -> Layout:
    """Lay out teachers of one group each, all votes alike: the layout that weighting and vanishing start from.

    A group with fewer people than half of a teacher's share (k·n_g/N < ½) joins the next stricter group: of those with
    no larger ε and no larger δ, the one with the largest (ε, δ). The laxest group comes first, and whoever joined
    counts in what follows. A group that has no stricter one keeps one teacher, however small: taking its budget would
    cost the others more than a small teacher costs the vote.
    """
    k, sizes = check_groups(groups, n_teachers)
    teachers_for(sizes=sizes, n_teachers=k)  # refuses more groups than teachers, before any are merged
    people = sum(sizes.values())
    staying = sorted(groups, key=lambda group: (group.epsilon, group.delta, group.id))
    home = {group.id: group.id for group in groups}
    size = dict(sizes)
    for group in reversed(tuple(staying)):
        rank = staying.index(group)
        stricter = [g for g in staying[:rank] if g.epsilon <= group.epsilon and g.delta <= group.delta]
        if 2 * k * size[group.id] < people and stricter:
            target = stricter[-1].id
            size[target] += size.pop(group.id)
            home = {name: target if at == group.id else at for name, at in home.items()}
            staying.remove(group)
    kept = [replace(group, people=size[group.id]) for group in groups if group.id in size]
    merged = tuple(Merge(group=n, into=at, people=sizes[n]) for n, at in home.items() if n != at)
    notes = tuple(
        f"Group {show(merge.group)} ({shown_count(merge.people)} people) is too small for a teacher and joins the "
        f"stricter group {show(merge.into)}: part of its budget stays unused."
        for merge in merged
    )
    teachers = teachers_for(sizes=size, n_teachers=k)
    return Layout(
        variant="weighting",
        rule="uniform",
        groups=tuple(Account(group=group, sensitivity=1.0) for group in kept),
        teachers=teachers,
        home=home,
        weights=np.ones(k),
        teacher_groups=tuple(group.id for group in kept for _ in range(teachers[group.id])),
        copies=dict.fromkeys(teachers, 1),
        merged=merged,
        notes=notes,
    )


class Weighting(Variant):
    """Teachers of one group each, whose votes weigh what the budget affords."""

    name = "weighting"
    summary = "votes of teachers weigh what their people's budget affords"
    site_refusal = None

    def layout(self, *, groups: Sequence[Group], n_teachers: int, seed: int = 0, rule: str = "gdp") -> Layout:
        """Lay out teachers of one group each, with weights by a rule; nothing is drawn from the seed."""
        del seed
        even = blocs_of(groups=groups, n_teachers=n_teachers)
        own = [account.group for account in even.groups]
        weight = weights_for(rule=rule, groups=own, teachers_per_group=even.teachers)
        accounts = tuple(Account(group=group, sensitivity=weight[group.id]) for group in own)
        weights = np.array([weight[name] for name in even.teacher_groups or ()])
        return replace(even, rule=rule, groups=accounts, weights=weights)

    def suits(self, groups: Sequence[Group], *, parties: bool) -> str | None:
        """Recommend weighting where the groups cannot share data."""
        if not parties:
            return None
        return (
            "The groups are parties that cannot share data: weighting trains every teacher on one group's data "
            "alone, and only votes meet."
        )

    def recognises(self, votes: Votes) -> bool:
        """Take votes that name every teacher's group for weighted ones."""
        return votes.participation is None and votes.groups is not None

    def panel(self, given: TrainedElsewhere) -> tuple[Votes, Panel]:
        """Weigh every teacher as the files say or by a rule from the budgets, always by group id."""
        teachers = given.teacher_groups(self.name)
        votes = replace(given.votes, participation=None)
        return votes, Panel.from_votes(votes, given.budgets, weights=_weights(given, teachers))


def _weights(given: TrainedElsewhere, teachers: tuple[str, ...]) -> Floats:
    in_files = given.votes.weights is not None or any(row.weight is not None for row in given.rows)
    if given.weights == "file":
        if not in_files:
            raise InputError("weights is 'file', but neither the npz nor the csv holds weights")
        return teacher_weights(given.rows, given.votes)
    if in_files:
        warnings.warn(
            f"the files hold weights, which the rule {given.weights!r} replaces (--weights file uses them)",
            stacklevel=2,
        )
    weight = weights_for(rule=given.weights, groups=given.groups, teachers_per_group=Counter(teachers))
    return np.array([weight[name] for name in teachers])


TOLERANCE = 0.02
MAX_COPIES = 20


@dataclass(frozen=True, kw_only=True)
class Copies:
    """Copies by group id, the largest relative error of their ratios, and the group that has it."""

    by_id: Mapping[str, int]
    error: float
    worst: str


def copies_for(
    *, rule: str = "gdp", groups: Sequence[Group], tolerance: float = TOLERANCE, max_copies: int = MAX_COPIES
) -> Copies:
    """Return the smallest whole numbers in the ratio of what the budgets afford.

    The strictest group gets b = 1, 2, … copies and every other the whole number nearest to b times its
    ratio, until all ratios hold within the tolerance, a relative error from 0 to below 1. Where none does
    up to `max_copies`, the most copies of anybody, the b with the smallest error is taken.
    """
    check_distinct(groups)
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not 0 <= tolerance < 1:
        raise InputError(f"tolerance is {show(tolerance)}: it must be a number from 0 to below 1")
    most = check_count("max_copies", max_copies)
    afforded = np.array([affordance(rule, group.budget) for group in groups])
    ratio = afforded / afforded.min()
    best = Copies(by_id={}, error=math.inf, worst="")
    for base in range(1, most + 1):
        copies = np.clip(np.floor(base * ratio + 0.5), 1, most)
        error = np.abs(copies / base / ratio - 1)
        worst = int(np.argmax(error))
        if error[worst] < best.error:
            named = {group.id: int(copy) for group, copy in zip(groups, copies, strict=True)}
            best = Copies(by_id=named, error=float(error[worst]), worst=groups[worst].id)
        if best.error <= tolerance + 1e-12:
            break
    return best


class Upsampling(Variant):
    """Copies for each group, and as many more teachers as keep their number of people constant."""

    name = "upsampling"
    summary = "more teachers learn from people who allow more"
    groups_can_leave = False
    influence = "copies"
    influence_title = "teachers per person"
    show_influence = "copies"
    report_note = "Teachers mix groups: the share of votes is the share of places in teachers."
    site_refusal = (
        "copies are whole numbers in the ratio of all people's budgets, and a site knows its own people only; and "
        "teachers that mix groups cannot be weighted by budgets when votes are merged; use weighting"
    )

    def layout(
        self,
        *,
        groups: Sequence[Group],
        n_teachers: int,
        seed: int = 0,
        rule: str = "gdp",
        tolerance: float = TOLERANCE,
        max_copies: int = MAX_COPIES,
    ) -> Layout:
        """Lay out k′ = round(k·u) teachers with u = Σu_d/N; nothing is drawn from the seed.

        σ, σ_T and T scale by k′/k, not by u itself: they are shares of the votes cast, and k′ votes are
        cast; the two differ by rounding alone, and k′/k is exactly 1 wherever the number of teachers does
        not change.
        """
        del seed
        k, sizes = check_groups(groups, n_teachers)
        found = copies_for(rule=rule, groups=groups, tolerance=tolerance, max_copies=max_copies)
        people, slots = sum(sizes.values()), sum(found.by_id[name] * size for name, size in sizes.items())
        scaled = (2 * k * slots + people) // (2 * people)
        for name, copies in found.by_id.items():
            if copies > scaled:
                raise InputError(
                    f"group {show(name)} would have {copies} copies of each person, each in another teacher, and "
                    f"there are {scaled} teachers: take more teachers or at most {scaled} copies (max_copies)"
                )
        return Layout(
            variant=self.name,
            rule=rule,
            groups=tuple(Account(group=group, sensitivity=float(found.by_id[group.id])) for group in groups),
            teachers=dict.fromkeys(sizes, scaled),
            home={name: name for name in sizes},
            weights=np.ones(scaled),
            teacher_groups=(groups[0].id,) * scaled if len(groups) == 1 else None,
            copies=found.by_id,
            scale=scaled / k,
            notes=_notes(found, tolerance, max_copies, k, scaled),
        )

    def suits(self, groups: Sequence[Group], *, parties: bool) -> str | None:
        """Recommend upsampling where data may be pooled and budgets differ."""
        if parties or len({group.budget for group in groups}) == 1:
            return None
        return (
            "Budgets are people's own and their data may be pooled: upsampling mixes all groups in every teacher, so "
            "no teacher depends on who chose which budget. Weighting is the default all the same, because it also "
            "serves parties that cannot share data, follows budgets exactly and not in whole copies, and trains on "
            "every row once."
        )

    def recognises(self, votes: Votes) -> bool:
        """Take votes without groups for those of upsampled teachers."""
        return votes.participation is None and votes.groups is None

    def panel(self, given: TrainedElsewhere) -> tuple[Votes, Panel]:
        """Charge every group the sensitivity that its row gives; teachers belong to no group."""
        weights = teacher_weights(given.rows, given.votes, grouped=False)
        votes = replace(given.votes, groups=None, participation=None)
        return votes, Panel.from_votes(votes, given.budgets, weights=weights)


def _notes(found: Copies, tolerance: float, max_copies: int, k: int, scaled: int) -> tuple[str, ...]:
    notes = []
    if found.error > tolerance + 1e-12:
        notes.append(
            f"No copies up to {max_copies} meet the tolerance of {tolerance:.2%}: the ratio of group "
            f"{show(found.worst)} to the strictest is off by {found.error:.2%}; the copies given are charged."
        )
    if scaled != k:
        notes.append(
            f"{scaled} teachers instead of {k} keep the number of people per teacher; "
            f"sigma, check_sigma and threshold scale by {scaled / k:.6g}."
        )
    return tuple(notes)


def fractions_for(*, groups: Sequence[Group], power: float | None = None) -> Mapping[str, float]:
    """Return in which share of the queries each group's teachers take part, by id; the laxest in all.

    The share is (μ_g/μ_max)², what exact Gaussian accounting affords, or with a `power` (ε_g/ε_max)^power:
    1 in the paper's Algorithm 3, 2 in its appendix, 4 in its experiments.
    """
    check_distinct(groups)
    if power is not None and (
        isinstance(power, bool) or not isinstance(power, int | float) or not 0 <= power < float("inf")
    ):
        raise InputError(f"power is {show(power)}: it must be a finite number, 0 or above")
    afforded = {g.id: affordance("gdp" if power is None else "proportional", g.budget) for g in groups}
    most, exponent = max(afforded.values()), 2.0 if power is None else float(power)
    return {name: (value / most) ** exponent for name, value in afforded.items()}


class Vanishing(Variant):
    """Teachers of one group each, and the schedule by which they take turns."""

    name = "vanishing"
    summary = "teachers of people who allow less sit out some queries"
    takes_turns = True
    groups_can_leave = False
    influence = "fraction"
    influence_title = "takes part in"
    show_influence = "participation"
    site_refusal = (
        "who sits out depends on the budgets of all sites; fit with weighting, which trains the same teachers, and "
        "let the aggregator choose: ipate label --variant vanishing"
    )

    def layout(self, *, groups: Sequence[Group], n_teachers: int, seed: int = 0, power: float | None = None) -> Layout:
        """Lay out teachers of one group each, and a schedule from the public seed.

        Where every fraction is 1 there is no schedule: everybody always takes part, as in standard PATE.
        """
        even = blocs_of(groups=groups, n_teachers=n_teachers)
        fractions = fractions_for(groups=[account.group for account in even.groups], power=power)
        schedule, worst = None, 1.0
        if any(fraction < 1 for fraction in fractions.values()):
            number = check_count("seed", seed, least=0)
            schedule = Participation(seed=number, fractions=fractions, teacher_groups=even.teacher_groups or ())
            worst = schedule.worst_sensitivity
        rule = "gdp" if power is None else f"power {power:g}"
        accounts = tuple(Account(group=account.group, sensitivity=worst) for account in even.groups)
        return replace(even, variant=self.name, rule=rule, groups=accounts, participation=schedule)

    def recognises(self, votes: Votes) -> bool:
        """Take votes that say who takes part for those of teachers that take turns."""
        return votes.participation is not None

    def panel(self, given: TrainedElsewhere) -> tuple[Votes, Panel]:
        """Use the file's participation, or make the schedule: the n-th query asked is its n-th."""
        teachers, votes = given.teacher_groups(self.name), given.votes
        if votes.participation is None:
            shares = fractions_for(groups=given.groups, power=given.power)
            schedule = Participation(seed=given.split_seed, fractions=shares, teacher_groups=teachers)
            votes = replace(votes, participation=schedule.in_order(votes.n_queries, given.order))
        elif given.power is not None:
            raise InputError(f"power is {given.power:g}: the votes file already says who takes part")
        votes = replace(votes, weights=None)
        return votes, Panel.from_votes(votes, given.budgets)


VARIANTS: dict[str, Variant] = {made.name: made for made in (Standard(), Upsampling(), Weighting(), Vanishing())}
"""Every variant by name; a new one is added with `VARIANTS[mine.name] = mine`."""


def find_variant(name: str) -> Variant:
    """Return the variant of this name, or one from outside; refuse an unknown name with the nearest one."""
    if name in VARIANTS:
        return VARIANTS[name]
    if ":" not in name:
        refuse_name("variant", name, (*VARIANTS, "module:attribute"))
    found = import_part("variant", name)
    made = found() if isinstance(found, type) else found
    if not isinstance(made, Variant):
        raise InputError(f"variant is {name!r}: it must be a Variant of ipate.engines.teachers.influence")
    return made


def lay_out(variant: str, *, groups: Sequence[Group], n_teachers: int, seed: int = 0, **options: Any) -> Layout:
    """Return what a variant decides from public facts: weights, copies or schedule, groups, scale.

    Each group has its number of people; `n_teachers` is k before upsampling scales it; `seed` is the public seed of
    vanishing's schedule. The options are those of the variant's `layout`.
    """
    chosen = find_variant(variant)
    for name in options:
        if name not in chosen.options:
            allowed = f"allowed are {', '.join(chosen.options)}" if chosen.options else "it has none"
            raise InputError(f"{show(name)} is no option of variant {variant!r}: {allowed}")
    made = replace(chosen.layout(groups=groups, n_teachers=n_teachers, seed=seed, **options), variant=variant)
    check_charged(made)
    return made


def allocate(variant: str, *, people: People, n_teachers: int, seed: int, **options: Any) -> Allocation:
    """Return which people each teacher learns from, and what their votes weigh and cost.

    Parameters
    ----------
    variant : str
        A name in `VARIANTS`: "standard", "upsampling", "weighting" or "vanishing".
    people : People
        Who there is, with their groups.
    n_teachers : int
        k, before upsampling scales it.
    seed : int
        The public split seed: the same people, teachers and seed give the same allocation.
    **options
        `rule` (upsampling, weighting), `tolerance` and `max_copies` (upsampling), `power` (vanishing).
    """
    layout = lay_out(variant, groups=people.groups, n_teachers=n_teachers, seed=seed, **options)
    return make_allocation(people=people, layout=layout, seed=seed)


def panel_for(variant: str, given: TrainedElsewhere) -> tuple[Votes, Panel, str]:
    """Return the votes, the panel and the variant's name; "auto" chooses by what the votes file holds."""
    if variant == "auto":
        variant = next(name for name, candidate in VARIANTS.items() if candidate.recognises(given.votes))
    chosen = find_variant(variant)
    if given.power is not None and "power" not in chosen.options:
        users = ", ".join(name for name, other in VARIANTS.items() if "power" in other.options)
        raise InputError(f"power is {given.power:g}: only {users} has one, and this is {variant}")
    return *chosen.panel(given), variant
