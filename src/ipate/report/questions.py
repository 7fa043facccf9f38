"""The ten questions of a data protection officer, each with a short answer and the section that answers it in full."""

from dataclasses import dataclass

from ipate.report.claims import agreed, nothing
from ipate.report.facts import Facts
from ipate.report.formats import left, plain, up
from ipate.report.odds import RATES, odds, share
from ipate.report.spending import DIFFERENCE, listed


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question, its answer in a sentence or two, and the id of the section with the whole answer."""

    asked: str
    answer: str
    place: str


def questions(facts: Facts) -> tuple[Question, ...]:
    """Return the ten questions with their answers, from facts that this audience may see."""
    return (
        Question(asked="Who is protected?", answer=_protected(facts), place="promises"),
        Question(asked="Who is not?", answer=_unprotected(facts), place="scope"),
        Question(asked="What was agreed, and when?", answer=" ".join(agreed(facts)), place="budgets"),
        Question(asked="What was spent?", answer=_spent(facts), place="budgets"),
        Question(asked="What is left?", answer=_left(facts), place="budgets"),
        Question(asked="What can an attacker learn?", answer=_attacker(facts), place="odds"),
        Question(asked="How does somebody leave?", answer=_leaving(facts), place="leaving"),
        Question(asked="What is assumed?", answer=_assumed(facts), place="layers"),
        Question(asked="Who is responsible?", answer=_responsible(facts), place="document"),
        Question(asked="How can it be checked?", answer=_checked(facts), place="check"),
    )


def _protected(facts: Facts) -> str:
    if facts.guarantee.kind == "none":
        return f"Nobody: {nothing(facts)}."
    if not facts.publishable:
        return "For nobody a guarantee can be stated; the budgets are what people allowed."
    voted = "cast the ballots" if facts.parameters.ballots else "taught the teachers"
    span = [group.budget.epsilon for group in facts.groups]
    range_ = f"ε = {plain(min(span))}" if min(span) == max(span) else f"ε = {plain(min(span))} to {plain(max(span))}"
    return f"Everybody whose data {voted}{facts.people_counted}, each with the budget of their group ({range_})."


def _unprotected(facts: Facts) -> str:
    others = "everybody whose data is in the pool or the test data"
    if facts.unprotected:
        others += f", among them {facts.unprotected:,} people of the same file"
    if not facts.publishable:
        voted = "cast the ballots" if facts.parameters.ballots else "taught the teachers"
        return f"Everybody: those whose data {voted}{facts.people_counted}, and {others}."
    return f"{others[0].upper()}{others[1:]}; and secrets that several people share."


def _spent(facts: Facts) -> str:
    if facts.outcome is None:
        return "That is private, because no figure of this run may be published."
    return f"ε = {_by_group({spent.id: up(spent.cost, 4) for spent in facts.outcome.groups})}."


def _left(facts: Facts) -> str:
    if facts.outcome is None:
        return "That is private too."
    found = {spent.id: left(spent.budget.epsilon - spent.cost, spent.budget.epsilon) for spent in facts.outcome.groups}
    if set(found.values()) == {"nothing"}:
        return f"Nothing: less than a thousandth of every budget. {DIFFERENCE}"
    small = " Nothing means less than a thousandth of the budget." if "nothing" in found.values() else ""
    return f"ε = {_by_group(found)}.{small} {DIFFERENCE}"


def _by_group(values: dict[str, str]) -> str:
    return listed([f"{value} ({group})" for group, value in values.items()])


def _attacker(facts: Facts) -> str:
    found = odds(facts)
    if not found:
        return "No limit is stated, because nothing is promised."
    rate, powers = RATES[-1], [entry.powers[-1] for entry in found]
    span = share(min(powers)) if min(powers) == max(powers) else f"{share(min(powers))} to {share(max(powers))}"
    return f"Whoever accepts {rate:.0%} false alarms recognises at most {span} of those whose data was used, by group."


def _leaving(facts: Facts) -> str:
    whom = facts.identity.contact or "the data owner"
    return f"By telling {whom}. From then on nothing is charged to them; what was released stays released."


def _assumed(facts: Facts) -> str:
    return (
        "That budgets, numbers of people and settings are public, that a person has one id, that the machine and those "
        "who run it are trusted, and that all releases are on one ledger."
    )


def _responsible(facts: Facts) -> str:
    about = facts.identity
    if about.controller is None:
        return "The controller was not stated ([report] controller of a run, controller= of PATEClassifier.report)."
    return about.controller + ("" if about.contact is None else f"; contact: {about.contact}") + "."


def _checked(facts: Facts) -> str:
    if facts.outcome is None:
        return "There is no figure to check; the settings and the public files are listed with their fingerprints."
    by_ledger = "" if facts.ledger_head is None else "; and by the ledger, whose head is stated"
    return f"From public figures, with a short program or with ipate{by_ledger}."
