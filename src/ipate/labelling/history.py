"""The costs of a run as they grew, read from the charges that its ledger recorded."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ipate.ledger.records import Charge, Ledger, Terms

Floats = NDArray[np.float64]
_POINTS = 160  # as many as a figure can show


@dataclass(frozen=True, kw_only=True)
class Point:
    """Every group's cost after some queries; `costs` are in the order of the groups."""

    queries: int
    labels: int
    costs: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Extract:
    """What a report reads of a ledger: one run's accounts, its charges, and what came before them.

    Attributes
    ----------
    terms : mapping
        The terms of every account, by account id.
    charges : tuple of Charge
        Every charge of the run, in order.
    opening : mapping
        Account id to what earlier runs had spent, in the account's own unit.
    reused : frozenset of int
        The queries whose answers earlier runs had paid for.
    private_history : bool
        Whether one of those runs was charged by private costs.
    head : str
        Where a ledger on disk stood; empty for one in memory.
    answers : mapping
        Query id to the label that was paid for, −1 for none; empty for a ledger in memory.
    """

    terms: Mapping[str, Terms]
    charges: tuple[Charge, ...]
    opening: Mapping[str, Floats] = field(default_factory=dict)
    reused: frozenset[int] = frozenset()
    private_history: bool = False
    head: str = ""
    answers: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, ledger: Ledger) -> "Extract":
        """Read a ledger's own run; the queries of a run are the positions of its public points."""
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
        """What the run itself charged, by account id."""
        spent = {account: np.zeros(terms.meter.width) for account, terms in self.terms.items()}
        for charge in self.charges:
            for account, cost in charge.cost.items():
                spent[account] = spent[account] + cost
        return spent

    def spent(self, charged: Mapping[str, Floats]) -> dict[str, Floats]:
        """Add what earlier runs had spent to what was charged."""
        return {account: cost + self.opening.get(account, 0.0) for account, cost in charged.items()}

    def epsilon(self, spent: Mapping[str, Floats]) -> dict[str, Floats]:
        """Return ε by group id, the worst of the group's accounts; costs may have the shape (..., width)."""
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
        """Return the costs as they grew, the first point before any query.

        A charge pays for a batch. Under a bound that is the same for all votes, the costs within a batch follow from
        its recorded releases; under a data-dependent bound they are known at the end of each batch alone.
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
        """Yield queries, labels and costs at steps inside a batch, where they follow from public figures."""
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
