"""State of one labelling run: batches are answered in memory, truncated, charged and then released.

The labelling loop: check that a query can be paid, charge it, and only then release it.

A batch of queries is answered in memory, truncated before the first query that an account might not be able to pay,
charged as a whole, and released. Data-independent bounds test the worst case, from public figures, and stop as a
privacy filter: every person's budget is an (ε, δ) guarantee. Data-dependent bounds test a query's own cost, as in the
paper, which is not a guarantee.
"""

from collections import ChainMap
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ipate._types import Floats
from ipate.accounting.bounds import Meter
from ipate.engines.teachers.aggregators import NamedAggregator
from ipate.engines.teachers.costs import (
    check_costs,
    check_supported,
    fixed_costs,
    fixed_orders,
    label_costs,
    tally_queries,
)
from ipate.engines.teachers.panel import Panel, Tally
from ipate.engines.teachers.votes import Votes
from ipate.errors import InputError
from ipate.ledger.base import Ledger, MemoryLedger
from ipate.ledger.records import Charge, Draw, Terms, noise_kind, refuse_mixed_noise
from ipate.release.answers import CODEC, Answers, paid_answers
from ipate.release.noise import STEPS, NoiseSource, SecureNoise
from ipate.release.results import Ending, GroupResult, Guarantee, Labelling, StoppedBy, state_guarantee

Rows = NDArray[np.void]  # of `LabellingState.answer`: per query an `Answer` and, if released, its `NoisyVotes`
_ANSWER = [("label", np.int64), ("answered", np.bool_), ("reinforced", np.bool_)]
_MARGIN = 1e-12  # relative: batches are truncated this far below the limit of the ledger


class LabellingState:
    """One labelling run: the answers so far, the current panel and the ledger.

    With `prepaid`, the key of a release that was charged as a whole, queries are stored at no further cost.
    """

    def __init__(
        self,
        votes: Votes,
        panel: Panel,
        aggregator: NamedAggregator,
        meter: Meter,
        *,
        ledger: Ledger,
        noise: NoiseSource,
        probs: Floats | None = None,
        may_repeat: bool = False,
        prepaid: str | None = None,
    ) -> None:
        self.votes, self.panel, self.aggregator, self.meter = votes, panel, aggregator, meter
        self.ledger, self.noise, self.probs, self.prepaid = ledger, noise, probs, prepaid
        self.start = panel
        self.n_labels = self.n_asked = 0
        self.parts: list[tuple[NDArray[np.int64], Rows, NDArray[np.bool_]]] = []
        self.before, self.progress = paid_answers(ledger), ledger.progress
        self.counts = aggregator.mechanism.counts
        noisy = [("sigma", np.float64), ("votes", np.int64, (votes.n_classes,))]  # σ is 0 where no counts were released
        self.answer = np.dtype(_ANSWER + noisy if self.counts else _ANSWER)
        self.store: dict[str, tuple[Any, ...]] = dict(self.before.answers)
        if self.counts:
            self._add_counts()
        self.met: set[str] = set()
        self.may_repeat = may_repeat or bool(self.store)
        self.exhausted: dict[str, int] = {}
        self.sensitivity = {account: self.progress.sensitivity.get(account, 0.0) for account in panel.account_ids}
        self.gone: frozenset[str] = frozenset()
        _, self.limit = ledger.balances(panel.account_ids)
        self.earlier = ledger.before  # ε by group id

    def resume_after(self, earlier: Labelling) -> None:
        """Continue an earlier labelling of the same run: its answers, labels and exhausted groups count here too."""
        answers = np.zeros(len(earlier.queries), self.answer)
        answers["label"], answers["answered"] = earlier.labels, earlier.answered
        answers["reinforced"] = earlier.reinforced
        if earlier.noisy_votes is not None and earlier.step is not None:
            answers["sigma"], answers["votes"] = STEPS * earlier.step, earlier.noisy_votes
        self.parts.append((earlier.queries, answers, earlier.repeated))
        self.n_labels, self.n_asked = earlier.n_labels, earlier.n_queries
        for group in earlier.groups:
            if group.labels_until_exhausted is not None:
                self.exhausted[group.id] = group.labels_until_exhausted
        before = {group.id: group.sensitivity for group in earlier.groups}
        for account, index in zip(self.panel.account_ids, self.panel.account_group, strict=True):
            self.sensitivity[account] = max(self.sensitivity[account], before[self.panel.groups[index].id])

    def ask(self, chunk: NDArray[np.int64], labels: float, queries: float) -> tuple[int, frozenset[str]]:
        """Ask these queries until one cannot be paid or `labels` or `queries` more have been reached.

        Returns how many were processed, and the groups that could not pay the next one.
        """
        first, fresh = self._unseen(chunk)
        places, new = np.flatnonzero(first), fresh[first]
        ids = self._ids(chunk[first])
        answers, total, broke, tally = self._answer(chunk[first], ids, new)
        stops = broke.any(axis=1)
        payer = int(np.argmax(stops)) if stops.any() else 0
        cut = int(np.flatnonzero(new)[payer]) if stops.any() else len(places)
        allowed = self._allowed(answers["answered"], labels, queries)
        whom: frozenset[str] = frozenset()
        if cut < len(places) and cut <= allowed:
            whom = frozenset(self.panel.groups[index].id for index in self.panel.account_group[broke[payer]])
        cut = min(cut, allowed)
        paid = np.flatnonzero(new[:cut])
        if paid.size:
            self._charge(tuple(ids[index] for index in paid), answers[paid], total[paid.size - 1], tally)
        taken = len(chunk) if cut == len(places) else int(places[cut])
        self._release(chunk[:taken], first[:taken], ids[:cut], answers[:cut])
        for group in whom:
            self.exhausted.setdefault(group, self.n_labels)
        return taken, whom

    def _answer(
        self, positions: NDArray[np.int64], ids: list[str], new: NDArray[np.bool_]
    ) -> tuple[Rows, Floats, NDArray[np.bool_], Tally]:
        """Answer queries in memory; queries that are not new get their stored answers.

        Returns the answers to all queries and, for the new ones, the running cost, which accounts could not pay each of
        them, and the tally.
        """
        answers = np.zeros(len(ids), self.answer)
        answers[~new] = self._stored([name for name, fresh in zip(ids, new, strict=True) if not fresh])
        asked = positions[new]
        tally = self._tally(asked)
        if not asked.size:
            return answers, np.zeros((0, 1, 1)), np.zeros((0, 1), dtype=bool), tally
        names = [name for name, fresh in zip(ids, new, strict=True) if fresh]
        probs = None if self.probs is None else self.probs[asked]
        outcome = self.aggregator.ask(
            tally.counts, queries=names, noise=self.noise, total_weight=self.panel.total_weight, probs=probs
        )
        answers["label"][new], answers["answered"][new] = outcome.labels, outcome.answered
        answers["reinforced"][new] = outcome.reinforced
        if outcome.noisy_votes is not None:
            given = np.flatnonzero(new)[outcome.answered]
            answers["sigma"][given], answers["votes"][given] = self.aggregator.mechanism.sigma, outcome.noisy_votes
        checks, label_cost = self._costs(tally, probs)
        paid = checks + outcome.answered[:, None, None] * label_cost
        total = np.cumsum(paid, axis=0)
        spent, _ = self.ledger.balances(self.panel.account_ids)
        running = spent + total
        broke = ~self._payable(running - paid + checks + label_cost, spent)
        return answers, total, broke, tally

    def _stored(self, names: list[str]) -> Rows:
        """Return the stored answers of these queries."""
        return np.array([self.store[name] for name in names], dtype=self.answer)

    def _add_counts(self) -> None:
        """Add the stored counts to stored answers; a label that was released without its counts stays without them.

        Counts of the same query that are drawn later would be a second release, with a cost of its own.
        """
        width = self.votes.n_classes
        for name, (_, own) in self.before.noisy_votes.items():
            if len(own) != width:
                raise InputError(f"query {name!r} has stored counts of {len(own)} classes, and the votes have {width}")
        none = 0.0, np.zeros(width, dtype=np.int64)
        self.store = {name: (*kept, *self.before.noisy_votes.get(name, none)) for name, kept in self.store.items()}

    def _allowed(self, answered: NDArray[np.bool_], labels: float, queries: float) -> int:
        """Return how many queries may be asked before the limits on labels and queries are reached."""
        by_labels = int(np.searchsorted(np.cumsum(answered), labels)) + 1
        return int(min(by_labels, queries, len(answered)))

    def _unseen(self, chunk: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which queries occur for the first time in this run, and which have no stored answer yet."""
        fresh = np.ones(len(chunk), dtype=bool)
        if not self.may_repeat:
            return fresh, fresh
        first = np.empty(len(chunk), dtype=bool)
        here: dict[str, tuple[Any, ...]] = {}
        seen = ChainMap(here, self.store)
        for index, name in enumerate(self._ids(chunk)):
            fresh[index] = name not in seen
            first[index] = fresh[index] or not (name in self.met or name in here)
            here[name] = ()
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
        return tally_queries(self.votes, self.panel, self.meter, where)

    def _costs(self, tally: Tally, probs: Floats | None) -> tuple[Floats, Floats]:
        """Return the costs of checks and labels, (B or 1, accounts, width), in every account's own unit."""
        if self.prepaid is not None:  # the whole release was charged before the first query
            nothing = np.zeros((1, len(self.panel.account_ids), self.meter.width))
            return nothing, nothing
        mechanism, meter = self.aggregator.mechanism, self.meter
        if meter.fixes_order:  # every account at the orders that it has fixed, whatever the run's settings say
            orders = [self.ledger.terms[account].meter.orders for account in self.panel.account_ids]
            meter = Meter(meter.bound, meter.conversion, sorted({order for own in orders for order in own}))
        fixed = fixed_costs(meter, mechanism, self.panel)
        if fixed is not None:
            checks, labels = (cost[None] for cost in fixed)
        else:
            maxima = self.aggregator.maxima(tally.counts, total_weight=self.panel.total_weight, probs=probs)
            checks = check_costs(meter, mechanism, self.panel, tally, maxima)
            labels = label_costs(meter, mechanism, self.panel, tally, abstain=self.votes.abstains)
        if meter.fixes_order:
            column = np.array([[meter.orders.index(order) for order in own] for own in orders])[None]
            checks, labels = (np.take_along_axis(cost, column, axis=2) for cost in (checks, labels))
        return checks, labels

    def _payable(self, cost: Floats, spent: Floats) -> NDArray[np.bool_]:
        """Return which accounts could pay each query if it were answered: (B, accounts)."""
        active = np.array([group.id not in self.gone for group in self.panel.groups])[self.panel.account_group]
        free = ~np.any(cost - spent, axis=2)  # a zero cost can always be paid
        within = cost <= self.limit * (1 - _MARGIN)
        paid = within.all(axis=2) if self.meter.fixes_order else within.any(axis=2)
        return np.asarray(paid | free | ~active)

    def _charge(self, names: tuple[str, ...], answers: Rows, total: Floats, tally: Tally) -> None:
        """Charge these new queries, and pass their answers to the ledger with the charge."""
        accounts = self.panel.account_ids
        moved = tally.sensitivity
        columns = [moved[index] if moved.ndim == 1 else moved[: len(names), index] for index in range(len(accounts))]
        mechanism, given = self.aggregator.mechanism, answers["answered"]
        check = () if mechanism.check_sigma is None else (Draw(mechanism="check", sigma=mechanism.check_sigma),)
        kind: Literal["vector", "argmax"] = "vector" if self.counts else "argmax"
        found = Answers(
            labels=answers["label"],
            answered=given,
            reinforced=answers["reinforced"],
            counts=answers["votes"][given] if self.counts else None,
            sigma=mechanism.sigma,
        )
        self.ledger.charge(
            Charge(
                cost=dict(zip(accounts, total, strict=True)),
                sensitivity={account: np.asarray(own) for account, own in zip(accounts, columns, strict=True)},
                draws=(*check, Draw(mechanism=kind, sigma=mechanism.sigma, noise=mechanism.noise, where=given)),
                keys=names,
                bound=self.meter.bound,
                seeded=self.noise.seeded,
                codec=CODEC,
                payload=found.payload,
                paid_by=self.prepaid,
            )
        )
        for account, own in zip(accounts, columns, strict=True):
            self.sensitivity[account] = max(self.sensitivity[account], float(np.max(own)))

    def _release(self, chunk: NDArray[np.int64], first: NDArray[np.bool_], ids: list[str], answers: Rows) -> None:
        """Add paid answers to the result; repeated queries get their stored answers."""
        self.n_asked += len(ids)
        self.n_labels += int(answers["answered"].sum())
        if self.may_repeat:
            self.store.update(zip(ids, answers.tolist(), strict=True))
            self.met.update(ids)
            answers = self._stored(self._ids(chunk))
        self.parts.append((chunk, answers, ~first))

    def resume_drops(self) -> None:
        """Drop the groups that had been dropped before the run was interrupted."""
        here = {group.id for group in self.start.groups if group.sensitivity > 0}
        left = {group: labels for group, labels in self.progress.left.items() if group in here}
        if left and len(left) < len(here) and self.drop(frozenset(left)):
            self.exhausted.update(left)

    def drop(self, broke: frozenset[str]) -> bool:
        """Drop the groups that could not pay; return whether any group that can vote remains."""
        self.gone |= broke
        if all(group.id in self.gone or group.sensitivity == 0 for group in self.start.groups):
            return False
        self.panel = self.start.without(self.gone)
        return True

    def result(self, ended: Ending, guarantee: Guarantee) -> Labelling:
        """Return everything that was released, with the cost of every group."""
        nothing = np.zeros(0, np.int64), np.zeros(0, self.answer), np.zeros(0, np.bool_)
        queries, answers, repeated = (np.concatenate(parts) for parts in zip(nothing, *self.parts, strict=True))
        return Labelling(
            queries=queries,
            labels=answers["label"].copy(),
            answered=answers["answered"].copy(),
            reinforced=answers["reinforced"].copy(),
            repeated=repeated,
            stopped_by=ended,
            guarantee=guarantee,
            seeded=self.noise.seeded,
            meter=self.meter,
            groups=tuple(self._group_result(position) for position in range(len(self.start.groups))),
            noisy_votes=answers["votes"].copy() if self.counts else None,
            step=answers["sigma"] / STEPS if self.counts else None,
        )

    def _group_result(self, position: int) -> GroupResult:
        start, group = self.start, self.start.groups[position]
        own = [start.account_ids[index] for index in np.flatnonzero(start.account_group == position)]
        mine = None if start.member is None else start.weights[start.member == position]
        return GroupResult(
            group=group.group,
            teachers=None if mine is None else int(mine.size),
            weight=None if mine is None else float(mine.max()),
            sensitivity=max(self.sensitivity[account] for account in own),
            cost=max(self.ledger.epsilon(account) for account in own),
            before=self.earlier[group.group.id],
            labels_until_exhausted=self.exhausted.get(group.id),
        )


Stop: TypeAlias = Literal["budget", "drop", "count"]
_PARTS = 50
_MEMORY = 1 << 25  # bytes that the cost array of one batch may take


def account_terms(panel: Panel, meter: Meter, aggregator: NamedAggregator) -> list[Terms]:
    """Return the terms of one account per group, or per teacher where teachers take turns.

    Under loose and sup every account fixes its Rényi order now, from its budget and the worst case of a query, as a
    releasable privacy filter requires. Under ptr a single charge takes the whole budget.
    """
    if meter.whole and panel.rotating:
        raise InputError("bound is 'ptr': there is no test for teachers that take turns (vanishing); use gdp or sup")
    mechanism = aggregator.mechanism
    check_supported(meter, mechanism)
    orders = fixed_orders(panel, meter, mechanism)
    units = [meter] * len(panel.accounts) if orders is None else [meter.at_order(order) for order in orders]
    return [Terms(account=account, meter=unit) for account, unit in zip(panel.accounts, units, strict=True)]


def open_ledger(panel: Panel, meter: Meter, aggregator: NamedAggregator) -> MemoryLedger:
    """Open a ledger in memory with the accounts that `account_terms` returns."""
    return MemoryLedger(account_terms(panel, meter, aggregator))


def label(
    votes: Votes,
    panel: Panel,
    aggregator: NamedAggregator,
    meter: Meter,
    *,
    stop: Stop = "budget",
    max_labels: int | None = None,
    max_queries: int | None = None,
    order: Sequence[int] | NDArray[np.integer] | None = None,
    student_probs: Floats | None = None,
    noise: NoiseSource | None = None,
    ledger: Ledger | None = None,
    batch: int | None = None,
    progress: Callable[[int], None] | None = None,
    after: Labelling | None = None,
) -> Labelling:
    """Label queries until the stopping rule applies; no cost ever exceeds its budget.

    Parameters
    ----------
    votes, panel, aggregator, meter
        The votes, the accounts that pay, the aggregator that labels, and the bound that counts costs. If the
        aggregator's mechanism has `counts`, noisy counts are released with the labels, under gdp only.
    stop : {"budget", "drop", "count"}
        budget: stop before the first query that an account might not be able to pay. drop: remove exhausted groups,
        scale up the weights of the others and charge them accordingly, until no group is left. count: stop at
        `max_labels` or `max_queries`, fixed beforehand, or when a budget is exhausted sooner.
    max_labels, max_queries : int, optional
        Upper limits under every stopping rule.
    order : sequence of int, optional
        Positions of the queries in the order to ask. Default: file order.
    student_probs : array of shape (Q, C), optional
        For the interactive aggregator.
    noise : NoiseSource, optional
        Default: secure noise.
    ledger : Ledger, optional
        Accounts for the panel's account ids. Default: a new ledger in memory. To resume a run, queries that a durable
        ledger has already paid for keep their stored answers, cost nothing, and count as asked.
    batch, progress : optional
        How many queries are answered and charged at a time, and what receives the number processed after each batch.
    after : Labelling, optional
        An earlier labelling of other queries by the same panel on the same ledger, which this one continues: the limits
        hold for both, and the result has both.
    """
    if meter.whole:
        raise InputError("bound is 'ptr': it tests and charges a design as a whole; use label_tested with a design")
    _check_request(stop, max_labels, max_queries, panel)
    check_supported(meter, aggregator.mechanism)
    source = SecureNoise() if noise is None else noise
    book = open_ledger(panel, meter, aggregator) if ledger is None else ledger
    check_fits(panel, votes, book, meter, student_probs)
    positions = check_order(order, votes.n_queries)
    may_repeat = repeats(votes.queries or ()) or (order is not None and len(np.unique(positions)) < len(positions))
    size = batch or batch_size(panel, meter, len(positions))
    check_noise(book, source)
    run = LabellingState(
        votes, panel, aggregator, meter, ledger=book, noise=source, probs=student_probs, may_repeat=may_repeat
    )
    if after is not None:
        run.resume_after(after)
    if stop == "drop":
        run.resume_drops()
    most = {"labels": max_labels or np.inf, "queries": max_queries or np.inf}
    ended = walk(run, positions, size, drops=stop == "drop", progress=progress, **most)
    # the filter applies whatever else stops a run, so budgets are guaranteed under a data-independent bound
    fixed = stop == "count" and ended != "budget" and not meter.data_independent
    stopped_by: StoppedBy = "fixed" if fixed else "account"
    if meter.data_independent and book.private_history:  # the remaining budgets depend on private votes
        stopped_by = "other"
    return run.result(
        ended, state_guarantee(meter, stopped_by=stopped_by, seeded=source.seeded, counts=aggregator.mechanism.counts)
    )


def walk(
    run: LabellingState,
    positions: NDArray[np.int64],
    size: int,
    *,
    drops: bool = False,
    labels: float = np.inf,
    queries: float = np.inf,
    progress: Callable[[int], None] | None = None,
) -> Ending:
    """Ask queries in batches until all are asked, an account cannot pay, or a limit is reached."""
    done = 0
    while done < len(positions):
        taken, broke = run.ask(positions[done : done + size], labels - run.n_labels, queries - run.n_asked)
        done += taken
        if progress is not None:
            progress(done)
        if run.n_labels >= labels or run.n_asked >= queries:
            return "count"
        if broke and not (drops and run.drop(broke)):
            return "budget"
    return "pool"


def _check_request(stop: str, max_labels: int | None, max_queries: int | None, panel: Panel) -> None:
    if stop not in ("budget", "drop", "count"):
        raise InputError(f"stop is {stop!r}: it must be budget, drop or count")
    if stop == "count" and max_labels is None and max_queries is None:
        raise InputError("stop is 'count' without a number: say how many labels or queries, fixed beforehand")
    for name, value in (("max_labels", max_labels), ("max_queries", max_queries)):
        if value is not None and value < 1:
            raise InputError(f"{name} is {value}: it must be at least 1")
    if stop == "drop" and (panel.member is None or panel.rotating):
        raise InputError("stop is 'drop': groups can leave only where each teacher has one group and always votes")


def repeats(names: Sequence[object]) -> bool:
    """Return whether there are duplicate names."""
    return len(set(names)) < len(names)


def batch_size(panel: Panel, meter: Meter, n_queries: int) -> int:
    """Return how many queries are charged at a time, limited by memory.

    Data-dependent costs are known only at the end of a batch, so a run under such a bound is charged in at least
    `_PARTS` batches, which are the points of its cost history.
    """
    width = 1 if meter.data_independent else meter.width
    most = meter.definition.batch_size if meter.data_independent else -(-n_queries // _PARTS)
    return max(1, min(most, meter.definition.batch_size, _MEMORY // (8 * width * len(panel.account_ids))))


def check_noise(ledger: Ledger, noise: NoiseSource) -> None:
    """Refuse to mix seeded and secure noise in one ledger, before any noise is drawn."""
    refuse_mixed_noise(str(ledger.path or "this ledger"), ledger.noise, noise_kind(seeded=noise.seeded))


def check_fits(panel: Panel, votes: Votes, ledger: Ledger, meter: Meter, probs: Floats | None) -> None:
    """Check that votes, panel and ledger agree on teachers, accounts, budgets and unit."""
    if panel.n_teachers != votes.n_teachers:
        raise InputError(f"the panel has {panel.n_teachers} teachers and the votes {votes.n_teachers}: they must agree")
    if panel.rotating != (votes.participation is not None):
        raise InputError("participation: votes and panel must both say that teachers take turns, or neither")
    if probs is not None:
        check_probs(probs, votes.n_queries, votes.n_classes)
    book = ledger.terms
    for own in panel.accounts:
        account, terms = own.id, book.get(own.id)
        if terms is None:
            raise InputError(f"account {account!r} is not in the ledger: open it for this panel")
        kept = terms.account
        if (kept.group.id, kept.group.budget) != (own.group.id, own.group.budget):
            raise InputError(
                f"account {account!r}: the ledger has the budget {kept.epsilon:g} at δ = {kept.delta:g} for group "
                f"{kept.group.id!r}, the panel {own.epsilon:g} at {own.delta:g} for {own.group.id!r}: they must agree"
            )
        unit = terms.meter
        orders_agree = meter.fixes_order or unit.orders == meter.orders  # an account keeps the order it fixed first
        if (unit.bound, unit.conversion) != (meter.bound, meter.conversion) or not orders_agree:
            raise InputError(
                f"account {account!r} is kept in {unit.bound}, {unit.conversion}, and this run charges {meter.bound}, "
                f"{meter.conversion}, possibly at other orders: one account has one unit"
            )


def check_order(order: Sequence[int] | NDArray[np.integer] | None, n_queries: int) -> NDArray[np.int64]:
    """Return the positions to ask, in order; refuse positions outside 0 to `n_queries` − 1."""
    if order is None:
        return np.arange(n_queries, dtype=np.int64)
    positions = np.asarray(order)
    if positions.ndim != 1 or (positions.size and positions.dtype.kind not in "iu"):
        raise InputError(f"order is {positions.dtype} of shape {positions.shape}: it must be a list of positions")
    bad = positions[(positions < 0) | (positions >= n_queries)]
    if bad.size:
        raise InputError(f"order holds {bad[0]}: positions go from 0 to {n_queries - 1}")
    return positions.astype(np.int64)


def check_probs(probs: NDArray[np.generic], n_queries: int, n_classes: int) -> Floats:
    """Return probabilities as floats; refuse a wrong shape, values outside [0, 1] or a wrong sum."""
    if probs.shape != (n_queries, n_classes) or probs.dtype.kind not in "fiu":
        raise InputError(
            f"student_probs are {probs.dtype} of shape {probs.shape}: "
            f"they must be numbers of shape ({n_queries}, {n_classes}), queries × classes"
        )
    values = probs.astype(np.float64)
    bad = ~((values >= 0) & (values <= 1))  # NaN is bad
    if bad.any():
        row = int(np.flatnonzero(bad.any(axis=1))[0])
        raise InputError(f"student_probs hold {values[bad][0]:g} in row {row}: a probability lies in [0, 1]")
    sums = values.sum(axis=1)
    wrong = np.flatnonzero(np.abs(sums - 1) > 1e-4)
    if wrong.size:
        raise InputError(f"student_probs sum to {sums[wrong[0]]:.6g} in row {wrong[0]}: every row must sum to 1")
    return values
