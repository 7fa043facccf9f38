"""Figures as files: the costs of releases under one or several bounds, query by query."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ipate.errors import InputError
from ipate.files import FilePath, replacing
from ipate.labelling.comparison import Comparison

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".svg", ".png", ".pdf")
PRIVATE = "NOT TO BE PUBLISHED: costs computed from private votes"
_COLOURS = ("#0072b2", "#c44e00", "#00805c", "#a3507d", "#8a6d00", "#444c55")  # Okabe and Ito's, darkened for contrast
_POINTS = 400  # at most, in a line


def plot_costs(comparison: Comparison, path: FilePath | None = None, *, log: bool = False) -> "Figure":
    """Plot ε against queries, one panel per group and one line per bound, with the budget as a dotted line.

    Solid lines are bounds whose costs may be published, dashed lines those that are private. A figure with a private
    line says so in its heading, and its file is readable by its owner alone.

    Parameters
    ----------
    comparison : Comparison
        The result of `compare_bounds`.
    path : path, optional
        Where to write the figure: svg, png or pdf.
    log : bool
        Whether ε has a logarithmic axis.

    Returns
    -------
    matplotlib.figure.Figure
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    target = None if path is None else check_format(path)
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "costs", "text.parse_math": False}
    with mpl.rc_context(settings):
        figure = Figure(figsize=(1.2 + 3.6 * len(comparison.groups), 3.8), layout="constrained", facecolor="white")
        panels = figure.subplots(1, len(comparison.groups), squeeze=False)[0]
        for column, axes in enumerate(panels):
            for place, (name, audit) in enumerate(comparison.audits.items()):
                costs = comparison.history[name][:, column]
                shown = np.unique(np.linspace(0, len(costs) - 1, min(len(costs), _POINTS)).astype(int))
                axes.plot(
                    shown + 1, costs[shown], color=_COLOURS[place % len(_COLOURS)], label=name,
                    linestyle="-" if audit.guarantee.publishable else "--",
                )  # fmt: skip
            group = next(iter(comparison.audits.values())).groups[column]
            axes.axhline(group.budget.epsilon, color="#1b1f24", linewidth=1.5, linestyle=":", label="budget")
            axes.set(title=group.id, xlabel="queries", yscale="log" if log else "linear", xlim=(0, None))
            if log:
                axes.yaxis.set_major_formatter("{x:g}")
                axes.yaxis.set_minor_formatter("")
            else:
                axes.set_ylim(0, None)
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(True, alpha=0.3)
        panels[0].set_ylabel("cost ε")
        panels[0].legend(frameon=False)
        if not comparison.publishable:
            figure.suptitle(PRIVATE, color="#8f1d14", fontsize="medium")
        if target is not None:
            metadata = {"Date": None} if target.suffix.lower() == ".svg" else None
            with replacing(target, private=not comparison.publishable) as file:
                figure.savefig(file, format=target.suffix[1:].lower(), metadata=metadata)
    return figure


def check_format(path: FilePath) -> Path:
    """Return the path of a figure; refuse a format that cannot be written."""
    found = Path(path)
    if found.suffix.lower() not in FORMATS:
        raise InputError(f"plot is {found}: the name of a figure must end in {', '.join(FORMATS)}")
    return found
