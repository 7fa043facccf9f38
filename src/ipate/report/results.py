"""The sections of the page for results: labels, student, comparison, parameters."""

from collections.abc import Iterator, Mapping

from ipate.accounting.bounds import find_bound
from ipate.allocation import find_variant
from ipate.report.facts import Comparison, Facts, Scores
from ipate.report.formats import Markup, element, percent, plain, signed_points, table

_STOPS = {
    "budget": "before a query that could pass anybody's budget",
    "drop": "groups leave when their budget is used up; the others go on",
    "count": "at a number of labels fixed beforehand",
}


def results(facts: Facts) -> Markup:
    """Return the section on the accuracy of labels and student, where true labels are known."""
    outcome = facts.outcome
    if outcome is None:
        return Markup("")
    rows: list[list[object]] = [
        ["queries asked", f"{outcome.n_queries:,}"],
        ["labels given", f"{outcome.n_labels:,}"],
    ]
    owner = facts.owner
    if owner is None:
        missing = (
            "How often labels and student are right was found with true labels that are not public: ask the owner."
        )
        return element(
            "section",
            element("h2", "Labels"),
            table("Results", ["result", "value"], rows),
            element("p", missing, class_="soft"),
        )
    scores = owner.scores
    for what, share in (
        ("labels that are right", scores.label_accuracy),
        ("student right on test data", scores.student_accuracy),
        ("single teachers right on the pool", owner.teacher_accuracy),
        ("most teachers right on the pool", owner.plurality_accuracy),
    ):
        if share is not None:
            rows.append([what, percent(share)])
    if owner.standard_labels is not None and find_variant(facts.parameters.variant).individual:
        rows.append(["labels that standard PATE affords, by its account", f"{owner.standard_labels:,}"])
    return element(
        "section",
        element("h2", "Labels and student (private)"),
        table("Results", ["result", "value"], rows),
        *([] if owner.comparison is not None else _by_class_and_level(scores)),
    )


def _by_class_and_level(scores: Scores) -> list[Markup]:
    return [
        _by("Student right, by class", "class", scores.by_class),
        _by("Student right, by consent level of the test data", "level", scores.by_level),
    ]


def _by(caption: str, what: str, shares: Mapping[str, float] | None) -> Markup:
    if not shares:
        return Markup("")
    return table(caption, [what, "right"], [[name, percent(share)] for name, share in shares.items()])


def comparison(facts: Facts) -> Markup:
    """Return the comparison with standard PATE, for the data owner only."""
    if facts.owner is None or facts.owner.comparison is None:
        return Markup("")
    found, own = facts.owner.comparison, facts.owner.scores
    rows = [
        ["labels", _number(own.labels), _number(found.standard.labels), "—"],
        ["labels right", percent(own.label_accuracy), percent(found.standard.label_accuracy), "—"],
        [
            "student right",
            percent(own.student_accuracy),
            percent(found.standard.student_accuracy),
            percent(found.ceiling.student_accuracy),
        ],
    ]
    return element(
        "section",
        element("h2", "Against standard PATE (private)"),
        element("p", f"The comparison is {found.note}." if found.note else "", class_="soft"),
        table("Overall", ["result", "this run", "standard PATE", "without privacy"], rows),
        _differences("Student right, by class", "class", own, found, "by_class"),
        _differences("Student right, by consent level of the test data", "level", own, found, "by_level"),
        element(
            "p",
            "Differences are in percentage points. One run shows chance as well as bias: repeat it with other split "
            "seeds before drawing conclusions from small differences.",
            class_="soft",
        ),
    )


def _number(value: int | None) -> str:
    return "—" if value is None else f"{value:,}"


def _differences(caption: str, what: str, own: Scores, found: Comparison, kind: str) -> Markup:
    mine: Mapping[str, float] = getattr(own, kind) or {}
    theirs: Mapping[str, float] = getattr(found.standard, kind) or {}
    ceiling: Mapping[str, float] = getattr(found.ceiling, kind) or {}
    if not mine:
        return Markup("")
    rows = [
        [
            name,
            percent(share),
            percent(theirs.get(name)),
            signed_points(share - theirs[name]) if name in theirs else "—",
            percent(ceiling.get(name)),
        ]
        for name, share in mine.items()
    ]
    return table(caption, [what, "this run", "standard PATE", "difference", "without privacy"], rows)


def parameter_rows(facts: Facts) -> Iterator[list[object]]:
    """Yield the names and values of the run's parameters."""
    used = facts.parameters
    yield ["data", facts.data_name if not facts.data_source else f"{facts.data_name} ({facts.data_source})"]
    yield ["classes", f"{facts.n_classes}: {', '.join(facts.classes)}" if facts.classes else str(facts.n_classes)]
    yield ["points in the pool", f"{facts.n_pool:,}"]
    if facts.n_test is not None:
        yield ["test points", f"{facts.n_test:,}"]
    yield ["variant, rule", f"{used.variant}, {used.rule}"]
    yield ["teachers k", f"{used.teachers:,} ({used.teacher_model})"]
    yield ["student", used.student_model]
    yield ["noise of labels σ", plain(used.sigma)]
    if used.check_sigma is not None and used.threshold is not None:
        yield ["noise of checks σ_T", plain(used.check_sigma)]
        yield ["threshold T", plain(used.threshold)]
    yield ["bound", find_bound(used.bound).summary]
    if used.design is not None:
        yield ["queries of the design", f"{used.design.queries:,}"]
        yield ["design made from", f"{used.design.reference}; reserve {percent(used.design.reserve)}"]
        yield ["hash of the design", used.design.digest]
    yield ["conversion to ε", used.conversion]
    if used.orders:
        yield ["Rényi orders, fixed beforehand", ", ".join(f"{group}: {order:g}" for group, order in used.orders[:12])]
    elif find_bound(used.bound).has_orders:
        yield ["Rényi orders", "2 to 50, the best for the cost"]
    yield ["stops", _STOPS.get(used.stop, used.stop)]
    if used.max_labels is not None:
        yield ["labels at most", f"{used.max_labels:,}"]
    yield ["how they were chosen", used.reason]
    yield ["noise", _noise(facts)]
    if facts.split_seed is not None:
        yield ["seed of partition, allocation and training", str(facts.split_seed)]
    if facts.ledger_head is not None:
        yield ["head of the ledger", facts.ledger_head]


def _noise(facts: Facts) -> str:
    if not facts.guarantee.seeded:
        return "secure: drawn from the operating system's randomness, not kept"
    if facts.noise_seed is None:
        return "seeded; the seed is not published"
    return f"seeded with {facts.noise_seed}"
