"""Opening a ledger: a new file or an old one, the run it continues or the one it begins."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ipate.errors import InputError, IpateError
from ipate.ledger import carry
from ipate.ledger.entries import AccountRow, Head, RunRow, to_bytes
from ipate.ledger.file import connect, plain_errors, transaction
from ipate.ledger.records import Terms
from ipate.ledger.schema import check_schema, create_schema, is_blank
from ipate.ledger.storage import Contents, append, batches, insert_run, now, read

Floats = NDArray[np.float64]


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


def opening_balances(
    path: str | Path,
    terms: Sequence[Terms],
    *,
    run: str,
    people: Mapping[str, str] | None = None,
    timeout: float = 30.0,
) -> dict[str, Floats]:
    """Return what accounts will have spent when a run is begun, and write nothing.

    So what cannot be afforded is refused before anybody trains. Empty where the ledger or the run is new or known
    already: there is nothing to carry over.
    """
    with _looked_at(Path(path), timeout) as found:
        if found is None or not found[1].runs or found[1].run_named(run) is not None:
            return {}
        connection, contents = found
        releases = carry.gather(contents.runs, batches(connection))
    return carry.openings(terms, people, runs=contents.runs, releases=releases)


def run_names(path: str | Path, *, timeout: float = 30.0) -> tuple[str, ...]:
    """Return the names of a ledger's runs, in order; none where there is no ledger yet."""
    with _looked_at(Path(path), timeout) as found:
        return () if found is None else tuple(run.name for run in found[1].runs.values())


def refuse_mixed_noise(path: str | Path, run: str) -> None:
    """Refuse a run that this ledger will not take, before anything is trained or asked; `begin` refuses it for good."""
    check_noise(str(path), run_names(path), run)


@contextmanager
def _looked_at(file: Path, timeout: float) -> Iterator[tuple[sqlite3.Connection, Contents] | None]:
    """Read and verify a ledger without its lock; None where there is none, or its making was interrupted."""
    if not file.exists() or file.stat().st_size == 0:
        yield None
        return
    with (
        plain_errors(str(file)),
        closing(connect(file, readonly=True, timeout=timeout)) as connection,
        transaction(connection, write=False),
    ):
        if is_blank(connection):
            yield None
            return
        check_schema(connection, name=str(file))
        yield connection, read(connection, name=str(file))


def check_same(run: RunRow, terms: Sequence[Terms] | None, pool: str | None, people: Mapping[str, str] | None) -> None:
    """Refuse to continue a run with other accounts, another pool or other people: that is a new run."""
    way_out = f"run {run.name!r} was opened otherwise: begin a new run, under another name, that continues its balances"
    if terms is not None:
        if len({entry.account.id for entry in terms}) != len(terms):
            raise InputError("an account id stands twice: ids must differ")
        recorded = {row.id: row.terms for row in run.accounts}
        if {entry.account.id: entry for entry in terms} != recorded:
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
    ledger: str,
    name: str,
    pool: str,
    people: Mapping[str, str] | None,
) -> RunRow:
    """Record a new run with the balances that its people bring along; only the holder of the lock gets here."""
    check_noise(ledger, (run.name for run in contents.runs.values()), name)
    if len({entry.account.id for entry in terms}) != len(terms):
        raise InputError("an account id stands twice: ids must differ")
    releases = carry.gather(contents.runs, batches(connection))
    opened = carry.openings(terms, people, runs=contents.runs, releases=releases)
    run = RunRow(
        entry=len(contents.hashes),
        time=now(),
        name=name,
        pool=pool,
        named=people is not None,
        accounts=tuple(AccountRow(terms=entry, opening=to_bytes(opened[entry.account.id])) for entry in terms),
        members=tuple(sorted((people or {}).items())),
    )
    with transaction(connection, write=True):
        entry_hash = append(connection, contents, run)
        insert_run(connection, run)
    contents.hashes.append(entry_hash)
    contents.open_run(run)
    return run


_SEEDED = " (seeded)"


def name_run(name: str, *, seeded: bool) -> str:
    """Return the name under which a run is charged; a seeded one says so for good."""
    return f"{name}{_SEEDED}" if seeded else name


def is_seeded(run: str) -> bool:
    """Whether a run's name says that its noise was seeded."""
    return run.endswith(_SEEDED)


def check_noise(ledger: str, runs: Iterable[str], run: str) -> None:
    """Refuse to charge a run to a ledger whose runs have the other kind of noise.

    A seeded run tells its votes to whoever knows the seed: no later account of the same people would be true.
    """
    others = [name for name in runs if is_seeded(name) != is_seeded(run)]
    if others:
        what = "seeded, and not private" if is_seeded(others[0]) else "private, with secret noise"
        raise InputError(
            f"{ledger}: run {others[0]!r} of this ledger is {what}: seeded runs and private ones must not share one; "
            "name another ledger"
        )
