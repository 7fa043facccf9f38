"""Reading, verifying and appending the entries of a ledger file."""

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ipate.errors import IpateError
from ipate.ledger.carry import Place
from ipate.ledger.entries import AccountRow, BatchRow, ChargeRow, RunRow, from_bytes, link
from ipate.ledger.file import damaged
from ipate.ledger.records import RELEASES, Answer, Floats, Head, ReleaseTest, Stored


@dataclass
class Contents:
    """The contents of a verified ledger: runs, balances and answers."""

    hashes: list[bytes] = field(default_factory=list)  # of every entry, in order
    charges: int = 0
    runs: dict[int, RunRow] = field(default_factory=dict)  # by entry, in the order in which they were opened
    spent: dict[Place, Floats] = field(default_factory=dict)  # balances, including opening balances
    answers: dict[tuple[str, str], dict[str, Answer]] = field(default_factory=dict)  # by pool and kind of release
    progress: dict[int, "Progress"] = field(default_factory=dict)  # by run

    @property
    def head(self) -> Head:
        """The last entry."""
        return Head(entries=len(self.hashes) - 1, charges=self.charges, hash=self.hashes[-1].hex())

    def run_named(self, name: str | None) -> RunRow | None:
        """Return a run by name, or the last run if no name is given; None if there is no such run."""
        found = [run for run in self.runs.values() if name is None or run.name == name]
        return found[-1] if found else None

    def open_run(self, run: RunRow) -> None:
        """Add a run, whose accounts start from their opening balances."""
        self.runs[run.entry] = run
        self.progress[run.entry] = Progress()
        for row in run.accounts:
            self.spent[run.entry, row.id] = from_bytes(row.opening)

    def add(self, batch: BatchRow) -> None:
        """Add a batch; costs are added in the order of the charges, so that sums agree to the last bit."""
        self.charges += 1
        for row in batch.charges:
            self.spent[batch.run, row.account] = self.spent[batch.run, row.account] + from_bytes(row.cost)
        known = self.known(self.runs[batch.run], batch.kind)
        for query, answered, label, reinforced in batch.releases:
            if label is not None:
                if query in known:
                    raise ValueError(f"query {query!r} was released twice")
                known[query] = (label, bool(answered), bool(reinforced))
        self.progress[batch.run].add(batch)

    def known(self, run: RunRow, kind: str) -> dict[str, Answer]:
        """Return the answers of one kind of release for a run's pool; answers are not shared between kinds."""
        return self.answers.setdefault((run.pool, kind), {})

    def stored(self, run: RunRow, kind: str) -> Stored:
        """Return the state from which a run is continued."""
        come = self.progress[run.entry]
        return Stored(
            answers=dict(self.known(run, kind)),
            sensitivity=dict(come.sensitivity),
            left=dict(come.left),
            test=come.test,
        )


@dataclass
class Progress:
    """The state of a run: its labels, queries and test, and for every account its largest Δ and when it was dropped."""

    labels: int = 0
    queries: dict[str, set[str]] = field(default_factory=dict)  # by kind of release
    sensitivity: dict[str, float] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    test: ReleaseTest | None = None

    def add(self, batch: BatchRow) -> None:
        """Add a batch."""
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
        asked = self.queries.setdefault(batch.kind, set())
        asked.update(row[0] for row in batch.releases if row[2] is not None)


def read(connection: sqlite3.Connection, *, name: str) -> Contents:
    """Read and verify all entries in the caller's transaction; raise if anything was changed."""
    for (verdict,) in connection.execute("PRAGMA quick_check(1)"):
        if verdict != "ok":
            raise IpateError(damaged(name, f"SQLite finds it damaged ({verdict})"))
    contents = Contents()
    rows = connection.execute("SELECT entry, kind, time, hash FROM entries ORDER BY entry").fetchall()
    if not rows or (rows[0][0], rows[0][1]) != (0, "ledger"):
        raise IpateError(damaged(name, "the beginning of its chain is missing"))
    contents.hashes.append(rows[0][3])
    seen = {"run": 0, "batch": 0}
    for number, (entry, kind, time, stated) in enumerate(rows[1:], start=1):
        if entry != number or kind not in seen:
            raise IpateError(damaged(name, f"entry {number} of its chain is missing or out of place"))
        seen[kind] += 1
        try:
            made = _run(connection, entry, time) if kind == "run" else _batch(connection, entry, time)
            right = link(contents.hashes[-1], made) == stated
            if right and isinstance(made, RunRow):
                contents.open_run(made)
            elif right and isinstance(made, BatchRow):
                _check_kind(name, made)
                contents.add(made)
        except (KeyError, TypeError, ValueError, AttributeError):
            right = False
        if not right:
            raise IpateError(
                damaged(name, f"entry {entry} (a {kind} of {time}) does not match its hash: somebody changed it")
            )
        contents.hashes.append(stated)
    _check_strays(connection, name, seen)
    _check_balances(connection, name, contents)
    return contents


def batches(connection: sqlite3.Connection) -> Iterator[BatchRow]:
    """Iterate over all batches, in order."""
    rows = connection.execute("SELECT e.entry, e.time FROM entries e WHERE kind = 'batch' ORDER BY e.entry").fetchall()
    for entry, time in rows:
        yield _batch(connection, entry, time)


def _run(connection: sqlite3.Connection, entry: int, time: str) -> RunRow:
    name, pool, named, noise, parent, reason = _only(connection, "SELECT * FROM runs WHERE entry = ?", entry)
    accounts = connection.execute("SELECT * FROM accounts WHERE run = ? ORDER BY position", (entry,))
    members = connection.execute("SELECT person, account FROM members WHERE run = ? ORDER BY person", (entry,))
    rows = tuple(AccountRow.read(row[2:]) for row in accounts)
    return RunRow(entry, time, name, pool, bool(named), noise, parent, reason, rows, tuple(members.fetchall()))


def _batch(connection: sqlite3.Connection, entry: int, time: str) -> BatchRow:
    run, kind, bound, noise, sigma, check_sigma = _only(connection, "SELECT * FROM batches WHERE entry = ?", entry)
    charges = connection.execute("SELECT * FROM charges WHERE batch = ? ORDER BY account", (entry,))
    releases = connection.execute("SELECT * FROM releases WHERE batch = ? ORDER BY position", (entry,))
    rows = tuple(ChargeRow(*row[1:]) for row in charges)
    test = None
    for _, design, votes, passed in connection.execute("SELECT * FROM tests WHERE batch = ?", (entry,)):
        test = ReleaseTest(design=design, votes=votes, passed=None if passed is None else bool(passed))
    answers = tuple(row[2:] for row in releases)
    return BatchRow(entry, time, run, kind, bound, noise, sigma, check_sigma, rows, answers, test)


def _only(connection: sqlite3.Connection, query: str, entry: int) -> tuple[Any, ...]:
    """Return the row of an entry without its first column, the entry number."""
    found = connection.execute(query, (entry,)).fetchone()
    if found is None:
        raise KeyError(entry)
    return tuple(found[1:])


def _check_kind(name: str, batch: BatchRow) -> None:
    """Refuse a kind of release that this version does not know, since its cost could not be counted."""
    if batch.kind not in RELEASES:
        raise IpateError(
            f"{name}: entry {batch.entry} is of the kind {batch.kind!r}, unknown to this ipate: update ipate"
        )


def _check_strays(connection: sqlite3.Connection, name: str, seen: dict[str, int]) -> None:
    """Refuse rows that do not belong to an entry of the hash chain."""
    for table, kind in (("runs", "run"), ("batches", "batch")):
        count = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608
        if count != seen[kind]:
            raise IpateError(damaged(name, f"there are {count} {table} and {seen[kind]} in its chain"))
    stray = connection.execute("PRAGMA foreign_key_check").fetchone()
    if stray is not None:
        raise IpateError(damaged(name, f"a row of {stray[0]} belongs to no entry of its chain"))


def _check_balances(connection: sqlite3.Connection, name: str, contents: Contents) -> None:
    """Compare the running balances with the sums of charges, and both with the budgets."""
    kept = {(run, account): raw for run, account, raw in connection.execute("SELECT run, account, spent FROM balances")}
    if kept.keys() != contents.spent.keys():
        raise IpateError(damaged(name, "an account has no running balance, or a balance no account"))
    for run in contents.runs.values():
        for row in run.accounts:
            spent = contents.spent[run.entry, row.id]
            if not np.array_equal(from_bytes(kept[run.entry, row.id]), spent):
                raise IpateError(damaged(name, f"the balance of account {row.id!r} is not the sum of its charges"))
            if spent.any() and not np.any(spent <= row.terms.limit):
                raise IpateError(damaged(name, f"account {row.id!r} is over its budget"))


def append(connection: sqlite3.Connection, contents: Contents, entry: RunRow | BatchRow) -> bytes:
    """Append an entry to the hash chain; refuse if another process has written since it was read."""
    last = connection.execute("SELECT entry, hash FROM entries ORDER BY entry DESC LIMIT 1").fetchone()
    if last != (len(contents.hashes) - 1, contents.hashes[-1]):
        raise IpateError("the ledger has changed since it was opened: another process wrote to it; open it again")
    entry_hash = link(contents.hashes[-1], entry)
    kind = "run" if isinstance(entry, RunRow) else "batch"
    connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?)", (entry.entry, kind, entry.time, entry_hash))
    return entry_hash


def insert_run(connection: sqlite3.Connection, run: RunRow) -> None:
    """Write a run with its accounts, their opening balances and their people."""
    row = (run.entry, run.name, run.pool, int(run.named), run.noise, run.parent, run.reason)
    _insert(connection, "runs", [row])
    accounts = ((run.entry, position, *row.columns()) for position, row in enumerate(run.accounts))
    _insert(connection, "accounts", accounts)
    _insert(connection, "balances", ((run.entry, row.id, row.opening) for row in run.accounts))
    _insert(connection, "members", ((run.entry, *pair) for pair in run.members))


def insert_batch(connection: sqlite3.Connection, batch: BatchRow) -> None:
    """Write a batch: Δ and cost once per account, queries and answers once per query."""
    row = (batch.entry, batch.run, batch.kind, batch.bound, batch.noise, batch.sigma, batch.check_sigma)
    _insert(connection, "batches", [row])
    _insert(connection, "charges", ((batch.entry, *vars(row).values()) for row in batch.charges))
    _insert(connection, "releases", ((batch.entry, place, *row) for place, row in enumerate(batch.releases)))
    if batch.test is not None:
        _insert(connection, "tests", [(batch.entry, batch.test.design, batch.test.votes, batch.test.passed)])


def _insert(connection: sqlite3.Connection, table: str, rows: Iterable[tuple[object, ...]]) -> None:
    """Append rows that have every column of a table, in order."""
    columns = len(connection.execute(f"SELECT * FROM {table} LIMIT 0").description)  # noqa: S608
    connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * columns)})", rows)  # noqa: S608
