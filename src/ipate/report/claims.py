"""The sentences of a report that state a guarantee, or that there is none.

These are pure functions of the facts, and no other module of the report states a guarantee. The kind of guarantee is
decided by `ipate.release.results`; this module puts it into words.
"""

from collections.abc import Iterator

from ipate.accounting.bounds import find_bound
from ipate.people.budgets import strictest_first
from ipate.release.description import DesignFacts, GroupFacts, not_proven
from ipate.release.results import OVERLAP, SEEDED
from ipate.report.facts import Facts
from ipate.report.formats import example, factor_of, people_count, percent, plain, small, up, weakness

_MOST = 12  # groups whose promise is spelt out; a table holds the others


def marks(facts: Facts) -> tuple[str, ...]:
    """Return the marks for every page: a private report, and why a run protects nobody."""
    private = ("PRIVATE: for the data owner only, do not publish",) if facts.audience == "private" else ()
    return (*private, *facts.guarantee.reasons)


def headline(facts: Facts) -> str:
    """Return the result in one line."""
    if facts.guarantee.kind == "none":
        return f"No promise: {nothing(facts)}"
    if facts.publishable:
        if facts.unprotected and facts.n_people is not None:
            return (
                f"{facts.n_people:,} of {facts.n_people + facts.unprotected:,} people are protected, each with their "
                f"own budget; {facts.unprotected:,} were used as public or test data without protection"
            )
        return f"Every person keeps an individual differential privacy guarantee{facts.people_counted}"
    return "No differential privacy guarantee can be published for this run"


def summary(facts: Facts) -> tuple[str, ...]:
    """Return the general guarantee: what is protected, and what to rely on."""
    if facts.guarantee.kind == "none":
        return tuple(_nothing(facts))
    if not facts.publishable:
        return (withheld(facts),)
    found = [
        (
            "Two data sets are compared that differ in one person's data, replaced by any other data or by nothing. "
            "The probabilities of everything that comes out differ by at most a factor e^ε, plus δ, with the ε that "
            "was set for each person's group beforehand. This holds for all data and for anybody who looks, whatever "
            "else they know."
        )
    ]
    if (design := facts.parameters.design) is not None:
        found += _tested(design, None if facts.outcome is None else facts.outcome.passed)
    elif facts.manner.charged:
        found.append(facts.manner.charged)
    elif facts.stopped_by == "fixed" and facts.parameters.check_sigma is not None:
        found.append(
            "The number of labels was fixed beforehand, but how many queries it took depended on noisy checks. So the "
            "promise to rely on is the budget; the cost shown is what was spent of it."
        )
    elif facts.stopped_by == "fixed":
        found.append("The number of labels was fixed beforehand, so the promise is the cost, at most the budget.")
    else:
        found.append(
            "Before every query it was tested, from public figures, that nobody could pass their budget. So the "
            "promise to rely on is the budget; the cost shown is what was spent of it."
        )
    if facts.outcome is not None and facts.outcome.carried:
        found.append(
            "Earlier runs had spent part of these people's budgets. Everything was charged to one ledger and is "
            "counted together: the budget holds for all of it."
        )
    return (*found, *([not_proven(facts.manner.outside)] if facts.manner.outside else []))


def nothing(facts: Facts) -> str:
    """Return in a few words why nothing is promised."""
    why = ["the noise of this run was seeded"] if facts.guarantee.seeded else []
    why += ["private data was also used as public data"] if facts.guarantee.overlap else []
    return " and ".join(why)


def _nothing(facts: Facts) -> Iterator[str]:
    """Explain why nothing is promised, and what follows."""
    if facts.guarantee.seeded:
        yield (
            f"{SEEDED.capitalize()}. Whoever knows the seed can take the noise away and see the votes. "
            "Nothing in this report protects anybody; it serves to repeat and examine the run."
        )
    if facts.guarantee.overlap:
        yield (
            f"{OVERLAP.capitalize()}. Rows or people of the private data are also in the pool or the test data, which "
            "are used without protection. Nothing in this report protects anybody; it serves benchmarks."
        )
    if facts.audience == "public":
        yield (
            "So this report shows budgets, but no costs, no number of labels and no results, and the labels and the "
            "student should not be published."
        )


def _tested(test: DesignFacts, passed: bool | None) -> Iterator[str]:
    """Explain the private test and the meaning of its answer."""
    yield (
        "Before any label, one yes/no question was put to the private votes: do the teachers agree clearly enough on "
        f"these {test.queries:,} points for all labels to keep within everybody's budget, with room to spare? The "
        "answer was drawn with noise, so that one person's data hardly changes it, and it is the only thing that was "
        "learnt from the question. How close it was is not stored and not stated anywhere."
    )
    yield (
        "Everybody's whole budget was charged before the question was asked, whatever the answer would be. So the "
        "promise to rely on is the budget, for the answer, the labels and all that follows."
    )
    if passed is not None:
        said = "yes, so the labels were released" if passed else "no, so none of these labels was released"
        if not passed and test.fallback:
            said += "; a part of the budget that had been kept for this case paid for other labels"
        yield (
            f"The answer was {said}. Votes as clear as was supposed beforehand get a yes with a probability of "
            f"{percent(test.likely)}; less clear ones less often, and a no may be chance."
        )


def withheld(facts: Facts) -> str:
    """Explain why a run has no figure that may be published."""
    bound = facts.parameters.bound
    definition = find_bound(bound)
    if definition.whole:
        return (
            f"The labels of this run were tested and charged as a whole (bound {bound}), but an earlier run on the "
            "same ledger was charged by costs computed from private votes, and its answers may be among these labels. "
            "The outcome is private, and no guarantee is stated."
        )
    if definition.data_independent and facts.private_history:
        return (
            f"The costs (bound {bound}) hold for all votes, but an earlier run on the same ledger was charged by costs "
            "computed from private votes. What it left decides how many labels there are here, so that number may tell "
            "something about people's data. The costs are private, and no guarantee is stated."
        )
    if definition.data_independent:
        return (
            f"The costs (bound {bound}) hold for all votes, but something other than this account decided when to "
            "stop, and that may have depended on private votes. The costs are private, and no guarantee is stated."
        )
    why = (
        f"The costs of this run were computed from the private votes (bound {bound}). Such a cost is itself private: "
        "publishing it would tell something about people's data. "
    )
    if facts.audience == "public":
        return why + (
            "How many labels were given may depend on private votes too, because the costs could end the run. So this "
            "report shows budgets, but no costs, no number of labels and no results. Budgets are what people allowed; "
            "for this run they are not a guarantee. The labels and the student are not covered by a differential "
            "privacy guarantee either, and should not be published."
        )
    if facts.stopped_by == "fixed":
        return why + (
            "The number of labels was fixed beforehand, so the costs describe this data set alone. They are not a "
            "differential privacy guarantee."
        )
    return why + (
        "They also decided when to stop, so the number of labels depends on private votes. This is not a differential "
        "privacy guarantee; it serves comparison with the paper."
    )


def promised_epsilon(facts: Facts, group: GroupFacts) -> float | None:
    """Return the ε that a person may rely on, or None where nothing is promised.

    It is the budget, except where the number of labels was fixed beforehand and no check made the number of
    releases random: there it is the cost. A run of kind none promises nothing.
    """
    if not facts.publishable:
        return None
    parameters = facts.parameters
    counted = facts.stopped_by == "fixed" and parameters.design is None and parameters.check_sigma is None
    if not counted or facts.outcome is None:
        return group.budget.epsilon
    return min(group.budget.epsilon, next(spent.cost for spent in facts.outcome.groups if spent.id == group.id))


def promise(facts: Facts, group: GroupFacts) -> str:
    """Return the guarantee for one person of a group."""
    who = person_of(group.id, levels=facts.levels)
    epsilon = promised_epsilon(facts, group)
    if epsilon is None:
        allowed = f"allowed ε = {plain(group.budget.epsilon)} at δ = {small(group.budget.delta)}"
        if facts.guarantee.kind == "none":
            return f"{who} {allowed} and is promised nothing: {nothing(facts)}."
        return f"{who} {allowed}. No guarantee is stated for this run."
    cost = None if epsilon == group.budget.epsilon else up(epsilon, 4)
    return assured(who, epsilon, group.budget.delta, shown=cost)


def person_of(group: str, *, levels: bool) -> str:
    """Return the words for a person of a group, which is a consent level or has a number that people chose."""
    return f"A person at level {group}" if levels else f"A person of group {group}"


def assured(who: str, epsilon: float, delta: float, *, shown: str | None = None) -> str:
    """Return the meaning of (ε, δ) for one person in plain words; `shown` overrides the text for ε, as it was set."""
    sentence = (
        f"{who}: whatever anyone learns from the student, its labels or anything made of them, their own data changes "
        f"the probability of any outcome by at most a factor {factor_of(epsilon)} (ε = {shown or plain(epsilon)}), "
        f"except for a chance of δ = {small(delta)}. {example(epsilon, delta)}"
    )
    return sentence + weakness(epsilon)


def promises(facts: Facts) -> tuple[tuple[str, str], ...]:
    """Return the guarantees by group, strictest first; of many groups, only the first ones."""
    return tuple((group.id, promise(facts, group)) for group in strictest_first(facts.groups)[:_MOST])


def covered(facts: Facts) -> tuple[str, ...]:
    """Return what the guarantee covers; empty where there is none."""
    if not facts.publishable:
        return ()
    who = f"Everybody whose data {facts.manner.took_part}{facts.people_counted}"
    found = [
        f"{who}, each with the budget of their own group. {facts.unit}",
        facts.manner.released,
        "The student, its predictions for rows that are not private, and whatever is computed from them, now or later.",
        "The figures of the public report: they follow from budgets, parameters and released answers alone.",
    ]
    found += [
        f"{people_count(facts.count(merge.people)).capitalize()} people of group {merge.group} count with the stricter "
        f"group {merge.into}: they are protected at least as well as they asked."
        for merge in facts.merged
    ]
    if facts.withdrawn:
        who = "1 person" if facts.withdrawn == 1 else f"{facts.withdrawn:,} people"
        found.append(f"{who} withdrew: {facts.manner.withdrew}")
    return tuple(found)


def public_facts(facts: Facts) -> tuple[str, ...]:
    """Return what the guarantee takes as public and does not protect."""
    return (
        f"How many people there are{facts.people_counted}, and how many in each group.",
        (
            "The groups' budgets, and which budget a person has. Nothing here protects the choice of a budget: where "
            "it is itself sensitive, the table of groups must not be published. A group of fewer than "
            f"{facts.min_group_size} people is not counted, and beside it no other group is."
        ),
        facts.manner.public_people,
        f"The set of {len(facts.classes)} classes.",
        f"The {facts.n_pool:,} points that could be asked about (the pool), and their order.",
        facts.manner.public_settings,
    )


def not_covered(facts: Facts) -> tuple[str, ...]:
    """Return what the guarantee does not cover."""
    found = [
        "Several people at once: for a secret that people share, their ε add up.",
        _unprotected(facts.unprotected),
        "What would be true of a person whether or not their data was used, such as a medical fact about everybody.",
        "Other releases about the same people: what was not charged to this run's ledger adds to these costs.",
        "A choice of parameters by somebody who looked at private data or votes.",
        "Whatever lies in the run's private folder (votes, partition by name, comparisons), if it gets out.",
        "Errors in programs and computers, and what can be learnt from running times or access to the machine.",
        "What the promise assumes and no program can check: see docs/sharp-edges.md in ipate's documentation.",
    ]
    if facts.replaces:
        found.insert(
            0,
            f"What was charged to another ledger: this run began a new one (--fresh-ledger) although the ledger "
            f"{', '.join(facts.replaces)} knows people of this run. Their budgets there and here add up.",
        )
    if not facts.publishable:
        why = "nothing is promised" if facts.guarantee.kind == "none" else "no guarantee is stated"
        found.insert(
            0, f"Everybody whose data {facts.manner.took_part}{facts.people_counted}: {why}, so nobody is protected."
        )
    if facts.owner is not None and facts.owner.comparison is not None:
        found.append(
            "The comparison with other ways: it used the private data a second time, and part of it without noise."
        )
    return tuple(found)


def agreed(facts: Facts) -> tuple[str, ...]:
    """Return what people agreed to and when, as far as the run knows; days of consent are for the data owner."""
    if facts.elsewhere:
        who = "each site has" if facts.sites else "whoever has their data has"
        return (f"The budgets are those of the group file; {who} the consent of its own people, and knows its day.",)
    by = "chose a consent level, whose ε the policy sets" if facts.levels else "have an ε of their own or a common one"
    policy = facts.identity.policy
    found = [f"People {by}." + ("" if policy is None else f" The policy is {policy}.")]
    if policy is None and facts.levels:
        found[0] += " Its version was not stated."
    consent = None if facts.owner is None else facts.owner.consent
    if consent is None:
        found.append("When a person agreed is in their own statement, if the data owner recorded it.")
        return tuple(found)
    if consent.dates is not None:
        found.append(f"They agreed between {consent.dates[0]} and {consent.dates[1]}.")
    if consent.versions:
        versions = ", ".join(f"version {name}: {people:,} people" for name, people in consent.versions.items())
        found.append(f"They agreed to {versions}.")
    return tuple(found)


def leaving(facts: Facts) -> tuple[str, ...]:
    """Return how a person leaves a run, what that changes, and what it cannot change."""
    contact, run = facts.identity.contact, facts.identity.run
    whom = "the data owner" if contact is None else contact
    if facts.elsewhere:
        at = "their site" if facts.sites else "whoever trained the teachers or summed the ballots"
        return (
            f"A person tells {whom} or {at} that they want to leave; they need not give a reason.",
            "Their place stays empty there: votes or ballots are made again without them before a further labelling.",
            (
                "What was released before stays released and charged: a release cannot be called back, and the promise "
                "about it stands."
            ),
        )
    left = "Nobody has left this run so far."
    if facts.withdrawn:
        left = f"{facts.withdrawn:,} {'person has' if facts.withdrawn == 1 else 'people have'} left this run so far."
    found = [
        f"A person tells {whom} that they want to leave; they need not give a reason.",
        (
            f"The data owner runs ipate withdraw{'' if run is None else f' on the folder of run {run}'}: "
            f"{facts.manner.leaver}, and nothing more is charged to them. Nobody else moves."
        ),
        (
            "What was released before stays released, and what was charged for it stays charged: a release cannot be "
            f"called back{', and the promise about it stands' if facts.publishable else ''}."
        ),
        "What this meant for one person is in their own statement (ipate statement).",
        left,
    ]
    if facts.unprotected:
        found.append(
            "People whose rows are pool or test data have no account: to leave, they must be taken out of the data, "
            "and a new run begun."
        )
    return tuple(found)


def _unprotected(people: int) -> str:
    """Say who is behind the pool and the test data."""
    used = "the pool and the test data are used as they are, without protection"
    if not people:
        return f"The people behind the pool and the test data: {used}."
    who = "1 person" if people == 1 else f"{people:,} people"
    return (
        f"{who} of the same data whose rows are in the pool or the test data, whatever budget they chose: {used}. "
        "ipate statement tells each of them."
    )
