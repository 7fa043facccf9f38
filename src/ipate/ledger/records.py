"""The records of a ledger (terms, charges, tests, stored answers) and the interface of ledgers.

The meaning of a record is in typed fields, such as the kind of release, the kind of noise and the parent run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ipate.accounting.bounds import Meter
from ipate.errors import InputError
from ipate.people.budgets import Account

Floats = NDArray[np.float64]
Noise: TypeAlias = Literal["gaussian", "laplace"]
NoiseKind: TypeAlias = Literal["secure", "seeded"]
ReleaseKind: TypeAlias = Literal["labels", "test"]
Reason: TypeAlias = Literal["withdrawal"]
Answer: TypeAlias = tuple[int, bool, bool]  # label, answered, reinforced
RELEASES = ("labels", "test")  # checks and labels of queries; the test of a release that is tested as a whole
REASONS = ("withdrawal",)  # why a run continues another one


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The budget of one account and its unit; every cost of the account has the width of its meter."""

    account: Account
    meter: Meter


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

    A durable ledger commits the answers (`labels`, `reinforced`) or the result of the test together with the cost, so
    that neither exists without the other.
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
    test: ReleaseTest | None = None

    def __post_init__(self) -> None:
        if self.kind not in RELEASES:
            raise InputError(f"kind is {self.kind!r}: the kinds of release are {', '.join(RELEASES)}")
        if (self.kind == "test") != (self.test is not None) or (self.test is not None and self.queries):
            raise InputError("a charge of kind 'test' has a test and no queries, and no other charge has a test")


@dataclass(frozen=True, kw_only=True)
class Stored:
    """The recorded state of a run, from which an interrupted run is continued."""

    answers: Mapping[str, Answer] = field(default_factory=dict)  # by query id; paid, and returned again at no cost
    sensitivity: Mapping[str, float] = field(default_factory=dict)  # account id to the largest Δ it was charged for
    left: Mapping[str, int] = field(default_factory=dict)  # dropped accounts (Δ is 0) to the number of labels before
    test: ReleaseTest | None = None  # of this run, with its bit once that is drawn


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
    epsilon: float  # of this run's own releases; `Ledger.cost_of` counts those of all runs together


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


class Ledger(Protocol):
    """The interface of a ledger, whatever its storage."""

    @property
    def path(self) -> Path | None:
        """The file that holds the ledger; None for a ledger in memory."""
        ...

    @property
    def durable(self) -> bool:
        """Whether charges and answers outlive the process, so that a run can be continued."""
        ...

    @property
    def head(self) -> Head | None:
        """The last entry of the hash chain; None where there is no chain."""
        ...

    @property
    def run(self) -> str:
        """The name of the run that is charged; unique within the ledger."""
        ...

    @property
    def runs(self) -> tuple[str, ...]:
        """The names of all runs, in the order in which they were opened."""
        ...

    @property
    def noise(self) -> NoiseKind | None:
        """The kind of noise of all releases; None in memory if not given and before the first charge."""
        ...

    @property
    def terms(self) -> Mapping[str, Terms]:
        """Every account's terms, by account id."""
        ...

    @property
    def private_history(self) -> tuple[str, ...]:
        """Runs up to this one whose length may depend on private votes and whose balances are carried over."""
        ...

    @property
    def before(self) -> dict[str, float]:
        """Every group's ε when the run began: the largest over the opening balances of its accounts."""
        ...

    @property
    def charges(self) -> tuple[Charge, ...]:
        """Every charge of this run and of the runs it continues, in order."""
        ...

    def parts(self, run: str | None = None) -> tuple[str, ...]:
        """Return the runs that a run continues, oldest first, and then the run itself (default: the current run)."""
        ...

    def opening(self, account: str) -> Floats:
        """Return the balance of an account when the run, or the first run it continues, was opened."""
        ...

    def spent(self, account: str) -> Floats:
        """Return the balance of an account, including earlier runs."""
        ...

    def limit(self, account: str) -> Floats:
        """Return the limit of an account over all runs."""
        ...

    def standing(self, accounts: Sequence[str]) -> tuple[Floats, Floats]:
        """Return the balances and the limits of accounts of one width, both of shape (accounts, width)."""
        ...

    def epsilon(self, account: str) -> float:
        """Return ε of an account's balance."""
        ...

    def unaffordable(self, cost: Mapping[str, Floats]) -> tuple[str, ...]:
        """Return the accounts that cannot pay this in addition to their balance."""
        ...

    def charge(self, charge: Charge) -> None:
        """Record the charge with its answers for all accounts or, where one cannot pay, raise and record nothing."""
        ...

    def stored(self, kind: ReleaseKind = "labels") -> Stored:
        """Return the answers of one kind that are already paid, and the state of the accounts."""
        ...

    def inherited(self, kind: ReleaseKind = "labels") -> frozenset[str]:
        """Return the queries of the run's pool that other runs paid for, except the runs it continues."""
        ...

    def charged_by(self, run: str, account: str) -> Floats:
        """Return what a run charged to one of its accounts, without earlier spending."""
        ...

    def meter_of(self, run: str, account: str) -> Meter:
        """Return the unit in which a run charged one of its accounts."""
        ...

    def person(self, person: str) -> tuple[PersonRecord, ...]:
        """Return a person's history, run by run; without people, an account id replaces the person's id."""
        ...

    def cost_of(self, person: str, meter: Meter) -> Floats:
        """Return the cost of all releases of a person, in any unit."""
        ...

    def check_head(self, head: Head | str) -> None:
        """Raise if the chain does not contain a head that was seen before: rollback detection."""
        ...

    def verify(self) -> Head | None:
        """Verify all records and return the head."""
        ...

    def close(self) -> None:
        """Release the file and its lock."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...
