"""Costs of past or planned releases for each group, query by query."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ipate.accounting.bounds import Meter
from ipate.errors import InputError
from ipate.labelling.aggregators import Mechanism, lead_over_student
from ipate.labelling.costs import check_costs, check_supported, fixed_costs, fixed_orders, label_costs, tally_queries
from ipate.labelling.results import GroupResult, Guarantee, StoppedBy, state_guarantee
from ipate.votes import Votes
from ipate.votes.panel import Panel, Tally

Floats = NDArray[np.float64]
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
