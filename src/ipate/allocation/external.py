"""Panels for votes of teachers that were trained elsewhere: votes and group files matched by group id."""

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ipate.allocation.participation import Participation
from ipate.allocation.vanishing import fractions_for
from ipate.allocation.weighting import weights_for
from ipate.errors import InputError
from ipate.people.budgets import Account, Budget, Group, GroupRow
from ipate.votes import Votes
from ipate.votes.panel import Panel

Row: TypeAlias = tuple[str, float, float, float | None]
_VARIANTS = ("standard", "weighting", "upsampling", "vanishing")


def build_panel(
    votes: Votes,
    rows: Sequence[GroupRow],
    *,
    variant: str,
    weights: str,
    power: float | None,
    delta: float,
    order: NDArray[np.int64] | None,
    split_seed: int,
) -> tuple[Votes, Panel, str]:
    """Return the votes (with a participation, under vanishing), the panel and the variant's name."""
    name = _variant(variant, votes)
    if power is not None and name != "vanishing":
        raise InputError(f"power is {power:g}: only vanishing has one, and this is {name}")
    budgets: list[Row] = [
        (row.group, row.epsilon, delta if row.delta is None else row.delta, row.sensitivity) for row in rows
    ]
    if name == "standard":
        plain = replace(votes, participation=None, weights=None)
        return plain, _standard(plain, budgets), name
    if name == "upsampling":
        given = teacher_weights(rows, None, votes.weights, votes.n_teachers)
        mixed = replace(votes, groups=None, participation=None)
        return mixed, Panel.from_votes(mixed, budgets, weights=given), name
    if votes.groups is None:
        raise InputError(f"the votes name no groups: {name} needs 'groups' in the npz, one per teacher")
    if len(rows) > votes.n_teachers:
        raise InputError(f"there are {len(rows)} groups and {votes.n_teachers} teachers: each group needs a teacher")
    if name == "vanishing":
        return *_vanishing(votes, budgets, power, order, split_seed), name
    plain = replace(votes, participation=None)
    return plain, Panel.from_votes(plain, budgets, weights=_weights(rows, budgets, votes, weights)), name


def _variant(asked: str, votes: Votes) -> str:
    if asked == "auto":
        if votes.participation is not None:
            return "vanishing"
        return "upsampling" if votes.groups is None else "weighting"
    if asked not in _VARIANTS:
        raise InputError(f"variant is {asked!r}: it must be one of {', '.join(_VARIANTS)}")
    return asked


def _standard(votes: Votes, budgets: Sequence[Row]) -> Panel:
    """Everyone at the strictest budget, every vote of weight 1, every person in one teacher."""
    epsilon = min(row[1] for row in budgets)
    delta = min(row[2] for row in budgets)
    for name, _, _, sensitivity in budgets:
        if sensitivity not in (None, 1.0):
            raise InputError(
                f"group {name!r} has the sensitivity {sensitivity:g}: in standard PATE a person moves one vote"
            )
    if votes.groups is not None:
        return Panel.from_votes(votes, [(name, epsilon, delta, 1.0) for name, *_ in budgets])
    groups = tuple(Account.of(Group(id=name, budget=Budget(epsilon, delta)), 1.0) for name, *_ in budgets)
    return Panel(groups=groups, weights=np.ones(votes.n_teachers), disjoint=True)


def _weights(rows: Sequence[GroupRow], budgets: Sequence[Row], votes: Votes, rule: str) -> NDArray[np.float64]:
    """Every teacher's weight: as the files say, or by a rule from the budgets, always by group id."""
    in_files = votes.weights is not None or any(row.weight is not None for row in rows)
    if rule == "file":
        if not in_files:
            raise InputError("weights is 'file', but neither the npz nor the csv holds weights")
        return teacher_weights(rows, votes.groups, votes.weights, votes.n_teachers)
    if in_files:
        warnings.warn(
            f"the files hold weights, which the rule {rule!r} replaces (--weights file uses them)",
            stacklevel=2,
        )
    names = votes.groups or ()
    weight = weights_for(
        rule=rule,
        groups=[Group(id=name, budget=Budget(epsilon, delta)) for name, epsilon, delta, _ in budgets],
        teachers_per_group=Counter(names),
    )
    return np.array([weight[name] for name in names])


def _vanishing(
    votes: Votes,
    budgets: Sequence[Row],
    power: float | None,
    order: NDArray[np.int64] | None,
    split_seed: int,
) -> tuple[Votes, Panel]:
    """Use the file's participation, or make the schedule: the n-th query asked is its n-th voting."""
    if votes.participation is None:
        made = [Group(id=name, budget=Budget(epsilon, delta)) for name, epsilon, delta, _ in budgets]
        shares = fractions_for(groups=made, power=power)
        schedule = Participation(seed=split_seed, fractions=shares, teacher_groups=votes.groups or ())
        held = schedule.participants(np.arange(votes.n_queries))
        present = held
        if order is not None:
            present = np.empty_like(held)
            present[:, order] = held
        votes = replace(votes, participation=present)
    elif power is not None:
        raise InputError(f"power is {power:g}: the votes file already says who takes part")
    votes = replace(votes, weights=None)
    return votes, Panel.from_votes(votes, budgets)


def teacher_weights(
    rows: Sequence[GroupRow],
    groups: tuple[str, ...] | None,
    stored: NDArray[np.float64] | None,
    n_teachers: int,
) -> NDArray[np.float64]:
    """Return every teacher's weight as the files give it; npz and csv must agree, 1 unless said."""
    given = {row.group: row.weight for row in rows if row.weight is not None}
    if groups is None or not given:
        if given:
            name = next(iter(given))
            raise InputError(f"group {name!r} has a weight, but the votes name no groups: put weights in the npz")
        return np.ones(n_teachers) if stored is None else stored
    weights = np.ones(n_teachers) if stored is None else stored.copy()
    for index, name in enumerate(groups):
        if name not in given:
            continue
        if stored is not None and not np.isclose(stored[index], given[name], rtol=1e-9, atol=0):
            raise InputError(
                f"group {name!r} has the weight {given[name]:g} in the csv and {stored[index]:g} in the npz: "
                "they must agree"
            )
        weights[index] = given[name]
    return weights
