"""`ipate design`: design the test of the bound ptr from public information, or verify a design."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from ipate.cli import options
from ipate.cli.output import print_result
from ipate.errors import InputError

if TYPE_CHECKING:
    from ipate.accounting.ladder import Design

EXAMPLE = (
    "Examples: ipate design votes.npz --groups groups.csv --sigma 40 --check-sigma 150 --threshold 200 "
    "--accuracy 0.92 --out design.json; ipate design --check design.json. A design is made from "
    "public facts: the number of teachers of each group, the classes, the query ids and the reference. The votes are "
    "compared with the reference, which must not be a copy of them."
)


def command(
    votes: Annotated[
        Path | None,
        Argument(help="The npz file that will be labelled; the reference must not be a copy.", metavar="VOTES.npz"),
    ] = None,
    groups: Annotated[Path | None, Option(help="csv file of group budgets.", metavar="GROUPS.csv")] = None,
    out: Annotated[Path | None, Option(help="The design file to write.", metavar="DESIGN.json")] = None,
    check: Annotated[
        Path | None, Option(help="Verify this design instead of making one.", metavar="DESIGN.json")
    ] = None,
    accuracy: options.Accuracy = None,
    spread: options.Spread = None,
    confusion: options.Confusion = None,
    reference: options.ReferenceVotes = None,
    reserve: options.Reserve = None,
    fallback: options.Fallback = False,
    variant: Annotated[str, Option(help="standard, weighting or upsampling, as in ipate label.")] = "auto",
    weights: options.Weights = "gdp",
    sigma: options.Sigma = None,
    check_sigma: options.CheckSigma = None,
    threshold: options.Threshold = None,
    delta: options.Delta = 1e-5,
    classes: options.Classes = None,
    max_queries: Annotated[int | None, Option(help="Ask at most this many queries.")] = None,
    order_seed: Annotated[int | None, Option(min=0, help="Seed for shuffling the queries.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Design the test of the bound ptr from public information, before the votes are used."""
    from ipate.engines.teachers.reference import read_design, write_design

    if check is not None:
        if votes is not None or out is not None:
            raise InputError(f"check is {check}: it verifies a design and makes none; leave out VOTES.npz and --out")
        _show(read_design(check), f"{check}: every condition holds", as_json)
        return
    if votes is None or groups is None or out is None:
        raise InputError("a design needs VOTES.npz, --groups and --out (or --check DESIGN.json)")
    import numpy as np

    from ipate.engines.teachers.aggregators import build_aggregator
    from ipate.engines.teachers.influence import TrainedElsewhere
    from ipate.engines.teachers.variants import panel_for
    from ipate.engines.teachers.votes import read_votes
    from ipate.people.budgets import read_groups

    options.check_out(out, "a design")
    chosen = build_aggregator("auto", sigma=sigma, check_sigma=check_sigma, threshold=threshold)
    given = TrainedElsewhere(
        votes=read_votes(votes, classes=classes), rows=read_groups(groups), delta=delta, weights=weights
    )
    ballot, panel, _ = panel_for(variant, given)
    order = None if order_seed is None else np.random.default_rng(order_seed).permutation(ballot.n_queries)
    made = options.chosen_design(
        None,
        ballot,
        panel,
        chosen.mechanism,
        order=order,
        max_queries=max_queries,
        quiet=as_json,
        reference=reference,
        accuracy=accuracy,
        spread=spread,
        confusion=confusion,
        reserve=reserve,
        fallback=fallback,
    )
    write_design(out, made)
    _show(made, f"{out}: written", as_json)


def _show(design: "Design", title: str, as_json: bool) -> None:
    groups = design.setting.groups
    payload = {
        "queries": design.n_queries,
        "levels": design.levels,
        "pass_probability_at_best": float(design.pi[-1]),
        "reserve": design.reserve,
        "fallback": design.fallback,
        "reference": design.reference,
        "digest": design.digest,
        "groups": [
            {"group": group.id, "epsilon": group.epsilon, "delta": group.delta, "sensitivity": group.sensitivity}
            for group in groups
        ],
    }
    print_result(
        as_json,
        payload,
        f"{title}. {design.n_queries} queries, all asked if one private test is passed, none if not",
        ["group", "ε", "δ", "one person moves"],
        [[group.id, f"{group.epsilon:g}", f"{group.delta:g}", f"{group.sensitivity:.4g}"] for group in groups],
        [
            f"Made from: {design.reference}; reserve {design.reserve:.0%}.",
            f"Votes as clear as that pass with probability {float(design.pi[-1]):.2f}.",
            "The design may be published if the reference is independent of these people.",
            "The whole budget is charged before the test, whatever its answer"
            + ("; after a no, (ε/2, δ/10) of it pays for a data-independent run." if design.fallback else "."),
            f"Hash: {design.digest}",
        ],
    )
