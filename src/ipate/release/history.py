"""Costs of a run and of the runs before it, read from the charges that its ledger recorded."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ipate._types import Floats
from ipate.ledger.base import Ledger
from ipate.ledger.carry import Releases, price
from ipate.ledger.records import Charge, Noise, Terms
from ipate.release.answers import paid_answers
from ipate.release.results import Labelling

Composition: TypeAlias = tuple[tuple[str, float, int], ...]  # noise, σ over what a person moves, number of releases
_POINTS = 160  # at most, in a figure


@dataclass(frozen=True, kw_only=True)
class Point:
    """Every group's cost ε after some queries, by group id."""

    queries: int
    labels: int
    costs: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class StoredAnswers:
    """Answers that an earlier run had paid for with its own noise, and that a labelling gave again at no cost."""

    run: str
    noise: Noise
    sigma: float  # of the earlier run; the scale of Laplace noise
    queries: int
    labels: int

    def __str__(self) -> str:
        noise = "σ" if self.noise == "gaussian" else "scale"
        return f"{self.labels:,} stored answers of run {self.run!r} at {noise} = {self.sigma:g}"


def stored_answers(
    result: Labelling, ledger: Ledger | None, queries: Sequence[str] | None
) -> tuple[StoredAnswers, ...]:
    """Return which runs had paid for answers of this labelling; `queries` are the ids of the pool's points."""
    payers = {} if ledger is None else ledger.payers()
    asked: Counter[tuple[str, Noise, float]] = Counter()
    labels: Counter[tuple[str, Noise, float]] = Counter()
    for place, answered, repeated in zip(result.queries.tolist(), result.answered, result.repeated, strict=True):
        found = payers.get(str(place) if queries is None else queries[place])
        if found is not None and not repeated:
            run, drawn = found[0], found[1].draws[-1]
            asked[run, drawn.noise, drawn.sigma] += 1
            labels[run, drawn.noise, drawn.sigma] += int(answered)
    return tuple(
        StoredAnswers(run=run, noise=noise, sigma=sigma, queries=count, labels=labels[run, noise, sigma])
        for (run, noise, sigma), count in asked.items()
    )


def told_stored(labels: int, stored: Sequence[StoredAnswers]) -> str:
    """Return, as the end of a sentence, how many of so many labels were stored and how many are new."""
    if not stored:
        return ""
    return f": {', '.join(map(str, stored))}, {labels - sum(answers.labels for answers in stored):,} new"


@dataclass(frozen=True, kw_only=True)
class Extract:
    """What a report reads from a ledger about one run; costs are the largest over the accounts of a group."""

    before: Mapping[str, float]  # ε of earlier runs, by group id
    own: Mapping[str, float]  # ε of the run alone, by group id
    history: tuple[Point, ...]  # ε of all runs while the run went on; the first point is before any query
    opening: Mapping[str, float]  # group id to the spending of earlier runs in the account's unit, where there was any
    orders: Mapping[str, float]  # group id to the Rényi order that decides its cost, where accounts have fixed theirs
    replaces: tuple[str, ...]  # other ledgers of these people whose charges are not counted
    reused: frozenset[int]  # queries whose answers earlier runs had paid for
    private_history: bool  # whether one of those runs was charged by private costs
    head: str  # of the ledger's hash chain; empty in memory
    answers: Mapping[str, int]  # query id to its paid label, −1 for none; empty in memory
    composition: Mapping[str, Composition]  # the run's own releases, by group id; none that were tested as a whole

    @classmethod
    def of(cls, ledger: Ledger, *, places: Mapping[str, int] | None = None) -> "Extract":
        """Read the current run of a ledger whose query ids are positions in the pool, or have them in `places`."""
        terms, charges, reused = ledger.terms, ledger.charges, ledger.inherited()
        opening = {account: ledger.opening(account) for account in terms}
        path = _charged(terms, charges)
        spent = {account: np.stack([own[account] for *_, own in path]) + opening[account] for account in terms}
        costs = _epsilon(terms, spent)
        return cls(
            before=ledger.before,
            own={group: float(cost) for group, cost in _epsilon(terms, path[-1][-1]).items()},
            history=tuple(
                Point(queries=queries, labels=labels, costs={group: float(cost[i]) for group, cost in costs.items()})
                for i, (queries, labels, _) in enumerate(path)
            ),
            opening={
                terms[account].account.group.id: float(cost[_decisive(terms[account], spent[account][-1])])
                for account, cost in opening.items()
                if cost.any()
            },
            orders={
                entry.account.group.id: entry.meter.orders[_decisive(entry, spent[account][-1])]
                for account, entry in terms.items()
                if entry.meter.fixes_order
            },
            replaces=ledger.replaces,
            reused=frozenset(int(query) if places is None else places[query] for query in reused),
            private_history=bool(ledger.private_history),
            head=str(ledger.head) if ledger.durable else "",
            answers={query: answer[0] for query, answer in paid_answers(ledger).answers.items()},
            composition=_composition(terms, charges, {account: cost[-1] for account, cost in spent.items()}),
        )


def _composition(
    terms: Mapping[str, Terms], charges: Sequence[Charge], spent: Mapping[str, Floats]
) -> dict[str, Composition]:
    """Return the releases of the account with the largest cost of every group."""
    worst: dict[str, tuple[float, str]] = {}
    for account, entry in terms.items():
        cost = entry.epsilon(spent[account]) if spent[account].any() else 0.0
        group = entry.account.group.id
        worst[group] = max(worst.get(group, (-1.0, "")), (cost, account))
    found = {}
    for group, (_, account) in worst.items():
        meter = terms[account].meter
        own = Releases(meter=meter, cost=np.zeros(meter.width))
        if meter.whole:
            continue
        for charge in charges:
            if account in charge.cost:
                own.add(charge, account)
        found[group] = own.mechanisms
    return found


def _decisive(terms: Terms, spent: Floats) -> int:
    """Return the place of the fixed order that decides an account's ε, the first one in all other units."""
    if not terms.meter.fixes_order:
        return 0
    found = [
        terms.meter.at_order(order).epsilon(spent[[place]], terms.account.delta)[0]
        for place, order in enumerate(terms.meter.orders)
    ]
    return int(np.argmax(found))


def _epsilon(terms: Mapping[str, Terms], spent: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return ε by group id; costs by account id may have the shape (..., width)."""
    worst: dict[str, Floats] = {}
    for account, cost in spent.items():
        held = terms[account]
        epsilon = np.where(cost.any(axis=-1), held.epsilons(cost), 0.0)
        worst[held.account.group.id] = np.maximum(worst.get(held.account.group.id, 0.0), epsilon)
    return worst


def _charged(terms: Mapping[str, Terms], charges: Sequence[Charge]) -> list[tuple[int, int, dict[str, Floats]]]:
    """Return queries, labels and costs by account id as the run went on: at least the beginning and the end.

    A charge pays for a batch. Under a data-independent bound the costs within a batch follow from its recorded
    releases; under a data-dependent bound they are known only at the end of each batch.
    """
    asked = sum(len(charge.keys) for charge in charges if charge.scope == "pool")
    step = max(1, -(-asked // _POINTS))
    queries, labels = 0, 0
    charged = {account: np.zeros(held.meter.width) for account, held in terms.items()}
    path = [(queries, labels, charged)]
    for charge in charges:
        for within, given, cost in _within(terms, charge, step):
            path.append((queries + within, labels + given, _plus(charged, cost)))
        charged = _plus(charged, charge.cost)
        if charge.scope == "pool":
            queries, labels = queries + len(charge.keys), labels + int(charge.answered.sum())
            path.append((queries, labels, charged))
    if len(path) == 1 or path[-1][-1] is not charged:  # nothing was asked; a test is charged before the first query
        path.append((queries, labels, charged))
    return path


def _plus(spent: dict[str, Floats], cost: Mapping[str, Floats]) -> dict[str, Floats]:
    return spent | {account: spent[account] + more for account, more in cost.items()}


def _within(terms: Mapping[str, Terms], charge: Charge, step: int) -> Iterator[tuple[int, int, dict[str, Floats]]]:
    """Yield queries, labels and costs at steps within a batch charged under data-independent bounds."""
    meters = {account: terms[account].meter for account in charge.cost}
    if (
        charge.scope != "pool"
        or charge.paid_by is not None
        or any(meter.whole or not meter.data_independent for meter in meters.values())
    ):
        return
    running = {}
    for account, meter in meters.items():
        moved = np.asarray(charge.sensitivity[account])
        prices = [price(draw, meter, moved) for draw in charge.draws]
        cost = sum(charge.drawn(draw)[:, None] * own for draw, own in zip(charge.draws, prices, strict=True))
        running[account] = np.cumsum(np.broadcast_to(cost, (len(charge.keys), meter.width)), axis=0)
    given = np.cumsum(charge.answered)
    for asked in range(step, len(charge.answered), step):
        yield asked, int(given[asked - 1]), {account: cost[asked - 1] for account, cost in running.items()}
