"""Costs of past or planned releases for each group, query by query.

The same releases under several bounds: what each bound charges every group, query by query.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ipate._types import Floats
from ipate.accounting.bounds import BOUNDS, PAPER_ORDERS, Meter, find_bound
from ipate.engines.teachers.aggregators import Mechanism, lead_over_student
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
from ipate.release.results import GroupResult, Guarantee, StoppedBy, state_guarantee

HistoryRow = tuple[int, str, float]
_MEMORY = 1 << 25  # bytes that the cost array of one chunk may take
_MOST = 4096  # queries in a chunk at most
ANSWERED, NOT_ASKED = 1, -1  # 0: asked, but not answered


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Costs of past or planned releases for every group, and their guarantee."""

    meter: Meter
    guarantee: Guarantee
    queries: int
    answered: int
    groups: tuple[GroupResult, ...]


def account_for(
    votes: Votes,
    panel: Panel,
    mechanism: Mechanism,
    meter: Meter,
    *,
    answered: NDArray[np.int8] | None = None,
    student_probs: Floats | None = None,
    stopped_by: StoppedBy = "fixed",
    seeded: bool = False,
    history: Callable[[list[HistoryRow]], None] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Audit:
    """Return what the releases on these votes cost every group.

    Parameters
    ----------
    votes, panel, mechanism, meter
        The votes, the accounts that pay, the noise that was added, and the bound that counts costs.
    answered : array of shape (Q,), optional
        1 answered, 0 asked but not answered (its check is charged), −1 not asked. Default: all answered.
    student_probs : array of shape (Q, C), optional
        The student's probabilities, where the interactive check was used.
    stopped_by : {"fixed", "account", "other"}
        What decided how many queries were asked. Under "account", loose and sup are evaluated at the single
        Rényi order that each group's budget fixes beforehand, as a privacy filter requires.
    history, progress : callable, optional
        Receive (query, group, ε) rows, in order, and the number of queries done, after every chunk.
    """
    check_supported(meter, mechanism)
    guarantee = state_guarantee(meter, stopped_by=stopped_by, seeded=seeded, counts=mechanism.counts)
    mask = check_mask(answered, votes.n_queries)
    asked, given = mask != NOT_ASKED, mask == ANSWERED
    running = _Running(panel, meter, fixed_orders(panel, meter, mechanism) if stopped_by == "account" else None)
    fixed = fixed_costs(meter, mechanism, panel)

    def costs(queries: slice) -> tuple[Floats, Floats]:
        """Return the costs of a chunk, (B, accounts, width), and the sensitivities of its accounts."""
        labelled = np.flatnonzero(given[queries])
        if fixed is not None:
            (check, label), moved = fixed, panel.own_sensitivities
        else:
            tally = tally_queries(votes, panel, meter, queries)
            counts, moved = tally.counts, tally.sensitivity
            maxima = counts.max(axis=1)
            if student_probs is not None:
                maxima = lead_over_student(counts, panel.total_weight, student_probs[queries])
            check = check_costs(meter, mechanism, panel, tally, maxima)
            label = np.zeros(1)
            if labelled.size:
                label = label_costs(meter, mechanism, panel, _only(tally, labelled), abstain=votes.abstains)
        cost = np.where(asked[queries, None, None], check, 0.0)
        cost[labelled] += label
        return cost, moved

    if fixed is not None and history is None:
        running.settle(asked, given, *fixed)
    else:
        size = max(1, min(_MOST, _MEMORY // (8 * meter.width * len(panel.account_ids))))
        for start in range(0, votes.n_queries, size):
            queries = slice(start, min(start + size, votes.n_queries))
            rows = running.add(*costs(queries), start=start, history=history is not None)
            if history is not None:
                history(rows)
            if progress is not None:
                progress(queries.stop)
    groups = running.groups()
    if stopped_by == "account" and any(group.exhausted_at is not None for group in groups):
        guarantee = state_guarantee(meter, stopped_by="other", seeded=seeded)  # this account would have stopped
    n_asked, n_given = int(np.count_nonzero(asked)), int(np.count_nonzero(given))
    return Audit(meter=meter, guarantee=guarantee, queries=n_asked, answered=n_given, groups=groups)


def check_mask(answered: NDArray[np.generic] | None, n_queries: int) -> NDArray[np.int8]:
    """Return the mask as −1, 0 and 1 per query; refuse any other value or length."""
    if answered is None:
        return np.ones(n_queries, dtype=np.int8)
    mask = np.asarray(answered)
    if mask.shape != (n_queries,):
        raise InputError(f"answered has the shape {mask.shape}: it must hold one value for each of {n_queries} queries")
    if mask.dtype == np.bool_:
        return mask.astype(np.int8)
    if not np.issubdtype(mask.dtype, np.integer):
        raise InputError(f"answered is {mask.dtype}: it must be bool or hold 1 (answered), 0 (not), −1 (not asked)")
    bad = mask[(mask < -1) | (mask > 1)]
    if bad.size:
        raise InputError(f"answered holds {bad[0]}: it may hold 1 (answered), 0 (not answered), −1 (not asked)")
    return mask.astype(np.int8)


class _Running:
    """Running costs of all accounts, updated chunk by chunk."""

    def __init__(self, panel: Panel, meter: Meter, orders: tuple[float, ...] | None) -> None:
        self.panel, self.meter = panel, meter
        self.allowed = None if orders is None else np.array(orders)[:, None] == np.array(meter.orders)
        epsilon, self.delta = panel.budgets
        self.limit = meter.limit(epsilon, self.delta)
        self.spent = np.zeros((len(panel.account_ids), meter.width))
        self.exhausted = np.full(len(panel.account_ids), -1)
        self.sensitivity = np.zeros(len(panel.account_ids))

    def add(self, cost: Floats, sensitivity: Floats, *, start: int, history: bool) -> list[HistoryRow]:
        """Add a chunk's costs (B, accounts, width); return its history rows if `history` is set."""
        cost[0] += self.spent
        running = np.cumsum(cost, axis=0, out=cost)
        seen = self._at_fixed_orders(running)
        over = running.any(axis=2) & ~np.any(seen <= self.limit, axis=2)  # zero cost is never over budget
        first = np.where(over.any(axis=0), over.argmax(axis=0) + start, -1)
        self.exhausted = np.where(self.exhausted >= 0, self.exhausted, first)
        self.spent = running[-1].copy()
        moved = sensitivity.max(axis=0) if sensitivity.ndim == 2 else sensitivity
        self.sensitivity = np.maximum(self.sensitivity, moved)
        return self._history(seen, start) if history else []

    def settle(self, asks: NDArray[np.bool_], gives: NDArray[np.bool_], check: Floats, label: Floats) -> None:
        """Add all queries at once in closed form, n·check + m·label.

        Running costs never decrease, so the query that exhausts an account is found by bisection.
        """
        asked, given = np.cumsum(asks), np.cumsum(gives)

        def over(last: NDArray[np.intp]) -> NDArray[np.bool_]:
            running = asked[last][:, None] * check + given[last][:, None] * label
            return np.asarray(running.any(axis=1) & ~np.any(self._at_fixed_orders(running) <= self.limit, axis=1))

        low, high = np.zeros(len(check), np.intp), np.full(len(check), len(asks) - 1, np.intp)
        ends = over(high)
        while np.any(low < high):
            middle = (low + high) // 2
            spent = over(middle)
            low, high = np.where(spent, low, np.minimum(middle + 1, high)), np.where(spent, middle, high)
        self.exhausted = np.where(ends, high, -1)
        self.spent = asked[-1] * check + given[-1] * label
        self.sensitivity = self.panel.own_sensitivities

    def _history(self, running: Floats, start: int) -> list[HistoryRow]:
        epsilon, _ = self.meter.epsilon(running, self.delta)
        worst = [epsilon[:, self._accounts(index)].max(axis=1) for index in range(len(self.panel.groups))]
        return [
            (start + row, group.id, float(worst[index][row]))
            for row in range(len(running))
            for index, group in enumerate(self.panel.groups)
        ]

    def _at_fixed_orders(self, running: Floats) -> Floats:
        """Set all orders but the one fixed beforehand to infinity, for accounts that have spent anything."""
        if self.allowed is None:
            return running
        return np.where(self.allowed | ~running.any(axis=-1, keepdims=True), running, np.inf)

    def groups(self) -> tuple[GroupResult, ...]:
        """Return one result per group, from the account with the largest ε."""
        epsilon, order = self.meter.epsilon(self._at_fixed_orders(self.spent), self.delta)
        result = []
        for index, group in enumerate(self.panel.groups):
            own = self._accounts(index)
            worst = own[np.argmax(epsilon[own])]
            ends = self.exhausted[own][self.exhausted[own] >= 0]
            result.append(
                GroupResult(
                    group=group.group,
                    sensitivity=float(self.sensitivity[own].max()),
                    cost=float(epsilon[worst]),
                    order=None if np.isnan(order[worst]) else float(order[worst]),
                    exhausted_at=int(ends.min()) if ends.size else None,
                )
            )
        return tuple(result)

    def _accounts(self, group: int) -> NDArray[np.intp]:
        return np.flatnonzero(self.panel.account_group == group)


def _only(tally: Tally, rows: NDArray[np.intp]) -> Tally:
    """Return the tally restricted to some of its queries."""
    return Tally(
        counts=tally.counts[rows],
        voted=tally.voted[:, rows],
        votes=tally.votes[:, rows],
        sensitivity=tally.sensitivity if tally.sensitivity.ndim == 1 else tally.sensitivity[rows],
        present=None if tally.present is None else tally.present[:, rows],
        scale=None if tally.scale is None else tally.scale[rows],
    )


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Costs of the same releases under several bounds.

    Attributes
    ----------
    audits : mapping from bound to Audit
        What each group has paid in the end, and the guarantee of that figure.
    history : mapping from bound to array of shape (queries, groups)
        ε of each group after every query, with the groups in the order of the audits.
    """

    audits: Mapping[str, Audit]
    history: Mapping[str, Floats]

    @property
    def groups(self) -> tuple[str, ...]:
        """The ids of the groups, in the order of the history's columns."""
        return tuple(group.id for group in next(iter(self.audits.values())).groups)

    @property
    def publishable(self) -> bool:
        """Whether every figure of the comparison may be published; one private bound makes the whole private."""
        return all(audit.guarantee.publishable for audit in self.audits.values())

    def rows(self, bound: str) -> list[HistoryRow]:
        """Return the history of a bound as rows (query, group, ε), in the order of the queries."""
        return [
            (query, group, float(value))
            for query, costs in enumerate(self.history[bound])
            for group, value in zip(self.groups, costs, strict=True)
        ]


def comparable_bounds(mechanism: Mechanism) -> tuple[str, ...]:
    """Return the names of the bounds that have a cost by query for this mechanism."""
    found = (find_bound(name) for name in tuple(BOUNDS))
    return tuple(
        bound.name
        for bound in found
        if not bound.whole and mechanism.noise in bound.noises and (bound.releases_counts or not mechanism.counts)
    )


def compare_bounds(
    votes: Votes,
    panel: Panel,
    mechanism: Mechanism,
    *,
    bounds: Sequence[str] | None = None,
    conversion: str = "improved",
    orders: Sequence[float] = PAPER_ORDERS,
    answered: NDArray[np.int8] | None = None,
    student_probs: Floats | None = None,
    stopped_by: StoppedBy = "fixed",
    seeded: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Comparison:
    """Return what the releases on these votes cost every group under several bounds.

    Costs of bounds that look at the votes (tight, exact) are themselves private. A comparison that holds one of them
    must not be published as a whole; `Audit.guarantee` says of each bound what may be said of it.

    Parameters
    ----------
    votes, panel, mechanism
        As in `account_for`.
    bounds : sequence of str, optional
        Names of bounds; by default all that have a cost by query for this mechanism (ptr has none).
    conversion, orders
        How Rényi costs become ε, and at which orders; gdp has its own conversion.
    answered, student_probs, stopped_by, seeded
        As in `account_for`.
    progress : callable, optional
        Receives the number of queries done, counted over all bounds.

    See Also
    --------
    account_for : one bound.
    ipate.plot_costs : draw the result.
    """
    names = comparable_bounds(mechanism) if bounds is None else tuple(bounds)
    if not names:
        raise InputError("bounds is empty: name at least one bound")
    audits: dict[str, Audit] = {}
    history: dict[str, Floats] = {}
    for place, name in enumerate(names):
        rows: list[HistoryRow] = []
        audits[name] = account_for(
            votes,
            panel,
            mechanism,
            Meter(name, conversion, orders),
            answered=answered,
            student_probs=student_probs,
            stopped_by=stopped_by,
            seeded=seeded,
            history=rows.extend,
            progress=None if progress is None else partial(_advance, progress, place * votes.n_queries),
        )
        history[name] = np.array([value for _, _, value in rows]).reshape(-1, len(panel.groups))
    return Comparison(audits=audits, history=history)


def _advance(progress: Callable[[int], None], before: int, done: int) -> None:
    progress(before + done)
