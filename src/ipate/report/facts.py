"""What a report may say, as values: everything that is public, and what only the data owner may see.

The gate is here. `Facts.released` is empty where no figure may be released, and `Facts.owner` is empty in
every public report, so whatever is written from public facts cannot hold a private number.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from ipate.labelling.history import Point
from ipate.labelling.results import Ending, GroupResult, Guarantee, StoppedBy
from ipate.people.budgets import Account, Budget

Audience: TypeAlias = Literal["public", "private"]
WITHHELD = "There is no figure for this run that may be published."


@dataclass(frozen=True, kw_only=True)
class GroupFacts:
    """A group as everybody may see it: everything follows from budgets and numbers of people alone.

    `account` has its budget, its people and what one of them can move; `teachers` is over how many teachers they are
    spread. The weight of its teachers is None where teachers mix groups, `copies` says how many teachers learn from
    each person and `participation` in which share of the queries its teachers vote.
    """

    account: Account
    teachers: int
    weight: float | None
    copies: int
    participation: float
    people_share: float
    vote_share: float  # of all weighted votes, or of all places in teachers where they mix groups

    @property
    def id(self) -> str:
        """The group's id."""
        return self.account.id

    @property
    def budget(self) -> Budget:
        """What each of its people allows."""
        return self.account.group.budget

    @property
    def influence(self) -> float:
        """How much one person counts, with the average person as 1."""
        return self.vote_share / self.people_share if self.people_share else 0.0


@dataclass(frozen=True, kw_only=True)
class DesignFacts:
    """The design of a release that is tested as a whole; all of it was fixed, and public, before the votes.

    `reserve` is by how much more than the reference the votes might have cost, `likely` the probability to pass of
    votes as clear as that, and `fallback` whether (ε/2, δ/10) was kept for a data-independent run after a failure.
    """

    queries: int
    reference: str
    reserve: float
    likely: float
    fallback: bool
    digest: str


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """How votes became labels and how they were charged; all of it is public.

    σ, σ_T and T are as used for this number of teachers. `orders` has the Rényi order that each account fixed
    beforehand, by group id, under the bounds that need one.
    """

    variant: str
    rule: str
    teachers: int
    sigma: float
    check_sigma: float | None
    threshold: float | None
    bound: str
    conversion: str
    orders: tuple[tuple[str, float], ...]
    stop: str
    max_labels: int | None
    teacher_model: str
    student_model: str
    reason: str
    design: DesignFacts | None = None


@dataclass(frozen=True, kw_only=True)
class Scores:
    """How often labels and student are right, as far as the truth is known."""

    labels: int | None = None
    queries: int | None = None
    label_accuracy: float | None = None
    student_accuracy: float | None = None
    by_class: Mapping[str, float] | None = None
    by_level: Mapping[str, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What labelling released and what it cost.

    `groups` are the results in the order of the facts' groups and `history` the costs as they grew in this run.
    `opening` is what earlier runs had spent in the account's own unit (μ² under gdp, a Rényi cost at the account's
    order), by group id, and `reused_queries` of the queries were paid for by those runs. `passed` is the answer of
    the private test, where there was one.
    """

    ended: Ending
    n_labels: int
    n_queries: int
    groups: tuple[GroupResult, ...]
    history: tuple[Point, ...]
    opening: Mapping[str, float] = field(default_factory=dict)
    reused_queries: int = 0
    reused_labels: int = 0
    passed: bool | None = None

    @property
    def carried(self) -> bool:
        """Whether earlier runs on the same ledger had spent something."""
        return any(group.before > 0 for group in self.groups)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Standard PATE and a student without privacy, trained beside the run on the same private data."""

    note: str
    standard: Scores
    ceiling: Scores


@dataclass(frozen=True, kw_only=True)
class Owner:
    """What only the data owner may see: costs whether they may be released or not, and scores by true labels.

    Accuracies of teachers are read off private votes. `owed` says what labels that were released before a withdrawal
    owe each person who withdrew, in sentences that name them.
    """

    outcome: Outcome
    scores: Scores
    standard_labels: int | None = None
    teacher_accuracy: float | None = None
    plurality_accuracy: float | None = None
    comparison: Comparison | None = None
    owed: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Everything that a report is written from.

    `released` is what labelling gave, where the guarantee lets it be published, and `owner` what only the data owner
    may see: None in every public report. `stopped_by`, `ledger_head` (its counts tell how long a run was) and
    `noise_seed` are None where they are private. `private_history` says that an earlier run on the same ledger was
    charged by private costs and decides what is left for this one. `levels` says whether groups are consent levels,
    rather than numbers that people chose.
    """

    audience: Audience
    data_name: str
    data_source: str
    data_notes: tuple[str, ...]
    classes: tuple[str, ...]
    n_classes: int
    n_people: int
    n_pool: int
    groups: tuple[GroupFacts, ...]
    merged: tuple[tuple[str, str, int], ...]
    withdrawn: int
    notes: tuple[str, ...]
    parameters: Parameters
    guarantee: Guarantee
    stopped_by: StoppedBy | None
    noise_seed: int | None
    split_seed: int | None
    versions: Mapping[str, str]
    n_test: int | None = None
    later_versions: tuple[Mapping[str, str], ...] = ()
    ledger_head: str | None = None
    private_history: bool = False
    levels: bool = True
    released: Outcome | None = None
    owner: Owner | None = None

    @property
    def publishable(self) -> bool:
        """Whether there is a guarantee: releasable costs, and noise that nobody can draw again."""
        return self.guarantee.kind == "releasable" and not self.guarantee.seeded

    @property
    def design(self) -> DesignFacts | None:
        """The design, where the release was tested as a whole."""
        return self.parameters.design

    @property
    def outcome(self) -> Outcome | None:
        """What this audience may see of the costs and results."""
        return self.owner.outcome if self.owner is not None else self.released


def for_audience(facts: Facts, audience: Audience) -> Facts:
    """Return the facts with everything removed that this audience may not see: the gate of every report."""
    if audience == "private":
        return replace(facts, audience=audience)
    open_facts = replace(facts, audience=audience, owner=None, noise_seed=None)  # a seed gives the noise away
    if facts.publishable:
        return open_facts
    silent = Guarantee(facts.guarantee.kind, WITHHELD, facts.guarantee.seeded)
    return replace(open_facts, released=None, stopped_by=None, ledger_head=None, guarantee=silent)
