"""Weighting: every teacher learns from one group and votes with the weight that its budget affords.

Nobody's data is copied and groups are never mixed, so it suits parties that cannot share data. Weights and budgets are
matched by group id: the published code sorts both and pairs them by position, which charges strict people a lax
group's weight.
"""

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ipate.allocation.layout import Floats, Layout, Merge, check_distinct
from ipate.allocation.variant import AFFORDANCES, TrainedElsewhere, Variant, affordance, check_groups, teacher_weights
from ipate.errors import InputError, ReproductionWarning, check_count, refuse_name, show
from ipate.people.budgets import Account, Group, shown_count
from ipate.votes import Votes
from ipate.votes.panel import Panel

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
    flags: Mapping[str, str] = {"rule": "weights"}

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
