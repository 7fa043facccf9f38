"""Parsing and validation of options that several commands share."""

import math
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.accounting.ptr.design import Design
from ipate.errors import InputError
from ipate.labelling.aggregators import Mechanism
from ipate.labelling.loop import check_probs
from ipate.planning.reference import RESERVE, Reference, Simulator, design_for, read_design
from ipate.votes import Votes, read_votes
from ipate.votes.panel import Panel

_MOST_ORDERS = 10_000  # time and memory grow with orders × queries; the paper uses 49


def parse_orders(text: str) -> list[float]:
    """Read Rényi orders: `2:50` (both ends, step 1), `2:10:0.5`, or a list such as `2,4,8.5`."""
    try:
        if ":" not in text:
            return [float(part) for part in text.split(",")]
        start, stop, *rest = (float(part) for part in text.split(":"))
        step = rest[0] if rest else 1.0
        steps = (stop - start) / step if step > 0 else math.nan
        if len(rest) > 1 or not 0 <= steps < _MOST_ORDERS:
            raise ValueError
        return [start + step * i for i in range(int(steps + 1e-9) + 1)]
    except ValueError:
        raise InputError(
            f"orders are {text!r}: write FIRST:LAST, FIRST:LAST:STEP or a list such as 2,4,8, "
            f"at most {_MOST_ORDERS} orders"
        ) from None


def check_out(path: Path, what: str) -> None:
    """Refuse an output path that cannot be written, before anything is computed or charged."""
    if path.is_dir():
        raise InputError(f"{path}: is a folder; {what} must be a file, so name one in it")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent}: no such folder; make it first, {what} needs one")


def load_npy(path: Path, what: str) -> NDArray[Any]:
    """Read one array from an npy file, without pickle."""
    if not path.is_file():
        raise InputError(f"{path}: no such file; {what} must be an npy file")
    try:
        with path.open("rb") as stream:
            array = np.load(stream, allow_pickle=False)
    except (ValueError, OSError, EOFError, MemoryError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: not a readable npy file, and pickle is refused ({error})") from None
    if not isinstance(array, np.ndarray):
        array.close()
        raise InputError(f"{path}: holds several arrays; {what} must be one array in an npy file")
    return array


def whole_number(text: str | None) -> int | str | None:
    """Return a whole number as an int and other text, such as auto, as it is."""
    return int(text) if text is not None and text.lstrip("-").isdecimal() else text


def load_probs(path: Path | None, votes: Votes) -> NDArray[np.float64] | None:
    """Read the student's probabilities, queries × classes, each row summing to 1."""
    if path is None:
        return None
    return check_probs(load_npy(path, "--student-probs"), votes.n_queries, votes.n_classes)


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
    """Return the reference of a design: a simulator with these parameters, or the votes of other teachers."""
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
    """Read and verify the named design, or make one from the options; one of the two is required."""
    if design is not None:
        refuse_unused("a design is named, and holds all that", **options)
        return read_design(design)
    made = make_reference(**options, classes=n_classes)
    return design_for(made, panel, mechanism, n_classes=n_classes, queries=queries)


def refuse_unused(why: str, **options: Any) -> None:
    """Refuse options that would be ignored."""
    for name, value in options.items():
        if value is not None and value is not False:
            raise InputError(f"{name} is {value}: {why}; leave it out")


def design_facts(design: Design) -> dict[str, Any]:
    """Return the contents of a design for JSON; all of it is public."""
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
