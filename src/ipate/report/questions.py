"""The layers of a guarantee after NIST SP 800-226: what a run did for each, and what remains for its operator.

Near, Darais, Lefkovitz and Howarth, "Guidelines for Evaluating Differential Privacy Guarantees", NIST Special
Publication 800-226 (2025), figure 1: the components of the differential privacy pyramid, here from the top down.

The ten questions of a data protection officer, each with a short answer and the section that answers it in full.
"""

from dataclasses import dataclass

from ipate.accounting.bounds import find_bound
from ipate.release.description import not_proven
from ipate.report.claims import agreed, nothing
from ipate.report.facts import HAS_FIGURE, Facts
from ipate.report.formats import left, plain, small, up
from ipate.report.odds import DIFFERENCE, RATES, listed, odds, share


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer: its name, what this run did, and what the operator must do."""

    name: str
    did: tuple[str, ...]
    must: tuple[str, ...]


def layers_of(facts: Facts) -> tuple[Layer, ...]:
    """Return the layers from ε down to data collection."""
    return (
        _epsilon(facts),
        _unit(facts),
        _algorithms(facts),
        _utility(facts),
        _models(facts),
        _security(facts),
        _collection(facts),
    )


def _epsilon(facts: Facts) -> Layer:
    budgets = [group.budget for group in facts.groups]
    least, most = min(budget.epsilon for budget in budgets), max(budget.epsilon for budget in budgets)
    deltas = sorted({budget.delta for budget in budgets})
    span = f"ε = {plain(least)}" if least == most else f"ε = {plain(least)} to ε = {plain(most)}"
    at = " and ".join(small(delta) for delta in deltas[:3])
    did = [f"{len(budgets)} budgets were set before the run: {span}, at δ = {at}."]
    if facts.guarantee.kind == "none":
        did.append(f"No guarantee follows from them: {nothing(facts)}.")
    elif not facts.publishable:
        did.append("No guarantee follows from them, because costs were computed from private votes or depend on them.")
    else:
        did.append("Every release was charged before it was made, and what a budget could not pay was not released.")
    return Layer(
        name="ε and other privacy parameters",
        did=tuple(did),
        must=(
            "Have the budgets decided by people who answer for them, such as an ethics board, and state the reasons.",
            "Regard an ε above 10 as weak, whatever the data.",
            "Add what was or will be released about the same people outside this run's ledger.",
        ),
    )


def _unit(facts: Facts) -> Layer:
    return Layer(
        name="The unit of privacy",
        did=(
            f"The unit is {'a row' if facts.by_row else 'a person'}. {facts.unit}",
            "Neighbouring data sets differ in one person's data, replaced by any other data or by nothing.",
        ),
        must=(
            "Give every person one id, in all files and all runs; without a column of ids every row is a person.",
            "Consider rows that tell about several people, such as relatives: their ε add up.",
        ),
    )


def _algorithms(facts: Facts) -> Layer:
    used = facts.parameters
    how = facts.manner.how
    if facts.elsewhere:
        how += " That happened elsewhere: that nobody moves more than the table of influence says is taken on trust."
    noise = "Noise was drawn from the operating system's secure randomness, independently for every class."
    if facts.guarantee.seeded:
        noise = "Noise came from a seed: the run can be repeated, and it protects nobody."
    check = "Recompute the costs, as the section on checking describes, and let somebody else do it too."
    if facts.outcome is None:
        check = f"Begin a new run if a figure is to be checked: this one has none. {HAS_FIGURE}"
    return Layer(
        name="Algorithms and correctness",
        did=(
            how,
            f"Costs were added up by the bound {find_bound(used.bound).describe(used.noise)}.",
            noise,
            not_proven(facts.manner.outside)
            or "The accounting is tested against independent computations, and by deliberate errors that tests must "
            "find.",
        ),
        must=(
            check,
            "Keep the versions that are listed among the parameters, and read what later versions correct.",
        ),
    )


def _utility(facts: Facts) -> Layer:
    did = ["Whoever allows more counts more: the section on influence states by how much."]
    if (outcome := facts.outcome) is not None and outcome.by_class and outcome.n_labels:
        least = min(outcome.by_class, key=lambda name: outcome.by_class[name])
        did.append(
            f"{outcome.n_labels:,} labels were released; class {least} has the fewest, {outcome.by_class[least]:,}."
        )
    did.append("Labels are noisy, and a student learns their errors; the rarer a class, the more of them.")
    return Layer(
        name="Utility and bias",
        did=tuple(did),
        must=(
            "Measure how often the student is right, for every group of people that it is used for, before it is used.",
            "Consider whether people who allow less differ from the others: their data counts less.",
        ),
    )


def _models(facts: Facts) -> Layer:
    model = "The model is central: whoever runs the program sees all data, and everybody else sees releases alone."
    if facts.sites:
        model = (
            f"Rows stay at the sites ({', '.join(facts.sites)}). Whoever merges sees votes or sums of ballots, which "
            "are private too, and everybody else sees releases alone."
        )
    return Layer(
        name="Query model and threat model",
        did=(
            facts.manner.asked,
            model,
            "The attacker may know everybody else's data, all settings and all releases, and compute without limit.",
        ),
        must=(
            "Name the people who can see the data, and see to it that they are trusted.",
            "Let nobody choose settings, or a second run, by what they saw of private data, votes or private reports.",
        ),
    )


def _security(facts: Facts) -> Layer:
    return Layer(
        name="Side channels, security and access control",
        did=(
            "Released are choices among classes and rounded counts, never a raw noisy number.",
            "What private rows make fail or warn goes to the private folder alone, which only its owner can read.",
            "The ledger is append-only and chained by hashes; an older copy of it is refused.",
        ),
        must=(
            "Keep the data, the private folder and the ledger encrypted, with access for few, and with backups.",
            "Publish no running times, logs or error messages of a run, and let nobody else compute on its machine.",
        ),
    )


def _collection(facts: Facts) -> Layer:
    did = [facts.manner.collected]
    if facts.unprotected:
        did.append(f"{facts.unprotected:,} people of the same data were used as public or test data, unprotected.")
    return Layer(
        name="Data collection exposure",
        did=tuple(did),
        must=(
            "Collect no more than the purpose needs, with consent; delete what is no longer needed, votes included.",
            "Protect the data where it is collected and stored: a breach there undoes every guarantee.",
        ),
    )


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
    voted = facts.manner.took_part
    span = [group.budget.epsilon for group in facts.groups]
    range_ = f"ε = {plain(min(span))}" if min(span) == max(span) else f"ε = {plain(min(span))} to {plain(max(span))}"
    return f"Everybody whose data {voted}{facts.people_counted}, each with the budget of their group ({range_})."


def _unprotected(facts: Facts) -> str:
    others = "everybody whose data is in the pool or the test data"
    if facts.unprotected:
        others += f", among them {facts.unprotected:,} people of the same file"
    if not facts.publishable:
        return f"Everybody: those whose data {facts.manner.took_part}{facts.people_counted}, and {others}."
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
