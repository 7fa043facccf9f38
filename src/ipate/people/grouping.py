"""Assign rows to people by id, take each person's strictest budget, and group people of equal budgets.

Merge groups downwards: people join a stricter group, so that nobody ever gets more than they allowed.

Groups that are too small join the next stricter one, and where there are more groups than teachers can serve, they are
merged so that the least μ is lost. Both follow from budgets and numbers of people, which are public.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ipate._types import Floats, Ints
from ipate.errors import LIMITS, DeltaWarning, InputError, check_count, check_number, show
from ipate.people.budgets import Budget, Group, large_delta, shown_count, usual_delta
from ipate.people.ids import ALLOWED, plain_ids
from ipate.people.policy import Policy

Where: TypeAlias = Callable[[int], str]
Name: TypeAlias = Callable[[float, float], str]


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The person of every row, and how to name a row in a message."""

    ids: NDArray[np.str_]
    person: Ints
    place: Where

    def where(self, row: int) -> str:
        """Name a row and its person."""
        return f"{self.place(row)} (person {show(str(self.ids[self.person[row]]))})"


def by_number(
    rows: Rows, epsilon: Floats, delta: Any, given: Floats | None, merge_within: float | None
) -> dict[str, Any]:
    """Make the fields of `People` from an ε per row; group ids state ε, and δ if it differs from the default."""
    if isinstance(delta, str) and delta == "auto":
        delta = usual_delta(len(rows.ids))
    values, code = np.unique(epsilon, return_inverse=True)
    deltas, usual = _deltas(rows, delta, given, dict.fromkeys(values.tolist(), np.nan), code)

    def name(epsilon: float, delta: float) -> str:
        plain = f"eps={_short(epsilon)}"
        return plain if usual[epsilon] == delta else f"{plain}_delta={_short(delta)}"

    return _assemble(rows, epsilon, deltas, merge_within, name)


def by_level(rows: Rows, levels: Any, policy: Policy, delta: Any, given: Floats | None) -> dict[str, Any]:
    """Make the fields of `People` from a level per row; group ids are levels, joined by + if their ε is equal."""
    if isinstance(delta, str) and delta == "auto":
        delta = usual_delta(len(rows.ids)) if policy.delta is None else None
    number = {level: place for place, level in enumerate(policy.levels)}
    code = _places(levels, number)
    if (code < 0).any():
        row = int(np.argmax(code < 0))
        raise InputError(f"{rows.where(row)}: {policy.unknown(levels[row])}")
    for level in delta if isinstance(delta, Mapping) else ():
        if level not in number:
            raise InputError(f"delta: {policy.unknown(level)}")
    fallback = np.nan if policy.delta is None else policy.delta
    deltas, usual = _deltas(rows, delta, given, dict.fromkeys(number, fallback), code)
    if (deltas > fallback).any():
        row = int(np.argmax(deltas > fallback))
        most = f"at most the policy's {fallback!r} is allowed"
        raise InputError(f"{rows.where(row)}: delta is {show(deltas[row])}: {most}")

    def name(epsilon: float, delta: float) -> str:
        same = [level for level, value in policy.levels.items() if value == epsilon]
        exact = [level for level in same if usual[level] == delta]
        return "+".join(exact) if exact else f"{'+'.join(same)}_delta={_short(delta)}"

    return _assemble(rows, np.array(list(policy.levels.values()))[code], deltas, None, name)


def _places(levels: Any, number: Mapping[str, int]) -> Ints:
    """Return the index of every row's level, −1 if it is unknown; a text array is compared as a whole, for speed."""

    def place(cell: Any) -> int:
        return number.get(cell.strip(), -1) if isinstance(cell, str) else -1

    if not (isinstance(levels, np.ndarray) and levels.dtype.kind == "U" and levels.ndim == 1):
        return np.array([place(cell) for cell in levels], dtype=np.int64)
    code = np.full(len(levels), -1, dtype=np.int64)
    for level, position in number.items():
        code[levels == level] = position
    for row in np.flatnonzero(code < 0).tolist():  # cells with surrounding spaces
        code[row] = place(str(levels[row]))
    return code


def _assemble(rows: Rows, epsilon: Floats, delta: Floats, merge_within: float | None, name: Name) -> dict[str, Any]:
    """Take each person's strictest budget, optionally merge budgets, and group by equal (ε, δ)."""
    notes: list[str] = []
    epsilon = _strictest("epsilon", epsilon, rows, notes)
    delta = _strictest("delta", delta, rows, notes)
    if merge_within is not None:
        epsilon = _merge(epsilon, delta, merge_within, notes)
    first, group = _distinct(epsilon, delta)
    budgets = zip(epsilon[first].tolist(), delta[first].tolist(), np.bincount(group).tolist(), strict=True)
    groups = tuple(Group(id=name(e, d), budget=Budget(e, d), people=count) for e, d, count in budgets)
    if (why := large_delta(groups)) is not None:
        warnings.warn(why, DeltaWarning, stacklevel=4)
    return {
        "groups": groups,
        "ids": rows.ids,
        "group_of_person": group,
        "person_of_row": rows.person,
        "notes": tuple(notes),
    }


@contextmanager
def refusing_large_delta() -> Iterator[None]:
    """Refuse a δ of 1/N or more, instead of the warning about it: such a guarantee promises nothing to somebody."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeltaWarning)
            yield
    except DeltaWarning as warning:
        raise InputError(str(warning)) from None


def _strictest(kind: str, values: Floats, rows: Rows, notes: list[str]) -> Floats:
    """Return each person's smallest value over their rows, and note how many people have conflicting rows."""
    n_people = len(rows.ids)
    least = np.full(n_people, np.inf)
    np.minimum.at(least, rows.person, values)
    lowered = np.unique(rows.person[values != least[rows.person]]).size
    if lowered:
        notes.append(
            f"{lowered} of {n_people} people have rows that disagree on {kind}: "
            f"the smallest {kind} of each of them counts for all their rows."
        )
    return least


def _merge(epsilon: Floats, delta: Floats, within: float, notes: list[str]) -> Floats:
    """Reduce each ε to the anchor of its cluster: the smallest ε of equal δ within the relative tolerance."""
    if isinstance(within, bool) or not isinstance(within, int | float) or not 0 <= within <= 1:
        raise InputError(f"merge_within is {show(within)}: it must be a number from 0 to 1, or None")
    first, code = _distinct(epsilon, delta)
    order = np.lexsort((epsilon[first], delta[first]))
    targets: list[float] = []
    anchor, anchor_delta = np.nan, np.nan
    for e, d in zip(epsilon[first][order].tolist(), delta[first][order].tolist(), strict=True):
        if d != anchor_delta or e > anchor * (1 + within):
            anchor, anchor_delta = e, d
        targets.append(anchor)
    target = np.empty(len(first))
    target[order] = targets
    merged = target[code]
    moved, unused = int((merged < epsilon).sum()), epsilon - merged
    if moved:
        count = len(_distinct(merged, delta)[0])
        notes.append(
            f"merge_within={within:g} merged {len(first)} budgets into {count}: {moved} of {len(epsilon)} "
            f"people moved to a stricter budget and leave ε = {unused.sum():.6g} unused in total, "
            f"at most {unused.max():.6g} each."
        )
    return merged


def _distinct(epsilon: Floats, delta: Floats) -> tuple[Ints, Ints]:
    """Return the first index of every distinct (ε, δ), in order of first appearance, and each person's group index."""
    return _first_appearance(epsilon + 1j * delta)  # a complex number holds the pair exactly


def _first_appearance(values: NDArray[Any]) -> tuple[Ints, Ints]:
    _, first, code = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[code]


def number_column(kind: str, values: ArrayLike, where: Where) -> Floats:
    """Return one number per row, checked against the limits of its kind."""
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.array(None)
    if array.dtype.kind not in "iuf" or array.ndim != 1 or not array.size:
        what = f"{kind} has the shape {array.shape} and the type {array.dtype}"
        raise InputError(f"{what}: it must be a list of numbers, one per row and at least one")
    test, allowed = LIMITS[kind]
    numbers = array.astype(np.float64)
    good = test(numbers)
    if not good.all():
        row = int(np.argmin(good))
        raise InputError(f"{where(row)}: {kind} is {show(array[row])}: {allowed}")
    return numbers


def _deltas(
    rows: Rows, delta: Any, given: Floats | None, usual: dict[Any, float], code: Ints
) -> tuple[Floats, dict[Any, float]]:
    """Return δ per row and the default δ of each key (an ε or a level); NaN means 'not given' in this function."""
    if isinstance(delta, Mapping):
        own = {key: check_number("delta", value, of=key) for key, value in delta.items()}
        usual = {key: own.get(key, other) for key, other in usual.items()}
    elif delta is not None and np.ndim(delta) == 0:
        usual = dict.fromkeys(usual, check_number("delta", delta))
    elif delta is not None:
        given = number_column("delta", delta, row_name)
        if len(given) != len(code):
            raise InputError(f"delta has {len(given)} entries: it must have {len(code)}, one per row, or be one")
    resolved = np.fromiter(usual.values(), np.float64, len(usual))[code]
    if given is not None:
        resolved = np.where(np.isnan(given), resolved, given)
    if np.isnan(resolved).any():
        row = int(np.argmax(np.isnan(resolved)))
        missing = list(usual)[code[row]]
        raise InputError(f"{rows.where(row)}: delta for {missing} is missing: every budget must have one")
    return resolved, usual


def find_rows(person_id: Any, n_rows: int, place: Where) -> Rows:
    """Return the people in order of first appearance, and the person of every row."""
    if n_rows == 0:
        raise InputError("there are no rows: at least one is needed")
    if person_id is None:
        return Rows(ids=np.arange(n_rows).astype(np.str_), person=np.arange(n_rows), place=place)
    cells = person_id if isinstance(person_id, np.ndarray) else list(person_id)
    if (isinstance(cells, np.ndarray) and cells.ndim != 1) or len(cells) != n_rows:
        raise InputError(f"person_id has {len(cells)} entries: it must have {n_rows}, one per row")
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "iu":
        first, person = _first_appearance(cells)
        return Rows(ids=cells[first].astype(np.str_), person=person, place=place)
    texts = plain_ids(cells)
    if "" in texts:
        row = texts.index("")
        raise InputError(f"{place(row)}: person is {show(cells[row])}: {ALLOWED}")
    seen: dict[str, int] = {}
    person = np.fromiter((seen.setdefault(text, len(seen)) for text in texts), np.int64, n_rows)
    return Rows(ids=np.array(list(seen)), person=person, place=place)


def row_name(row: int) -> str:
    """Name a row by its number."""
    return f"row {row}"


def _short(number: float) -> str:
    """Format a float with the fewest digits that read back exactly, so that distinct numbers stay distinct."""
    return repr(number).removesuffix(".0")


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
