"""The tables of a ledger file: append-only, versioned, and refused where they are not as they were made."""

import secrets
import sqlite3

from ipate.errors import IpateError

APPLICATION = 0x69504154  # "iPAT", in the file's header
VERSION = 2
_TABLES = {
    "entries": """
        entry INTEGER PRIMARY KEY,
        kind TEXT NOT NULL CHECK (kind IN ('ledger', 'run', 'batch')),
        time TEXT NOT NULL,
        hash BLOB NOT NULL""",
    "runs": """
        entry INTEGER PRIMARY KEY REFERENCES entries,
        name TEXT NOT NULL UNIQUE,
        pool TEXT NOT NULL,
        named INTEGER NOT NULL CHECK (named IN (0, 1))""",
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
    "batches": """
        entry INTEGER PRIMARY KEY REFERENCES entries,
        run INTEGER NOT NULL REFERENCES runs,
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
    "balances": """
        run INTEGER NOT NULL,
        account TEXT NOT NULL,
        spent BLOB NOT NULL,
        PRIMARY KEY (run, account),
        FOREIGN KEY (run, account) REFERENCES accounts""",
}
_WITH_ROWID = ("entries", "runs", "batches")
# One row per release and account, for whoever reads the file with other tools: a check for every query where there
# is a check, a label where one was given. Δ is NULL where it differs by query (`sensitivities` holds it, compressed).
_TRANSCRIPT = """
CREATE VIEW transcript AS
SELECT b.entry AS batch, r.position, r.query, c.account, 'check' AS kind, b.check_sigma AS sigma, c.sensitivity,
       b.bound, e.time
FROM batches b JOIN entries e ON e.entry = b.entry JOIN releases r ON r.batch = b.entry
JOIN charges c ON c.batch = b.entry WHERE b.check_sigma IS NOT NULL
UNION ALL
SELECT b.entry, r.position, r.query, c.account, 'label', b.sigma, c.sensitivity, b.bound, e.time
FROM batches b JOIN entries e ON e.entry = b.entry JOIN releases r ON r.batch = b.entry
JOIN charges c ON c.batch = b.entry WHERE r.answered = 1
"""


def _statements() -> dict[str, str]:
    """Every object of the schema by name, with the statement that makes it."""
    made = {}
    for name, columns in _TABLES.items():
        ending = "" if name in _WITH_ROWID else " WITHOUT ROWID"
        made[name] = f"CREATE TABLE {name} ({columns}){ending}"
    for name in _TABLES:
        for action in ("UPDATE", "DELETE"):
            if (name, action) == ("balances", "UPDATE"):  # the running balance; it is checked against the sum
                continue
            trigger = f"{name}_no_{action.lower()}"
            made[trigger] = (
                f"CREATE TRIGGER {trigger} BEFORE {action} ON {name} "
                f"BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
            )
    made["transcript"] = _TRANSCRIPT.strip()
    return made


def is_blank(connection: sqlite3.Connection) -> bool:
    """Whether a file holds nothing at all: a new one, or one whose making was interrupted."""
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return tables == 0 and _pragma(connection, "application_id") == 0 == _pragma(connection, "user_version")


def create_schema(connection: sqlite3.Connection, *, time: str) -> None:
    """Make the tables, inside the caller's transaction; the chain starts from 256 random bits of its own."""
    for statement in _statements().values():
        connection.execute(statement)
    connection.execute("INSERT INTO entries VALUES (0, 'ledger', ?, ?)", (time, secrets.token_bytes(32)))
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def check_schema(connection: sqlite3.Connection, *, name: str) -> None:
    """Refuse a file that is no ledger, one of another version, and one whose tables or triggers were changed."""
    if _pragma(connection, "application_id") != APPLICATION:
        raise IpateError(f"{name}: this is an SQLite file and not a ledger of ipate; name another file")
    version = _pragma(connection, "user_version")
    if version > VERSION:
        raise IpateError(
            f"{name}: the ledger has the schema {version} and this ipate knows {VERSION}: update ipate to read it"
        )
    if version < VERSION:
        raise IpateError(
            f"{name}: the ledger has the schema {version}, which this ipate (schema {VERSION}) cannot read: "
            "use the ipate that wrote it; do not start a new ledger for the same people"
        )
    found = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall())
    wanted = _statements()
    for item in sorted(found.keys() | wanted.keys()):
        if found.get(item) != wanted.get(item):
            raise IpateError(damaged(name, f"its table, view or trigger {item!r} is not as it was made"))


def damaged(name: str, what: str) -> str:
    """Return the one line that says what is wrong with a ledger, the way out, and what must not be done."""
    return (
        f"{name}: the ledger does not verify: {what}; restore a copy of the whole file whose head you know. Do not "
        "repair it by hand and do not start a new ledger for the same people: what they spent would be forgotten"
    )


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
