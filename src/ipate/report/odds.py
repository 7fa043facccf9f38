"""What an attacker can learn: the best test of whether somebody's data was used, as rates and in sentences.

The rates follow from what a person is promised, never from a private cost; where nothing is promised there are none.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ipate.accounting.bounds import find_bound
from ipate.report.claims import promised_epsilon
from ipate.report.facts import Facts, GroupFacts
from ipate.report.formats import up

RATES = (0.01, 0.1)  # false positives
_GRID = (0.0, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, *(step / 20 for step in range(1, 20)), 0.97, 0.99, 1.0)
CURVE = tuple(sorted({*_GRID}))


@dataclass(frozen=True, kw_only=True)
class Odds:
    """The largest true positive rates of any test for one person's data, at the false positive rates `RATES`."""

    group: str
    epsilon: float  # what is promised
    delta: float
    powers: tuple[float, ...]


def power(bound: str, epsilon: float, delta: float, rates: Sequence[float] = RATES) -> tuple[float, ...]:
    """Return the largest true positive rates under a bound for somebody who is promised (ε, δ)."""
    found = find_bound(bound).best_power(list(rates), epsilon=epsilon, delta=delta)
    return tuple(found.tolist())


def odds(facts: Facts) -> tuple[Odds, ...]:
    """Return the odds of every group, in the order of the facts; empty where nothing is promised."""
    return tuple(
        Odds(
            group=group.id,
            epsilon=epsilon,
            delta=group.budget.delta,
            powers=power(facts.parameters.bound, epsilon, group.budget.delta),
        )
        for group in facts.groups
        if (epsilon := promised_epsilon(facts, group)) is not None
    )


def curve(facts: Facts, group: GroupFacts) -> tuple[float, ...]:
    """Return the largest true positive rates at the false positive rates `CURVE`; empty where nothing is promised."""
    epsilon = promised_epsilon(facts, group)
    if epsilon is None:
        return ()
    return power(facts.parameters.bound, epsilon, group.budget.delta, CURVE)


def explanation(facts: Facts) -> tuple[str, ...]:
    """Return sentences on what the odds mean and what they rest on."""
    if not facts.publishable:
        return ("Nothing is promised, so no limit on what an attacker can learn is stated.",)
    found = [
        (
            "Somebody sees everything that is released, knows all other people's data and every setting, and wants to "
            "find out whether one person's data was used, or which of two possible values it had. They set a limit on "
            "false alarms (false positives: people whose data was not used, and who are accused of it) and try to "
            "recognise as many as possible whose data was used (true positives)."
        ),
        (
            "No test, however clever, does better than the table says. Without any release such a test recognises as "
            "many as it falsely accuses."
        ),
    ]
    found.append(
        "At a false positive rate α the rate of true positives is at most "
        f"{find_bound(facts.parameters.bound).trade_off}. It follows from what is promised to each group, not from "
        "what was spent."
    )
    return tuple(found)


def share(power: float) -> str:
    """Format a rate of true positives, rounded up; close to 1 it is shown as almost all."""
    return "over 99.9%" if power > 0.999 else f"{up(100 * power)}%"


def in_words(powers: Sequence[float]) -> str:
    """Return sentences for one person on the best attack at the rates `RATES`."""
    first, second = (up(1000 * share) for share in powers)
    low, high = (round(1000 * rate) for rate in RATES)
    return (
        "Suppose somebody tries to find out from everything that was released whose data was used. If they accept to "
        f"be wrong about {low} in 1,000 people whose data was not used, they recognise at most {first} in 1,000 people "
        f"who chose what you chose. If they accept to be wrong about {high} in 1,000, they recognise at most {second}."
    )
