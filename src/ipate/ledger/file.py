"""The SQLite file of a ledger: lock, connection, append-only versioned schema, and error messages."""

import contextlib
import os
import secrets
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

from ipate.errors import InputError, IpateError
from ipate.files import FileLock

_UNFINISHED = ("SQLITE_READONLY_ROLLBACK", "SQLITE_READONLY_RECOVERY")
_LOOK = "SELECT 1 FROM sqlite_master LIMIT 1"  # the first read, at which SQLite finds an unfinished write


def lock_for_writing(path: Path, *, timeout: float) -> FileLock:
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


def head_file(path: Path) -> Path:
    """Return the file beside a ledger that records its newest head, for rollback detection."""
    return path.with_name(f"{path.name}.head")


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
    for start, words in _WORDS.items():
        if code.startswith(start):
            return (InputError if start == "SQLITE_NOTADB" else IpateError)(f"{name}: {words}")
    kind = code or type(error).__name__
    return IpateError(f"{name}: SQLite refused ({kind}: {error}); nothing of this batch was released")


APPLICATION = 0x69504154  # "iPAT", in the file's header
VERSION = 5
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
        kind TEXT NOT NULL,
        bound TEXT NOT NULL,
        noise TEXT NOT NULL,
        sigma REAL NOT NULL,
        check_sigma REAL""",
    "charges": """
        batch INTEGER NOT NULL REFERENCES batches,
        account TEXT NOT NULL,
        sensitivity REAL,
        sensitivities BLOB,
        cost BLOB NOT NULL,
        PRIMARY KEY (batch, account)""",
    "releases": """
        batch INTEGER NOT NULL REFERENCES batches,
        position INTEGER NOT NULL,
        query TEXT NOT NULL,
        answered INTEGER NOT NULL,
        label INTEGER,
        reinforced INTEGER,
        PRIMARY KEY (batch, position)""",
    "noisy_votes": """
        batch INTEGER PRIMARY KEY REFERENCES batches,
        shape TEXT NOT NULL,
        counts BLOB NOT NULL""",
    "tests": """
        batch INTEGER PRIMARY KEY REFERENCES batches,
        design TEXT NOT NULL,
        votes TEXT NOT NULL,
        passed INTEGER CHECK (passed IN (0, 1))""",
    "histograms": """
        batch INTEGER PRIMARY KEY REFERENCES batches,
        cells TEXT NOT NULL,
        shape TEXT NOT NULL,
        counts BLOB NOT NULL""",
    "balances": """
        run INTEGER NOT NULL,
        account TEXT NOT NULL,
        spent BLOB NOT NULL,
        PRIMARY KEY (run, account),
        FOREIGN KEY (run, account) REFERENCES accounts""",
}
_WITH_ROWID = ("entries", "runs", "withdrawals", "batches")
# One row per release and account, for other tools: a check for every query of a mechanism with a check, and a label for
# every answered query, as 'counts' where its noisy counts were released with it. Δ is NULL where it differs by query
# (`sensitivities` holds it, compressed).
_TRANSCRIPT = """
CREATE VIEW transcript AS
SELECT b.entry AS batch, r.position, r.query, c.account, 'check' AS kind, b.check_sigma AS sigma, c.sensitivity,
       b.bound, e.time
FROM batches b JOIN entries e ON e.entry = b.entry JOIN releases r ON r.batch = b.entry
JOIN charges c ON c.batch = b.entry WHERE b.check_sigma IS NOT NULL
UNION ALL
SELECT b.entry, r.position, r.query, c.account, CASE b.kind WHEN 'counts' THEN 'counts' ELSE 'label' END, b.sigma,
       c.sensitivity, b.bound, e.time
FROM batches b JOIN entries e ON e.entry = b.entry JOIN releases r ON r.batch = b.entry
JOIN charges c ON c.batch = b.entry WHERE r.answered = 1
UNION ALL
SELECT b.entry, 0, '', c.account, 'ballots', b.sigma, c.sensitivity, b.bound, e.time
FROM batches b JOIN entries e ON e.entry = b.entry JOIN charges c ON c.batch = b.entry WHERE b.kind = 'ballots'
"""


def _statements() -> dict[str, str]:
    """Return the SQL statement that creates each object of the schema, by name."""
    made = {}
    for name, columns in _TABLES.items():
        ending = "" if name in _WITH_ROWID else " WITHOUT ROWID"
        made[name] = f"CREATE TABLE {name} ({columns}){ending}"
    for name in _TABLES:
        for action in ("UPDATE", "DELETE"):
            if (name, action) == ("balances", "UPDATE"):  # running balances change; they are checked against the sums
                continue
            trigger = f"{name}_no_{action.lower()}"
            made[trigger] = (
                f"CREATE TRIGGER {trigger} BEFORE {action} ON {name} "
                f"BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
            )
    made["transcript"] = _TRANSCRIPT.strip()
    return made


def is_blank(connection: sqlite3.Connection) -> bool:
    """Return whether a file has no schema: it is new, or its creation was interrupted."""
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return tables == 0 and _pragma(connection, "application_id") == 0 == _pragma(connection, "user_version")


def create_schema(connection: sqlite3.Connection, *, time: str) -> None:
    """Create the tables in the caller's transaction; the hash chain starts from 256 random bits."""
    for statement in _statements().values():
        connection.execute(statement)
    connection.execute("INSERT INTO entries VALUES (0, 'ledger', ?, ?)", (time, secrets.token_bytes(32)))
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


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


def damaged(name: str, what: str) -> IpateError:
    """Return the error for a ledger that does not verify, with advice."""
    return IpateError(
        f"{name}: the ledger does not verify: {what}; restore a copy of the whole file whose head you know. Do not "
        "repair it by hand and do not start a new ledger for the same people: what they spent would be forgotten"
    )


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
