"""The sections of a report on promises, scope, attackers, budgets, leaving, and the layers of the guarantee."""

from dataclasses import dataclass

from ipate.report import claims, odds
from ipate.report.facts import WITHHELD, Facts
from ipate.report.figures import history_figure, roc_figure
from ipate.report.formats import Markup, bullets, element, left, people_count, plain, small, table, up, used
from ipate.report.odds import CARRIED, DIFFERENCE, balance, ending
from ipate.report.proofs import where_proven
from ipate.report.questions import layers_of


@dataclass(frozen=True)
class Section:
    """One section of the page: its id, to which links point, its title, and its content."""

    id: str
    title: str
    body: Markup

    @property
    def html(self) -> Markup:
        """The section as HTML."""
        heading = element("h2", self.title, id=f"{self.id}-title")
        return element("section", heading, self.body, id=self.id, aria_labelledby=f"{self.id}-title")


def section(name: str, title: str, *children: object) -> Section:
    """Return a section of these children."""
    return Section(name, title, Markup("".join(element("div", *children)[len("<div>") : -len("</div>")])))


def count(number: int, what: str) -> str:
    """Return a number of things, such as 1 label or 2 labels."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def promises(facts: Facts) -> Section:
    """Return what was promised to each group."""
    held = bool(claims.covered(facts))
    cards = [
        element("div", element("h3", group), element("p", sentence), class_="promise" if held else "promise none")
        for group, sentence in claims.promises(facts)
    ]
    rest = len(facts.groups) - len(cards)
    statement = "" if facts.guarantee.statement == WITHHELD else facts.guarantee.statement
    more = element("p", f"{rest} more groups are in the table of budgets; the same holds with their own ε.")
    return section(
        "promises",
        "What was promised, and to whom",
        *(element("p", sentence) for sentence in claims.summary(facts)),
        *cards,
        more if rest and held else "",
        element("p", where_proven(facts)) if held else "",
        element("p", f"In the words of the run's own record: {statement}", class_="soft") if statement else "",
    )


def scope(facts: Facts) -> Section:
    """Return what the guarantee covers, what it takes as public, and what it does not cover."""
    held = claims.covered(facts)
    return section(
        "scope",
        "What is covered, what is public, what is not covered",
        Markup(element("h3", "Covered") + bullets(held)) if held else "",
        element("h3", "Taken as public"),
        bullets(claims.public_facts(facts)),
        element("h3", "Not covered"),
        bullets(claims.not_covered(facts)),
    )


def attacker(facts: Facts) -> Section:
    """Return the odds of the best test for a person's data, by group, with their curves."""
    found = odds.odds(facts)
    said = [element("p", sentence) for sentence in odds.explanation(facts)]
    if not found:
        return section("odds", "What an attacker can learn", *said)
    columns = ["group", "promised ε", "δ", *(f"true positives at {rate:.0%} false positives" for rate in odds.RATES)]
    rows = [
        [entry.group, up(entry.epsilon, 4), small(entry.delta), *(odds.share(power) for power in entry.powers)]
        for entry in found
    ]
    curves = {group.id: odds.curve(facts, group) for group in facts.groups}
    return section(
        "odds",
        "What an attacker can learn",
        *said,
        table("True positives of the best test, at most", columns, rows),
        roc_figure(facts.groups, curves, odds.CURVE),
    )


def budgets(facts: Facts) -> Section:
    """Return what people allowed, what was spent and what is left, as far as this audience may see it."""
    outcome = facts.outcome
    columns = ["group", "people", "budget ε", "δ"]
    rows: list[list[object]] = [
        [group.id, people_count(facts.size(group)), plain(group.budget.epsilon), small(group.budget.delta)]
        for group in facts.groups
    ]
    agreed = [element("p", sentence) for sentence in claims.agreed(facts)]
    if outcome is None:
        silent = element("p", "What was spent and what is left is private and is not in this report.")
        return section("budgets", "Budgets", *agreed, table("What people allowed", columns, rows), silent)
    shared = outcome.carried
    columns += [*(["before ε", "this run alone ε"] if shared else []), "cost ε", "left ε", "budget used"]
    columns += [] if facts.parameters.ballots else ["used up after"]
    for row, spent in zip(rows, outcome.groups, strict=True):
        after = spent.labels_until_exhausted
        row += [
            *([f"{spent.before:.4f}", "—" if spent.own is None else f"{spent.own:.4f}"] if shared else []),
            f"{spent.cost:.4f}",
            left(spent.budget.epsilon - spent.cost, spent.budget.epsilon),
            used(spent.used),
            *([] if facts.parameters.ballots else ["—" if after is None else count(after, "label")]),
        ]
    grown = outcome.history[-1].labels > 0 and facts.parameters.design is None  # costs grew label by label
    return section(
        "budgets",
        "Budgets and costs",
        *agreed,
        element("p", ending(facts, outcome)),
        table("What people allowed, what was spent and what is left", columns, rows),
        element("p", CARRIED, class_="soft") if shared else "",
        element("p", f"{balance(outcome.groups)} Left: {DIFFERENCE[0].lower()}{DIFFERENCE[1:]}"),
        history_figure(facts.groups, outcome) if grown else "",
    )


def leaving(facts: Facts) -> Section:
    """Return how a person leaves, and for the data owner who has left."""
    owed = () if facts.owner is None else facts.owner.owed
    return section(
        "leaving",
        "How somebody leaves",
        bullets(claims.leaving(facts)),
        Markup(element("h3", "People who withdrew") + bullets(owed)) if owed else "",
    )


def layers(facts: Facts) -> Section:
    """Return what this run did and what its operator must do, for each layer of the guarantee."""
    parts: list[Markup] = []
    for number, layer in enumerate(layers_of(facts), start=1):
        pairs = (("What this run did", layer.did), ("What the operator must do", layer.must))
        lists = [Markup(element("dt", title) + element("dd", bullets(lines))) for title, lines in pairs]
        parts.append(element("div", element("h3", f"{number}. {layer.name}"), element("dl", *lists), class_="layer"))
    about = (
        "A guarantee rests on more than its ε. These are the components of the pyramid of NIST SP 800-226, Guidelines "
        "for Evaluating Differential Privacy Guarantees (Near, Darais, Lefkovitz and Howarth 2025), from the top down: "
        "each depends on those below it."
    )
    return section("layers", "The guarantee, layer by layer", element("p", about), *parts)
