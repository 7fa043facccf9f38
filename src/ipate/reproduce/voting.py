"""One voting process of the paper: the public points are asked in a random order until a budget is exhausted."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.accounting import loose, tight
from ipate.accounting.bounds import Meter
from ipate.labelling.aggregators import Confident
from ipate.labelling.audit import HistoryRow, account_for
from ipate.labelling.loop import label
from ipate.labelling.noise import SeededNoise
from ipate.reproduce.jobs import Ints
from ipate.reproduce.models import Ensemble, Student
from ipate.reproduce.schemes import Scheme
from ipate.votes import Votes
from ipate.votes.panel import Panel

PAPER = Meter("tight", "classic")
"""The paper's account: the tight bound and the classic conversion, orders 2 to 50. It is not releasable."""
IMPROVED = Meter("tight", "improved")
"""The same bound with the improved conversion (Canonne, Kamath and Steinke)."""
_ORDER_STREAM = 3  # seeds the order in which points are asked
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Voting:
    """The labels of one voting process of an ensemble."""

    ensemble: Ensemble
    number: int
    asked: NDArray[np.int64]  # positions in the ensemble's public points, in the order asked
    labels: NDArray[np.int64]  # −1 where the check failed
    spent: dict[str, float]  # ε by group id at the end

    @property
    def truth(self) -> Ints:
        """The classes of the points asked; for scoring only."""
        return self.ensemble.truth[self.asked]

    @cached_property
    def answered(self) -> NDArray[np.bool_]:
        """Which queries were answered."""
        return np.asarray(self.labels >= 0)

    @property
    def n_labels(self) -> int:
        """The number of labels."""
        return int(self.answered.sum())

    @property
    def accuracy(self) -> float:
        """The share of right labels; NaN where there is none."""
        return _mean(self.labels[self.answered] == self.truth[self.answered])

    def accuracy_of(self, one: int) -> float:
        """Return the share of right labels among the labelled points of one class."""
        return _mean(self.labels[self.answered & (self.truth == one)] == one)

    def student(self, key: tuple[Any, ...]) -> Student:
        """Return the student that learns from these labels."""
        replicate = self.ensemble.spec.replicate
        return Student(
            key=(*key, replicate, self.number),
            replicate=replicate,
            rows=self.ensemble.public[self.asked[self.answered]],
            labels=self.labels[self.answered],
        )


def _mean(right: NDArray[np.bool_]) -> float:
    return float(right.mean()) if right.size else float("nan")


def query_order(ensemble: Ensemble, number: int) -> NDArray[np.int64]:
    """Return the order in which a voting asks the public points."""
    rng = np.random.default_rng([ensemble.spec.replicate, number, _ORDER_STREAM])
    return rng.permutation(len(ensemble.truth))


def voting_noise(ensemble: Ensemble, number: int) -> SeededNoise:
    """Return the noise of a voting."""
    return SeededNoise(1000 * ensemble.spec.replicate + number)


def run_voting(
    ensemble: Ensemble, scheme: Scheme, meter: Meter = PAPER, *, number: int, max_labels: int | None = None,
    max_queries: int | None = None, present: NDArray[np.bool_] | None = None,
) -> Voting:  # fmt: skip
    """Run one voting until a budget would be exceeded: by `label`, or by `rotation_costs` where teachers rotate.

    The order of points and the noise depend on the ensemble's replicate and the voting's number only, so schemes can
    be compared. `present` (teachers, points) says who takes part in which query, in place of a schedule.
    """
    order = query_order(ensemble, number)
    if present is not None or scheme.schedule is not None:
        costs = rotation_costs(ensemble, scheme, meter, number=number, present=present)
        count = costs.affordable()
        return Voting(
            ensemble=ensemble, number=number, asked=order[:count], labels=costs.labels[:count],
            spent=costs.epsilon(count),
        )  # fmt: skip
    done = label(
        _votes(ensemble, order), scheme.panel, Confident(mechanism=scheme.mechanism), meter, max_labels=max_labels,
        max_queries=max_queries, noise=voting_noise(ensemble, number),
    )  # fmt: skip
    return Voting(
        ensemble=ensemble,
        number=number,
        asked=order[done.queries],
        labels=np.where(done.answered, done.labels, -1),
        spent={group.id: group.cost for group in done.groups},
    )


def charge_again(
    voting: Voting, scheme: Scheme, meter: Meter = PAPER
) -> tuple[dict[str, float], dict[str, int | None], list[HistoryRow]]:
    """Charge a finished voting to the accounts of another scheme, past their budgets.

    Return each group's ε at the end, how many labels there were when its budget was exhausted (None where it was
    not), and the history of costs as rows (query, group, ε).
    """
    rows: list[HistoryRow] = []
    account = account_for(
        _votes(voting.ensemble, voting.asked), scheme.panel, scheme.mechanism, meter,
        answered=voting.answered.astype(np.int8), stopped_by="other", history=rows.extend,
    )  # fmt: skip
    labels = np.concatenate([[0], np.cumsum(voting.answered)])
    exhausted = {
        group.id: None if group.exhausted_at is None else int(labels[group.exhausted_at]) for group in account.groups
    }
    return {group.id: group.cost for group in account.groups}, exhausted, rows


def _votes(ensemble: Ensemble, order: NDArray[np.int64]) -> Votes:
    """Return the votes in an order of the points, each with the point's own id."""
    queries = tuple(map(str, order.tolist()))
    return Votes(votes=ensemble.votes[:, order], n_classes=ensemble.n_classes, queries=queries)


@dataclass(frozen=True, kw_only=True, eq=False)
class RotationCosts:
    """What queries cost where teachers rotate, with all of them asked in order, past every budget."""

    panel: Panel
    meter: Meter
    labels: NDArray[np.int64]  # (queries,), −1 where the check failed
    present: NDArray[np.bool_]  # (teachers, queries)
    cost: Floats  # (queries, orders): what each query costs whoever takes part in it

    def spent(self, queries: int) -> Floats:
        """Return the cost of every account after so many queries, (teachers, orders)."""
        return np.asarray(self.present[:, :queries].astype(np.float64) @ self.cost[:queries])

    def epsilon(self, queries: int) -> dict[str, float]:
        """Return the largest ε among every group's accounts after so many queries."""
        epsilon, _ = self.meter.epsilon(self.spent(queries), self.panel.budgets[1])
        return {
            group.id: float(epsilon[self.panel.account_group == place].max())
            for place, group in enumerate(self.panel.groups)
        }

    def affordable(self) -> int:
        """Return how many queries can be asked before a budget is exceeded."""
        limit = self.meter.limit(*self.panel.budgets)

        def paid(queries: int) -> bool:
            idle = ~self.present[:, :queries].any(axis=1)
            return bool(np.all(np.any(self.spent(queries) <= limit, axis=1) | idle))

        return self._last(paid)

    def affordable_on_average(self) -> int:
        """Return how many queries could be asked if a group's *mean* ε were held to its budget: reproduction only.

        Teachers who took part more often than others have then overspent.
        """
        budget, delta = self.panel.budgets
        groups = [self.panel.account_group == place for place in range(len(self.panel.groups))]

        def paid(queries: int) -> bool:
            epsilon, _ = self.meter.epsilon(self.spent(queries), delta)
            return all(epsilon[own].mean() <= budget[own][0] for own in groups)

        return self._last(paid)

    def _last(self, paid: Callable[[int], bool]) -> int:
        """Return the largest number of queries that is paid for; costs only grow, so bisection finds it."""
        counts = range(1, self.present.shape[1] + 1)
        return bisect_left(counts, True, key=lambda queries: not paid(queries))


def rotation_costs(
    ensemble: Ensemble, scheme: Scheme, meter: Meter = PAPER, *, number: int, present: NDArray[np.bool_] | None = None
) -> RotationCosts:
    """Answer all points in a voting's order and compute what each costs under the tight bound."""
    order, mechanism = query_order(ensemble, number), scheme.mechanism
    if present is None and scheme.schedule is not None:
        present = scheme.schedule.participants(np.arange(len(order)))
    taking_part = np.asarray(present)
    tally = scheme.panel.tally(np.asarray(ensemble.votes[:, order]), ensemble.n_classes, taking_part)
    outcome = Confident(mechanism=mechanism).ask(
        tally.counts, queries=tuple(map(str, order.tolist())), noise=voting_noise(ensemble, number),
        total_weight=scheme.panel.total_weight,
    )  # fmt: skip
    scale = np.asarray(tally.scale)[:, None]
    checks = loose.check_rdp(meter.orders, sensitivity=scale, check_sigma=mechanism.check_sigma or 1.0)[:, 0]
    labels = tight.label_rdp(tally.counts, meter.orders, sensitivity=scale, sigma=mechanism.sigma)[:, 0]
    cost = checks + outcome.answered[:, None] * labels
    answers = np.where(outcome.answered, outcome.labels, -1)
    return RotationCosts(panel=scheme.panel, meter=meter, labels=answers, present=taking_part, cost=cost)
