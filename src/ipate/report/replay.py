"""The costs as they grew: the recorded answers are charged again, by the same loop, without any noise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ipate.allocation.allocation import Allocation
from ipate.errors import InputError
from ipate.files import read_npy
from ipate.labelling.aggregators import Aggregator, Mechanism
from ipate.labelling.aggregators import Outcome as Answers
from ipate.labelling.loop import account_terms, label
from ipate.labelling.noise import NoiseSource
from ipate.ledger.memory import MemoryLedger
from ipate.ledger.records import Ledger
from ipate.planning.settings import Settings
from ipate.report.facts import Point
from ipate.runs.record import Record
from ipate.votes import Votes
from ipate.votes.panel import Panel

Floats = NDArray[np.float64]
_POINTS = 160  # of the history: as many as a figure can show
_AGREE = 1e-6  # relative; batches of other sizes add up in another order


@dataclass(frozen=True, kw_only=True)
class Replay:
    """The costs as they grew, and what every group's ε would be for this run alone, where that is known."""

    history: tuple[Point, ...]
    own: tuple[float, ...] | None
    whole: bool = True


@dataclass(frozen=True, kw_only=True)
class _Recorded:
    """An aggregator that gives the answers of the record, for queries known by their position."""

    inner: Aggregator
    labels: NDArray[np.int64]

    @property
    def mechanism(self) -> Mechanism:
        return self.inner.mechanism

    def maxima(self, counts: Floats, *, total_weight: float, probs: Floats | None = None) -> Floats:
        return self.inner.maxima(counts, total_weight=total_weight, probs=probs)

    def ask(
        self,
        counts: Floats,
        *,
        queries: Sequence[str],
        noise: NoiseSource,
        total_weight: float,
        probs: Floats | None = None,
    ) -> Answers:
        labels = self.labels[np.array([int(query) for query in queries], dtype=np.int64)]
        return Answers(labels=labels, answered=labels >= 0, reinforced=np.zeros(len(labels), dtype=bool))


def recompute(
    record: Record,
    allocation: Allocation,
    settings: Settings,
    *,
    n_classes: int,
    votes: Path | None,
    opening: Mapping[str, Floats] | None = None,
    reused: frozenset[int] = frozenset(),
    charged: Mapping[str, Floats] | None = None,
) -> Replay:
    """Charge the recorded answers again and return the history; refuse a record that does not add up.

    Parameters
    ----------
    votes : path or None
        The teachers' votes. They are opened only where costs depend on them; otherwise the history
        follows from public figures and released answers alone.
    opening : mapping, optional
        Account to what earlier runs had spent, in its own unit: the history starts there.
    reused : frozenset of int
        Queries that earlier runs had paid for: they were free.
    charged : mapping, optional
        Account to what the ledger holds, where votes that costs were computed from are erased because somebody left:
        the record must agree with that sum, and the history has its two ends alone.
    """
    panel = allocation.panel()
    if settings.meter.whole:
        return _whole(record, panel, reused)
    aggregator = _Recorded(inner=settings.aggregator(allocation.scale), labels=record.labels)
    ledger = MemoryLedger(account_terms(panel, settings.meter, aggregator), opening=opening)
    terms = list(ledger.terms.values())
    order = np.array([query for query in record.queries if query not in reused], dtype=np.int64)
    given = np.concatenate([[0], np.cumsum(record.labels[order] >= 0)])
    history = [Point(queries=0, labels=0, costs=_costs(panel, ledger))]

    def note(done: int) -> None:
        history.append(Point(queries=done, labels=int(given[done]), costs=_costs(panel, ledger)))

    if charged is not None:
        ledger = MemoryLedger(terms, opening=charged)
        note(len(order))
    elif order.size:
        label(
            _ballot(record, allocation, settings, n_classes, votes),
            panel,
            aggregator,
            settings.meter,
            stop="drop" if settings.stop == "drop" else "budget",
            order=order,
            ledger=ledger,
            batch=max(1, -(-order.size // _POINTS)),
            progress=note,
        )
    _compare(record, panel, history[-1], reused)
    own = {account: ledger.spent(account) - (opening or {}).get(account, 0.0) for account in panel.account_ids}
    alone = MemoryLedger(terms, opening=own)
    return Replay(history=tuple(history), own=_costs(panel, alone), whole=charged is None)


def _whole(record: Record, panel: Panel, reused: frozenset[int]) -> Replay:
    """One charge before everything: the budgets, whatever came after."""
    paid = tuple(group.epsilon for group in panel.groups)
    order = [query for query in record.queries if query not in reused]
    last = Point(queries=len(order), labels=int(np.count_nonzero(record.labels[order] >= 0)), costs=paid)
    _compare(record, panel, last, reused)
    return Replay(history=(Point(queries=0, labels=0, costs=(0.0,) * len(paid)), last), own=paid)


def _ballot(record: Record, allocation: Allocation, settings: Settings, n_classes: int, path: Path | None) -> Votes:
    n_queries = len(record.labels)
    if settings.meter.data_independent:
        found: NDArray[np.integer] = np.broadcast_to(np.zeros(1, dtype=np.int16), (allocation.n_teachers, n_queries))
    else:
        if path is None or not path.is_file():
            raise InputError(f"{path}: the votes are gone, and without them these costs cannot be computed again")
        found = read_npy(path)
    ballot = Votes(votes=found, n_classes=n_classes, groups=allocation.teacher_groups)
    if allocation.participation is None:
        return replace(ballot, weights=allocation.weights)
    held = allocation.participation.participants(np.arange(n_queries))
    present = held.copy()
    present[:, list(record.queries)] = held[:, : len(record.queries)]  # turns go by the order of asking
    return replace(ballot, participation=present)


def _costs(panel: Panel, ledger: Ledger) -> tuple[float, ...]:
    """Every group's ε so far: the worst of its accounts."""
    worst = [0.0] * len(panel.groups)
    for account, owner in zip(panel.account_ids, panel.account_group, strict=True):
        terms = ledger.terms[account]
        epsilon = float(terms.meter.epsilon(ledger.spent(account), terms.account.delta)[0])
        worst[int(owner)] = max(worst[int(owner)], epsilon)
    return tuple(worst)


def _compare(record: Record, panel: Panel, last: Point, reused: frozenset[int]) -> None:
    recorded = {group.id: group.cost for group in record.groups}
    free = [query for query in record.queries if query in reused]
    queries = last.queries + len(free)
    labels = last.labels + int(np.count_nonzero(record.labels[free] >= 0))
    if queries != record.n_queries or labels != record.n_labels:
        raise InputError(
            f"the record names {record.n_queries} queries and {record.n_labels} labels, and its answers are "
            f"{queries} and {labels}: the files do not belong together, or were edited"
        )
    for group, cost in zip(panel.groups, last.costs, strict=True):
        stated = recorded.get(group.id)
        if stated is None or abs(stated - cost) > _AGREE * max(1.0, abs(cost)):
            raise InputError(
                f"group {group.id!r}: the record states another cost than its answers add up to; the files do not "
                "belong together, or were edited"
            )
