"""`fig-ratios` and `fig-weighted-ratio`: how costs follow sensitivities, and labels follow budgets and shares."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.reproduce.cost_history import by_queries
from ipate.reproduce.ensembles import Ensemble
from ipate.reproduce.grid import Options, shared, votings
from ipate.reproduce.results import COLOURS, Cell, Sheet, Table, draw
from ipate.reproduce.schemes import Scheme, two, upsampling, vanishing, weighting
from ipate.reproduce.settings import SHARES
from ipate.reproduce.voting import spread
from ipate.reproduce.workshop import Workshop

RATIOS = range(2, 10)
HIGHER = range(2, 7)  # ε₁ of the weighted ratio; ε₀ is 1
_AT: NDArray[np.int64] = np.unique(np.concatenate([[1, 5], np.arange(10, 200, 10), np.arange(200, 4001, 100)]))
_WANTED = (10, 100, 1000, 4000)


def fig_ratios(workshop: Workshop, options: Options) -> Sheet:
    """Draw the ratio of two groups' costs over 4,000 votings for sensitivities in the ratio 2 to 9."""
    common = shared("mnist", options)
    own = {c: [replace(spec, shares=(0.5, 0.5), copies=(1, c)) for spec in common] for c in RATIOS}
    workshop.need([*common, *(spec for specs in own.values() for spec in specs)])
    lines: dict[tuple[str, int], list[NDArray[np.float64]]] = {}
    for c in RATIOS:
        given = two(1.0, float(c), 0.5)
        ensembles = [workshop.ensemble(spec) for spec in common]
        lines["weighting", c] = _ratios([(e, weighting(e, given)) for e in ensembles], options.votings)
        ups = [workshop.ensemble(spec) for spec in own[c]]
        lines["upsampling", c] = _ratios([(up, upsampling(up, given)) for up in ups], options.votings)
        lines["vanishing", c] = _ratios([(e, vanishing(e, given, power=1)) for e in ensembles], 1)
        workshop.say(f"costs at the ratio {c} of sensitivities")
    tables = [_at_table(lines, variant) for variant in ("upsampling", "weighting", "vanishing")]
    last = {(v, c): float(np.mean(own, axis=0)[-1]) for (v, c), own in lines.items()}
    off = max(abs(x / c - 1) for (v, c), x in last.items() if v != "vanishing")
    turns = [last["vanishing", c] for c in RATIOS]
    power = float(np.polyfit(np.log(RATIOS), np.log(turns), 1)[0])
    return Sheet(
        name="fig-ratios", title="Cost ratio against sensitivity ratio", tables=tables,
        figures={"fig-ratios.svg": _ratio_figure(lines)},
        about="MNIST, two groups of equal size whose sensitivities have the ratio 2 to 9 (vanishing: whose teachers' "
        "participation has), 4,000 votings, the paper's account. Upsampling and weighting: "
        f"{options.ensembles} ensembles × {options.votings} processes; vanishing: {options.ensembles} × 1.",
        findings=[
            (f"After 4,000 votings the ratio of costs is the ratio of sensitivities within {off:.0%} for upsampling "
            "and weighting: confirmed."),
            (f"For vanishing it grows like the participation ratio to the power {power:.2f}: the paper's 'square root' "
            "is confirmed."),
        ],
    )  # fmt: skip


def _ratios(held: list[tuple[Ensemble, Scheme]], count: int) -> list[NDArray[np.float64]]:
    found = []
    for ensemble, scheme in held:
        for number in range(count):
            costs = by_queries(ensemble, scheme, _AT, voting=number)
            found.append(np.divide(costs["high"], costs["low"], out=np.full(len(_AT), np.nan), where=costs["low"] > 0))
    return found


def _at_table(lines: dict[tuple[str, int], list[NDArray[np.float64]]], variant: str) -> Table:
    rows = []
    for c in RATIOS:
        values = [[line[int(np.flatnonzero(at == _AT)[0])] for line in lines[variant, c]] for at in _WANTED]
        rows.append((str(c), [Cell(ours=spread(map(float, v)), digits=2) for v in values]))
    title = f"Cost ratio after so many votings, {variant}; rows: the ratio of sensitivities"
    return Table(title=title, columns=[f"{at:,}" for at in _WANTED], rows=rows)


def _ratio_figure(lines: dict[tuple[str, int], list[NDArray[np.float64]]]) -> str:
    def paint(axes: Any) -> None:
        for place, variant in enumerate(("upsampling", "weighting", "vanishing")):
            axis = axes[0, place]
            for c in RATIOS:
                index = c - RATIOS[0]
                mean = np.nanmean(lines[variant, c], axis=0)
                axis.plot(_AT, mean, color=COLOURS[index], linewidth=1.6)
                axis.annotate(
                    str(c), (_AT[-1], mean[-1]), xytext=(3, 0), textcoords="offset points", va="center",
                    color=COLOURS[index], fontsize=9,
                )  # fmt: skip
            axis.set_title(variant, fontsize=10)
            axis.set_xlabel("votings")
            axis.set_xlim(0, 4000)
            axis.set_ylim(*((1, 3.1) if variant == "vanishing" else (0, 10)))
        axes[0, 0].set_ylabel("cost of the higher / of the lower group")

    return draw(paint, columns=3, size=(9, 3.4))


def fig_weighted_ratio(workshop: Workshop, options: Options) -> Sheet:
    """Draw labels against (ε₁d₁)/(ε₀d₀) for three group shares."""
    common = shared("mnist", options)
    own = {(c, s): [replace(spec, shares=(1 - s, s), copies=(1, c)) for spec in common] for c in HIGHER for s in SHARES}
    workshop.need([*common, *(spec for specs in own.values() for spec in specs)])
    ensembles = [workshop.ensemble(spec) for spec in common]
    points: dict[tuple[str, float], list[tuple[float, float, float]]] = {}
    for share in SHARES:
        for higher in HIGHER:
            given = two(1.0, float(higher), share)
            ratio = higher * share / (1 - share)
            ups = [workshop.ensemble(spec) for spec in own[higher, share]]
            held = {
                "weighting": votings(ensembles, partial(weighting, given=given), options),
                "upsampling": votings(ups, partial(upsampling, given=given), options),
            }
            for variant, each in held.items():
                labels = spread(one.voting.n_labels for one in each)
                points.setdefault((variant, share), []).append((ratio, labels.mean, labels.sd))
            workshop.say(f"labels with {share:.0%} of the people at ε = {higher}")
    return Sheet(
        name="fig-weighted-ratio", title="Labels against the weighted ratio of budgets",
        figures={"fig-weighted-ratio.svg": _weighted_figure(points)},
        tables=[_weighted_table(points)], findings=_weighted_findings(points),
        about="MNIST, two groups with ε₀ = 1 and ε₁ = 2 to 6, d₁ = 25, 50 and 75% of the people; the paper's account; "
        f"{options.ensembles} ensembles × {options.votings} votings.",
    )  # fmt: skip


Points = dict[tuple[str, float], list[tuple[float, float, float]]]


def _weighted_figure(points: Points) -> str:
    def paint(axes: Any) -> None:
        axis = axes[0, 0]
        for (variant, share), own in points.items():
            x, y, sd = (np.array(column) for column in zip(*own, strict=True))
            hollow = variant == "upsampling"  # a ring around weighting's point
            axis.errorbar(
                y, x, xerr=sd, color=COLOURS[list(SHARES).index(share)], marker="o", linewidth=1.2, capsize=2,
                markersize=10 if hollow else 5, markerfacecolor="none" if hollow else None,
                linestyle="--" if hollow else "-", label=f"{variant}, {share:.0%}",
            )  # fmt: skip
        axis.set_xlabel("labels")
        axis.set_ylabel("(ε₁·d₁) / (ε₀·d₀)")
        axis.legend(frameon=False)

    return draw(paint, size=(7, 4.6))


def _weighted_table(points: Points) -> Table:
    rows = [
        (f"{variant}, {share:.0%}", [", ".join(f"{ratio:.2f}: {labels:,.0f} ± {sd:,.0f}" for ratio, labels, sd in own)])
        for (variant, share), own in points.items()
    ]
    return Table(title="Labels at each weighted ratio", columns=["ratio: labels ± standard deviation"], rows=rows)


def _weighted_findings(points: Points) -> list[str]:
    every = [(x, y) for (variant, _), own in points.items() if variant == "weighting" for x, y, _ in own]
    x, y = (np.array(column) for column in zip(*every, strict=True))
    one = float(np.corrcoef(x, y)[0, 1])
    log = float(np.corrcoef(np.log(x), np.log(y))[0, 1])
    within = [
        float(np.corrcoef([p[0] for p in own], [p[1] for p in own])[0, 1])
        for (variant, _), own in points.items()
        if variant == "weighting"
    ]
    return [
        f"Within one share of people the relation is linear, as the paper says: correlation {min(within):.3f} or more.",
        (
            f"Over all shares together it is {one:.3f} ({log:.3f} in logarithms): the shares lie on lines of their "
            "own, so budgets and shares do not trade off one to one; the weighted ratio is a rule of thumb."
        ),
    ]
