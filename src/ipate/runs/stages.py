"""The stages of a run, one after the other; what a stage has made is found again when a run is resumed."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.budgets import People, Policy
from ipate.config import RunConfig
from ipate.data import Dataset, Partition, load, partition, read_data
from ipate.errors import InputError
from ipate.pipeline import Settings, choose_settings, run_labelling, standard_labels
from ipate.runs.folder import RunFolder
from ipate.runs.models import NETS, make_models
from ipate.runs.record import Record, publish, read_record, write_record
from ipate.students import fit_student
from ipate.teachers import VoteStore, train_and_vote
from ipate.teachers.ensemble import fingerprint
from ipate.teachers.nets import train_nets_and_vote
from ipate.variants import Allocation, allocate, class_warning
from ipate.votes import Votes, count_votes

__all__ = ["RunSummary", "Task", "execute", "prepare"]

Ints = NDArray[np.int64]
Bar = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
DEFAULT_POLICY = {"high": 1.0, "average": 2.0, "low": 3.0}


@dataclass(frozen=True, kw_only=True)
class Task:
    """The data of a run, parted, with its people: everything that later stages start from."""

    data: Dataset
    parts: Partition
    people: People

    def features(self, rows: Ints, *, model: str = "") -> NDArray[Any]:
        """Return rows as a model wants them: images for nets, channels first, one line of numbers otherwise."""
        if model not in NETS:
            return np.asarray(self.data.features(rows))
        if self.data.kind != "image":
            raise InputError(f"model is {model!r}: it needs images, and {self.data.name} is a table")
        images = np.asarray(self.data.features(rows, flat=False))
        return np.moveaxis(images, 3, 1) if images.ndim == 4 else images


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """What a run ended with, for the table and for JSON."""

    task: Task
    settings: Settings
    allocation: Allocation
    record: Record
    metrics: dict[str, Any]
    compare: dict[str, Any] | None


def execute(folder: RunFolder, *, bar: Bar, say: Callable[[str], None]) -> RunSummary:
    """Run every stage that has not been done yet.

    Parameters
    ----------
    folder : RunFolder
        Where the run lives; its own configuration decides.
    bar : callable
        Makes a progress bar from a title and a total, as a context manager.
    say : callable
        Receives one line for what somebody should know.
    """
    with folder.locked():
        return _execute(folder, bar, say)


def _execute(folder: RunFolder, bar: Bar, say: Callable[[str], None]) -> RunSummary:
    config = folder.config
    teacher, _ = make_models(config)
    task = prepare(config)
    settings = _settings(task, config, teacher)
    allocation = _allocation(folder, task, settings, config.labelling.variant)
    for line in (*task.data.notes, _told(task), *allocation.notes, settings.reason):
        say(line)
    class_warning(allocation, task.data.y[task.parts.private])
    votes = _votes(folder, "votes", task=task, allocation=allocation, bar=bar)
    record = _labels(folder, votes, allocation=allocation, settings=settings, task=task, bar=bar)
    student = _student(task, config, record.labels)
    _keep_student(folder.public if record.publishable else folder.private, student)
    metrics = _evaluate(task, student, record, config.student.model)
    metrics["labels_of_standard_pate"] = standard_labels(
        settings,
        task.people,
        answer_rate=record.n_labels / max(1, record.n_queries),
        n_public=len(task.parts.public),
    )
    folder.write(folder.private / "metrics.json", metrics)  # scored with true labels, which nobody gave away
    compare = _compare(folder, task, settings, config, bar) if config.compare else None
    return RunSummary(
        task=task, settings=settings, allocation=allocation, record=record, metrics=metrics, compare=compare
    )


def prepare(config: RunConfig) -> Task:
    """Load the data, part it, and find the people of the private part with their budgets."""
    wanted = config.data
    if wanted.file is not None:
        data = read_data(
            wanted.file, label=wanted.label or "", level=wanted.level, epsilon=wanted.epsilon, person=wanted.person,
            classes=wanted.classes,
        )  # fmt: skip
    else:
        data = load(wanted.name or "", data_dir=wanted.data_dir)
    parts = partition(
        data.n_rows,
        public=0.1 if wanted.public is None else wanted.public,
        test=0.1 if wanted.test is None else wanted.test,
        seed=config.split_seed,
        person_id=data.person_id,
    )
    return Task(data=data, parts=parts, people=_people(data, parts.private, config))


def _people(data: Dataset, private: Ints, config: RunConfig) -> People:
    """Budgets of the private rows: their own ε, their level under the policy, drawn levels, or one ε."""
    budgets = config.budgets
    persons = None if data.person_id is None else data.person_id[private]
    there = len(private) if persons is None else len(np.unique(persons))
    delta = min(1e-5, 0.1 / there) if budgets.delta == "auto" else float(budgets.delta)
    if config.data.file is not None:
        _refuse_conflicts(data, config)
    if data.epsilon is not None:
        return People.from_budgets(data.epsilon[private], delta=delta, person_id=persons)
    if budgets.epsilon is not None:
        return People.from_budgets(np.full(len(private), budgets.epsilon), delta=delta, person_id=persons)
    levels = None if data.levels is None else data.levels[private]
    if levels is None:
        if budgets.shares is None:
            raise InputError(
                f"{data.name} has no consent levels: set budgets.epsilon, or budgets.policy and budgets.shares to draw "
                "levels at random"
            )
        levels = _drawn(budgets.shares, len(private), config.split_seed)
    policy = Policy.from_mapping(budgets.policy or DEFAULT_POLICY)
    return People.from_levels(levels, policy=policy, delta=delta, person_id=persons)


def _refuse_conflicts(data: Dataset, config: RunConfig) -> None:
    """People's own consent is never overridden, and what a level means is never guessed."""
    budgets = config.budgets
    if (data.epsilon is not None or data.levels is not None) and budgets.epsilon is not None:
        raise InputError(
            f"budgets.epsilon is {budgets.epsilon:g}: the file says what its people consent to; leave it out"
        )
    if (data.epsilon is not None or data.levels is not None) and budgets.shares is not None:
        raise InputError("budgets.shares is given: the file says what its people consent to; leave it out")
    if data.levels is not None and budgets.policy is None:
        raise InputError("budgets.policy is not given: say which ε each consent level of the file means")


def _told(task: Task) -> str:
    """Who is protected and who is not, in a sentence."""
    sizes = ", ".join(f"{group.id} ε = {group.epsilon:g}: {group.people} people" for group in task.people.groups)
    return (
        f"{len(task.parts.public)} rows are treated as public and {len(task.parts.test)} as test data, and no budget "
        f"protects them; the other {len(task.parts.private)} are private ({sizes})"
    )


def _drawn(shares: dict[str, float], n: int, seed: int) -> NDArray[np.str_]:
    """Levels in the given shares, to people at random."""
    names = list(shares)
    edges = np.round(np.cumsum(list(shares.values())) / sum(shares.values()) * n).astype(int)
    levels = np.array(names)[np.searchsorted(edges, np.arange(n), side="right")]
    return np.random.default_rng([seed, 1]).permutation(levels)


def _settings(task: Task, config: RunConfig, teacher: Any) -> Settings:
    wanted = config.labelling
    options = {name: value for name, value in (("rule", wanted.rule), ("power", wanted.power)) if value is not None}
    return choose_settings(
        people=task.people,
        n_public=len(task.parts.public),
        n_classes=task.data.n_classes,
        variant=wanted.variant,
        teacher=teacher,
        n_teachers=config.teachers.number,
        sigma=wanted.sigma,
        check_sigma=wanted.check_sigma,
        threshold=wanted.threshold,
        points_per_teacher=config.teachers.points,
        bound=wanted.bound,
        conversion=wanted.conversion,
        stop=wanted.stop,
        max_labels=wanted.max_labels,
        options=options,
    )


def _allocation(folder: RunFolder, task: Task, settings: Settings, variant: str) -> Allocation:
    path = folder.private / "allocation.npz"
    made = allocate(
        variant,
        people=task.people,
        n_teachers=settings.n_teachers,
        seed=folder.config.split_seed,
        **settings.options,
    )
    if not path.is_file():
        made.save(path)
        return made
    kept = Allocation.load(path)
    if not _same(kept, made):
        raise InputError(
            f"{path}: people, budgets or settings are not those that this run began with; whoever was dealt to a "
            "teacher then must stay there, so begin a new run in another folder"
        )
    return kept


def _same(kept: Allocation, made: Allocation) -> bool:
    """Whether two allocations hold the same people, with the same budgets, in the same slots."""
    arrays = (
        (kept.persons, made.persons),
        (kept.offsets, made.offsets),
        (kept.weights, made.weights),
        (kept.people.ids, made.people.ids),
        (kept.people.person_of_row, made.people.person_of_row),
        (kept.people.group_of_person, made.people.group_of_person),
    )
    return (
        kept.groups == made.groups
        and kept.people.groups == made.people.groups
        and kept.variant == made.variant
        and all(np.array_equal(one, other) for one, other in arrays)
    )


def _votes(folder: RunFolder, name: str, *, task: Task, allocation: Allocation, bar: Bar) -> Votes:
    """Train the teachers that have not voted yet; their votes are kept as they come."""
    config = folder.config
    teacher, _ = make_models(config)
    rows = [allocation.rows_of_teacher(index) for index in range(allocation.n_teachers)]
    model = config.teachers.model
    X, y = task.features(task.parts.private, model=model), task.data.y[task.parts.private]
    pool = task.features(task.parts.public, model=model)
    store = VoteStore(
        folder.private / name,
        n_teachers=len(rows),
        n_queries=len(pool),
        n_classes=task.data.n_classes,
        fingerprint=fingerprint(X, y, pool, np.concatenate(rows), teacher, config.split_seed),
    )
    with bar("teachers trained", len(rows)) as progress:
        if model in NETS:
            train_nets_and_vote(
                teacher, X, y, rows=rows, slots=allocation.teacher_sizes, X_public=pool, store=store,
                seed=config.split_seed, device=config.teachers.device, n_jobs=config.teachers.n_jobs or 1,
                progress=progress,
            )  # fmt: skip
        else:
            train_and_vote(
                teacher, X, y, rows=rows, X_public=pool, store=store, seed=config.split_seed,
                n_jobs=config.teachers.n_jobs, backend=config.teachers.backend, progress=progress,
            )  # fmt: skip
    return Votes(votes=store.matrix, n_classes=task.data.n_classes, labels=task.data.y[task.parts.public])


def _labels(
    folder: RunFolder, votes: Votes, *, allocation: Allocation, settings: Settings, task: Task, bar: Bar
) -> Record:
    """Label once: the costs are on disk before the labels are, and released labels are never drawn again."""
    record = read_record(folder)
    if record is None:
        with bar("queries labelled", votes.n_queries) as progress:
            result, _ = run_labelling(votes, allocation, settings, noise_seed=folder.config.seed, progress=progress)
        record = Record.of(result, n_public=votes.n_queries)
        write_record(folder, record)
    publish(folder, record, task.data.classes, task.parts.public)
    return record


def _student(task: Task, config: RunConfig, labels: Ints) -> Any:
    _, estimator = make_models(config)
    pool = task.features(task.parts.public, model=config.student.model)
    return fit_student(estimator, pool, labels, n_classes=task.data.n_classes)


def _keep_student(shown: Path, student: Any) -> None:
    import joblib

    aside = shown / ".student.part"
    joblib.dump(student, aside, compress=3)
    aside.replace(shown / "student.joblib")


def _accuracy(student: Any, task: Task, model: str) -> dict[str, Any]:
    """Accuracy on the test rows, by class, and by consent level where rows have one."""
    rows = task.parts.test
    if not len(rows):
        return {"student_accuracy": None}
    truth = task.data.y[rows]
    right = np.asarray(student.predict(task.features(rows, model=model))) == truth
    scores: dict[str, Any] = {"student_accuracy": float(right.mean())}
    scores["by_class"] = {
        name: float(right[truth == index].mean())
        for index, name in enumerate(task.data.classes)
        if np.any(truth == index)
    }
    if task.data.levels is not None:
        levels = task.data.levels[rows]
        scores["by_level"] = {str(level): float(right[levels == level].mean()) for level in np.unique(levels)}
    return scores


def _evaluate(task: Task, student: Any, record: Record, model: str) -> dict[str, Any]:
    given = record.labels >= 0
    truth = task.data.y[task.parts.public]
    voting = float(np.mean(record.labels[given] == truth[given])) if given.any() else None
    return {
        "labels": record.n_labels,
        "queries": record.n_queries,
        "voting_accuracy": voting,
        **_accuracy(student, task, model),
    }


def _teachers(folder: RunFolder, task: Task) -> dict[str, float]:
    """How often the run's own teachers, and their plurality, are right about the pool: read off private votes."""
    votes = np.load(folder.private / "votes" / "votes.npy", mmap_mode="r")
    truth = task.data.y[task.parts.public]
    plurality = count_votes(votes, task.data.n_classes).argmax(axis=1)
    return {"accuracy": float(np.mean(votes == truth)), "plurality_accuracy": float(np.mean(plurality == truth))}


def _compare(folder: RunFolder, task: Task, settings: Settings, config: RunConfig, bar: Bar) -> dict[str, Any]:
    """Train standard PATE and a non-private ceiling beside the run: benchmark data only, marked private."""
    allocation = allocate("standard", people=task.people, n_teachers=settings.n_teachers, seed=config.split_seed)
    votes = _votes(folder, "votes-standard", task=task, allocation=allocation, bar=bar)
    result, _ = run_labelling(votes, allocation, settings, noise_seed=config.seed)
    record = Record.of(result, n_public=votes.n_queries)
    model = config.student.model
    standard = _evaluate(task, _student(task, config, record.labels), record, model) if record.n_labels else None
    _, ceiling = make_models(config)
    ceiling.fit(task.features(task.parts.private, model=model), task.data.y[task.parts.private])
    found = {
        "note": "for benchmark data only: on real people this would spend their budgets a second time",
        "teachers": _teachers(folder, task),
        "standard": standard or {"labels": 0, "student_accuracy": None},
        "ceiling": _accuracy(ceiling, task, model),
    }
    folder.write(folder.private / "compare.json", found)
    return found
