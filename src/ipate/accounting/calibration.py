"""How much a budget affords, and how much noise a plan needs; a calibrated run never overshoots.

Only data-independent bounds are calibrated: a plan is made before there are votes, from public
information alone.
"""

import numpy as np

from ipate.accounting.conversion import Floats
from ipate.accounting.meter import Meter
from ipate.errors import InputError


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


def _require_data_independent(meter: Meter) -> None:
    if not meter.data_independent:
        raise InputError(f"bound is {meter.bound!r}: plans are made without votes, by loose, gdp or sup")
