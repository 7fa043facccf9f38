"""Merge groups downwards: people join a stricter group, so that nobody ever gets more than they allowed.

Groups that are too small join the next stricter one, and where there are more groups than teachers can serve, they are
merged so that the least μ is lost. Both follow from budgets and numbers of people, which are public.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ipate.errors import InputError, check_count
from ipate.people.budgets import Group, shown_count

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
_EXACT = 1500  # distinct budgets of one δ among which the best merge is searched; more are first thinned out


def merge_groups(
    groups: Sequence[Group], *, max_groups: int | None = None, min_group_size: int = 1
) -> tuple[Ints, tuple[str, ...]]:
    """Return the index of the group that each group joins (its own if it stays), and notes about the loss."""
    from ipate.accounting import gdp

    check_count("min_group_size", min_group_size)
    people = np.array([group.people or 0 for group in groups], dtype=np.int64)
    epsilon = np.array([group.epsilon for group in groups])
    delta = np.array([group.delta for group in groups])
    mu = gdp.mu_of(epsilon, delta)
    home = np.arange(len(groups))
    notes: list[str] = []
    if max_groups is not None and len(groups) > check_count("max_groups", max_groups):
        home = _fewest_lost(mu, delta, people, max_groups)
        start = f"{len(groups)} different budgets are merged into"
        notes.append(_loss(epsilon, home, people, start, least=min_group_size))
    sizes = np.bincount(home, people, len(groups)).astype(np.float64)
    small = _joined(epsilon, delta, mu, sizes, min_group_size)
    if (small[home] != home).any():
        moved = int(people[small[home] != home].sum())
        who = str(shown_count(moved, least=min_group_size)).capitalize()
        notes.append(
            f"{who} people join the next stricter group, because their own has fewer than {min_group_size} people "
            "(min_group_size)."
        )
        home = small[home]
    return home, tuple(notes)


def regrouped(groups: Sequence[Group], home: Ints) -> tuple[Group, ...]:
    """Return the groups that others joined or that stayed, in their order, with all of their people."""
    people = np.bincount(home, [group.people or 0 for group in groups], len(groups)).astype(np.int64)
    return tuple(replace(groups[place], people=int(people[place])) for place in np.unique(home).tolist())


def _loss(epsilon: Floats, home: Ints, people: Ints, start: str, *, least: int) -> str:
    lost = epsilon - epsilon[home]
    moved = shown_count(int(people[lost > 0].sum()), least=least)
    average = f" and {float(lost @ people) / max(1, int(people.sum())):.4g} on average over all people"
    if isinstance(moved, str):
        average = ""  # it would tell how many they are
    return (
        f"{start} {len(np.unique(home))} groups: {moved} of {people.sum()} people count with a smaller ε than they "
        f"allowed, by {lost.max():.4g} at most{average} (max_groups)."
    )


def _joined(epsilon: Floats, delta: Floats, mu: Floats, people: Floats, least: int) -> Ints:
    """Return where groups of fewer than `least` people go: to the largest μ that exceeds neither their ε nor their δ.

    The loosest go first. A group without a stricter one stays, whatever its size.
    """
    home, sizes = np.arange(len(mu)), people.copy()
    for place in np.argsort(-mu, kind="stable").tolist():
        if not 0 < sizes[place] < least:
            continue
        stricter = (epsilon <= epsilon[place]) & (delta <= delta[place]) & (sizes > 0)
        stricter[place] = False
        if stricter.any():
            into = int(np.argmax(np.where(stricter, mu, -np.inf)))
            sizes[into] += sizes[place]
            sizes[place] = 0
            home[home == place] = into
    return home


def _fewest_lost(mu: Floats, delta: Floats, people: Ints, most: int) -> Ints:
    """Merge groups of equal δ into at most `most`, so that the sum of the μ that people lose is smallest."""
    kinds = np.unique(delta)
    if len(kinds) > most:
        raise InputError(
            f"there are {len(kinds)} different delta and at most {most} groups: give everybody one delta, or allow "
            "more groups (max_groups)"
        )
    members = [np.flatnonzero(delta == kind) for kind in kinds]
    members = [own[np.argsort(mu[own], kind="stable")] for own in members]
    found = [_segments(mu[own], people[own], most) for own in members]
    best, shares = np.array([0.0]), []  # the loss of the kinds so far for every number of groups, and the choices
    for losses, _ in found:
        total = best[:, None] + losses[None, :]  # groups before × groups of this kind
        sums = np.add.outer(np.arange(len(best)), np.arange(len(losses)))
        size = min(most, int(sums.max())) + 1
        own_share = np.array([_argmin_on(total, sums, number) for number in range(size)])
        best = np.array([total[number - own, own] if own >= 0 else np.inf for number, own in enumerate(own_share)])
        shares.append(own_share)
    number = int(np.argmin(best))
    home = np.arange(len(mu))
    for own, (_, starts), share in zip(reversed(members), reversed(found), reversed(shares), strict=True):
        count = int(share[number])
        first = starts[count]
        home[own] = own[first[np.searchsorted(first, np.arange(len(own)), side="right") - 1]]
        number -= count
    return home


def _argmin_on(total: Floats, sums: Ints, number: int) -> int:
    """Return the column of the smallest finite entry among those whose places sum to `number`; −1 for none."""
    allowed = np.where(sums == number, total, np.inf)
    place = int(np.argmin(allowed))
    return place % total.shape[1] if np.isfinite(allowed.flat[place]) else -1


def _segments(mu: Floats, people: Ints, most: int) -> tuple[Floats, list[Ints]]:
    """Cut ascending μ into 0 … `most` segments, each of which counts with its first: the loss and the first places.

    The cuts are optimal by dynamic programming; beyond `_EXACT` values only every so many people a cut is considered.
    """
    weight = np.concatenate([[0.0], np.cumsum(people, dtype=np.float64)])
    moment = np.concatenate([[0.0], np.cumsum(people * mu)])
    cuts = np.arange(len(mu) + 1)
    if len(mu) > _EXACT:
        cuts = np.unique([0, *np.searchsorted(weight, np.linspace(0, weight[-1], _EXACT + 1)), len(mu)])
        cuts = np.unique(np.minimum(cuts, len(mu)))
    first = mu[np.minimum(cuts, len(mu) - 1)]
    cost = (
        np.subtract.outer(moment[cuts], moment[cuts]).T
        - first[:, None] * np.subtract.outer(weight[cuts], weight[cuts]).T
    )
    cost[np.tril_indices(len(cuts))] = np.inf  # a segment has at least one value
    best = np.where(np.arange(len(cuts)) == 0, 0.0, np.inf)
    losses, starts, back = [np.inf], [np.empty(0, dtype=np.int64)], []
    for _ in range(min(most, len(cuts) - 1)):
        through = best[:, None] + cost
        back.append(np.argmin(through, axis=0))
        best = through.min(axis=0)
        losses.append(max(0.0, float(best[-1])))
        place, chosen = len(cuts) - 1, []
        for step in reversed(back):
            place = int(step[place])
            chosen.append(int(cuts[place]))
        starts.append(np.array(chosen[::-1], dtype=np.int64))
    return np.array(losses), starts
