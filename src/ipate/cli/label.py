"""`ipate label`: label public points with teachers trained elsewhere, within every budget."""

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ipate.accounting.bounds import Meter
    from ipate.accounting.ptr.design import Design
    from ipate.labelling.aggregators import Mechanism
    from ipate.labelling.results import Labelling
    from ipate.ledger.base import Ledger
    from ipate.votes import Votes
    from ipate.votes.panel import Panel


EXAMPLE = (
    "Example: ipate label votes.npz --groups groups.csv --sigma 40 --check-sigma 150 --threshold 200 "
    "--delta 1e-5 --out labels.csv. labels.csv has the columns query,answered,label, one row per query "
    "asked, in the order asked."
)


def command(
    votes: Annotated[Path, typer.Argument(help="The teachers' votes: an npz, a folder or an npy.", metavar="VOTES")],
    groups: Annotated[Path, typer.Option(help="csv file of group budgets.", metavar="GROUPS.csv")],
    out: Annotated[Path, typer.Option(help="The csv file of labels to write.", metavar="LABELS.csv")],
    variant: Annotated[
        str,
        typer.Option(help="standard, weighting, upsampling or vanishing; auto: weighting if the votes have groups."),
    ] = "auto",
    aggregator: Annotated[
        str,
        typer.Option(help="gnmax, confident, interactive or lnmax; auto: derived from the other options."),
    ] = "auto",
    sigma: Annotated[float | None, typer.Option(help="σ: standard deviation of the label noise.")] = None,
    check_sigma: Annotated[float | None, typer.Option(help="σ_T: standard deviation of the check noise.")] = None,
    threshold: Annotated[float | None, typer.Option(help="T: threshold of the check.")] = None,
    scale: Annotated[float | None, typer.Option(help="The Laplace scale of lnmax.")] = None,
    student_probs: Annotated[
        Path | None, typer.Option(help="npy file, queries × classes: the student's probabilities (interactive).")
    ] = None,
    gamma: Annotated[
        float | None,
        typer.Option(help="Interactive: return the student's class above this probability; default: 0.9."),
    ] = None,
    weights: Annotated[
        str,
        typer.Option(help="gdp, proportional, classic, algorithm2, uniform, or file: use the weights in the files."),
    ] = "gdp",
    power: Annotated[
        float | None, typer.Option(help="Vanishing: teachers take part in a share (ε/ε_max)^power of the queries.")
    ] = None,
    bound: Annotated[
        str, typer.Option(help="loose, gdp, sup, tight, exact, or ptr: one private test, then all labels or none.")
    ] = "gdp",
    conversion: Annotated[str, typer.Option(help="classic or improved; ignored by the bound gdp.")] = "improved",
    delta: Annotated[float, typer.Option(help="δ of groups without one in the group file.")] = 1e-5,
    orders: Annotated[str, typer.Option(help="Rényi orders: FIRST:LAST or a comma-separated list.")] = "2:50",
    classes: Annotated[int | None, typer.Option(help="Number of classes (public).")] = None,
    stop: Annotated[
        str,
        typer.Option(
            help="budget: stop when a group is exhausted; drop: continue without it; count: stop at a given number."
        ),
    ] = "budget",
    max_labels: Annotated[int | None, typer.Option(help="Stop after this many labels.")] = None,
    max_queries: Annotated[int | None, typer.Option(help="Stop after this many queries.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the noise: the run is then NOT private.")] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(help="The ledger of charges; an existing one continues its balances. Default: beside the labels."),
    ] = None,
    design: Annotated[Path | None, typer.Option(help="ptr: the design file, made by ipate design.")] = None,
    accuracy: Annotated[
        float | None, typer.Option(help="ptr without a design: expected accuracy of one teacher.")
    ] = None,
    spread: Annotated[float | None, typer.Option(help="ptr: spread of query difficulty; default: 2.")] = None,
    confusion: Annotated[
        float | None, typer.Option(help="ptr: share of wrong votes that agree; default: 0.65.")
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(help="ptr: votes of other teachers on public data, instead of --accuracy.")
    ] = None,
    reserve: Annotated[
        float | None,
        typer.Option(help="ptr: how much more than the reference the votes may cost; default: 0.1 (10 %)."),
    ] = None,
    fallback: Annotated[
        bool, typer.Option(help="ptr: reserve (ε/2, δ/10) for a data-independent run after a failed test.")
    ] = False,
    order_seed: Annotated[int | None, typer.Option(min=0, help="Seed for shuffling the queries.")] = None,
    split_seed: Annotated[int, typer.Option(min=0, help="Vanishing: public seed of the participation schedule.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
) -> None:
    """Label public points with teachers trained elsewhere; no one's budget is exceeded."""
    import numpy as np

    from ipate.accounting.bounds import Meter
    from ipate.allocation import panel_for
    from ipate.allocation.layout import TrainedElsewhere
    from ipate.cli.durable import label_ledger, run_of, write_head
    from ipate.cli.options import load_probs, parse_orders
    from ipate.cli.output import progress_bar
    from ipate.errors import InputError, check_number
    from ipate.labelling.aggregators import build_aggregator
    from ipate.labelling.loop import Stop, account_terms, label
    from ipate.labelling.noise import make_noise
    from ipate.labelling.tested import label_tested
    from ipate.people.budgets import read_groups
    from ipate.planning.reference import write_design
    from ipate.votes import read_votes

    check_number("delta", delta)
    chosen = build_aggregator(
        aggregator, sigma=sigma, check_sigma=check_sigma, threshold=threshold, scale=scale, gamma=gamma,
        student_probs=student_probs,
    )  # fmt: skip
    meter = Meter(bound, conversion, parse_orders(orders))
    noise = make_noise(seed)
    rows = read_groups(groups)
    ballot = read_votes(votes, classes=classes)
    probs = load_probs(student_probs, ballot)
    order = None if order_seed is None else np.random.default_rng(order_seed).permutation(ballot.n_queries)
    given = TrainedElsewhere(
        votes=ballot, rows=rows, delta=delta, weights=weights, power=power, order=order, split_seed=split_seed
    )
    ballot, panel, name = panel_for(variant, given)
    _warn_of_threshold(chosen.mechanism, panel.total_weight)
    testing = {
        "reference": reference, "accuracy": accuracy, "spread": spread, "confusion": confusion, "reserve": reserve,
        "fallback": fallback,
    }  # fmt: skip
    test = _test(meter, design, ballot, panel, chosen.mechanism, order, max_queries, testing, quiet=as_json)
    if test is not None and (stop != "budget" or max_labels is not None):
        raise InputError(f"bound is 'ptr' with stop {stop!r}, max_labels {max_labels}: a design asks a fixed list")
    digest = None if test is None else test.digest
    request = (variant, weights, power, stop, max_labels, max_queries, order_seed, split_seed, digest)
    run = run_of(ballot, panel, chosen, meter, probs, *request, seed=seed)
    with (
        label_ledger(out, ledger, account_terms(panel, meter, chosen), run=run, seeded=seed is not None) as book,
        progress_bar("labelling", ballot.n_queries, quiet=as_json) as progress,
    ):
        if book is not None:
            write_head(out, book)  # from now on an older copy or a missing ledger is detected
        if test is not None:
            write_design(out.with_name(f"{out.name}.design.json"), test)
            result = label_tested(ballot, panel, chosen, test, order=order, noise=noise, ledger=book, progress=progress)
        else:
            result = label(
                ballot,
                panel,
                chosen,
                meter,
                stop=cast("Stop", stop),
                max_labels=max_labels,
                max_queries=max_queries,
                order=order,
                student_probs=probs,
                noise=noise,
                ledger=book,
                progress=progress,
            )
    _write_labels(out, ballot, result)
    if book is not None:
        write_head(out, book)
    _show(result, ballot, name, out, book, as_json)


def _test(
    meter: "Meter",
    design: Path | None,
    votes: "Votes",
    panel: "Panel",
    mechanism: "Mechanism",
    order: "NDArray[np.int64] | None",
    max_queries: int | None,
    options: dict[str, Any],
    *,
    quiet: bool,
) -> "Design | None":
    """Return the design of a release that is tested as a whole; the votes are not used."""
    from ipate.cli.options import chosen_design, refuse_unused
    from ipate.cli.output import waiting
    from ipate.labelling.tested import query_ids

    if not meter.whole:
        refuse_unused("it is for the bound ptr", design=design, **options)
        return None
    names = query_ids(votes)
    asked = names if order is None else [names[index] for index in order.tolist()]
    with waiting("designing the test", quiet=quiet):
        return chosen_design(
            design, panel, mechanism, n_classes=votes.n_classes, queries=asked[:max_queries], **options
        )


def _warn_of_threshold(mechanism: Any, total_weight: float) -> None:
    """Warn if the threshold exceeds the total weight, with the probability that a unanimous query passes."""
    import warnings

    from scipy.special import ndtr

    if mechanism.threshold is not None and mechanism.threshold > total_weight:
        chance = float(ndtr((total_weight - mechanism.threshold) / mechanism.check_sigma))
        warnings.warn(
            f"threshold {mechanism.threshold:g} is above the weight of all votes, {total_weight:g}: "
            f"a unanimous query passes the check with probability {chance:.3g}",
            stacklevel=2,
        )


def _write_labels(path: Path, votes: "Votes", result: "Labelling") -> None:
    """Write the labels file atomically; every label in it has been charged."""
    from ipate.files import write_text

    names = votes.queries
    stream = io.StringIO()
    writer = csv.writer(stream)
    writer.writerow(["query", "answered", "label"])
    for query, answered, reinforced, value in zip(
        result.queries.tolist(),
        result.answered.tolist(),
        result.reinforced.tolist(),
        result.labels.tolist(),
        strict=True,
    ):
        has_label = answered or reinforced
        name = str(query) if names is None else names[query]
        writer.writerow([name, int(has_label), value if has_label else ""])
    write_text(path, stream.getvalue())


def _payload(result: "Labelling", votes: "Votes", variant: str, book: "Ledger | None") -> dict[str, Any]:
    import numpy as np

    accuracy = None
    labelled = result.answered | result.reinforced
    if votes.labels is not None and labelled.any():
        accuracy = float(np.mean(result.labels[labelled] == votes.labels[result.queries[labelled]]))
    return {
        "labels": result.n_labels,
        "queries": result.n_queries,
        "accuracy": accuracy,
        "reinforced": int(np.count_nonzero(result.reinforced & ~result.repeated)),
        "variant": variant,
        "bound": result.meter.bound,
        "conversion": result.meter.conversion,
        "guarantee": result.guarantee.kind,
        "statement": result.guarantee.statement,
        "seeded": result.seeded,
        "stopped_by": result.stopped_by,
        "passed": result.passed,
        "ledger": None if book is None else str(book.path),
        "ledger_head": None if book is None else str(book.head),
        "groups": [group.as_json() for group in result.groups],
    }


def _show(result: "Labelling", votes: "Votes", variant: str, out: Path, book: "Ledger | None", as_json: bool) -> None:
    from ipate.cli.output import COST_COLUMNS, cell, cost_cells, print_json, print_table, statement_line

    payload = _payload(result, votes, variant, book)
    if as_json:
        print_json(payload)
        return
    scored = "" if payload["accuracy"] is None else f", {payload['accuracy']:.1%} of them right"
    where = f"Labels: {out}. " + ("Charges were kept in memory only." if book is None else f"Charged to: {book.path}")
    print_table(
        f"{result.n_labels} labels from {result.n_queries} queries{scored}; "
        f"{variant}, {result.meter.bound} bound, {result.guarantee.headline}",
        ["group", "teachers", "weight", *COST_COLUMNS, "exhausted at label"],
        [
            [
                group.id,
                "mixed" if group.teachers is None else str(group.teachers),
                cell(group.weight, ".4g"),
                *cost_cells(group),
                cell(group.labels_until_exhausted),
            ]
            for group in result.groups
        ],
        [statement_line(result.guarantee), *_remarks(result), where],
    )


def _remarks(result: "Labelling") -> list[str]:
    ended = {
        "budget": "Stopped before the first query that could have exceeded a group's budget.",
        "count": "Stopped at the number fixed beforehand.",
        "pool": "Every query was asked." if result.passed is None else "The test was passed: every query was asked.",
        "failed": "The test was not passed: nothing but this answer was released, and the budgets are spent.",
    }[result.stopped_by]
    if result.passed is False and result.stopped_by != "failed":
        ended = f"The test was not passed; the part of the budget that was kept for this paid for these. {ended}"
    idle = [group.id for group in result.groups if group.used < 0.8]
    if result.stopped_by == "budget" and idle:
        first = [group.id for group in result.groups if group.labels_until_exhausted is not None]
        ended += (
            f" {', '.join(first)} was exhausted while {', '.join(idle)} had more than a fifth of the budget "
            "left: the weights do not match the budgets."
        )
    return [ended]
