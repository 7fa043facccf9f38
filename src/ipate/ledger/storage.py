"""Reading a ledger back: every entry in order, its hash recomputed, its balances added up again."""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from ipate.errors import IpateError
from ipate.ledger.entries import AccountRow, BatchRow, ChargeRow, Head, RunRow, from_bytes, link
from ipate.ledger.records import Stored
from ipate.ledger.schema import damaged

Floats = NDArray[np.float64]
Answers = dict[str, tuple[int, bool, bool]]


@dataclass
class Contents:
    """What a verified ledger holds, added up.

    Attributes
    ----------
    head : Head
        The last entry.
    hashes : list of bytes
        The hash of every entry, in order.
    runs : dict
        The runs by their entry, in the order in which they were opened.
    spent : dict
        (run, account) to its balance, the opening included.
    answers : dict
        Pool to the answers released for it.
    progress : dict
        Run to how far its accounts had come (see `Progress`).
    """

    hashes: list[bytes] = field(default_factory=list)
    charges: int = 0
    runs: dict[int, RunRow] = field(default_factory=dict)
    spent: dict[tuple[int, str], Floats] = field(default_factory=dict)
    answers: dict[str, Answers] = field(default_factory=dict)
    progress: dict[int, "Progress"] = field(default_factory=dict)

    @property
    def head(self) -> Head:
        """Where the ledger stands."""
        return Head(entries=len(self.hashes) - 1, charges=self.charges, hash=self.hashes[-1].hex())

    def run_named(self, name: str | None) -> RunRow | None:
        """Return a run by its name, the last one where none is given; None where there is none."""
        found = [run for run in self.runs.values() if name is None or run.name == name]
        return found[-1] if found else None

    def open_run(self, run: RunRow) -> None:
        """Add a run: its accounts start from their openings."""
        self.runs[run.entry] = run
        self.progress[run.entry] = Progress()
        self.answers.setdefault(run.pool, {})
        for row in run.accounts:
            self.spent[run.entry, row.id] = from_bytes(row.opening)

    def add(self, batch: BatchRow) -> None:
        """Add a batch: balances grow in the order in which they were charged, so that sums agree to the last bit."""
        self.charges += 1
        for row in batch.charges:
            self.spent[batch.run, row.account] = self.spent[batch.run, row.account] + from_bytes(row.cost)
        pool = self.answers[self.runs[batch.run].pool]
        for query, answered, label, reinforced in batch.releases:
            if label is not None:
                if query in pool:
                    raise ValueError(f"query {query!r} was released twice")
                pool[query] = (label, bool(answered), bool(reinforced))
        self.progress[batch.run].add(batch)

    def stored(self, run: RunRow) -> Stored:
        """Return what a labelling needs to go on with a run."""
        come = self.progress[run.entry]
        return Stored(answers=dict(self.answers[run.pool]), sensitivity=dict(come.sensitivity), left=dict(come.left))


@dataclass
class Progress:
    """The labels and queries of a run, the largest Δ of every account, and who had left at the last charge."""

    labels: int = 0
    queries: set[str] = field(default_factory=set)
    sensitivity: dict[str, float] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)

    def add(self, batch: BatchRow) -> None:
        """Add a batch."""
        for row in batch.charges:
            most = float(np.max(row.moved, initial=0.0))
            self.sensitivity[row.account] = max(self.sensitivity.get(row.account, 0.0), most)
            if most > 0:
                self.left.pop(row.account, None)
            else:
                self.left.setdefault(row.account, self.labels)
        self.labels += sum(row[1] for row in batch.releases)
        self.queries.update(row[0] for row in batch.releases if row[2] is not None)


def read(connection: sqlite3.Connection, *, name: str) -> Contents:
    """Read and verify everything, inside the caller's transaction; raise if anything is not as it was written."""
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
    """Go through all batches in the order in which they were charged."""
    rows = connection.execute("SELECT e.entry, e.time FROM entries e WHERE kind = 'batch' ORDER BY e.entry").fetchall()
    for entry, time in rows:
        yield _batch(connection, entry, time)


def _run(connection: sqlite3.Connection, entry: int, time: str) -> RunRow:
    found = connection.execute("SELECT name, pool, named FROM runs WHERE entry = ?", (entry,)).fetchone()
    if found is None:
        raise KeyError(entry)
    accounts = connection.execute(
        "SELECT account, team, people, epsilon, delta, sensitivity, bound, conversion, orders, opening FROM accounts "
        "WHERE run = ? ORDER BY position",
        (entry,),
    ).fetchall()
    members = connection.execute("SELECT person, account FROM members WHERE run = ? ORDER BY person", (entry,))
    return RunRow(
        entry=entry,
        time=time,
        name=found[0],
        pool=found[1],
        named=bool(found[2]),
        accounts=tuple(map(AccountRow.read, accounts)),
        members=tuple(members.fetchall()),
    )


def _batch(connection: sqlite3.Connection, entry: int, time: str) -> BatchRow:
    found = connection.execute(
        "SELECT run, bound, noise, sigma, check_sigma FROM batches WHERE entry = ?", (entry,)
    ).fetchone()
    if found is None:
        raise KeyError(entry)
    charges = connection.execute(
        "SELECT account, sensitivity, sensitivities, cost FROM charges WHERE batch = ? ORDER BY account", (entry,)
    )
    names = ("account", "sensitivity", "sensitivities", "cost")
    releases = connection.execute(
        "SELECT query, answered, label, reinforced FROM releases WHERE batch = ? ORDER BY position", (entry,)
    )
    return BatchRow(
        entry=entry,
        time=time,
        run=found[0],
        bound=found[1],
        noise=found[2],
        sigma=found[3],
        check_sigma=found[4],
        charges=tuple(ChargeRow(**dict(zip(names, row, strict=True))) for row in charges),
        releases=tuple(releases.fetchall()),
    )


def _check_strays(connection: sqlite3.Connection, name: str, seen: dict[str, int]) -> None:
    """Refuse rows that no entry of the chain vouches for."""
    for table, kind in (("runs", "run"), ("batches", "batch")):
        count = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608
        if count != seen[kind]:
            raise IpateError(damaged(name, f"there are {count} {table} and {seen[kind]} in its chain"))
    stray = connection.execute("PRAGMA foreign_key_check").fetchone()
    if stray is not None:
        raise IpateError(damaged(name, f"a row of {stray[0]} belongs to no entry of its chain"))


def _check_balances(connection: sqlite3.Connection, name: str, contents: Contents) -> None:
    """Compare the running balances with the sums of what was charged, and both with the budgets."""
    kept = {(run, account): raw for run, account, raw in connection.execute("SELECT run, account, spent FROM balances")}
    if kept.keys() != contents.spent.keys():
        raise IpateError(damaged(name, "an account has no running balance, or a balance no account"))
    for run in contents.runs.values():
        for row in run.accounts:
            spent = contents.spent[run.entry, row.id]
            if not np.array_equal(from_bytes(kept[run.entry, row.id]), spent):
                raise IpateError(damaged(name, f"the balance of account {row.id!r} is not the sum of its charges"))
            limit = row.meter.limit(row.terms.account.epsilon, row.terms.account.delta)
            if spent.any() and not np.any(spent <= limit):
                raise IpateError(damaged(name, f"account {row.id!r} is over its budget"))


def now() -> str:
    """Return the time as it is written: UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def append(connection: sqlite3.Connection, contents: Contents, entry: RunRow | BatchRow) -> bytes:
    """Add an entry to the chain, if the chain is still what this process saw last."""
    last = connection.execute("SELECT entry, hash FROM entries ORDER BY entry DESC LIMIT 1").fetchone()
    if last != (len(contents.hashes) - 1, contents.hashes[-1]):
        raise IpateError("the ledger has changed since it was opened: another process wrote it; open it again")
    entry_hash = link(contents.hashes[-1], entry)
    kind = "run" if isinstance(entry, RunRow) else "batch"
    connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?)", (entry.entry, kind, entry.time, entry_hash))
    return entry_hash


def insert_run(connection: sqlite3.Connection, run: RunRow) -> None:
    """Write a run with its accounts, their first balances and their people."""
    connection.execute("INSERT INTO runs VALUES (?, ?, ?, ?)", (run.entry, run.name, run.pool, int(run.named)))
    for position, row in enumerate(run.accounts):
        values = (run.entry, position, *row.columns())
        connection.execute(f"INSERT INTO accounts VALUES ({', '.join('?' * len(values))})", values)  # noqa: S608
        connection.execute("INSERT INTO balances VALUES (?, ?, ?)", (run.entry, row.id, row.opening))
    connection.executemany("INSERT INTO members VALUES (?, ?, ?)", ((run.entry, *pair) for pair in run.members))


def insert_batch(connection: sqlite3.Connection, batch: BatchRow) -> None:
    """Write a batch: Δ and cost once per account, queries and answers once per query."""
    connection.execute(
        "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?)",
        (batch.entry, batch.run, batch.bound, batch.noise, batch.sigma, batch.check_sigma),
    )
    connection.executemany(
        "INSERT INTO charges VALUES (?, ?, ?, ?, ?)",
        ((batch.entry, row.account, row.sensitivity, row.sensitivities, row.cost) for row in batch.charges),
    )
    connection.executemany(
        "INSERT INTO releases VALUES (?, ?, ?, ?, ?, ?)",
        ((batch.entry, position, *row) for position, row in enumerate(batch.releases)),
    )
