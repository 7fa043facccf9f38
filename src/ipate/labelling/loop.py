"""The loop over queries: test what a query could cost, charge it, and only then let it be seen.

A batch of queries is answered in memory, cut before the first query that somebody might not be
able to pay, charged as a whole, and released. Data-independent bounds test the worst case, from
public figures, and stop as a filter: every person keeps their budget as an (ε, δ) guarantee. The
data-dependent bounds test a query's own cost, the paper's rule, which is not a guarantee.
"""

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ipate.accounting.bounds import Meter
from ipate.errors import InputError
from ipate.labelling.aggregators import Aggregator
from ipate.labelling.costs import check_supported, fixed_orders
from ipate.labelling.engine import Engine
from ipate.labelling.noise import NoiseSource, SecureNoise
from ipate.labelling.results import Ending, Labelling, StoppedBy, state_guarantee
from ipate.ledger.memory import MemoryLedger
from ipate.ledger.records import Ledger, Terms, noise_kind, refuse_mixed_noise
from ipate.votes import Votes
from ipate.votes.panel import Panel

Floats = NDArray[np.float64]
Stop: TypeAlias = Literal["budget", "drop", "count"]
_PARTS = 50
_MEMORY = 1 << 25  # bytes that the cost array of one batch may take


def account_terms(panel: Panel, meter: Meter, aggregator: Aggregator) -> list[Terms]:
    """Return the terms of an account per group (or per teacher, where they take turns), each with its own budget.

    Under loose and sup every account fixes its Rényi order now, from its budget and the worst case
    of a query, because a filter that may be released needs that. Under ptr one charge takes a whole budget.
    """
    if meter.whole and panel.rotating:
        raise InputError("bound is 'ptr': there is no test for teachers that take turns (vanishing); use gdp or sup")
    mechanism = aggregator.mechanism
    check_supported(meter, mechanism)
    orders = fixed_orders(panel, meter, mechanism)
    units = [meter] * len(panel.accounts) if orders is None else [meter.at_order(order) for order in orders]
    return [Terms(account=account, meter=unit) for account, unit in zip(panel.accounts, units, strict=True)]


def open_ledger(panel: Panel, meter: Meter, aggregator: Aggregator) -> MemoryLedger:
    """Open a ledger in memory with the accounts of a panel; `account_terms` says which."""
    return MemoryLedger(account_terms(panel, meter, aggregator))


def label(
    votes: Votes,
    panel: Panel,
    aggregator: Aggregator,
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
) -> Labelling:
    """Label queries until the rule says stop; nobody's cost ever passes their budget.

    Parameters
    ----------
    votes, panel, aggregator, meter
        Who votes what, whose accounts pay, how votes become labels, how costs are counted.
    stop : {"budget", "drop", "count"}
        budget: before the first query that could overspend anyone. drop: exhausted groups leave,
        the others' weights are scaled up and charged so, until nobody is left. count: at
        `max_labels` or `max_queries`, fixed beforehand, or when a budget ends sooner.
    max_labels, max_queries : int, optional
        With any rule, stop there at the latest.
    order : sequence of int, optional
        Positions of the queries in the order to ask; file order unless given.
    student_probs : array of shape (Q, C), optional
        For the interactive aggregator.
    noise : NoiseSource, optional
        Secure unless given.
    ledger : Ledger, optional
        Accounts for the panel's account ids; opened in memory unless given. Queries that a durable ledger has
        already paid for keep their stored answers, cost nothing, and count as asked: so a run is resumed.
    batch : int, optional
        Queries answered and charged at a time.
    progress : callable, optional
        Receives the number of queries dealt with after every batch.
    """
    if meter.whole:
        raise InputError("bound is 'ptr': it tests and charges a design as a whole; use label_tested with a design")
    _check_request(stop, max_labels, max_queries, panel)
    source = SecureNoise() if noise is None else noise
    book = open_ledger(panel, meter, aggregator) if ledger is None else ledger
    check_noise(book, source)
    check_fits(panel, votes, book, meter, student_probs)
    positions = check_order(order, votes.n_queries)
    run = Engine(
        votes=votes,
        panel=panel,
        aggregator=aggregator,
        meter=meter,
        ledger=book,
        noise=source,
        probs=student_probs,
        may_repeat=repeats(votes.queries or ()) or (order is not None and len(np.unique(positions)) < len(positions)),
    )
    if stop == "drop":
        run.resume_drops()
    most_labels = np.inf if max_labels is None else max_labels
    most_queries = np.inf if max_queries is None else max_queries
    size = batch or batch_size(panel, meter, len(positions))
    ended = walk(
        run, positions, size, drops=stop == "drop", labels=most_labels, queries=most_queries, progress=progress
    )
    # the filter rules whatever else stops a run, so a data-independent account promises its budgets
    fixed = stop == "count" and ended != "budget" and not meter.data_independent
    stopped_by: StoppedBy = "fixed" if fixed else "account"
    if meter.data_independent and book.private_history:  # what earlier runs left depends on private votes
        stopped_by = "other"
    return run.result(ended, state_guarantee(meter, stopped_by=stopped_by, seeded=source.seeded))


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
    """Ask queries in batches until they are all asked, somebody cannot pay, or the numbers are reached."""
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
    """Whether a name stands twice."""
    return len(set(names)) < len(names)


def batch_size(panel: Panel, meter: Meter, n_queries: int) -> int:
    """Return how many queries are charged at a time: as many as memory allows, fewer where each has its own cost.

    Costs that depend on votes are known at the end of a batch alone, so a run under such a bound is charged in at
    least `_PARTS` batches: they are the points of its cost history.
    """
    width = 1 if meter.data_independent else meter.width
    most = meter.definition.batch_size if meter.data_independent else -(-n_queries // _PARTS)
    return max(1, min(most, meter.definition.batch_size, _MEMORY // (8 * width * len(panel.account_ids))))


def check_noise(ledger: Ledger, noise: NoiseSource) -> None:
    """Refuse to mix seeded and secure noise on one ledger, before anything is drawn."""
    refuse_mixed_noise(str(ledger.path or "this ledger"), ledger.noise, noise_kind(seeded=noise.seeded))


def check_fits(panel: Panel, votes: Votes, ledger: Ledger, meter: Meter, probs: Floats | None) -> None:
    """Refuse parts of different runs: other teachers, other accounts, other budgets, another unit."""
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
        orders_agree = unit.orders == meter.orders
        if meter.fixes_order:  # such an account fixed one order when it was opened
            orders_agree = len(unit.orders) == 1 and unit.orders[0] in meter.orders
        if (unit.bound, unit.conversion) != (meter.bound, meter.conversion) or not orders_agree:
            raise InputError(
                f"account {account!r} is kept in {unit.bound}, {unit.conversion}, and this run charges {meter.bound}, "
                f"{meter.conversion}, at other orders perhaps: one account has one unit"
            )


def check_order(order: Sequence[int] | NDArray[np.integer] | None, n_queries: int) -> NDArray[np.int64]:
    """Return the positions to ask, in order; each a whole number below the number of queries."""
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
