"""The figures and computed tables of the concept pages.

Tables are Markdown; figures are HTML with inline SVG, whose colours follow the colour scheme of the page.

A figure is drawn twice, for wide and for narrow screens, because text in a scaled-down figure cannot be read. Every
number in a figure is computed here from the functions that the package uses.
"""

import io
import re
from collections.abc import Callable
from functools import partial
from html import escape
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import ndtr, ndtri

from ipate.accounting.bounds import Meter, queries_afforded
from ipate.people.budgets import Budget
from ipate.report.formats import down, up

ASSETS = Path(__file__).parents[1] / "assets"
DELTA = 1e-5
_INK, _FAINT = "#010203", "#010204"
_SERIES = tuple(f"#0102{10 + index}" for index in range(4))
_SIZES = {"wide": (7.4, 3.7), "narrow": (4.1, 3.9)}


def drawing(name: str) -> str:
    """Return a drawing of the assets as inline SVG."""
    text = (ASSETS / f"{name}.svg").read_text(encoding="utf-8")
    return f'<figure class="ipate-drawing">\n{text[text.index("<svg") :]}\n</figure>'


def plot(name: str, draw: Callable[[Axes], None], caption: str, words: str) -> str:
    """Return a figure in both widths, with a caption and a text alternative."""
    drawings = [
        f'<div class="ipate-{width}" role="img" aria-label="{escape(words)}">'
        f"{_svg(f'{name}-{width}', draw, size)}</div>"
        for width, size in _SIZES.items()
    ]
    return f"<figure>{''.join(drawings)}<figcaption>{escape(caption)}</figcaption></figure>"


def odds() -> str:
    """Plot what somebody believes afterwards against what they believed before."""

    def draw(axes: Axes) -> None:
        before = np.linspace(0.005, 0.995, 100)
        for place, epsilon in enumerate((0.5, 1.0, 3.0)):
            low, high = (100 / (1 + (1 - before) / before * np.exp(sign * epsilon)) for sign in (1, -1))
            axes.fill_between(100 * before, low, high, color=_SERIES[place], alpha=0.18, linewidth=0)
            axes.plot(100 * before, high, color=_SERIES[place], label=f"ε = {epsilon:g}")
            axes.plot(100 * before, low, color=_SERIES[place])
        axes.plot([0, 100], [0, 100], color=_INK, linewidth=1, linestyle=":")
        axes.set(xlabel="belief before, in %", ylabel="belief after, in %", xlim=(0, 100), ylim=(0, 100))

    caption = "The belief afterwards lies in the band, whatever is published. Up to δ, which is too small to be seen."
    return plot(
        "odds", draw, caption, "Bands of the belief after a release around the belief before, wider for larger ε."
    )


def roc() -> str:
    """Plot the best membership test under Gaussian noise."""

    def draw(axes: Axes) -> None:
        alarm = np.concatenate([np.geomspace(1e-4, 0.05, 30), np.linspace(0.06, 0.999, 70)])
        for place, epsilon in enumerate((0.5, 1.0, 3.0)):
            hit = ndtr(ndtri(alarm) + Budget(epsilon, DELTA).mu)
            axes.plot(100 * alarm, 100 * hit, color=_SERIES[place], label=f"ε = {epsilon:g}")
        axes.plot([0, 100], [0, 100], color=_INK, linewidth=1, linestyle=":", label="guessing")
        axes.set(xlabel="false alarms, in %", ylabel="hits, in %", xlim=(0, 100), ylim=(0, 100))

    return plot(
        "roc",
        draw,
        f"The best test that anybody can make, under the bound gdp with δ = {DELTA:g} and a spent budget.",
        "ROC curves of the best membership test for ε = 0.5, 1 and 3; the curve for 3 is far from guessing.",
    )


def ten() -> str:
    """Plot what becomes of a chance of 10%."""

    def draw(axes: Axes) -> None:
        levels = (0.1, 0.5, 1.0, 2.0, 3.0, 5.0)
        for place, epsilon in enumerate(levels):
            low, high = chance(epsilon)
            axes.plot([100 * low, 100 * high], [place, place], color=_SERIES[0], linewidth=7, solid_capstyle="butt")
            axes.annotate(
                f"{down(100 * low)}% to {up(100 * high)}%",
                (100, place),
                xytext=(6, 0),
                annotation_clip=False,
                textcoords="offset points",
                va="center",
                color=_INK,
                fontsize=10,
            )
        axes.axvline(10, color=_INK, linewidth=1, linestyle=":")
        axes.set_yticks(range(len(levels)), [f"ε = {epsilon:g}" for epsilon in levels])
        axes.invert_yaxis()
        axes.grid(False, axis="y")
        axes.set(xlabel="probability with the person's data, in %", xlim=(0, 100))
        axes.set_xticks([0, 10, 25, 50, 75, 100])

    words = "; ".join(f"ε = {e:g}: {down(100 * chance(e)[0])}% to {up(100 * chance(e)[1])}%" for e in (0.1, 1.0, 3.0))
    return plot("ten", draw, "An outcome that has a probability of 10% with the person's data replaced.", words)


def chance(epsilon: float, before: float = 0.1) -> tuple[float, float]:
    """Return the least and the largest probability with the data, if it is `before` with it replaced; δ is left out."""
    factor = float(np.exp(epsilon))
    return max(before / factor, 1 - (1 - before) * factor), min(before * factor, 1 - (1 - before) / factor)


def affords() -> str:
    """Plot how many labels a budget pays for."""

    def draw(axes: Axes) -> None:
        epsilons = np.geomspace(0.1, 8, 40)
        for place, teachers in enumerate((250, 1000, 4000)):
            labels = [
                queries_afforded(
                    Meter("gdp"),
                    epsilon=float(epsilon),
                    delta=DELTA,
                    sensitivity=1.0,
                    sigma=0.16 * teachers,
                    check_sigma=0.6 * teachers,
                )
                for epsilon in epsilons
            ]
            axes.loglog(epsilons, np.maximum(labels, 0.5), color=_SERIES[place], label=f"k = {teachers:,}")
        axes.set(xlabel="budget ε", ylabel="labels", ylim=(0.8, None))
        axes.set_xticks([0.1, 0.3, 1, 3, 8], ["0.1", "0.3", "1", "3", "8"])
        axes.set_yticks([1, 100, 10_000, 1_000_000], ["1", "100", "10,000", "1,000,000"])
        axes.minorticks_off()

    caption = "Labels that everybody's ε pays for under the bound gdp, for k teachers, with σ = 0.16k and σ_T = 0.6k."
    return plot("affords", draw, caption, "Labels grow about with the square of ε and of the number of teachers.")


def vote() -> str:
    """Plot how the probability of a label depends on one vote."""

    def draw(axes: Axes) -> None:
        votes = np.arange(0, 101)
        for place, sigma in enumerate((5.0, 20.0, 60.0)):
            share = 100 * ndtr((2 * votes - 100) / (sigma * np.sqrt(2)))
            axes.plot(votes, share, color=_SERIES[place], label=f"σ = {sigma:g}")
        axes.axvline(50, color=_INK, linewidth=1, linestyle=":")
        axes.set(xlabel="votes for A, of 100", ylabel="label is A, in %", xlim=(0, 100), ylim=(0, 100))

    caption = (
        "How often the label is A if 100 teachers vote for A or B. The steeper the curve, the more one vote tells."
    )
    return plot("vote", draw, caption, "Curves of the probability of label A; with little noise it jumps at 50 votes.")


def tests_table() -> str:
    """Return what the best membership test achieves, as a table."""
    rows = ["| budget ε | hits at 1% false alarms | hits at 10% false alarms | any mechanism with this (ε, δ) |"]
    rows.append("| --- | --- | --- | --- |")
    for epsilon in (0.1, 0.5, 1.0, 2.0, 3.0, 5.0):
        mu = Budget(epsilon, DELTA).mu
        found = [f"{up(100 * ndtr(ndtri(alarm) + mu))}%" for alarm in (0.01, 0.1)]
        worst = " and ".join(
            f"{up(100 * min(DELTA + np.exp(epsilon) * alarm, 1 - np.exp(-epsilon) * (1 - DELTA - alarm)))}%"
            for alarm in (0.01, 0.1)
        )
        rows.append(f"| {epsilon:g} | {found[0]} | {found[1]} | {worst} |")
    return "\n".join(rows)


def weights_table() -> str:
    """Return what budgets weigh, as a table."""
    epsilons = (0.1, 0.5, 1.0, 2.0, 3.0, 8.0)
    mus = {epsilon: Budget(epsilon, DELTA).mu for epsilon in epsilons}
    rows = ["| budget ε | μ | weight, if ε = 1 weighs 1 | labels, if everybody had this ε and ε = 1 gave 100 |"]
    rows.append("| --- | --- | --- | --- |")
    for epsilon, mu in mus.items():
        ratio = mu / mus[1.0]
        rows.append(f"| {epsilon:g} | {mu:.3f} | {ratio:.2f} | {100 * ratio**2:,.0f} |")
    return "\n".join(rows)


FIGURES: dict[str, Callable[[], str]] = {
    "tests-table": tests_table,
    "weights-table": weights_table,
    "way": partial(drawing, "way"),
    "leaving": partial(drawing, "leaving"),
    "odds": odds,
    "roc": roc,
    "ten": ten,
    "affords": affords,
    "vote": vote,
}


def _svg(salt: str, draw: Callable[[Axes], None], size: tuple[float, float]) -> str:
    """Draw without pyplot and return inline SVG: text stays text, colours are variables of the page, ids are unique."""
    settings = {
        "svg.fonttype": "none",
        "svg.hashsalt": salt,
        "font.size": 11,
        "axes.edgecolor": _FAINT,
        "axes.labelcolor": _INK,
        "xtick.color": _INK,
        "ytick.color": _INK,
        "grid.color": _FAINT,
        "grid.alpha": 0.5,
        "text.parse_math": False,
        "lines.linewidth": 2,
    }
    with mpl.rc_context(settings):
        figure = Figure(figsize=size, layout="constrained")
        figure.patch.set_alpha(0)
        axes = figure.add_subplot()
        axes.patch.set_alpha(0)
        axes.grid(True)
        axes.spines[["top", "right"]].set_visible(False)
        draw(axes)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(
                loc="lower left",
                bbox_to_anchor=(-0.02, 1),
                ncols=4 if size[0] > 5 else 2,
                frameon=False,
                labelcolor=_INK,
                handlelength=1.4,
                columnspacing=1,
                borderaxespad=0.1,
            )
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None})
    body = stream.getvalue()
    body = body[body.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", body, flags=re.DOTALL)
    body = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", body, count=1)
    body = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", body, count=1)
    body = re.sub(r'\bid="([^"]+)"', rf'id="{salt}-\1"', body)
    body = re.sub(r'(href="#|url\(#)', rf"\g<1>{salt}-", body)
    body = body.replace(_INK, "var(--fig-ink)").replace(_FAINT, "var(--fig-line)")
    for index, colour in enumerate(_SERIES):
        body = body.replace(colour, f"var(--fig-{index + 1})")
    body = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px; font-family: inherit", body)
    return re.sub(r"\s*\n\s*", " ", body).strip()  # one line: Markdown leaves it alone
