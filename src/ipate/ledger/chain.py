"""The entries of a ledger on disk, the hash chain over them, and the interface of the files that hold them.

An entry is an opened run (accounts, opening balances, people), a charged batch (releases, Δ, costs, payload) or a
person's withdrawal. The hash of an entry is SHA-256 of the previous hash and of all its fields in canonical form.
"""

import hashlib
import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np

from ipate._types import Floats
from ipate.errors import IpateError
from ipate.ledger.base import Progress
from ipate.ledger.carry import Charges, Place
from ipate.ledger.records import (
    MECHANISMS,
    AccountRow,
    Charge,
    Draw,
    Head,
    Mechanism,
    Noise,
    PolicyTerms,
    Released,
    RunRow,
    Scope,
    UnreadRow,
    WithdrawalRow,
    from_bytes,
    to_bytes,
)

Row: TypeAlias = "RunRow | BatchRow | WithdrawalRow"  # one entry
Stated: TypeAlias = tuple[int, str, str, bytes, Callable[[], Row]]  # number, kind, time, hash, and what reads the row
TIMEOUT = 30.0  # seconds to wait for another process


@dataclass(frozen=True)
class ChargeRow:
    """The cost of a batch for one account, and its Δ: one number, or one per key (compressed)."""

    account: str
    sensitivity: float | None
    sensitivities: bytes | None
    cost: bytes

    @classmethod
    def of(cls, account: str, charge: Charge) -> Self:
        """Build the row of one account of a charge."""
        moved = np.asarray(charge.sensitivity[account], dtype=np.float64)
        cost = to_bytes(np.asarray(charge.cost[account], dtype=np.float64))
        if moved.ndim == 0:
            return cls(account, float(moved), None, cost)
        return cls(account, None, zlib.compress(to_bytes(moved), 1), cost)

    @property
    def moved(self) -> Floats:
        """Δ of the charge, of shape () or (keys,)."""
        if self.sensitivities is None:
            return np.asarray(self.sensitivity, dtype=np.float64)
        return from_bytes(zlib.decompress(self.sensitivities))

    @property
    def most(self) -> float:
        """The largest Δ of the charge."""
        return float(self.moved.max(initial=0.0)) if self.sensitivity is None else self.sensitivity


@dataclass(frozen=True)
class DrawRow:
    """Noise that was drawn for keys of a batch."""

    mechanism: Mechanism
    noise: Noise
    sigma: float


@dataclass(frozen=True)
class BatchRow:
    """A charged and released batch: draws, Δ and cost by account, keys, and payload.

    A key has a number whose bit i says that the draw i was made for it.
    """

    entry: int
    time: str
    run: int
    bound: str
    scope: Scope
    codec: str
    payload: bytes
    paid_by: str | None
    draws: tuple[DrawRow, ...]
    charges: tuple[ChargeRow, ...]
    keys: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, charge: Charge, *, entry: int, run: int, time: str) -> Self:
        """Build the row of a charge."""
        marks = sum((charge.drawn(draw).astype(int) << i for i, draw in enumerate(charge.draws)), np.array(0))
        return cls(
            entry=entry,
            time=time,
            run=run,
            bound=charge.bound,
            scope=charge.scope,
            codec=charge.codec,
            payload=charge.payload,
            paid_by=charge.paid_by,
            draws=tuple(DrawRow(draw.mechanism, draw.noise, float(draw.sigma)) for draw in charge.draws),
            charges=tuple(ChargeRow.of(account, charge) for account in sorted(charge.cost)),
            keys=tuple(zip(charge.keys, np.broadcast_to(marks, len(charge.keys)).tolist(), strict=True)),
        )

    def to_charge(self, *, seeded: bool) -> Charge:
        """Return the charge that this row records."""
        marks = np.array([mark for _, mark in self.keys], dtype=np.int64)
        return Charge(
            cost={row.account: from_bytes(row.cost) for row in self.charges},
            sensitivity={row.account: row.moved for row in self.charges},
            draws=tuple(
                Draw(mechanism=row.mechanism, sigma=row.sigma, noise=row.noise, where=(marks >> i & 1).astype(bool))
                for i, row in enumerate(self.draws)
            ),
            keys=tuple(key for key, _ in self.keys),
            bound=self.bound,
            seeded=seeded,
            scope=self.scope,
            codec=self.codec,
            payload=self.payload,
            paid_by=self.paid_by,
        )

    @property
    def answered(self) -> int:
        """The number of keys for which the last draw was made."""
        last = len(self.draws) - 1
        return sum(mark >> last & 1 for _, mark in self.keys) if self.draws else 0


def link(previous: bytes, entry: Row) -> bytes:
    """Return the hash of an entry, chained to the hash of the previous one.

    The canonical form is ASCII JSON without spaces; floats have their shortest form that round-trips.
    """
    text = json.dumps([type(entry).__name__, entry], default=_plain, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(previous + text.encode("ascii")).digest()


def _plain(value: Any) -> object:
    """Convert rows to lists of their fields and bytes to hexadecimal digits, for JSON."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, AccountRow | UnreadRow | PolicyTerms):
        return value.columns()
    return [getattr(value, part.name) for part in fields(value)]


@dataclass
class Contents:
    """The contents of a verified ledger: runs, balances and releases."""

    hashes: list[bytes] = field(default_factory=list)  # of every entry, in order
    charges: int = 0
    runs: dict[int, RunRow] = field(default_factory=dict)  # by entry, in the order in which they were opened
    spent: dict[Place, Floats] = field(default_factory=dict)  # balances, including opening balances
    keys: dict[tuple[str, str], set[str]] = field(default_factory=dict)  # by scope, and pool or first part of a run
    released: dict[int, list[Released]] = field(default_factory=dict)  # by run
    progress: dict[int, Progress] = field(default_factory=dict)  # by run
    withdrawals: list[WithdrawalRow] = field(default_factory=list)

    @property
    def head(self) -> Head:
        """The last entry; its number counts no withdrawals, because heads are published and leaving is not told."""
        counted = len(self.hashes) - 1 - len(self.withdrawals)
        return Head(entries=counted, charges=self.charges, hash=self.hashes[-1].hex())

    @property
    def withdrawn(self) -> dict[str, str]:
        """The people who withdrew and have not returned, each with the time."""
        last = {row.person: row for row in self.withdrawals}
        return {person: row.time for person, row in last.items() if not row.returned}

    def run_named(self, name: str | None) -> RunRow | None:
        """Return a run by name, or the last run if no name is given; None if there is no such run."""
        found = [run for run in self.runs.values() if name is None or run.name == name]
        return found[-1] if found else None

    def known(self, run: RunRow, scope: Scope) -> set[str]:
        """Return the keys that were released for a run's pool, or by a run and those it continues."""
        where = run.pool if scope == "pool" else self._first(run).name
        return self.keys.setdefault((scope, where), set())

    def _first(self, run: RunRow) -> RunRow:
        """Return the first of the runs that a run continues."""
        while run.parent is not None:
            run = next(row for row in self.runs.values() if row.name == run.parent)
        return run

    def add(self, entry: Row, entry_hash: bytes) -> None:
        """Add an entry of the hash chain; the accounts of a run start from their opening balances."""
        if isinstance(entry, WithdrawalRow):
            self.withdrawals.append(entry)
        elif isinstance(entry, RunRow):
            self.runs[entry.entry] = entry
            self.progress[entry.entry], self.released[entry.entry] = Progress(), []
            self.spent.update({(entry.entry, row.id): row.opening for row in entry.accounts})
        else:
            self._add_batch(entry)
        self.hashes.append(entry_hash)

    def _add_batch(self, batch: BatchRow) -> None:
        """Add a batch; costs are added in the order of charges, so that sums agree to the last bit."""
        run, come = self.runs[batch.run], self.progress[batch.run]
        self.charges += 1
        keys, known = tuple(key for key, _ in batch.keys), self.known(run, batch.scope)
        if not known.isdisjoint(keys):
            raise ValueError("a key was released twice")
        known.update(keys)
        made = Released(run=run.name, scope=batch.scope, keys=keys, codec=batch.codec, payload=batch.payload)
        self.released[batch.run].append(made)
        for row in batch.charges:
            place = batch.run, row.account
            self.spent[place] = self.spent[place] + from_bytes(row.cost)
            come.sensitivity[row.account] = max(come.sensitivity.get(row.account, 0.0), row.most)
            if row.most > 0:
                come.left.pop(row.account, None)
            else:
                come.left.setdefault(row.account, come.answered)
        come.answered += batch.answered if batch.scope == "pool" else 0


def verified(name: str, entries: Iterable[Stated]) -> Contents:
    """Return the contents of a ledger whose entries match their hashes; raise if anything was changed."""
    contents = Contents()
    for number, (entry, kind, time, stated, made) in enumerate(entries):
        if entry != number or (kind == "ledger") != (number == 0):
            raise damaged(name, f"entry {number} of its chain is missing or out of place")
        if number == 0:
            contents.hashes.append(stated)
            continue
        try:
            row = made()
            right = link(contents.hashes[-1], row) == stated
            if right:
                _refuse_unknown(name, row)
                contents.add(row, stated)
        except (KeyError, TypeError, ValueError, AttributeError, zlib.error):  # a missing row, or one of another type
            right = False
        if not right:
            raise damaged(name, f"entry {entry} (a {kind} of {time}) does not match its hash: it was changed")
    if not contents.hashes:
        raise damaged(name, "the beginning of its chain is missing")
    for run in contents.runs.values():
        for account in run.accounts:
            spent = contents.spent[run.entry, account.id]
            if spent.any() and not account.terms.fits(spent):
                raise damaged(name, f"account {account.id!r} is over its budget")
    return contents


def _refuse_unknown(name: str, row: Row) -> None:
    """Refuse an entry that is whole, but whose cost could not be counted here."""
    if isinstance(row, BatchRow):
        unknown = next((draw.mechanism for draw in row.draws if draw.mechanism not in MECHANISMS), None)
        if unknown is not None:
            raise IpateError(
                f"{name}: entry {row.entry} has the mechanism {unknown!r}, unknown to this ipate: update ipate"
            )
    if isinstance(row, RunRow):
        unread = next((account for account in row.accounts if isinstance(account, UnreadRow)), None)
        if unread is not None:
            raise IpateError(
                f"{name}: the ledger is intact, but run {row.name!r} was charged by a bound that is missing here: "
                f"{unread.why}; install or import what defines it, under the name that the run used"
            )


def damaged(name: str, what: str) -> IpateError:
    """Return the error for a ledger that does not verify, with advice."""
    return IpateError(
        f"{name}: the ledger does not verify: {what}; restore a copy of the whole file whose head you know. Do not "
        "repair it by hand and do not start a new ledger for the same people: what they spent would be forgotten"
    )


@dataclass(frozen=True, kw_only=True)
class Acquaintance:
    """What a ledger knows: its number of runs, the ids of its people, and whether it knows the votes or the run."""

    path: Path
    runs: int = 0
    people: frozenset[str] = frozenset()
    knows_pool: bool = False
    knows_run: bool = False
    seeded: bool = False


class Storage(ABC):
    """A file of entries, open for reading or writing: what a backend has to provide.

    The charge of a run is one `append`, which is on disk when it returns, or did not happen.
    """

    suffix: ClassVar[str]  # of its files

    @classmethod
    @abstractmethod
    def connect(cls, path: Path, *, readonly: bool, timeout: float = TIMEOUT) -> Self:
        """Open a file, which is created for writing; an unfinished write of a killed process is undone."""

    @staticmethod
    @abstractmethod
    def errors(name: str) -> AbstractContextManager[None]:
        """Convert errors of the backend to `IpateError` with one line that says what is wrong and what to do."""

    @property
    @abstractmethod
    def blank(self) -> bool:
        """Whether nothing is in the file: it is new, or its creation was interrupted."""

    @abstractmethod
    def create(self) -> None:
        """Write the first entry, whose hash is random."""

    @abstractmethod
    def contents(self) -> Contents:
        """Read and verify everything, as `verified` does."""

    @abstractmethod
    def charges(self, contents: Contents) -> Charges:
        """Iterate over all charges in order, each with the entry of its run."""

    @abstractmethod
    def append(self, contents: Contents, entry: Row) -> None:
        """Commit an entry, then add it to the contents; refuse if another process has written since."""

    @abstractmethod
    def look(self, *, pool: str | None, run: str | None) -> Acquaintance:
        """Return what the ledger knows, without verifying it."""

    @abstractmethod
    def close(self) -> None:
        """Close the file."""
