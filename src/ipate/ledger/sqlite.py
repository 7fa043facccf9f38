"""The durable ledger: charges and answers commit together, and only then can anything be read."""

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ipate.accounting.bounds import Meter
from ipate.errors import InputError, IpateError
from ipate.ledger import carry
from ipate.ledger.carry import PersonRecord, person_records
from ipate.ledger.entries import AccountRow, BatchRow, Head, RunRow, from_bytes, to_bytes
from ipate.ledger.file import WriterLock, plain_errors, transaction
from ipate.ledger.memory import MemoryLedger
from ipate.ledger.opening import begin, check_head, check_same, connected
from ipate.ledger.records import Charge, Stored, Terms
from ipate.ledger.schema import check_schema
from ipate.ledger.storage import Contents, append, batches, insert_batch, now, read

Floats = NDArray[np.float64]


class SqliteLedger:
    """A ledger in an SQLite file, made by `open`; a context manager that closes it.

    It has the interface of `MemoryLedger`. One process writes at a time; a charge is in the file, and on the disk,
    before `charge` returns.
    """

    def __init__(
        self, path: Path, connection: sqlite3.Connection, lock: WriterLock | None, contents: Contents, run: RunRow
    ) -> None:
        self.path, self._connection, self._lock = path, connection, lock
        self._contents, self._run = contents, run
        spent = {row.id: contents.spent[run.entry, row.id] for row in run.accounts}
        self._book = MemoryLedger([row.terms for row in run.accounts], opening=spent)

    @classmethod
    def open(
        cls,
        path: str | Path,
        terms: Sequence[Terms] | None = None,
        *,
        run: str | None = None,
        pool: str | None = None,
        people: Mapping[str, str] | None = None,
        expected_head: Head | str | None = None,
        timeout: float = 30.0,
        readonly: bool = False,
    ) -> Self:
        """Open a ledger, verify all of it, and continue a run or begin one.

        Parameters
        ----------
        path : path
            The file; a new one is made where terms are given and no head is expected.
        terms : sequence of Terms, optional
            The accounts. A run that exists must have been opened with the same ones; without them the run
            is continued as it was recorded.
        run : str, optional
            The run's name; the last one's unless given, or "run" in a new file. A name that is new begins a run:
            every account starts from what its worst member has spent, and no earlier run can be charged any more.
        pool : str, optional
            What the query ids belong to. Runs on the same pool share its answers; a run has its own unless said.
        people : mapping, optional
            Person to account id: so balances follow people through another grouping. In all runs or in none.
        expected_head : Head or str, optional
            A head that was seen before, in labels or a report: it must be in the chain, or the file is an older copy.
        timeout : float
            Seconds to wait for another process that writes.
        readonly : bool
            Look only: works while another process writes, and `charge` refuses.
        """
        file = Path(path)
        wanted = Head.parse(expected_head) if isinstance(expected_head, str) else expected_head
        if not file.exists() and (readonly or terms is None or wanted is not None):
            raise IpateError(f"{file}: there is no ledger here; if it was moved or lost, restore it, do not start anew")
        lock = None if readonly else WriterLock(file, timeout=timeout)
        connection = None
        try:
            with plain_errors(str(file)):
                connection = connected(file, readonly=readonly, timeout=timeout, blank=wanted is None)
                with transaction(connection, write=False):
                    check_schema(connection, name=str(file))
                    contents = read(connection, name=str(file))
                check_head(str(file), contents, wanted)
                name = run if run is not None or contents.runs else "run"
                chosen = contents.run_named(name)
                if chosen is not None:
                    check_same(chosen, terms, pool, people)
                else:
                    if readonly or terms is None or name is None:
                        raise InputError(f"run {name!r} is not in this ledger, and no accounts are given to begin it")
                    chosen = begin(
                        connection, contents, terms, ledger=str(file), name=name, pool=pool or name, people=people
                    )
            return cls(file, connection, lock, contents, chosen)
        except BaseException:
            if connection is not None:
                connection.close()
            if lock is not None:
                lock.release()
            raise

    @property
    def terms(self) -> Mapping[str, Terms]:
        """Every account's terms, by account id."""
        return self._book.terms

    @property
    def head(self) -> Head:
        """Where the chain stands: carry it in labels and reports, and expect it when the ledger is opened again."""
        return self._contents.head

    @property
    def run(self) -> str:
        """The name of the run that is charged."""
        return self._run.name

    @property
    def runs(self) -> tuple[str, ...]:
        """The names of all runs, in the order in which they were opened."""
        return tuple(run.name for run in self._contents.runs.values())

    @property
    def inherited(self) -> frozenset[str]:
        """The queries of this run's pool that earlier runs paid for: their answers are given again, free."""
        earlier = (run for run in self._until_now if run is not self._run and run.pool == self._run.pool)
        return frozenset().union(*(self._contents.progress[run.entry].queries for run in earlier))

    @property
    def durable(self) -> bool:
        """Charges and answers are on the disk."""
        return True

    @property
    def private_history(self) -> tuple[str, ...]:
        """Runs up to this one that were charged by a data-dependent bound: their length may tell of the votes."""
        return tuple(
            run.name
            for run in self._until_now
            if self._contents.progress[run.entry].sensitivity
            and any(not row.meter.data_independent for row in run.accounts)
        )

    @property
    def _until_now(self) -> tuple[RunRow, ...]:
        return tuple(run for run in self._contents.runs.values() if run.entry <= self._run.entry)

    def opening(self, account: str) -> Floats:
        """Return what an account had spent when its run was opened: the worst of its members."""
        found = [row.opening for row in self._run.accounts if row.id == account]
        if not found:
            raise InputError(f"account {account!r} is unknown: the accounts are {', '.join(self.terms)}")
        return from_bytes(found[0])

    @property
    def before(self) -> dict[str, float]:
        """Every group's ε when its run was opened: the worst of its accounts."""
        spent = {terms.account.group.id: 0.0 for terms in self.terms.values()}
        for account, terms in self.terms.items():
            opening = self.opening(account)
            if opening.any():
                spent[terms.account.group.id] = max(
                    spent[terms.account.group.id], float(terms.meter.epsilon(opening, terms.account.delta)[0])
                )
        return spent

    def charged_by(self, run: str, account: str) -> Floats:
        """Return what a run charged to one of its accounts, without what had been spent before."""
        entry, row = self._account(run, account)
        return self._contents.spent[entry, account] - from_bytes(row.opening)

    def meter_of(self, run: str, account: str) -> Meter:
        """Return the unit in which a run charged one of its accounts."""
        return self._account(run, account)[1].meter

    def _account(self, run: str, account: str) -> tuple[int, AccountRow]:
        found = self._contents.run_named(run)
        for row in () if found is None else found.accounts:
            if found is not None and row.id == account:
                return found.entry, row
        raise InputError(f"run {run!r} has no account {account!r} in this ledger")

    def queries_of(self, run: str) -> frozenset[str]:
        """Return the queries that a run paid for."""
        found = self._contents.run_named(run)
        return frozenset() if found is None else frozenset(self._contents.progress[found.entry].queries)

    def check_head(self, head: Head | str) -> None:
        """Raise if this chain does not hold a head that was seen before: then the file is an older copy."""
        check_head(str(self.path), self._contents, Head.parse(head) if isinstance(head, str) else head)

    def spent(self, account: str) -> Floats:
        """Return what an account has spent so far, earlier runs included."""
        return self._book.spent(account)

    def limit(self, account: str) -> Floats:
        """Return what an account may spend in all."""
        return self._book.limit(account)

    def epsilon(self, account: str) -> float:
        """Return ε of what an account has spent so far."""
        return self._book.epsilon(account)

    def unaffordable(self, cost: Mapping[str, Floats]) -> tuple[str, ...]:
        """Return the accounts that cannot pay this on top of what they have spent."""
        return self._book.unaffordable(cost)

    def stored(self) -> Stored:
        """Return the answers that are already paid, and how far the accounts had come with them."""
        return self._contents.stored(self._run)

    def charge(self, charge: Charge) -> None:
        """Commit the charge and its answers together; if an account cannot pay, or the disk fails, neither.

        When this returns, both are on the disk. When it raises, nothing may be released.
        """
        if self._lock is None:
            raise IpateError(f"{self.path}: the ledger was opened read-only; nothing was charged")
        if self._contents.run_named(None) is not self._run:
            raise IpateError(
                f"run {self.run!r} has ended: a later run continues its balances, so begin a new one; "
                "nothing was charged"
            )
        self._book.require(charge)
        known = self._contents.answers[self._run.pool]
        again = [query for query in charge.queries if query in known] if charge.labels is not None else []
        if again or (charge.labels is not None and len(set(charge.queries)) < len(charge.queries)):
            raise InputError(f"query {(again or charge.queries)[0]!r} stands twice: it is released once, then stored")
        batch = BatchRow.of(charge, entry=len(self._contents.hashes), run=self._run.entry, time=now())
        balances = [
            (to_bytes(self._book.spent(account) + cost), self._run.entry, account)
            for account, cost in charge.cost.items()
        ]
        with plain_errors(str(self.path)), transaction(self._connection, write=True):
            entry_hash = append(self._connection, self._contents, batch)
            insert_batch(self._connection, batch)
            self._connection.executemany("UPDATE balances SET spent = ? WHERE run = ? AND account = ?", balances)
        self._contents.hashes.append(entry_hash)
        self._contents.add(batch)
        self._book.charge(charge)

    def verify(self) -> Head:
        """Read the whole file again and check it: tables, chain, sums, budgets; return its head."""
        with plain_errors(str(self.path)), transaction(self._connection, write=False):
            check_schema(self._connection, name=str(self.path))
            return read(self._connection, name=str(self.path)).head

    def person(self, person: str) -> tuple[PersonRecord, ...]:
        """Return a person's history, run by run: account, group, budget, releases and cost."""
        return person_records(self._contents.runs, self._releases(), person)

    def cost_of(self, person: str, meter: Meter) -> Floats:
        """Return what a person's releases cost in all, counted in any unit."""
        releases = self._releases()
        places = carry.histories(self._contents.runs.values()).get(person, ())
        costs = [carry.recharge(releases[place], meter) for place in places]
        return np.asarray(np.sum([np.zeros(meter.width), *costs], axis=0))

    def _releases(self) -> dict[carry.Place, carry.Releases]:
        with plain_errors(str(self.path)), transaction(self._connection, write=False):
            return carry.gather(self._contents.runs, batches(self._connection))

    def close(self) -> None:
        """Close the file and let others write."""
        self._connection.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
