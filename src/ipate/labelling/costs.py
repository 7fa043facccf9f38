"""What the releases of a query cost every account, under any bound."""

import numpy as np
from numpy.typing import NDArray

from ipate.accounting import exact, laplace, sup, tight
from ipate.accounting.calibration import best_order
from ipate.accounting.meter import Meter
from ipate.errors import InputError
from ipate.labelling.aggregators import Mechanism
from ipate.votes.panel import Panel, Tally

Floats = NDArray[np.float64]


def check_supported(meter: Meter, mechanism: Mechanism) -> None:
    """Refuse a bound that does not exist for this noise: LNMax has loose, gdp and tight."""
    if mechanism.noise == "laplace" and meter.bound not in ("loose", "gdp", "tight"):
        raise InputError(f"bound is {meter.bound!r}: LNMax is accounted by loose, gdp or tight")


def check_costs(meter: Meter, mechanism: Mechanism, panel: Panel, tally: Tally, maxima: Floats) -> Floats:
    """Return the cost of every query's check for every account.

    Parameters
    ----------
    maxima : array of shape (B,)
        What the check compares with the threshold, before noise.

    Returns
    -------
    array that broadcasts to (B, accounts, width)
    """
    delta = panel.sensitivities(tally)
    if mechanism.check_sigma is None or mechanism.threshold is None:
        return np.zeros((1, len(panel.account_ids), meter.width))
    if meter.bound != "exact":
        worst = meter.worst_check(sensitivity=delta, check_sigma=mechanism.check_sigma)
        return worst if worst.ndim == 3 else worst[None]
    columns = delta if delta.ndim == 2 else np.broadcast_to(delta, (len(maxima), delta.size))
    cost = np.empty((*columns.shape, meter.width))
    known: dict[bytes, int] = {}
    for index in range(columns.shape[1]):
        key = columns[:, index].tobytes()
        if key in known:  # accounts with the same sensitivities pay the same
            cost[:, index] = cost[:, known[key]]
            continue
        known[key] = index
        cost[:, index] = exact.check_rdp(
            maxima,
            meter.orders,
            sensitivity=columns[:, index],
            check_sigma=mechanism.check_sigma,
            threshold=mechanism.threshold,
        )
    return cost


def label_costs(meter: Meter, mechanism: Mechanism, panel: Panel, tally: Tally, *, abstain: bool = False) -> Floats:
    """Return what every query's label would cost every account: broadcasts to (B, accounts, width).

    `abstain` says that a teacher may also vote for no class, which adds such neighbours to exact.
    """
    check_supported(meter, mechanism)
    delta = panel.sensitivities(tally)
    if mechanism.noise == "laplace":
        return _laplace_costs(meter, mechanism, tally, delta)
    if meter.data_independent:
        worst = meter.worst_label(sensitivity=delta, sigma=mechanism.sigma)
        return worst if worst.ndim == 3 else worst[None]
    if meter.bound == "tight":
        return tight.label_rdp(tally.counts, meter.orders, sensitivity=delta, sigma=mechanism.sigma)
    if tally.present is not None and tally.scale is not None:
        return _exact_rotating(meter, mechanism, tally, abstain)
    return _exact_groups(meter, mechanism, panel, tally, abstain)


def fixed_orders(panel: Panel, meter: Meter, mechanism: Mechanism) -> tuple[float, ...] | None:
    """Return the Rényi order that every account fixes beforehand, from its budget and a query's worst case.

    A filter that may be released needs that; gdp has no orders and data-dependent bounds no such filter,
    so for them it is None.
    """
    if meter.whole or meter.bound == "gdp" or not meter.data_independent:
        return None
    orders = []
    for group in panel.groups:
        (check,), (label,) = _worst_costs(meter, mechanism, Panel(groups=(group,), weights=np.zeros(1)))
        orders.append(best_order(meter, epsilon=group.epsilon, delta=group.delta, label=label, check=check))
    return tuple(orders[int(position)] for position in panel.account_group)


def fixed_costs(meter: Meter, mechanism: Mechanism, panel: Panel) -> tuple[Floats, Floats] | None:
    """Return what every check and every label costs, (accounts, width) each, whatever the votes.

    None where that depends on the votes, or on who takes part.
    """
    if panel.rotating or not meter.data_independent:
        return None
    return _worst_costs(meter, mechanism, panel)


def _worst_costs(meter: Meter, mechanism: Mechanism, panel: Panel) -> tuple[Floats, Floats]:
    """Costs of a check and of a label under a bound that does not look at votes: here there are none."""
    nobody = Tally(counts=np.zeros((1, 2)), voted=np.zeros((0, 1, 3), bool), votes=np.zeros((0, 1), np.int64))
    check = check_costs(meter, mechanism, panel, nobody, np.zeros(1))
    return check[0], label_costs(meter, mechanism, panel, nobody)[0]


def _laplace_costs(meter: Meter, mechanism: Mechanism, tally: Tally, delta: Floats) -> Floats:
    if meter.bound == "tight":
        return laplace.tight_label_rdp(tally.counts, meter.orders, sensitivity=delta, scale=mechanism.sigma)
    if meter.bound == "gdp":
        worst = laplace.label_mu2(sensitivity=delta, scale=mechanism.sigma)[..., None]
    else:
        worst = laplace.label_rdp(meter.orders, sensitivity=delta, scale=mechanism.sigma)
    return worst if worst.ndim == 3 else worst[None]


def _exact_groups(meter: Meter, mechanism: Mechanism, panel: Panel, tally: Tally, abstain: bool) -> Floats:
    """Weighting where a person moves one teacher's vote, else upsampling: any votes up to Δ move."""
    cost = np.zeros((len(tally.counts), len(panel.groups), meter.width))
    width = tally.counts.shape[1] + abstain
    by_weight: dict[float, list[tuple[int, int]]] = {}
    for position, group in enumerate(panel.groups):
        blocs = panel.blocs_of(position)
        if blocs is None:
            own = exact.upsampled_label_rdp(
                tally.counts, meter.orders, copies=group.sensitivity, sigma=mechanism.sigma, abstain=abstain
            )
            worst = sup.label_rdp(meter.orders, sensitivity=group.sensitivity, sigma=mechanism.sigma)
            cost[:, position] = np.minimum(own, worst)  # the tangent bound can pass the worst over all votes
        for index in blocs or ():
            by_weight.setdefault(panel.blocs[index][1], []).append((position, index))
    for weight, payers in by_weight.items():
        voted = tally.voted[[index for _, index in payers], :, :width]
        by_source = exact.label_rdp_by_source(
            tally.counts,
            meter.orders,
            weight=weight,
            sigma=mechanism.sigma,
            sources=voted.any(axis=0),
            abstain=abstain,
        )
        for (position, _), own_votes in zip(payers, voted, strict=True):
            mine = exact.group_label_rdp(by_source, own_votes)
            cost[:, position] = np.maximum(cost[:, position], mine)
    return cost


def _exact_rotating(meter: Meter, mechanism: Mechanism, tally: Tally, abstain: bool) -> Floats:
    """Vanishing: a teacher's account pays for moves of that teacher's own vote, when it took part."""
    if tally.present is None or tally.scale is None:
        raise InputError("teachers take turns only where the votes say who took part")
    width = tally.counts.shape[1] + abstain
    by_source = exact.label_rdp_by_source(
        tally.counts,
        meter.orders,
        weight=tally.scale,
        sigma=mechanism.sigma,
        sources=tally.voted[0, :, :width],
        abstain=abstain,
    )
    rows = np.arange(len(tally.counts))[:, None]
    cost = by_source[rows, tally.votes.T.astype(np.intp)]  # −1, an abstention, is the last source
    return np.asarray(np.where(tally.present.T[..., None], cost, 0.0))
