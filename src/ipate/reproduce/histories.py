"""Costs while votings go on, past every budget: what the paper's cost figures show."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ipate.reproduce.ensembles import Ensemble
from ipate.reproduce.schemes import Scheme
from ipate.reproduce.voting import PAPER, hold, replay, turns_of

__all__ = ["by_labels", "by_queries"]

Floats = NDArray[np.float64]
_BOUNDLESS = 1000.0  # an ε that no voting here reaches


def _boundless(scheme: Scheme) -> Scheme:
    groups = tuple(replace(group, epsilon=_BOUNDLESS) for group in scheme.panel.groups)
    return replace(scheme, panel=replace(scheme.panel, groups=groups))


def _history(
    ensemble: Ensemble, scheme: Scheme, *, voting: int, labels: int | None, queries: int | None
) -> tuple[dict[str, Floats], NDArray[np.bool_]]:
    """Return every group's ε after each query, and which queries were answered."""
    free = _boundless(scheme)
    held = hold(ensemble, free, PAPER, voting=voting, max_labels=labels, max_queries=queries)
    _, _, rows = replay(ensemble, free, held)
    names = [group.id for group in scheme.panel.groups]
    costs = np.array([row[2] for row in rows]).reshape(-1, len(names))
    return {name: costs[:, place] for place, name in enumerate(names)}, held.given


def by_labels(ensemble: Ensemble, scheme: Scheme, at: NDArray[np.int64], *, voting: int) -> dict[str, Floats]:
    """Return every group's ε when so many labels were given; NaN where the pool had fewer."""
    if scheme.schedule is not None:
        return _rotating(ensemble, scheme, at, voting=voting, by_label=True)
    costs, given = _history(ensemble, scheme, voting=voting, labels=int(at[-1]), queries=None)
    where = np.flatnonzero(given)
    inside = at <= len(where)
    found = {}
    for name, cost in costs.items():
        found[name] = np.full(len(at), np.nan)
        found[name][inside] = cost[where[at[inside] - 1]]
    return found


def by_queries(ensemble: Ensemble, scheme: Scheme, at: NDArray[np.int64], *, voting: int) -> dict[str, Floats]:
    """Return every group's ε after so many queries."""
    if scheme.schedule is not None:
        return _rotating(ensemble, scheme, at, voting=voting, by_label=False)
    costs, _ = _history(ensemble, scheme, voting=voting, labels=None, queries=int(at[-1]))
    return {name: cost[np.minimum(at, len(cost)) - 1] for name, cost in costs.items()}


def _rotating(
    ensemble: Ensemble, scheme: Scheme, at: NDArray[np.int64], *, voting: int, by_label: bool
) -> dict[str, Floats]:
    """Return the worst ε of every group's teachers at these labels or queries."""
    turns = turns_of(ensemble, scheme, voting=voting)
    where = np.flatnonzero(turns.labels >= 0) + 1 if by_label else np.arange(1, len(turns.labels) + 1)
    found = {group.id: np.full(len(at), np.nan) for group in scheme.panel.groups}
    for place, number in enumerate(at):
        if number <= len(where):
            for name, epsilon in turns.epsilon(int(where[number - 1])).items():
                found[name][place] = epsilon
    return found
