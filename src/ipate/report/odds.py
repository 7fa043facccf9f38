"""What an attacker can learn: the best test of whether somebody's data was used, as rates and in sentences.

The rates follow from what a person is promised, never from a private cost; where nothing is promised there are none.

Sentences on what was spent: how labelling ended, how evenly budgets were used, and what is left.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ipate.accounting.bounds import find_bound
from ipate.release.description import DesignFacts, GroupFacts
from ipate.release.results import GroupResult
from ipate.report.claims import promised_epsilon
from ipate.report.facts import Facts, Outcome
from ipate.report.formats import up, used

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


CARRIED = (
    "Before: what earlier runs on the same ledger had spent of the budget, for the worst-off of a group. The cost is "
    "everything that was spent, counted together, so the columns need not add up."
)

DIFFERENCE = (
    "This is the budget less the cost; releases are counted together, and their ε do not simply add up or subtract, so "
    "a further run may be able to spend more than this."
)


def ending(facts: Facts, outcome: Outcome) -> str:
    """Describe how labelling ended."""
    if outcome.ballots is not None:
        weigh = (
            f"All ballots together weigh {outcome.ballots.weight:,.1f} times the noise of a label, "
            f"{outcome.ballots.per_class:,.1f} times per class; below 12 per class many labels are wrong. "
        )
        if facts.has_small:  # with the weight of each ballot and the number of people it would tell the groups' sizes
            weigh = ""
        return (
            f"All {outcome.n_labels:,} points of the pool got a label from one histogram: the pool's space is cut "
            f"{outcome.ballots.partitions} times into {outcome.ballots.cells:,} cells. {weigh}What was not needed of a "
            "budget stays in the account."
        )
    asked = f"{outcome.n_queries:,} of {facts.n_pool:,} points were asked about and {outcome.n_labels:,} got a label"
    if outcome.reused_queries:
        asked += (
            f" ({outcome.reused_queries:,} of these points and {outcome.reused_labels:,} of the labels were paid by "
            "earlier runs, and given again for nothing)"
        )
    if outcome.reinforced:
        asked += (
            f"; {outcome.reinforced:,} more kept the class of a student that had learnt from released labels, because "
            "a noisy check found no clear contradiction by the votes: these were charged for the check alone"
        )
    out = [spent.id for spent in outcome.groups if spent.labels_until_exhausted is not None]
    if facts.parameters.design is not None:
        return asked + _after_test(facts.parameters.design, outcome)
    if outcome.ended == "budget":
        whose = f" of {listed(out)}" if out else ""
        if facts.parameters.stop == "drop":
            return f"{asked}. Groups left when their budget was used up; labelling ended when nobody was left to vote."
        return f"{asked}. Labelling stopped before the next query, which could have passed the budget{whose}."
    if outcome.ended == "count":
        return f"{asked}. Labelling stopped at the number of labels fixed beforehand ({facts.parameters.max_labels:,})."
    spent = f"nobody's budget was, but for {listed(out)}, who had left by then" if out else "nobody's budget was"
    why = f"Labelling ended because the pool was used up; {spent}"
    if facts.parameters.n_queries is not None:
        why = "These are all the points that were chosen, from the pool and from labels that had been released"
    return f"{asked}. {why}."


def _after_test(test: DesignFacts, outcome: Outcome) -> str:
    """Describe how a tested release ended: all queries of the design, nothing, or the fallback."""
    if outcome.ended == "failed":
        return ": the private test was not passed, so nothing but its answer was released."
    if outcome.passed:
        return f". The private test was passed, and the design's list of {test.queries:,} points was asked."
    return (
        ". The private test was not passed; these labels were paid for by the part of the budgets that had been kept "
        "for that case."
    )


def balance(spent: Sequence[GroupResult]) -> str:
    """Describe how evenly the groups' budgets were used."""
    shares = [(paid.used, paid.id) for paid in spent]
    (least, thrifty), (most, busy) = min(shares), max(shares)
    low, high = used(least), used(most)
    if len(shares) == 1:
        return f"{high} of the budget was used."
    if most == 0:
        return "No budget was used."
    if most - least < 0.02:
        return (
            f"The groups used {low if low == high else f'between {low} and {high}'} of their budgets: evenly, so that "
            "nobody's allowance was left unused because of another's."
        )
    return (
        f"Group {busy} used {high} of its budget and group {thrifty} {low}: what the latter allowed beyond that was "
        "not used."
    )


def listed(names: Sequence[str]) -> str:
    """Return names as a phrase; of many, only the first ones."""
    shown = list(names[:6]) + ([f"{len(names) - 6} more"] if len(names) > 6 else [])
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
