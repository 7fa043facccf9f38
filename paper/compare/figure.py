"""The figure of the comparison: accuracy against ε, one panel per data set, readable on light and on dark pages."""

from collections.abc import Mapping
from typing import Any

from paper.compare.verdicts import Board
from paper.compare.worlds import BUDGETS, SPECS
from paper.pages import draw

NAME = "fig-compare.svg"
_LINES: Mapping[str, tuple[str, str, Any, str]] = {  # method → what the legend says, colour, dashes, marker
    "ballots": ("ipate ballots", "#0072b2", "-", "o"),
    "teachers": ("ipate teachers", "#009e73", "-", "s"),
    "descent": ("noisy gradient descent", "#d55e00", (0, (5, 1.5)), "D"),
    "dpsgd": ("DP-SGD (Opacus)", "#cc79a7", (0, (5, 1.5, 1, 1.5)), "^"),
    "pate": ("PATE of the paper", "#8a6d00", (0, (1.5, 1.2)), "v"),
}
_CEILING = "#6e7781"
_DARK = """<style>
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 !important; }
[style*="fill: #ffffff"] { fill: #0d1117 !important; }
[style*="stroke: #000000"] { stroke: #c9d1d9 !important; }
[style*="stroke: #d9dee3"] { stroke: #30363d !important; }
[style*="stroke: #0072b2"] { stroke: #58a6ff !important; }
[style*="fill: #0072b2"] { fill: #58a6ff !important; }
[style*="stroke: #009e73"] { stroke: #3fb950 !important; }
[style*="fill: #009e73"] { fill: #3fb950 !important; }
[style*="stroke: #d55e00"] { stroke: #ff9b4d !important; }
[style*="fill: #d55e00"] { fill: #ff9b4d !important; }
[style*="stroke: #cc79a7"] { stroke: #f0a6d0 !important; }
[style*="fill: #cc79a7"] { fill: #f0a6d0 !important; }
[style*="stroke: #8a6d00"] { stroke: #e3b341 !important; }
[style*="fill: #8a6d00"] { fill: #e3b341 !important; }
[style*="stroke: #6e7781"] { stroke: #9aa4ae !important; }
}
</style>"""


def compare_figure(board: Board) -> str:
    """Return the SVG; the same results give the same bytes."""
    shown = [spec for spec in SPECS.values() if board.of_data(spec, individual=False)]
    columns = min(4, max(1, len(shown)))
    rows = -(-len(shown) // columns)

    def paint(axes: Any) -> list[Any]:
        from matplotlib.lines import Line2D
        from matplotlib.ticker import FixedLocator, NullLocator

        flat = [axis for row in axes for axis in row]
        for axis, spec in zip(flat, shown, strict=False):
            cells = board.of_data(spec, individual=False)
            ticks = {cell.budget: BUDGETS[cell.budget].epsilon[0] for cell in cells}
            for method, (_, colour, dashes, marker) in _LINES.items():
                points = [
                    (ticks[cell.budget], row.spread)
                    for cell in cells
                    if (row := cell.row(method)) is not None and row.complete
                ]
                axis.errorbar(
                    [x for x, _ in points],
                    [y.mean for _, y in points],
                    yerr=[y.sd for _, y in points],
                    color=colour,
                    linestyle=dashes,
                    marker=marker,
                    markersize=4.5,
                    linewidth=1.6,
                    capsize=2,
                )
            ceiling = board.reference(spec, "ceiling")
            if ceiling is not None:
                axis.axhline(ceiling.spread.mean, color=_CEILING, linewidth=1.0, linestyle=(0, (4, 3)))
            axis.set_xscale("log")
            axis.xaxis.set_major_locator(FixedLocator(list(ticks.values())))
            axis.xaxis.set_minor_locator(NullLocator())
            axis.set_xticklabels(list(ticks), fontsize=8)
            axis.set_title(spec.title, fontsize=10)
        for axis in flat[len(shown) :]:
            axis.set_visible(False)
        for axis in axes[-1]:
            axis.set_xlabel("ε")
        for axis in axes[:, 0]:
            axis.set_ylabel("test accuracy, %")
        return [
            *(
                Line2D([], [], color=colour, linestyle=dashes, marker=marker, markersize=5, linewidth=1.6, label=title)
                for title, colour, dashes, marker in _LINES.values()
            ),
            Line2D([], [], color=_CEILING, linestyle=(0, (4, 3)), linewidth=1.0, label="without privacy"),
        ]

    made = draw(paint, rows=rows, columns=columns, size=(2.9 * columns, 2.6 * rows + 0.7))
    head, start, rest = made.partition("<defs>")
    return f"{head}{_DARK}\n {start}{rest}"
