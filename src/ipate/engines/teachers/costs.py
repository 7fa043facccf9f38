"""Costs of a query's check and label for every account, under any bound."""

import numpy as np
from numpy.typing import NDArray

from ipate._types import Floats
from ipate.accounting.bounds import BOUNDS, Meter, Voters, best_order, find_bound
from ipate.engines.teachers.aggregators import Mechanism
from ipate.engines.teachers.panel import Panel, Tally
from ipate.engines.teachers.votes import Votes, take_columns
from ipate.errors import InputError


def check_supported(meter: Meter, mechanism: Mechanism) -> None:
    """Refuse a bound that has no cost for this noise, or for the noisy counts that the mechanism releases."""
    if mechanism.noise not in meter.definition.noises:
        able = [name for name in tuple(BOUNDS) if mechanism.noise in find_bound(name).noises]
        open_ = ", ".join(name for name in able if find_bound(name).data_independent)
        raise InputError(
            f"bound is {meter.bound!r}: {mechanism.noise} noise (LNMax) is accounted by {', '.join(able)}; of these, "
            f"{open_} may be published"
        )
    if mechanism.counts and not meter.definition.releases_counts:
        able = [name for name in tuple(BOUNDS) if find_bound(name).releases_counts]
        raise InputError(
            f"bound is {meter.bound!r}: noisy counts are released under {', '.join(able)} alone, where a label costs "
            "what the whole noisy vector costs; a price of the label alone does not cover them"
        )


def tally_queries(votes: Votes, panel: Panel, meter: Meter, where: slice | NDArray[np.int64]) -> Tally:
    """Count the votes on some queries, by bloc only where the bound needs it."""
    present = None if votes.participation is None else np.asarray(votes.participation[:, where])
    own = take_columns(votes.votes, where)
    return panel.tally(own, votes.n_classes, present, blocs=meter.definition.needs_votes_by_group)


def check_costs(meter: Meter, mechanism: Mechanism, panel: Panel, tally: Tally, maxima: Floats) -> Floats:
    """Return the costs of the checks of `maxima` (B,), before noise: broadcasts to (B, accounts, width)."""
    sigma, threshold = mechanism.check_sigma, mechanism.threshold
    if sigma is None or threshold is None:
        return np.zeros((1, len(panel.account_ids), meter.width))
    return meter.definition.check_cost(
        meter.orders, maxima, sensitivity=tally.sensitivity, check_sigma=sigma, threshold=threshold
    )


def label_costs(meter: Meter, mechanism: Mechanism, panel: Panel, tally: Tally, *, abstain: bool = False) -> Floats:
    """Return the costs of the labels of B queries: broadcasts to (B, accounts, width).

    With `abstain` a teacher may vote for no class, which adds neighbouring votes under exact.
    """
    check_supported(meter, mechanism)
    sigma, noise, voters = mechanism.sigma, mechanism.noise, None
    if mechanism.counts:
        vector = meter.vector_cost(sensitivity=tally.sensitivity, sigma=sigma)
        return vector if vector.ndim == 3 else vector[None]
    if meter.definition.needs_votes_by_group:
        voters = Voters(
            voted=tally.voted,
            weights=tuple(weight for _, weight, _ in panel.blocs),
            blocs=tuple(panel.blocs_of(position) for position in range(len(panel.groups))),
            abstain=abstain,
            votes=tally.votes,
            present=tally.present,
            scale=tally.scale,
        )
    return meter.definition.label_cost(
        meter.orders, tally.counts, sensitivity=tally.sensitivity, sigma=sigma, noise=noise, voters=voters
    )


def fixed_orders(panel: Panel, meter: Meter, mechanism: Mechanism) -> tuple[float, ...] | None:
    """Return the Rényi order that every account fixes beforehand, from its budget and a query's worst case.

    None for a bound without orders, and for a data-dependent bound, which has no publishable filter.
    """
    if not meter.fixes_order:
        return None
    orders = [
        best_order(meter, epsilon=group.epsilon, delta=group.delta, label=label, check=check)
        for group, check, label in zip(panel.groups, *_worst_costs(meter, mechanism, panel), strict=True)
    ]
    return tuple(orders[int(position)] for position in panel.account_group)


def fixed_costs(meter: Meter, mechanism: Mechanism, panel: Panel) -> tuple[Floats, Floats] | None:
    """Return the costs of one check and one label, (accounts, width) each, that hold for all votes.

    None where costs depend on the votes or on which teachers take part, and for a bound that prices queries itself.
    """
    if panel.rotating or not meter.data_independent or meter.definition.prices_queries:
        return None
    return _worst_costs(meter, mechanism, panel)


def _worst_costs(meter: Meter, mechanism: Mechanism, panel: Panel) -> tuple[Floats, Floats]:
    """Return what a check and a label cost every group at most, (groups, width) each."""
    check_supported(meter, mechanism)
    return meter.worst_query(
        sensitivity=panel.own_sensitivities,
        sigma=mechanism.sigma,
        check_sigma=mechanism.check_sigma,
        noise=mechanism.noise,
        counts=mechanism.counts,
    )
