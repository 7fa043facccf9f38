"""The entries of a ledger file: their rows, the hash chain over them, and reading and verifying them.

An entry is an opened run (accounts, opening balances, people), a charged batch (releases, Δ, costs, answers) or a
person's withdrawal. The hash of an entry is SHA-256 of the previous hash and of all its fields in canonical form.

Appending an entry to a ledger file, in one transaction.
"""

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self, TypeAlias

import numpy as np

from ipate._types import Floats
from ipate.errors import InputError, IpateError
from ipate.ledger.carry import Place
from ipate.ledger.file import check_schema, damaged, transaction
from ipate.ledger.records import (
    RELEASES,
    AccountRow,
    Answer,
    Charge,
    Head,
    Histogram,
    Noise,
    NoisyVotes,
    Packed,
    PolicyTerms,
    ReleaseKind,
    ReleaseTest,
    RunRow,
    WithdrawalRow,
    from_bytes,
    pack,
    shared,
    to_bytes,
    unpack,
)

Row: TypeAlias = "RunRow | BatchRow | WithdrawalRow"  # one entry
_TABLES = {"run": "runs", "batch": "batches", "withdrawal": "withdrawals"}  # by kind of entry
ReleaseRow = tuple[str, int, int | None, int | None]  # query id, answered, label, reinforced


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
    kind: ReleaseKind
    bound: str
    noise: Noise
    sigma: float
    check_sigma: float | None
    charges: tuple[ChargeRow, ...]
    releases: tuple[ReleaseRow, ...]
    test: ReleaseTest | None
    histogram: Histogram | None
    counts: Packed | None

    @classmethod
    def of(cls, charge: Charge, *, entry: int, run: int, time: str) -> Self:
        """Build the row of a charge."""
        check_sigma = None if charge.check_sigma is None else float(charge.check_sigma)
        rows = tuple(ChargeRow.of(account, charge) for account in sorted(charge.cost))
        return cls(
            entry,
            time,
            run,
            charge.kind,
            charge.bound,
            charge.noise,
            float(charge.sigma),
            check_sigma,
            rows,
            _releases(charge),
            charge.test,
            charge.histogram,
            None if charge.counts is None else pack(charge.counts),
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
            noise=self.noise,
            kind=self.kind,
            labels=np.array([row[2] for row in self.releases], dtype=np.int64) if known else None,
            reinforced=np.array([row[3] for row in self.releases], dtype=bool) if known else None,
            counts=None if self.counts is None else unpack(*self.counts),
            test=self.test,
            histogram=self.histogram,
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
    return (
        value.columns()
        if isinstance(value, AccountRow | Histogram | PolicyTerms)
        else [getattr(value, part.name) for part in fields(value)]
    )


@dataclass
class Progress:
    """The state of a run: its labels, queries and test, and for every account its largest Δ and when it was dropped."""

    labels: int = 0
    queries: dict[str, set[str]] = field(default_factory=dict)  # by kind of release
    sensitivity: dict[str, float] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    test: ReleaseTest | None = None
    histogram: Histogram | None = None

    def add(self, batch: BatchRow) -> None:
        """Add a batch."""
        if batch.histogram is not None:
            batch.histogram.check_first(self.histogram)
            self.histogram = batch.histogram
        if batch.test is not None:
            batch.test.check_follows(self.test)
            self.test = batch.test
        for row in batch.charges:
            most = float(np.max(row.moved, initial=0.0))
            self.sensitivity[row.account] = max(self.sensitivity.get(row.account, 0.0), most)
            if most > 0:
                self.left.pop(row.account, None)
            else:
                self.left.setdefault(row.account, self.labels)
        self.labels += sum(row[1] for row in batch.releases)
        self.queries.setdefault(shared(batch.kind), set()).update(
            row[0] for row in batch.releases if row[2] is not None
        )


@dataclass
class Contents:
    """The contents of a verified ledger: runs, balances and answers."""

    hashes: list[bytes] = field(default_factory=list)  # of every entry, in order
    charges: int = 0
    runs: dict[int, RunRow] = field(default_factory=dict)  # by entry, in the order in which they were opened
    spent: dict[Place, Floats] = field(default_factory=dict)  # balances, including opening balances
    answers: dict[tuple[str, str], dict[str, Answer]] = field(default_factory=dict)  # by pool and kind of release
    noisy_votes: dict[str, dict[str, NoisyVotes]] = field(default_factory=dict)  # by pool
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

    def balances(self, batch: BatchRow) -> dict[Place, Floats]:
        """Return the balances after a batch; costs are added in the order of charges, so sums agree to the last bit."""
        costs = {(batch.run, row.account): from_bytes(row.cost) for row in batch.charges}
        return {place: self.spent[place] + cost for place, cost in costs.items()}

    def add(self, entry: Row, entry_hash: bytes) -> None:
        """Add an entry of the hash chain; the accounts of a run start from their opening balances."""
        if isinstance(entry, WithdrawalRow):
            self.withdrawals.append(entry)
        elif isinstance(entry, RunRow):
            self.runs[entry.entry] = entry
            self.progress[entry.entry] = Progress()
            self.spent.update({(entry.entry, row.id): row.opening for row in entry.accounts})
        else:
            self.charges += 1
            self.spent.update(self.balances(entry))
            known = self.known(self.runs[entry.run], entry.kind)
            for query, answered, label, reinforced in entry.releases:
                if label is not None:
                    if query in known:
                        raise ValueError(f"query {query!r} was released twice")
                    known[query] = (label, bool(answered), bool(reinforced))
            if entry.counts is not None:
                given = [query for query, answered, *_ in entry.releases if answered]
                rows = zip(given, unpack(*entry.counts), strict=True)
                self.noisy(self.runs[entry.run]).update((query, (entry.sigma, row)) for query, row in rows)
            self.progress[entry.run].add(entry)
        self.hashes.append(entry_hash)

    def known(self, run: RunRow, kind: str) -> dict[str, Answer]:
        """Return the answers of one kind of release for a run's pool, with or without noisy counts."""
        return self.answers.setdefault((run.pool, shared(kind)), {})

    def noisy(self, run: RunRow) -> dict[str, NoisyVotes]:
        """Return the noisy counts of the answers for a run's pool, where they were released."""
        return self.noisy_votes.setdefault(run.pool, {})


def read(connection: sqlite3.Connection, *, name: str) -> Contents:
    """Read and verify schema and entries in the caller's transaction; raise if anything was changed."""
    check_schema(connection, name=name)
    for (verdict,) in connection.execute("PRAGMA quick_check(1)"):
        if verdict != "ok":
            raise damaged(name, f"SQLite finds it damaged ({verdict})")
    rows = connection.execute("SELECT entry, kind, time, hash FROM entries ORDER BY entry").fetchall()
    if not rows or (rows[0][0], rows[0][1]) != (0, "ledger"):
        raise damaged(name, "the beginning of its chain is missing")
    contents = Contents(hashes=[rows[0][3]])
    seen = dict.fromkeys(_TABLES, 0)
    for number, (entry, kind, time, stated) in enumerate(rows[1:], start=1):
        if entry != number or kind not in seen:
            raise damaged(name, f"entry {number} of its chain is missing or out of place")
        seen[kind] += 1
        try:
            made = _READERS[kind](connection, entry, time)
            right = link(contents.hashes[-1], made) == stated
            if right and isinstance(made, BatchRow) and made.kind not in RELEASES:  # its cost could not be counted
                raise IpateError(
                    f"{name}: entry {entry} is of the kind {made.kind!r}, unknown to this ipate: update ipate"
                )
            if right:
                contents.add(made, stated)
        except (
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
            zlib.error,
        ):  # a row is missing, or a value of another type
            right = False
        if not right:
            raise damaged(name, f"entry {entry} (a {kind} of {time}) does not match its hash: somebody changed it")
    _check_strays(connection, name, seen)
    _check_balances(connection, name, contents)
    return contents


def charges(connection: sqlite3.Connection, runs: Mapping[int, RunRow]) -> Iterator[tuple[int, Charge]]:
    """Iterate over all charges in the caller's transaction, in order, each with the entry of its run."""
    rows = connection.execute("SELECT entry, time FROM entries WHERE kind = 'batch' ORDER BY entry").fetchall()
    for entry, time in rows:
        batch = _batch(connection, entry, time)
        yield batch.run, batch.to_charge(seeded=runs[batch.run].noise == "seeded")


def _run(connection: sqlite3.Connection, entry: int, time: str) -> RunRow:
    row = connection.execute("SELECT * FROM runs WHERE entry = ?", (entry,)).fetchone()
    _, name, pool, identity, noise, parent, reason, replaces, policy = row
    accounts = connection.execute("SELECT * FROM accounts WHERE run = ? ORDER BY position", (entry,))
    members = connection.execute("SELECT person, account FROM members WHERE run = ? ORDER BY person", (entry,))
    unprotected = connection.execute("SELECT person FROM unprotected WHERE run = ? ORDER BY person", (entry,))
    agreed = None if policy is None else PolicyTerms.read(policy)
    rows, bare = tuple(AccountRow.read(row[2:]) for row in accounts), tuple(person for (person,) in unprotected)
    return RunRow(
        entry,
        time,
        name,
        pool,
        identity,
        noise,
        parent,
        reason,
        replaces,
        agreed,
        rows,
        tuple(members.fetchall()),
        bare,
    )


def _withdrawal(connection: sqlite3.Connection, entry: int, time: str) -> WithdrawalRow:
    row = connection.execute("SELECT person, returned FROM withdrawals WHERE entry = ?", (entry,)).fetchone()
    return WithdrawalRow(entry, time, *row)


def _batch(connection: sqlite3.Connection, entry: int, time: str) -> BatchRow:
    row = connection.execute("SELECT * FROM batches WHERE entry = ?", (entry,)).fetchone()
    _, run, kind, bound, noise, sigma, check_sigma = row
    charges = connection.execute("SELECT * FROM charges WHERE batch = ? ORDER BY account", (entry,))
    releases = connection.execute("SELECT * FROM releases WHERE batch = ? ORDER BY position", (entry,))
    rows = tuple(ChargeRow(*row[1:]) for row in charges)
    test = None
    for _, design, votes, passed in connection.execute("SELECT * FROM tests WHERE batch = ?", (entry,)):
        test = ReleaseTest(design=design, votes=votes, passed=None if passed is None else bool(passed))
    drawn = connection.execute("SELECT cells, shape, counts FROM histograms WHERE batch = ?", (entry,)).fetchone()
    histogram = None if drawn is None else Histogram.read(drawn)
    counts = connection.execute("SELECT shape, counts FROM noisy_votes WHERE batch = ?", (entry,)).fetchone()
    answers = tuple(row[2:] for row in releases)
    return BatchRow(entry, time, run, kind, bound, noise, sigma, check_sigma, rows, answers, test, histogram, counts)


_READERS: dict[str, Callable[[sqlite3.Connection, int, str], Row]] = {
    "run": _run,
    "batch": _batch,
    "withdrawal": _withdrawal,
}


def _check_strays(connection: sqlite3.Connection, name: str, seen: dict[str, int]) -> None:
    """Refuse rows that do not belong to an entry of the hash chain."""
    for kind, table in _TABLES.items():
        count = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608
        if count != seen[kind]:
            raise damaged(name, f"there are {count} {table} and {seen[kind]} in its chain")
    stray = connection.execute("PRAGMA foreign_key_check").fetchone()
    if stray is not None:
        raise damaged(name, f"a row of {stray[0]} belongs to no entry of its chain")


def _check_balances(connection: sqlite3.Connection, name: str, contents: Contents) -> None:
    """Compare the running balances with the sums of charges, and both with the budgets."""
    kept = {(run, account): raw for run, account, raw in connection.execute("SELECT run, account, spent FROM balances")}
    if kept.keys() != contents.spent.keys():
        raise damaged(name, "an account has no running balance, or a balance no account")
    for run in contents.runs.values():
        for row in run.accounts:
            spent = contents.spent[run.entry, row.id]
            if not np.array_equal(from_bytes(kept[run.entry, row.id]), spent):
                raise damaged(name, f"the balance of account {row.id!r} is not the sum of its charges")
            if spent.any() and not row.terms.fits(spent):
                raise damaged(name, f"account {row.id!r} is over its budget")


def append(connection: sqlite3.Connection, contents: Contents, entry: Row) -> None:
    """Commit an entry in one transaction, then add it to the contents; refuse if another process has written."""
    entry_hash = link(contents.hashes[-1], entry)
    with transaction(connection, write=True):
        last = connection.execute("SELECT entry, hash FROM entries ORDER BY entry DESC LIMIT 1").fetchone()
        if last != (len(contents.hashes) - 1, contents.hashes[-1]):
            raise IpateError("the ledger has changed since it was opened: another process wrote to it; open it again")
        kind = {RunRow: "run", BatchRow: "batch", WithdrawalRow: "withdrawal"}[type(entry)]
        _insert(connection, "entries", [(entry.entry, kind, entry.time, entry_hash)])
        if isinstance(entry, RunRow):
            _insert_run(connection, entry)
        elif isinstance(entry, WithdrawalRow):
            _insert(connection, "withdrawals", [(entry.entry, entry.person, entry.returned)])
        else:
            _insert_batch(connection, entry)
            changed = ((to_bytes(spent), *place) for place, spent in contents.balances(entry).items())
            connection.executemany("UPDATE balances SET spent = ? WHERE run = ? AND account = ?", changed)
    contents.add(entry, entry_hash)


def _insert_run(connection: sqlite3.Connection, run: RunRow) -> None:
    """Write a run with its accounts, their opening balances and their people."""
    policy = None if run.policy is None else run.policy.columns()
    row = (run.entry, run.name, run.pool, run.identity, run.noise, run.parent, run.reason, run.replaces, policy)
    _insert(connection, "runs", [row])
    _insert(connection, "accounts", ((run.entry, place, *row.columns()) for place, row in enumerate(run.accounts)))
    _insert(connection, "balances", ((run.entry, row.id, to_bytes(row.opening)) for row in run.accounts))
    _insert(connection, "members", ((run.entry, *pair) for pair in run.members))
    _insert(connection, "unprotected", ((run.entry, person) for person in run.unprotected))


def _insert_batch(connection: sqlite3.Connection, batch: BatchRow) -> None:
    """Write a batch: Δ and cost once per account, queries and answers once per query."""
    row = (batch.entry, batch.run, batch.kind, batch.bound, batch.noise, batch.sigma, batch.check_sigma)
    _insert(connection, "batches", [row])
    _insert(connection, "charges", ((batch.entry, *vars(row).values()) for row in batch.charges))
    _insert(connection, "releases", ((batch.entry, place, *row) for place, row in enumerate(batch.releases)))
    if batch.test is not None:
        _insert(connection, "tests", [(batch.entry, batch.test.design, batch.test.votes, batch.test.passed)])
    if batch.histogram is not None:
        _insert(connection, "histograms", [(batch.entry, *batch.histogram.columns())])
    if batch.counts is not None:
        _insert(connection, "noisy_votes", [(batch.entry, *batch.counts)])


def _insert(connection: sqlite3.Connection, table: str, rows: Iterable[tuple[object, ...]]) -> None:
    """Append rows that have every column of a table, in order."""
    columns = len(connection.execute(f"SELECT * FROM {table} LIMIT 0").description)  # noqa: S608
    connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * columns)})", rows)  # noqa: S608
