"""The report as one html page: no script, nothing fetched, the same facts as its JSON twin."""

from collections.abc import Iterable

from ipate.report import claims, results
from ipate.report.facts import WITHHELD, Facts, GroupFacts, Outcome
from ipate.report.figures import Figure, history_figure, influence_figure
from ipate.report.markup import Markup, bullets, element, table, text
from ipate.report.numbers import percent, plain, small, used
from ipate.report.recipe import recipe, ways_to_check
from ipate.report.style import STYLE

__all__ = ["page"]

_INFLUENCE = {
    "weighting": "weight of a teacher",
    "upsampling": "teachers per person",
    "vanishing": "takes part in",
}
_GONE = "How costs grew is not shown: the votes that they were computed from are not kept."
_PRIVATE = "This report is private. Publish the public report of the same run instead."
_PUBLIC = "This report holds nothing that was computed from private votes, unless a guarantee covers it."


def page(facts: Facts) -> str:
    """Return the whole page."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="robots", content="noindex") if facts.audience == "private" else "",
        element("title", _title(facts)),
        element("style", Markup(STYLE)),
    )
    main = element(
        "main",
        _opening(facts),
        *(section for section in _sections(facts) if section),
        element("footer", element("p", _PRIVATE if facts.audience == "private" else _PUBLIC)),
    )
    body = element("body", element("div", _marks(facts), main, class_="sheet"))
    return "<!DOCTYPE html>\n" + element("html", head, "\n", body, lang="en") + "\n"


def _title(facts: Facts) -> str:
    whose = "private report" if facts.audience == "private" else "privacy report"
    return f"{facts.data_name}: {whose}"


def _marks(facts: Facts) -> Markup:
    """The banner that stands above everything, on screen and on every printed page."""
    lines = [
        element("div", mark, class_="seeded" if mark.startswith("seeded") else None) for mark in claims.marks(facts)
    ]
    return element("header", *lines, class_="marks", role="note") if lines else Markup("")


def _opening(facts: Facts) -> Markup:
    used = facts.parameters
    became = "whose noisy votes labelled public points; a student learnt from those labels alone"
    if facts.outcome is not None and facts.outcome.ended == "failed":
        became = "and a private test of their votes was not passed; no point was labelled, and there is no student"
    about = (
        f"{facts.n_people:,} people in {_count(len(facts.groups), 'group')} taught {used.teachers:,} teachers, "
        f"{became} ({used.variant}, bound {used.bound})."
    )
    return element(
        "section",
        element("h1", _title(facts)),
        element("p", claims.headline(facts), class_="lead"),
        element("p", about, class_="soft"),
    )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _sections(facts: Facts) -> Iterable[Markup]:
    yield _promises(facts)
    yield _scope(facts)
    if facts.owner is not None and facts.owner.owed:
        yield section("People who withdrew", bullets(facts.owner.owed))
    yield _budgets(facts)
    yield _influence(facts)
    yield results.results(facts)
    yield results.comparison(facts)
    yield _check(facts)
    yield _parameters(facts)


def section(title: str, *children: object) -> Markup:
    """Return a part of the page under its title."""
    return element("section", element("h2", title), *children)


def _promises(facts: Facts) -> Markup:
    held = bool(claims.covered(facts))
    cards = [
        element("div", element("h3", group), element("p", sentence), class_="promise" if held else "promise none")
        for group, sentence in claims.promises(facts)
    ]
    rest = len(facts.groups) - len(cards)
    statement = "" if facts.guarantee.statement == WITHHELD else facts.guarantee.statement
    more = element("p", f"{rest} more groups are in the table of budgets; the same holds with their own ε.")
    return section(
        "What was promised, and to whom",
        *(element("p", sentence) for sentence in claims.summary(facts)),
        *cards,
        more if rest and held else "",
        element("p", f"In the words of the run's own record: {statement}", class_="soft") if statement else "",
    )


def _scope(facts: Facts) -> Markup:
    held = claims.covered(facts)
    return section(
        "What is covered, what is public, what is not covered",
        Markup(element("h3", "Covered") + bullets(held)) if held else "",
        element("h3", "Taken as public"),
        bullets(claims.public_facts(facts)),
        element("h3", "Not covered"),
        bullets(claims.not_covered(facts)),
    )


def _budgets(facts: Facts) -> Markup:
    outcome = facts.outcome
    columns = ["group", "people", "budget ε", "δ"]
    rows: list[list[object]] = [
        [group.group, f"{group.people:,}", plain(group.budget), small(group.delta)] for group in facts.groups
    ]
    if outcome is None:
        return section("Budgets", table("What people allowed", columns, rows))
    shared = outcome.carried
    columns += [*(["before ε", "this run alone ε"] if shared else []), "cost ε", "budget used", "used up after"]
    for row, group, spent in zip(rows, facts.groups, outcome.spent, strict=True):
        after = spent.labels_until_exhausted
        row += [
            *([f"{spent.before:.4f}", "—" if spent.own is None else f"{spent.own:.4f}"] if shared else []),
            f"{spent.cost:.4f}",
            used(spent.cost / group.budget),
            "—" if after is None else _count(after, "label"),
        ]
    return section(
        "Budgets and costs",
        element("p", claims.ending(facts, outcome)),
        table("What people allowed, and what was spent", columns, rows),
        element("p", claims.carried(outcome), class_="soft") if shared else "",
        element("p", claims.balance(facts.groups, outcome.spent)),
        _figure(history_figure(facts.groups, outcome)) if _has_history(facts, outcome) else "",
        "" if outcome.whole else element("p", _GONE, class_="soft"),
    )


def _has_history(facts: Facts, outcome: Outcome) -> bool:
    """Whether costs grew label by label, and the votes that they follow from are still there."""
    return bool(outcome.history[-1].labels) and outcome.whole and facts.design is None


def _figure(figure: Figure) -> Markup:
    drawings = [
        element("div", Markup(drawing), class_=width, role="img", aria_label=figure.alternative)
        for width, drawing in (("wide", figure.wide), ("narrow", figure.narrow))
    ]
    return element("figure", *drawings, element("figcaption", figure.caption))


def _means(group: GroupFacts, variant: str) -> str:
    """By what a variant gives a group more or less influence."""
    if variant == "weighting":
        return plain(group.weight or 0.0)
    return str(group.copies) if variant == "upsampling" else percent(group.participation)


def _influence(facts: Facts) -> Markup:
    variant = facts.parameters.variant
    how = _INFLUENCE.get(variant)
    columns = ["group", "people", "teachers"] + ([how] if how else [])
    columns += ["one person moves at most", "share of people", "share of votes", "one person's influence"]
    rows = [
        [group.group, f"{group.people:,}", f"{group.teachers:,}"]
        + ([_means(group, variant)] if how else [])
        + [
            plain(group.sensitivity, 3),
            percent(group.people_share),
            percent(group.vote_share),
            f"{group.influence:.2f} ×",
        ]
        for group in facts.groups
    ]
    notes = [
        "How much a group's data counts follows from budgets and numbers of people alone.",
        "An influence of 1 is that of the average person.",
    ]
    if variant == "upsampling":
        notes.append("Teachers mix groups: the share of votes is the share of places in teachers.")
    if variant == "standard":
        notes.append("Standard PATE: everybody counts alike, and the strictest budget ends the run.")
    return section(
        "Influence of each group",
        *(element("p", note) for note in notes),
        table("Influence", columns, rows),
        _figure(influence_figure(facts.groups)) if len(facts.groups) > 1 else "",
    )


def _check(facts: Facts) -> Markup:
    program = recipe(facts)
    return section(
        "How to check it",
        bullets(ways_to_check(facts)),
        element("pre", text(program), tabindex="0") if program else "",
    )


def _parameters(facts: Facts) -> Markup:
    rows = list(results.parameter_rows(facts))
    versions = [[name, number] for name, number in facts.versions.items()]
    notes = [*facts.data_notes, *facts.notes]
    return section(
        "Parameters, seeds and versions",
        table("Parameters", ["parameter", "value"], rows, words=2),
        table("Versions of the programs that made the run", ["program", "version"], versions, words=2),
        *(
            table("It was continued with", ["program", "version"], [[*pair] for pair in later.items()], words=2)
            for later in facts.later_versions
        ),
        Markup(element("h3", "Notes on the data") + bullets(notes)) if notes else "",
    )
