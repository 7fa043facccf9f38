"""What an engine states about a release for reports and cards: parameters, influence, and how it works in words.

The defaults are true of every engine, also of one that is not part of this package and describes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ipate.ledger.records import Noise
from ipate.people.budgets import Account, Budget


@dataclass(frozen=True, kw_only=True)
class GroupFacts:
    """The public facts of a group, all of which follow from budgets and numbers of people.

    `account` has its budget, people and sensitivity, and `teachers` is the number of its teachers. `weight` is None
    where teachers mix groups, `copies` is the number of teachers that learn from each person, and `participation` is
    the share of queries on which its teachers vote.
    """

    account: Account
    teachers: int = 0
    weight: float | None
    copies: int = 1
    participation: float = 1.0
    people_share: float
    vote_share: float  # of all weighted votes, or of all places in teachers where they mix groups

    @property
    def id(self) -> str:
        """The group's id."""
        return self.account.id

    @property
    def budget(self) -> Budget:
        """The budget of each of its people."""
        return self.account.group.budget

    @property
    def influence(self) -> float:
        """The influence of one person, relative to the average person."""
        return self.vote_share / self.people_share if self.people_share else 0.0


@dataclass(frozen=True, kw_only=True)
class DesignFacts:
    """The design of a release that is tested as a whole; it was fixed and public before the votes.

    `reserve` is the relative margin of cost over the reference, `likely` the probability that votes as clear as that
    pass, and `fallback` whether (ε/2, δ/10) was kept for a data-independent run after a failure.
    """

    queries: int
    reference: str
    reserve: float
    likely: float
    fallback: bool
    digest: str


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """The parameters of a release and of its accounting, all of which are public; None where there is none.

    σ, σ_T, T and the scale of Laplace noise, which has no σ, are those at this number of teachers.
    `orders` has the Rényi order that each account fixed beforehand, by group id, under bounds that need one.
    """

    engine: str = "teachers"
    variant: str
    rule: str
    teachers: int = 0
    sigma: float | None = None
    laplace_scale: float | None = None
    check_sigma: float | None = None
    threshold: float | None = None
    bound: str
    conversion: str
    orders: Mapping[str, float] = field(default_factory=dict)
    stop: str | None = None
    max_labels: int | None = None
    teacher_model: str | None = None
    student_model: str = ""
    reason: str
    design: DesignFacts | None = None
    queries: str | None = None  # the rule by which points are asked
    n_queries: int | None = None  # how many were to be asked; None: as many as the budgets afford
    counts: bool = False  # whether noisy counts are released with labels
    n_first: int | None = None  # how many points were to be asked before a student was compared with the votes

    @property
    def noise(self) -> Noise:
        """The kind of noise of labels."""
        return "gaussian" if self.laplace_scale is None else "laplace"


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How an engine releases: facts on which a report depends, and its phrases, each for one place of the report.

    Attributes
    ----------
    by_query : bool
        Whether labels are charged query by query, so that the ledger's queries and labels are those of the record.
    uniform : bool
        Whether every group pays for every release alike, so that a short program can add the costs up.
    individual : bool
        Whether budgets decide about influence.
    proofs : tuple of str
        The pages of `docs/proofs` that the promise rests on.
    outside : tuple of str
        The parts that are not part of this package, such as "engine toy:Counts".
    charged : str
        How releases were charged; empty where they were charged query by query, which the report explains itself.
    before, after : str
        What a withdrawal does to a person's data before and after the release, where no models learnt from it.
    """

    by_query: bool = False
    uniform: bool = False
    individual: bool = True
    proofs: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    rows: tuple[tuple[str, str], ...] = ()  # of the table of parameters
    influence_title: str | None = None  # what differs between groups, as a column; None: no column
    influence: Literal["weight", "copies", "participation"] = "weight"  # the fact of a group in it
    influence_note: str | None = None
    opening: str = "had their rows used by an engine"
    became: str = "which labelled public points with noise; a student learnt from those labels alone"
    took_part: str = "was used"
    charged: str = (
        "Every release was charged before it was made, at the price that the engine states for it. So the promise to "
        "rely on is the budget; the cost shown is what was spent of it."
    )
    released: str = "The labels, and whatever else was released for the student."
    withdrew: str = "nothing more is charged to them, and the promise about what was released before still holds."
    public_people: str = "How many withdrew."
    public_settings: str = "The noise parameters and the way of accounting."
    leaver: str = "their data is not used any more"
    before: str = "their data is not used any more"
    after: str = "what was released with their data stays released"
    way: str = "an engine labelled them with noise"
    how: str = "The labels were released with noise."
    asked: str = "Nobody can ask further questions of the private data."
    collected: str = "This run collected nothing: it read data that were there."
    noise_of: str = "labels"
    noise_on: str = ""
    figures: str = ""  # from which public figures the costs follow; empty where no program recomputes them
    card: str = (
        "Private rows of people were used to label public points, with noise. {labels:,} of {pool:,} points got a "
        "label; the student was trained on these."
    )


@dataclass(frozen=True, kw_only=True)
class Description:
    """What an engine states about a release; without `groups`, a person's weight is what their account is charged."""

    parameters: Parameters
    manner: Manner = Manner()
    groups: tuple[GroupFacts, ...] | None = None


def from_outside(**parts: object) -> tuple[str, ...]:
    """Return the parts that are not part of this package, each with its kind and its name."""
    kinds = {kind: part if isinstance(part, type) else type(part) for kind, part in parts.items()}
    return tuple(
        f"{kind} {getattr(parts[kind], 'name', made.__name__)}"
        for kind, made in kinds.items()
        if made.__module__.partition(".")[0] != "ipate"
    )


def not_proven(outside: tuple[str, ...]) -> str:
    """Return the sentence about parts from outside; empty if there are none."""
    if not outside:
        return ""
    return (
        f"From outside, not proven: {', '.join(outside)}. What is promised rests on what these parts state about "
        "themselves; the proofs of ipate do not cover them."
    )
