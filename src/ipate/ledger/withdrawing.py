"""People who withdraw from a ledger: no later run uses their data, until they consent again."""

from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ipate.ledger.appending import append
from ipate.ledger.file import connect, create_schema, is_blank, lock_for_writing, plain_errors, transaction
from ipate.ledger.records import Head, WithdrawalRow, now
from ipate.ledger.storage import read
from ipate.ledger.verified import TIMEOUT, check_head, keep_head, kept_head, looked_at, lost
from ipate.people.ids import plain_id


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
