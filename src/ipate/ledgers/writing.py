"""Writing entries: always inside the caller's transaction, always at the end of the chain this process saw."""

import sqlite3
from datetime import UTC, datetime

from ipate.errors import IpateError
from ipate.ledgers.reading import Contents
from ipate.ledgers.records import BatchRow, RunRow, link

__all__ = ["append", "insert_batch", "insert_run", "now"]


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
        values = (row.account, row.group, row.epsilon, row.delta, row.bound, row.conversion, row.orders, row.opening)
        connection.execute("INSERT INTO accounts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (run.entry, position, *values))
        connection.execute("INSERT INTO balances VALUES (?, ?, ?)", (run.entry, row.account, row.opening))
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
