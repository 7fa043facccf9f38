"""Ledgers on disk: charge and payload are committed together, before anything is released.

What is here holds for every backend. A backend is a `Storage` and a subclass of `DurableLedger` that names it. Beside
the file lie its lock and its newest head, for rollback detection.
"""

from abc import ABC
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

from ipate.accounting.bounds import Meter
from ipate.errors import InputError, IpateError
from ipate.files import FileLock, write_text
from ipate.ledger.admission import Roster
from ipate.ledger.base import Checked, Ledger, Opening, Progress, check_ids
from ipate.ledger.carry import Charges, keep_orders, openings, usual_order
from ipate.ledger.chain import TIMEOUT, Acquaintance, BatchRow, Contents, Storage
from ipate.ledger.records import (
    REASONS,
    AccountRow,
    Charge,
    Head,
    NoiseKind,
    Released,
    RunRow,
    Scope,
    Terms,
    WithdrawalRow,
    now,
    refuse_mixed_noise,
)
from ipate.ledger.standing import Left, Standing
from ipate.people.budgets import Account
from ipate.people.ids import plain_id
from ipate.people.people import People

Seen = Head | str | None  # the head of a ledger that was seen before


@dataclass(frozen=True, kw_only=True)
class Withdrawals:
    """The withdrawals on a ledger: who is withdrawn now, and everybody's latest withdrawal, each with the time."""

    withdrawn: Mapping[str, str]
    latest: Mapping[str, str]


class DurableLedger(Ledger, ABC):
    """A run on a ledger that is kept in a file, and what can be asked of such a file.

    `begin` opens a run for charging and `open` continues one; `read` charges nothing. All three verify the whole file,
    and refuse an older copy. `check`, `standing`, `runs_on`, `withdrawals` and `look` leave the file as it is.
    """

    storage: ClassVar[type[Storage]]

    def __init__(self, path: Path, file: Storage, lock: FileLock | None, contents: Contents, run: RunRow) -> None:
        super().__init__(path, contents.runs, run, contents.spent)
        self._place, self._file, self._lock, self._contents = path, file, lock, contents

    @classmethod
    def begin(cls, path: str | Path, opening: Opening, *, head: Seen = None, timeout: float = TIMEOUT) -> Self:
        """Begin a run, or continue the run of this name, which must have been opened in the same way.

        Every account starts from the maximum of its members' spending, and earlier runs can no longer be charged. A
        file that does not exist is created.

        Parameters
        ----------
        path : path
            The ledger.
        opening : Opening
            The accounts, the people, the name of the run and its kind of noise.
        head : Head or str, optional
            A head that was seen before: a file whose chain does not contain it is refused.
        timeout : float
            Seconds to wait for another process to release the write lock.
        """
        return cls._opened(Path(path), opening.run, opening, head=head, timeout=timeout)

    @classmethod
    def open(cls, path: str | Path, run: str | None = None, *, head: Seen = None, timeout: float = TIMEOUT) -> Self:
        """Continue a run for charging, by default the last one."""
        return cls._opened(Path(path), run, None, head=head, timeout=timeout)

    @classmethod
    def read(cls, path: str | Path, run: str | None = None, *, head: Seen = None) -> Self:
        """Read a run, by default the last one, without the lock; it cannot be charged."""
        return cls._opened(Path(path), run, None, head=head, readonly=True)

    @classmethod
    def _opened(
        cls,
        path: Path,
        name: str | None,
        opening: Opening | None,
        *,
        head: Seen,
        timeout: float = TIMEOUT,
        readonly: bool = False,
    ) -> Self:
        heads = [Head.parse(head) if isinstance(head, str) else head, kept_head(path)]
        seen = any(known is not None for known in heads)
        if not path.exists() and (opening is None or seen):
            raise _lost(path)
        with ExitStack() as held, cls.storage.errors(str(path)):
            lock = None if readonly else held.enter_context(_locked(path, timeout=timeout))
            file = held.enter_context(closing(cls.storage.connect(path, readonly=readonly, timeout=timeout)))
            if opening is not None and not seen and file.blank:
                file.create()
            contents = file.contents()
            for known in heads:
                _check_head(str(path), contents, known)
            run = contents.run_named(name)
            if run is not None and opening is not None:
                _check_same(run, opening)
            elif opening is not None:
                run = _begun(str(path), file, contents, opening)
                _refuse_withdrawn(str(path), contents, run)
                file.append(contents, run)
            elif run is None:
                raise InputError(f"run {name!r} is not in this ledger: begin it with its accounts")
            if not readonly:
                _refuse_withdrawn(str(path), contents, run)
                unknown = (opening.roster.withdrawn.keys() if opening is not None else set()) - {
                    row.person for row in contents.withdrawals
                }
                for person in sorted(unknown):  # they left the run before the ledger was begun
                    file.append(contents, WithdrawalRow(len(contents.hashes), now(), person, 0))
            ledger = cls(path, file, lock, contents, run)
            ledger._keep_head()
            held.pop_all()  # the ledger closes them
        return ledger

    @classmethod
    def check(cls, path: str | Path, opening: Opening, *, heads: Sequence[Head] = ()) -> Checked:
        """Refuse a run that the ledger does not admit, and return the accounts with the balances it would open with.

        Nothing is written. Refused is the other kind of noise, a budget that is spent, and a ledger without one of the
        heads that were seen before, all before any teacher is trained.
        """
        place = Path(path)
        with cls._looked_at(place, *heads) as found:
            if found is None or not found[1].runs or found[1].run_named(opening.run) is not None:
                return Checked(where=str(place))
            file, contents = found
            _check_noise(str(place), contents, opening.noise)
            private = any(_private(contents, run) for run in contents.runs.values())
            return Checked(
                accounts=_accounts(file, contents, replace(opening, parent=None)), private=private, where=str(place)
            )

    @classmethod
    def standing(cls, path: Path, people: People, roster: Roster, *, meter: Meter, noise: NoiseKind) -> Standing | None:
        """Return what a ledger's runs left to the groups of `people`; None if they have spent nothing.

        Nothing is written, and questions that a ledger asks before a run are left to the run itself. `meter` is the
        run's. After private charges no balance is looked at: even whether a budget is spent would tell about them, for
        any ε that is tried.
        """
        with cls._looked_at(path) as found:
            if found is not None and any(_private(found[1], run) for run in found[1].runs.values()):
                return Standing(ledger=path.name, groups={}, private=True)
        unit = meter.planning if meter.whole else meter
        terms = [
            Terms(
                account=Account(group=group, sensitivity=1.0),
                meter=unit.at_order(usual_order(group.epsilon, group.delta)) if unit.fixes_order else unit,
            )
            for group in people.groups
        ]
        names = [group.id for group in people.groups]
        pairs = zip(people.ids.tolist(), people.group_of_person.tolist(), strict=True)
        homes = {person: names[place] for person, place in pairs}
        asked = replace(roster, people=homes, new_people=True, accept_larger_budgets=True)
        rows = cls.check(path, Opening(terms=terms, roster=asked, run="", noise=noise)).accounts
        groups = {
            row.id: Left(meter=row.terms.meter.planning, spent=row.opening, fixed=unit.fixes_order)
            for row in rows
            if row.opening.any()
        }
        return Standing(ledger=path.name, groups=groups) if groups else None

    @classmethod
    def runs_on(cls, path: str | Path) -> tuple[RunRow, ...]:
        """Return a ledger's runs, in order; empty if there is no ledger yet."""
        with cls._looked_at(Path(path)) as found:
            return () if found is None else tuple(found[1].runs.values())

    @classmethod
    def withdrawals(cls, path: str | Path, *, head: Head | None = None) -> Withdrawals:
        """Return the withdrawals on a ledger, none if there is no ledger yet; `head` is one that was seen before."""
        with cls._looked_at(Path(path), *(() if head is None else (head,))) as found:
            if found is None:
                return Withdrawals(withdrawn={}, latest={})
            latest = {row.person: row.time for row in found[1].withdrawals if not row.returned}
            return Withdrawals(withdrawn=found[1].withdrawn, latest=latest)

    @classmethod
    def withdraw(
        cls, path: str | Path, people: Collection[str], *, returned: bool = False, timeout: float = TIMEOUT
    ) -> None:
        """Record on a ledger that people withdrew or, with `returned`, consented again; a new ledger is created.

        When this returns, the records are on disk. A person who is in that state already is left as they are.
        """
        place = Path(path)
        with cls.storage.errors(str(place)), _locked(place, timeout=timeout):
            head = kept_head(place)
            if not place.exists() and head is not None:
                raise _lost(place)
            with closing(cls.storage.connect(place, readonly=False, timeout=timeout)) as file:
                if head is None and file.blank:
                    file.create()
                contents = file.contents()
                _check_head(str(place), contents, head)
                for person in map(plain_id, people):
                    if (person in contents.withdrawn) == returned:
                        file.append(contents, WithdrawalRow(len(contents.hashes), now(), person, int(returned)))
                _keep_head(place, contents.head)

    @classmethod
    def look(cls, path: Path, *, pool: str | None = None, run: str | None = None) -> Acquaintance:
        """Return what a ledger knows, without verifying it: it is verified when it is opened."""
        with cls.storage.errors(str(path)), closing(cls.storage.connect(path, readonly=True)) as file:
            return file.look(pool=pool, run=run)

    @classmethod
    @contextmanager
    def _looked_at(cls, path: Path, *heads: Head) -> Iterator[tuple[Storage, Contents] | None]:
        """Read and verify a ledger without its lock; None if there is none or its creation was interrupted."""
        kept = kept_head(path)
        if not path.exists() and (heads or kept is not None):
            raise _lost(path)
        if not path.exists() or path.stat().st_size == 0:
            yield None
            return
        with cls.storage.errors(str(path)), closing(cls.storage.connect(path, readonly=True)) as file:
            if file.blank:
                yield None
                return
            contents = file.contents()
            for head in (*heads, kept):
                _check_head(str(path), contents, head)
            yield file, contents

    @property
    def head(self) -> Head:
        """The last entry of the hash chain: store it with labels and reports for rollback detection."""
        return self._contents.head

    @property
    def private_history(self) -> tuple[str, ...]:
        """Runs up to this one that were charged by a data-dependent bound: their length may depend on private votes."""
        return tuple(run.name for run in self._until_now if _private(self._contents, run))

    def released(self, codec: str, scope: Scope = "pool") -> tuple[Released, ...]:
        """Return what is paid and stored in one codec: for the run's pool, or by this run and those it continues."""
        own = self.parts()
        return tuple(
            found
            for run in self._runs.values()
            if (run.pool == self._run.pool if scope == "pool" else run.name in own)
            for found in self._contents.released[run.entry]
            if found.scope == scope and found.codec == codec
        )

    def inherited(self) -> frozenset[str]:
        """Return the queries of the run's pool that other runs paid for, except the runs it continues."""
        own = self.parts()
        others = [run for run in self._until_now if run.name not in own and run.pool == self._run.pool]
        made = (found for run in others for found in self._contents.released[run.entry])
        return frozenset(key for found in made if found.scope == "pool" for key in found.keys)

    @property
    def progress(self) -> Progress:
        """What this run has charged, from which an interrupted run is continued."""
        return self._contents.progress[self._run.entry]

    @property
    def withdrawn(self) -> Mapping[str, str]:
        """The people who withdrew and have not returned, each with the time."""
        return self._contents.withdrawn

    @property
    def _until_now(self) -> tuple[RunRow, ...]:
        return tuple(run for run in self._runs.values() if run.entry <= self._run.entry)

    def _keys(self, scope: Scope) -> Collection[str]:
        return self._contents.known(self._run, scope)

    def _charged(self) -> Charges:
        return self._file.charges(self._contents)

    def check_head(self, head: Head | str) -> None:
        """Raise if the chain does not contain a head that was seen before: rollback detection."""
        _check_head(str(self.path), self._contents, Head.parse(head) if isinstance(head, str) else head)

    def charge(self, charge: Charge) -> None:
        """Commit the charge and its payload together, or neither if an account cannot pay or the disk fails.

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
        batch = BatchRow.of(charge, entry=len(self._contents.hashes), run=self._run.entry, time=now())
        with self.storage.errors(str(self.path)):
            self._file.append(self._contents, batch)

    def verify(self) -> Head:
        """Read the whole file again, verify tables, hash chain and budgets, and return its head."""
        with self.storage.errors(str(self.path)):
            return self._file.contents().head

    def close(self) -> None:
        """Record the head, close the file and release the write lock."""
        self._keep_head()
        self._file.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _keep_head(self) -> None:
        """Record the head beside the file, so that an older copy is noticed."""
        if self._lock is not None:
            _keep_head(self._place, self.head)


def head_file(path: Path) -> Path:
    """Return the file beside a ledger that records its newest head, for rollback detection."""
    return path.with_name(f"{path.name}.head")


def kept_head(path: Path) -> Head | None:
    """Return the newest head that was recorded beside a ledger; None if there is none."""
    try:
        return Head.parse(head_file(path).read_text(encoding="ascii"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise IpateError(f"{head_file(path)}: not readable ({error}); restore it together with the ledger") from None


def _keep_head(path: Path, head: Head) -> None:
    """Record the head beside the file; a failure to do so is no error."""
    if kept_head(path) != head:
        with suppress(OSError):
            write_text(head_file(path), f"{head}\n", private=True)  # it counts charges


def _locked(path: Path, *, timeout: float) -> FileLock:
    """Lock a ledger for writing by a lock file beside it; wait up to `timeout` seconds for another process."""
    refusal = IpateError(
        f"{path}: another process writes this ledger, and the lock was not free after {timeout:g} s; "
        "wait until it ends, or use a longer timeout; nothing was charged"
    )
    try:
        return FileLock(path.with_name(path.name + ".lock"), refusal=refusal, timeout=timeout, private=True)
    except OSError as error:
        raise IpateError(
            f"{path}: its folder cannot be written ({error.strerror}); open the ledger read-only"
        ) from None


def _check_head(name: str, contents: Contents, wanted: Head | None) -> None:
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


def _lost(path: Path) -> IpateError:
    """Return the error for a ledger that is not where it was."""
    return IpateError(
        f"{path}: there is no ledger here; if it was moved or lost, restore it, do not start anew: what its people "
        "have spent would be forgotten"
    )


def _private(contents: Contents, run: RunRow) -> bool:
    """Whether a run was charged by a data-dependent bound."""
    dependent = any(not row.terms.meter.data_independent for row in run.accounts)
    return bool(contents.progress[run.entry].sensitivity) and dependent


def _begun(name: str, file: Storage, contents: Contents, opening: Opening) -> RunRow:
    """Return a new run as it will be recorded; refuse one that the ledger does not admit."""
    roster, parent = opening.roster, opening.parent
    _check_noise(name, contents, opening.noise)
    if parent is not None and contents.run_named(parent) is None:
        raise InputError(f"parent is {parent!r}: this ledger has no such run")
    if (parent is None) != (opening.reason is None) or opening.reason not in (None, *REASONS):
        raise InputError(
            f"reason is {opening.reason!r}: a run that continues another one says why: {', '.join(REASONS)}"
        )
    return RunRow(
        entry=len(contents.hashes),
        time=now(),
        name=opening.run,
        pool=opening.pool or opening.run,
        identity=roster.identity,
        noise=opening.noise,
        parent=parent,
        reason="overlap" if parent is None and roster.overlap else opening.reason,
        replaces=opening.replaces,
        policy=roster.policy,
        accounts=_accounts(file, contents, opening),
        members=tuple(sorted((roster.people or {}).items())),
        unprotected=tuple(sorted(roster.unprotected)),
    )


def _accounts(file: Storage, contents: Contents, opening: Opening) -> tuple[AccountRow, ...]:
    """Return the accounts of a new run with the orders that they keep and their opening balances."""
    terms, roster = opening.terms, opening.roster
    check_ids(terms)
    if opening.parent is None:
        roster.admit(terms, contents.runs, withdrawn=contents.withdrawn)
    kept = keep_orders(terms, roster.counted, contents.runs, opening.parent)
    opened = openings(kept, roster.counted, contents.runs, file.charges(contents))
    return tuple(AccountRow(terms=entry, opening=opened[entry.account.id]) for entry in kept)


def _check_same(run: RunRow, opening: Opening) -> None:
    """Refuse to continue a run with settings other than those it was opened with."""
    way_out = (
        f"run {run.name!r} was opened with other settings: begin a new run with another name to carry its balances over"
    )
    check_ids(opening.terms)
    asked = {entry.account.id: _settings(entry) for entry in opening.terms}
    if asked != {row.id: _settings(row.terms) for row in run.accounts}:
        raise InputError(f"other accounts or budgets: {way_out}")
    if opening.pool not in (None, run.pool):
        raise InputError(f"pool is {opening.pool!r}, not {run.pool!r}: {way_out}")
    people = opening.roster.people
    if people is not None and tuple(sorted(people.items())) != run.members:
        raise InputError(f"other people, or in other accounts: {way_out}")
    if opening.parent not in (None, run.parent):
        raise InputError(f"parent is {opening.parent!r}, not {run.parent!r}: {way_out}")
    refuse_mixed_noise(f"run {run.name!r}", run.noise, opening.noise)


def _settings(terms: Terms) -> object:
    """Return what must be the same to continue a run; orders that an account has fixed stay as they are."""
    meter = terms.meter
    return terms.account, meter.bound, meter.conversion, () if meter.fixes_order else meter.orders


def _refuse_withdrawn(name: str, contents: Contents, run: RunRow) -> None:
    """Refuse to charge a run with people who have withdrawn from the ledger."""
    gone = contents.withdrawn
    if gone and not gone.keys().isdisjoint(dict(run.members)):
        raise IpateError(
            f"{name}: somebody in run {run.name!r} has withdrawn; nothing was charged: ipate run --resume continues a "
            "run without the people who left, and a new run or fit leaves them out by itself"
        )


def _check_noise(ledger: str, contents: Contents, noise: NoiseKind) -> None:
    for run in contents.runs.values():
        refuse_mixed_noise(f"{ledger}: run {run.name!r} of this ledger", run.noise, noise)
