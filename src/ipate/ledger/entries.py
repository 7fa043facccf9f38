"""Entries of a ledger file as rows, and the hash chain over them.

An entry is an opened run (accounts, opening balances, people) or a charged batch (releases, Δ, costs, answers). The
hash of an entry is SHA-256 of the previous hash and of all fields of the entry in canonical form.
"""

import hashlib
import json
import zlib
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Self, cast

import numpy as np

from ipate.accounting.bounds import Meter
from ipate.errors import InputError
from ipate.ledger.records import Charge, Floats, Noise, NoiseKind, Reason, ReleaseKind, ReleaseTest, Terms
from ipate.people.budgets import Account, Budget, Group

ReleaseRow = tuple[str, int, int | None, int | None]  # query id, answered, label, reinforced


@dataclass(frozen=True)
class AccountRow:
    """One account of a run: its terms and its opening balance, the spending of its worst member."""

    terms: Terms
    opening: bytes

    @property
    def id(self) -> str:
        """The account's id."""
        return self.terms.account.id

    @property
    def meter(self) -> Meter:
        """The account's unit."""
        return self.terms.meter

    def columns(self) -> tuple[object, ...]:
        """Return the row in the order of the table's columns, as it is stored and hashed."""
        account, meter = self.terms.account, self.terms.meter
        return (
            account.id, account.group.id, account.group.people, account.epsilon, account.delta,
            float(account.sensitivity), meter.bound, meter.conversion, json.dumps(list(meter.orders)), self.opening,
        )  # fmt: skip

    @classmethod
    def read(cls, columns: tuple[Any, ...]) -> Self:
        """Build the row from the values of `columns`."""
        name, group, people, epsilon, delta, sensitivity, bound, conversion, orders, opening = columns
        owner = Group(id=group, budget=Budget(epsilon, delta), people=people)
        account = Account(id=name, group=owner, sensitivity=sensitivity)
        return cls(Terms(account=account, meter=Meter(bound, conversion, json.loads(orders))), opening)


@dataclass(frozen=True)
class RunRow:
    """An opened run: its accounts, their people, its kind of noise, and the run that it continues."""

    entry: int
    time: str
    name: str
    pool: str  # what the query ids belong to
    named: bool  # whether `members` names the people
    noise: NoiseKind | None  # None only in memory, before the first charge
    parent: str | None  # the name of the run that this one continues
    reason: Reason | None  # why it does
    accounts: tuple[AccountRow, ...]
    members: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ChargeRow:
    """The cost of a batch for one account, and its Δ: one number, or one per query (compressed)."""

    account: str
    sensitivity: float | None
    sensitivities: bytes | None
    cost: bytes

    @classmethod
    def of(cls, account: str, charge: Charge) -> Self:
        """Build the row of one account of a charge."""
        moved = np.asarray(charge.sensitivity[account], dtype=np.float64)
        if moved.shape not in ((), (len(charge.queries),)):
            raise InputError(
                f"account {account!r}: Δ has the shape {moved.shape}: it must be one number, or one per query"
            )
        cost = to_bytes(np.asarray(charge.cost[account], dtype=np.float64))
        if moved.ndim == 0:
            return cls(account, float(moved), None, cost)
        return cls(account, None, zlib.compress(to_bytes(moved), 1), cost)

    @property
    def moved(self) -> Floats:
        """Δ of the charge, of shape () or (queries,)."""
        if self.sensitivities is None:
            return np.asarray(self.sensitivity, dtype=np.float64)
        return from_bytes(zlib.decompress(self.sensitivities))


@dataclass(frozen=True)
class BatchRow:
    """A charged and released batch: kind, noise and bound, Δ and cost by account, answers by query."""

    entry: int
    time: str
    run: int
    kind: str
    bound: str
    noise: str
    sigma: float
    check_sigma: float | None
    charges: tuple[ChargeRow, ...]
    releases: tuple[ReleaseRow, ...]
    test: ReleaseTest | None

    @classmethod
    def of(cls, charge: Charge, *, entry: int, run: int, time: str) -> Self:
        """Build the row of a charge."""
        return cls(
            entry=entry,
            time=time,
            run=run,
            kind=charge.kind,
            bound=charge.bound,
            noise=charge.noise,
            sigma=float(charge.sigma),
            check_sigma=None if charge.check_sigma is None else float(charge.check_sigma),
            charges=tuple(ChargeRow.of(account, charge) for account in sorted(charge.cost)),
            releases=_releases(charge),
            test=charge.test,
        )

    def to_charge(self, *, seeded: bool) -> Charge:
        """Return the charge that this row records."""
        known = any(row[2] is not None for row in self.releases)
        return Charge(
            cost={row.account: from_bytes(row.cost) for row in self.charges},
            queries=tuple(row[0] for row in self.releases),
            answered=np.array([row[1] for row in self.releases], dtype=bool),
            sensitivity={row.account: row.moved for row in self.charges},
            sigma=self.sigma,
            check_sigma=self.check_sigma,
            bound=self.bound,
            seeded=seeded,
            noise=cast("Noise", self.noise),
            kind=cast("ReleaseKind", self.kind),
            labels=np.array([row[2] for row in self.releases], dtype=np.int64) if known else None,
            reinforced=np.array([row[3] for row in self.releases], dtype=bool) if known else None,
            test=self.test,
        )


def _releases(charge: Charge) -> tuple[ReleaseRow, ...]:
    size = len(charge.queries)
    answered = np.asarray(charge.answered).astype(int)
    if answered.shape != (size,):
        raise InputError(f"answered has the shape {answered.shape}: there are {size} queries")
    if charge.labels is None:
        return tuple((query, given, None, None) for query, given in zip(charge.queries, answered.tolist(), strict=True))
    labels = np.asarray(charge.labels).astype(int)
    own = np.zeros(size, dtype=int) if charge.reinforced is None else np.asarray(charge.reinforced).astype(int)
    if labels.shape != (size,) or own.shape != (size,):
        raise InputError(f"the answers have the shapes {labels.shape} and {own.shape}: there are {size} queries")
    if np.any((labels >= 0) != ((answered == 1) | (own == 1))) or np.any((answered == 1) & (own == 1)):
        raise InputError("labels and answered differ: a query has a label exactly where one was charged for")
    return tuple(zip(charge.queries, answered.tolist(), labels.tolist(), own.tolist(), strict=True))


def link(previous: bytes, entry: RunRow | BatchRow) -> bytes:
    """Return the hash of an entry, chained to the hash of the previous one.

    The canonical form is ASCII JSON without spaces; floats have their shortest form that round-trips.
    """
    text = json.dumps([type(entry).__name__, entry], default=_plain, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(previous + text.encode("ascii")).digest()


def _plain(value: Any) -> object:
    """Convert rows to lists of their fields and bytes to hexadecimal digits, for JSON."""
    if isinstance(value, bytes):
        return value.hex()
    return value.columns() if isinstance(value, AccountRow) else [getattr(value, part.name) for part in fields(value)]


def now() -> str:
    """Return the current time as it is recorded: UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def to_bytes(vector: Floats) -> bytes:
    """Return doubles as little-endian bytes on every platform."""
    return np.ascontiguousarray(vector, dtype="<f8").tobytes()


def from_bytes(raw: bytes) -> Floats:
    """Return the doubles that `to_bytes` wrote."""
    return np.frombuffer(raw, dtype="<f8").astype(np.float64)
