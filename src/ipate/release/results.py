"""Results of labelling: answers, the cost of each group, and the kind of guarantee.

The JSON form of a result: what may be published in one block, and what may not in another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ipate.accounting.bounds import Meter
from ipate.errors import InputError
from ipate.people.budgets import MIN_GROUP_SIZE, Budget, Group, has_small, shown_counts, strictest_first

Kind: TypeAlias = Literal["releasable", "private", "none"]
StoppedBy: TypeAlias = Literal["fixed", "account", "other"]
SEEDED = "seeded: reproducible, not private"
OVERLAP = "overlap of pool and private data: not private"
COMPARED = (
    "Nothing is promised about the comparison: it used the private data a second time, uncharged and partly without "
    "noise. Do not publish it."
)


@dataclass(frozen=True)
class Guarantee:
    """The kind of guarantee that a run's costs give, and its wording.

    The kind says whether the costs hold for all votes and may be published ("releasable"), are for the data owner only
    ("private"), or promise nothing ("none"), as with noise from a seed, which whoever knows it can reproduce.
    """

    kind: Kind
    statement: str  # one sentence that a data protection officer can rely on
    seeded: bool = False  # the noise came from a seed
    overlap: bool = False  # private rows or people are also in the pool or the test data

    @property
    def publishable(self) -> bool:
        """Whether costs and answers may be published."""
        return self.kind == "releasable"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why nothing is promised; empty unless the kind is "none"."""
        return ((SEEDED,) if self.seeded else ()) + ((OVERLAP,) if self.overlap else ())

    @property
    def headline(self) -> str:
        """The guarantee in a few words, for the top of a table."""
        why = [name for name, given in (("SEEDED", self.seeded), ("OVERLAP", self.overlap)) if given]
        return f"NO GUARANTEE ({', '.join(why)})" if why else self.kind.upper()


def state_guarantee(
    meter: Meter, *, stopped_by: StoppedBy = "fixed", seeded: bool = False, overlap: bool = False, counts: bool = False
) -> Guarantee:
    """Return the guarantee of costs counted by `meter`.

    `stopped_by` says what decided how many queries were asked: a number fixed beforehand, this account when a budget
    was exhausted, or something else (another account, or a person who saw the votes). Seeded noise and an `overlap` of
    the private data with public data promise nothing, whatever the costs. `counts` says that noisy counts were released
    with the labels.
    """
    if stopped_by not in ("fixed", "account", "other"):
        raise InputError(f"stopped_by is {stopped_by!r}: it must be fixed, account or other")
    if not (seeded or overlap):
        return Guarantee(
            *_statement(meter, stopped_by, "the labels and their noisy counts" if counts else "the labels")
        )
    why = [SEEDED, "whoever knows the seed can take the noise away and see the votes"] if seeded else []
    why += [OVERLAP, "the pool and the test data are used without protection"] if overlap else []
    statement = f"Nothing is promised ({'; '.join(why)}). Publish neither figures nor labels nor the student."
    return Guarantee("none", statement, seeded, overlap)


def _statement(meter: Meter, stopped_by: StoppedBy, released: str) -> tuple[Kind, str]:
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
            f"Whatever anyone learns from {released}, and from anything made of them, each person's own data changes "
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


Ending: TypeAlias = Literal["budget", "count", "pool", "failed"]


@dataclass(frozen=True, kw_only=True)
class GroupResult:
    """The result of one group: its votes and costs, for the person of the group with the largest cost.

    Attributes
    ----------
    group : Group
        Its id, its budget and its number of people.
    sensitivity : float
        The largest weight that one of its people moved in any query.
    cost : float
        ε of all charges, including earlier runs on the same ledger. Under a data-dependent bound this number is itself
        private.
    teachers, weight : int and float, or None
        Number of teachers trained on its people, and the weight of one at the start; None where teachers mix groups.
    before, own : float
        ε of earlier runs, and of this run alone (or None). Costs compose, so these need not add up to `cost`.
    order : float or None
        The Rényi order that gives the cost; None under gdp, and where nothing was released.
    exhausted_at : int or None
        The first query whose cost exceeds the budget of an account.
    labels_until_exhausted : int or None
        Number of labels when the group could not pay the next query; None if it still could.
    """

    group: Group
    sensitivity: float
    cost: float
    teachers: int | None = None
    weight: float | None = None
    before: float = 0.0
    own: float | None = None
    order: float | None = None
    exhausted_at: int | None = None
    labels_until_exhausted: int | None = None

    @property
    def id(self) -> str:
        """The group's id."""
        return self.group.id

    @property
    def budget(self) -> Budget:
        """The budget of each of its people."""
        return self.group.budget

    @property
    def copies(self) -> int:
        """How many teachers learn from each of its people: several only where teachers mix groups."""
        return 1 if self.weight is not None else max(1, round(self.sensitivity))

    @property
    def used(self) -> float:
        """The share of the budget's ε that is spent."""
        return self.cost / self.budget.epsilon

    def as_json(self) -> dict[str, Any]:
        """Return the result in the JSON form of all commands and files: what is public of it, then its costs."""
        return {**self.inputs(), **self.costs()}

    def inputs(self) -> dict[str, Any]:
        """Return what is public under every kind of guarantee, because no vote decides it.

        The weight of a ballot is not: it follows from what earlier runs left of the budget, which may be private.
        """
        return {
            "group": self.group.id,
            "people": self.group.people,
            "teachers": self.teachers,
            "weight": None if self.teachers is None else self.weight,
            "budget": self.budget.epsilon,
            "delta": self.budget.delta,
        }

    def costs(self) -> dict[str, Any]:
        """Return what labelling made of it, which may be published if the guarantee is releasable."""
        return ({"weight": self.weight} if self.teachers is None else {}) | {
            "sensitivity": self.sensitivity,
            "spent_before": self.before,
            "this_run_alone": self.own,
            "epsilon": self.cost,
            "order": self.order,
            "exhausted_at": self.exhausted_at,
            "labels_until_exhausted": self.labels_until_exhausted,
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Read what `as_json` returned."""
        group = Group(id=found["group"], budget=Budget(found["budget"], found["delta"]), people=found["people"])
        same = ("teachers", "weight", "sensitivity", "order", "exhausted_at", "labels_until_exhausted")
        return cls(
            group=group,
            cost=found["epsilon"],
            before=found["spent_before"],
            own=found["this_run_alone"],
            **{name: found[name] for name in same},
        )


@dataclass(frozen=True, kw_only=True)
class BallotFacts:
    """The figures of a release of ballots: the histogram's partitions, cells and classes, and all weights together."""

    partitions: int
    cells: int
    classes: int
    sigma: float
    weight: float  # Σw of everybody, whether they cast a ballot or not

    @property
    def per_class(self) -> float:
        """Σw/σ per class, by which a reader can tell how reliable labels are."""
        return self.weight / (self.sigma * self.classes)


@dataclass(frozen=True, kw_only=True)
class Labelling:
    """The answers to all queries asked, in the order asked, and the cost of each group.

    Attributes
    ----------
    queries, labels : integer array
        Positions in the votes of the queries asked, and their labels, −1 for none.
    answered : bool array
        Where a noisy label was released (repeats of an answered query count as answered).
    reinforced, repeated : bool array
        Where the student's own class was returned, and where a stored answer was returned at no cost.
    stopped_by : {"budget", "count", "pool", "failed"}
        What ended the run: an exhausted budget, a number fixed beforehand, no more queries, or a failed test.
    passed : bool or None
        The published bit of a release that is tested as a whole; None where there was no test.
    ballots : BallotFacts or None
        The figures of the histogram that the labels were read off, where people cast ballots.
    confidence : integer array or None
        Where people cast ballots: the bin of each label's margin, from 0 to 7.
    noisy_votes : integer array of shape (queries, classes), or None
        The noisy counts that the labels are read off, in whole multiples of `step`; None if they were not asked for.
    step : array of shape (queries,), or None
        σ/8 of every query's noisy counts; 0 where none were released: the query was not answered, or the ledger holds
        its label of an earlier run without them. A stored answer keeps the σ that it was drawn with.
    """

    queries: NDArray[np.int64]
    labels: NDArray[np.int64]
    answered: NDArray[np.bool_]
    reinforced: NDArray[np.bool_]
    repeated: NDArray[np.bool_]
    stopped_by: Ending
    guarantee: Guarantee
    seeded: bool
    meter: Meter
    groups: tuple[GroupResult, ...]
    passed: bool | None = None
    ballots: BallotFacts | None = None
    confidence: NDArray[np.int64] | None = None
    noisy_votes: NDArray[np.int64] | None = None
    step: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", strictest_first(self.groups))

    def overlapping(self) -> Self:
        """Return the same labelling without a guarantee, because private data is also in the pool or test data."""
        return replace(self, guarantee=state_guarantee(self.meter, seeded=self.seeded, overlap=True))

    @property
    def n_labels(self) -> int:
        """The number of different queries that were answered with a noisy label."""
        return int(np.count_nonzero(self.answered & ~self.repeated))

    @property
    def n_queries(self) -> int:
        """The number of different queries asked."""
        return int(np.count_nonzero(~self.repeated))


@dataclass(frozen=True, kw_only=True)
class Record:
    """The outcome of labelling a pool, as it is stored with a run."""

    labels: NDArray[np.int64]  # (pool,): the class of each public point, −1 for none
    queries: tuple[int, ...]  # positions in the pool, in the order asked
    n_labels: int
    n_queries: int
    kind: Kind
    statement: str
    stopped_by: Ending
    bound: str
    conversion: str
    seeded: bool
    overlap: bool
    groups: tuple[GroupResult, ...]  # costs include earlier runs on the same ledger
    ledger_head: str  # after the last charge, for rollback detection
    passed: bool | None = None  # the published bit of a release that is tested as a whole
    ballots: BallotFacts | None = None  # of the histogram that the labels were read off
    noisy_votes: NDArray[np.int64] | None = None  # (pool, classes): counts in multiples of `step`, if asked for
    step: NDArray[np.float64] | None = None  # (pool,): σ/8 of the counts, 0 where none were released
    reinforced: tuple[int, ...] = ()  # positions whose label is a student's own class, which cost no label

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", strictest_first(self.groups))

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the costs."""
        return Guarantee(self.kind, self.statement, self.seeded, self.overlap)

    @property
    def publishable(self) -> bool:
        """Whether costs and answers may be published."""
        return self.guarantee.publishable

    @property
    def teachers_labels(self) -> NDArray[np.int64]:
        """The labels without a student's own classes, which nobody voted for."""
        labels = self.labels.copy()
        labels[list(self.reinforced)] = -1
        return labels

    def as_json(self, *, answers: bool) -> dict[str, Any]:
        """Return the record in JSON form, with or without the answers."""
        kept = {field.name: getattr(self, field.name) for field in fields(self)}
        kept["groups"] = [group.as_json() for group in self.groups]
        kept["ballots"] = None if self.ballots is None else asdict(self.ballots)
        given = {name: kept.pop(name) for name in ("labels", "queries", "noisy_votes", "step", "reinforced")}
        if not answers:
            return kept
        shown = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in given.items()}
        return {**shown, "queries": list(self.queries), "reinforced": list(self.reinforced), **kept}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Read what `as_json` returned with answers."""
        kept = dict(found)
        kept["labels"], kept["queries"] = np.array(kept["labels"], dtype=np.int64), tuple(kept["queries"])
        kept["reinforced"] = tuple(kept.get("reinforced", ()))
        kept["groups"] = tuple(map(GroupResult.from_json, kept["groups"]))
        kept["ballots"] = None if kept["ballots"] is None else BallotFacts(**kept["ballots"])
        for name, dtype in (("noisy_votes", np.int64), ("step", np.float64)):
            kept[name] = None if kept[name] is None else np.array(kept[name], dtype=dtype)
        return cls(**kept)

    def check_answers(self, paid: Mapping[str, int]) -> None:
        """Refuse a record whose answers differ from the paid ones in the ledger, by query id."""
        for query in self.queries:
            if paid.get(str(query)) != int(self.labels[query]):
                raise InputError(
                    f"labelling.json states another answer to query {query} than the ledger was charged for: it was "
                    "edited; remove it, and ipate run --resume will restore it from the ledger"
                )

    @classmethod
    def of(cls, result: Labelling, *, n_public: int, ledger_head: str = "") -> "Record":
        """Return the record of a labelling of `n_public` points."""
        labels = np.full(n_public, -1, dtype=np.int64)
        labels[result.queries] = result.labels
        noisy, step = None, None
        if result.noisy_votes is not None and result.step is not None:
            noisy = np.zeros((n_public, result.noisy_votes.shape[1]), dtype=np.int64)
            step = np.zeros(n_public)
            noisy[result.queries], step[result.queries] = result.noisy_votes, result.step
        return cls(
            labels=labels,
            queries=tuple(result.queries.tolist()),
            n_labels=result.n_labels,
            n_queries=result.n_queries,
            kind=result.guarantee.kind,
            statement=result.guarantee.statement,
            stopped_by=result.stopped_by,
            bound=result.meter.bound,
            conversion=result.meter.conversion,
            seeded=result.seeded,
            overlap=result.guarantee.overlap,
            groups=result.groups,
            ledger_head=ledger_head,
            passed=result.passed,
            ballots=result.ballots,
            noisy_votes=noisy,
            step=step,
            reinforced=tuple(result.queries[result.reinforced & ~result.repeated].tolist()),
        )


def blocks(
    guarantee: Guarantee,
    *,
    inputs: Mapping[str, Any],
    outcome: Mapping[str, Any],
    groups: Sequence[GroupResult],
    scores: Mapping[str, Any] | None = None,
    least: int = MIN_GROUP_SIZE,
) -> dict[str, Any]:
    """Return the JSON form of a result: what may be published in one block, what may not in the other.

    `inputs` are public under every guarantee, the `outcome` and the costs of the groups if it is releasable, and
    `scores` never. Groups of fewer than `least` people are not counted.
    """
    head: dict[str, Any] = {"guarantee": guarantee.kind, "statement": guarantee.statement}
    head |= {"seeded": guarantee.seeded, "overlap": guarantee.overlap}
    sizes = shown_counts((group.group.people for group in groups), least=least)
    shown = [{**group.inputs(), "people": size} for group, size in zip(groups, sizes, strict=True)]
    costs = [group.costs() for group in groups]
    hidden: dict[str, Any] = {"guarantee": "none" if guarantee.kind == "none" else "private"}
    if guarantee.publishable:
        whole = [{**own, **cost} for own, cost in zip(shown, costs, strict=True)]
        return {"publishable": {**head, **inputs, **outcome, "groups": whole}, "private": {**hidden, **(scores or {})}}
    hidden |= {**outcome, **(scores or {})}
    hidden["groups"] = [{"group": group.id, **cost} for group, cost in zip(groups, costs, strict=True)]
    return {"publishable": {**head, **inputs, "groups": shown}, "private": hidden}


def ballot_figures(
    found: BallotFacts | None, groups: Sequence[GroupResult], *, least: int = MIN_GROUP_SIZE
) -> dict[str, Any] | None:
    """Return the figures of a release of ballots for JSON; None where there was none.

    The weight of all ballots is left out beside a group that is too small to be counted, because it would tell its
    size: the weight of one ballot of each group, and the number of all people, are public.
    """
    if found is None:
        return None
    hidden = has_small((group.group.people for group in groups), least=least)
    return asdict(found) | ({"weight": None} if hidden else {})
