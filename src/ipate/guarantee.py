"""Which promise an account gives: the one place that decides what may be said and published.

Data-independent accounting gives a releasable (ε, δ). Data-dependent accounting gives a cost that
is itself private, and one that stopped a run gives no guarantee at all.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from ipate.accounting.meter import Meter
from ipate.errors import InputError

__all__ = ["SEEDED", "Guarantee", "Kind", "StoppedBy", "state_guarantee"]

Kind: TypeAlias = Literal["releasable", "private"]
StoppedBy: TypeAlias = Literal["fixed", "account", "other"]
SEEDED = "seeded: reproducible, not private"


@dataclass(frozen=True)
class Guarantee:
    """What may be said of a run's costs.

    Attributes
    ----------
    kind : {"releasable", "private"}
        Whether the costs may be published; private ones are for the data owner's eyes.
    statement : str
        One sentence that a data protection officer can rely on.
    seeded : bool
        The noise can be drawn again by whoever knows the seed: then nothing is guaranteed, whatever the kind.
    """

    kind: Kind
    statement: str
    seeded: bool = False

    @property
    def headline(self) -> str:
        """The guarantee in a word or two, for the top of a table."""
        return "SEEDED, NOT PRIVATE" if self.seeded else self.kind.upper()


def state_guarantee(meter: Meter, *, stopped_by: StoppedBy = "fixed", seeded: bool = False) -> Guarantee:
    """Return the guarantee of an account.

    Parameters
    ----------
    meter : Meter
        The bound that was charged.
    stopped_by : {"fixed", "account", "other"}
        What decided how many queries were asked: a number fixed beforehand, this very account when
        a budget was used up, or something else (another account, somebody who saw the votes).
    seeded : bool
        The noise came from a seed that somebody knows.
    """
    if stopped_by not in ("fixed", "account", "other"):
        raise InputError(f"stopped_by is {stopped_by!r}: it must be fixed, account or other")
    kind, statement = _statement(meter, stopped_by)
    if seeded:
        statement = f"{SEEDED}: whoever knows the seed can take the noise away. With secret noise: {statement}"
    return Guarantee(kind, statement, seeded)


def _statement(meter: Meter, stopped_by: StoppedBy) -> tuple[Kind, str]:
    if meter.whole and stopped_by != "other":
        return "releasable", (
            "Whatever anyone learns from the answer of the private test, from the labels, and from anything made of "
            "them, each person's own data changes its probability by at most a factor e^ε, up to δ, with the budget ε "
            "of their group; this holds for all votes, so these figures may be published. The budget is spent whether "
            "the test was passed or not; how close it was is private."
        )
    if meter.data_independent and stopped_by != "other":
        which = "the budget ε of their group"
        if stopped_by == "fixed":
            which = "the cost ε shown for their group (or, where checks decided how many labels there were, with any "
            which += "budget ε fixed beforehand that covers it)"
        return "releasable", (
            "Whatever anyone learns from the labels, and from anything made of them, each person's own data changes "
            f"its probability by at most a factor e^ε, up to δ, with {which}; this holds for all votes, so these "
            "figures may be published."
        )
    if meter.data_independent:
        return "private", (
            "The costs hold for all votes, but something other than this account decided when to stop, and "
            "that may have depended on private votes: treat these figures as private."
        )
    if stopped_by == "fixed":
        return "private", (
            "These costs are computed from the private votes: they describe this data set alone and are "
            "themselves private. They are not a differential privacy guarantee; do not publish them."
        )
    return "private", (
        "These costs are computed from the private votes, and they decided when to stop: this is not a "
        "differential privacy guarantee. It serves comparison with the paper only; do not publish it."
    )
