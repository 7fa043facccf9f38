"""Many votings of one ensemble under one scheme: costs do not depend on the order, so they are counted once.

`hold` in `voting` runs the product's own loop; a booth gives the same labels, which the tests check, and takes a
fraction of its time where costs are exact.
"""

import numpy as np
from numpy.typing import NDArray

from ipate.accounting.meter import Meter
from ipate.aggregators import Confident
from ipate.costs import check_costs, label_costs
from ipate.noise import SeededNoise
from ipate.reproduce.ensembles import Ensemble
from ipate.reproduce.schemes import Scheme
from ipate.reproduce.voting import Voting, classes_of, hold, order_of, seed_of

__all__ = ["Booth"]

_MARGIN = 1e-12  # the loop's own: it stops this much (relative) before the ledger would refuse
_PART = 1024  # queries whose costs are counted at a time


class Booth:
    """Holds votings of an ensemble under a scheme and a meter.

    Parameters
    ----------
    ensemble, scheme, meter
        As in `hold`; loose and sup, whose accounts fix an order each, are left to the loop.
    """

    def __init__(self, ensemble: Ensemble, scheme: Scheme, meter: Meter) -> None:
        self.ensemble, self.scheme, self.meter = ensemble, scheme, meter
        self.loop = scheme.schedule is not None or (meter.data_independent and meter.bound != "gdp")
        if not self.loop:
            self._count()

    def _count(self) -> None:
        """Count votes and costs of all points, in their own order."""
        panel, mechanism, total = self.scheme.panel, self.scheme.mechanism, len(self.ensemble.truth)
        counts, checks, labels = [], [], []
        for start in range(0, total, _PART):
            tally = panel.tally(np.asarray(self.ensemble.votes[:, start : start + _PART]), classes_of(self.ensemble))
            shape = (len(tally.counts), len(panel.groups), self.meter.width)
            own = check_costs(self.meter, mechanism, panel, tally, tally.counts.max(axis=1))
            counts.append(tally.counts)
            checks.append(np.broadcast_to(own, shape))
            labels.append(np.broadcast_to(label_costs(self.meter, mechanism, panel, tally), shape))
        self.counts, self.checks, self.labels = map(np.concatenate, (counts, checks, labels))

    def hold(self, voting: int) -> Voting:
        """Hold one voting: the same as `voting.hold`."""
        if self.loop:
            return hold(self.ensemble, self.scheme, self.meter, voting=voting)
        order = order_of(self.ensemble, voting)
        outcome = Confident(mechanism=self.scheme.mechanism).ask(
            self.counts[order], queries=[str(place) for place in order.tolist()],
            noise=SeededNoise(seed_of(self.ensemble, voting)), total_weight=self.scheme.panel.total_weight,
        )  # fmt: skip
        stop, spent = self._stop(order, outcome.answered)
        asked = order[:stop]
        return Voting(
            asked=asked,
            labels=np.where(outcome.answered, outcome.labels, -1)[:stop],
            truth=self.ensemble.truth[asked],
            spent=spent,
            stopped_by="pool" if stop == len(order) else "budget",
        )

    def _stop(self, order: NDArray[np.int64], answered: NDArray[np.bool_]) -> tuple[int, dict[str, float]]:
        """Return how many queries are asked before one that could overspend somebody, and ε by group then."""
        panel = self.scheme.panel
        epsilon, delta = panel.budgets
        limit = self.meter.limit(epsilon, delta) * (1 - _MARGIN)
        spent = np.zeros((len(panel.groups), self.meter.width))
        stop = len(order)
        for start in range(0, len(order), _PART):
            rows = order[start : start + _PART]
            checks, labels = self.checks[rows], self.labels[rows]
            paid = checks + answered[start : start + _PART, None, None] * labels
            running = spent + np.cumsum(paid, axis=0)
            broke = ~np.any(running - paid + checks + labels <= limit, axis=2).all(axis=1)
            if broke.any():
                first = int(np.argmax(broke))
                stop, spent = start + first, running[first - 1] if first else spent
                break
            spent = running[-1]
        found, _ = self.meter.epsilon(spent, delta)
        return stop, {group.id: float(found[place]) for place, group in enumerate(panel.groups)}
