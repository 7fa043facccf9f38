"""Opening a ledger: a new file or an old one, the run it continues or the one it begins."""

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

from ipate.errors import InputError, IpateError
from ipate.ledger import Terms
from ipate.ledgers import carry
from ipate.ledgers.file import connect, transaction
from ipate.ledgers.reading import Contents, batches
from ipate.ledgers.records import AccountRow, Head, RunRow
from ipate.ledgers.schema import create_schema, is_blank
from ipate.ledgers.writing import append, insert_run, now

__all__ = ["begin", "check_head", "check_same", "connected"]


def connected(path: Path, *, readonly: bool, timeout: float, blank: bool) -> sqlite3.Connection:
    """Connect; make the tables where the file is empty and may be."""
    connection = connect(path, readonly=readonly, timeout=timeout)
    try:
        if blank and not readonly and is_blank(connection):
            with transaction(connection, write=True):
                create_schema(connection, time=now())
    except BaseException:
        connection.close()
        raise
    return connection


def check_head(name: str, contents: Contents, wanted: Head | None) -> None:
    """Refuse a ledger whose chain does not hold a head that was seen before."""
    if wanted is None:
        return
    if wanted.entries >= len(contents.hashes):
        raise IpateError(
            f"{name}: this is an older copy of the ledger: it ends at entry {contents.head.entries} and entry "
            f"{wanted.entries} was seen before; restore the newest copy, or what was spent since would be spent again"
        )
    if contents.hashes[wanted.entries].hex() != wanted.hash:
        raise IpateError(
            f"{name}: this ledger has another history: its entry {wanted.entries} is not the one that was seen before; "
            "find the ledger that the head belongs to, and charge nothing to this one"
        )


def check_same(run: RunRow, terms: Sequence[Terms] | None, pool: str | None, people: Mapping[str, str] | None) -> None:
    """Refuse to continue a run with other accounts, another pool or other people: that is a new run."""
    way_out = f"run {run.name!r} was opened otherwise: begin a new run, under another name, that continues its balances"
    if terms is not None:
        if len({entry.account for entry in terms}) != len(terms):
            raise InputError("an account id stands twice: ids must differ")
        recorded = {row.account: row.terms for row in run.accounts}
        if {entry.account: entry for entry in terms} != recorded:
            raise InputError(f"other accounts or budgets: {way_out}")
    if pool is not None and pool != run.pool:
        raise InputError(f"pool is {pool!r}, not {run.pool!r}: {way_out}")
    if people is not None and tuple(sorted(people.items())) != run.members:
        raise InputError(f"other people, or in other accounts: {way_out}")


def begin(
    connection: sqlite3.Connection,
    contents: Contents,
    terms: Sequence[Terms],
    *,
    name: str,
    pool: str,
    people: Mapping[str, str] | None,
) -> RunRow:
    """Record a new run with the balances that its people bring along."""
    if len({entry.account for entry in terms}) != len(terms):
        raise InputError("an account id stands twice: ids must differ")
    releases = carry.gather(contents.runs, batches(connection))
    opened = carry.openings(terms, people, runs=contents.runs, releases=releases)
    run = RunRow(
        entry=len(contents.hashes),
        time=now(),
        name=name,
        pool=pool,
        named=people is not None,
        accounts=tuple(AccountRow.of(entry, opened[entry.account]) for entry in terms),
        members=tuple(sorted((people or {}).items())),
    )
    with transaction(connection, write=True):
        entry_hash = append(connection, contents, run)
        insert_run(connection, run)
    contents.hashes.append(entry_hash)
    contents.open_run(run)
    return run
