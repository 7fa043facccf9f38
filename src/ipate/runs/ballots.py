"""The ballots of a run: public cells, one release that is charged with its histogram, and the weights of its labels."""

import numpy as np

from ipate.allocation.allocation import Allocation
from ipate.data.frames import RowBlocks
from ipate.engines.ballots.counting import Decoded, decode
from ipate.engines.ballots.design import make_design, voters
from ipate.engines.ballots.release import PublicMaps, release
from ipate.errors import InputError
from ipate.files import read_npz, write_npz
from ipate.ledger.base import Ledger
from ipate.ledger.records import Histogram
from ipate.planning.settings import Settings
from ipate.public.cells import PARTITIONS
from ipate.public.features import fit_features
from ipate.release.noise import make_noise
from ipate.release.results import Record
from ipate.runs.folder import RunFolder
from ipate.runs.ledgers import Bar, opened, read_record, reading, record_labelling
from ipate.runs.task import Task, embedding


def release_once(
    folder: RunFolder, *, task: Task, allocation: Allocation, settings: Settings, bar: Bar
) -> tuple[Record, Decoded]:
    """Release everybody's ballots, or read the stored release: noise is never drawn a second time."""
    record = read_record(folder)
    if record is not None:
        with reading(folder) as ledger:
            stored = ledger.stored("ballots").histogram
        decoded = decode(_histogram(folder, stored).counts, _maps(folder).pool)
        if not np.array_equal(decoded.labels, record.labels):
            raise InputError(
                f"{folder.private / 'labelling.json'}: it states other labels than the ledger's histogram gives, so it "
                "was edited; remove it, and ipate run --resume will restore it"
            )
        return record, decoded
    with opened(folder, allocation, settings, pool=task.pool, unprotected=task.unprotected) as ledger:
        maps = _made_maps(folder, task, ledger, bar)
        people = voters(allocation)
        found = release(
            task.data.X[task.parts.public],
            RowBlocks(task.data.X, task.parts.private),
            task.data.y[task.parts.private],
            people,
            n_classes=task.data.n_classes,
            ledger=ledger,
            maps=maps,
            noise=make_noise(folder.config.seed),
            withdrawn=[str(people.ids[index]) for index in allocation.withdrawn],
        )
        result = found.labelling.overlapping() if task.overlap else found.labelling
        record = record_labelling(folder, result, ledger, n_public=len(task.parts.public))
    return record, found.decoded


def publish_ballots(folder: RunFolder, record: Record, decoded: Decoded) -> None:
    """Write the histogram, the cells it belongs to and the confidence of every label beside the labels."""
    with reading(folder) as ledger:
        stored = _histogram(folder, ledger.stored("ballots").histogram)
    shown = folder.public if record.publishable else folder.private
    arrays = {"histogram": stored.counts, "confidence": decoded.confidence, **_maps(folder).arrays()}
    write_npz(shown / "ballots.npz", arrays)


def _made_maps(folder: RunFolder, task: Task, ledger: Ledger, bar: Bar) -> PublicMaps:
    """Return the stored maps; before the release, make them from the pool and what is left of the budgets."""
    path = folder.private / "cells.npz"
    if not path.is_file():
        pool, n_classes = np.asarray(task.data.X[task.parts.public]), task.data.n_classes
        spent = {account: ledger.spent(account) for account in ledger.terms}
        design = make_design(list(ledger.terms.values()), n_classes=n_classes, n_pool=len(pool), spent=spent)
        with bar("partitions of the pool computed", PARTITIONS) as progress:
            kind = embedding(folder.config, pool.shape[1:])
            features = fit_features(pool, n_classes=n_classes, kind=kind)
            made = PublicMaps.make(
                pool,
                n_classes=n_classes,
                cells=design.cells,
                features=features,
                n_jobs=folder.config.teachers.n_jobs,
                progress=progress,
            )
        write_npz(path, made.arrays())
    return _maps(folder)


def _maps(folder: RunFolder) -> PublicMaps:
    path = folder.private / "cells.npz"
    try:
        return PublicMaps.from_arrays(read_npz(path, PublicMaps.NAMES))
    except (InputError, KeyError, ValueError) as error:
        raise InputError(
            f"{path}: the cells of the run cannot be read ({error}); restore the file, because the stored histogram "
            "belongs to these cells"
        ) from None


def _histogram(folder: RunFolder, stored: Histogram | None) -> Histogram:
    if stored is None:
        raise InputError(f"{folder.path}: the ledger holds no ballots of this run; its files do not belong together")
    return stored
