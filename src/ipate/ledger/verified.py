"""Reading a verified ledger file, and the head that is kept beside it for rollback detection."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from ipate.errors import IpateError
from ipate.files import write_text
from ipate.ledger.file import connect, head_file, is_blank, plain_errors, transaction
from ipate.ledger.records import Head
from ipate.ledger.storage import Contents, read

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
