"""The ledger of a labelling on the command line: found, announced, opened, and its head kept beside the labels."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ipate.cli import options

if TYPE_CHECKING:
    from ipate.ledger.admission import Roster
    from ipate.ledger.base import Ledger
    from ipate.ledger.finding import Choice
    from ipate.ledger.records import Terms


@contextmanager
def charging_ledger(
    votes: Path,
    out: Path,
    ledger: Path | None,
    terms: "Sequence[Terms]",
    *,
    run: str,
    pool: str,
    fresh: bool,
    roster: "Roster",
    seeded: bool,
) -> "Iterator[Ledger | None]":
    """Find, announce and open the ledger of a labelling; None for a seeded one without --ledger."""
    from ipate.ledger.finding import Choice, choose_ledger

    options.check_out(out, "a file of labels")
    where = Choice(path=ledger or out, announcement="") if seeded else None
    if where is None:
        merged = votes.absolute().parents[1].glob("*/") if (votes.parent / "sites.json").is_file() else ()
        where = choose_ledger(ledger, beside=votes, pool=pool, fresh=fresh, further=merged)
    with (
        _announced(where.announcement),
        _opened_ledger(out, ledger, where, terms, run=run, pool=pool, roster=roster, seeded=seeded) as book,
    ):
        if book is not None:
            write_head(out, book)  # from now on an older copy or a missing ledger is detected
        yield book


@contextmanager
def _announced(line: str) -> "Iterator[None]":
    """Print which ledger is charged when that is settled; bad input prints its own message only."""
    import logging

    from ipate.errors import InputError

    refused = False
    try:
        yield
    except InputError:
        refused = True
        raise
    finally:
        if line and not refused:
            logging.getLogger("ipate").info(line)


@contextmanager
def _opened_ledger(
    out: Path,
    named: Path | None,
    where: "Choice",
    terms: "Sequence[Terms]",
    *,
    run: str,
    pool: str,
    roster: "Roster",
    seeded: bool,
) -> "Iterator[Ledger | None]":
    """Open the ledger of a labelling; None for a seeded one without --ledger, which has no guarantee."""
    from ipate.ledger.base import Opening
    from ipate.ledger.finding import LEDGER
    from ipate.ledger.records import noise_kind

    if named is None and seeded:
        yield None
        return
    path, seen = where.path, None
    options.check_out(path, "a ledger")
    if _head_file(out).is_file():
        head, _, charged = _head_file(out).read_text(encoding="utf-8").strip().partition("\n")
        seen = head if charged == str(path.resolve()) else None  # None: another ledger's head
    noise = noise_kind(seeded=seeded)
    opening = Opening(terms=terms, roster=roster, pool=pool, noise=noise, run=run, replaces=where.replaces)
    with LEDGER.begin(path, opening, head=seen) as book:
        yield book


def _head_file(out: Path) -> Path:
    """Return the file beside the labels that records the ledger's head, for rollback detection."""
    return out.with_name(f"{out.name}.head")


def write_head(out: Path, book: "Ledger") -> None:
    """Record the head and the path of the ledger beside the labels."""
    from ipate.files import write_text

    write_text(_head_file(out), f"{book.head}\n{Path(book.path or '').resolve()}\n", private=True)
