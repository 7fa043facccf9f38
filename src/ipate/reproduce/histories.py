"""Costs while votings go on, past every budget: what the paper's cost figures show."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ipate.reproduce.ensembles import Ensemble
from ipate.reproduce.schemes import Scheme
from ipate.reproduce.voting import PAPER, hold, replay

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
    costs, _ = _history(ensemble, scheme, voting=voting, labels=None, queries=int(at[-1]))
    return {name: cost[np.minimum(at, len(cost)) - 1] for name, cost in costs.items()}
