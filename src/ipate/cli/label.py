"""`ipate label`: label public points with teachers trained elsewhere, nobody over budget."""

import csv
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

if TYPE_CHECKING:
    from ipate.labelling import Labelling
    from ipate.votes import Votes

__all__ = ["EXAMPLE", "command"]

EXAMPLE = (
    "Example: ipate label votes.npz --groups groups.csv --sigma 40 --check-sigma 150 --threshold 200 "
    "--delta 1e-5 --out labels.csv. labels.csv has the columns query,answered,label, one row per query "
    "asked, in the order asked."
)


def command(
    votes: Annotated[Path, typer.Argument(help="npz with the teachers' votes.", metavar="VOTES.npz")],
    groups: Annotated[Path, typer.Option(help="csv with every group's budget.", metavar="GROUPS.csv")],
    out: Annotated[Path, typer.Option(help="Where the labels go, a csv.", metavar="LABELS.csv")],
    variant: Annotated[
        str,
        typer.Option(help="standard, weighting, upsampling or vanishing; weighting where votes have groups."),
    ] = "auto",
    aggregator: Annotated[
        str,
        typer.Option(help="gnmax, confident, interactive or lnmax; read off the other options unless said."),
    ] = "auto",
    sigma: Annotated[float | None, typer.Option(help="σ, the noise of a label.")] = None,
    check_sigma: Annotated[float | None, typer.Option(help="σ_T, the noise of the check.")] = None,
    threshold: Annotated[float | None, typer.Option(help="T, what the check compares with.")] = None,
    scale: Annotated[float | None, typer.Option(help="The Laplace scale of lnmax.")] = None,
    student_probs: Annotated[
        Path | None, typer.Option(help="npy, queries × classes: the student's probabilities (interactive).")
    ] = None,
    gamma: Annotated[
        float | None,
        typer.Option(help="Interactive returns the student's class where it is surer than this; .9."),
    ] = None,
    weights: Annotated[
        str, typer.Option(help="gdp, proportional, classic, algorithm2, uniform, or file: as the files say.")
    ] = "gdp",
    power: Annotated[
        float | None, typer.Option(help="Vanishing: teachers take part in (ε/ε_max)^power of the votings.")
    ] = None,
    bound: Annotated[str, typer.Option(help="loose, gdp, sup, tight or exact.")] = "gdp",
    conversion: Annotated[str, typer.Option(help="classic or improved; gdp has its own.")] = "improved",
    delta: Annotated[float, typer.Option(help="δ where the group file gives none.")] = 1e-5,
    orders: Annotated[str, typer.Option(help="Rényi orders, FIRST:LAST or a list.")] = "2:50",
    classes: Annotated[int | None, typer.Option(help="Number of classes; a public fact.")] = None,
    stop: Annotated[
        str, typer.Option(help="budget: when a group is exhausted; drop: it leaves, others go on; count.")
    ] = "budget",
    max_labels: Annotated[int | None, typer.Option(help="Stop at this many labels.")] = None,
    max_queries: Annotated[int | None, typer.Option(help="Stop at this many queries.")] = None,
    seed: Annotated[int | None, typer.Option(help="Noise that can be repeated: the run is then NOT private.")] = None,
    order_seed: Annotated[int | None, typer.Option(help="Ask the queries in a shuffled order.")] = None,
    split_seed: Annotated[int, typer.Option(help="Vanishing: the public seed of who votes when.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout, nothing else.")] = False,
) -> None:
    """Label public points with teachers trained elsewhere; nobody pays more than their budget."""
    import numpy as np

    from ipate.accounting.meter import Bound, Conversion, Meter
    from ipate.cli.common import parse_orders, progress_bar
    from ipate.cli.mechanisms import build_aggregator, load_probs
    from ipate.cli.panels import build_panel
    from ipate.labelling import Stop, label
    from ipate.noise import make_noise
    from ipate.tables import check_number, read_groups
    from ipate.votes import read_votes

    check_number("delta", delta)
    chosen = build_aggregator(
        aggregator, sigma=sigma, check_sigma=check_sigma, threshold=threshold, scale=scale, gamma=gamma,
        student_probs=student_probs,
    )  # fmt: skip
    meter = Meter(
        cast("Bound", bound),
        cast("Conversion", "gdp" if bound == "gdp" else conversion),
        parse_orders(orders),
    )
    noise = make_noise(seed)
    rows = read_groups(groups)
    ballot = read_votes(votes, classes=classes)
    probs = load_probs(student_probs, ballot)
    order = None if order_seed is None else np.random.default_rng(order_seed).permutation(ballot.n_queries)
    ballot, panel, name = build_panel(
        ballot,
        rows,
        variant=variant,
        weights=weights,
        power=power,
        delta=delta,
        order=order,
        split_seed=split_seed,
    )
    _warn_of_threshold(chosen.mechanism, panel.total_weight)
    with progress_bar("labelling", ballot.n_queries, quiet=as_json) as progress:
        result = label(
            ballot,
            panel,
            chosen,
            meter,
            stop=cast("Stop", stop),
            max_labels=max_labels,
            max_queries=max_queries,
            order=order,
            student_probs=probs,
            noise=noise,
            progress=progress,
        )
    _write_labels(out, ballot, result)
    _show(result, ballot, name, out, as_json)


def _warn_of_threshold(mechanism: Any, total_weight: float) -> None:
    """A threshold above all votes is allowed; say how likely a unanimous query passes it."""
    import warnings

    from scipy.special import ndtr

    if mechanism.threshold is not None and mechanism.threshold > total_weight:
        chance = float(ndtr((total_weight - mechanism.threshold) / mechanism.check_sigma))
        warnings.warn(
            f"threshold {mechanism.threshold:g} is above the weight of all votes, {total_weight:g}: "
            f"a unanimous query passes the check with probability {chance:.3g}",
            stacklevel=2,
        )


def _write_labels(path: Path, votes: "Votes", result: "Labelling") -> None:
    """Write aside, then rename: a labels file is whole or not there."""
    names = votes.queries
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with aside.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream)
            writer.writerow(["query", "answered", "label"])
            for query, answered, reinforced, value in zip(
                result.queries.tolist(),
                result.answered.tolist(),
                result.reinforced.tolist(),
                result.labels.tolist(),
                strict=True,
            ):
                has_label = answered or reinforced
                name = str(query) if names is None else names[query]
                writer.writerow([name, int(has_label), value if has_label else ""])
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def _payload(result: "Labelling", votes: "Votes", variant: str) -> dict[str, Any]:
    import numpy as np

    accuracy = None
    labelled = result.answered | result.reinforced
    if votes.labels is not None and labelled.any():
        accuracy = float(np.mean(result.labels[labelled] == votes.labels[result.queries[labelled]]))
    return {
        "labels": result.n_labels,
        "queries": result.n_queries,
        "accuracy": accuracy,
        "reinforced": int(np.count_nonzero(result.reinforced & ~result.repeated)),
        "variant": variant,
        "bound": result.meter.bound,
        "conversion": result.meter.conversion,
        "guarantee": result.guarantee.kind,
        "statement": result.guarantee.statement,
        "seeded": result.seeded,
        "stopped_by": result.stopped_by,
        "groups": [
            {
                "group": group.group,
                "teachers": group.teachers,
                "weight": group.weight,
                "sensitivity": group.sensitivity,
                "budget": group.budget,
                "delta": group.delta,
                "epsilon": group.epsilon,
                "labels_until_exhausted": group.labels_until_exhausted,
            }
            for group in result.groups
        ],
    }


def _show(result: "Labelling", votes: "Votes", variant: str, out: Path, as_json: bool) -> None:
    from ipate.cli.common import print_json, print_table

    payload = _payload(result, votes, variant)
    if as_json:
        print_json(payload)
        return
    scored = "" if payload["accuracy"] is None else f", {payload['accuracy']:.1%} of them right"
    private = result.guarantee.kind == "private"
    print_table(
        f"{result.n_labels} labels from {result.n_queries} queries{scored}; "
        f"{variant}, {result.meter.bound} bound, {result.guarantee.headline}",
        [
            "group",
            "teachers",
            "weight",
            "sensitivity",
            "budget ε",
            "cost ε",
            "δ",
            "used",
            "exhausted at label",
        ],
        [
            [
                group.group,
                "mixed" if group.teachers is None else str(group.teachers),
                "—" if group.weight is None else f"{group.weight:.4g}",
                f"{group.sensitivity:.4g}",
                f"{group.budget:.4g}",
                f"{group.epsilon:.4f}",
                f"{group.delta:g}",
                f"{group.epsilon / group.budget:.0%}",
                "—" if group.labels_until_exhausted is None else str(group.labels_until_exhausted),
            ]
            for group in result.groups
        ],
        [("PRIVATE. " if private else "") + result.guarantee.statement, *_remarks(result), f"Labels: {out}"],
    )


def _remarks(result: "Labelling") -> list[str]:
    ended = {
        "budget": "Stopped before the first query that a group might not have been able to pay.",
        "count": "Stopped at the number fixed beforehand.",
        "pool": "Every query was asked.",
    }[result.stopped_by]
    idle = [group.group for group in result.groups if group.epsilon < 0.8 * group.budget]
    if result.stopped_by == "budget" and idle:
        first = [group.group for group in result.groups if group.labels_until_exhausted is not None]
        ended += (
            f" {', '.join(first)} was exhausted while {', '.join(idle)} had more than a fifth of the budget "
            "left: the weights do not match the budgets."
        )
    return [ended]
