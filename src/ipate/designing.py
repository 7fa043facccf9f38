"""From a public reference to a design: how many queries a tested release may ask, and the tables of its test.

Nothing here looks at private votes. The reference says how clearly teachers are expected to agree; the private
votes meet the design for the first time when the test is drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ipate.accounting.ptr import Design, hash_queries, make_design, most_queries
from ipate.errors import InputError
from ipate.mechanism import Mechanism
from ipate.panel import Panel
from ipate.reference import Simulator, setting_for, simulated_profile, votes_profile
from ipate.tables import write_text
from ipate.votes import Votes

__all__ = ["RESERVE", "Reference", "as_reference", "design_for", "read_design", "write_design"]

RESERVE = 0.1


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What a design is made from: a simulator's votes, or votes of other teachers.

    Attributes
    ----------
    simulator : Simulator, optional
        A public guess of how teachers vote; or else
    votes : Votes, optional
        of as many other teachers, on public data: a proxy task, an earlier study.
    source : str
        Where those votes come from, in words: it stands in the design.
    reserve : float
        By how much more than the reference, relatively, the private votes may cost before passing becomes unlikely.
    fallback : bool
        Keep (ε/2, δ/10) for a data-independent run after a failed test.
    """

    simulator: Simulator | None = None
    votes: Votes | None = None
    source: str = "votes"
    reserve: float = RESERVE
    fallback: bool = False

    def __post_init__(self) -> None:
        if (self.simulator is None) == (self.votes is None):
            raise InputError(
                "a design needs one reference: how often a teacher is expected to be right (accuracy), or votes of "
                "other teachers on public data; never the private votes"
            )


def as_reference(given: "Reference | float | None") -> Reference | None:
    """Return a reference as it is, or the simulator's for an accuracy; None where nothing is given."""
    if given is None or isinstance(given, Reference):
        return given
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise InputError(f"reference is {given!r}: it must be an accuracy between 0 and 1, or a Reference")
    return Reference(simulator=Simulator(accuracy=float(given)))


def design_for(
    reference: Reference, panel: Panel, mechanism: Mechanism, *, n_classes: int, queries: Sequence[str]
) -> Design:
    """Return the design that asks as many of these queries, in this order, as the reference affords.

    Parameters
    ----------
    reference : Reference
    panel, mechanism
        Teachers, groups and noise, all public.
    n_classes : int
    queries : sequence of str
        The ids of the pool; the design asks the first of them.
    """
    setting = setting_for(panel, mechanism, n_classes=n_classes)
    if reference.simulator is not None:
        profile = simulated_profile(setting, panel, reference.simulator)
    elif reference.votes is not None:
        profile = votes_profile(setting, panel, reference.votes, source=reference.source)
    most = most_queries(profile, pool=len(queries), reserve=reference.reserve, fallback=reference.fallback)
    if most == 0:
        raise InputError(
            "the reference affords no query: its teachers agree too little, or are too few, for these budgets and this "
            "noise; use the bound gdp or sup, more noise, more teachers, or a lower threshold"
        )
    return make_design(
        profile,
        n_queries=most,
        queries_hash=hash_queries(queries[:most]),
        reserve=reference.reserve,
        fallback=reference.fallback,
    )


def write_design(path: Path, design: Design) -> None:
    """Write a design, whole or not at all; it is public."""
    write_text(path, design.to_json() + "\n")


def read_design(path: Path) -> Design:
    """Read a design and verify every condition of it: privacy does not depend on who wrote the file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a readable design ({error}); make one with ipate design") from None
    try:
        return Design.from_json(text)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
