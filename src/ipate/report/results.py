"""The sections of a report on influence, on released labels and the student, and on the comparison with other ways."""

from collections.abc import Iterator, Mapping

from ipate.engines.teachers.variants import find_variant
from ipate.report.facts import Facts, GroupFacts, Outcome, Owner, Scores
from ipate.report.figures import influence_figure
from ipate.report.formats import Markup, bullets, element, people_count, percent, plain, signed_points, table
from ipate.report.sections import Section, section

_NO_SCORES = "How often labels and student are right was found with true labels that are not public: ask the owner."


def influence(facts: Facts) -> Section:
    """Return how much each group counts."""
    variant = find_variant(facts.parameters.variant)
    ballots = facts.parameters.ballots
    how = None if ballots else variant.influence_title
    columns = ["group", "people", *([] if ballots else ["teachers"])] + ([how] if how else [])
    columns += ["one person moves at most", "share of people", "share of votes", "one person's influence"]
    rows = [
        [group.id, people_count(facts.size(group)), *([] if ballots else [f"{group.teachers:,}"])]
        + ([_shown_influence(group, variant.show_influence)] if how else [])
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
    if ballots:
        notes.append(
            "One person's ballot weighs at most the number shown, in multiples of the noise of a label; whoever "
            "allows less privacy has a heavier ballot, and so shapes the labels more."
        )
    elif variant.report_note is not None:
        notes.append(variant.report_note)
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


def labels(facts: Facts) -> Section | None:
    """Return the released labels and the scores; None where no figure may be shown."""
    outcome, owner = facts.outcome, facts.owner
    if outcome is None:
        return None
    asked = [] if facts.parameters.ballots else [["queries asked", f"{outcome.n_queries:,}"]]
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
    if owner.standard_labels is not None and find_variant(facts.parameters.variant).individual:
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


def comparison(facts: Facts) -> Section | None:
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
