"""The figures as HTML with inline SVG: colours follow the page's colour scheme, and text is kept as text.

Every figure is drawn for wide and for narrow screens, because text in a scaled-down figure is unreadable. The palette
is Okabe and Ito's, which is safe for colour-blind readers, and line styles differ.

Figures as files: the costs of releases under one or several bounds, query by query.
"""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ipate._types import Floats
from ipate.errors import InputError
from ipate.files import FilePath, replacing
from ipate.people.budgets import strictest_first
from ipate.release.description import GroupFacts
from ipate.release.results import GroupResult, Guarantee
from ipate.report.facts import Outcome
from ipate.report.formats import Markup, element, percent, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_POINTS, _LINES = 90, 6  # at most
_INK, _FAINT = "#010203", "#010204"
_SERIES = tuple(f"#0102{10 + index}" for index in range(_LINES))
_DASHES: tuple[Any, ...] = (
    "-",
    (0, (6, 1.5)),
    (0, (6, 1.5, 1, 1.5)),
    (0, (1.5, 1.2)),
    (0, (9, 2)),
    (0, (3, 1.5, 1, 1.5, 1, 1.5)),
)
_MARKERS = ("o", "s", "^", "D", "v", "P")
_SIZES = {"wide": (8.6, 4.0), "narrow": (4.3, 4.4)}


def history_figure(groups: Sequence[GroupFacts], outcome: Outcome) -> Markup:
    """Plot cost against labels, with every group's budget and the point where labelling stopped."""
    shown = _chosen(groups)
    spent = {result.id: result for result in outcome.groups}
    ends = "; ".join(
        f"{group.id} from {plain(spent[group.id].before)} to {plain(spent[group.id].cost)} of "
        f"{plain(group.budget.epsilon)}"
        for group in shown
    )
    caption = (
        "What the labels cost each group as they were given. Thin horizontal lines are budgets; the mark is where "
        "labelling stopped."
    )
    if len(shown) < len(groups):
        caption += f" {len(shown)} of {len(groups)} groups are shown."
    alternative = f"Line chart: cost ε against the number of labels, 0 to {outcome.history[-1].labels}. {ends}."
    return _figure("history", caption, alternative, partial(_history_axes, shown, outcome), _SIZES)


def _figure(
    name: str, caption: str, alternative: str, draw: Callable[..., None], sizes: dict[str, tuple[float, float]]
) -> Markup:
    """Return a figure for both widths, with a caption and a text alternative, which is the drawing's title."""
    drawings = []
    for width, size in sizes.items():
        drawn = _svg(f"{name}-{width}", draw, size, narrow=width == "narrow")
        title = element("title", alternative, id=f"{name}-{width}-title")
        named = drawn.replace("<svg", f'<svg role="img" aria-labelledby="{name}-{width}-title"', 1)
        opening = named.index(">") + 1
        drawings.append(element("div", Markup(named[:opening] + title + named[opening:]), class_=width))
    return element("figure", *drawings, element("figcaption", caption), class_=name)


def _chosen(groups: Sequence[GroupFacts]) -> list[GroupFacts]:
    """Return the groups to draw, strictest first; of many, a selection spread evenly over the budgets."""
    order = strictest_first(groups)
    if len(order) <= _LINES:
        return list(order)
    return [order[round(step * (len(order) - 1) / (_LINES - 1))] for step in range(_LINES)]


def _history_axes(shown: Sequence[GroupFacts], outcome: Outcome, axes: "Axes", *, narrow: bool) -> None:
    step = -(-len(outcome.history) // _POINTS)
    points = [*outcome.history[:-1:step], outcome.history[-1]]
    labels = [point.labels for point in points]
    for place, group in enumerate(shown):
        colour = _SERIES[place]
        costs = [point.costs[group.id] for point in points]
        axes.axhline(group.budget.epsilon, color=colour, linewidth=0.9, linestyle=(0, (2, 3)))
        axes.plot(labels, costs, color=colour, linewidth=2.2, linestyle=_DASHES[place], label=_short(group.id))
        axes.plot(labels[-1:], costs[-1:], color=colour, marker=_MARKERS[place], markersize=7, linestyle="none")
    top = max(group.budget.epsilon for group in shown)
    axes.set_ylim(0, top * 1.16)
    axes.set_xlim(0, max(1, labels[-1]) * 1.06)
    axes.axvline(labels[-1], color=_INK, linewidth=0.8, linestyle="-", alpha=0.6)
    axes.annotate(
        f"stopped: {labels[-1]:,} labels",
        (labels[-1], top * 1.08),
        xytext=(-6, 0),
        textcoords="offset points",
        ha="right",
        va="center",
        color=_INK,
        fontsize=10,
    )
    axes.set_xlabel("labels given" if not outcome.carried else "labels given in this run")
    axes.set_ylabel("cost ε")
    _legend(axes, narrow=narrow)


def roc_figure(groups: Sequence[GroupFacts], curves: Mapping[str, Sequence[float]], rates: Sequence[float]) -> Markup:
    """Plot the true positive rate of the best attack against its false positive rate, by group."""
    shown = _chosen(groups)

    def draw(axes: "Axes", *, narrow: bool) -> None:
        for place, group in enumerate(shown):
            axes.plot(
                rates,
                curves[group.id],
                color=_SERIES[place],
                linewidth=2.2,
                linestyle=_DASHES[place],
                label=_short(group.id),
            )
        axes.plot([0, 1], [0, 1], color=_INK, linewidth=1.0, linestyle=(0, (2, 3)), label="guessing")
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1.01)
        axes.set_xlabel("false positives")
        axes.set_ylabel("true positives, at most")
        _legend(axes, narrow=True)  # the figure is small on wide screens too

    tenth = min(range(len(rates)), key=lambda place: abs(rates[place] - 0.1))
    words = "; ".join(f"{group.id} {percent(curves[group.id][tenth])}" for group in shown)
    caption = (
        "The most that any test for a person's data can achieve. On the dotted diagonal it is no better than guessing."
    )
    alternative = (
        f"Line chart: true positives of the best test against false positives, by group. At 10% false positives: "
        f"{words}."
    )
    return _figure("roc", caption, alternative, draw, {"wide": (6.2, 4.4), "narrow": (4.3, 4.4)})


@lru_cache(maxsize=8)  # the public and the private report share it
def influence_figure(groups: tuple[GroupFacts, ...]) -> Markup:
    """Plot each group's share of the people beside its share of the votes."""
    shown = _chosen(groups)

    def draw(axes: "Axes", *, narrow: bool) -> None:
        for place, group in enumerate(shown):
            rows = ((-0.19, group.people_share, 0, "//"), (0.19, group.vote_share, 1, ""))
            for offset, share, colour, hatch in rows:
                axes.barh(
                    place + offset,
                    100 * share,
                    height=0.34,
                    color=_SERIES[colour] if not hatch else "none",
                    edgecolor=_SERIES[colour],
                    hatch=hatch,
                    linewidth=1.2,
                    label=("people", "votes")[colour] if place == 0 else None,
                )
                axes.annotate(
                    percent(share),
                    (100 * share, place + offset),
                    xytext=(4, 0),
                    textcoords="offset points",
                    va="center",
                    color=_INK,
                    fontsize=10,
                )
        axes.set_yticks(range(len(shown)), [_short(group.id) for group in shown])
        axes.invert_yaxis()
        axes.set_xlim(0, 100 * max(max(g.people_share, g.vote_share) for g in groups) * (1.3 if narrow else 1.15))
        axes.set_xlabel("share in %")
        axes.grid(False, axis="y")
        _legend(axes, narrow=narrow)

    words = "; ".join(
        f"{group.id}: {percent(group.people_share)} of the people, {percent(group.vote_share)} of the votes"
        for group in shown
    )
    height = 1.3 + 0.72 * len(shown)
    sizes = {name: (width, height) for name, (width, _) in _SIZES.items()}
    caption = "Share of all people, and share of all votes. Those who allow more count more."
    return _figure("influence", caption, f"Bar chart: {words}.", draw, sizes)


def _short(name: str, most: int = 18) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _legend(axes: "Axes", *, narrow: bool) -> None:
    """Draw the legend above the axes, in as many columns as fit."""
    names = [str(name) for name in axes.get_legend_handles_labels()[1]]
    room = (38 if narrow else 84) // (max(len(name) for name in names) + 8)
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.02, 1.0),
        ncols=max(1, min(len(names), room)),
        frameon=False,
        labelcolor=_INK,
        fontsize=11,
        handlelength=3.4,
        columnspacing=1.4,
        borderaxespad=0.1,
    )


def _svg(salt: str, draw: Callable[..., None], size: tuple[float, float], *, narrow: bool) -> Markup:
    """Draw one figure without pyplot: no global state, no window, reproducible bytes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    settings: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": salt,
        "font.family": "sans-serif",
        "font.size": 11,
        "axes.edgecolor": _FAINT,
        "axes.labelcolor": _INK,
        "xtick.color": _INK,
        "ytick.color": _INK,
        "grid.color": _FAINT,
        "grid.linewidth": 0.6,
        "grid.alpha": 0.5,
        "hatch.linewidth": 1.0,
        "text.parse_math": False,
    }
    with mpl.rc_context(settings):
        canvas = Canvas(figsize=size, layout="constrained")
        canvas.patch.set_alpha(0.0)
        axes = canvas.add_subplot()
        axes.patch.set_alpha(0.0)
        axes.grid(True)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        draw(axes, narrow=narrow)
        stream = io.StringIO()
        canvas.savefig(stream, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return _inline(stream.getvalue(), salt)


def _inline(text: str, salt: str) -> Markup:
    """Prepare an SVG file for inlining: drop prolog and metadata, use CSS colours, and make ids unique."""
    body = text[text.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", body, flags=re.DOTALL)
    body = re.sub(r"<!--.*?-->\s*", "", body, flags=re.DOTALL)
    body = re.sub(r'\s(?:xmlns(?::\w+)?|version)="[^"]*"', "", body)
    body = re.sub(r'(<svg[^>]*?)\swidth="[^"]*"', r"\1", body, count=1)
    body = re.sub(r'(<svg[^>]*?)\sheight="[^"]*"', r"\1", body, count=1)
    body = re.sub(r'\bid="([^"]+)"', rf'id="{escape(salt)}-\1"', body)
    body = re.sub(r'(href="#|url\(#)', rf"\g<1>{escape(salt)}-", body).replace("xlink:href", "href")
    body = body.replace(_INK, "var(--ink)").replace(_FAINT, "var(--line)")
    for index, colour in enumerate(_SERIES):
        body = body.replace(colour, f"var(--series-{index + 1})")
    body = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px; font-family: inherit", body)
    return Markup(body.strip())


class Account(Protocol):
    """What each group has paid under one bound, and the guarantee of that figure."""

    @property
    def groups(self) -> Sequence[GroupResult]:
        """What each group has paid in the end."""

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of these figures."""


class Comparison(Protocol):
    """Costs of the same releases under several bounds, as `compare_bounds` returns them."""

    @property
    def audits(self) -> Mapping[str, Account]:
        """The account of every bound."""

    @property
    def history(self) -> Mapping[str, Floats]:
        """ε after every query, of shape (queries, groups), by bound."""

    @property
    def groups(self) -> Sequence[str]:
        """The ids of the groups."""

    @property
    def publishable(self) -> bool:
        """Whether every figure may be published."""


FORMATS = (".svg", ".png", ".pdf")
PRIVATE = "NOT TO BE PUBLISHED: costs computed from private votes"
_COLOURS = ("#0072b2", "#c44e00", "#00805c", "#a3507d", "#8a6d00", "#444c55")  # Okabe and Ito's, darkened for contrast
_PLOTTED = 400  # at most, in a line


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
                shown = np.unique(np.linspace(0, len(costs) - 1, min(len(costs), _PLOTTED)).astype(int))
                axes.plot(
                    shown + 1,
                    costs[shown],
                    color=_COLOURS[place % len(_COLOURS)],
                    label=name,
                    linestyle="-" if audit.guarantee.publishable else "--",
                )
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
