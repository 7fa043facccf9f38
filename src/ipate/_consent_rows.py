"""The rows of a people file: which can be used, and what is wrong with the others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ipate.policy import Policy
from ipate.tables import LIMITS, Table, show

__all__ = ["NAMED", "Problem", "Usable", "read_budgets", "read_ids"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Wrong = tuple[str, str, str | None]  # kind, sentence, nearest level
NAMED = 5  # lines, or people, that a sentence names
_MOST = 100  # problems that are told apart; a wrong column may have as many as rows


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Rows that cannot be used: what is wrong with them, in a sentence, and where the first of them are.

    Attributes
    ----------
    kind : {"missing", "unknown level", "no number", "above the most allowed", "more"}
    text : str
        Names the value and says what is allowed.
    rows : int
        How many rows it concerns.
    lines : tuple of int
        The first of their lines in the file.
    nearest : str or None
        The level that an unknown one is most like.
    """

    kind: str
    text: str
    rows: int
    lines: tuple[int, ...]
    nearest: str | None = None


@dataclass(frozen=True, kw_only=True)
class Usable:
    """The rows that can be used: what they say, whose they are, and where they stand."""

    cells: Sequence[str]
    ids: Sequence[str] | None
    lines: Sequence[int]
    budgets: Floats

    def part(self, rows: Ints) -> "Usable":
        """Return some of the rows."""
        where = rows.tolist()
        return Usable(
            cells=[self.cells[row] for row in where],
            ids=None if self.ids is None else [self.ids[row] for row in where],
            lines=[self.lines[row] for row in where],
            budgets=self.budgets[rows],
        )


def read_budgets(table: Table, column: str, policy: Policy, *, numbers: bool) -> tuple[tuple[Problem, ...], Floats]:
    """Every row's ε, NaN where it has none, and what is wrong with those rows."""
    read, explain = (_number, _no_number) if numbers else (_level, _no_level)
    return _budgets(
        table, table.columns[column], lambda cell: read(cell, policy), lambda cell: explain(cell, column, policy)
    )


def _budgets(
    table: Table, cells: Sequence[str], read: Callable[[str], float], explain: Callable[[str], Wrong]
) -> tuple[tuple[Problem, ...], Floats]:
    """Every row's ε, NaN where it has none, and what is wrong with those rows; each distinct cell is judged once."""
    distinct = {cell: place for place, cell in enumerate(dict.fromkeys(cells))}
    code = np.fromiter(map(distinct.__getitem__, cells), np.int64, len(cells))
    values = np.array([read(cell) for cell in distinct])
    lost = np.isnan(values)
    places = np.flatnonzero(lost)
    rows = np.flatnonzero(lost[code])
    order = rows[np.argsort(code[rows], kind="stable")]
    first = np.searchsorted(code[order], places[: _MOST + 1])  # where the rows of each bad value begin
    ends = [*first[1:].tolist(), len(order)]
    names = list(distinct)
    problems = []
    for place, start, end in zip(places[:_MOST].tolist(), first.tolist(), ends, strict=False):
        kind, text, nearest = explain(names[place])
        lines = _lines(table, order[start:end])
        problems.append(Problem(kind=kind, text=text, nearest=nearest, rows=end - start, lines=lines))
    if len(places) > _MOST:
        more = len(places) - _MOST
        text = f"{more:,} more values that cannot be used, beside the first {_MOST}: is this the right column?"
        left = order[first[_MOST] :]
        problems.append(Problem(kind="more", text=text, rows=len(left), lines=_lines(table, left)))
    return tuple(problems), values[code]


def _level(cell: str, policy: Policy) -> float:
    return float(policy.levels.get(cell, np.nan))


def _no_level(cell: str, column: str, policy: Policy) -> Wrong:
    if not cell:
        return "missing", f"{column} is missing: every row needs a level", None
    return "unknown level", policy.unknown(cell), policy.nearest(cell)


def _number(cell: str, policy: Policy) -> float:
    try:
        value = float(cell)
    except ValueError:
        return np.nan
    most = np.inf if policy.max_epsilon is None else policy.max_epsilon
    return value if LIMITS["epsilon"][0](value) and value <= most else np.nan


def _no_number(cell: str, column: str, policy: Policy) -> Wrong:
    if not cell:
        return "missing", f"{column} is missing: every row needs a number", None
    if not np.isnan(_number(cell, replace(policy, max_epsilon=None))):
        most = f"at most max_epsilon = {policy.max_epsilon!r} is allowed"
        return "above the most allowed", f"{column} is {show(cell)}: {most}", None
    return "no number", f"{column} is {show(cell)}: {LIMITS['epsilon'][1]}", None


def read_ids(table: Table, column: str) -> tuple[tuple[Problem, ...], NDArray[np.bool_]]:
    """Which rows say whose they are, and what is wrong with those that do not."""
    good = np.array([0 < len(cell) <= 200 and "\0" not in cell for cell in table.columns[column]])
    if good.all():
        return (), good
    rows = np.flatnonzero(~good)
    text = f"{column} is missing or no id: a person needs a text of 1 to 200 characters"
    return (Problem(kind="missing", text=text, rows=len(rows), lines=_lines(table, rows)),), good


def _lines(table: Table, rows: Ints) -> tuple[int, ...]:
    return tuple(table.lines[row] for row in rows[:NAMED].tolist())
