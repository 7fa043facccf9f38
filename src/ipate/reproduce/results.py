"""What a reproduction finds: cells with ours, theirs and a verdict, in tables, with notes and figures."""

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ipate.reproduce.voting import Spread

CLOSE = 0.10  # relative; for accuracies in per cent see `ABSOLUTE`
ABSOLUTE = 1.0


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One figure of ours, beside the paper's where it has one.

    Attributes
    ----------
    ours : Spread
    theirs : float, optional
    percent : bool
        Accuracies in per cent: close means within 1 point, not within 10%.
    digits : int
    note : str
        A reference such as "a" to a note of the table, where they differ.
    """

    ours: Spread
    theirs: float | None = None
    theirs_sd: float | None = None
    percent: bool = False
    digits: int = 0
    note: str = ""

    @property
    def verdict(self) -> str:
        """What `verdict` says."""
        return verdict(self.ours, self.theirs, percent=self.percent, theirs_sd=self.theirs_sd)

    def text(self) -> str:
        """Ours ± sd / theirs, and a mark: ✓ within the spread, ≈ close, ≠ differs (with its note)."""
        ours = number(self.ours.mean, self.digits)
        if self.ours.n > 1:
            ours += f" ± {number(self.ours.sd, self.digits)}"
        if self.theirs is None:
            return ours
        mark = {"within the spread": "✓", "close": "≈", "differs": "≠"}[self.verdict]
        return f"{ours} / {number(self.theirs, self.digits)} {mark}{self.note if mark == '≠' else ''}"

    def json(self) -> dict[str, Any]:
        """The cell for machines."""
        return {
            "ours": _plain(self.ours.mean), "sd": _plain(self.ours.sd), "n": self.ours.n, "theirs": self.theirs,
            "verdict": None if self.theirs is None else self.verdict, "note": self.note or None,
        }  # fmt: skip


def verdict(ours: Spread, theirs: float | None, *, percent: bool = False, theirs_sd: float | None = None) -> str:
    """Compare: within two standard deviations of ours (theirs added where printed), close (10%, or one point), or not.

    The paper prints no spread outside Table 1, so ours stands for both.
    """
    if theirs is None or math.isnan(ours.mean):
        return "no counterpart" if theirs is None else "differs"
    apart = abs(ours.mean - theirs)
    if apart <= 2 * math.hypot(ours.sd, theirs_sd or 0.0):
        return "within the spread"
    near = ABSOLUTE if percent else CLOSE * abs(theirs)
    return "close" if apart <= near else "differs"


def number(value: float, digits: int = 0) -> str:
    """Return a number for people: thousands separated, a dash where there is none."""
    return "–" if math.isnan(value) else f"{value:,.{digits}f}"


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 6)


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of cells under columns; a cell may also be plain text."""

    title: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Cell | str]]]
    notes: Sequence[str] = ()

    def markdown(self) -> str:
        """The table, then its notes as a list."""
        lines = [f"### {self.title}", "", "| " + " | ".join(("", *self.columns)) + " |"]
        lines.append("| --- " * (1 + len(self.columns)) + "|")
        for name, cells in self.rows:
            shown = (cell if isinstance(cell, str) else cell.text() for cell in cells)
            lines.append("| " + " | ".join((name, *shown)) + " |")
        lines += ["", *(f"- {note}" for note in self.notes)] if self.notes else []
        return "\n".join(lines)

    def json(self) -> dict[str, Any]:
        """The table for machines."""
        rows = {
            name: dict(zip(self.columns, (c if isinstance(c, str) else c.json() for c in cells), strict=True))
            for name, cells in self.rows
        }
        return {"title": self.title, "rows": rows, "notes": list(self.notes)}


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """Everything that one command found.

    Attributes
    ----------
    name, title, about : str
        `about` says in a few sentences what was measured and how.
    tables : sequence of Table
    findings : sequence of str
        Sentences with measured figures in them.
    figures : dict
        SVG text by file name.
    facts : dict
        Whatever else belongs into the JSON.
    """

    name: str
    title: str
    about: str
    tables: Sequence[Table] = ()
    findings: Sequence[str] = ()
    figures: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def markdown(self, command: str) -> str:
        """The page in docs/results."""
        parts = [f"# {self.title}", self.about, f"Made by `{command}`."]
        parts += [f"![{self.title}]({name})" for name in self.figures]
        if self.tables and any(
            isinstance(c, Cell) and c.theirs is not None for t in self.tables for _, r in t.rows for c in r
        ):
            parts.append(_LEGEND)
        parts += [table.markdown() for table in self.tables]
        if self.findings:
            parts.append("## What this shows\n\n" + "\n".join(f"- {finding}" for finding in self.findings))
        return "\n\n".join(parts) + "\n"

    def json(self, command: str) -> dict[str, Any]:
        """The page's twin for machines."""
        return {
            "name": self.name, "title": self.title, "about": self.about, "command": command,
            "tables": [table.json() for table in self.tables], "findings": list(self.findings), **self.facts,
        }  # fmt: skip

    def counts(self) -> dict[str, int]:
        """How many cells have which verdict."""
        found: dict[str, int] = {}
        for table in self.tables:
            for _, cells in table.rows:
                for cell in cells:
                    if isinstance(cell, Cell) and cell.theirs is not None:
                        found[cell.verdict] = found.get(cell.verdict, 0) + 1
        return found


_LEGEND = (
    "Cells are ours ± standard deviation / the paper's. ✓: within two standard deviations; ≈: within 10% (accuracies: "
    "one point); ≠: neither, for the reason in the note of that letter."
)
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9", "#444c55", "#e69f00")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (5, 1.5, 1, 1.5)), (0, (1.5, 1.2)))
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "ipate", "svg.fonttype": "none", "font.size": 10, "axes.spines.top": False,
    "axes.spines.right": False, "axes.grid": True, "grid.color": "#d9dee3", "grid.linewidth": 0.6,
    "figure.facecolor": "white",
}  # fmt: skip


def draw(
    paint: Callable[[Any], list[Any] | None],
    *,
    rows: int = 1,
    columns: int = 1,
    size: tuple[float, float],
    shared: bool = False,
) -> str:
    """Return an SVG of a grid of axes that `paint` fills; the same data gives the same bytes.

    Parameters
    ----------
    paint : callable
        Receives the axes (a matrix of them); returns the handles of a common legend, if any.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        engine: Any = figure.get_layout_engine()
        engine.set(w_pad=0.08, h_pad=0.08)
        axes = figure.subplots(rows, columns, squeeze=False, sharex=shared, sharey=False)
        handles = paint(axes)
        if handles:
            figure.legend(handles=handles, loc="outside upper center", ncols=4, frameon=False, handlelength=3.4)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()
