"""Which points of the pool are asked, in one round or two: the second one looks at released labels only.

The labels of the first round choose the points of the second (coverage), or teach a student with whom the votes on
the second are compared (the aggregator interactive).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate._types import Floats, Ints
from ipate.data.frames import n_rows
from ipate.engines.teachers.settings import TeacherSettings
from ipate.public.features import Kind, neighbourly
from ipate.public.graph import Graph, make_graph
from ipate.public.queries import choose_queries, next_queries, second_round
from ipate.release.results import Labelling
from ipate.students.confidence import label_distributions

_RULED = 1200  # points that a rule chooses; beyond them the order is random


@dataclass(frozen=True, kw_only=True, eq=False)
class Asking:
    """The points to ask first, in order, and those of the second round, or what it needs to find them; public."""

    first: Ints
    later: int = 0  # how many points the second round has
    rest: Ints | None = None  # its points, if they are known; released labels do not choose them
    points: NDArray[Any] | None = None
    graph: Graph | None = None
    seed: int = 0


def plan_queries(
    pool: Any,
    settings: TeacherSettings,
    *,
    n_classes: int,
    seed: int,
    shape: tuple[int, ...] | None = None,
    n_jobs: int | None = None,
    kind: Kind | None = None,
) -> Asking:
    """Choose the points to ask from the pool alone; coverage leaves a quarter of them for a second round.

    `kind` is that of the features in which points are near each other, by default that of the pool. Where the number of
    queries is not fixed, the other points follow in random order. A first round of `Settings.n_first` is cut off.
    """
    size = n_rows(pool)
    m = size if settings.n_queries is None else min(settings.n_queries, size)
    if settings.queries == "random":
        return _in_rounds(np.random.default_rng([seed, 2]).permutation(size)[:m], settings)
    points = neighbourly(pool, n_classes=n_classes, shape=shape, kind=kind)
    graph = make_graph(points, n_jobs=n_jobs)
    rounds = settings.queries == "coverage" and settings.n_queries is not None
    later = second_round(m) if rounds else 0
    first = choose_queries(settings.queries, points, min(m - later, _RULED), seed=seed, graph=graph, n_jobs=n_jobs)
    if len(first) < m - later:
        rest = np.setdiff1d(np.arange(size), first)
        first = np.concatenate([first, np.random.default_rng([seed, 2]).permutation(rest)[: m - later - len(first)]])
    if not later:
        return _in_rounds(first, settings)
    return Asking(first=first, later=later, points=points, graph=graph, seed=seed)


def _in_rounds(order: Ints, settings: TeacherSettings) -> Asking:
    """Return points to ask, in one round or, for a student between them, in two."""
    if settings.n_first is None:
        return Asking(first=order)
    rest = order[settings.n_first :]
    return Asking(first=order[: settings.n_first], rest=rest, later=len(rest))


def ask(
    asking: Asking,
    label: Callable[..., Labelling],
    *,
    n_classes: int,
    total_weight: float,
    keep: Callable[[Ints], Ints] | None = None,
    guess: Callable[[Labelling], Floats | None] | None = None,
) -> Labelling:
    """Label the points of the first round, and those of the second.

    `label` labels points, after an earlier labelling and with a student's probabilities if there are any. `keep` stores
    the points of the second round before they are asked, or returns those that were stored. `guess` returns the
    probabilities at the whole pool of a student of the first round's labels; None, if these cannot teach one.
    """
    found = label(asking.first)
    if not asking.later or len(found.queries) < len(asking.first) or found.stopped_by == "count":
        return found
    if asking.rest is not None:
        return label(asking.rest, found, None if guess is None else guess(found))
    if asking.points is None or asking.graph is None:
        return found
    targets = np.zeros((len(asking.points), n_classes))
    targets[found.queries] = label_distributions(
        found.labels, n_classes=n_classes, noisy_votes=found.noisy_votes, step=found.step, total_weight=total_weight
    )
    later = next_queries(asking.points, asking.graph, targets, asking.later, seed=asking.seed, asked=asking.first)
    return label(later if keep is None else keep(later), found)
