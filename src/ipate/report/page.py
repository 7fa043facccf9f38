"""The report as one self-contained HTML page without scripts, from the same facts as the JSON file.

The documentation has no address of its own yet, and a relative link would break in a page that is handed on alone. So
pages of proofs are named by their path, with the version of ipate whose documentation holds them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from ipate.accounting.bounds import find_bound
from ipate.release.description import GroupFacts, Parameters
from ipate.report import claims, odds
from ipate.report.exports import recipe, ways_to_check
from ipate.report.facts import WITHHELD, Facts, Outcome, Owner, Scores
from ipate.report.figures import history_figure, influence_figure, roc_figure
from ipate.report.formats import (
    Markup,
    bullets,
    element,
    left,
    people_count,
    percent,
    plain,
    signed_points,
    small,
    table,
    up,
    used,
)
from ipate.report.odds import CARRIED, DIFFERENCE, balance, ending
from ipate.report.questions import layers_of, questions

_PRIVATE = "This report is private. Publish the public report of the same run instead."
_PUBLIC = "This report holds nothing that was computed from private votes, unless a guarantee covers it."
_NO_SCORES = "How often labels and student are right was found with true labels that are not public: ask the owner."


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


def proofs(facts: Facts) -> tuple[str, ...]:
    """Return the pages that prove what was promised; empty where nothing was, and where a part is from outside."""
    if not facts.publishable or facts.manner.outside:
        return ()
    return tuple(f"docs/proofs/{name}.md" for name in facts.manner.proofs)


def where_proven(facts: Facts) -> str:
    """Return the sentence that names the proofs; empty where nothing was promised."""
    pages = " and ".join(proofs(facts))
    if not pages:
        return ""
    version = facts.versions.get("ipate", "")
    return (
        f"Why this holds: {pages} in the documentation of ipate {version}".rstrip()
        + ", which is part of its source distribution. The proofs name every assumption, the tests that attack each "
        "step, and what is checked by machine only."
    )


def _promises(facts: Facts) -> Section:
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


def _scope(facts: Facts) -> Section:
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


def _attacker(facts: Facts) -> Section:
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


def _budgets(facts: Facts) -> Section:
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
    columns += ["used up after"] if facts.manner.by_query else []
    for row, spent in zip(rows, outcome.groups, strict=True):
        after = spent.labels_until_exhausted
        row += [
            *([f"{spent.before:.4f}", "—" if spent.own is None else f"{spent.own:.4f}"] if shared else []),
            f"{spent.cost:.4f}",
            left(spent.budget.epsilon - spent.cost, spent.budget.epsilon),
            used(spent.used),
            *(["—" if after is None else count(after, "label")] if facts.manner.by_query else []),
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


def _leaving(facts: Facts) -> Section:
    """Return how a person leaves, and for the data owner who has left."""
    owed = () if facts.owner is None else facts.owner.owed
    return section(
        "leaving",
        "How somebody leaves",
        bullets(claims.leaving(facts)),
        Markup(element("h3", "People who withdrew") + bullets(owed)) if owed else "",
    )


def _layers(facts: Facts) -> Section:
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


def _influence(facts: Facts) -> Section:
    """Return how much each group counts."""
    how, teachers = facts.manner.influence_title, facts.parameters.teachers > 0
    columns = ["group", "people", *(["teachers"] if teachers else []), *([how] if how else [])]
    columns += ["one person moves at most", "share of people", "share of votes", "one person's influence"]
    rows = [
        [group.id, people_count(facts.size(group)), *([f"{group.teachers:,}"] if teachers else [])]
        + ([_shown_influence(group, facts.manner.influence)] if how else [])
        + [
            plain(group.account.sensitivity, 3),
            *(_group_shares(group) if facts.is_counted(group) else ["—"] * 3),  # shares would tell the size
        ]
        for group in facts.groups
    ]
    notes = [
        "How much a group's data counts follows from budgets and numbers of people alone.",
        "An influence of 1 is that of the average person.",
    ]
    if facts.manner.influence_note is not None:
        notes.append(facts.manner.influence_note)
    large = tuple(group for group in facts.groups if facts.is_counted(group))
    return section(
        "influence",
        "Influence of each group",
        *(element("p", note) for note in notes),
        table("Influence", columns, rows),
        influence_figure(large) if len(large) > 1 else "",
    )


def _group_shares(group: GroupFacts) -> list[str]:
    return [percent(group.people_share), percent(group.vote_share), f"{group.influence:.2f} ×"]


def _shown_influence(group: GroupFacts, fact: str) -> str:
    """Return a group's weight, copies or participation for the variant's own column."""
    weight, copies, participation = plain(group.weight or 0.0), str(group.copies), percent(group.participation)
    return {"weight": weight, "copies": copies, "participation": participation}[fact]


def _labels(facts: Facts) -> Section | None:
    """Return the released labels and the scores; None where no figure may be shown."""
    outcome, owner = facts.outcome, facts.owner
    if outcome is None:
        return None
    asked = [["queries asked", f"{outcome.n_queries:,}"]] if facts.manner.by_query else []
    rows = [*asked, ["labels given", f"{outcome.n_labels:,}"]]
    rows += [["points with a student's own class", f"{outcome.reinforced:,}"]] if outcome.reinforced else []
    if owner is None:
        scores = facts.public_scores
        rows += [] if scores is None else _shares(scores)
        said = _NO_SCORES if scores is None else "The scores were found with public labels alone."
        return section(
            "labels",
            "Labels",
            table("Results", ["result", "value"], rows),
            element("p", said, class_="soft"),
            *_balance(facts, outcome),
        )
    of_teachers = {
        "single teachers right on the pool": owner.teacher_accuracy,
        "most teachers right on the pool": owner.plurality_accuracy,
    }
    rows += _shares(owner.scores)
    rows += [[what, percent(share)] for what, share in of_teachers.items() if share is not None]
    if owner.standard_labels is not None and facts.manner.individual:
        rows.append(["labels that standard PATE affords, by its account", f"{owner.standard_labels:,}"])
    return section(
        "labels",
        "Labels and student (private)",
        table("Results", ["result", "value"], rows),
        *(_student_tables(owner) if owner.comparison is None else ()),
        *_balance(facts, outcome),
    )


def _shares(scores: Scores) -> list[list[str]]:
    """Return the rows of a table of scores."""
    shares = {
        "labels that are right": scores.label_accuracy,
        "student right on test data": scores.student_accuracy,
        "student right, mean over classes": scores.balanced_accuracy,
        "right if the class of most labels is always said": scores.majority_accuracy,
    }
    return [[what, percent(share)] for what, share in shares.items() if share is not None]


def _balance(facts: Facts, outcome: Outcome) -> Iterator[Markup]:
    """Yield the released labels of each class, what they mean for a student, and where the student is."""
    if outcome.n_labels:
        rows = [[name, f"{given:,}", percent(given / outcome.n_labels)] for name, given in outcome.by_class.items()]
        yield element("h3", "Balance of the released labels")
        yield table("Labels given, by class", ["class", "labels", "share"], rows)
        yield bullets([f"{note[0].upper()}{note[1:]}." for note in outcome.notes]) if outcome.notes else Markup("")
    if facts.student_folder:
        where = f"The student, with its model card, is in {facts.student_folder} of the run's folder."
        yield element("p", where)


def _comparison(facts: Facts) -> Section | None:
    """Return the comparison with standard PATE, for the data owner only."""
    if facts.owner is None or facts.owner.comparison is None:
        return None
    found, own = facts.owner.comparison, facts.owner.scores
    columns = {"this run": own, "standard PATE": found.standard, **found.others, "without privacy": found.ceiling}
    rows = [
        [
            name,
            "—" if scores.labels is None else f"{scores.labels:,}",
            percent(scores.label_accuracy),
            percent(scores.student_accuracy),
        ]
        for name, scores in columns.items()
    ]
    chance = (
        "Differences are in percentage points. One run shows chance as well as bias: repeat it with other split seeds "
        "before drawing conclusions from small differences."
    )
    return section(
        "comparison",
        "Against other ways (private)",
        element("p", f"The comparison is {found.note}." if found.note else "", class_="soft"),
        table("Overall", ["", "labels", "labels right", "student right"], rows),
        *_student_tables(facts.owner),
        element("p", chance, class_="soft"),
    )


def _student_tables(owner: Owner) -> Iterator[Markup]:
    """Yield how often the student is right by class and by level, and the same of those it was compared with."""
    compared = owner.comparison
    for kind, what, caption in (
        ("by_class", "class", "Student right, by class"),
        ("by_level", "level", "Student right, by consent level of the test data"),
    ):
        own: Mapping[str, float] = getattr(owner.scores, kind) or {}
        columns, rows = [what, "right"], [[name, percent(share)] for name, share in own.items()]
        if compared is not None:
            standard: Mapping[str, float] = getattr(compared.standard, kind) or {}
            ceiling: Mapping[str, float] = getattr(compared.ceiling, kind) or {}
            columns = [what, "this run", "standard PATE", "difference", "without privacy"]
            for row, (name, share) in zip(rows, own.items(), strict=True):
                difference = signed_points(share - standard[name]) if name in standard else "—"
                row += [percent(standard.get(name)), difference, percent(ceiling.get(name))]
        if rows:
            yield table(caption, columns, rows)


def _check(facts: Facts) -> Section:
    """Return how a reader can check the report."""
    program = recipe(facts)
    return section(
        "check",
        "How to check it",
        bullets(ways_to_check(facts)),
        element("pre", program, tabindex="0") if program else "",
    )


def _parameters(facts: Facts) -> Section:
    """Return all public settings, the versions of programs and notes on the data."""
    programs = [("Versions of the programs that made the run", facts.versions)]
    programs += [("It was continued with", later) for later in facts.later_versions]
    notes = [*facts.data_notes, *facts.notes]
    return section(
        "parameters",
        "Parameters, seeds and versions",
        table("Parameters", ["parameter", "value"], _parameter_rows(facts), words=2),
        *(table(caption, ["program", "version"], of.items(), words=2) for caption, of in programs),
        Markup(element("h3", "Notes on the data") + bullets(notes)) if notes else "",
    )


def _noise_row(shown: Parameters, of: str) -> list[object]:
    if shown.laplace_scale is not None:
        return ["noise of labels", f"Laplace noise with scale b = {plain(shown.laplace_scale)}"]
    return [f"noise of {of} σ", "not stated" if shown.sigma is None else plain(shown.sigma)]


def _parameter_rows(facts: Facts) -> Iterator[list[object]]:
    shown, bound = facts.parameters, find_bound(facts.parameters.bound)
    yield ["data", facts.data_name if not facts.data_source else f"{facts.data_name} ({facts.data_source})"]
    yield ["classes", f"{len(facts.classes)}: {', '.join(facts.classes)}"]
    yield ["points in the pool", f"{facts.n_pool:,}"]
    if facts.n_test is not None:
        yield ["test points", f"{facts.n_test:,}"]
    yield ["variant, rule", f"{shown.variant}, {shown.rule}"]
    yield from map(list, facts.manner.rows)
    if (found := None if facts.outcome is None else facts.outcome.ballots) is not None:
        yield ["partitions, cells", f"{found.partitions}, {found.cells:,} each"]
    if facts.manner.outside:
        yield ["from outside, not proven", ", ".join(facts.manner.outside)]
    yield ["student", shown.student_model]
    yield _noise_row(shown, facts.manner.noise_of)
    if shown.check_sigma is not None and shown.threshold is not None:
        yield ["noise of checks σ_T", plain(shown.check_sigma)]
        yield ["threshold T", plain(shown.threshold)]
    yield ["bound", bound.describe(shown.noise)]
    if shown.design is not None:
        yield ["queries of the design", f"{shown.design.queries:,}"]
        yield ["design made from", f"{shown.design.reference}; reserve {percent(shown.design.reserve)}"]
        yield ["hash of the design", shown.design.digest]
    yield ["conversion to ε", shown.conversion]
    if shown.orders:
        first = list(shown.orders.items())[:12]
        yield ["Rényi orders, fixed beforehand", ", ".join(f"{group}: {order:g}" for group, order in first)]
    elif bound.has_orders:
        yield ["Rényi orders", "2 to 50, the best for the cost"]
    yield ["how they were chosen", shown.reason]
    seeded = "seeded; the seed is not published" if facts.noise_seed is None else f"seeded with {facts.noise_seed}"
    secure = "secure: drawn from the operating system's randomness, not kept"
    yield ["noise", seeded if facts.guarantee.seeded else secure]
    if facts.split_seed is not None:
        yield ["seed of partition, allocation and training", str(facts.split_seed)]
    if facts.ledger_head is not None:
        yield ["head of the ledger", facts.ledger_head]


_PARTS = (
    _promises,
    _scope,
    _attacker,
    _budgets,
    _leaving,
    _influence,
    _labels,
    _comparison,
    _layers,
    _check,
    _parameters,
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
    became = facts.manner.became
    if facts.outcome is not None and facts.outcome.ended == "failed":
        became = "and a private test of their votes was not passed; no point was labelled, and there is no student"
    who = f"{facts.people[0].upper()}{facts.people[1:]} in {count(len(facts.groups), 'group')}"
    about = f"{who} {facts.manner.opening}, {became} ({used.variant}, bound {used.bound})."
    return element(
        "section",
        element("h1", title),
        element("p", claims.headline(facts), class_="lead"),
        element("p", about, class_="soft"),
    )
