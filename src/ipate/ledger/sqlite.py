"""The backend of ledgers in SQLite: connection, append-only versioned schema, rows, and error messages.

No other module knows SQLite.
"""

import contextlib
import os
import secrets
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import ClassVar, Self, cast

from ipate.errors import InputError, IpateError
from ipate.ledger.carry import Charges
from ipate.ledger.chain import (
    TIMEOUT,
    Acquaintance,
    BatchRow,
    ChargeRow,
    Contents,
    DrawRow,
    Row,
    Stated,
    Storage,
    damaged,
    link,
    verified,
)
from ipate.ledger.durable import DurableLedger
from ipate.ledger.records import AccountRow, PolicyTerms, RunRow, WithdrawalRow, now

_UNFINISHED = ("SQLITE_READONLY_ROLLBACK", "SQLITE_READONLY_RECOVERY")
_EVERYBODY = "SELECT person FROM members UNION SELECT person FROM unprotected UNION SELECT person FROM withdrawals"
_LOOK = "SELECT 1 FROM sqlite_master LIMIT 1"  # the first read, at which SQLite finds an unfinished write


def connect(path: Path, *, readonly: bool, timeout: float) -> sqlite3.Connection:
    """Open the file with all pragmas, after rolling back the unfinished write of a killed process.

    SQLite rolls back by itself for writers, but refuses readers until a writer has done so.
    """
    try:
        return _opened(path, readonly=readonly, timeout=timeout)
    except sqlite3.Error as error:
        if not readonly or getattr(error, "sqlite_errorname", "") not in _UNFINISHED:
            raise
    with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=timeout)) as other:
        other.execute(_LOOK).fetchone()
    return _opened(path, readonly=True, timeout=timeout)


def _opened(path: Path, *, readonly: bool, timeout: float) -> sqlite3.Connection:
    """Open the file and set all pragmas, which SQLite keeps per connection and not in the file."""
    if not readonly and not path.exists():
        _make_file(path)
    uri = path.absolute().as_uri()
    mode = "?mode=rw"
    if readonly:
        unfinished = any(path.with_name(path.name + suffix).exists() for suffix in ("-wal", "-journal"))
        mode = "?mode=ro" if unfinished or os.access(path.parent, os.W_OK) else "?immutable=1"
    connection = sqlite3.connect(uri + mode, uri=True, timeout=timeout, isolation_level=None)
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA recursive_triggers = ON")  # so that REPLACE fires the DELETE triggers
        connection.execute("PRAGMA synchronous = FULL")
        if readonly:
            connection.execute(_LOOK).fetchone()
        else:
            kept = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if kept != "wal":
                raise IpateError(f"{path}: this file system has no write-ahead log; keep the ledger on a local disk")
    except BaseException:
        connection.close()
        raise
    return connection


def _make_file(path: Path) -> None:
    """Create an empty file that only its owner can read, since answers and data-dependent costs are private."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        if sys.platform != "win32":  # the folder entry must survive a power failure
            folder = os.open(path.parent, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
    except OSError as error:
        raise IpateError(f"{path}: the file cannot be created ({error.strerror})") from None


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection, *, write: bool) -> Iterator[None]:
    """Run the body in one transaction: reads see one snapshot, and writes commit together or not at all."""
    connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def plain_errors(name: str) -> Iterator[None]:
    """Convert SQLite errors to `IpateError` with one line that says what is wrong and what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise _explain(name, error) from error


_WORDS = {
    "SQLITE_FULL": "the disk is full: the batch was not charged and nothing of it was released; make room, then resume",
    "SQLITE_IOERR": "the disk failed, is full or over its quota: nothing of the batch was released; resume later",
    "SQLITE_BUSY": "another process holds the ledger; nothing was charged: wait until it ends, then try again",
    "SQLITE_LOCKED": "another process holds the ledger; nothing was charged: wait until it ends, then try again",
    "SQLITE_READONLY_R": "a process was killed during a write: open the ledger once with write permission",
    "SQLITE_READONLY": "the file or its folder is read-only; nothing was charged",
    "SQLITE_PERM": "this user has no permission for the file; nothing was charged",
    "SQLITE_NOTADB": "this is not a ledger (not an SQLite file); name another file",
    "SQLITE_CANTOPEN": "the file cannot be opened: its folder is missing, full or not writable",
}


def _explain(name: str, error: sqlite3.Error) -> IpateError:
    code = str(getattr(error, "sqlite_errorname", ""))
    if code.startswith("SQLITE_CORRUPT"):
        return damaged(name, f"SQLite finds it damaged ({error})")
    if not code and str(error).startswith("Could not decode"):
        return damaged(name, "a text in it is not UTF-8")
    for start, words in _WORDS.items():
        if code.startswith(start):
            return (InputError if start == "SQLITE_NOTADB" else IpateError)(f"{name}: {words}")
    kind = code or type(error).__name__
    return IpateError(f"{name}: SQLite refused ({kind}: {error}); nothing of this batch was released")


APPLICATION = 0x69504154  # "iPAT", in the file's header
VERSION = 6
_TABLES = {
    "entries": """
        entry INTEGER PRIMARY KEY,
        kind TEXT NOT NULL CHECK (kind IN ('ledger', 'run', 'batch', 'withdrawal')),
        time TEXT NOT NULL,
        hash BLOB NOT NULL""",
    "runs": """
        entry INTEGER PRIMARY KEY REFERENCES entries,
        name TEXT NOT NULL UNIQUE,
        pool TEXT NOT NULL,
        identity TEXT NOT NULL CHECK (identity IN ('person', 'row', 'account')),
        noise TEXT NOT NULL CHECK (noise IN ('secure', 'seeded')),
        parent TEXT REFERENCES runs (name),
        reason TEXT,
        replaces TEXT,
        policy TEXT""",
    "accounts": """
        run INTEGER NOT NULL REFERENCES runs,
        position INTEGER NOT NULL,
        account TEXT NOT NULL,
        team TEXT NOT NULL,
        people INTEGER,
        epsilon REAL NOT NULL,
        delta REAL NOT NULL,
        sensitivity REAL NOT NULL,
        bound TEXT NOT NULL,
        conversion TEXT NOT NULL,
        orders TEXT NOT NULL,
        opening BLOB NOT NULL,
        PRIMARY KEY (run, account)""",
    "members": """
        run INTEGER NOT NULL,
        person TEXT NOT NULL,
        account TEXT NOT NULL,
        PRIMARY KEY (run, person),
        FOREIGN KEY (run, account) REFERENCES accounts""",
    "unprotected": """
        run INTEGER NOT NULL REFERENCES runs,
        person TEXT NOT NULL,
        PRIMARY KEY (run, person)""",
    "withdrawals": """
        entry INTEGER PRIMARY KEY REFERENCES entries,
        person TEXT NOT NULL,
        returned INTEGER NOT NULL CHECK (returned IN (0, 1))""",
    "batches": """
        entry INTEGER PRIMARY KEY REFERENCES entries,
        run INTEGER NOT NULL REFERENCES runs,
        bound TEXT NOT NULL,
        scope TEXT NOT NULL CHECK (scope IN ('pool', 'run')),
        codec TEXT NOT NULL,
        payload BLOB NOT NULL,
        paid_by TEXT""",
    "draws": """
        batch INTEGER NOT NULL REFERENCES batches,
        position INTEGER NOT NULL,
        mechanism TEXT NOT NULL,
        noise TEXT NOT NULL,
        sigma REAL NOT NULL,
        PRIMARY KEY (batch, position)""",
    "charges": """
        batch INTEGER NOT NULL REFERENCES batches,
        account TEXT NOT NULL,
        sensitivity REAL,
        sensitivities BLOB,
        cost BLOB NOT NULL,
        PRIMARY KEY (batch, account)""",
    "keys": """
        batch INTEGER NOT NULL REFERENCES batches,
        position INTEGER NOT NULL,
        key TEXT NOT NULL,
        drawn INTEGER NOT NULL,
        PRIMARY KEY (batch, position)""",
}
_WITH_ROWID = ("entries", "runs", "withdrawals", "batches")
# One row per draw, key and account, for other tools; bit i of `drawn` says that the draw i was made for the key. Δ is
# NULL where it differs by key (`sensitivities` holds it, compressed).
_TRANSCRIPT = """
CREATE VIEW transcript AS
SELECT b.entry AS batch, k.position, k.key, c.account, d.mechanism, d.noise, d.sigma, c.sensitivity, b.bound, e.time
FROM batches b JOIN entries e ON e.entry = b.entry JOIN draws d ON d.batch = b.entry
JOIN keys k ON k.batch = b.entry AND (k.drawn >> d.position) & 1 JOIN charges c ON c.batch = b.entry
"""


def _statements() -> dict[str, str]:
    """Return the SQL statement that creates each object of the schema, by name."""
    made = {}
    for name, columns in _TABLES.items():
        ending = "" if name in _WITH_ROWID else " WITHOUT ROWID"
        made[name] = f"CREATE TABLE {name} ({columns}){ending}"
    for name in _TABLES:
        for action in ("UPDATE", "DELETE"):
            trigger = f"{name}_no_{action.lower()}"
            made[trigger] = (
                f"CREATE TRIGGER {trigger} BEFORE {action} ON {name} "
                f"BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
            )
    made["transcript"] = _TRANSCRIPT.strip()
    return made


def check_schema(connection: sqlite3.Connection, *, name: str) -> None:
    """Refuse a file that is not a ledger, has another schema version, or whose tables or triggers were changed."""
    if _pragma(connection, "application_id") != APPLICATION:
        raise InputError(f"{name}: this is an SQLite file but not a ledger of ipate; name another file")
    version = _pragma(connection, "user_version")
    if version != VERSION:
        raise IpateError(
            f"{name}: the ledger has the schema {version} and this ipate reads schema {VERSION}: use the ipate that "
            "wrote the ledger; do not start a new ledger for the same people"
        )
    found = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall())
    wanted = _statements()
    for item in sorted(found.keys() | wanted.keys()):
        if found.get(item) != wanted.get(item):
            raise damaged(name, f"its table, view or trigger {item!r} was changed or removed")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


_ROWS = {"run": "runs", "batch": "batches", "withdrawal": "withdrawals"}  # tables by kind of entry


class SqliteStorage(Storage):
    """The entries of a ledger in an SQLite file; a commit is one transaction with a write-ahead log."""

    suffix: ClassVar[str] = ".ledger.sqlite"

    def __init__(self, name: str, connection: sqlite3.Connection) -> None:
        self._name, self._connection = name, connection

    @classmethod
    def connect(cls, path: Path, *, readonly: bool, timeout: float = TIMEOUT) -> Self:
        """Open a file, which is created for writing; an unfinished write of a killed process is undone."""
        return cls(str(path), connect(path, readonly=readonly, timeout=timeout))

    errors = staticmethod(plain_errors)

    @property
    def blank(self) -> bool:
        """Whether nothing is in the file: it is new, or its creation was interrupted."""
        tables = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        numbers = (_pragma(self._connection, name) for name in ("application_id", "user_version"))
        return tables == 0 and not any(numbers)

    def create(self) -> None:
        """Create the tables; the hash chain starts from 256 random bits."""
        with transaction(self._connection, write=True):
            for statement in _statements().values():
                self._connection.execute(statement)
            self._insert("entries", [(0, "ledger", now(), secrets.token_bytes(32))])
            self._connection.execute(f"PRAGMA application_id = {APPLICATION}")
            self._connection.execute(f"PRAGMA user_version = {VERSION}")

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def contents(self) -> Contents:
        """Read and verify schema and entries in one transaction; raise if anything was changed."""
        name, connection = self._name, self._connection
        with transaction(connection, write=False):
            check_schema(connection, name=name)
            for (verdict,) in connection.execute("PRAGMA quick_check(1)"):
                if verdict != "ok":
                    raise damaged(name, f"SQLite finds it damaged ({verdict})")
            contents = verified(name, self._entries())
            self._check_strays()
        return contents

    def charges(self, contents: Contents) -> Charges:
        """Iterate over all charges in order, each with the entry of its run."""
        with plain_errors(self._name), transaction(self._connection, write=False):
            for _, kind, _, _, made in self._entries():
                if kind == "batch":
                    batch = cast("BatchRow", made())
                    yield batch.run, batch.to_charge(seeded=contents.runs[batch.run].noise == "seeded")

    def append(self, contents: Contents, entry: Row) -> None:
        """Commit an entry in one transaction, then add it to the contents; refuse if another process has written."""
        entry_hash = link(contents.hashes[-1], entry)
        with transaction(self._connection, write=True):
            last = self._connection.execute("SELECT entry, hash FROM entries ORDER BY entry DESC LIMIT 1").fetchone()
            if last != (len(contents.hashes) - 1, contents.hashes[-1]):
                raise IpateError(
                    "the ledger has changed since it was opened: another process wrote to it; open it again"
                )
            kind = {RunRow: "run", BatchRow: "batch", WithdrawalRow: "withdrawal"}[type(entry)]
            self._insert("entries", [(entry.entry, kind, entry.time, entry_hash)])
            if isinstance(entry, RunRow):
                self._insert_run(entry)
            elif isinstance(entry, WithdrawalRow):
                self._insert("withdrawals", [(entry.entry, entry.person, entry.returned)])
            else:
                self._insert_batch(entry)
        contents.add(entry, entry_hash)

    def look(self, *, pool: str | None, run: str | None) -> Acquaintance:
        """Return what the ledger knows, without verifying it."""
        path = Path(self._name)
        with transaction(self._connection, write=False):
            if self.blank:
                return Acquaintance(path=path)
            check_schema(self._connection, name=self._name)
            runs = self._connection.execute("SELECT name, pool, noise, parent FROM runs").fetchall()
            return Acquaintance(
                path=path,
                runs=sum(parent is None for *_, parent in runs),
                people=frozenset(person for (person,) in self._connection.execute(_EVERYBODY)),
                knows_pool=any(known == pool for _, known, _, _ in runs),
                knows_run=any(name == run for name, *_ in runs),
                seeded=any(noise == "seeded" for _, _, noise, _ in runs),
            )

    def _entries(self) -> Iterator[Stated]:
        """Iterate over the entries of the chain, each with what reads its row."""
        readers: dict[str, Callable[[int, str], Row]] = {
            "run": self._run,
            "batch": self._batch,
            "withdrawal": self._withdrawal,
        }
        entries = self._connection.execute("SELECT entry, kind, time, hash FROM entries ORDER BY entry").fetchall()
        for entry, kind, time, stated in entries:
            yield entry, kind, time, stated, partial(readers.get(kind, self._run), entry, time)

    def _run(self, entry: int, time: str) -> RunRow:
        found = self._connection.execute
        _, name, pool, identity, noise, parent, reason, replaces, policy = found(
            "SELECT * FROM runs WHERE entry = ?", (entry,)
        ).fetchone()
        accounts = found("SELECT * FROM accounts WHERE run = ? ORDER BY position", (entry,))
        members = found("SELECT person, account FROM members WHERE run = ? ORDER BY person", (entry,))
        unprotected = found("SELECT person FROM unprotected WHERE run = ? ORDER BY person", (entry,))
        return RunRow(
            entry=entry,
            time=time,
            name=name,
            pool=pool,
            identity=identity,
            noise=noise,
            parent=parent,
            reason=reason,
            replaces=replaces,
            policy=None if policy is None else PolicyTerms.read(policy),
            accounts=tuple(AccountRow.read(row[2:]) for row in accounts),  # type: ignore[misc]  # unread ones are refused
            members=tuple(members.fetchall()),
            unprotected=tuple(person for (person,) in unprotected),
        )

    def _withdrawal(self, entry: int, time: str) -> WithdrawalRow:
        found = self._connection.execute("SELECT person, returned FROM withdrawals WHERE entry = ?", (entry,))
        return WithdrawalRow(entry, time, *found.fetchone())

    def _batch(self, entry: int, time: str) -> BatchRow:
        found = self._connection.execute
        _, run, bound, scope, codec, payload, paid_by = found(
            "SELECT * FROM batches WHERE entry = ?", (entry,)
        ).fetchone()
        draws = found("SELECT mechanism, noise, sigma FROM draws WHERE batch = ? ORDER BY position", (entry,))
        charges = found("SELECT * FROM charges WHERE batch = ? ORDER BY account", (entry,))
        keys = found("SELECT key, drawn FROM keys WHERE batch = ? ORDER BY position", (entry,))
        return BatchRow(
            entry=entry,
            time=time,
            run=run,
            bound=bound,
            scope=scope,
            codec=codec,
            payload=payload,
            paid_by=paid_by,
            draws=tuple(DrawRow(*draw) for draw in draws),
            charges=tuple(ChargeRow(*charge[1:]) for charge in charges),
            keys=tuple(keys.fetchall()),
        )

    def _check_strays(self) -> None:
        """Refuse rows that do not belong to an entry of the hash chain."""
        for kind, table in _ROWS.items():
            (count,) = self._connection.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608
            (seen,) = self._connection.execute("SELECT count(*) FROM entries WHERE kind = ?", (kind,)).fetchone()
            if count != seen:
                raise damaged(self._name, f"there are {count} {table} and {seen} in its chain")
        stray = self._connection.execute("PRAGMA foreign_key_check").fetchone()
        if stray is not None:
            raise damaged(self._name, f"a row of {stray[0]} belongs to no entry of its chain")

    def _insert_run(self, run: RunRow) -> None:
        """Write a run with its accounts, their opening balances and their people."""
        policy = None if run.policy is None else run.policy.columns()
        row = (run.entry, run.name, run.pool, run.identity, run.noise, run.parent, run.reason, run.replaces, policy)
        self._insert("runs", [row])
        self._insert("accounts", ((run.entry, place, *row.columns()) for place, row in enumerate(run.accounts)))
        self._insert("members", ((run.entry, *pair) for pair in run.members))
        self._insert("unprotected", ((run.entry, person) for person in run.unprotected))

    def _insert_batch(self, batch: BatchRow) -> None:
        """Write a batch: Δ and cost once per account, and every draw and key once."""
        row = (batch.entry, batch.run, batch.bound, batch.scope, batch.codec, batch.payload, batch.paid_by)
        self._insert("batches", [row])
        self._insert("draws", ((batch.entry, place, *vars(row).values()) for place, row in enumerate(batch.draws)))
        self._insert("charges", ((batch.entry, *vars(row).values()) for row in batch.charges))
        self._insert("keys", ((batch.entry, place, *pair) for place, pair in enumerate(batch.keys)))

    def _insert(self, table: str, rows: Iterable[tuple[object, ...]]) -> None:
        """Append rows that have every column of a table, in order."""
        columns = len(self._connection.execute(f"SELECT * FROM {table} LIMIT 0").description)  # noqa: S608
        self._connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * columns)})", rows)  # noqa: S608


class SqliteLedger(DurableLedger):
    """A ledger in an SQLite file; `begin`, `open` and `read` give one, which is used as a context manager.

    Only one process can write at a time. A charge is on disk before `charge` returns.
    """

    storage: ClassVar[type[Storage]] = SqliteStorage
