"""The records of a ledger: terms, charges and their releases, heads, runs, and what a person was charged.

The meaning of a record is in typed fields, such as the mechanism of a release, the kind of noise and the parent run. A
ledger knows what a release costs and keeps its payload as bytes; the engine that made it knows how to read them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ipate._types import Floats
from ipate.accounting.bounds import Bound, Meter
from ipate.errors import InputError
from ipate.people.budgets import Account, Budget, Group

Noise: TypeAlias = Literal["gaussian", "laplace"]
NoiseKind: TypeAlias = Literal["secure", "seeded"]
Mechanism: TypeAlias = Literal["check", "argmax", "vector", "whole"]
Scope: TypeAlias = Literal["pool", "run"]
Reason: TypeAlias = Literal["withdrawal", "overlap"]
Identity: TypeAlias = Literal["person", "row", "account"]  # what the ids of a run's members are
MECHANISMS = ("check", "argmax", "vector", "whole")
PRIVATE_COSTS = "what was spent is private, because costs on this ledger were computed from private votes"
REASONS = ("withdrawal",)  # why a run continues another one


@lru_cache(maxsize=1 << 16)  # a bisection under gdp, and a charge asks for the limit of every account
def _limit(_bound: Bound, meter: Meter, budget: Budget) -> Floats:
    limit = meter.limit(budget.epsilon, budget.delta)
    limit.flags.writeable = False
    return limit


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The budget of one account and its unit; every cost of the account has the width of its meter."""

    account: Account
    meter: Meter

    @property
    def limit(self) -> Floats:
        """What the budget affords over all runs: a cost fits if it is at or under this in one place."""
        return _limit(self.meter.definition, self.meter, self.account.group.budget)

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


@dataclass(frozen=True, kw_only=True, eq=False)
class Draw:
    """Noise that was drawn for the keys of a charge, once for each.

    Attributes
    ----------
    mechanism : {"check", "argmax", "vector", "whole"}
        What was released, which decides the price: whether a noisy maximum reaches a threshold; the class of the
        largest noisy count; all noisy numbers; or what was tested and charged as a whole, which takes a whole budget.
    sigma : float
        The standard deviation of the noise, or the scale of Laplace noise.
    where : array of bool, optional
        The keys for which it was drawn. Default: all.
    """

    mechanism: Mechanism
    sigma: float
    noise: Noise = "gaussian"
    where: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        if self.mechanism not in MECHANISMS:
            raise InputError(f"mechanism is {self.mechanism!r}: the mechanisms are {', '.join(MECHANISMS)}")
        if self.noise != "gaussian" and self.mechanism != "argmax":
            raise InputError(f"noise is {self.noise!r}: a release by {self.mechanism} has Gaussian noise")


@dataclass(frozen=True, kw_only=True)
class Charge:
    """The cost of a batch of releases, with all that is needed to compute it again, and the releases themselves.

    A durable ledger commits the payload together with the cost, so that neither exists without the other.

    Attributes
    ----------
    cost, sensitivity : mapping
        By account id: the cost vector of the whole batch, and Δ, one number or one per key.
    draws : tuple of Draw
        The noise that was drawn, in the order in which it was drawn for a key.
    keys : tuple of str
        What was released, in order: query ids, or a name. No key is released twice within its `scope`, which is the
        pool, for all runs on it, or this run with the runs that it continues.
    seeded : bool
        Whether the noise came from a seed; such a release is not private.
    payload, codec
        What was released, as bytes, and the name of the form in which an engine wrote them.
    paid_by : str, optional
        The key of an earlier release of the same run whose cost covers this one.
    """

    cost: Mapping[str, Floats]
    sensitivity: Mapping[str, Floats]
    draws: tuple[Draw, ...]
    keys: tuple[str, ...]
    bound: str
    seeded: bool
    scope: Scope = "pool"
    codec: str = ""
    payload: bytes = b""
    paid_by: str | None = None

    def __post_init__(self) -> None:
        size = len(self.keys)
        if not size:
            raise InputError("a charge has no key: a release is known by its key, and refused twice")
        if not self.draws and self.paid_by is None and any(np.any(cost) for cost in self.cost.values()):
            raise InputError("a charge has a cost and no draw: later runs count the draws, so they would forget it")
        for draw in self.draws:
            if draw.where is not None and draw.where.shape != (size,):
                raise InputError(f"a draw is marked for {draw.where.shape} keys: there are {size}")
        for account, moved in self.sensitivity.items():
            if np.shape(moved) not in ((), (size,)):
                raise InputError(
                    f"account {account!r}: Δ has the shape {np.shape(moved)}: it must be one number, or one per key"
                )

    def drawn(self, draw: Draw) -> NDArray[np.bool_]:
        """Return for which keys a draw was made."""
        return np.ones(len(self.keys), dtype=bool) if draw.where is None else draw.where

    @property
    def answered(self) -> NDArray[np.bool_]:
        """The keys for which the last draw was made: the queries that passed their check."""
        return self.drawn(self.draws[-1]) if self.draws else np.zeros(len(self.keys), dtype=bool)


@dataclass(frozen=True, kw_only=True)
class Released:
    """A batch of releases that is paid and stored: the run that paid, its keys, and their payload."""

    run: str
    scope: Scope
    keys: tuple[str, ...]
    codec: str
    payload: bytes


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
    checks: int  # releases that the person's data could have affected, as are the next two
    labels: int  # answers to queries, with noisy counts or without
    vectors: int  # that were released once for a run
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
    def read(cls, columns: tuple[Any, ...]) -> "AccountRow | UnreadRow":
        """Build the row from the values of `columns`; a bound that is not known here leaves it unread."""
        name, group, people, epsilon, delta, sensitivity, bound, conversion, orders, opening = columns
        owner = Group(id=group, budget=Budget(epsilon, delta), people=people)
        account = Account(id=name, group=owner, sensitivity=sensitivity)
        try:
            meter = Meter(bound, conversion, json.loads(orders))
        except InputError as error:
            return UnreadRow(columns, str(error))
        return cls(Terms(account=account, meter=meter), from_bytes(opening))


@dataclass(frozen=True)
class UnreadRow:
    """One account whose bound is not known to this process: its columns have the right hash, or they were changed."""

    values: tuple[Any, ...]
    why: str

    def columns(self) -> tuple[Any, ...]:
        """Return the row in the order of the table's columns."""
        return self.values


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
