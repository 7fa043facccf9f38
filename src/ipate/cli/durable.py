"""The durable ledger of `ipate label`: beside the labels unless said, the same command continues the same run."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ipate.accounting.bounds import Meter
from ipate.cli.options import check_out
from ipate.files import write_text
from ipate.labelling.aggregators import Aggregator
from ipate.ledger.records import Ledger, Terms, noise_kind
from ipate.ledger.sqlite import SqliteLedger
from ipate.teachers.ensemble import fingerprint
from ipate.votes import Votes
from ipate.votes.panel import Panel


@dataclass(frozen=True, kw_only=True)
class LabelRun:
    """What a labelling is called in a ledger, and the pool that its queries belong to."""

    name: str
    pool: str


def run_of(
    votes: Votes, panel: Panel, aggregator: Aggregator, meter: Meter, *request: Any, seed: int | None
) -> LabelRun:
    """Name a labelling by all that it depends on, so that the same command goes on where it was interrupted.

    The pool is known by the votes on it: another labelling of the same votes gets the answers that were paid for.
    """
    turns = () if votes.participation is None else votes.participation
    pool = fingerprint(*votes.votes, votes.n_classes, votes.queries, *turns)  # row by row: votes may be mapped
    whole = fingerprint(pool, panel.groups, panel.weights, repr(aggregator), meter, *request, seed)
    return LabelRun(name=f"label {whole[:16]}", pool=pool)


def head_file(out: Path) -> Path:
    """Return the file beside the labels that says where the ledger stood: so an older copy of it is noticed."""
    return out.with_name(f"{out.name}.head")


@contextmanager
def label_ledger(
    out: Path, ledger: Path | None, terms: Sequence[Terms], *, run: LabelRun, seeded: bool
) -> Iterator[Ledger | None]:
    """Open the ledger of a labelling; None for a seeded one without a ledger of its own, which promises nothing."""
    check_out(out, "a file of labels")
    if ledger is None and seeded:
        yield None
        return
    path = ledger or out.with_suffix(".ledger.sqlite")
    check_out(path, "a ledger")
    seen, noise = _seen(out, path, ledger), noise_kind(seeded=seeded)
    with SqliteLedger.open(path, terms, run=run.name, pool=run.pool, noise=noise, expected_head=seen) as book:
        yield book


def write_head(out: Path, book: Ledger) -> None:
    """Note beside the labels where their ledger stood, and which one it was."""
    write_text(head_file(out), f"{book.head}\n{Path(book.path or '').resolve()}\n")


def _seen(out: Path, path: Path, named: Path | None) -> str | None:
    """Return the head that the labels carry, where they were charged to this ledger."""
    kept = head_file(out)
    if not kept.is_file():
        return None
    head, _, where = kept.read_text(encoding="utf-8").strip().partition("\n")
    return head if named is None or where == str(path.resolve()) else None
