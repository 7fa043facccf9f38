"""Costs of a query's check and label for every account, under any bound."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ipate.accounting.bounds import BOUNDS, Meter, Voters, best_order, find_bound
from ipate.errors import InputError
from ipate.labelling.aggregators import Mechanism
from ipate.votes.panel import Panel, Tally

Floats = NDArray[np.float64]


def check_supported(meter: Meter, mechanism: Mechanism) -> None:
    """Refuse a bound that has no cost for this noise."""
    if mechanism.noise not in meter.definition.noises:
        able = [name for name in tuple(BOUNDS) if mechanism.noise in find_bound(name).noises]
        raise InputError(f"bound is {meter.bound!r}: {mechanism.noise} noise (LNMax) is accounted by {', '.join(able)}")


def check_costs(meter: Meter, mechanism: Mechanism, panel: Panel, tally: Tally, maxima: Floats) -> Floats:
    """Return the cost of every query's check for every account: broadcasts to (B, accounts, width).

    `maxima` (B,) is what the check compares with the threshold, before noise.
    """
    if mechanism.check_sigma is None or mechanism.threshold is None:
        return np.zeros((1, len(panel.account_ids), meter.width))
    return meter.definition.check_cost(
        meter.orders,
        maxima,
        sensitivity=tally.sensitivity,
        check_sigma=mechanism.check_sigma,
        threshold=mechanism.threshold,
    )


def label_costs(meter: Meter, mechanism: Mechanism, panel: Panel, tally: Tally, *, abstain: bool = False) -> Floats:
    """Return the cost of every query's label for every account: broadcasts to (B, accounts, width).

    With `abstain` a teacher may vote for no class, which adds neighbouring votes under exact.
    """
    check_supported(meter, mechanism)
    return meter.definition.label_cost(
        meter.orders,
        tally.counts,
        sensitivity=tally.sensitivity,
        sigma=mechanism.sigma,
        noise=mechanism.noise,
        voters=_votes_by_group(panel, tally, abstain) if meter.definition.needs_votes_by_group else None,
    )


def _votes_by_group(panel: Panel, tally: Tally, abstain: bool) -> Voters:
    return Voters(
        voted=tally.voted,
        weights=tuple(weight for _, weight, _ in panel.blocs),
        blocs=tuple(panel.blocs_of(position) for position in range(len(panel.groups))),
        abstain=abstain,
        votes=tally.votes,
        present=tally.present,
        scale=tally.scale,
    )


def fixed_orders(panel: Panel, meter: Meter, mechanism: Mechanism) -> tuple[float, ...] | None:
    """Return the Rényi order that every account fixes beforehand, from its budget and a query's worst case.

    None for a bound without orders, and for a data-dependent bound, which has no publishable filter.
    """
    if not meter.fixes_order:
        return None
    orders = []
    for group in panel.groups:
        check, label = _worst_costs(meter, mechanism, group.sensitivity)
        orders.append(best_order(meter, epsilon=group.epsilon, delta=group.delta, label=label, check=check))
    return tuple(orders[int(position)] for position in panel.account_group)


def fixed_costs(meter: Meter, mechanism: Mechanism, panel: Panel) -> tuple[Floats, Floats] | None:
    """Return the costs of one check and one label, (accounts, width) each, that hold for all votes.

    None where costs depend on the votes or on which teachers take part.
    """
    if panel.rotating or not meter.data_independent:
        return None
    return _worst_costs(meter, mechanism, panel.own_sensitivities)


def _worst_costs(meter: Meter, mechanism: Mechanism, sensitivity: ArrayLike) -> tuple[Floats, Floats]:
    check_supported(meter, mechanism)
    return meter.worst_query(
        sensitivity=sensitivity, sigma=mechanism.sigma, check_sigma=mechanism.check_sigma, noise=mechanism.noise
    )
