"""What an audit found: the attacks on every group's canary beside what was promised and charged."""

from dataclasses import asdict, dataclass
from typing import Any

FOUND = "ABOVE THE PROMISE"
PASSED = "nothing above the promise"
UNPROMISED = "the run promises nothing; nothing above what its settings promise with secure noise"


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One attack on one group: `releases` of one kind, what the ledger charged for them, and the ε that they show.

    `charged` is None where the ledger has no price for these releases alone.
    """

    name: str
    releases: int
    charged: float | None
    reached: float


@dataclass(frozen=True, kw_only=True)
class GroupAudit:
    """The attacks on the canary of one group: the person of it who can move most.

    `promised` is the ε that its people consented to, `teachers` the number of teachers that the canary's rows reach
    (None for ballots), and `moved` the weight of votes, or of a ballot, that they move.
    """

    group: str
    promised: float
    delta: float
    moved: float
    teachers: int | None
    attacks: tuple[Attack, ...]

    @property
    def reached(self) -> float:
        """The largest lower bound on ε."""
        return max((attack.reached for attack in self.attacks), default=0.0)

    def exceeds(self, attack: Attack) -> bool:
        """Whether an attack shows more than was promised, or more than the ledger charged for these releases."""
        return attack.reached > self.promised or (attack.charged is not None and attack.reached > attack.charged)

    @property
    def found(self) -> bool:
        """Whether any attack shows more than was promised or charged."""
        return any(map(self.exceeds, self.attacks))


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One kind of noise: its stated deviation, an upper limit that was measured, and whether draws are independent.

    Under Laplace noise, both figures are its scale.
    """

    kind: str
    noise: str = "gaussian"
    stated: float
    most: float
    draws: int
    fresh: bool = True


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The result of an audit.

    `private` says that it used who learns from whom among real people, or figures of a run whose guarantee is not
    releasable.
    """

    run: str
    voting: str
    guarantee: str
    confidence: float
    people: str
    private: bool
    groups: tuple[GroupAudit, ...]
    noise: tuple[Measured, ...]
    notes: tuple[str, ...]
    seconds: float

    @property
    def found(self) -> bool:
        """Whether an attack shows more than was promised or charged, or noise was not drawn afresh."""
        return any(group.found for group in self.groups) or not all(measured.fresh for measured in self.noise)

    @property
    def verdict(self) -> str:
        """The verdict in a few words."""
        return FOUND if self.found else PASSED if self.guarantee == "releasable" else UNPROMISED

    def as_json(self) -> dict[str, Any]:
        """Return the audit in JSON form."""
        kept = {**asdict(self), "found": self.found, "verdict": self.verdict}
        for stated, group in zip(kept["groups"], self.groups, strict=True):
            stated |= {"reached": group.reached, "found": group.found}
        return kept
