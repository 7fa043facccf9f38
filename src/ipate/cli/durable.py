"""The durable ledger of `ipate label`: stored beside the labels by default; the same command continues its run."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ipate.accounting.bounds import Meter
from ipate.cli.options import check_out
from ipate.files import write_text
from ipate.labelling.aggregators import Aggregator
from ipate.ledger.base import Ledger
from ipate.ledger.records import Terms, noise_kind
from ipate.ledger.sqlite import SqliteLedger
from ipate.teachers.ensemble import fingerprint
from ipate.votes import Votes
from ipate.votes.panel import Panel


@dataclass(frozen=True, kw_only=True)
class LabelRun:
    """The name of a labelling in a ledger, and the pool that its queries belong to."""

    name: str
    pool: str


def run_of(
    votes: Votes, panel: Panel, aggregator: Aggregator, meter: Meter, *request: Any, seed: int | None
) -> LabelRun:
    """Name a labelling by a hash of all its inputs, so that the same command continues after an interruption.

    The pool is identified by its votes: another labelling of the same votes reuses the answers already paid for.
    """
    turns = () if votes.participation is None else votes.participation
    pool = fingerprint(*votes.votes, votes.n_classes, votes.queries, *turns)  # row by row: votes may be memory-mapped
    whole = fingerprint(pool, panel.groups, panel.weights, repr(aggregator), meter, *request, seed)
    return LabelRun(name=f"label {whole[:16]}", pool=pool)


def head_file(out: Path) -> Path:
    """Return the file beside the labels that records the ledger's head, for rollback detection."""
    return out.with_name(f"{out.name}.head")


@contextmanager
def label_ledger(
    out: Path, ledger: Path | None, terms: Sequence[Terms], *, run: LabelRun, seeded: bool
) -> Iterator[Ledger | None]:
    """Open the ledger of a labelling; None for a seeded one without --ledger, which has no guarantee."""
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
    """Record the head and the path of the ledger beside the labels."""
    write_text(head_file(out), f"{book.head}\n{Path(book.path or '').resolve()}\n")


def _seen(out: Path, path: Path, named: Path | None) -> str | None:
    """Return the recorded head if the labels were charged to this ledger."""
    kept = head_file(out)
    if not kept.is_file():
        return None
    head, _, where = kept.read_text(encoding="utf-8").strip().partition("\n")
    return head if named is None or where == str(path.resolve()) else None
