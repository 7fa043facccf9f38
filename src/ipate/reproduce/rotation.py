"""Teachers that take turns, followed until every account is exhausted."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ipate.accounting import loose, tight
from ipate.accounting.bounds import Meter
from ipate.labelling.aggregators import Confident
from ipate.labelling.noise import SeededNoise
from ipate.reproduce.schemes import Scheme
from ipate.votes import Votes
from ipate.votes.panel import Panel

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Turns:
    """All queries answered in order, whatever they cost; and what they cost whom.

    Attributes
    ----------
    labels : integer array (Q,)
        −1 where the check failed.
    present : bool array (k, Q)
    cost : array (Q, orders)
        What each query costs whoever takes part in it.
    """

    panel: Panel
    meter: Meter
    labels: NDArray[np.int64]
    present: NDArray[np.bool_]
    cost: Floats

    def spent(self, queries: int) -> Floats:
        """Return the cost of every account after so many queries, (k, orders)."""
        return np.asarray(self.present[:, :queries].astype(np.float64) @ self.cost[:queries])

    def epsilon(self, queries: int) -> dict[str, float]:
        """Return the worst ε of every group's accounts after so many queries."""
        epsilon, _ = self.meter.epsilon(self.spent(queries), self.panel.budgets[1])
        return {
            group.id: float(epsilon[self.panel.account_group == place].max())
            for place, group in enumerate(self.panel.groups)
        }

    def affordable(self) -> int:
        """Return how many queries can be asked before a budget is exceeded."""
        limit = self.meter.limit(*self.panel.budgets)

        def paid(queries: int) -> bool:
            idle = ~self.present[:, :queries].any(axis=1)
            return bool(np.all(np.any(self.spent(queries) <= limit, axis=1) | idle))

        return self._last(paid)

    def affordable_on_average(self) -> int:
        """Return how many queries could be asked if a group's *mean* ε were held to its budget: reproduction only.

        Teachers who had more turns than others have then overspent.
        """
        budget, delta = self.panel.budgets
        groups = [self.panel.account_group == place for place in range(len(self.panel.groups))]

        def paid(queries: int) -> bool:
            epsilon, _ = self.meter.epsilon(self.spent(queries), delta)
            return all(epsilon[own].mean() <= budget[own][0] for own in groups)

        return self._last(paid)

    def _last(self, paid: Callable[[int], bool]) -> int:
        """Return the largest number of queries that is paid for: by bisection, as costs only grow."""
        low, high = 0, self.present.shape[1]
        while low < high:
            middle = (low + high + 1) // 2
            if paid(middle):
                low = middle
            else:
                high = middle - 1
        return low


def take_turns(votes: Votes, scheme: Scheme, meter: Meter, *, noise: SeededNoise) -> Turns:
    """Answer every query of votes with `participation` and count what it costs under the tight bound."""
    present, mechanism = np.asarray(votes.participation), scheme.mechanism
    tally = scheme.panel.tally(np.asarray(votes.votes), votes.n_classes, present)
    outcome = Confident(mechanism=mechanism).ask(
        tally.counts, queries=votes.queries or (), noise=noise, total_weight=scheme.panel.total_weight
    )
    scale = np.asarray(tally.scale)[:, None]
    checks = loose.check_rdp(meter.orders, sensitivity=scale, check_sigma=mechanism.check_sigma or 1.0)[:, 0]
    labels = tight.label_rdp(tally.counts, meter.orders, sensitivity=scale, sigma=mechanism.sigma)[:, 0]
    cost = checks + outcome.answered[:, None] * labels
    answers = np.where(outcome.answered, outcome.labels, -1)
    return Turns(panel=scheme.panel, meter=meter, labels=answers, present=present, cost=cost)
