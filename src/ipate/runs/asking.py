"""Which points of the pool are asked, in one round or two: the second one looks at released labels only."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.data.frames import n_rows
from ipate.labelling.results import Labelling
from ipate.planning.settings import Settings
from ipate.public.features import Kind, neighbourly
from ipate.public.graph import Graph, make_graph
from ipate.public.queries import choose_queries, next_queries, second_round
from ipate.students.confidence import label_distributions

Ints = NDArray[np.int64]
_RULED = 1200  # points that a rule chooses; beyond them the order is random


@dataclass(frozen=True, kw_only=True, eq=False)
class Asking:
    """The points to ask first, in order, and what the second round needs to find `later` more; public."""

    first: Ints
    later: int = 0
    points: NDArray[Any] | None = None
    graph: Graph | None = None
    seed: int = 0


def plan_queries(
    pool: Any, settings: Settings, *, n_classes: int, seed: int, shape: tuple[int, ...] | None = None,
    n_jobs: int | None = None, kind: Kind | None = None,
) -> Asking:  # fmt: skip
    """Choose the points to ask from the pool alone; coverage leaves a quarter of them for a second round.

    `kind` is that of the features in which points are near each other, by default that of the pool. Where the number of
    queries is not fixed, the other points follow in random order.
    """
    size = n_rows(pool)
    m = size if settings.n_queries is None else min(settings.n_queries, size)
    if settings.queries == "random":
        return Asking(first=np.random.default_rng([seed, 2]).permutation(size)[:m])
    points = neighbourly(pool, n_classes=n_classes, shape=shape, kind=kind)
    graph = make_graph(points, n_jobs=n_jobs)
    rounds = settings.queries == "coverage" and settings.n_queries is not None
    later = second_round(m) if rounds else 0
    first = choose_queries(settings.queries, points, min(m - later, _RULED), seed=seed, graph=graph, n_jobs=n_jobs)
    if len(first) < m - later:
        rest = np.setdiff1d(np.arange(size), first)
        first = np.concatenate([first, np.random.default_rng([seed, 2]).permutation(rest)[: m - later - len(first)]])
    return Asking(first=first, later=later, points=points, graph=graph, seed=seed)


def ask(
    asking: Asking, label: Callable[[Ints], Labelling], *, n_classes: int, total_weight: float,
    keep: Callable[[Ints], Ints] | None = None,
) -> Labelling:  # fmt: skip
    """Label the points of the first round, and those that its released labels suggest for the second.

    `keep` stores the points of the second round before they are asked, or returns those that were stored.
    """
    found = label(asking.first)
    asked = len(found.queries)
    if not asking.later or asking.points is None or asking.graph is None or asked < len(asking.first):
        return found
    targets = np.zeros((len(asking.points), n_classes))
    targets[found.queries] = label_distributions(
        found.labels, n_classes=n_classes, noisy_votes=found.noisy_votes, step=found.step, total_weight=total_weight
    )
    later = next_queries(asking.points, asking.graph, targets, asking.later, seed=asking.seed, asked=asking.first)
    return joined(found, label(later if keep is None else keep(later)))


def joined(first: Labelling, second: Labelling) -> Labelling:
    """Return two labellings of one run as one; costs are those after the second."""

    def both(name: str) -> Any:
        one, two = getattr(first, name), getattr(second, name)
        return None if one is None or two is None else np.concatenate([one, two])

    names = ("queries", "labels", "answered", "reinforced", "repeated", "noisy_votes", "step")
    return replace(second, **{name: both(name) for name in names})
