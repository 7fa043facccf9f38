"""State of one labelling run: batches are answered in memory, truncated, charged and then released."""

from collections import ChainMap

import numpy as np
from numpy.typing import NDArray

from ipate.accounting.bounds import Meter
from ipate.labelling.aggregators import Aggregator, Outcome
from ipate.labelling.costs import check_costs, fixed_costs, label_costs
from ipate.labelling.noise import NoiseSource
from ipate.labelling.results import Ending, GroupResult, Guarantee, Labelling
from ipate.ledger.base import Ledger
from ipate.ledger.records import Answer, Charge
from ipate.votes import Votes
from ipate.votes.counting import take_columns
from ipate.votes.panel import Panel, Tally

Floats = NDArray[np.float64]
_MARGIN = 1e-12  # relative: batches are truncated this far below the limit of the ledger


class Engine:
    """One labelling run: the answers so far, the current panel and the ledger.

    With `prepaid` the ledger has already charged the whole release: queries are stored at no further cost.
    """

    def __init__(
        self,
        *,
        votes: Votes,
        panel: Panel,
        aggregator: Aggregator,
        meter: Meter,
        ledger: Ledger,
        noise: NoiseSource,
        probs: Floats | None,
        may_repeat: bool = False,
        prepaid: bool = False,
    ) -> None:
        self.votes, self.panel, self.aggregator, self.meter = votes, panel, aggregator, meter
        self.ledger, self.noise, self.probs, self.prepaid = ledger, noise, probs, prepaid
        self.start = panel
        self.n_labels = self.n_asked = 0
        self.parts: list[tuple[NDArray[np.int64], Outcome, NDArray[np.bool_]]] = []
        self.before = ledger.stored()
        self.store: dict[str, Answer] = dict(self.before.answers)
        self.met: set[str] = set()
        self.may_repeat = may_repeat or bool(self.store)
        self.exhausted: dict[str, int] = {}
        self.sensitivity = {account: self.before.sensitivity.get(account, 0.0) for account in panel.account_ids}
        self.gone: frozenset[str] = frozenset()
        self.spent, self.limit = ledger.standing(panel.account_ids)
        self.earlier = ledger.before

    def ask(self, chunk: NDArray[np.int64], labels: float, queries: float) -> tuple[int, frozenset[str]]:
        """Ask these queries until one cannot be paid or `labels` or `queries` more have been reached.

        Returns how many were processed, and the groups that could not pay the next one.
        """
        first, fresh = self._unseen(chunk)
        places, new = np.flatnonzero(first), fresh[first]
        ids = self._ids(chunk[first])
        outcome, total, broke, tally = self._answer(chunk[first], ids, new)
        stops = broke.any(axis=1)
        payer = int(np.argmax(stops)) if stops.any() else 0
        cut = int(np.flatnonzero(new)[payer]) if stops.any() else len(places)
        allowed = self._allowed(outcome.answered, labels, queries)
        whom: frozenset[str] = frozenset()
        if cut < len(places) and cut <= allowed:
            whom = self._groups(broke[payer])
        cut = min(cut, allowed)
        if new[:cut].any():
            self._charge(ids[:cut], new[:cut], outcome, total[np.count_nonzero(new[:cut]) - 1], tally)
        taken = len(chunk) if cut == len(places) else int(places[cut])
        self._release(chunk[:taken], first[:taken], ids[:cut], outcome, cut)
        for group in whom:
            self.exhausted.setdefault(group, self.n_labels)
        return taken, whom

    def _answer(
        self, positions: NDArray[np.int64], ids: list[str], new: NDArray[np.bool_]
    ) -> tuple[Outcome, Floats, NDArray[np.bool_], Tally]:
        """Answer queries in memory; queries that are not new get their stored answers.

        Returns the outcome of all queries and, for the new ones, the running cost, which accounts could not pay each of
        them, and the tally.
        """
        asked = positions[new]
        tally = self._tally(asked)
        if not asked.size:
            return self._stored(ids), np.zeros((0, 1, 1)), np.zeros((0, 1), dtype=bool), tally
        names = ids if new.all() else [name for name, wanted in zip(ids, new, strict=True) if wanted]
        probs = None if self.probs is None else self.probs[asked]
        outcome = self.aggregator.ask(
            tally.counts, queries=names, noise=self.noise, total_weight=self.panel.total_weight, probs=probs
        )
        checks, label_cost = self._costs(tally, probs)
        paid = checks + outcome.answered[:, None, None] * label_cost
        total = np.cumsum(paid, axis=0)
        running = self.spent + total
        broke = ~self._payable(running - paid + checks + label_cost)
        return outcome if new.all() else self._merged(outcome, ids, new), total, broke, tally

    def _stored(self, names: list[str]) -> Outcome:
        """Return the stored answers of these queries."""
        stored = [self.store[name] for name in names]
        return Outcome(
            labels=np.array([entry[0] for entry in stored], dtype=np.int64),
            answered=np.array([entry[1] for entry in stored], dtype=bool),
            reinforced=np.array([entry[2] for entry in stored], dtype=bool),
        )

    def _merged(self, outcome: Outcome, ids: list[str], new: NDArray[np.bool_]) -> Outcome:
        """Merge the answers of new queries with the stored ones, in the order of `ids`."""
        old = self._stored([name for name, wanted in zip(ids, new, strict=True) if not wanted])
        parts = {}
        for part in ("labels", "answered", "reinforced"):
            parts[part] = np.empty(len(ids), dtype=getattr(outcome, part).dtype)
            parts[part][new], parts[part][~new] = getattr(outcome, part), getattr(old, part)
        return Outcome(**parts)

    def _allowed(self, answered: NDArray[np.bool_], labels: float, queries: float) -> int:
        """Return how many queries may be asked before the limits on labels and queries are reached."""
        reached = np.flatnonzero(np.cumsum(answered) >= labels)
        by_labels = int(reached[0]) + 1 if reached.size else len(answered)
        return int(min(by_labels, queries, len(answered)))

    def _unseen(self, chunk: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which queries occur for the first time in this run, and which have no stored answer yet."""
        fresh = np.ones(len(chunk), dtype=bool)
        if not self.may_repeat:
            return fresh, fresh
        first = np.empty(len(chunk), dtype=bool)
        here: dict[str, Answer] = {}
        seen = ChainMap(here, self.store)
        for index, name in enumerate(self._ids(chunk)):
            fresh[index] = name not in seen
            first[index] = fresh[index] or not (name in self.met or name in here)
            here[name] = (-1, False, False)
        return first, fresh

    def _ids(self, positions: NDArray[np.int64]) -> list[str]:
        if self.votes.queries is None:
            return [str(position) for position in positions.tolist()]
        return [self.votes.queries[position] for position in positions.tolist()]

    def _tally(self, positions: NDArray[np.int64]) -> Tally:
        first = int(positions[0]) if len(positions) else 0
        where: slice | NDArray[np.int64] = positions
        if np.array_equal(positions, np.arange(first, first + len(positions))):
            where = slice(first, first + len(positions))  # a view, not a copy
        here = self.votes.participation
        present = None if here is None else np.asarray(here[:, where])
        chunk = take_columns(self.votes.votes, where)
        return self.panel.tally(chunk, self.votes.n_classes, present, blocs=self.meter.definition.needs_votes_by_group)

    def _costs(self, tally: Tally, probs: Floats | None) -> tuple[Floats, Floats]:
        """Return the costs of checks and labels, (B or 1, accounts, width), in every account's own unit."""
        if self.prepaid:  # the whole release was charged before the first query
            nothing = np.zeros((1, len(self.panel.account_ids), self.meter.width))
            return nothing, nothing
        mechanism = self.aggregator.mechanism
        fixed = fixed_costs(self.meter, mechanism, self.panel)
        if fixed is not None:
            checks, labels = (cost[None] for cost in fixed)
        else:
            maxima = self.aggregator.maxima(tally.counts, total_weight=self.panel.total_weight, probs=probs)
            checks = check_costs(self.meter, mechanism, self.panel, tally, maxima)
            labels = label_costs(self.meter, mechanism, self.panel, tally, abstain=self.votes.abstains)
        if self.meter.fixes_order:
            terms = self.ledger.terms
            orders = [terms[account].meter.orders[0] for account in self.panel.account_ids]
            column = np.array([self.meter.orders.index(order) for order in orders])[None, :, None]
            checks = np.take_along_axis(checks, np.broadcast_to(column, (*checks.shape[:2], 1)), axis=2)
            labels = np.take_along_axis(labels, np.broadcast_to(column, (*labels.shape[:2], 1)), axis=2)
        return checks, labels

    def _payable(self, cost: Floats) -> NDArray[np.bool_]:
        """Return which accounts could pay each query if it were answered: (B, accounts)."""
        active = np.array([group.id not in self.gone for group in self.panel.groups])[self.panel.account_group]
        free = ~np.any(cost - self.spent, axis=2)  # a zero cost can always be paid
        return np.asarray(np.any(cost <= self.limit * (1 - _MARGIN), axis=2) | free | ~active)

    def _groups(self, broke: NDArray[np.bool_]) -> frozenset[str]:
        return frozenset(self.panel.groups[int(index)].id for index in self.panel.account_group[broke])

    def _charge(self, ids: list[str], new: NDArray[np.bool_], outcome: Outcome, total: Floats, tally: Tally) -> None:
        """Charge the new queries, and pass their answers to the ledger with the charge."""
        names = tuple(name for name, wanted in zip(ids, new, strict=True) if wanted)
        accounts = self.panel.account_ids
        moved = tally.sensitivity
        columns = [moved[index] if moved.ndim == 1 else moved[: len(names), index] for index in range(len(accounts))]
        mechanism = self.aggregator.mechanism
        self.ledger.charge(
            Charge(
                cost={account: total[index] for index, account in enumerate(accounts)},
                queries=names,
                answered=outcome.answered[: len(ids)][new],
                sensitivity={account: np.asarray(columns[index]) for index, account in enumerate(accounts)},
                sigma=mechanism.sigma,
                check_sigma=mechanism.check_sigma,
                bound=self.meter.bound,
                seeded=self.noise.seeded,
                noise=mechanism.noise,
                labels=outcome.labels[: len(ids)][new],
                reinforced=outcome.reinforced[: len(ids)][new],
            )
        )
        self.spent, _ = self.ledger.standing(accounts)
        for index, account in enumerate(accounts):
            self.sensitivity[account] = max(self.sensitivity[account], float(np.max(columns[index])))

    def _release(
        self, chunk: NDArray[np.int64], first: NDArray[np.bool_], ids: list[str], outcome: Outcome, cut: int
    ) -> None:
        """Add paid answers to the result; repeated queries get their stored answers."""
        self.n_asked += cut
        self.n_labels += int(outcome.answered[:cut].sum())
        if not self.may_repeat:
            kept = Outcome(
                labels=outcome.labels[:cut],
                answered=outcome.answered[:cut],
                reinforced=outcome.reinforced[:cut],
            )
            self.parts.append((chunk, kept, np.zeros(cut, dtype=bool)))
            return
        for index, name in enumerate(ids):
            self.store[name] = (
                int(outcome.labels[index]),
                bool(outcome.answered[index]),
                bool(outcome.reinforced[index]),
            )
        self.met.update(ids)
        self.parts.append((chunk, self._stored(self._ids(chunk)), ~first))

    def resume_drops(self) -> None:
        """Drop the groups that had been dropped before the run was interrupted."""
        here = {group.id for group in self.start.groups if group.sensitivity > 0}
        left = {group: labels for group, labels in self.before.left.items() if group in here}
        if left and len(left) < len(here) and self.drop(frozenset(left)):
            self.exhausted.update(left)

    def drop(self, broke: frozenset[str]) -> bool:
        """Drop the groups that could not pay; return whether any group that can vote remains."""
        self.gone |= broke
        staying = {group.id for group in self.start.groups} - self.gone
        silent = {group.id for group in self.start.groups if group.sensitivity == 0}
        if not staying - silent:
            return False
        self.panel = self.start.without(self.gone)
        return True

    def result(self, ended: Ending, guarantee: Guarantee) -> Labelling:
        """Return everything that was released, with the cost of every group."""

        def joined(arrays: list[NDArray[np.generic]], dtype: type[np.generic]) -> NDArray[np.generic]:
            return np.concatenate([*arrays, np.zeros(0, dtype=dtype)]).astype(dtype)

        return Labelling(
            queries=joined([part[0] for part in self.parts], np.int64),  # type: ignore[arg-type]
            labels=joined([part[1].labels for part in self.parts], np.int64),  # type: ignore[arg-type]
            answered=joined([part[1].answered for part in self.parts], np.bool_),  # type: ignore[arg-type]
            reinforced=joined([part[1].reinforced for part in self.parts], np.bool_),  # type: ignore[arg-type]
            repeated=joined([part[2] for part in self.parts], np.bool_),  # type: ignore[arg-type]
            stopped_by=ended,
            guarantee=guarantee,
            seeded=self.noise.seeded,
            meter=self.meter,
            groups=self._group_results(),
        )

    def _group_results(self) -> tuple[GroupResult, ...]:
        results = []
        for position, group in enumerate(self.start.groups):
            own = [
                account
                for account, owner in zip(self.start.account_ids, self.start.account_group, strict=True)
                if owner == position
            ]
            member = self.start.member
            mine = None if member is None else self.start.weights[member == position]
            results.append(
                GroupResult(
                    group=group.group,
                    teachers=None if mine is None else int(mine.size),
                    weight=None if mine is None else float(mine.max()),
                    sensitivity=max(self.sensitivity[account] for account in own),
                    cost=max(self.ledger.epsilon(account) for account in own),
                    before=self.earlier[group.id],
                    labels_until_exhausted=self.exhausted.get(group.id),
                )
            )
        return tuple(results)
