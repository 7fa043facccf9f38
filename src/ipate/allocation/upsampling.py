"""Upsampling: whoever allows more is learnt from by more teachers, in whole copies.

A person in u teachers can move u votes, so copies in the ratio of what budgets afford let all groups
exhaust together (the paper's Algorithm 1, without its scaling by powers of ten, which yields 69 and 208
copies where 1 and 3 will do). The exact u is what is charged, however well it fits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ipate.allocation.layout import Layout, affordance, check_distinct, check_groups, same_home
from ipate.errors import InputError, check_count, refuse_name, show
from ipate.people.budgets import Account, Group

RULES = ("gdp", "proportional", "classic", "uniform")
TOLERANCE = 0.02
MAX_COPIES = 20


@dataclass(frozen=True, kw_only=True)
class Copies:
    """Copies by group id, and the largest relative error of their ratios: whose it is, and how large."""

    by_id: Mapping[str, int]
    error: float
    worst: str


def copies_for(
    *,
    rule: str = "gdp",
    groups: Sequence[Group],
    tolerance: float = TOLERANCE,
    max_copies: int = MAX_COPIES,
) -> Copies:
    """Return the smallest whole numbers in the ratio of what the budgets afford.

    The strictest group gets b = 1, 2, … copies and every other the whole number nearest to b times its
    ratio, until all ratios hold within the tolerance. Where none does up to `max_copies`, the b with the
    smallest error is taken.

    Parameters
    ----------
    rule : {"gdp", "proportional", "classic", "uniform"}
        What a budget affords; see `rules.affordance`.
    groups : sequence of Group
    tolerance : float
        The relative error of a ratio that is accepted, from 0 to below 1.
    max_copies : int
        The most copies of anybody.
    """
    check_distinct(groups)
    if rule not in RULES:
        refuse_name("rule", rule, RULES)
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not 0 <= tolerance < 1:
        raise InputError(f"tolerance is {show(tolerance)}: it must be a number from 0 to below 1")
    most = check_count("max_copies", max_copies)
    afforded = np.array([affordance(rule, group.budget) for group in groups])
    ratio = afforded / afforded.min()
    best: Copies | None = None
    for base in range(1, most + 1):
        copies = np.clip(np.floor(base * ratio + 0.5), 1, most)
        error = np.abs(copies / base / ratio - 1)
        worst = int(np.argmax(error))
        if best is None or error[worst] < best.error:
            named = {group.id: int(copy) for group, copy in zip(groups, copies, strict=True)}
            best = Copies(by_id=named, error=float(error[worst]), worst=groups[worst].id)
        if best.error <= tolerance + 1e-12:
            break
    if best is None:  # unreachable: max_copies is at least 1
        raise InputError(f"max_copies is {show(max_copies)}: it must be 1 or above")
    return best


def layout(
    *,
    groups: Sequence[Group],
    n_teachers: int,
    seed: int = 0,
    rule: str = "gdp",
    tolerance: float = TOLERANCE,
    max_copies: int = MAX_COPIES,
) -> Layout:
    """Lay out copies for each group and as many more teachers as keep their number of people constant.

    With u = Σu_d/N there are k′ = round(k·u) teachers. σ, σ_T and T scale by k′/k, not by u itself: they
    are shares of the votes cast, and k′ votes are cast; the two differ by rounding alone, and k′/k is
    exactly 1 wherever the number of teachers does not change.

    Parameters
    ----------
    groups, n_teachers, seed
        As in every variant; k counts teachers before scaling. Nothing here is drawn.
    rule, tolerance, max_copies
        As in `copies_for`.
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
        variant="upsampling",
        rule=rule,
        groups=tuple(Account.of(group, float(found.by_id[group.id])) for group in groups),
        teachers=dict.fromkeys(sizes, scaled),
        home=same_home(groups),
        weights=np.ones(scaled),
        teacher_groups=(groups[0].id,) * scaled if len(groups) == 1 else None,
        copies=found.by_id,
        scale=scaled / k,
        notes=_notes(found, tolerance, max_copies, k, scaled),
    )


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
