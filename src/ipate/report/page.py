"""The report as one self-contained HTML page without scripts, from the same facts as the JSON file."""

from functools import cache
from importlib.resources import files

from ipate.report import claims, parameters, results, sections
from ipate.report.facts import Facts
from ipate.report.formats import Markup, element, table
from ipate.report.questions import questions
from ipate.report.sections import Section, count, section

_PRIVATE = "This report is private. Publish the public report of the same run instead."
_PUBLIC = "This report holds nothing that was computed from private votes, unless a guarantee covers it."
_PARTS = (
    sections.promises,
    sections.scope,
    sections.attacker,
    sections.budgets,
    sections.leaving,
    results.influence,
    results.labels,
    results.comparison,
    sections.layers,
    parameters.check,
    parameters.parameters,
)


def page(facts: Facts) -> str:
    """Return the whole page."""
    private = facts.audience == "private"
    title = f"{facts.data_name}: {'private report' if private else 'privacy report'}"
    made = [found for part in _PARTS if (found := part(facts)) is not None]
    parts = [_document(facts), _questions(facts, [_document(facts), *made]), *made]
    main = element(
        "main",
        _opening(facts, title),
        _contents(parts),
        *(part.html for part in parts),
        element("footer", element("p", _PRIVATE if private else _PUBLIC)),
    )
    return document(title, _marks(facts), main, private=private)


def document(title: str, *body: object, private: bool, style: str = "style.css") -> str:
    """Return a page with this title and body; a private one asks search engines not to list it."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="robots", content="noindex") if private else "",
        element("title", title),
        element("style", Markup(f"\n{_style(style)}")),
    )
    sheet = element("body", element("div", *body, class_="sheet"))
    return "<!DOCTYPE html>\n" + element("html", head, "\n", sheet, lang="en") + "\n"


@cache
def _style(name: str) -> str:
    return files("ipate.report").joinpath(name).read_text(encoding="utf-8")


def _document(facts: Facts) -> Section:
    """Return what identifies the report: run, date, who is responsible, policy, versions and fingerprints."""
    about, owner = facts.identity, facts.owner
    unknown = "not stated"
    rows = [
        ["run", about.run or unknown],
        ["date of the run", about.begun or unknown],
        ["controller", about.controller or unknown],
        ["contact", about.contact or unknown],
        ["purpose", about.purpose or unknown],
        ["policy", about.policy or unknown],
        ["written for", "the data owner only" if facts.audience == "private" else "the public"],
        ["made with", f"ipate {facts.versions.get('ipate', 'of an unknown version')}"],
        *([f"fingerprint of {name}", Markup(element("code", value))] for name, value in about.fingerprints.items()),
    ]
    if owner is not None and owner.fingerprint is not None:
        rows.append(["keyed fingerprint of the private file", Markup(element("code", owner.fingerprint))])
    why = (
        "Fingerprints are hashes of public data and settings. A hash of private rows would let anybody who "
        "knows all rows but one try out the last. So the private file has a keyed fingerprint, whose key never leaves "
        "the run's private folder, and even that is in the private report only."
    )
    return section(
        "document",
        "This document",
        table("What identifies this report", ["fact", "value"], rows, words=2),
        element("p", why, class_="soft") if about.fingerprints else "",
    )


def _questions(facts: Facts, parts: list[Section]) -> Section:
    """Return the ten questions of a data protection officer, each with a link to the section that answers it."""
    titles = {part.id: part.title for part in parts}
    rows = [
        [question.asked, question.answer, Markup(element("a", titles[question.place], href=f"#{question.place}"))]
        for question in questions(facts)
    ]
    asked = table("A data protection officer's questions", ["question", "answer", "in full"], rows, words=3)
    return section("questions", "Ten questions, and where they are answered", asked)


def _contents(parts: list[Section]) -> Markup:
    links = [element("li", element("a", part.title, href=f"#{part.id}")) for part in parts]
    return element("nav", element("h2", "Contents"), element("ol", *links), aria_label="Contents", class_="contents")


def _marks(facts: Facts) -> Markup:
    """Return the banner at the top of the screen and of every printed page."""
    lines = [
        element("div", mark, class_="seeded" if mark in facts.guarantee.reasons else None)
        for mark in claims.marks(facts)
    ]
    return element("header", *lines, class_="marks") if lines else Markup("")


def _opening(facts: Facts, title: str) -> Markup:
    used = facts.parameters
    became = "whose noisy votes labelled public points; a student learnt from those labels alone"
    if facts.outcome is not None and facts.outcome.ended == "failed":
        became = "and a private test of their votes was not passed; no point was labelled, and there is no student"
    voted = f"taught {used.teachers:,} teachers, {became}"
    if used.ballots:
        voted = (
            "cast one ballot each for the class of their public cell; one noisy histogram of all ballots labelled the "
            "public points, and a student learnt from those labels alone"
        )
    who = f"{facts.people[0].upper()}{facts.people[1:]} in {count(len(facts.groups), 'group')}"
    about = f"{who} {voted} ({used.variant}, bound {used.bound})."
    return element(
        "section",
        element("h1", title),
        element("p", claims.headline(facts), class_="lead"),
        element("p", about, class_="soft"),
    )
