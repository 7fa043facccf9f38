"""The votes of a run: its teachers are tried on public points, trained, and their votes stored as they arrive."""

from collections.abc import Sequence
from contextlib import closing
from typing import Any

from numpy.typing import NDArray

from ipate.allocation.allocation import Allocation
from ipate.engines.teachers.influence import SingleClass, single_class_groups
from ipate.engines.teachers.store import VoteStore, learnt_from, voted_in
from ipate.engines.teachers.votes import Votes
from ipate.files import fingerprint
from ipate.models.named import NETS, dry_fit, dry_fit_net, make_model
from ipate.models.training import train_and_vote, train_nets_and_vote
from ipate.models.workers import Engine
from ipate.options import TeacherConfig
from ipate.runs.folder import RunFolder
from ipate.runs.ledgers import Bar
from ipate.runs.task import Task


def collect_votes(folder: RunFolder, name: str, *, task: Task, allocation: Allocation, bar: Bar) -> Votes:
    """Train the teachers that have not voted yet; votes are stored as they arrive, and notes about them privately."""
    config, wanted = folder.config, folder.config.teachers
    teacher = make_model(wanted.model, wanted.options)
    X, y = task.features(task.parts.private, model=wanted.model), task.data.y[task.parts.private]
    pool = task.features(task.parts.public, model=wanted.model)
    rows = [allocation.rows_of_teacher(index) for index in range(allocation.n_teachers)]
    if voted_in(folder.private / name).sum() < len(rows):
        _dry_fit(wanted, teacher, pool, n_classes=task.data.n_classes, rows=max(map(len, rows)))
    store = VoteStore(
        folder.private / name,
        n_teachers=len(rows),
        n_queries=len(pool),
        n_classes=task.data.n_classes,
        fingerprint=fingerprint(pool, teacher, config.split_seed),
        learnt=learnt_from(X, y, rows),
        vacant=allocation.vacant,
    )
    if allocation.teacher_groups is not None:
        store.describe(groups=allocation.teacher_groups)
    notes, missing = dict[int, list[str]](), store.missing
    given: dict[str, Any] = {
        "rows": rows,
        "X_public": pool,
        "n_classes": store.n_classes,
        "missing": missing,
        "seed": config.split_seed,
        "notes": notes,
    }
    with store.writing() as put, bar("teachers trained", len(rows)) as progress:
        if wanted.model in NETS:
            voted = train_nets_and_vote(
                teacher,
                X,
                y,
                slots=allocation.teacher_sizes,
                device=wanted.device,
                n_jobs=wanted.n_jobs or 1,
                progress=progress,
                **given,
            )
        else:
            voted = train_and_vote(
                teacher,
                X,
                y,
                n_jobs=wanted.n_jobs,
                backend=wanted.engine,
                address=wanted.address,
                cpu_seconds=wanted.cpu_seconds,
                progress=progress,
                **given,
            )
        try:
            with closing(voted):
                for number, own in voted:
                    put(number, own)
        finally:
            _note_teachers(folder, name, notes, missing, single_class_groups(allocation, y))
    return Votes(votes=store.matrix, n_classes=task.data.n_classes, labels=task.data.y[task.parts.public])


def _dry_fit(wanted: TeacherConfig, teacher: Any, pool: NDArray[Any], *, n_classes: int, rows: int) -> None:
    """Refuse a teacher that fails on made-up rows, before private ones are used."""
    if wanted.model in NETS:
        dry_fit_net(teacher, pool, n_classes=n_classes, device=wanted.device, name=wanted.model)
        return
    engine = Engine(backend=wanted.engine, n_jobs=wanted.n_jobs, address=wanted.address)
    dry_fit(
        teacher, pool, n_classes=n_classes, rows=rows, engine=engine, name=wanted.model, cpu_seconds=wanted.cpu_seconds
    )


def _note_teachers(
    folder: RunFolder, name: str, notes: dict[int, list[str]], trained: Sequence[int], single: Sequence[SingleClass]
) -> None:
    """Replace the private notes about the teachers that were trained now."""
    kept = (folder.read(folder.notes) or {}).get(name, {})
    kept = {teacher: lines for teacher, lines in kept.items() if int(teacher) not in set(trained)}
    found = kept | {str(teacher): lines for teacher, lines in sorted(notes.items())}
    folder.note_privately(**{name: found, "groups": [str(group) for group in single]})
