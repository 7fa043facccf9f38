"""Figures as small SVG files: colours of Okabe and Ito, which all common forms of colour vision tell apart."""

import io
from collections.abc import Callable
from typing import Any

__all__ = ["COLOURS", "DASHES", "draw"]

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
