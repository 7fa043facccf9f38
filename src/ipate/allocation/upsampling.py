"""Upsampling: more teachers learn from people who allow more, in whole copies.

A person in u teachers can move u votes, so copies in the ratio of what budgets afford let all groups
exhaust together (the paper's Algorithm 1, without its scaling by powers of ten, which yields 69 and 208
copies where 1 and 3 will do). The exact u is what is charged, however well it fits.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ipate.allocation.layout import Layout, check_distinct
from ipate.allocation.variant import TrainedElsewhere, Variant, affordance, check_groups, teacher_weights
from ipate.errors import InputError, check_count, show
from ipate.people.budgets import Account, Group
from ipate.votes import Votes
from ipate.votes.panel import Panel

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
    flags: Mapping[str, str] = {"rule": "copies"}

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
