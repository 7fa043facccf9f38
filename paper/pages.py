"""Pages of results: cells with our figure, the paper's and a verdict, in tables with notes and figures."""

import io
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ipate.files import write_text

_CLOSE = 0.10  # relative; for accuracies in per cent see `_CLOSE_POINTS`
_CLOSE_POINTS = 1.0
_MARKS = {"within the spread": "✓", "close": "≈", "differs": "≠"}


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Mean and sample standard deviation of n values."""

    mean: float
    sd: float
    n: int


def spread(values: Iterable[float]) -> Spread:
    """Return the spread of some values; NaN values are left out."""
    array = np.array([value for value in values if not math.isnan(value)], dtype=np.float64)
    if not array.size:
        return Spread(mean=float("nan"), sd=float("nan"), n=0)
    return Spread(mean=float(array.mean()), sd=float(array.std(ddof=1)) if array.size > 1 else 0.0, n=array.size)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One of our figures, beside the paper's where it has one."""

    ours: Spread
    theirs: float | None = None
    theirs_sd: float | None = None
    percent: bool = False  # accuracies in per cent: close means within 1 point, not within 10%
    digits: int = 0
    note: str = ""  # the letter of the table's note that says why the two differ

    @property
    def verdict(self) -> str:
        """Compare: within two standard deviations (ours, theirs if printed), close (10% or one point), or not."""
        if self.theirs is None or math.isnan(self.ours.mean):
            return "no counterpart" if self.theirs is None else "differs"
        apart = abs(self.ours.mean - self.theirs)
        if apart <= 2 * math.hypot(self.ours.sd, self.theirs_sd or 0.0):
            return "within the spread"
        near = _CLOSE_POINTS if self.percent else _CLOSE * abs(self.theirs)
        return "close" if apart <= near else "differs"

    def text(self) -> str:
        """Return ours ± sd / theirs, and a mark: ✓ within the spread, ≈ close, ≠ differs (with its note)."""
        ours = number(self.ours.mean, self.digits)
        if self.ours.n > 1:
            ours += f" ± {number(self.ours.sd, self.digits)}"
        if self.theirs is None:
            return ours
        mark = _MARKS[self.verdict]
        return f"{ours} / {number(self.theirs, self.digits)} {mark}{self.note if mark == '≠' else ''}"

    def json(self) -> dict[str, Any]:
        """Return the cell as JSON; NaN becomes null."""
        mean, sd = (None if math.isnan(value) else round(value, 6) for value in (self.ours.mean, self.ours.sd))
        return {
            "ours": mean,
            "sd": sd,
            "n": self.ours.n,
            "theirs": self.theirs,
            "verdict": None if self.theirs is None else self.verdict,
            "note": self.note or None,
        }


Row: TypeAlias = tuple[str, Sequence[Cell | str]]
"""A row's name and its cells; a cell may also be plain text."""


def number(value: float, digits: int = 0) -> str:
    """Format a number with separated thousands; a dash stands for NaN."""
    return "–" if math.isnan(value) else f"{value:,.{digits}f}"


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of cells under columns, with notes."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Row]
    notes: Sequence[str] = ()

    @property
    def all_notes(self) -> list[str]:
        """The notes, and one for every letter that a cell refers to and no note explains."""
        cells = [cell for _, row in self.rows for cell in row if isinstance(cell, Cell)]
        letters = {cell.note for cell in cells if cell.note and cell.theirs is not None and cell.verdict == "differs"}
        unexplained = sorted(letters - {note.partition(":")[0] for note in self.notes})
        return [*self.notes, *(f"{letter}: {_UNEXPLAINED}" for letter in unexplained)]

    def markdown(self) -> str:
        """Return the table, then its notes as a list."""
        lines = [f"### {self.title}", "", "| " + " | ".join(("", *self.columns)) + " |"]
        lines.append("| --- " * (1 + len(self.columns)) + "|")
        for name, cells in self.rows:
            shown = (cell if isinstance(cell, str) else cell.text() for cell in cells)
            lines.append("| " + " | ".join((name, *shown)) + " |")
        lines += ["", *(f"- {note}" for note in self.all_notes)] if self.all_notes else []
        return "\n".join(lines)

    def json(self) -> dict[str, Any]:
        """Return the table as JSON."""
        rows = {
            name: dict(zip(self.columns, (c if isinstance(c, str) else c.json() for c in cells), strict=True))
            for name, cells in self.rows
        }
        return {"title": self.title, "rows": rows, "notes": self.all_notes}


_UNEXPLAINED = (
    "outside the spread of these votings; one ensemble and one voting have no spread at all, so that --quick marks "
    "more cells than the paper's 10 ensembles and 5 votings each would"
)
_LEGEND = (
    "Cells are ours ± standard deviation / the paper's. ✓: within two standard deviations; ≈: within 10% (accuracies: "
    "one point); ≠: neither, for the reason in the note of that letter."
)


@dataclass(frozen=True, kw_only=True)
class Page:
    """The results of one experiment."""

    name: str
    title: str
    about: str  # what was measured and how, in a few sentences
    tables: Sequence[Table] = ()
    findings: Sequence[str] = ()  # sentences with measured figures in them
    figures: dict[str, str] = field(default_factory=dict)  # SVG text by file name
    facts: dict[str, Any] = field(default_factory=dict)  # further entries of the JSON

    def markdown(self, command: str) -> str:
        """Return the page as in docs/results."""
        parts = [f"# {self.title}", self.about, f"Made by `{command}`."]
        parts += [f"![{self.title}]({name})" for name in self.figures]
        if any(isinstance(c, Cell) and c.theirs is not None for t in self.tables for _, r in t.rows for c in r):
            parts.append(_LEGEND)
        parts += [table.markdown() for table in self.tables]
        if self.findings:
            parts.append("## What this shows\n\n" + "\n".join(f"- {finding}" for finding in self.findings))
        return "\n\n".join(parts) + "\n"

    def json(self, command: str) -> dict[str, Any]:
        """Return the page as JSON."""
        return {
            "name": self.name,
            "title": self.title,
            "about": self.about,
            "command": command,
            "tables": [table.json() for table in self.tables],
            "findings": list(self.findings),
            **self.facts,
        }

    def write(self, out: str | Path, *, command: str) -> list[Path]:
        """Write NAME.json, NAME.md and the figures into a folder; return their paths."""
        folder = Path(out)
        folder.mkdir(parents=True, exist_ok=True)
        files = {f"{self.name}.json": json.dumps(self.json(command), indent=1, ensure_ascii=False) + "\n"}
        files |= {f"{self.name}.md": self.markdown(command), **self.figures}
        for name, text in files.items():
            write_text(folder / name, text)
        return [folder / name for name in files]


COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9", "#444c55", "#e69f00")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (5, 1.5, 1, 1.5)), (0, (1.5, 1.2)))
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "ipate",
    "svg.fonttype": "none",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#d9dee3",
    "grid.linewidth": 0.6,
    "figure.facecolor": "white",
}


def draw(
    paint: Callable[[Any], list[Any] | None], *, rows: int = 1, columns: int = 1, size: tuple[float, float]
) -> str:
    """Return an SVG of axes that `paint` fills, with a legend of the handles it returns; same data, same bytes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        engine: Any = figure.get_layout_engine()
        engine.set(w_pad=0.08, h_pad=0.08)
        handles = paint(figure.subplots(rows, columns, squeeze=False))
        if handles:
            figure.legend(handles=handles, loc="outside upper center", ncols=4, frameon=False, handlelength=3.4)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()
