"""The record of a labelling, its released labels and costs, in the folder of a run."""

import csv
import io
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.allocation.allocation import Allocation
from ipate.errors import InputError
from ipate.files import write_text
from ipate.labelling.results import GroupResult, Record
from ipate.planning.settings import Settings
from ipate.runs.fitting import run_labelling
from ipate.runs.folder import RunFolder
from ipate.runs.ledgers import opened, reading
from ipate.votes import Votes


def publish(folder: RunFolder, record: Record, classes: tuple[str, ...], rows: NDArray[np.int64]) -> None:
    """Write costs and labels, to the public folder if the record is publishable, else to the private one."""
    shown = folder.public if record.publishable else folder.private
    folder.write(shown / "guarantee.json", record.as_json(answers=False))
    write_labels(shown / "labels.csv", record, classes, rows)


def read_record(folder: RunFolder) -> Record | None:
    """Return the record of an earlier labelling, or None; released labels are never drawn again."""
    found: dict[str, Any] | None = folder.read(folder.private / "labelling.json")
    if found is None:
        return None
    found["labels"] = np.array(found["labels"], dtype=np.int64)
    found["queries"] = tuple(found["queries"])
    try:
        found["groups"] = tuple(map(GroupResult.from_json, found["groups"]))
        return Record(**found)
    except (TypeError, KeyError) as error:
        raise InputError(
            f"{folder.private / 'labelling.json'}: it was edited, or written by another version of ipate ({error}); "
            "remove it, and --resume restores it from the ledger"
        ) from None


def write_labels(path: Path, record: Record, classes: tuple[str, ...], rows: NDArray[np.int64]) -> None:
    """Write query,answered,label in the order asked; the query id is its row in the data."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["query", "answered", "label"])
    for query in record.queries:
        label = int(record.labels[query])
        writer.writerow([int(rows[query]), int(label >= 0), classes[label] if label >= 0 else ""])
    write_text(path, stream.getvalue())


def label_once(
    folder: RunFolder,
    votes: Votes,
    *,
    allocation: Allocation,
    settings: Settings,
    pool: str,
    bar: Callable[[str, int], AbstractContextManager[Callable[[int], None]]],
) -> Record:
    """Label the pool, or restore an earlier labelling: a charged label is never drawn twice.

    The ledger is authoritative: an interrupted run continues from its entries, and an existing record is checked
    against them.
    """
    record = read_record(folder)
    if record is not None:
        with reading(folder) as ledger:
            record.check_answers({query: answer[0] for query, answer in ledger.stored().answers.items()})
        return record
    with (
        opened(folder, allocation, settings, pool=pool) as ledger,
        bar("queries labelled", votes.n_queries) as progress,
    ):
        result, _ = run_labelling(
            votes, allocation, settings, noise_seed=folder.config.seed, ledger=ledger, progress=progress
        )
        record = Record.of(result, n_public=votes.n_queries, ledger_head=str(ledger.head))
        payload = record.as_json(answers=True)
    folder.write(folder.private / "labelling.json", payload)
    return record
