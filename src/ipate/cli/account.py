"""`ipate account`: compute what releases cost each group under a bound."""

import csv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from typer import Argument, Option

from ipate.cli import options
from ipate.cli.output import (
    BUDGET_COLUMNS,
    COST_COLUMNS,
    budget_cells,
    cell,
    cost_cells,
    print_blocks,
    print_json,
    progress_bar,
)  # fmt: skip
from ipate.errors import InputError, check_number

if TYPE_CHECKING:
    from ipate.labelling.audit import HistoryRow

EXAMPLE = (
    "Example: ipate account votes.npz --groups groups.csv --sigma 40 --check-sigma 150 --threshold 200 "
    "--bound gdp --delta 1e-5. The votes file is an npz with 'votes' (teachers × queries, class ids) and "
    "'groups' (one per teacher); the group file is a csv with the columns group,epsilon and optionally "
    "delta,sensitivity,weight."
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
    bound: Annotated[str, Option(help="loose, gdp, sup, tight, exact, or a registered bound.")] = "gdp",
    conversion: Annotated[str, Option(help="classic or improved; ignored by the bound gdp.")] = "improved",
    delta: options.Delta = 1e-5,
    orders: options.Orders = "2:50",
    classes: options.Classes = None,
    stopped_by: Annotated[
        str, Option(help="What ended the queries: fixed (chosen beforehand), account (this same account) or other.")
    ] = "fixed",
    history: Annotated[Path | None, Option(help="Write query,group,epsilon to this csv file.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Compute what the releases on these votes cost each group of people under a bound."""
    from ipate.accounting.bounds import Meter
    from ipate.allocation.layout import teacher_weights
    from ipate.labelling.aggregators import build_aggregator
    from ipate.labelling.audit import account_for, check_mask
    from ipate.labelling.costs import check_supported
    from ipate.labelling.results import StoppedBy, blocks, state_guarantee
    from ipate.people.budgets import read_groups
    from ipate.votes import read_votes
    from ipate.votes.panel import Panel

    check_number("delta", delta)
    mechanism = build_aggregator(
        aggregator, sigma=sigma, check_sigma=check_sigma, threshold=threshold, scale=scale, gamma=gamma,
        student_probs=student_probs, counts=counts or None,
    ).mechanism  # fmt: skip
    meter = Meter(bound, conversion, options.parse_orders(orders))
    check_supported(meter, mechanism)
    state_guarantee(meter, stopped_by=cast("StoppedBy", stopped_by))
    rows = read_groups(groups)
    ballot = read_votes(votes, classes=classes)
    panel = Panel.from_votes(
        ballot,
        [(row.group, row.epsilon, delta if row.delta is None else row.delta, row.sensitivity) for row in rows],
        weights=teacher_weights(rows, ballot),
    )
    mask = None if answered is None else check_mask(options.load_npy(answered, "--answered"), ballot.n_queries)
    probs = options.load_probs(student_probs, ballot)
    with (
        _history_writer(history, ballot.queries) as write_history,
        progress_bar("accounting", ballot.n_queries, quiet=as_json) as progress,
    ):
        result = account_for(
            ballot, panel, mechanism, meter, answered=mask, student_probs=probs,
            stopped_by=cast("StoppedBy", stopped_by), history=write_history, progress=progress,
        )  # fmt: skip
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


@contextmanager
def _history_writer(
    path: Path | None, ids: tuple[str, ...] | None
) -> Iterator["Callable[[list[HistoryRow]], None] | None"]:
    """Yield a function that appends rows to the history csv, or None if no history is requested."""
    if path is None:
        yield None
        return
    try:
        stream = path.open("w", newline="", encoding="utf-8")
    except OSError as error:
        raise InputError(f"history is {path}: it cannot be written ({error.strerror})") from None
    with stream:
        writer = csv.writer(stream)
        writer.writerow(["query", "group", "epsilon"])
        yield lambda rows: writer.writerows(
            (query if ids is None else ids[query], group, repr(value)) for query, group, value in rows
        )
