"""The facts of a report: everything that is public, and what only the data owner may see.

`for_audience` filters them. `Facts.released` is None where no figure may be released, and `Facts.owner` is None in
every public report, so text that is written from public facts cannot contain a private number.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from ipate.allocation.layout import Merge
from ipate.people.budgets import MIN_GROUP_SIZE, has_small, shown_count, shown_counts
from ipate.release.description import GroupFacts, Manner, Parameters
from ipate.release.history import Composition, Point
from ipate.release.results import BallotFacts, Ending, GroupResult, Guarantee, StoppedBy

Audience: TypeAlias = Literal["public", "private"]
WITHHELD = "There is no figure for this run that may be published."
HAS_FIGURE = "A run has one with secret noise, a bound that holds for all votes, and a pool without private rows."


@dataclass(frozen=True, kw_only=True)
class Scores:
    """The accuracy of labels and student, where true labels are known."""

    labels: int | None = None
    queries: int | None = None
    label_accuracy: float | None = None
    student_accuracy: float | None = None
    balanced_accuracy: float | None = None  # the mean of the student's recall over the classes
    majority_accuracy: float | None = None  # of always saying the class of most released labels
    by_class: Mapping[str, float] | None = None
    by_level: Mapping[str, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What labelling released and its cost.

    `groups` has the results in the order of the facts' groups, and `history` the growth of costs in this run. `opening`
    is what earlier runs cost a group, by its id and in the unit of its account (μ² under gdp, a Rényi cost at the
    account's order), and `reused_queries` counts the queries that those runs paid for. `passed` is the result of the
    private test, if there was one.
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
    by_class: Mapping[str, int] = field(default_factory=dict)  # labels of each class
    notes: tuple[str, ...] = ()  # what the labels of each class mean for a student
    ballots: BallotFacts | None = None  # of the histogram that the labels were read off
    composition: Mapping[str, Composition] = field(default_factory=dict)  # the releases of this run, by group id
    reinforced: int = 0  # points that kept a student's own class, because the votes did not contradict it

    @property
    def carried(self) -> bool:
        """Whether earlier runs on the same ledger have a cost."""
        return any(group.before > 0 for group in self.groups)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Standard PATE, a non-private student and other engines, all with the same private data."""

    note: str
    standard: Scores
    ceiling: Scores
    others: Mapping[str, Scores] = field(default_factory=dict)  # other engines, by their title


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What identifies a run and who is responsible for it; all of it may be published.

    `begun` and `policy_date` are days. `fingerprints` are hashes of public data and of settings, never of private rows.
    """

    run: str | None = None
    begun: str | None = None
    controller: str | None = None
    contact: str | None = None
    purpose: str | None = None
    region: str | None = None
    sector: str | None = None
    policy_version: str | None = None
    policy_date: str | None = None
    fingerprints: Mapping[str, str] = field(default_factory=dict)

    @property
    def policy(self) -> str | None:
        """The version of the policy and the day from which it is valid, in words; None if neither is known."""
        version = None if self.policy_version is None else f"version {self.policy_version}"
        since = None if self.policy_date is None else f"valid from {self.policy_date}"
        return ", ".join(part for part in (version, since) if part is not None) or None


@dataclass(frozen=True, kw_only=True)
class ConsentFacts:
    """When people agreed, and how many of them to which version of the policy; for the data owner only."""

    dates: tuple[str, str] | None  # the first and the last day
    versions: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Owner:
    """What only the data owner may see: all costs, and scores with true labels.

    Accuracies of teachers are computed from private votes. `owed` has one sentence for each person who withdrew, about
    the releases before their withdrawal; it names the person. `fingerprint` is the keyed one of the private file.
    """

    outcome: Outcome
    scores: Scores
    standard_labels: int | None = None
    teacher_accuracy: float | None = None
    plurality_accuracy: float | None = None
    comparison: Comparison | None = None
    owed: tuple[str, ...] = ()
    consent: ConsentFacts | None = None
    fingerprint: str | None = None


@dataclass(frozen=True, kw_only=True)
class About:
    """What a report says about the data and the programs of a run, as it was given."""

    data_name: str
    data_source: str = ""
    data_notes: tuple[str, ...] = ()
    classes: tuple[str, ...]
    n_test: int | None = None
    noise_seed: int | None
    split_seed: int | None
    versions: Mapping[str, str]
    later_versions: tuple[Mapping[str, str], ...] = ()
    overlap: bool = False  # whether private rows or people are also in the pool or the test data
    unprotected: int = 0  # people of the private file whose rows are pool or test data
    min_group_size: int = MIN_GROUP_SIZE  # smaller groups are not counted
    public_scores: "Scores | None" = None  # found with public labels alone
    student_folder: str = ""  # where the deployed student lies in the run's folder
    levels: bool = True  # whether groups are consent levels, rather than numbers that people chose
    by_row: bool = False  # whether the data names no people, so that every row counts as a person of its own
    identity: Identity = Identity()
    elsewhere: bool = False  # whether teachers were trained or ballots cast elsewhere, so that there is no run folder
    sites: tuple[str, ...] = ()  # the sites whose votes or ballots were merged


@dataclass(frozen=True, kw_only=True)
class Facts(About):
    """Everything that a report is written from.

    `released` is the outcome where the guarantee permits its publication, and `owner` is None in every public report.
    `stopped_by`, `ledger_head` (its count reveals the length of a run) and `noise_seed` are None where they are
    private. `private_history` means that an earlier run on the same ledger was charged private costs, which determine
    the budget left for this one.
    """

    audience: Audience
    n_people: int | None  # None where sites do not state numbers of people
    n_pool: int
    groups: tuple[GroupFacts, ...]
    merged: tuple[Merge, ...]
    withdrawn: int
    notes: tuple[str, ...]
    parameters: Parameters
    manner: Manner
    guarantee: Guarantee
    stopped_by: StoppedBy | None
    ledger_head: str | None = None
    private_history: bool = False
    replaces: tuple[str, ...] = ()  # other ledgers of these people whose charges are not counted here
    released: Outcome | None = None
    owner: Owner | None = None

    @property
    def publishable(self) -> bool:
        """Whether there is a guarantee that permits the publication of costs and answers."""
        return self.guarantee.publishable

    @property
    def people(self) -> str:
        """The number of people in words."""
        return "people whose number is not stated" if self.n_people is None else f"{self.n_people:,} people"

    @property
    def people_counted(self) -> str:
        """The number of people in brackets, for the end of a phrase; empty where it is not stated."""
        return "" if self.n_people is None else f" ({self.n_people:,} people)"

    @property
    def unit(self) -> str:
        """What counts as one person, in a sentence."""
        if self.by_row:
            return (
                "The data names no people, so every row was counted as a person of its own: for somebody with several "
                "rows, the ε of their rows add up."
            )
        return "All rows of one person count together."

    def count(self, people: int) -> int | str | None:
        """Return a number of people who joined another group as it may be shown; None where they are not stated."""
        return None if self.n_people is None else shown_count(people, least=self.min_group_size) or 0

    @property
    def has_small(self) -> bool:
        """Whether a group has too few people to be counted, so that no figure may tell the size of any."""
        return has_small((group.account.people for group in self.groups), least=self.min_group_size)

    def size(self, group: GroupFacts) -> int | str | None:
        """Return the number of people of a group as it may be shown; None where it is not stated."""
        shown = shown_counts((other.account.people for other in self.groups), least=self.min_group_size)
        return None if self.n_people is None else shown[self.groups.index(group)]

    def is_counted(self, group: GroupFacts) -> bool:
        """Whether the number of people of a group is shown."""
        return isinstance(self.size(group), int)

    @property
    def outcome(self) -> Outcome | None:
        """The outcome that this audience may see, or None."""
        return self.owner.outcome if self.owner is not None else self.released


def for_audience(facts: Facts, audience: Audience) -> Facts:
    """Return the facts without those that this audience may not see; every report is filtered here."""
    if audience == "private":
        return replace(facts, audience=audience)
    open_facts = replace(facts, audience=audience, owner=None, noise_seed=None)  # a seed reveals the noise
    if facts.publishable:
        return open_facts
    silent = replace(facts.guarantee, statement=WITHHELD)
    figures = replace(facts.parameters, orders={})  # of several fixed orders, the costs say which one counts
    open_facts = replace(open_facts, parameters=figures, student_folder="")  # whether there is one depends on labels
    return replace(open_facts, released=None, stopped_by=None, ledger_head=None, public_scores=None, guarantee=silent)
