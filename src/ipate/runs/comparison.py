"""The comparison of a run with other engines and with no privacy at all, on benchmark data only.

It uses the private data again, uncharged, and part of it without noise, so it has no guarantee.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from ipate.accounting.bounds import Meter
from ipate.allocation.allocation import Allocation
from ipate.config import RunConfig
from ipate.data.frames import RowBlocks
from ipate.engines.ballots.design import allocate_ballots, voters
from ipate.engines.ballots.release import release
from ipate.engines.teachers.variants import BASELINE, allocate, find_variant
from ipate.engines.teachers.votes import count_votes
from ipate.errors import IpateError
from ipate.planning.settings import Settings
from ipate.planning.voting import Voting
from ipate.release.noise import make_noise
from ipate.release.results import COMPARED, Record
from ipate.runs.fitting import run_labelling
from ipate.runs.folder import RunFolder
from ipate.runs.ledgers import Bar
from ipate.runs.outlook import chosen_settings
from ipate.runs.task import Task
from ipate.runs.teaching import evaluate, student_scores, teach
from ipate.runs.voting import collect_votes
from ipate.students.confidence import ballot_lesson
from ipate.students.student import find_student

NAMES: dict[str, str] = {
    "standard": "standard PATE",
    "individualized": "individualized PATE",
    "ballots_strictest": "ballots at the strictest ε",
    "ballots": "ballots with individual budgets",
    "ceiling": "ceiling without privacy",
}
"""What a run is compared with, in the order of tables; the run itself is left out."""
OTHERS = {name: title for name, title in NAMES.items() if name not in ("standard", "ceiling")}
_ENGINES: dict[str, tuple[Voting, bool]] = {  # the engine, and whether everybody has their own budget
    "standard": ("teachers", False),
    "individualized": ("teachers", True),
    "ballots_strictest": ("ballots", False),
    "ballots": ("ballots", True),
}


def compared(folder: RunFolder, task: Task, settings: Settings, allocation: Allocation, bar: Bar) -> dict[str, Any]:
    """Score the other engines and a student without privacy, unless that stage is complete."""
    path, config = folder.private / "compare.json", folder.config
    kept = folder.read(path)
    if kept is not None:
        return kept
    own = settings.voting, find_variant(settings.variant).individual
    found: dict[str, Any] = {
        "guarantee": "none",
        "statement": COMPARED,
        "note": "for benchmark data only: on real people this would spend their budgets a second time",
        "teachers": {"accuracy": None, "plurality_accuracy": None} if settings.ballots else _teachers(folder, task),
    }
    for name, engine in _ENGINES.items():
        if engine == own:
            continue
        voting, individual = engine
        variant = "weighting" if individual else BASELINE
        if voting == "ballots":
            found[name] = _by_ballots(task, config, variant, allocation.withdrawn)
        else:
            chosen = _for_teachers(task, config, settings, variant)
            found[name] = _by_teachers(folder, task, chosen, bar, variant=variant, withdrawn=allocation.withdrawn)
    here = task.parts.private[~np.isin(task.people.person_of_row, allocation.withdrawn)]
    model = config.student.model
    found["ceiling"] = student_scores(teach(task, config, here, task.data.y[here]), task, model)
    folder.write(path, found)
    return found


def _by_teachers(
    folder: RunFolder, task: Task, settings: Settings, bar: Bar, *, variant: str, withdrawn: tuple[int, ...]
) -> dict[str, Any]:
    config = folder.config
    made = allocate(variant, people=task.people, n_teachers=settings.n_teachers, seed=config.split_seed)
    allocation = made.without(withdrawn)
    votes = collect_votes(folder, f"votes-{variant}", task=task, allocation=allocation, bar=bar)
    result, _ = run_labelling(votes, allocation, settings, noise_seed=config.seed)
    record = Record.of(result, n_public=votes.n_queries)
    if not record.n_labels:
        return {"labels": 0, "student_accuracy": None}
    model = config.student.model
    return evaluate(task, teach(task, config, task.parts.public, record.labels), record, model)


def _by_ballots(task: Task, config: RunConfig, variant: str, withdrawn: tuple[int, ...]) -> dict[str, Any]:
    people = voters(allocate_ballots(variant, people=task.people, seed=config.split_seed))
    private, public = task.parts.private, task.parts.public
    try:
        found = release(
            np.asarray(task.data.X[public]),
            RowBlocks(task.data.X, private),
            task.data.y[private],
            people,
            n_classes=task.data.n_classes,
            noise=make_noise(config.seed),
            n_jobs=config.teachers.n_jobs,
            withdrawn=[str(people.ids[index]) for index in withdrawn],
        )
    except IpateError:  # the budgets afford no ballot
        return {"labels": 0, "student_accuracy": None}
    record = Record.of(found.labelling, n_public=len(public))
    known = ballot_lesson(find_student(config.student.model), found.decoded)
    student = teach(task, config, public, record.labels, **known)
    return evaluate(task, student, record, config.student.model)


def _for_teachers(task: Task, config: RunConfig, settings: Settings, variant: str) -> Settings:
    """Return the run's own settings for other teachers; under ptr with a new design, or with gdp if none can be made.

    A run with ballots has no settings for teachers: they are chosen as for a run.
    """
    if settings.ballots:
        labelling = config.labelling.model_copy(update={"voting": "teachers", "variant": variant})
        return chosen_settings(config.model_copy(update={"labelling": labelling}), task)
    if not settings.meter.whole:
        return settings
    if settings.reference is not None and settings.reference.simulator is not None:
        return replace(settings, design=None)
    return replace(settings, meter=Meter("gdp"), reference=None, design=None)


def _teachers(folder: RunFolder, task: Task) -> dict[str, float | None]:
    """Return the accuracy of the run's teachers and of their plurality on the pool, from private votes."""
    votes = np.load(folder.private / "votes" / "votes.npy", mmap_mode="r")
    truth = task.data.y[task.parts.public]
    if (truth < 0).all():
        return {"accuracy": None, "plurality_accuracy": None}
    known = truth >= 0
    right = count_votes(votes, task.data.n_classes).argmax(axis=1) == truth
    accuracy = float(np.mean(votes[:, known] == truth[known]))
    return {"accuracy": accuracy, "plurality_accuracy": float(right[known].mean())}
