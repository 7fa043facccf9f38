"""The records of a ledger: terms, charges, tests, stored answers, histograms, heads, runs, and a person's history.

Rounded noisy counts as a ledger stores them, and the histogram of a release of ballots, drawn only once.

The records of a ledger: terms, charges, tests, stored answers, heads, runs, and what a person was charged.

The meaning of a record is in typed fields, such as the kind of release, the kind of noise and the parent run.
"""

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ipate._types import Floats, Ints
from ipate.accounting.bounds import Meter
from ipate.errors import InputError
from ipate.people.budgets import Account, Budget, Group

Packed = tuple[str, bytes]  # shape and compressed numbers, as they are stored and hashed


def pack(counts: Ints) -> Packed:
    """Return whole numbers in the form in which they are stored and hashed."""
    return json.dumps(counts.shape), zlib.compress(counts.astype("<i8").tobytes(), 1)


def unpack(shape: str, raw: bytes) -> Ints:
    """Return the whole numbers that `pack` stored."""
    return np.frombuffer(zlib.decompress(raw), dtype="<i8").astype(np.int64).reshape(json.loads(shape))


@dataclass(frozen=True, kw_only=True, eq=False)
class Histogram:
    """A noisy histogram of (partitions, cells, classes) in whole multiples of σ/8, and the cells it belongs to."""

    counts: Ints
    cells: str  # the fingerprint of the cells

    def __post_init__(self) -> None:
        if self.counts.ndim != 3 or self.counts.dtype != np.int64:
            shown = f"{self.counts.dtype} of the shape {self.counts.shape}"
            raise InputError(f"a histogram has whole numbers (partitions, cells, classes), not {shown}")
        self.counts.flags.writeable = False

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the histogram and its cells, which a report can state."""
        return hashlib.sha256(repr(self.columns()[:2]).encode() + self.counts.astype("<i8").tobytes()).hexdigest()

    def columns(self) -> tuple[object, ...]:
        """Return the histogram in the order of its table's columns, as it is stored and hashed."""
        return self.cells, *pack(self.counts)

    @classmethod
    def read(cls, columns: Sequence[Any]) -> Self:
        """Build the histogram from the values of `columns`."""
        cells, shape, raw = columns
        return cls(counts=unpack(shape, raw), cells=cells)

    def check_first(self, before: "Histogram | None") -> None:
        """Refuse a second histogram: new noise on the same ballots is a new release, with a cost of its own."""
        if before is not None:
            raise InputError(
                "this run has released its ballots already, and their noise is drawn only once: use the stored "
                "histogram, or begin a new run, which charges everybody again"
            )


Noise: TypeAlias = Literal["gaussian", "laplace"]
NoiseKind: TypeAlias = Literal["secure", "seeded"]
ReleaseKind: TypeAlias = Literal["labels", "counts", "test", "ballots"]
Reason: TypeAlias = Literal["withdrawal", "overlap"]
Identity: TypeAlias = Literal["person", "row", "account"]  # what the ids of a run's members are
Answer: TypeAlias = tuple[int, bool, bool]  # label, answered, reinforced
NoisyVotes: TypeAlias = tuple[float, Ints]  # σ, and a number per class in whole multiples of σ/8
# checks and labels of queries, without or with the noisy counts that the labels are read off; the test of a release
# that is tested as a whole; the histogram of all ballots
RELEASES = ("labels", "counts", "test", "ballots")
QUERIES = ("labels", "counts")  # the kinds that answer queries; a query of a pool is answered once, by one of them
PRIVATE_COSTS = "what was spent is private, because costs on this ledger were computed from private votes"
REASONS = ("withdrawal",)  # why a run continues another one


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The budget of one account and its unit; every cost of the account has the width of its meter."""

    account: Account
    meter: Meter

    @property
    def limit(self) -> Floats:
        """What the budget affords over all runs: a cost fits if it is at or under this in one place."""
        return self.meter.limit(self.account.epsilon, self.account.delta)

    @property
    def owner(self) -> str:
        """The group, and the account if it is not the whole group's, as messages name them."""
        group = self.account.group.id
        return f"group {group!r}" + ("" if self.account.id == group else f" (account {self.account.id!r})")

    def fits(self, cost: Floats) -> bool:
        """Whether a cost is within the limit: at every order that the account has fixed, or else in one place."""
        within = cost <= self.limit
        return bool(within.all() if self.meter.fixes_order else within.any())

    def epsilon(self, cost: Floats) -> float:
        """Return ε of a cost."""
        return float(self.epsilons(cost)[()])

    def epsilons(self, costs: Floats) -> Floats:
        """Return ε of costs (..., width): the largest over the orders that the account has fixed, else the best."""
        if not self.meter.fixes_order:
            return self.meter.epsilon(costs, self.account.delta)[0]
        found = [
            self.meter.at_order(order).epsilon(costs[..., [place]], self.account.delta)[0]
            for place, order in enumerate(self.meter.orders)
        ]
        return np.asarray(np.max(found, axis=0))


@dataclass(frozen=True, kw_only=True)
class ReleaseTest:
    """The test of a release that is tested as a whole (ptr): its inputs and its bit.

    `design` and `votes` are hashes; `passed` is None in the record of the charge, before the bit is drawn.
    """

    design: str
    votes: str
    passed: bool | None = None

    def check_follows(self, before: "ReleaseTest | None") -> None:
        """Refuse all sequences but one charge, then one bit of the same test, since a second bit is not paid for."""
        if before is None:
            if self.passed is not None:
                raise InputError("the test was not charged: charge it first, then draw and store its bit")
        elif (before.design, before.votes) != (self.design, self.votes):
            raise InputError("this run was charged for the test of another design or of other votes")
        elif before.passed is not None or self.passed is None:
            raise InputError("this run has charged its test already, and its bit is drawn only once")


@dataclass(frozen=True, kw_only=True)
class Charge:
    """The cost of a batch of releases, with the releases themselves, so that the cost can be recomputed.

    A durable ledger commits the answers (`labels`, `reinforced`, `counts`) or the result of the test together with the
    cost, so that neither exists without the other.
    """

    cost: Mapping[str, Floats]  # account id to its cost vector for the whole batch
    queries: tuple[str, ...]  # in order; each is charged for its check if there is one
    answered: NDArray[np.bool_]  # (queries,): whether a label was charged as well
    sensitivity: Mapping[str, Floats]  # account id to Δ, one number or one per query
    sigma: float
    check_sigma: float | None
    bound: str
    seeded: bool  # whether the noise came from a seed; such a release is not private
    noise: Noise = "gaussian"  # under Laplace noise, sigma is its scale
    kind: ReleaseKind = "labels"
    labels: NDArray[np.int64] | None = None  # (queries,): a class, or −1 where there is no answer
    reinforced: NDArray[np.bool_] | None = None  # (queries,): where the label is the student's own class
    counts: Ints | None = None  # (answered queries, classes): noisy counts in whole multiples of σ/8
    test: ReleaseTest | None = None
    histogram: Histogram | None = None  # of ballots; Δ is then a ballot's weight, and `sigma` the noise of an entry

    def __post_init__(self) -> None:
        if self.kind not in RELEASES:
            raise InputError(f"kind is {self.kind!r}: the kinds of release are {', '.join(RELEASES)}")
        if (self.kind == "test") != (self.test is not None) or (self.test is not None and self.queries):
            raise InputError("a charge of kind 'test' has a test and no queries, and no other charge has a test")
        if (self.kind == "ballots") != (self.histogram is not None) or (self.histogram is not None and self.queries):
            raise InputError("a charge of kind 'ballots' has a histogram and no queries, and no other charge has one")
        if (self.kind == "counts") != (self.counts is not None):
            raise InputError("a charge of kind 'counts' has noisy counts, and no other charge has them")
        if self.counts is not None:
            self._check_counts(self.counts)

    def _check_counts(self, counts: Ints) -> None:
        """Refuse counts that are not rounded, or that the labels of the charge are not read off."""
        given = np.flatnonzero(self.answered)
        if counts.dtype != np.int64 or counts.ndim != 2 or len(counts) != len(given) or self.noise != "gaussian":
            shown = f"{counts.dtype} of the shape {counts.shape} with {self.noise} noise"
            raise InputError(
                f"counts are whole numbers ({len(given)} answers, classes) with Gaussian noise, not {shown}"
            )
        if self.labels is None or not np.array_equal(np.asarray(self.labels)[given], counts.argmax(axis=1)):
            raise InputError(
                "labels and counts differ: a label is the class of its largest noisy count, on a tie the lower"
            )


@dataclass(frozen=True, kw_only=True)
class Stored:
    """The recorded state of a run, from which an interrupted run is continued."""

    answers: Mapping[str, Answer] = field(default_factory=dict)  # by query id; paid, and returned again at no cost
    noisy_votes: Mapping[str, NoisyVotes] = field(default_factory=dict)  # by query id, where released with the label
    sensitivity: Mapping[str, float] = field(default_factory=dict)  # account id to the largest Δ it was charged for
    left: Mapping[str, int] = field(default_factory=dict)  # dropped accounts (Δ is 0) to the number of labels before
    test: ReleaseTest | None = None  # of this run, with its bit once that is drawn
    histogram: Histogram | None = None  # of this run's ballots, or of those of the runs that it continues


@dataclass(frozen=True, kw_only=True)
class Head:
    """The last entry of a ledger's hash chain; labels and reports carry it for rollback detection.

    `hash` has 64 hexadecimal digits and covers every entry up to number `entries`, of which `charges` are charges.
    """

    entries: int
    charges: int
    hash: str

    def __str__(self) -> str:
        return f"{self.entries}:{self.charges}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text form of a head, as `str` returns it."""
        parts = text.strip().split(":")
        if len(parts) != 3 or not (parts[0].isdecimal() and parts[1].isdecimal()) or len(parts[2]) != 64:
            raise InputError(f"head is {text!r}: it must look like 12:11:<64 hexadecimal digits>")
        return cls(entries=int(parts[0]), charges=int(parts[1]), hash=parts[2].lower())


@dataclass(frozen=True, kw_only=True)
class PersonRecord:
    """The budget and the cost of one person in one run."""

    run: str
    time: str  # when the run was opened
    account: str
    group: str
    budget: float  # ε for all runs, as consented to when the run was opened
    delta: float
    bound: str  # the costs of tight and exact are private
    checks: int  # releases that the person's data could have affected
    labels: int
    ballots: int  # released histograms that the person's ballot could have affected
    epsilon: float  # of this run's own releases; `Ledger.cost_of` counts those of all runs together


@dataclass(frozen=True)
class AccountRow:
    """One account of a run: its terms and its opening balance, the spending of its worst member."""

    terms: Terms
    opening: Floats

    @property
    def id(self) -> str:
        """The account's id."""
        return self.terms.account.id

    def columns(self) -> tuple[object, ...]:
        """Return the row in the order of the table's columns, as it is stored and hashed."""
        account, meter = self.terms.account, self.terms.meter
        return (
            account.id,
            account.group.id,
            account.group.people,
            account.epsilon,
            account.delta,
            float(account.sensitivity),
            meter.bound,
            meter.conversion,
            json.dumps(list(meter.orders)),
            to_bytes(self.opening),
        )

    @classmethod
    def read(cls, columns: tuple[Any, ...]) -> Self:
        """Build the row from the values of `columns`."""
        name, group, people, epsilon, delta, sensitivity, bound, conversion, orders, opening = columns
        owner = Group(id=group, budget=Budget(epsilon, delta), people=people)
        account = Account(id=name, group=owner, sensitivity=sensitivity)
        return cls(Terms(account=account, meter=Meter(bound, conversion, json.loads(orders))), from_bytes(opening))


@dataclass(frozen=True)
class PolicyTerms:
    """A version of a policy, and the ε of its levels and the δ that it stood for; δ is None if it was not stated."""

    version: str
    levels: tuple[tuple[str, float], ...]
    delta: float | None

    def columns(self) -> str:
        """Return the terms as they are stored and hashed."""
        return json.dumps([self.version, self.levels, self.delta])

    @classmethod
    def read(cls, text: str) -> Self:
        """Build the terms from the value of `columns`."""
        version, levels, delta = json.loads(text)
        return cls(version, tuple((name, epsilon) for name, epsilon in levels), delta)


@dataclass(frozen=True)
class RunRow:
    """An opened run: its accounts, their people, its kind of noise, and the run that it continues."""

    entry: int
    time: str
    name: str
    pool: str  # what the query ids belong to
    identity: Identity  # "account" where no members are named
    noise: NoiseKind | None  # None only in memory, before the first charge
    parent: str | None  # the name of the run that this one continues
    reason: Reason | None  # why it does; "overlap" in a run that continues none: its pool may hold private rows
    replaces: str | None  # the other ledgers of these people whose charges are not counted here
    policy: PolicyTerms | None  # what its people agreed to; None without a version
    accounts: tuple[AccountRow, ...]
    members: tuple[tuple[str, str], ...]  # person and account
    unprotected: tuple[str, ...]  # people whose rows were used as pool or test data

    @property
    def named(self) -> bool:
        """Whether `members` names the people."""
        return self.identity != "account"

    @property
    def places(self) -> tuple[tuple[str, str], ...]:
        """The members and their accounts; without people, an account id replaces the person's id."""
        return self.members if self.named else tuple((row.id, row.id) for row in self.accounts)


@dataclass(frozen=True)
class WithdrawalRow:
    """A person's withdrawal from a ledger, or their return after they consented again."""

    entry: int
    time: str
    person: str
    returned: int  # 1 for a return


def shared(kind: str) -> str:
    """Return the kind under which answers are kept: those to queries are shared, with noisy counts or without."""
    return QUERIES[0] if kind in QUERIES else kind


def now() -> str:
    """Return the current time as it is recorded: UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def to_bytes(vector: Floats) -> bytes:
    """Return doubles as little-endian bytes on every platform."""
    return np.ascontiguousarray(vector, dtype="<f8").tobytes()


def from_bytes(raw: bytes) -> Floats:
    """Return the doubles that `to_bytes` wrote."""
    return np.frombuffer(raw, dtype="<f8").astype(np.float64)


def noise_kind(*, seeded: bool) -> NoiseKind:
    """Return the name of the kind of noise."""
    return "seeded" if seeded else "secure"


def refuse_mixed_noise(ledger: str, recorded: NoiseKind | None, asked: NoiseKind) -> None:
    """Refuse to charge releases to a ledger whose releases have the other kind of noise.

    A seeded release reveals its votes to anyone who knows the seed, so later costs of the same people would be wrong.
    """
    if recorded is not None and recorded != asked:
        raise InputError(
            f"{ledger} has {recorded} noise and this run has {asked} noise: seeded and secure noise must not share a "
            "ledger; name another ledger; nothing was charged"
        )
