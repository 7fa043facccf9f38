"""Assign rows to people by id, take each person's strictest budget, and group people of equal budgets."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ipate.errors import LIMITS, DeltaWarning, InputError, check_number, show
from ipate.people.budgets import Budget, Group, large_delta, usual_delta
from ipate.people.ids import ALLOWED, plain_ids
from ipate.people.policy import Policy

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
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
