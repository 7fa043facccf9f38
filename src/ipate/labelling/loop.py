"""The labelling loop: check that a query can be paid, charge it, and only then release it.

A batch of queries is answered in memory, truncated before the first query that an account might not be able to pay,
charged as a whole, and released. Data-independent bounds test the worst case, from public figures, and stop as a
privacy filter: every person's budget is an (ε, δ) guarantee. Data-dependent bounds test a query's own cost, as in the
paper, which is not a guarantee.
"""

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ipate.accounting.bounds import Meter
from ipate.errors import InputError
from ipate.labelling.aggregators import NamedAggregator
from ipate.labelling.costs import check_supported, fixed_orders
from ipate.labelling.engine import Engine
from ipate.labelling.noise import NoiseSource, SecureNoise
from ipate.labelling.results import Ending, Labelling, StoppedBy, state_guarantee
from ipate.ledger.base import Ledger, MemoryLedger
from ipate.ledger.records import Terms, noise_kind, refuse_mixed_noise
from ipate.votes import Votes
from ipate.votes.panel import Panel

Floats = NDArray[np.float64]
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
    run = Engine(votes, panel, aggregator, meter, ledger=book, noise=source, probs=student_probs, may_repeat=may_repeat)
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
    run: Engine,
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
