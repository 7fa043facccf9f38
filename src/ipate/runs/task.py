"""The input of a run: the partitioned data, the people with their budgets, and the requested settings."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate._types import Ints
from ipate.config import RunConfig
from ipate.data import load
from ipate.data.columns import Roles
from ipate.data.dataset import Dataset, Partition, partition
from ipate.data.schema import Declared, Schema
from ipate.data.sources import Sources, read_parts
from ipate.engines.teachers.votes import read_votes
from ipate.errors import InputError, show
from ipate.files import fingerprint
from ipate.models.named import NETS, import_from, make_model
from ipate.options import ReferenceConfig
from ipate.people.grouping import find_rows, refusing_large_delta, row_name
from ipate.people.ids import warn_alike
from ipate.people.people import People, make_people
from ipate.people.policy import agreed_before
from ipate.planning.choose import group_limit
from ipate.planning.reference import Reference, Simulator, read_design
from ipate.public.features import Kind
from ipate.students.student import STUDENTS, find_student

DEFAULT_POLICY = {"high": 1.0, "average": 2.0, "low": 3.0}


@dataclass(frozen=True, kw_only=True)
class Task:
    """The partitioned data of a run and the people of its private part.

    `unprotected` has the ids of the people whose rows of the private file are used as pool or test data. `overlap`
    says that private rows or people may also be in a public file, so that the run has no guarantee, whether they are
    or not; `public_truth` and `public_test`, that the pool and the test data come from public files with their labels.
    """

    data: Dataset
    parts: Partition
    people: People
    unprotected: NDArray[np.str_]
    pool: str  # fingerprint of the public points and the classes
    overlap: bool = False
    public_truth: bool = False
    public_test: bool = False

    @property
    def consents(self) -> tuple[tuple[str, str, str], ...]:
        """Every person's id, day of consent and version of the policy, empty where unknown; nothing if all are.

        Of several rows of a person the latest day counts, with its version.
        """
        columns = (self.data.consent_date, self.data.consent_version)
        if all(column is None for column in columns):
            return ()
        rows = self.parts.private
        days, versions = (np.full(len(rows), "") if column is None else column[rows] for column in columns)
        order = np.argsort(days, kind="stable")  # the latest is written last
        latest = np.zeros(self.people.n_people, dtype=np.int64)
        latest[self.people.person_of_row[order]] = order
        return tuple(zip(self.people.ids.tolist(), days[latest].tolist(), versions[latest].tolist(), strict=True))

    @property
    def queries(self) -> Ints:
        """The row of each public point in its own file, by which labels.csv names it."""
        n_public, n_test = self.data.separate
        return self.parts.public - (self.data.n_rows - n_public - n_test) if n_public else self.parts.public

    def features(self, rows: Ints, *, model: str) -> NDArray[Any]:
        """Return rows in the shape that a model needs: channels-first images for nets, vectors otherwise."""
        if model not in STUDENTS or not STUDENTS[model].images:
            return np.asarray(self.data.features(rows))
        if self.data.kind != "image":
            raise InputError(f"model is {model!r}: it needs images, but {self.data.name} is a table")
        images = np.asarray(self.data.features(rows, flat=False))
        return np.moveaxis(images, 3, 1) if images.ndim == 4 else images


def prepare(config: RunConfig) -> Task:
    """Load and partition the data, and find the people of the private part with their budgets."""
    data, parts = (_named if config.data.file is None else _own_files)(config)
    pool = fingerprint(data.classes, data.X[parts.public])
    _check_version(data, parts.private, config)
    people = _people(data, parts.private, config)
    _check_days(data, parts.private, people, config)
    unprotected = _unprotected(data, parts)
    if data.person_id is not None:
        warn_alike([*people.ids.tolist(), *unprotected.tolist()], where=data.name)
    own_pool, own_test = data.separate
    return Task(
        data=data,
        parts=parts,
        people=people,
        unprotected=unprotected,
        pool=pool,
        overlap=config.data.allow_overlap,
        public_truth=own_pool > 0,
        public_test=own_test > 0,
    )


def _named(config: RunConfig) -> tuple[Dataset, Partition]:
    wanted = config.data
    data = load(wanted.name or "")
    parts = partition(
        data.n_rows,
        public=0.1 if wanted.public is None else wanted.public,
        test=0.1 if wanted.test is None else wanted.test,
        seed=config.split_seed,
        person_id=data.person_id,
    )
    return data, parts


def _own_files(config: RunConfig) -> tuple[Dataset, Partition]:
    wanted = config.data
    names = ("label", "level", "epsilon", "person", "consent_date", "consent_version")
    declared = ("features", "drop", "categories", "dates", "numbers", "missing", "origin")
    sources = Sources(
        private=wanted.file,
        public=wanted.public_file,
        test=wanted.test_file,
        roles=Roles(**{name: getattr(wanted, name) for name in names}, part=wanted.public_column),
        classes=wanted.classes,
        declared=Declared.of(**{name: getattr(wanted, name) for name in declared}),
        schema=None if wanted.schema_file is None else Schema.from_file(wanted.schema_file),
    )
    return read_parts(
        sources, n_public=wanted.public, n_test=wanted.test, seed=config.split_seed, allow_overlap=wanted.allow_overlap
    )


def _check_version(data: Dataset, private: Ints, config: RunConfig) -> None:
    """Refuse people who agreed to another version of the policy, since a level may have meant another ε there."""
    wanted, column = config.budgets.policy_version, data.consent_version
    if wanted is None or column is None:
        return
    other = np.sort(private[column[private] != wanted])
    if len(other):
        first, many = int(other[0]), f", the first of {len(other):,} such rows" if len(other) > 1 else ""
        raise InputError(
            f"{_place(data, first)}: consent_version {show(config.data.consent_version)} is "
            f"{show(str(column[first]))}{many}, and the policy is version {show(wanted)}: ask these people for new "
            "consent, or leave their rows out"
        )


def _place(data: Dataset, row: int) -> str:
    """Name a row in a message by its file and line where it has one."""
    return row_name(row) if data.where is None else data.where(row)


def _check_days(data: Dataset, private: Ints, people: People, config: RunConfig) -> None:
    """Refuse people whose latest consent is older than the policy: they cannot have agreed to it."""
    since, column = config.budgets.policy_date, data.consent_date
    if since is None or column is None:
        return
    early = np.flatnonzero(agreed_before(column[private], people.person_of_row, since))
    if early.size:
        who = people.person_of_row[early]
        raise InputError(
            f"{config.data.consent_date} is {show(str(column[private][early[0]]))} for person "
            f"{show(str(people.ids[who[0]]))}, and the policy is valid from {since}: {len(np.unique(who)):,} of "
            f"{people.n_people:,} people agreed before that; ask them for new consent, or leave their rows out"
        )


def _unprotected(data: Dataset, parts: Partition) -> NDArray[np.str_]:
    """Return the ids of the people whose rows are pool or test data, in the form of the ids of `People`."""
    rows = np.concatenate([parts.public, parts.test])
    rows = rows[rows < data.n_rows - sum(data.separate)]  # rows of public files belong to nobody here
    if not len(rows):
        return np.zeros(0, dtype=np.str_)
    return find_rows(rows if data.person_id is None else data.person_id[rows], len(rows), row_name).ids


def _people(data: Dataset, private: Ints, config: RunConfig) -> People:
    """Return the people of the private rows with their budgets.

    Consent from a user's file is neither overridden nor guessed. The levels of a named data set are drawn at random, so
    one ε for everybody may replace them, and they have a default policy.
    """
    given, own = config.budgets, config.data.file is not None
    persons = private if data.person_id is None else data.person_id[private]  # without ids, every row is one person
    epsilon, levels = (None if column is None else column[private] for column in (data.epsilon, data.levels))
    if given.shares is not None and (epsilon is not None or levels is not None):
        raise InputError("budgets.shares is given, but the data has its own consent levels or budgets; leave it out")
    policy = given.policy if own else None
    if levels is not None and given.epsilon is not None and not own:
        levels = None
    elif levels is not None:
        policy = given.policy or (None if own else DEFAULT_POLICY)
    elif epsilon is None and given.epsilon is None:
        if given.shares is None:
            raise InputError(
                f"{data.name} has no consent levels: set budgets.epsilon, or budgets.policy and budgets.shares to draw "
                "levels at random"
            )
        levels, policy = _drawn(given.shares, len(private), config.split_seed), given.policy or DEFAULT_POLICY
    with refusing_large_delta():
        people = make_people(
            len(private),
            budgets=epsilon,
            levels=levels,
            policy=policy,
            epsilon=given.epsilon,
            delta=given.delta,
            person_id=persons,
            source=data.name if config.data.file is None else config.data.file.name,
            merge_within=given.merge_within,
            place=lambda row: _place(data, int(private[row])),
        )
    most = group_limit(
        given.max_groups,
        n_people=people.n_people,
        n_classes=data.n_classes,
        n_teachers=config.teachers.number,
        points_per_teacher=config.teachers.points,
        voting=config.labelling.voting,
    )
    return people.merged(max_groups=most, min_group_size=given.min_group_size)


def _drawn(shares: dict[str, float], n: int, seed: int) -> NDArray[np.str_]:
    """Draw consent levels in the given shares at random."""
    names = list(shares)
    edges = np.round(np.cumsum(list(shares.values())) / sum(shares.values()) * n).astype(int)
    levels = np.array(names)[np.searchsorted(edges, np.arange(n), side="right")]
    return np.random.default_rng([seed, 1]).permutation(levels)


def requested_settings(config: RunConfig, *, n_classes: int) -> dict[str, Any]:
    """Return the requested settings as arguments of `choose_settings`."""
    wanted = config.labelling
    return {
        **wanted.model_dump(exclude={"rule", "power", "min_labels", "embedding"}),
        "nets": config.teachers.model in NETS,
        "student": find_student(config.student.model),
        "options": {name: getattr(wanted, name) for name in ("rule", "power") if getattr(wanted, name) is not None},
        "n_teachers": config.teachers.number,
        "points_per_teacher": config.teachers.points,
        "reference": _reference(config, n_classes),
        "design": None if config.reference.design is None else read_design(config.reference.design),
    }


def embedding(config: RunConfig, shape: Sequence[int]) -> Kind | None:
    """Return the features in which queries and cells of a run are chosen; "auto" is what suits its student.

    `shape` is that of one point of the pool.
    """
    wanted = config.labelling.embedding
    return find_student(config.student.model).embedding(shape) if wanted == "auto" else wanted


def _reference(config: RunConfig, n_classes: int) -> Reference | None:
    """Return the reference of a design; None if the configuration has no reference or names a design."""
    wanted = config.reference
    if wanted.accuracy is None and wanted.votes is None:
        if wanted != ReferenceConfig(design=wanted.design):
            raise InputError("reference needs accuracy, the expected accuracy of a teacher, or votes")
        return None
    if wanted.votes is not None:
        votes, source = read_votes(wanted.votes, classes=n_classes), f"votes of other teachers, {wanted.votes.name}"
        return Reference(votes=votes, source=source, reserve=wanted.reserve, fallback=wanted.fallback)
    guess = Simulator(accuracy=float(wanted.accuracy or 0), spread=wanted.spread, confusion=wanted.confusion)
    return Reference(simulator=guess, reserve=wanted.reserve, fallback=wanted.fallback)


def make_student(config: RunConfig, *, image_shape: tuple[int, ...] | None = None) -> Any:
    """Return the untrained student of a run; `image_shape` is that of one image of the data."""
    student, options = find_student(config.student.model), dict(config.student.options)
    if student.wants_shape and image_shape is not None:
        options.setdefault("image_shape", image_shape)
    return student.make(options, seed=config.split_seed, n_jobs=config.teachers.n_jobs)


@contextmanager
def _about(what: str) -> Iterator[None]:
    """Say in an error whose model it concerns, and where that is set."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{what}: {error}") from None


def check_models(config: RunConfig) -> None:
    """Refuse an invalid student, teacher or engine before anything is written."""
    from ipate.models.workers import Engine

    if config.code is not None:
        import_from(config.code)
    wanted = config.teachers
    with _about("the student ([student] model, or --student)"):
        make_student(config)
    with _about("the teachers ([teachers] model, or --teacher)"):
        make_model(wanted.model, wanted.options)
    if wanted.model in NETS and (wanted.backend is not None or wanted.address is not None):
        raise InputError(
            f"backend is {wanted.backend!r}: {wanted.model} trains in one batched model on a GPU, or in its own "
            "worker processes; leave backend and address out, or name a scikit-learn teacher"
        )
    if wanted.model in NETS and wanted.cpu_seconds is not None:
        raise InputError(
            f"cpu_seconds is {wanted.cpu_seconds:g}: {wanted.model} takes a fixed number of steps, whatever its rows; "
            "leave cpu_seconds out"
        )
    Engine(backend=wanted.engine, n_jobs=wanted.n_jobs, address=wanted.address)
