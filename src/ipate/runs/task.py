"""The input of a run: the partitioned data, the people with their budgets, and the requested settings."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate._types import Ints
from ipate.accounting.ladder import Design
from ipate.allocation.allocation import Allocation
from ipate.config import RunConfig
from ipate.data import load
from ipate.data.columns import Roles
from ipate.data.dataset import Dataset, Partition, partition
from ipate.data.frames import RowBlocks
from ipate.data.schema import Declared, Schema
from ipate.data.sources import Sources, read_parts
from ipate.engines.ballots.engine import Ballots
from ipate.engines.base import Engine
from ipate.engines.choose import Request
from ipate.engines.context import Task
from ipate.engines.teachers.engine import Teachers
from ipate.engines.teachers.reference import Reference, Simulator, read_design
from ipate.engines.teachers.votes import read_votes
from ipate.errors import InputError, show
from ipate.files import fingerprint
from ipate.ledger.admission import Roster
from ipate.ledger.records import PolicyTerms
from ipate.models.named import NETS, import_from, make_model
from ipate.models.workers import Backend
from ipate.options import ReferenceConfig
from ipate.people.grouping import find_rows, refusing_large_delta, row_name
from ipate.people.ids import warn_alike
from ipate.people.people import People, make_people
from ipate.people.policy import agreed_before
from ipate.pipeline import Options, Pupil
from ipate.runs.folder import RunFolder
from ipate.students.student import find_student

DEFAULT_POLICY = {"high": 1.0, "average": 2.0, "low": 3.0}


@dataclass(frozen=True, kw_only=True, eq=False)
class FileTask(Task):
    """The partitioned data of a run and the people of its private part.

    `unprotected` has the ids of the people whose rows of the private file are used as pool or test data. `overlap`
    says that private rows or people may also be in a public file, so that the run has no guarantee, whether they are
    or not; `public_truth` and `public_test`, that the pool and the test data come from public files with their labels.
    """

    config: RunConfig
    data: Dataset
    parts: Partition
    people: People
    unprotected: tuple[str, ...]
    fingerprint: str
    name: str
    classes: tuple[str, ...]
    seed: int
    notes: tuple[str, ...] = ()
    overlap: bool = False
    public_truth: bool = False
    public_test: bool = False

    @property
    def public_metrics(self) -> frozenset[str]:
        """The names of the metrics that depend on releases and public data alone.

        The student is public, so its scores on a public test file are too; on rows of people they are not.
        """
        known = {"labels", "queries", "reinforced", "labels_of_standard_pate", "label_notes"}
        known |= {"voting_accuracy"} if self.public_truth else set()
        scores = {"student_accuracy", "balanced_accuracy", "majority_accuracy", "by_class"}
        return frozenset(known | (scores if self.public_test else set()))

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
    def points(self) -> Ints:
        """The row of each public point in its own file, by which labels.csv names it."""
        n_public, n_test = self.data.separate
        return self.parts.public - (self.data.n_rows - n_public - n_test) if n_public else self.parts.public

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of public points and the shape of one."""
        return (len(self.parts.public), *self.data.X.shape[1:])

    @property
    def image(self) -> tuple[int, ...] | None:
        """The shape of one image; None for a table."""
        return self.shape[1:] if self.data.kind == "image" else None

    def pool(self, form: str = "model") -> NDArray[Any]:
        """Return the public points."""
        rows = self.parts.public
        return np.asarray(self.data.X[rows]) if form == "numbers" else self.features(rows, form)

    def rows(self, form: str = "model") -> Any:
        """Return the private rows."""
        rows = self.parts.private
        return RowBlocks(self.data.X, rows) if form == "numbers" else self.features(rows, form)

    @property
    def codes(self) -> Ints:
        """The class id of every private row."""
        return np.asarray(self.data.y[self.parts.private])

    @property
    def truth(self) -> Ints:
        """The class ids of the public points."""
        return np.asarray(self.data.y[self.parts.public])

    def features(self, rows: Ints, form: str) -> NDArray[Any]:
        """Return rows as a model reads them: channels-first images for nets, vectors otherwise."""
        if form != "images":
            return np.asarray(self.data.features(rows))
        if self.data.kind != "image":
            raise InputError(f"the model is a net: it needs images, but {self.data.name} is a table")
        images = np.asarray(self.data.features(rows, flat=False))
        return np.moveaxis(images, 3, 1) if images.ndim == 4 else images

    def roster(self, allocation: Allocation) -> Roster:
        """Return the people of the run for its ledger, with the answers of the configuration."""
        return roster_of(self.config, allocation, self.unprotected)


def roster_of(config: RunConfig, allocation: Allocation, unprotected: Sequence[str] = ()) -> Roster:
    """Return the people of a run for its ledger, with the answers of the configuration."""
    return Roster(
        people=allocation.members(),
        unprotected=unprotected,
        withdrawn=allocation.former(),
        policy=_policy(config),
        rows=config.data.file is None or config.data.person is None,
        overlap=config.data.allow_overlap,
        new_people=config.new_people,
        accept_larger_budgets=config.accept_larger_budgets,
    )


def _policy(config: RunConfig) -> PolicyTerms | None:
    """Return what the people of a run agreed to; None without a version, or where everybody chose their own ε."""
    given = config.budgets
    levels = given.policy or ({} if given.epsilon is None else {"everybody": given.epsilon})
    if given.policy_version is None or not levels:
        return None
    delta = None if given.delta == "auto" else given.delta
    return PolicyTerms(given.policy_version, tuple(sorted(levels.items())), delta)


def prepare(config: RunConfig) -> FileTask:
    """Load and partition the data, and find the people of the private part with their budgets."""
    data, parts = (_named if config.data.file is None else _own_files)(config)
    pool = fingerprint(data.classes, data.X[parts.public])
    _check_version(data, parts.private, config)
    people = _people(data, parts.private, config)
    _check_days(data, parts.private, people, config)
    unprotected = tuple(_unprotected(data, parts).tolist())
    if data.person_id is not None:
        warn_alike([*people.ids.tolist(), *unprotected], where=data.name)
    own_pool, own_test = data.separate
    return FileTask(
        config=config,
        data=data,
        parts=parts,
        people=people,
        unprotected=unprotected,
        fingerprint=pool,
        name=data.name,
        classes=data.classes,
        seed=config.split_seed,
        notes=data.notes,
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
        return make_people(
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


def _drawn(shares: dict[str, float], n: int, seed: int) -> NDArray[np.str_]:
    """Draw consent levels in the given shares at random."""
    names = list(shares)
    edges = np.round(np.cumsum(list(shares.values())) / sum(shares.values()) * n).astype(int)
    levels = np.array(names)[np.searchsorted(edges, np.arange(n), side="right")]
    return np.random.default_rng([seed, 1]).permutation(levels)


def request_of(config: RunConfig, *, n_classes: int | None = None) -> Request:
    """Return the engine that a configuration asks for; without `n_classes` the source of a design is not read."""
    wanted, teachers = config.labelling, config.teachers
    asked = wanted.model_dump(exclude={"voting", "min_labels"})
    shared = {name: asked[name] for name in ("variant", "embedding", "bound", "conversion")}
    return Request(
        engine=wanted.voting,
        teachers=Teachers(
            model=teachers.model,
            options=teachers.options,
            number=teachers.number,
            points=teachers.points,
            reference=None if n_classes is None else _reference(config, n_classes),
            **asked,
        ),
        ballots=Ballots(**shared),
        needed=wanted.min_labels,
        key="labelling.min_labels or --min-labels",
    )


def engine_of(folder: RunFolder) -> Engine[Any]:
    """Return the engine of a run whose settings are resolved, with the options of its configuration."""
    return request_of(folder.config).named(folder.settings.engine)


def options_of(config: RunConfig, *, n_classes: int, image: tuple[int, ...] | None = None) -> Options:
    """Return what a configuration asks of a run; `image` is the shape of one image of the data."""
    return Options(
        request=request_of(config, n_classes=n_classes),
        pupil=Pupil(student=find_student(config.student.model), model=make_student(config, image_shape=image)),
        noise_seed=config.seed,
        max_groups=config.budgets.max_groups,
        min_group_size=config.budgets.min_group_size,
        compute=compute_of(config),
    )


def compute_of(config: RunConfig) -> Backend:
    """Return where the models of a run are trained; worker processes also for one job, so that a crash stays there."""
    wanted = config.teachers
    return Backend(
        backend=wanted.engine,
        n_jobs=wanted.n_jobs,
        address=wanted.address,
        device=wanted.device,
        cpu_seconds=wanted.cpu_seconds,
    )


def _reference(config: RunConfig, n_classes: int) -> Reference | Design | None:
    """Return the reference of a design, or the design; None if the configuration has neither."""
    wanted = config.reference
    if wanted.design is not None:
        return read_design(wanted.design)
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
    compute_of(config)
