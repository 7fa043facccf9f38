"""Reading a verified ledger file, and the head that is kept beside it for rollback detection.

The ledger in an SQLite file; charges and answers are committed together, before anything is released.

People who withdraw from a ledger: no later run uses their data, until they consent again.
"""

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ipate.errors import InputError, IpateError
from ipate.files import FileLock, write_text
from ipate.ledger.admission import Roster
from ipate.ledger.base import Ledger, check_ids
from ipate.ledger.carry import keep_orders, openings
from ipate.ledger.chain import BatchRow, Contents, append, charges, read
from ipate.ledger.file import (
    connect,
    create_schema,
    head_file,
    is_blank,
    lock_for_writing,
    plain_errors,
    transaction,
)
from ipate.ledger.records import (
    REASONS,
    AccountRow,
    Charge,
    Head,
    NoiseKind,
    Reason,
    ReleaseKind,
    RunRow,
    Stored,
    Terms,
    WithdrawalRow,
    now,
    refuse_mixed_noise,
    shared,
)
from ipate.people.ids import plain_id

TIMEOUT = 30.0  # seconds to wait for another process


@contextmanager
def looked_at(file: Path) -> Iterator[tuple[sqlite3.Connection, Contents] | None]:
    """Read and verify a ledger without its lock; None if there is none or its creation was interrupted."""
    if not file.exists() or file.stat().st_size == 0:
        yield None
        return
    with (
        plain_errors(str(file)),
        closing(connect(file, readonly=True, timeout=TIMEOUT)) as connection,
        transaction(connection, write=False),
    ):
        yield None if is_blank(connection) else (connection, read(connection, name=str(file)))


def check_head(name: str, contents: Contents, wanted: Head | None) -> None:
    """Rollback detection: refuse a ledger whose chain does not contain a head that was seen before."""
    if wanted is None or wanted.hash in (known.hex() for known in contents.hashes):
        return
    ends, seen = f"entry {contents.head.entries}", f"entry {wanted.entries}"
    if any(not row.terms.meter.data_independent for run in contents.runs.values() for row in run.accounts):
        ends, seen = "an earlier entry", "a later one"  # the number of charges may depend on private votes
    if wanted.entries > contents.head.entries:
        raise IpateError(
            f"{name}: this is an older copy of the ledger: it ends at {ends} and {seen} was seen before; restore the "
            "newest copy, because later charges are missing here"
        )
    raise IpateError(
        f"{name}: this ledger has another history than the one that was seen before, or lacks its last record; find "
        "the newest copy of the ledger that the head belongs to, and charge nothing to this one"
    )


def lost(file: Path) -> IpateError:
    """Return the error for a ledger that is not where it was."""
    return IpateError(
        f"{file}: there is no ledger here; if it was moved or lost, restore it, do not start anew: what its people "
        "have spent would be forgotten"
    )


def kept_head(file: Path) -> Head | None:
    """Return the newest head that was recorded beside a ledger; None if there is none."""
    try:
        return Head.parse(head_file(file).read_text(encoding="ascii"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise IpateError(f"{head_file(file)}: not readable ({error}); restore it together with the ledger") from None


def keep_head(file: Path, head: Head) -> None:
    """Record the head beside the file, so that an older copy is noticed; a failure to do so is no error."""
    if kept_head(file) != head:
        with suppress(OSError):
            write_text(head_file(file), f"{head}\n", private=True)  # it counts charges


class SqliteLedger(Ledger):
    """A ledger in an SQLite file; create it with `open` and use it as a context manager.

    Only one process can write at a time. A charge is on disk before `charge` returns.
    """

    def __init__(
        self, path: Path, connection: sqlite3.Connection, lock: FileLock | None, contents: Contents, run: RunRow
    ) -> None:
        super().__init__(path, contents.runs, run, contents.spent)
        self._file, self._connection, self._lock, self._contents = path, connection, lock, contents

    @classmethod
    def open(
        cls,
        path: str | Path,
        terms: Sequence[Terms] | None = None,
        *,
        run: str | None = None,
        pool: str | None = None,
        people: Mapping[str, str] | Roster | None = None,
        noise: NoiseKind | None = None,
        parent: str | None = None,
        reason: Reason | None = None,
        replaces: str | None = None,
        expected_head: Head | str | None = None,
        timeout: float = TIMEOUT,
        readonly: bool = False,
    ) -> Self:
        """Open and verify a ledger, and continue a run or begin a new one.

        Without `run`, the last run is continued, and a new file begins the run "run". A known name continues that run;
        terms, pool, people, noise and parent must be the same if they are given. A new name begins a run: every account
        starts from the maximum of its members' spending, and earlier runs can no longer be charged.

        Parameters
        ----------
        pool : str, optional
            The pool that the query ids refer to. Runs on the same pool share its answers. Default: a separate pool.
        people : mapping or Roster, optional
            Person to account id, so that balances follow people into other groups. Give it in all runs or in none. A
            `Roster` also names people who are not protected, and answers what a new run may be asked.
        noise : {"secure", "seeded"}, optional
            The kind of noise of a new run. Default: secure. All runs of a ledger have the same kind.
        parent, reason : str, optional
            The run that a new run continues, and why ("withdrawal").
        replaces : str, optional
            Other ledgers of these people whose charges are not counted here, for the report.
        expected_head : Head or str, optional
            A head that was seen before, for rollback detection: a file whose chain does not contain it is refused.
        timeout : float
            Seconds to wait for another process to release the write lock.
        readonly : bool
            Open without the write lock; such a ledger cannot charge.
        """
        file, roster = Path(path), Roster.of(people)
        heads = [Head.parse(expected_head) if isinstance(expected_head, str) else expected_head, kept_head(file)]
        wanted = max((head for head in heads if head is not None), key=lambda head: head.entries, default=None)
        if not file.exists() and (readonly or terms is None or wanted is not None):
            raise lost(file)
        with ExitStack() as held, plain_errors(str(file)):
            lock = None if readonly else held.enter_context(lock_for_writing(file, timeout=timeout))
            connection = held.enter_context(closing(connect(file, readonly=readonly, timeout=timeout)))
            if not readonly and wanted is None and is_blank(connection):
                with transaction(connection, write=True):
                    create_schema(connection, time=now())
            with transaction(connection, write=False):
                contents = read(connection, name=str(file))
            for head in heads:
                check_head(str(file), contents, head)
            name = run if run is not None or contents.runs else "run"
            chosen = contents.run_named(name)
            if chosen is not None:
                _check_same(chosen, terms, pool=pool, people=roster.people, noise=noise, parent=parent)
            elif readonly or terms is None or name is None:
                raise InputError(f"run {name!r} is not in this ledger, and no accounts are given to begin it")
            else:
                _check_noise(str(file), contents, noise or "secure")
                _check_parent(contents, parent, reason)
                chosen = RunRow(
                    entry=len(contents.hashes),
                    time=now(),
                    name=name,
                    pool=pool or name,
                    identity=roster.identity,
                    noise=noise or "secure",
                    parent=parent,
                    reason="overlap" if parent is None and roster.overlap else reason,
                    replaces=replaces,
                    policy=roster.policy,
                    accounts=_opened(connection, contents, terms, roster, parent),
                    members=tuple(sorted((roster.people or {}).items())),
                    unprotected=tuple(sorted(roster.unprotected)),
                )
                _refuse_withdrawn(str(file), contents, chosen)
                append(connection, contents, chosen)
            if not readonly:
                _refuse_withdrawn(str(file), contents, chosen)
                unknown = roster.withdrawn.keys() - {row.person for row in contents.withdrawals}
                for person in sorted(unknown):  # they left the run before the ledger was begun
                    append(connection, contents, WithdrawalRow(len(contents.hashes), now(), person, 0))
            ledger = cls(file, connection, lock, contents, chosen)
            ledger._keep_head()
            held.pop_all()  # the ledger closes them
        return ledger

    @property
    def head(self) -> Head:
        """The last entry of the hash chain: store it with labels and reports for rollback detection."""
        return self._contents.head

    @property
    def private_history(self) -> tuple[str, ...]:
        """Runs up to this one that were charged by a data-dependent bound: their length may depend on private votes."""
        return tuple(
            run.name
            for run in self._until_now
            if self._contents.progress[run.entry].sensitivity
            and any(not row.terms.meter.data_independent for row in run.accounts)
        )

    def stored(self, kind: ReleaseKind = "labels") -> Stored:
        """Return the answers of one kind that are already paid, and the state of the accounts."""
        answers, come = self._contents.known(self._run, kind), self._contents.progress[self._run.entry]
        drawn = None
        for run in self._until_now if kind == "ballots" else ():
            if run.name in self.parts():
                drawn = self._contents.progress[run.entry].histogram or drawn
        return Stored(
            answers=dict(answers),
            noisy_votes=dict(self._contents.noisy(self._run)),
            sensitivity=dict(come.sensitivity),
            left=dict(come.left),
            test=come.test,
            histogram=drawn,
        )

    def inherited(self, kind: ReleaseKind = "labels") -> frozenset[str]:
        """Return the queries of the run's pool that other runs paid for, except the runs it continues."""
        own = self.parts()
        others = (run for run in self._until_now if run.name not in own and run.pool == self._run.pool)
        return frozenset().union(*(self._contents.progress[run.entry].queries.get(shared(kind), ()) for run in others))

    @property
    def withdrawn(self) -> Mapping[str, str]:
        """The people who withdrew and have not returned, each with the time."""
        return self._contents.withdrawn

    @property
    def _until_now(self) -> tuple[RunRow, ...]:
        return tuple(run for run in self._runs.values() if run.entry <= self._run.entry)

    def _charged(self) -> Iterator[tuple[int, Charge]]:
        with plain_errors(str(self.path)), transaction(self._connection, write=False):
            yield from charges(self._connection, self._runs)

    def check_head(self, head: Head | str) -> None:
        """Raise if the chain does not contain a head that was seen before: rollback detection."""
        check_head(str(self.path), self._contents, Head.parse(head) if isinstance(head, str) else head)

    def charge(self, charge: Charge) -> None:
        """Commit the charge and its answers together, or neither if an account cannot pay or the disk fails.

        When this returns, both are on disk. When it raises, nothing may be released.
        """
        if self._lock is None:
            raise IpateError(f"{self.path}: the ledger was opened read-only; nothing was charged")
        if self._contents.run_named(None) is not self._run:
            raise IpateError(
                f"run {self.run!r} has ended: a later run continues its balances, so begin a new one; "
                "nothing was charged"
            )
        self.require(charge)
        if charge.labels is not None:
            known = self._contents.known(self._run, charge.kind)
            again = [query for query in charge.queries if query in known]
            if again or len(set(charge.queries)) < len(charge.queries):
                raise InputError(
                    f"duplicate query {(again or charge.queries)[0]!r}: a query is released once, then stored"
                )
        batch = BatchRow.of(charge, entry=len(self._contents.hashes), run=self._run.entry, time=now())
        with plain_errors(str(self.path)):
            append(self._connection, self._contents, batch)

    def verify(self) -> Head:
        """Read the whole file again, verify tables, hash chain, balances and budgets, and return its head."""
        with plain_errors(str(self.path)), transaction(self._connection, write=False):
            return read(self._connection, name=str(self.path)).head

    def close(self) -> None:
        """Record the head, close the file and release the write lock."""
        self._keep_head()
        self._connection.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _keep_head(self) -> None:
        """Record the head beside the file, so that an older copy is noticed."""
        if self._lock is not None:
            keep_head(self._file, self.head)


def opening_accounts(
    path: str | Path,
    terms: Sequence[Terms],
    *,
    run: str,
    noise: NoiseKind,
    people: Mapping[str, str] | Roster | None = None,
    heads: Sequence[Head] = (),
) -> tuple[AccountRow, ...]:
    """Return the accounts with the opening balances that a new run would have, without writing.

    This refuses a run that the ledger does not admit, with the other kind of noise, or without budget, and a ledger
    without one of the heads that were seen before, all before any teacher is trained. The result is empty if the
    ledger is new or already holds the run.
    """
    file = Path(path)
    if not file.exists() and (heads or kept_head(file) is not None):
        raise lost(file)
    with looked_at(file) as found:
        if found is None:
            return ()
        connection, contents = found
        for head in (*heads, kept_head(file)):
            check_head(str(file), contents, head)
        if not contents.runs or contents.run_named(run) is not None:
            return ()
        _check_noise(str(file), contents, noise)
        return _opened(connection, contents, terms, Roster.of(people), None)


def runs_on(path: str | Path) -> tuple[RunRow, ...]:
    """Return a ledger's runs, in order; empty if there is no ledger yet."""
    with looked_at(Path(path)) as found:
        return () if found is None else tuple(found[1].runs.values())


def _check_same(
    run: RunRow,
    terms: Sequence[Terms] | None,
    *,
    pool: str | None,
    people: Mapping[str, str] | None,
    noise: NoiseKind | None,
    parent: str | None,
) -> None:
    """Refuse to continue a run with settings other than those it was opened with."""
    way_out = (
        f"run {run.name!r} was opened with other settings: begin a new run with another name to carry its balances over"
    )
    if terms is not None:
        check_ids(terms)
        if {entry.account.id: _settings(entry) for entry in terms} != {r.id: _settings(r.terms) for r in run.accounts}:
            raise InputError(f"other accounts or budgets: {way_out}")
    if pool is not None and pool != run.pool:
        raise InputError(f"pool is {pool!r}, not {run.pool!r}: {way_out}")
    if people is not None and tuple(sorted(people.items())) != run.members:
        raise InputError(f"other people, or in other accounts: {way_out}")
    if parent is not None and parent != run.parent:
        raise InputError(f"parent is {parent!r}, not {run.parent!r}: {way_out}")
    if noise is not None:
        refuse_mixed_noise(f"run {run.name!r}", run.noise, noise)


def _refuse_withdrawn(name: str, contents: Contents, run: RunRow) -> None:
    """Refuse to charge a run with somebody who has withdrawn from the ledger."""
    gone = contents.withdrawn
    if gone and not gone.keys().isdisjoint(dict(run.members)):
        raise IpateError(
            f"{name}: somebody in run {run.name!r} has withdrawn; nothing was charged: ipate run --resume continues a "
            "run without the people who left, and a new run or fit leaves them out by itself"
        )


def _check_noise(ledger: str, contents: Contents, noise: NoiseKind) -> None:
    for run in contents.runs.values():
        refuse_mixed_noise(f"{ledger}: run {run.name!r} of this ledger", run.noise, noise)


def _check_parent(contents: Contents, parent: str | None, reason: Reason | None) -> None:
    """Refuse a new run that continues an unknown run or does not say why, and a reason without a parent."""
    if parent is not None and contents.run_named(parent) is None:
        raise InputError(f"parent is {parent!r}: this ledger has no such run")
    if (parent is None) != (reason is None) or reason not in (None, *REASONS):
        raise InputError(f"reason is {reason!r}: a run that continues another one says why: {', '.join(REASONS)}")


def _opened(
    connection: sqlite3.Connection, contents: Contents, terms: Sequence[Terms], roster: Roster, parent: str | None
) -> tuple[AccountRow, ...]:
    """Return the accounts of a new run with the orders that they keep and their opening balances."""
    check_ids(terms)
    if parent is None:
        roster.admit(terms, contents.runs, withdrawn=contents.withdrawn)
    kept = keep_orders(terms, roster.counted, contents.runs, parent)
    opened = openings(kept, roster.counted, contents.runs, charges(connection, contents.runs))
    return tuple(AccountRow(terms=entry, opening=opened[entry.account.id]) for entry in kept)


def _settings(terms: Terms) -> object:
    """Return what must be the same to continue a run; orders that an account has fixed stay as they are."""
    meter = terms.meter
    return terms.account, meter.bound, meter.conversion, () if meter.fixes_order else meter.orders


@dataclass(frozen=True, kw_only=True)
class Withdrawals:
    """The withdrawals on a ledger: who is withdrawn now, and everybody's latest withdrawal, each with the time."""

    withdrawn: Mapping[str, str]
    latest: Mapping[str, str]


def withdrawals_on(path: str | Path, *, head: Head | None = None) -> Withdrawals:
    """Return the withdrawals on a ledger, none if there is no ledger yet; `head` is one that was seen before."""
    file = Path(path)
    if not file.exists() and (head is not None or kept_head(file) is not None):
        raise lost(file)
    with looked_at(file) as found:
        if found is None:
            return Withdrawals(withdrawn={}, latest={})
        contents = found[1]
        for known in (head, kept_head(file)):
            check_head(str(file), contents, known)
        latest = {row.person: row.time for row in contents.withdrawals if not row.returned}
        return Withdrawals(withdrawn=contents.withdrawn, latest=latest)


def record_withdrawals(
    path: str | Path, people: Collection[str], *, returned: bool = False, timeout: float = TIMEOUT
) -> None:
    """Record on a ledger that people withdrew or, with `returned`, consented again; a ledger that is new is created.

    When this returns, the records are on disk. Somebody who is in that state already is left as they are.
    """
    file = Path(path)
    with plain_errors(str(file)), lock_for_writing(file, timeout=timeout):
        head = kept_head(file)
        if not file.exists() and head is not None:
            raise lost(file)
        with closing(connect(file, readonly=False, timeout=timeout)) as connection:
            if head is None and is_blank(connection):
                with transaction(connection, write=True):
                    create_schema(connection, time=now())
            with transaction(connection, write=False):
                contents = read(connection, name=str(file))
            check_head(str(file), contents, head)
            for person in map(plain_id, people):
                if (person in contents.withdrawn) == returned:
                    append(connection, contents, WithdrawalRow(len(contents.hashes), now(), person, int(returned)))
            keep_head(file, contents.head)
