"""The options that describe the test of the bound ptr, and the design that they make."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ipate.accounting.ptr import Design
from ipate.designing import RESERVE, Reference, design_for, read_design
from ipate.errors import InputError
from ipate.mechanism import Mechanism
from ipate.panel import Panel
from ipate.reference import Simulator
from ipate.votes import read_votes

__all__ = ["chosen_design", "design_facts", "make_reference", "refuse_unused"]


def make_reference(
    *,
    reference: Path | None,
    accuracy: float | None,
    spread: float | None,
    confusion: float | None,
    reserve: float | None,
    fallback: bool,
    classes: int | None,
) -> Reference:
    """Return what a design is made from: a simulator with these figures, or the votes of other teachers."""
    kept = RESERVE if reserve is None else reserve
    if reference is not None:
        if accuracy is not None or spread is not None or confusion is not None:
            raise InputError("reference is given, and accuracy, spread or confusion too: those are for a simulator")
        return Reference(
            votes=read_votes(reference, classes=classes),
            source=f"votes of other teachers, {reference.name}",
            reserve=kept,
            fallback=fallback,
        )
    if accuracy is None:
        raise InputError(
            "bound is 'ptr' without a reference: say with --accuracy how often a teacher is expected to be right, from "
            "public knowledge, or name votes of other teachers on public data with --reference"
        )
    usual = Simulator(accuracy=accuracy)
    guess = Simulator(
        accuracy=accuracy,
        spread=usual.spread if spread is None else spread,
        confusion=usual.confusion if confusion is None else confusion,
    )
    return Reference(simulator=guess, reserve=kept, fallback=fallback)


def chosen_design(
    design: Path | None, panel: Panel, mechanism: Mechanism, *, n_classes: int, queries: Sequence[str], **options: Any
) -> Design:
    """Return the design that is named, verified, or make one from the options; one of the two must be said."""
    if design is not None:
        refuse_unused("a design is named, and holds all that", **options)
        return read_design(design)
    made = make_reference(**options, classes=n_classes)
    return design_for(made, panel, mechanism, n_classes=n_classes, queries=queries)


def refuse_unused(why: str, **options: Any) -> None:
    """An option of the test that would be ignored is refused."""
    for name, value in options.items():
        if value is not None and value is not False:
            raise InputError(f"{name} is {value}: {why}; leave it out")


def design_facts(design: Design) -> dict[str, Any]:
    """What a design says, for JSON and for a table; all of it is public."""
    return {
        "queries": design.n_queries,
        "levels": design.levels,
        "pass_probability_at_best": float(design.pi[-1]),
        "reserve": design.reserve,
        "fallback": design.fallback,
        "reference": design.reference,
        "digest": design.digest,
        "groups": [
            {"group": group.id, "epsilon": group.epsilon, "delta": group.delta, "sensitivity": group.sensitivity}
            for group in design.setting.groups
        ],
    }
