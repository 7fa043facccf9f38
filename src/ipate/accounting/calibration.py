"""How much a budget affords, and how much noise a plan needs; a calibrated run never overshoots.

Only data-independent bounds are calibrated: a plan is made before there are votes, from public
information alone.
"""

import numpy as np

from ipate.accounting._checks import Floats, check_positive
from ipate.accounting.meter import Meter
from ipate.errors import InputError

__all__ = ["best_order", "queries_afforded", "sigma_for"]


def queries_afforded(
    meter: Meter,
    *,
    epsilon: float,
    delta: float,
    sensitivity: float,
    sigma: float,
    check_sigma: float | None = None,
    answer_rate: float = 1.0,
) -> int:
    """Return how many queries (ε, δ) pays for when a given share of them is answered.

    Every query pays its check, the answered ones their label too, and a query is asked only if
    both could be paid: the last one is counted so.

    Parameters
    ----------
    meter : Meter
        A data-independent bound.
    answer_rate : float
        The share of queries that end with a label, from 0 to 1.
    """
    _require_data_independent(meter)
    if not 0 <= answer_rate <= 1:
        raise InputError(f"answer_rate is {answer_rate}: it must lie between 0 and 1")
    limit = meter.limit(epsilon, delta)
    label = meter.worst_label(sensitivity=sensitivity, sigma=sigma)
    check = np.zeros_like(label)
    if check_sigma is not None:
        check = meter.worst_check(sensitivity=sensitivity, check_sigma=check_sigma)
    return max(_queries(*costs, answer_rate) for costs in zip(limit, check, label, strict=True))


def _queries(limit: float, check: float, label: float, rate: float) -> int:
    """Queries one order affords: the largest n whose last query could still be answered."""
    if limit < check + label:
        return 0
    per_query = check + rate * label
    if per_query == 0:
        raise InputError("sensitivity is 0: such a person pays nothing, and any number of queries is afforded")
    n = int((limit - check - label) / per_query) + 1
    while n > 0 and not _fits(n, limit, check, label, rate):
        n -= 1
    while _fits(n + 1, limit, check, label, rate):
        n += 1
    return n


def _fits(n: int, limit: float, check: float, label: float, rate: float) -> bool:
    """Whether n queries fit, of which the share `rate` is answered, and the last one too if it must."""
    return n * check + (int((n - 1) * rate) + 1) * label <= limit


def best_order(meter: Meter, *, epsilon: float, delta: float, label: Floats, check: Floats | None = None) -> float:
    """Return the Rényi order at which the budget pays for most queries.

    A filter that is to be released must fix its order beforehand, from public figures: the budget
    and the worst-case cost of a query (Feldman and Zrnic, "Individual privacy accounting via a
    Rényi filter", 2021, hold for one fixed order).
    """
    _require_data_independent(meter)
    if meter.bound == "gdp":
        raise InputError("bound is 'gdp': it has no Rényi order to choose")
    per_query = label if check is None else label + check
    with np.errstate(divide="ignore", invalid="ignore"):
        afforded = np.where(per_query > 0, meter.limit(epsilon, delta) / per_query, np.inf)
    return float(meter.orders[int(np.argmax(afforded))])


def sigma_for(
    meter: Meter,
    *,
    epsilon: float,
    delta: float,
    sensitivity: float,
    labels: int,
    queries: int | None = None,
    check_ratio: float | None = None,
) -> float:
    """Return the smallest σ at which the budget pays for `labels` labels out of `queries` queries.

    Parameters
    ----------
    labels, queries : int
        How many labels to give, and how many queries to ask for them (as many unless said).
    check_ratio : float, optional
        σ_T/σ; without it there is no check.

    Returns
    -------
    float
        σ, rounded up: a run with this noise stays within (ε, δ).
    """
    _require_data_independent(meter)
    asked = labels if queries is None else queries
    if labels < 0 or asked < max(labels, 1):
        raise InputError(f"labels is {labels} and queries {asked}: ask at least as many queries as labels")
    check_positive("sensitivity", sensitivity)
    ratio = None if check_ratio is None else check_positive("check_ratio", check_ratio)
    limit = meter.limit(epsilon, delta)

    def fits(sigma: float) -> bool:
        cost = labels * meter.worst_label(sensitivity=sensitivity, sigma=sigma)
        if ratio is not None:
            cost = cost + asked * meter.worst_check(sensitivity=sensitivity, check_sigma=ratio * sigma)
        return bool(np.any(cost <= limit))

    if labels == 0 and ratio is None:
        raise InputError("labels is 0 and there is no check: nothing is released, so no noise is needed")
    high = sensitivity
    while not fits(high):
        high *= 2
        if high > 1e12 * sensitivity:
            raise InputError(f"epsilon is {epsilon} at delta {delta}: no noise makes it pay for {labels} labels")
    low = high / 2 if high > sensitivity else 0.0
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def _require_data_independent(meter: Meter) -> None:
    if not meter.data_independent:
        raise InputError(f"bound is {meter.bound!r}: plans are made without votes, by loose, gdp or sup")
