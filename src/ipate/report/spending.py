"""Sentences on what was spent: how labelling ended, how evenly budgets were used, and what is left."""

from collections.abc import Sequence

from ipate.labelling.results import GroupResult
from ipate.report.facts import DesignFacts, Facts, Outcome
from ipate.report.formats import used

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
