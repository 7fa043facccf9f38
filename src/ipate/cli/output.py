"""Output of the commands: tables or JSON on stdout, progress and messages on stderr."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from ipate.labelling.results import GroupResult, Guarantee, Record

Rows: TypeAlias = Sequence[Sequence[str]]
COST_COLUMNS = ("sensitivity", "budget ε", "cost ε", "δ", "used")


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


def cell(value: float | str | None, spec: str = "") -> str:
    """Format one cell of a table; a missing value is shown as a dash."""
    return "—" if value is None else format(value, spec)


def cost_cells(group: "GroupResult") -> list[str]:
    """Format the cells of `COST_COLUMNS` for one group."""
    epsilon, delta = group.budget.epsilon, group.budget.delta
    return [f"{group.sensitivity:.4g}", f"{epsilon:.4g}", f"{group.cost:.4f}", f"{delta:g}", f"{group.used:.0%}"]


def statement_line(guarantee: "Guarantee | Record") -> str:
    """Return the statement of a guarantee, marked if it is private."""
    return ("PRIVATE. " if guarantee.kind == "private" else "") + guarantee.statement


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
