"""The layers of a guarantee after NIST SP 800-226: what a run did for each, and what remains for its operator.

Near, Darais, Lefkovitz and Howarth, "Guidelines for Evaluating Differential Privacy Guarantees", NIST Special
Publication 800-226 (2025), figure 1: the components of the differential privacy pyramid, here from the top down.
"""

from dataclasses import dataclass

from ipate.accounting.bounds import find_bound
from ipate.report.claims import nothing, shared_out
from ipate.report.facts import HAS_FIGURE, Facts
from ipate.report.formats import plain, small


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
    how = f"{used.teachers:,} teachers were trained on {shared_out(facts)} and voted ({used.variant}), with "
    how += f"{used.noise.capitalize()} noise on the counts."
    if used.ballots:
        how = "Every person cast one weighted ballot, and one noisy histogram of all ballots was released."
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
            "The accounting is tested against independent computations, and by deliberate errors that tests must find.",
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
    asked = "Queries are points of a public pool, asked once; nobody can ask further questions of the private data."
    if facts.parameters.ballots:
        asked = "There is one query, for all cells at once; nobody can ask further questions of the private data."
    model = "The model is central: whoever runs the program sees all data, and everybody else sees releases alone."
    if facts.sites:
        model = (
            f"Rows stay at the sites ({', '.join(facts.sites)}). Whoever merges sees votes or sums of ballots, which "
            "are private too, and everybody else sees releases alone."
        )
    return Layer(
        name="Query model and threat model",
        did=(
            asked,
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
    did = ["This run collected nothing: it read data that were there. Models of teachers are not kept."]
    if facts.parameters.ballots:
        did = ["This run collected nothing: it read data that were there."]
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
