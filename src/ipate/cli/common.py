"""What the commands share: options read strictly, tables for people, JSON for machines."""

import json
import math
import sys
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.errors import InputError
from ipate.tables import GroupRow

__all__ = [
    "check_out",
    "load_npy",
    "parse_orders",
    "print_json",
    "print_table",
    "progress_bar",
    "teacher_weights",
    "waiting",
]

_MOST_ORDERS = 10_000  # every order costs time and memory for every query; the paper has 49


def parse_orders(text: str) -> list[float]:
    """Read Rényi orders: `2:50` (both ends, step 1), `2:10:0.5`, or a list such as `2,4,8.5`."""
    try:
        if ":" not in text:
            return [float(part) for part in text.split(",")]
        start, stop, *rest = (float(part) for part in text.split(":"))
        step = rest[0] if rest else 1.0
        steps = (stop - start) / step if step > 0 else math.nan
        if len(rest) > 1 or not 0 <= steps < _MOST_ORDERS:
            raise ValueError
        return [start + step * i for i in range(int(steps + 1e-9) + 1)]
    except ValueError:
        raise InputError(
            f"orders are {text!r}: write FIRST:LAST, FIRST:LAST:STEP or a list such as 2,4,8, "
            f"at most {_MOST_ORDERS} orders"
        ) from None


def check_out(path: Path, what: str) -> None:
    """Refuse a place that cannot be written to, before anything is computed for it, let alone charged."""
    if path.is_dir():
        raise InputError(f"{path}: is a folder; {what} must be a file, so name one in it")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent}: no such folder; make it first, {what} needs one")


def load_npy(path: Path, what: str) -> NDArray[Any]:
    """Read one array from an npy file, without pickle."""
    if not path.is_file():
        raise InputError(f"{path}: no such file; {what} must be an npy file")
    try:
        with path.open("rb") as stream:
            array = np.load(stream, allow_pickle=False)
    except (ValueError, OSError, EOFError, MemoryError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: not a readable npy file, and pickle is refused ({error})") from None
    if not isinstance(array, np.ndarray):
        array.close()
        raise InputError(f"{path}: holds several arrays; {what} must be one array in an npy file")
    return array


def teacher_weights(
    rows: Sequence[GroupRow],
    groups: tuple[str, ...] | None,
    stored: NDArray[np.float64] | None,
    n_teachers: int,
) -> NDArray[np.float64]:
    """Return every teacher's weight as the files give it; npz and csv must agree, 1 unless said."""
    given = {row.group: row.weight for row in rows if row.weight is not None}
    if groups is None or not given:
        if given:
            name = next(iter(given))
            raise InputError(f"group {name!r} has a weight, but the votes name no groups: put weights in the npz")
        return np.ones(n_teachers) if stored is None else stored
    weights = np.ones(n_teachers) if stored is None else stored.copy()
    for index, name in enumerate(groups):
        if name not in given:
            continue
        if stored is not None and not np.isclose(stored[index], given[name], rtol=1e-9, atol=0):
            raise InputError(
                f"group {name!r} has the weight {given[name]:g} in the csv and {stored[index]:g} in the npz: "
                "they must agree"
            )
        weights[index] = given[name]
    return weights


def print_json(payload: dict[str, Any]) -> None:
    """Write one JSON object to stdout, and nothing else; numbers that do not exist become null."""
    plain = "utf" not in (sys.stdout.encoding or "").lower()
    sys.stdout.write(json.dumps(_finite(payload), indent=2, allow_nan=False, ensure_ascii=plain) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str]) -> None:
    """Print a table, numbers to the right, and sentences below it."""
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


@contextmanager
def waiting(what: str, *, quiet: bool = False) -> Iterator[None]:
    """Show on stderr that work goes on whose length is not known beforehand."""
    from rich.console import Console

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield
        return
    with console.status(what):
        yield


@contextmanager
def progress_bar(what: str, total: int, *, quiet: bool = False) -> Iterator[Any]:
    """Show a bar on stderr while work goes on; yields a function that takes how much is done."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
