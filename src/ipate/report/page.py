"""The report as one self-contained HTML page without scripts, from the same facts as the JSON file."""

from collections.abc import Iterator, Mapping
from importlib.resources import files

from ipate.accounting.bounds import find_bound
from ipate.allocation import find_variant
from ipate.report import claims
from ipate.report.exports import recipe, ways_to_check
from ipate.report.facts import WITHHELD, Facts, GroupFacts, Outcome, Owner, Scores
from ipate.report.figures import history_figure, influence_figure
from ipate.report.formats import Markup, bullets, element, percent, plain, signed_points, small, table, used
from ipate.report.proofs import where_proven

_PRIVATE = "This report is private. Publish the public report of the same run instead."
_PUBLIC = "This report holds nothing that was computed from private votes, unless a guarantee covers it."
_NO_SCORES = "How often labels and student are right was found with true labels that are not public: ask the owner."
_STOPS = {
    "budget": "before a query that could pass anybody's budget",
    "drop": "groups leave when their budget is used up; the others go on",
    "count": "at a number of labels fixed beforehand",
}


def page(facts: Facts) -> str:
    """Return the whole page."""
    private = facts.audience == "private"
    title = f"{facts.data_name}: {'private report' if private else 'privacy report'}"
    style = files("ipate.report").joinpath("style.css").read_text(encoding="utf-8")
    owed = () if facts.owner is None else facts.owner.owed
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="robots", content="noindex") if private else "",
        element("title", title),
        element("style", Markup(f"\n{style}")),
    )
    main = element(
        "main",
        _opening(facts, title),
        _promises(facts),
        _scope(facts),
        _section("People who withdrew", bullets(owed)) if owed else "",
        _budgets(facts),
        _influence(facts),
        _results(facts),
        _comparison(facts),
        _check(facts),
        _parameters(facts),
        element("footer", element("p", _PRIVATE if private else _PUBLIC)),
    )
    body = element("body", element("div", _marks(facts), main, class_="sheet"))
    return "<!DOCTYPE html>\n" + element("html", head, "\n", body, lang="en") + "\n"


def _marks(facts: Facts) -> Markup:
    """Return the banner at the top of the screen and of every printed page."""
    lines = [
        element("div", mark, class_="seeded" if mark in facts.guarantee.reasons else None)
        for mark in claims.marks(facts)
    ]
    return element("header", *lines, class_="marks", role="note") if lines else Markup("")


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
    about = (
        f"{facts.n_people:,} people in {_count(len(facts.groups), 'group')} {voted} ({used.variant}, bound "
        f"{used.bound})."
    )
    return element(
        "section",
        element("h1", title),
        element("p", claims.headline(facts), class_="lead"),
        element("p", about, class_="soft"),
    )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _section(title: str, *children: object) -> Markup:
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
    return _section(
        "What was promised, and to whom",
        *(element("p", sentence) for sentence in claims.summary(facts)),
        *cards,
        more if rest and held else "",
        element("p", where_proven(facts)) if held else "",
        element("p", f"In the words of the run's own record: {statement}", class_="soft") if statement else "",
    )


def _scope(facts: Facts) -> Markup:
    held = claims.covered(facts)
    return _section(
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
        [group.id, facts.counted(group.account.people), plain(group.budget.epsilon), small(group.budget.delta)]
        for group in facts.groups
    ]
    if outcome is None:
        return _section("Budgets", table("What people allowed", columns, rows))
    shared = outcome.carried
    columns += [*(["before ε", "this run alone ε"] if shared else []), "cost ε", "budget used"]
    columns += [] if facts.parameters.ballots else ["used up after"]
    for row, spent in zip(rows, outcome.groups, strict=True):
        after = spent.labels_until_exhausted
        row += [
            *([f"{spent.before:.4f}", "—" if spent.own is None else f"{spent.own:.4f}"] if shared else []),
            f"{spent.cost:.4f}",
            used(spent.used),
            *([] if facts.parameters.ballots else ["—" if after is None else _count(after, "label")]),
        ]
    grown = outcome.history[-1].labels > 0 and facts.parameters.design is None  # costs grew label by label
    return _section(
        "Budgets and costs",
        element("p", claims.ending(facts, outcome)),
        table("What people allowed, and what was spent", columns, rows),
        element("p", claims.CARRIED, class_="soft") if shared else "",
        element("p", claims.balance(outcome.groups)),
        history_figure(facts.groups, outcome) if grown else "",
    )


def _influence(facts: Facts) -> Markup:
    variant = find_variant(facts.parameters.variant)
    ballots = facts.parameters.ballots
    how = None if ballots else variant.influence_title
    columns = ["group", "people", *([] if ballots else ["teachers"])] + ([how] if how else [])
    columns += ["one person moves at most", "share of people", "share of votes", "one person's influence"]
    rows = [
        [group.id, facts.counted(group.account.people), *([] if ballots else [f"{group.teachers:,}"])]
        + ([_shown_influence(group, variant.show_influence)] if how else [])
        + [
            plain(group.account.sensitivity, 3),
            *(["—"] * 3 if facts.is_small(group) else _group_shares(group)),  # shares would tell the size
        ]
        for group in facts.groups
    ]
    notes = [
        "How much a group's data counts follows from budgets and numbers of people alone.",
        "An influence of 1 is that of the average person.",
    ]
    if ballots:
        notes.append(
            "One person's ballot weighs at most the number shown, in multiples of the noise of a label; whoever "
            "allows less privacy has a heavier ballot, and so shapes the labels more."
        )
    elif variant.report_note is not None:
        notes.append(variant.report_note)
    large = tuple(group for group in facts.groups if not facts.is_small(group))
    return _section(
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


def _results(facts: Facts) -> Markup:
    outcome, owner = facts.outcome, facts.owner
    if outcome is None:
        return Markup("")
    asked = [] if facts.parameters.ballots else [["queries asked", f"{outcome.n_queries:,}"]]
    rows = [*asked, ["labels given", f"{outcome.n_labels:,}"]]
    if owner is None:
        scores = facts.public_scores
        rows += [] if scores is None else _shares(scores)
        said = _NO_SCORES if scores is None else "The scores were found with public labels alone."
        return _section(
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
    if owner.standard_labels is not None and find_variant(facts.parameters.variant).individual:
        rows.append(["labels that standard PATE affords, by its account", f"{owner.standard_labels:,}"])
    return _section(
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
        rows = [[name, f"{count:,}"] for name, count in outcome.by_class.items()]
        yield table("Labels given, by class", ["class", "labels"], rows)
        yield bullets([f"{note[0].upper()}{note[1:]}." for note in outcome.notes]) if outcome.notes else Markup("")
    if facts.student_folder:
        where = f"The student, with its model card, is in {facts.student_folder} of the run's folder."
        yield element("p", where)


def _comparison(facts: Facts) -> Markup:
    """Return the comparison with standard PATE, for the data owner only."""
    if facts.owner is None or facts.owner.comparison is None:
        return Markup("")
    found, own = facts.owner.comparison, facts.owner.scores
    columns = {"this run": own, "standard PATE": found.standard, **found.others, "without privacy": found.ceiling}
    rows = [
        [name, "—" if scores.labels is None else f"{scores.labels:,}", percent(scores.label_accuracy),
         percent(scores.student_accuracy)]
        for name, scores in columns.items()
    ]  # fmt: skip
    chance = (
        "Differences are in percentage points. One run shows chance as well as bias: repeat it with other split seeds "
        "before drawing conclusions from small differences."
    )
    return _section(
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


def _check(facts: Facts) -> Markup:
    program = recipe(facts)
    return _section(
        "How to check it",
        bullets(ways_to_check(facts)),
        element("pre", program, tabindex="0") if program else "",
    )


def _parameters(facts: Facts) -> Markup:
    programs = [("Versions of the programs that made the run", facts.versions)]
    programs += [("It was continued with", later) for later in facts.later_versions]
    notes = [*facts.data_notes, *facts.notes]
    return _section(
        "Parameters, seeds and versions",
        table("Parameters", ["parameter", "value"], _parameter_rows(facts), words=2),
        *(table(caption, ["program", "version"], used.items(), words=2) for caption, used in programs),
        Markup(element("h3", "Notes on the data") + bullets(notes)) if notes else "",
    )


def _engine_rows(facts: Facts) -> Iterator[list[object]]:
    """Yield who votes on what, and when that ends."""
    used = facts.parameters
    if used.ballots:
        yield ["voting", "ballots: one weighted vote per person, all released at once"]
        if (found := None if facts.outcome is None else facts.outcome.ballots) is not None:
            yield ["partitions, cells", f"{found.partitions}, {found.cells:,} each"]
        return
    yield ["teachers k", f"{used.teachers:,} ({used.teacher_model})"]
    yield ["points asked", f"{used.queries}{'' if used.n_queries is None else f', {used.n_queries:,} at most'}"]
    yield ["stops", _STOPS.get(used.stop, used.stop)]
    if used.max_labels is not None:
        yield ["labels at most", f"{used.max_labels:,}"]
    if used.counts:
        yield ["released with labels", "noisy counts in steps of σ/8, from the same draw"]


def _parameter_rows(facts: Facts) -> Iterator[list[object]]:
    used, bound = facts.parameters, find_bound(facts.parameters.bound)
    yield ["data", facts.data_name if not facts.data_source else f"{facts.data_name} ({facts.data_source})"]
    yield ["classes", f"{len(facts.classes)}: {', '.join(facts.classes)}"]
    yield ["points in the pool", f"{facts.n_pool:,}"]
    if facts.n_test is not None:
        yield ["test points", f"{facts.n_test:,}"]
    yield ["variant, rule", f"{used.variant}, {used.rule}"]
    yield from _engine_rows(facts)
    yield ["student", used.student_model]
    yield ["noise of an entry of the histogram σ" if used.ballots else "noise of labels σ", plain(used.sigma)]
    if used.check_sigma is not None and used.threshold is not None:
        yield ["noise of checks σ_T", plain(used.check_sigma)]
        yield ["threshold T", plain(used.threshold)]
    yield ["bound", bound.summary]
    if used.design is not None:
        yield ["queries of the design", f"{used.design.queries:,}"]
        yield ["design made from", f"{used.design.reference}; reserve {percent(used.design.reserve)}"]
        yield ["hash of the design", used.design.digest]
    yield ["conversion to ε", used.conversion]
    if used.orders:
        first = list(used.orders.items())[:12]
        yield ["Rényi orders, fixed beforehand", ", ".join(f"{group}: {order:g}" for group, order in first)]
    elif bound.has_orders:
        yield ["Rényi orders", "2 to 50, the best for the cost"]
    yield ["how they were chosen", used.reason]
    seeded = "seeded; the seed is not published" if facts.noise_seed is None else f"seeded with {facts.noise_seed}"
    secure = "secure: drawn from the operating system's randomness, not kept"
    yield ["noise", seeded if facts.guarantee.seeded else secure]
    if facts.split_seed is not None:
        yield ["seed of partition, allocation and training", str(facts.split_seed)]
    if facts.ledger_head is not None:
        yield ["head of the ledger", facts.ledger_head]
