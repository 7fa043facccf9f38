"""The sections of a report on how to check it, and on parameters, seeds and versions."""

from collections.abc import Iterator

from ipate.accounting.bounds import find_bound
from ipate.report.exports import recipe, ways_to_check
from ipate.report.facts import Facts, Parameters
from ipate.report.formats import Markup, bullets, element, percent, plain, table
from ipate.report.sections import Section, section

_STOPS = {
    "budget": "before a query that could pass anybody's budget",
    "drop": "groups leave when their budget is used up; the others go on",
    "count": "at a number of labels fixed beforehand",
}


def check(facts: Facts) -> Section:
    """Return how a reader can check the report."""
    program = recipe(facts)
    return section(
        "check",
        "How to check it",
        bullets(ways_to_check(facts)),
        element("pre", program, tabindex="0") if program else "",
    )


def parameters(facts: Facts) -> Section:
    """Return all public settings, the versions of programs and notes on the data."""
    programs = [("Versions of the programs that made the run", facts.versions)]
    programs += [("It was continued with", later) for later in facts.later_versions]
    notes = [*facts.data_notes, *facts.notes]
    return section(
        "parameters",
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
    if used.n_first is not None:
        yield ["rounds", f"{used.n_first:,} points; then a student of their labels is compared with the votes"]
    yield ["stops", _STOPS.get(used.stop, used.stop)]
    if used.max_labels is not None:
        yield ["labels at most", f"{used.max_labels:,}"]
    if used.counts:
        yield ["released with labels", "noisy counts in steps of σ/8, from the same draw"]


def _noise_row(used: Parameters) -> list[object]:
    if used.laplace_scale is not None:
        return ["noise of labels", f"Laplace noise with scale b = {plain(used.laplace_scale)}"]
    return ["noise of an entry of the histogram σ" if used.ballots else "noise of labels σ", plain(used.sigma or 0.0)]


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
    yield _noise_row(used)
    if used.check_sigma is not None and used.threshold is not None:
        yield ["noise of checks σ_T", plain(used.check_sigma)]
        yield ["threshold T", plain(used.threshold)]
    yield ["bound", bound.describe(used.noise)]
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
