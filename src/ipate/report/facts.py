"""What a report may say, as values: everything that is public, and what only the data owner may see.

The gate is here. `Facts.released` is empty where no figure may be released, and `Facts.owner` is empty in
every public report, so whatever is written from public facts cannot hold a private number.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from ipate.labelling.results import Guarantee, StoppedBy

Audience: TypeAlias = Literal["public", "private"]
WITHHELD = "There is no figure for this run that may be published."


@dataclass(frozen=True, kw_only=True)
class GroupFacts:
    """A group as everybody may see it: it follows from budgets and numbers of people alone.

    Attributes
    ----------
    group : str
        Its id.
    people, teachers : int
        How many people count with it, and over how many teachers they are spread.
    budget, delta : float
        What each of its people allowed.
    sensitivity : float
        The most that one person can move in one voting, at the start.
    weight : float or None
        The weight of one of its teachers; None where teachers mix groups.
    copies : int
        How many teachers learn from each person.
    participation : float
        In which share of the votings each of its teachers takes part.
    people_share, vote_share : float
        Its share of all people, and of all weighted votes (or of all places in teachers, where they mix groups).
    """

    group: str
    people: int
    teachers: int
    budget: float
    delta: float
    sensitivity: float
    weight: float | None
    copies: int
    participation: float
    people_share: float
    vote_share: float

    @property
    def influence(self) -> float:
        """How much one person counts, with the average person as 1."""
        return self.vote_share / self.people_share if self.people_share else 0.0


@dataclass(frozen=True, kw_only=True)
class DesignFacts:
    """The design of a release that is tested as a whole; all of it was fixed, and public, before the votes.

    Attributes
    ----------
    queries : int
        How many queries the design asks.
    reference : str
        What it was made from, in words.
    reserve : float
        By how much more than the reference the votes might have cost.
    likely : float
        The probability to pass of votes as clear as that: the highest there is.
    fallback : bool
        Whether (ε/2, δ/10) was kept for a data-independent run after a failure.
    digest : str
        Hash of the design.
    """

    queries: int
    reference: str
    reserve: float
    likely: float
    fallback: bool
    digest: str


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """How votes became labels and how they were charged; all of it public.

    Attributes
    ----------
    sigma, check_sigma, threshold : float
        The noise of labels and checks and the threshold, as used for this number of teachers.
    orders : tuple of (group, order)
        The Rényi order that each account fixed beforehand, under loose and sup.
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
class Spent:
    """What one group paid.

    Attributes
    ----------
    cost : float
        ε of everything that was charged, earlier runs on the same ledger included.
    before, own : float
        ε of what earlier runs had spent, and of this run alone. They are counted together, so they need not add up.
    carried : float
        What earlier runs had spent in the account's own unit (μ² under gdp, a Rényi cost at its order), for checking.
    """

    group: str
    cost: float
    sensitivity: float
    labels_until_exhausted: int | None
    before: float = 0.0
    own: float | None = None
    carried: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Point:
    """Every group's cost after some queries; `costs` are in the order of the groups."""

    queries: int
    labels: int
    costs: tuple[float, ...]


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

    Attributes
    ----------
    ended : {"budget", "count", "pool", "failed"}
        What ended the labelling.
    passed : bool or None
        The answer of the private test, where the release was tested as a whole.
    spent : tuple of Spent
        In the order of the groups.
    history : tuple of Point
        The costs as they grew in this run, recomputed from the recorded answers.
    whole : bool
        Whether the history is known between its ends; costs that look at votes cannot be followed without these.
    reused_queries, reused_labels : int
        How many of the queries and labels earlier runs had paid for: they were given again, free.
    """

    ended: str
    n_labels: int
    n_queries: int
    spent: tuple[Spent, ...]
    history: tuple[Point, ...]
    whole: bool = True
    reused_queries: int = 0
    reused_labels: int = 0
    passed: bool | None = None

    @property
    def carried(self) -> bool:
        """Whether earlier runs on the same ledger had spent something."""
        return any(spent.before > 0 for spent in self.spent)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Standard PATE and a student without privacy, trained beside the run on the same private data."""

    note: str
    standard: Scores
    ceiling: Scores


@dataclass(frozen=True, kw_only=True)
class Owner:
    """What only the data owner may see.

    Attributes
    ----------
    outcome : Outcome
        Costs and history, whether they may be released or not.
    scores : Scores
        How good labels and student are, by true labels that nobody gave away.
    standard_labels : int or None
        The labels that standard PATE would afford at the strictest budget, by its account.
    teacher_accuracy, plurality_accuracy : float or None
        How often single teachers, and most of them together, are right: read off private votes.
    comparison : Comparison or None
        Where the run was made with it.
    owed : tuple of str
        What labels that were already released owe each person who withdrew, in sentences that name them.
    """

    outcome: Outcome
    scores: Scores
    standard_labels: int | None
    teacher_accuracy: float | None
    plurality_accuracy: float | None
    comparison: Comparison | None
    owed: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Everything that a report is written from.

    Attributes
    ----------
    guarantee : Guarantee
        What may be said of the costs.
    stopped_by : {"fixed", "account", "other"} or None
        What decided how many queries were asked; None where even that is private.
    noise_seed : int or None
        The seed of the noise, for the data owner alone; None for secure noise.
    n_test : int or None
        How many rows were kept for testing.
    later_versions : tuple of mappings
        Versions of programs that continued the run, where they were others.
    ledger_head : str or None
        Where the ledger stood; its counts tell how long a run was, so None where that is private.
    private_history : bool
        An earlier run on the same ledger was charged by private costs, and decides what is left for this one.
    levels : bool
        Whether groups are consent levels, rather than numbers that people chose.
    released : Outcome or None
        What labelling gave, where the guarantee lets it be published: releasable costs and secret noise.
    owner : Owner or None
        What only the data owner may see; None in every public report.
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
