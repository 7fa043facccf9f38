"""Cost history of a run, read from the charges that its ledger recorded."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ipate.ledger.base import Ledger
from ipate.ledger.records import Charge, Terms

Floats = NDArray[np.float64]
_POINTS = 160  # at most, in a figure


@dataclass(frozen=True, kw_only=True)
class Point:
    """Every group's cost after some queries; `costs` are in the order of the groups."""

    queries: int
    labels: int
    costs: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Extract:
    """The part of a ledger that a report reads: one run's accounts and charges, and earlier spending."""

    terms: Mapping[str, Terms]  # by account id
    charges: tuple[Charge, ...]  # of the run, in order
    opening: Mapping[str, Floats] = field(default_factory=dict)  # account id to the spending of earlier runs
    reused: frozenset[int] = frozenset()  # queries whose answers earlier runs had paid for
    private_history: bool = False  # whether one of those runs was charged by private costs
    head: str = ""  # of the ledger's hash chain; empty in memory
    answers: Mapping[str, int] = field(default_factory=dict)  # query id to its paid label, −1 for none; empty in memory

    @classmethod
    def of(cls, ledger: Ledger) -> "Extract":
        """Read the current run of a ledger whose query ids are positions in the pool."""
        return cls(
            terms=dict(ledger.terms),
            charges=ledger.charges,
            opening={name: spent for name in ledger.terms if (spent := ledger.opening(name)).any()},
            reused=frozenset(int(query) for query in ledger.inherited()),
            private_history=bool(ledger.private_history),
            head=str(ledger.head) if ledger.durable else "",
            answers={query: answer[0] for query, answer in ledger.stored().answers.items()},
        )

    @property
    def own(self) -> dict[str, Floats]:
        """The cost of the run alone, by account id."""
        spent = {account: np.zeros(terms.meter.width) for account, terms in self.terms.items()}
        for charge in self.charges:
            for account, cost in charge.cost.items():
                spent[account] = spent[account] + cost
        return spent

    def spent(self, charged: Mapping[str, Floats]) -> dict[str, Floats]:
        """Return these costs plus the spending of earlier runs, by account id."""
        return {account: cost + self.opening.get(account, 0.0) for account, cost in charged.items()}

    def epsilon(self, spent: Mapping[str, Floats]) -> dict[str, Floats]:
        """Return ε by group id, the largest over the group's accounts; costs may have the shape (..., width)."""
        worst: dict[str, Floats] = {}
        for account, cost in spent.items():
            terms = self.terms[account]
            some = cost.any(axis=-1)
            epsilon = np.where(some, terms.meter.epsilon(cost, terms.account.delta)[0], 0.0)
            group = terms.account.group.id
            worst[group] = np.maximum(worst.get(group, np.zeros(())), epsilon)
        return worst

    @property
    def before(self) -> dict[str, float]:
        """ε that earlier runs had spent, by group id."""
        groups = {terms.account.group.id: 0.0 for terms in self.terms.values()}
        return groups | {group: float(epsilon) for group, epsilon in self.epsilon(self.opening).items()}

    def history(self, groups: Sequence[str]) -> tuple[Point, ...]:
        """Return the cost history; its first point is before any query.

        A charge pays for a batch. Under a data-independent bound the costs within a batch follow from its recorded
        releases; under a data-dependent bound they are known only at the end of each batch.
        """
        charged = {account: np.zeros(terms.meter.width) for account, terms in self.terms.items()}
        asked = sum(len(charge.queries) for charge in self.charges if charge.kind == "labels")
        step = max(1, -(-asked // _POINTS))
        counts, costs = [(0, 0)], [dict(charged)]
        for charge in self.charges:
            queries, labels = counts[-1]
            for within, given, more in self._within(charge, step):
                counts.append((queries + within, labels + given))
                costs.append({account: cost + more.get(account, 0.0) for account, cost in charged.items()})
            for account, cost in charge.cost.items():
                charged[account] = charged[account] + cost
            if charge.kind == "labels":
                counts.append((queries + len(charge.queries), labels + int(charge.answered.sum())))
                costs.append(dict(charged))
        counts.append(counts[-1])
        costs.append(dict(charged))  # a test is charged before the first query
        grown = self.epsilon(self.spent({account: np.stack([row[account] for row in costs]) for account in charged}))
        points = [
            Point(queries=queries, labels=labels, costs=tuple(float(grown[group][place]) for group in groups))
            for place, (queries, labels) in enumerate(counts)
        ]
        return tuple(points if points[-1] != points[-2] or len(points) == 2 else points[:-1])

    def _within(self, charge: Charge, step: int) -> Iterator[tuple[int, int, dict[str, Floats]]]:
        """Yield queries, labels and costs at steps within a batch charged under data-independent bounds."""
        meters = {account: self.terms[account].meter for account in charge.cost}
        if charge.kind != "labels" or any(meter.whole or not meter.data_independent for meter in meters.values()):
            return
        shape = charge.answered.shape
        running = {}
        for account, meter in meters.items():
            moved = np.asarray(charge.sensitivity[account])
            cost = charge.answered[:, None] * meter.worst_label(
                sensitivity=moved, sigma=charge.sigma, noise=charge.noise
            )
            if charge.check_sigma is not None:
                cost = cost + meter.worst_check(sensitivity=moved, check_sigma=charge.check_sigma)
            running[account] = np.cumsum(np.broadcast_to(cost, (*shape, meter.width)), axis=0)
        given = np.cumsum(charge.answered)
        for asked in range(step, shape[0], step):
            yield asked, int(given[asked - 1]), {account: cost[asked - 1] for account, cost in running.items()}
