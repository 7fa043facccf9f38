"""The report as one self-contained HTML page without scripts, from the same facts as the JSON file."""

from collections.abc import Iterable

from ipate.allocation import find_variant
from ipate.report import claims, results
from ipate.report.facts import WITHHELD, Facts, Outcome
from ipate.report.figures import Figure, history_figure, influence_figure
from ipate.report.formats import Markup, bullets, element, percent, plain, small, table, text, used
from ipate.report.recipe import recipe, ways_to_check

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
    """Return the banner at the top of the screen and of every printed page."""
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
    """Return a section of the page with its title."""
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
        [group.id, f"{group.account.people:,}", plain(group.budget.epsilon), small(group.budget.delta)]
        for group in facts.groups
    ]
    if outcome is None:
        return section("Budgets", table("What people allowed", columns, rows))
    shared = outcome.carried
    columns += [*(["before ε", "this run alone ε"] if shared else []), "cost ε", "budget used", "used up after"]
    for row, spent in zip(rows, outcome.groups, strict=True):
        after = spent.labels_until_exhausted
        row += [
            *([f"{spent.before:.4f}", "—" if spent.own is None else f"{spent.own:.4f}"] if shared else []),
            f"{spent.cost:.4f}",
            used(spent.used),
            "—" if after is None else _count(after, "label"),
        ]
    return section(
        "Budgets and costs",
        element("p", claims.ending(facts, outcome)),
        table("What people allowed, and what was spent", columns, rows),
        element("p", claims.carried(outcome), class_="soft") if shared else "",
        element("p", claims.balance(outcome.groups)),
        _figure(history_figure(facts.groups, outcome)) if _has_history(facts, outcome) else "",
    )


def _has_history(facts: Facts, outcome: Outcome) -> bool:
    """Whether costs grew label by label."""
    return bool(outcome.history[-1].labels) and facts.design is None


def _figure(figure: Figure) -> Markup:
    drawings = [
        element("div", Markup(drawing), class_=width, role="img", aria_label=figure.alternative)
        for width, drawing in (("wide", figure.wide), ("narrow", figure.narrow))
    ]
    return element("figure", *drawings, element("figcaption", figure.caption))


def _influence(facts: Facts) -> Markup:
    variant = find_variant(facts.parameters.variant)
    how = variant.influence_title
    columns = ["group", "people", "teachers"] + ([how] if how else [])
    columns += ["one person moves at most", "share of people", "share of votes", "one person's influence"]
    rows = [
        [group.id, f"{group.account.people:,}", f"{group.teachers:,}"]
        + ([_shown(variant.show_influence(group))] if how else [])
        + [
            plain(group.account.sensitivity, 3),
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
    if variant.report_note is not None:
        notes.append(variant.report_note)
    return section(
        "Influence of each group",
        *(element("p", note) for note in notes),
        table("Influence", columns, rows),
        _figure(influence_figure(facts.groups)) if len(facts.groups) > 1 else "",
    )


def _shown(influence: str | float) -> str:
    return influence if isinstance(influence, str) else plain(influence)


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


STYLE = """
:root { color-scheme: light dark; --page: #ffffff; --panel: #f4f6f8; --ink: #1b1f24; --soft: #4f5a66;
  --line: #c3cad2; --alert: #8f1d14; --alert-ink: #ffffff; --warn: #5c3b00; --warn-page: #ffe9b8; --link: #0b5394;
  --series-1: #0072b2; --series-2: #c44e00; --series-3: #00805c; --series-4: #a3507d; --series-5: #8a6d00;
  --series-6: #444c55; }
@media (prefers-color-scheme: dark) { :root { --page: #14181d; --panel: #1e242b; --ink: #e9edf1; --soft: #aab4bf;
  --line: #475260; --alert: #b3261a; --alert-ink: #ffffff; --warn: #ffe9b8; --warn-page: #4a3500; --link: #7fc0ff;
  --series-1: #56b4e9; --series-2: #f0904a; --series-3: #35c49a; --series-4: #dd94bb; --series-5: #e6cf4a;
  --series-6: #c5ccd4; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--page); color: var(--ink); font: 1rem/1.55 system-ui, "Segoe UI", Roboto,
  "Helvetica Neue", Arial, "Liberation Sans", "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }
main { max-width: 62rem; margin: 0 auto; padding: 1rem 1.25rem 3rem; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 1rem 0 .25rem; }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 2.5rem 0 .5rem; padding-top: .5rem;
  border-top: 2px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.5rem 0 .25rem; }
p, ul { margin: .5rem 0; max-width: 46rem; } ul { padding-left: 1.25rem; } li { margin: .3rem 0; }
.lead { font-size: 1.15rem; font-weight: 600; } .soft { color: var(--soft); }
.marks { position: sticky; top: 0; z-index: 1; text-align: center; font-weight: 700; }
.marks div { padding: .35rem 1rem; background: var(--alert); color: var(--alert-ink); }
.marks div + div, .marks .seeded { background: var(--warn-page); color: var(--warn); }
.promise { background: var(--panel); border-left: .35rem solid var(--series-1); padding: .6rem 1rem; margin: .75rem 0;
  max-width: 48rem; } .promise.none { border-left-color: var(--alert); } .promise h3 { margin: 0 0 .15rem; }
.promise p { margin: 0; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .25rem 0; }
th, td { padding: .35rem .6rem; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top; }
th, td { overflow-wrap: normal; } tbody th { overflow-wrap: anywhere; min-width: 6.5rem; }
tbody td:not(.number) { overflow-wrap: anywhere; }
thead th { color: var(--soft); font-size: .9em; vertical-align: bottom; } tbody th { font-weight: 600; }
.number { text-align: right; white-space: nowrap; } thead .number { white-space: normal; }
figure { margin: 1.25rem 0; } figcaption { color: var(--soft); max-width: 46rem; }
figure svg { display: block; width: 100%; height: auto; } .narrow { display: none; }
.wide { max-width: 56rem; }
pre { background: var(--panel); padding: .75rem 1rem; overflow-x: auto; font-size: .85rem; line-height: 1.45;
  white-space: pre-wrap; font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
footer { margin-top: 3rem; padding-top: .75rem; border-top: 2px solid var(--line); color: var(--soft); }
@media screen and (max-width: 40rem) { main { padding: .5rem .9rem 2rem; } h1 { font-size: 1.45rem; }
  .wide { display: none; } .narrow { display: block; }
  table, tbody, tr, th, td { display: block; } caption { display: block; } thead { position: absolute; left: -9999px; }
  tbody tr { border-bottom: 2px solid var(--line); padding: .4rem 0; }
  tbody th, tbody td { border: 0; padding: .1rem 0; }
  tbody td { display: flex; justify-content: space-between; gap: 1rem; text-align: right; white-space: normal; }
  tbody td::before { content: attr(data-label); color: var(--soft); text-align: left; flex: 0 1 auto; }
  .pair tbody tr { display: flex; justify-content: space-between; gap: 1rem; border-bottom-width: 1px; }
  .pair tbody th { flex: 1 1 40%; } .pair tbody td { flex: 0 1 auto; max-width: 60%; }
  .pair tbody td::before { content: none; } }
@media print { :root { color-scheme: light; --page: #ffffff; --panel: #f4f6f8; --ink: #000000; --soft: #3c444d;
  --line: #b4bcc5; --alert: #8f1d14; --alert-ink: #ffffff; --warn: #5c3b00; --warn-page: #ffe9b8;
  --series-1: #0072b2; --series-2: #c44e00; --series-3: #00805c; --series-4: #a3507d; --series-5: #8a6d00;
  --series-6: #444c55; }
  @page { size: A4; margin: 16mm 15mm; @bottom-right { content: counter(page); font: 9pt sans-serif; } }
  body { font-size: 10pt; } main { max-width: none; padding: 0; }
  .sheet { display: table; width: 100%; } .marks { display: table-header-group; position: static;
  break-inside: avoid; }
  .marks div { border: 1.5pt solid #000000; color: #000000; background: none; margin-bottom: 3mm; }
  main { display: table-row-group; } h2 { break-after: avoid; } tr, figure, .promise, li { break-inside: avoid; }
  table { font-size: 9pt; break-inside: avoid; } caption { break-after: avoid; }
  .narrow { display: none; } .wide { display: block; }
  pre { font-size: 8pt; } }
"""
