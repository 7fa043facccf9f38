"""Votings as the paper holds them: the public points in a random order, asked until somebody's budget ends."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.accounting.bounds import Meter
from ipate.labelling.aggregators import Confident
from ipate.labelling.audit import HistoryRow, account_for
from ipate.labelling.costs import check_costs, label_costs
from ipate.labelling.loop import label
from ipate.labelling.noise import SeededNoise
from ipate.reproduce.ensembles import Ensemble
from ipate.reproduce.rotation import Turns, take_turns
from ipate.reproduce.schemes import Scheme
from ipate.votes import Votes

PAPER = Meter("tight", "classic")
"""The paper's account: the tight bound and the classic conversion, orders 2 to 50. It is not releasable."""
IMPROVED = Meter("tight", "improved")
"""The same bound with the improved conversion (Canonne, Kamath and Steinke)."""
_ORDER = 3  # the stream of the order in which points are asked
Ints = NDArray[np.integer[Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Voting:
    """One voting process.

    Attributes
    ----------
    asked : integer array
        Positions in the ensemble's public points, in the order asked.
    labels : integer array
        What was answered, −1 for nothing.
    truth : integer array
        The classes of the points asked; for scoring only.
    spent : dict
        ε by group id when it stopped.
    stopped_by : str
        "budget", "count" or "pool".
    """

    asked: NDArray[np.int64]
    labels: NDArray[np.int64]
    truth: Ints
    spent: dict[str, float]
    stopped_by: str

    @cached_property
    def given(self) -> NDArray[np.bool_]:
        """Where a label was given."""
        return np.asarray(self.labels >= 0)

    @property
    def n_labels(self) -> int:
        """How many labels were given."""
        return int(self.given.sum())

    @property
    def accuracy(self) -> float:
        """The share of right labels; NaN where there is none."""
        return _share(self.labels[self.given] == self.truth[self.given])

    def accuracy_of(self, one: int) -> float:
        """The share of right labels among the labelled points of one class."""
        own = self.given & (self.truth == one)
        return _share(self.labels[own] == one)


def hold(
    ensemble: Ensemble, scheme: Scheme, meter: Meter = PAPER, *, voting: int, max_labels: int | None = None,
    max_queries: int | None = None, present: NDArray[np.bool_] | None = None,
) -> Voting:  # fmt: skip
    """Hold one voting with the product's own loop (vanishing: see `rotating`), until a budget would be passed.

    The order of points and the noise depend on the ensemble's replicate and the voting's number only, so that
    schemes are compared on equal terms. `present` says who takes part in which voting, instead of a schedule.
    """
    votes, order = _ordered(ensemble, scheme, voting, present=present)
    if votes.participation is not None:
        return _turns(ensemble, scheme, meter, votes, order, voting=voting)
    done = label(
        votes, scheme.panel, Confident(mechanism=scheme.mechanism), meter, max_labels=max_labels,
        max_queries=max_queries, noise=SeededNoise(seed_of(ensemble, voting)),
    )  # fmt: skip
    asked = order[done.queries]
    return Voting(
        asked=asked,
        labels=np.where(done.answered, done.labels, -1),
        truth=ensemble.truth[asked],
        spent={group.id: group.cost for group in done.groups},
        stopped_by=done.stopped_by,
    )


def _turns(
    ensemble: Ensemble, scheme: Scheme, meter: Meter, votes: Votes, order: NDArray[np.int64], *, voting: int
) -> Voting:
    """Hold a voting of vanishing, until somebody's budget is exceeded."""
    turns = take_turns(votes, scheme, meter, noise=SeededNoise(seed_of(ensemble, voting)))
    count = turns.affordable()
    return Voting(
        asked=order[:count], labels=turns.labels[:count], truth=ensemble.truth[order[:count]],
        spent=turns.epsilon(count), stopped_by="pool" if count == len(order) else "budget",
    )  # fmt: skip


def turns_of(ensemble: Ensemble, scheme: Scheme, *, voting: int, meter: Meter = PAPER) -> Turns:
    """Answer all points under vanishing, past every budget."""
    votes, _ = _ordered(ensemble, scheme, voting)
    return take_turns(votes, scheme, meter, noise=SeededNoise(seed_of(ensemble, voting)))


def replay(
    ensemble: Ensemble, scheme: Scheme, held: Voting, meter: Meter = PAPER
) -> tuple[dict[str, float], dict[str, int | None], list[HistoryRow]]:
    """Charge a voting to another scheme's accounts, wherever it stopped.

    Returns
    -------
    spent : ε by group id, at the end
    ended : how many labels there were when each group's budget ended; None where it did not
    history : rows (query, group, ε)
    """
    votes, _ = _ordered(ensemble, scheme, 0, asked=held.asked)
    rows: list[HistoryRow] = []
    account = account_for(
        votes,
        scheme.panel,
        scheme.mechanism,
        meter,
        answered=held.given.astype(np.int8),
        stopped_by="other",
        history=rows.extend,
    )
    labels = np.concatenate([[0], np.cumsum(held.given)])
    ended = {
        group.id: None if group.exhausted_at is None else int(labels[group.exhausted_at]) for group in account.groups
    }
    return {group.id: group.cost for group in account.groups}, ended, rows


def _ordered(
    ensemble: Ensemble,
    scheme: Scheme,
    voting: int,
    *,
    asked: NDArray[np.int64] | None = None,
    present: NDArray[np.bool_] | None = None,
) -> tuple[Votes, NDArray[np.int64]]:
    """Return the votes in the order asked, each with the point's own id, and that order."""
    order = asked
    if order is None:
        order = order_of(ensemble, voting)
    if scheme.schedule is not None:
        present = scheme.schedule.participants(np.arange(len(order)))
    votes = Votes(
        votes=ensemble.votes[:, order], n_classes=classes_of(ensemble), participation=present,
        queries=tuple(map(str, order.tolist())),
    )  # fmt: skip
    return votes, order


def order_of(ensemble: Ensemble, voting: int) -> NDArray[np.int64]:
    """Return the order in which a voting asks the public points."""
    rng = np.random.default_rng([ensemble.spec.replicate, voting, _ORDER])
    return rng.permutation(len(ensemble.truth))


def classes_of(ensemble: Ensemble) -> int:
    """Return the number of classes, which is public."""
    return int(max(ensemble.truth.max(), ensemble.votes.max())) + 1


def seed_of(ensemble: Ensemble, voting: int) -> int:
    """Return the seed of a voting's noise."""
    return 1000 * ensemble.spec.replicate + voting


def _share(right: NDArray[np.bool_]) -> float:
    return float(right.mean()) if right.size else float("nan")


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Mean and standard deviation of n values; NaN values are left out."""

    mean: float
    sd: float
    n: int

    def times(self, factor: float) -> "Spread":
        """Return the spread of the values times a factor."""
        return Spread(mean=self.mean * factor, sd=self.sd * factor, n=self.n)


def spread(values: Iterable[float]) -> Spread:
    """Return the spread of some values; the standard deviation is the sample's."""
    array = np.array([value for value in values if not math.isnan(value)], dtype=np.float64)
    if not array.size:
        return Spread(mean=float("nan"), sd=float("nan"), n=0)
    return Spread(mean=float(array.mean()), sd=float(array.std(ddof=1)) if array.size > 1 else 0.0, n=array.size)


_MARGIN = 1e-12  # the loop's own: it stops this much (relative) before the ledger would refuse
_PART = 1024  # queries whose costs are counted at a time


class Booth:
    """Holds votings of an ensemble under a scheme and a meter.

    Parameters
    ----------
    ensemble, scheme, meter
        As in `hold`; loose and sup, whose accounts fix an order each, are left to the loop.
    """

    def __init__(self, ensemble: Ensemble, scheme: Scheme, meter: Meter) -> None:
        self.ensemble, self.scheme, self.meter = ensemble, scheme, meter
        self.loop = scheme.schedule is not None or meter.fixes_order
        if not self.loop:
            self._count()

    def _count(self) -> None:
        """Count votes and costs of all points, in their own order."""
        panel, mechanism, total = self.scheme.panel, self.scheme.mechanism, len(self.ensemble.truth)
        counts, checks, labels = [], [], []
        for start in range(0, total, _PART):
            tally = panel.tally(np.asarray(self.ensemble.votes[:, start : start + _PART]), classes_of(self.ensemble))
            shape = (len(tally.counts), len(panel.groups), self.meter.width)
            own = check_costs(self.meter, mechanism, panel, tally, tally.counts.max(axis=1))
            counts.append(tally.counts)
            checks.append(np.broadcast_to(own, shape))
            labels.append(np.broadcast_to(label_costs(self.meter, mechanism, panel, tally), shape))
        self.counts, self.checks, self.labels = map(np.concatenate, (counts, checks, labels))

    def hold(self, voting: int) -> Voting:
        """Hold one voting: the same as `voting.hold`."""
        if self.loop:
            return hold(self.ensemble, self.scheme, self.meter, voting=voting)
        order = order_of(self.ensemble, voting)
        outcome = Confident(mechanism=self.scheme.mechanism).ask(
            self.counts[order], queries=[str(place) for place in order.tolist()],
            noise=SeededNoise(seed_of(self.ensemble, voting)), total_weight=self.scheme.panel.total_weight,
        )  # fmt: skip
        stop, spent = self._stop(order, outcome.answered)
        asked = order[:stop]
        return Voting(
            asked=asked,
            labels=np.where(outcome.answered, outcome.labels, -1)[:stop],
            truth=self.ensemble.truth[asked],
            spent=spent,
            stopped_by="pool" if stop == len(order) else "budget",
        )

    def _stop(self, order: NDArray[np.int64], answered: NDArray[np.bool_]) -> tuple[int, dict[str, float]]:
        """Return how many queries are asked before one that could overspend somebody, and ε by group then."""
        panel = self.scheme.panel
        epsilon, delta = panel.budgets
        limit = self.meter.limit(epsilon, delta) * (1 - _MARGIN)
        spent = np.zeros((len(panel.groups), self.meter.width))
        stop = len(order)
        for start in range(0, len(order), _PART):
            rows = order[start : start + _PART]
            checks, labels = self.checks[rows], self.labels[rows]
            paid = checks + answered[start : start + _PART, None, None] * labels
            running = spent + np.cumsum(paid, axis=0)
            broke = ~np.any(running - paid + checks + labels <= limit, axis=2).all(axis=1)
            if broke.any():
                first = int(np.argmax(broke))
                stop, spent = start + first, running[first - 1] if first else spent
                break
            spent = running[-1]
        found, _ = self.meter.epsilon(spent, delta)
        return stop, {group.id: float(found[place]) for place, group in enumerate(panel.groups)}
