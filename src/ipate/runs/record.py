"""What labelling released and what it cost, as it is kept in a run's folder."""

import csv
import io
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.allocation.allocation import Allocation
from ipate.errors import InputError
from ipate.files import write_text
from ipate.labelling.results import GroupResult, Labelling
from ipate.planning.settings import Settings
from ipate.runs.fitting import run_labelling
from ipate.runs.folder import RunFolder
from ipate.runs.ledgers import opened, reading, spent_before
from ipate.votes import Votes


@dataclass(frozen=True, kw_only=True)
class Record:
    """The outcome of labelling a pool.

    Attributes
    ----------
    labels : array of shape (pool,)
        The class of each public point, −1 where it has none.
    queries : tuple of int
        The points that were asked, in the order asked.
    n_labels, n_queries : int
    kind, statement, stopped_by, bound, conversion, seeded
        What may be said of the costs, and how they came about.
    groups : tuple of GroupResult
        Their ε is what was spent in all, earlier runs on the same ledger included.
    ledger_head : str
        Where the ledger stood when the last answer had been paid: an older copy of it is refused.
    passed : bool or None
        The published answer of the test of a release that was tested as a whole.
    """

    labels: NDArray[np.int64]
    queries: tuple[int, ...]
    n_labels: int
    n_queries: int
    kind: str
    statement: str
    stopped_by: str
    bound: str
    conversion: str
    seeded: bool
    groups: tuple[GroupResult, ...]
    ledger_head: str
    passed: bool | None = None

    @property
    def publishable(self) -> bool:
        """Whether there is a guarantee: releasable costs, and noise that nobody can draw again."""
        return self.kind == "releasable" and not self.seeded

    def facts(self) -> dict[str, Any]:
        """Return everything but the answers, for JSON."""
        kept = {field.name: getattr(self, field.name) for field in fields(self)}
        kept["groups"] = [group.as_json() for group in self.groups]
        return {name: value for name, value in kept.items() if name not in ("labels", "queries")}

    @property
    def headline(self) -> str:
        """The guarantee in a word or two, for the top of a table."""
        return "SEEDED, NOT PRIVATE" if self.seeded else self.kind.upper()

    @classmethod
    def of(
        cls, result: Labelling, *, n_public: int, ledger_head: str = "", before: Mapping[str, float] | None = None
    ) -> "Record":
        """Make the record of a labelling; `before` is the ε that earlier runs had spent of each group's budget."""
        labels = np.full(n_public, -1, dtype=np.int64)
        labels[result.queries] = result.labels
        return cls(
            labels=labels,
            queries=tuple(result.queries.tolist()),
            n_labels=result.n_labels,
            n_queries=result.n_queries,
            kind=result.guarantee.kind,
            statement=result.guarantee.statement,
            stopped_by=result.stopped_by,
            bound=result.meter.bound,
            conversion=result.meter.conversion,
            seeded=result.seeded,
            groups=tuple(replace(group, before=(before or {}).get(group.id, 0.0)) for group in result.groups),
            ledger_head=ledger_head,
            passed=result.passed,
        )


def write_record(folder: RunFolder, record: Record) -> None:
    """Keep the record, costs and labels together, whole, in the private folder."""
    payload = {"labels": record.labels.tolist(), "queries": list(record.queries), **record.facts()}
    folder.write(folder.private / "labelling.json", payload)


def publish(folder: RunFolder, record: Record, classes: tuple[str, ...], rows: NDArray[np.int64]) -> None:
    """Write what may be seen, from the record alone: costs and labels, where the record allows it."""
    shown = folder.public if record.publishable else folder.private
    folder.write(shown / "guarantee.json", record.facts())
    write_labels(shown / "labels.csv", record, classes, rows)


def read_record(folder: RunFolder) -> Record | None:
    """Return the record of an earlier labelling, or None: released labels are never drawn again."""
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
            "remove it, and --resume makes it again from the ledger"
        ) from None


def write_labels(path: Path, record: Record, classes: tuple[str, ...], rows: NDArray[np.int64]) -> None:
    """Write query,answered,label in the order asked; a query is named by its row in the data."""
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
        record = Record.of(result, n_public=votes.n_queries, ledger_head=str(ledger.head), before=before)
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
