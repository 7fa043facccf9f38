"""Appending an entry to a ledger file, in one transaction."""

import sqlite3
from collections.abc import Iterable

from ipate.errors import IpateError
from ipate.ledger.file import transaction
from ipate.ledger.records import RunRow, WithdrawalRow, to_bytes
from ipate.ledger.storage import BatchRow, Contents, Row, link


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
