"""The stage that labels: charged in the ledger first, then recorded, then written where it may be seen."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from ipate.errors import InputError
from ipate.pipeline import Settings, run_labelling
from ipate.runs.folder import RunFolder
from ipate.runs.ledgers import opened, reading, spent_before
from ipate.runs.record import Record, read_record, write_record
from ipate.variants import Allocation
from ipate.votes import Votes

__all__ = ["check_answers", "label_once"]


def label_once(
    folder: RunFolder,
    votes: Votes,
    *,
    allocation: Allocation,
    settings: Settings,
    pool: str,
    bar: Callable[[str, int], AbstractContextManager[Callable[[int], None]]],
) -> Record:
    """Label the pool, or find again what was labelled: a label that was paid for is never drawn twice.

    The ledger decides. An interrupted run goes on from what it holds; a record is made from it, and an existing one
    is compared with it.
    """
    record = read_record(folder)
    if record is not None:
        with reading(folder) as ledger:
            check_answers(record, ledger.stored().answers)
        return record
    with (
        opened(folder, allocation, settings, pool=pool) as ledger,
        bar("queries labelled", votes.n_queries) as progress,
    ):
        result, _ = run_labelling(
            votes, allocation, settings, noise_seed=folder.config.seed, ledger=ledger, progress=progress
        )
        before = spent_before(folder, ledger)
        record = Record.of(result, n_public=votes.n_queries, ledger_head=str(ledger.head), opening=before)
    write_record(folder, record)
    return record


def check_answers(record: Record, paid: Mapping[str, tuple[int, bool, bool]]) -> None:
    """Refuse a record whose answers are not those that the ledger was charged for."""
    for query in record.queries:
        if paid.get(str(query), (None,))[0] != int(record.labels[query]):
            raise InputError(
                f"labelling.json states another answer to query {query} than the ledger was charged for: it was "
                "edited; remove it, and ipate run --resume makes it again from the ledger"
            )
