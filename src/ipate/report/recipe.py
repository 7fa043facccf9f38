"""A short Python program with the run's numbers that recomputes the costs without ipate."""

from ipate.accounting.bounds import find_bound
from ipate.allocation import find_variant
from ipate.report.facts import Facts, Outcome

_GDP = """\
from math import exp, sqrt
from scipy.optimize import brentq
from scipy.stats import norm

{numbers}
def cost(moved, delta{before}):
    mu = sqrt(moved**2 * ({formula}){plus})
    def excess(epsilon):  # Gaussian differential privacy: Dong, Roth and Su (2022)
        return norm.cdf(mu / 2 - epsilon / mu) - exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - delta
    return brentq(excess, 0, 500, xtol=1e-12)

{groups}
costs = {{group: cost(*values) for group, values in groups.items()}}
print(costs)
"""
_LOOSE = """\
from math import log

{numbers}
def cost(moved, delta, order{before}):
    rdp = order * moved**2 * ({formula}){plus}
    return max(0, rdp + {conversion})

{groups}
costs = {{group: cost(*values) for group, values in groups.items()}}
print(costs)
"""


def recipe(facts: Facts) -> str | None:
    """Return a program that computes releasable costs from public figures; None if no short one exists."""
    outcome, used = facts.outcome, facts.parameters
    bound = find_bound(used.bound)
    simple = not find_variant(used.variant).takes_turns and used.stop != "drop"
    if outcome is None or not facts.publishable or not simple or not outcome.n_queries or bound.recipe is None:
        return None
    numbers = _numbers(facts, outcome)
    earlier = {"before": ", before", "plus": " + before"} if outcome.carried else {"before": "", "plus": ""}
    formula, check = bound.recipe
    if used.check_sigma is not None:
        formula += f" + {check}"
    if not bound.has_orders:
        return _GDP.format(numbers=numbers, formula=formula, groups=_table(facts, outcome, ()), **earlier)
    conversion = "log(1 / delta) / (order - 1)"
    if used.conversion == "improved":
        conversion = "log(1 - 1 / order) - log(order * delta) / (order - 1)"
    table = _table(facts, outcome, used.orders)
    return _LOOSE.format(numbers=numbers, formula=formula, conversion=conversion, groups=table, **earlier)


def _numbers(facts: Facts, outcome: Outcome) -> str:
    used = facts.parameters
    queries, labels = outcome.n_queries - outcome.reused_queries, outcome.n_labels - outcome.reused_labels
    without = ", without those of earlier runs" if outcome.reused_queries else ""
    lines = [f"queries, labels = {queries}, {labels}  # rows of labels.csv; those answered{without}"]
    lines.append(f"sigma = {used.sigma!r}")
    if used.check_sigma is not None:
        lines.append(f"check_sigma = {used.check_sigma!r}")
    return "\n".join(lines) + "\n"


def _table(facts: Facts, outcome: Outcome, orders: tuple[tuple[str, float], ...]) -> str:
    by_group = dict(orders)
    unit = "cost at that order" if orders else "μ²"
    lines = ["groups = {  # the most that one person moves, δ" + (", Rényi order" if orders else "")]
    lines[0] += f", {unit} of earlier runs" if outcome.carried else ""
    for group in facts.groups:
        extra = f", {by_group[group.id]!r}" if orders else ""
        extra += f", {outcome.opening.get(group.id, 0.0)!r}" if outcome.carried else ""
        lines.append(f"    {group.id!r}: ({group.account.sensitivity!r}, {group.budget.delta!r}{extra}),")
    return "\n".join([*lines, "}"])


def ways_to_check(facts: Facts) -> tuple[str, ...]:
    """Return sentences on how a reader can check the report."""
    if facts.outcome is None:
        return ("There is no figure to check. A run with secret noise and a bound that holds for all votes has one.",)
    found = ["This report reads every charge from the run's ledger; the costs are the sums of these charges."]
    if facts.guarantee.kind == "releasable":
        found.append(
            "The costs follow from public figures: count the rows of labels.csv (queries) and those that were answered "
            "(labels), and take noise, weights and δ from the tables of this report."
            + (" What earlier runs had spent is added." if facts.outcome.carried else "")
        )
    if facts.design is not None:
        found = [
            "The budgets were charged as a whole, before the test: nothing has to be added up.",
            (
                "The tables of the test are in the public file design.json. Reading it with "
                "ipate design --check verifies every condition that the promise rests on, whoever wrote the file."
            ),
        ]
    elif recipe(facts) is not None:
        found.append("The program below does that without ipate.")
    elif facts.guarantee.kind == "releasable":
        found.append("The function ipate.account_for computes them too; under this bound any votes will do.")
    else:
        found.append("The function ipate.account_for computes them too, from the private votes.")
    if facts.ledger_head is not None:
        found.append(
            "The run's ledger holds every charge in a chain of hashes. Its head, below among the parameters, shows its "
            "holder whether a copy is the one that this report was made from, or a later one."
        )
    return tuple(found)
