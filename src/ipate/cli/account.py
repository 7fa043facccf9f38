"""`ipate account`: compute what releases cost each group under a bound."""

import csv
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from typer import Argument, Option, echo

from ipate.cli import options
from ipate.cli.output import (
    BUDGET_COLUMNS,
    CLOSED,
    COST_COLUMNS,
    OPEN,
    budget_cells,
    cell,
    cost_cells,
    print_blocks,
    print_json,
    print_table,
    progress_bar,
)
from ipate.errors import InputError, check_number

if TYPE_CHECKING:
    from ipate.engines.teachers.account import Audit, HistoryRow
    from ipate.release.results import Guarantee

ALL = "all"
EXAMPLE = (
    "Example: ipate account votes.npz --groups groups.csv --sigma 40 --check-sigma 150 --threshold 200 "
    "--bound gdp --delta 1e-5. The votes file is an npz with 'votes' (teachers × queries, class ids) and "
    "'groups' (one per teacher); the group file is a csv with the columns group,epsilon and optionally "
    "delta,sensitivity,weight. With --bound all --plot costs.svg every bound is compared and drawn."
)


def command(
    votes: Annotated[Path, Argument(help="The teachers' votes: an npz, a folder or an npy.", metavar="VOTES")],
    groups: Annotated[Path, Option(help="csv file of group budgets.", metavar="GROUPS.csv")],
    sigma: options.Sigma = None,
    check_sigma: options.CheckSigma = None,
    threshold: options.Threshold = None,
    aggregator: options.Aggregator = "auto",
    scale: Annotated[float | None, Option(help="The Laplace scale of lnmax.")] = None,
    student_probs: options.StudentProbs = None,
    gamma: Annotated[
        float | None, Option(help="γ of interactive; accepted as in ipate label, but it does not change the cost.")
    ] = None,
    counts: Annotated[
        bool, Option("--counts", help="Noisy counts were released with the labels (bound gdp only).")
    ] = False,
    answered: Annotated[
        Path | None, Option(help="npy file: 1 answered, 0 asked but not answered, -1 not asked; default: all answered.")
    ] = None,
    bound: Annotated[
        str, Option(help="loose, gdp, sup, tight, exact, a registered bound, or all to compare every one.")
    ] = "gdp",
    conversion: Annotated[str, Option(help="classic or improved; ignored by the bound gdp.")] = "improved",
    delta: options.Delta = 1e-5,
    orders: options.Orders = "2:50",
    classes: options.Classes = None,
    stopped_by: Annotated[
        str, Option(help="What ended the queries: fixed (chosen beforehand), account (this same account) or other.")
    ] = "fixed",
    history: Annotated[
        Path | None, Option(help="Write query,group,epsilon to this csv file, with --bound all also the bound.")
    ] = None,
    plot: Annotated[
        Path | None, Option(help="Draw the costs after every query into this svg, png or pdf file.", metavar="FIGURE")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Compute what the releases on these votes cost each group of people under a bound."""
    from ipate.accounting.bounds import Meter
    from ipate.engines.teachers.account import account_for, check_mask, comparable_bounds, compare_bounds
    from ipate.engines.teachers.aggregators import build_aggregator
    from ipate.engines.teachers.costs import check_supported
    from ipate.engines.teachers.influence import teacher_weights
    from ipate.engines.teachers.panel import Panel
    from ipate.engines.teachers.votes import read_votes
    from ipate.people.budgets import read_groups
    from ipate.release.results import StoppedBy, state_guarantee
    from ipate.report.figures import check_format, plot_costs

    check_number("delta", delta)
    mechanism = build_aggregator(
        aggregator,
        sigma=sigma,
        check_sigma=check_sigma,
        threshold=threshold,
        scale=scale,
        gamma=gamma,
        student_probs=student_probs,
        counts=counts or None,
    ).mechanism
    names = comparable_bounds(mechanism) if bound == ALL else (bound,)
    meters = [Meter(name, conversion, options.parse_orders(orders)) for name in names]
    for meter in meters:
        check_supported(meter, mechanism)
    promised = [state_guarantee(meter, stopped_by=cast("StoppedBy", stopped_by)) for meter in meters]
    if plot is not None:
        options.check_out(check_format(plot), "a figure")
    rows = read_groups(groups)
    ballot = read_votes(votes, classes=classes)
    panel = Panel.from_votes(
        ballot,
        [(row.group, row.epsilon, delta if row.delta is None else row.delta, row.sensitivity) for row in rows],
        weights=teacher_weights(rows, ballot),
    )
    mask = None if answered is None else check_mask(options.load_npy(answered, "--answered"), ballot.n_queries)
    probs = options.load_probs(student_probs, ballot)
    given: dict[str, Any] = {"answered": mask, "student_probs": probs, "stopped_by": stopped_by}
    with (
        _history_writer(history, ballot.queries, promised) as write_history,
        progress_bar("accounting", len(meters) * ballot.n_queries, quiet=as_json) as progress,
    ):
        if bound != ALL and plot is None:  # the history of a single bound is written as it is computed
            write = None if write_history is None else partial(write_history, bound)
            results = [account_for(ballot, panel, mechanism, meters[0], history=write, progress=progress, **given)]
        else:
            comparison = compare_bounds(
                ballot,
                panel,
                mechanism,
                bounds=names,
                conversion=conversion,
                orders=meters[0].orders,
                progress=progress,
                **given,
            )
            results = list(comparison.audits.values())
            if write_history is not None:
                for name in names:
                    write_history(name, comparison.rows(name))
            if plot is not None:
                plot_costs(comparison, plot)
    if bound == ALL:
        _print_all(results, delta, as_json=as_json)
    else:
        _print_one(results[0], delta, as_json=as_json)
    written = [str(path) for path in (history, plot) if path is not None]
    if written and not as_json:
        echo(f"Written: {', '.join(written)}")


def _print_one(result: "Audit", delta: float, *, as_json: bool) -> None:
    """Print the costs under one bound."""
    from ipate.release.results import blocks

    meter = result.meter
    if as_json:
        inputs = {"bound": meter.bound, "conversion": meter.conversion, "delta": delta}
        outcome = {"queries": result.queries, "answered": result.answered}
        print_json(blocks(result.guarantee, inputs=inputs, outcome=outcome, groups=result.groups))
        return
    print_blocks(
        result.guarantee,
        about=f"costs by the {meter.bound} bound",
        outcome=f"{result.queries} queries, {result.answered} of them answered",
        inputs=(["group", *BUDGET_COLUMNS], [[group.id, *budget_cells(group)] for group in result.groups]),
        costs=(
            [*COST_COLUMNS, "exhausted at query"],
            [[*cost_cells(group), cell(group.exhausted_at)] for group in result.groups],
        ),
    )


def _print_all(results: "Sequence[Audit]", delta: float, *, as_json: bool) -> None:
    """Print the costs under every bound: those that may be published in one block, the others in another."""
    from ipate.release.results import blocks

    if as_json:
        payload: dict[str, Any] = {"publishable": {"bounds": {}}, "private": {"bounds": {}}}
        for result in results:
            inputs = {"bound": result.meter.bound, "conversion": result.meter.conversion, "delta": delta}
            outcome = {"queries": result.queries, "answered": result.answered}
            own = blocks(result.guarantee, inputs=inputs, outcome=outcome, groups=result.groups)
            for block, facts in own.items():
                payload[block]["bounds"][result.meter.bound] = facts
        print_json(payload)
        return
    columns = ["group", "bound", *BUDGET_COLUMNS, *COST_COLUMNS, "exhausted at query"]
    for title, publishable in ((OPEN, True), (CLOSED, False)):
        shown = [result for result in results if result.guarantee.publishable is publishable]
        rows = [
            [group.id, result.meter.bound, *budget_cells(group), *cost_cells(group), cell(group.exhausted_at)]
            for position in range(len(results[0].groups))
            for result, group in ((result, result.groups[position]) for result in shown)
        ]
        if rows:
            answered = f"{shown[0].queries} queries, {shown[0].answered} of them answered"
            about = f"{title} ({shown[0].guarantee.headline}): costs by several bounds; {answered}"
            print_table(about, columns, rows, sorted({result.guarantee.statement for result in shown}))


@contextmanager
def _history_writer(
    path: Path | None, ids: tuple[str, ...] | None, promised: "Sequence[Guarantee]"
) -> Iterator["Callable[[str, list[HistoryRow]], None] | None"]:
    """Yield a function that appends the rows of a bound to the history csv, or None if no history is requested.

    A file of costs that may not be published is readable by its owner alone.
    """
    if path is None:
        yield None
        return
    mode = 0o666 if all(guarantee.publishable for guarantee in promised) else 0o600
    try:
        stream = open(path, "w", newline="", encoding="utf-8", opener=partial(os.open, mode=mode))  # noqa: SIM115
        if mode == 0o600 and path.is_file():  # opened, an older file would keep its mode
            path.chmod(mode)
    except OSError as error:
        raise InputError(f"history is {path}: it cannot be written ({error.strerror})") from None
    several = len(promised) > 1
    with stream:
        writer = csv.writer(stream)
        writer.writerow([*(["bound"] if several else []), "query", "group", "epsilon"])
        yield lambda name, rows: writer.writerows(
            [*([name] if several else []), query if ids is None else ids[query], group, repr(value)]
            for query, group, value in rows
        )
