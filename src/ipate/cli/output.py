"""Output of the commands: tables or JSON on stdout, progress and messages on stderr."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from ipate.release.results import GroupResult, Guarantee, Record

Rows: TypeAlias = Sequence[Sequence[str]]
BUDGET_COLUMNS = ("budget ε", "δ")
COST_COLUMNS = ("sensitivity", "cost ε", "used")
OPEN, CLOSED = "MAY BE PUBLISHED", "NOT TO BE PUBLISHED"


class StoppedError(Exception):
    """The user interrupted a command; the message says how to continue."""


def print_json(payload: dict[str, Any]) -> None:
    """Write one JSON object to stdout, and nothing else; NaN and infinities become null."""
    from ipate.files import json_text

    sys.stdout.write(json_text(payload, ascii_only="utf" not in (sys.stdout.encoding or "").lower()))


def print_table(title: str, columns: Sequence[str], rows: Rows, notes: Sequence[str]) -> None:
    """Print a table with right-aligned numbers, and notes below it."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else 110, highlight=False)
    console.print(Text(title, style="bold"))
    table = Table()
    for index, column in enumerate(columns):
        table.add_column(Text(column), justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
    for note in notes:
        console.print(Text(note))


def print_result(
    as_json: bool, payload: dict[str, Any], title: str, columns: Sequence[str], rows: Rows, notes: Sequence[str]
) -> None:
    """Print the result of a command: the payload as JSON, or the table."""
    if as_json:
        print_json(payload)
    else:
        print_table(title, columns, rows, notes)


def print_blocks(
    guarantee: "Guarantee",
    *,
    about: str,
    outcome: str,
    inputs: tuple[Sequence[str], Rows],
    costs: tuple[Sequence[str], Rows],
    scores: Rows = (),
    notes: Sequence[str] = (),
) -> None:
    """Print two blocks: what may be published and what may not.

    `about` and the table of `inputs` are public under every guarantee, `outcome`, the table of `costs` (with the same
    groups in the same order) and the `notes` if it is releasable, and `scores` (a name and a value each) never.
    """
    (columns, rows), (more_columns, more_rows) = inputs, costs
    if guarantee.publishable:
        whole = [[*row, *more] for row, more in zip(rows, more_rows, strict=True)]
        title = f"{OPEN} ({guarantee.headline}): {about}; {outcome}"
        print_table(title, [*columns, *more_columns], whole, [guarantee.statement, *notes])
        if scores:
            print_table(f"{CLOSED}: found with true labels or private votes", ["", "value"], scores, [])
        return
    print_table(f"{OPEN}: {about}", columns, rows, [])
    private = [[row[0], *more] for row, more in zip(rows, more_rows, strict=True)]
    title = f"{CLOSED} ({guarantee.headline}): {outcome}"
    print_table(title, [columns[0], *more_columns], private, [guarantee.statement, *notes])
    if scores:
        print_table(f"{CLOSED} ({guarantee.headline}): scores", ["", "value"], scores, [])


def labels_given(record: "Record", *, least: int) -> str:
    """Return how many labels a run released, and from what; beside a group of few people no weight is told."""
    from ipate.engines.ballots.design import figure
    from ipate.errors import counted
    from ipate.people.budgets import has_small

    found = record.ballots
    if found is None:
        own = f", and the student's own class at {len(record.reinforced):,} more" if record.reinforced else ""
        return f"{counted(record.n_labels, 'label')} from {record.n_queries:,} queries{own}"
    weigh = f", all ballots together weigh {figure(found.weight)} noise deviations, {figure(found.per_class)} per class"
    if has_small((group.group.people for group in record.groups), least=least):  # it would tell the size
        weigh = ""
    cells = f"{counted(found.partitions, 'partition')} of {counted(found.cells, 'cell')}"
    return f"{counted(record.n_labels, 'label')} from one histogram: {cells}{weigh}"


def cell(value: float | str | None, spec: str = "") -> str:
    """Format one cell of a table; a missing value is shown as a dash."""
    return "—" if value is None else format(value, spec)


def budget_cells(group: "GroupResult") -> list[str]:
    """Format the cells of `BUDGET_COLUMNS` for one group."""
    return [f"{group.budget.epsilon:.4g}", f"{group.budget.delta:g}"]


def cost_cells(group: "GroupResult") -> list[str]:
    """Format the cells of `COST_COLUMNS` for one group."""
    from ipate.report.formats import used

    return [f"{group.sensitivity:.4g}", f"{group.cost:.4f}", used(group.used)]


@contextmanager
def logged() -> Iterator[None]:
    """Print what is logged under the name ipate on stderr."""
    import logging

    logger, handler = logging.getLogger("ipate"), logging.StreamHandler()
    handler.setFormatter(logging.Formatter("ipate: %(message)s"))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@contextmanager
def waiting(what: str, *, quiet: bool = False) -> Iterator[None]:
    """Show a spinner on stderr during work of unknown length."""
    from rich.console import Console

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield
        return
    with console.status(what):
        yield


@contextmanager
def progress_bar(what: str, total: int, *, quiet: bool = False) -> Iterator[Any]:
    """Show a progress bar on stderr; yields a function that takes the amount done."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
