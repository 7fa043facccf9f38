"""The file itself: one writer at a time, every pragma on every connection, SQLite's errors in plain words."""

import contextlib
import os
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

from ipate.errors import IpateError
from ipate.files import FileLock
from ipate.ledger.schema import damaged


def lock_for_writing(path: Path, *, timeout: float) -> FileLock:
    """Take the right to write a ledger; the lock file lies beside it. Waits `timeout` seconds for another process."""
    refusal = IpateError(
        f"{path}: another process writes this ledger, and did for the {timeout:g} s that were waited; "
        "let it end, or wait longer; nothing was charged"
    )
    try:
        return FileLock(path.with_name(path.name + ".lock"), refusal=refusal, timeout=timeout, private=True)
    except OSError as error:
        raise IpateError(
            f"{path}: its folder cannot be written ({error.strerror}); open the ledger read-only"
        ) from None


def connect(path: Path, *, readonly: bool, timeout: float) -> sqlite3.Connection:
    """Open the file with every pragma set; what a killed process left half written is rolled back first.

    SQLite does that by itself for whoever writes, and refuses whoever only reads.
    """
    try:
        return _opened(path, readonly=readonly, timeout=timeout)
    except sqlite3.Error as error:
        if not readonly or getattr(error, "sqlite_errorname", "") not in _UNFINISHED:
            raise
    with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=timeout)) as other:
        _look(other)
    return _opened(path, readonly=True, timeout=timeout)


_UNFINISHED = ("SQLITE_READONLY_ROLLBACK", "SQLITE_READONLY_RECOVERY")


def _look(connection: sqlite3.Connection) -> None:
    connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()


def _opened(path: Path, *, readonly: bool, timeout: float) -> sqlite3.Connection:
    """Open the file with every pragma set: they belong to a connection, not to the file."""
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
        connection.execute("PRAGMA recursive_triggers = ON")  # a REPLACE is a DELETE, too
        connection.execute("PRAGMA synchronous = FULL")
        if readonly:
            _look(connection)
        else:
            kept = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if kept != "wal":
                raise IpateError(f"{path}: this file system has no write-ahead log; keep the ledger on a local disk")
    except BaseException:
        connection.close()
        raise
    return connection


def _make_file(path: Path) -> None:
    """Make an empty file that only its owner reads, since answers and data-dependent costs are private."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        if sys.platform != "win32":  # the folder, too, must know the file after a power cut
            folder = os.open(path.parent, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
    except OSError as error:
        raise IpateError(f"{path}: the file cannot be made ({error.strerror})") from None


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection, *, write: bool) -> Iterator[None]:
    """Everything inside is seen at one moment; what is written commits as a whole or not at all."""
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
    """Turn SQLite's errors into ours: one line that says what is wrong and what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise IpateError(_explain(name, error)) from error


_WORDS = {
    "SQLITE_FULL": "the disk is full: the batch was not charged and nothing of it was released; make room, then resume",
    "SQLITE_IOERR": "the disk refused (full, over its quota, failing): nothing of the batch was released; resume later",
    "SQLITE_BUSY": "another process holds the ledger; nothing was charged: let it end, or wait longer",
    "SQLITE_LOCKED": "another process holds the ledger; nothing was charged: let it end, or wait longer",
    "SQLITE_READONLY_R": "a process was killed while it wrote here: open the ledger once where it may be written",
    "SQLITE_READONLY": "the file or its folder is read-only; nothing was charged",
    "SQLITE_PERM": "the file may not be used by this user; nothing was charged",
    "SQLITE_NOTADB": "this is not a ledger (not an SQLite file); name another file",
    "SQLITE_CANTOPEN": "the file cannot be opened: its folder is missing, full or may not be written",
}


def _explain(name: str, error: sqlite3.Error) -> str:
    code = str(getattr(error, "sqlite_errorname", ""))
    if code.startswith("SQLITE_CORRUPT"):
        return damaged(name, f"SQLite finds it damaged ({error})")
    for start, words in _WORDS.items():
        if code.startswith(start):
            return f"{name}: {words}"
    return f"{name}: SQLite refused ({code or type(error).__name__}: {error}); nothing of this batch was released"
