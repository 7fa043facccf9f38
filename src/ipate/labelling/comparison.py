"""The same releases under several bounds: what each bound charges every group, query by query."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ipate.accounting.bounds import BOUNDS, PAPER_ORDERS, Meter, find_bound
from ipate.errors import InputError
from ipate.labelling.aggregators import Mechanism
from ipate.labelling.audit import Audit, HistoryRow, account_for
from ipate.labelling.results import StoppedBy
from ipate.votes import Votes
from ipate.votes.panel import Panel

Floats = NDArray[np.float64]


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
            votes, panel, mechanism, Meter(name, conversion, orders), answered=answered, student_probs=student_probs,
            stopped_by=stopped_by, seeded=seeded, history=rows.extend,
            progress=None if progress is None else partial(_advance, progress, place * votes.n_queries),
        )  # fmt: skip
        history[name] = np.array([value for _, _, value in rows]).reshape(-1, len(panel.groups))
    return Comparison(audits=audits, history=history)


def _advance(progress: Callable[[int], None], before: int, done: int) -> None:
    progress(before + done)
