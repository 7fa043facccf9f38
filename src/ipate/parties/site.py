"""The teachers of a site: fitted and stored one by one, loaded to vote, and what they said noted privately.

A site: it trains teachers on its own people's rows in its own folder, and only their votes leave it.

Teachers are stored by joblib, that is, pickled, and whoever can write such a file can run code here. So a teacher is
loaded only from its own site's private folder, only while nobody but the owner can write to that folder, and only if
its file has the hash that was recorded after training. Vote files hold no models and are read without pickle.
"""

import io
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate._types import Ints
from ipate._version import __version__
from ipate.allocation.allocation import Allocation
from ipate.data.dataset import Dataset
from ipate.data.overlap import check_overlap, row_hashes
from ipate.data.schema import LIMIT, Feature, Schema
from ipate.data.sources import read_data
from ipate.engines.context import Bar, Progress, silent
from ipate.engines.teachers.influence import single_class_groups
from ipate.engines.teachers.tuning import group_limit, usual_points
from ipate.engines.teachers.variants import VARIANTS, allocate
from ipate.errors import InputError, check_count, refuse_name, show
from ipate.files import fingerprint, read_npy, read_npz, replacing, write_text
from ipate.models.isolation import FIT, VOTE, Attempt, attempt
from ipate.models.named import dry_fit
from ipate.models.training import (
    FIXED_CLASS,
    Notes,
    constant_teacher,
    fit_teacher,
    predict_votes,
    run_teachers,
    vote_dtype,
)
from ipate.models.workers import Backend
from ipate.parties import exchange
from ipate.parties.exchange import DeclaredGroup, DeclaredTeacher, Encoding, Manifest, Record, check_site, sha256
from ipate.parties.queries import Queries
from ipate.people.budgets import MIN_GROUP_SIZE
from ipate.people.grouping import row_name
from ipate.people.ids import warn_alike
from ipate.people.people import People, make_people
from ipate.people.policy import Policy


def teacher_file(folder: Path, teacher: int) -> Path:
    """Return the file of one teacher."""
    return folder / f"{teacher:05d}.joblib"


def make_teacher(name: str) -> Any:
    """Return the unfitted classifier of this name; 'logistic' standardises by the teacher's own rows, within its vote.

    Public bounds are wide, and a regularised linear model learns little from features that use a small part of [0, 1].
    """
    from ipate.models.named import make_model

    model = make_model(name, {})
    if name != "logistic":
        return model
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), model)


def fit_one(
    task: tuple[int, Ints],
    *,
    estimator: Any,
    X: NDArray[Any],
    y: Ints,
    seed: int,
    folder: Path,
    cpu_seconds: float | None,
    home: int,
) -> Attempt:
    """Train one teacher and store it."""
    teacher, rows = task
    done = attempt(
        lambda: pickled(fit_teacher(estimator, X[rows], y[rows], teacher=teacher, seed=seed)),
        key=(seed, teacher, FIT),
        cpu_seconds=cpu_seconds,
        home=home,
    )
    if not done.failed:
        store(teacher_file(folder, teacher), done.result)
    return replace(done, result=None)


def pickled(model: Any) -> bytes:
    """Return a model as joblib stores it."""
    import joblib

    joblib.dump(model, held := io.BytesIO())
    return held.getvalue()


def store(path: Path, model: bytes) -> None:
    """Write a teacher's file atomically, readable by its owner only."""
    with replacing(path, private=True) as file:
        file.write(model)


def load_and_vote(
    task: tuple[int, Ints],
    *,
    folder: Path,
    hashes: tuple[str, ...],
    X: NDArray[Any],
    n_classes: int,
    cpu_seconds: float | None,
    home: int,
) -> Attempt:
    """Load one teacher, if its file has the known hash, and let it vote."""
    import joblib

    teacher, path = task[0], teacher_file(folder, task[0])
    if path.is_symlink() or not path.is_file():
        raise InputError(f"{path}: the teacher is missing, or is a link; fit the site again")
    data = path.read_bytes()
    if sha256(data) != hashes[teacher]:
        raise InputError(f"{path}: this is not the teacher that was trained, and it is not loaded; fit the site again")
    return attempt(
        lambda: predict_votes(joblib.load(io.BytesIO(data)), X, n_classes=n_classes),
        key=(teacher, VOTE),
        cpu_seconds=cpu_seconds,
        home=home,
    )


def note(private: Path, **sections: Any) -> None:
    """Add sections to the private notes: teachers that failed, and what teachers warned, logged or printed."""
    path = private / "notes.json"
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    write_text(path, json.dumps(kept | sections, indent=2, ensure_ascii=False) + "\n")


SITE_FORMAT = "ipate site 1"
_BACKEND = "loky"  # worker processes, also for one job, so that a crash stays inside a worker
_DELTA = 1e-5  # a δ computed from the number of people would reveal that number
_README = """This folder is private: it holds the allocation of people to teachers, and the teachers. It never leaves
this site; only the vote files of `ipate party vote` do. The teachers are pickled: load them from no other place.
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Site:
    """A fitted site: its name, its encoding, its allocation and the hashes of its teachers' files."""

    folder: Path
    name: str
    fit: str  # a random id of the fitted teachers
    encoding: Encoding
    allocation: Allocation
    hashes: tuple[str, ...]

    @classmethod
    def open(cls, path: Path) -> "Site":
        """Open a fitted site's folder."""
        private = path / "private"
        stated = private / "site.json"
        if not stated.is_file():
            raise InputError(f"{path}: holds no fitted site; `ipate party fit DATA --out {path} …` makes one")
        _check_private(private)
        try:
            values = json.loads(stated.read_text(encoding="utf-8"))
            if values["format"] != SITE_FORMAT:
                found = show(values["format"])
                raise InputError(f"{stated}: its format is {found}, not {SITE_FORMAT!r}; fit the site again")
            encoding = Encoding.model_validate(values["encoding"])
            allocation = Allocation.load(private / "allocation.npz")
            name, fit, hashes = check_site(values["name"]), str(values["fit"]), tuple(values["teachers"])
        except InputError:
            raise
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise InputError(f"{stated}: not readable ({show(str(error))}); fit the site again") from None
        if len(hashes) != allocation.n_teachers:
            raise InputError(f"{stated}: names {len(hashes)} of {allocation.n_teachers} teachers; fit the site again")
        return cls(folder=path, name=name, fit=fit, encoding=encoding, allocation=allocation, hashes=hashes)

    @property
    def groups(self) -> tuple[DeclaredGroup, ...]:
        """The groups that the site declares, with its name in their ids, in the order of the ids."""
        teachers = self.allocation.layout.teachers
        return tuple(
            DeclaredGroup(id=self._own(g.id), epsilon=g.epsilon, delta=g.delta, teachers=teachers[g.id])
            for g in sorted(self.allocation.groups, key=lambda group: group.id)
        )

    def _own(self, name: str) -> str:
        """Prefix an id with the site's name, because equal names at two sites are two groups."""
        return f"{self.name}/{name}"

    def vote(
        self,
        queries: Queries,
        out: Path,
        *,
        again: bool = False,
        n_jobs: int | None = None,
        cpu_seconds: float | None = None,
        bar: Bar = silent,
    ) -> tuple[Manifest, str]:
        """Let all teachers vote and write the vote file; returns its manifest and its fingerprint.

        Every labelling spends the people's budgets again, so a site that has voted on other queries is refused unless
        `again` says that its budgets hold for each labelling. The queries are recorded before the file is released.
        A teacher that fails, or takes more than `cpu_seconds` of CPU time, votes a fixed class; the reason is noted in
        the private folder.
        """
        exchange.require_new(out)
        engine = Backend(backend=_BACKEND, n_jobs=n_jobs)
        with self._sent.locked():
            self._check(queries, again)
            return self._write(queries, out, engine, cpu_seconds, bar)

    @property
    def _sent(self) -> Record:
        return Record(self.folder)

    def _check(self, queries: Queries, again: bool) -> None:
        if difference := queries.encoding.difference(self.encoding):
            raise InputError(
                f"the encoding of the queries differs from that of {self.folder}: {difference}; use the queries file "
                "that the site was fitted with, or fit it again"
            )
        check_public(read_npy(self.folder / "private" / "rows.npy"), queries.points)
        self._sent.check(queries.sha256, again=again)

    def _write(
        self, queries: Queries, out: Path, engine: Backend, cpu_seconds: float | None, bar: Bar
    ) -> tuple[Manifest, str]:
        teachers = tuple(
            DeclaredTeacher(id=self._own(str(number)), group=self._own(group))
            for number, group in enumerate(self.allocation.teacher_groups or ())
        )
        with exchange.new_npz(out) as archive, bar("teachers voted", len(teachers)) as progress:
            dtype, shape = vote_dtype(len(self.encoding.classes)), (len(teachers), len(queries))
            rows = self._votes(queries, engine, cpu_seconds, progress)
            votes = archive.stream("votes", dtype=dtype, shape=shape, blocks=rows)
            manifest = Manifest(
                format=exchange.FORMAT,
                ipate=__version__,
                site=self.name,
                fit=self.fit,
                variant=self.allocation.variant,
                queries=queries.sha256,
                votes=votes,
                n_queries=len(queries),
                encoding=self.encoding,
                groups=self.groups,
                teachers=teachers,
            )
            fingerprint = exchange.seal(archive, manifest)
            self._sent.add(queries.sha256)
        return manifest, fingerprint

    def _votes(
        self, queries: Queries, engine: Backend, cpu_seconds: float | None, progress: Progress
    ) -> Iterator[NDArray[Any]]:
        """Yield the votes of every teacher in turn, one row of class ids each."""
        folder = (self.folder / "private" / "teachers").absolute()
        _check_private(folder.parent)
        _check_private(folder)
        n_classes, numbers = len(self.encoding.classes), range(len(self.hashes))
        shared = {
            "folder": folder,
            "hashes": self.hashes,
            "X": queries.points,
            "n_classes": n_classes,
            "cpu_seconds": cpu_seconds,
            "home": os.getpid(),
        }
        fixed = np.full(len(queries), FIXED_CLASS, dtype=vote_dtype(n_classes))
        notes, held = dict[int, list[str]](), dict[int, NDArray[Any]]()
        found = run_teachers(
            load_and_vote,
            engine,
            rows=[np.empty(0, np.int64)] * len(numbers),
            missing=numbers,
            shared=shared,
            progress=progress,
            notes=notes,
        )
        with closing(found):
            for teacher in numbers:
                while teacher not in held:
                    number, done = next(found)
                    held[number] = fixed if done.failed else done.result
                yield held.pop(teacher)
            next(found, None)  # the last progress
        note(self.folder / "private", votes=notes)


def _check_private(folder: Path) -> None:
    """Refuse to load models from a folder that is a link, or that somebody else owns or can write to."""
    if folder.is_symlink():
        raise InputError(f"{folder}: is a link; a site's private folder must lie in the site itself")
    found = folder.stat()
    if os.name == "posix" and (found.st_uid != os.geteuid() or found.st_mode & 0o022):
        raise InputError(
            f"{folder}: others own it or can write to it, and whoever writes a model can run code here; if you trust "
            "its files, make it yours alone (chown, chmod 700)"
        )


@dataclass(frozen=True, kw_only=True)
class SiteOptions:
    """What a site says about its data, its people's budgets and its teachers."""

    label: str | None = None  # this and the next three are columns, as in `ipate.data.read_data`
    level: str | None = None
    epsilon_column: str | None = None
    person: str | None = None
    policy: Policy | None = None
    epsilon: float | None = None  # one ε for everybody, if the data has none
    delta: float | None = None  # default: the policy's, else 1e-5
    merge_within: float | None = None  # as in `People.from_budgets`
    max_groups: int | str = "auto"  # more groups are merged downwards
    min_group_size: int = MIN_GROUP_SIZE  # smaller groups join the next stricter one
    variant: str = "weighting"
    n_teachers: int | None = None
    points_per_teacher: int | None = None  # default: the chooser's rule, on the site's own people
    seed: int = 0  # the public split seed

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            refuse_name("variant", self.variant, [name for name, made in VARIANTS.items() if not made.site_refusal])
        if refusal := VARIANTS[self.variant].site_refusal:
            raise InputError(f"variant is {self.variant!r}: {refusal}")


def fit_site(
    data: Path,
    out: Path,
    *,
    name: str,
    encoding: Encoding,
    options: SiteOptions,
    estimator: Any,
    n_jobs: int | None = None,
    cpu_seconds: float | None = None,
    points: NDArray[Any] | None = None,
    bar: Bar = silent,
) -> Site:
    """Allocate a site's people to teachers and train these, in its private folder; an interrupted fit is continued.

    Before any private row is used, the teacher is tried on public `points` (the queries; default: made-up ones). A
    teacher that fails, or takes more than `cpu_seconds` of CPU time, votes a fixed class, and the reason is noted in
    the private folder.
    """
    check_site(name)
    engine = Backend(backend=_BACKEND, n_jobs=n_jobs)
    private, stated = out / "private", out / "private" / "site.json"
    if stated.exists():
        raise InputError(f"{out}: already holds a fitted site; name another folder, or remove this one")
    rows = read_rows(data, encoding, options)
    X = encoding.transform(rows.X)
    hashes = row_hashes(X)
    if points is not None:
        check_public(hashes, encoding.transform(points))
    allocation = _allocate_people(rows, options, data)
    dealt = [allocation.rows_of_teacher(teacher) for teacher in range(allocation.n_teachers)]
    public = np.random.default_rng(0).random((200, *encoding.shape)) if points is None else points
    dry_fit(
        estimator,
        encoding.transform(public),
        n_classes=len(encoding.classes),
        rows=max(map(len, dealt)),
        engine=engine,
        cpu_seconds=cpu_seconds,
        stored=True,
    )
    budgets = [asdict(group) for group in allocation.groups]
    mark = fingerprint(X, rows.y, *dealt, estimator, options.seed, name, budgets, allocation.teacher_groups)
    _start_folder(out, mark)
    allocation.save(private / "allocation.npz")
    with replacing(private / "rows.npy", private=True) as file:
        np.save(file, hashes)
    files = [teacher_file(private / "teachers", teacher) for teacher in range(allocation.n_teachers)]
    missing = [teacher for teacher, file in enumerate(files) if not file.exists()]
    teachers = (private / "teachers").absolute()  # a worker may have been started in another folder
    shared = {
        "estimator": estimator,
        "X": X,
        "y": rows.y,
        "seed": options.seed,
        "folder": teachers,
        "cpu_seconds": cpu_seconds,
        "home": os.getpid(),
    }
    notes: Notes = {}
    with bar("teachers trained", len(dealt)) as progress:
        for teacher, done in run_teachers(
            fit_one, engine, rows=dealt, missing=missing, shared=shared, progress=progress, notes=notes
        ):
            if done.failed:
                store(files[teacher], pickled(constant_teacher()))
    single = single_class_groups(allocation, rows.y)
    unit = [line for line in [encoding.other_unit(rows.X)] if line]
    note(private, data=[*rows.private_notes, *unit], teachers=notes, groups=[str(group) for group in single])
    facts = {
        "format": SITE_FORMAT,
        "ipate": __version__,
        "name": name,
        "fit": secrets.token_hex(16),
        "encoding": encoding.model_dump(mode="json"),
        "teachers": [sha256(file.read_bytes()) for file in files],
    }
    write_text(stated, json.dumps(facts, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    return Site.open(out)


def _start_folder(out: Path, mark: str) -> None:
    """Create the site's folder, or accept the one of an interrupted fit with the same mark."""
    private = out / "private"
    teachers, started = private / "teachers", private / "fitting"
    if started.is_file() and started.read_text().strip() != mark:
        raise InputError(f"{out}: holds an unfinished fit with other data or settings; name another folder")
    if not started.is_file() and any(teachers.glob("*")):
        raise InputError(f"{teachers}: holds files that no fit has written; name another folder")
    make_private(out)
    teachers.mkdir(mode=0o700, exist_ok=True)
    write_text(private / "README", _README)
    write_text(started, f"{mark}\n")


def make_private(out: Path) -> Path:
    """Create a site's folder and return its private one, which its owner alone can read."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: is a file; a site needs a folder, so name another path")
    private = out / "private"
    private.mkdir(parents=True, exist_ok=True)
    private.chmod(0o700)
    return private


def check_public(hashes: NDArray[Any], points: NDArray[Any]) -> None:
    """Refuse queries among which are private rows, given by their hashes."""
    check_overlap(hashes, points, what="the queries file", advice="ask for queries that are public")


def read_rows(data: Path, encoding: Encoding, options: SiteOptions) -> Dataset:
    """Read a site's rows in the encoding of the queries: the same features by name, the same classes in order."""
    if data.suffix.lower() == ".npz" and data.is_file():
        stated = tuple(str(name) for name in read_npz(data, ["classes"]).get("classes", np.array([])).ravel())
        if stated and stated != encoding.classes:
            wanted = show(encoding.classes)
            raise InputError(f"{data}: its classes are {show(stated)}, and those of the queries {wanted}")
    rows = read_data(
        data,
        label=options.label,
        level=options.level,
        epsilon=options.epsilon_column,
        person=options.person,
        schema=_schema(encoding),
        classes=encoding.classes,
    )
    encoding.check_rows(rows.X, file=str(data))
    return rows


def _schema(encoding: Encoding) -> Schema | None:
    """Return the schema of a site's table: numbers in their own unit, and the middle of the bounds if missing."""
    if not encoding.features:
        return None
    limits = encoding.bounds or [(-LIMIT, LIMIT)] * len(encoding.features)
    named = zip(encoding.features, limits, strict=True)
    return Schema(tuple(Feature(name=name, kind="number", low=a, high=b, median=(a + b) / 2) for name, (a, b) in named))


def people_of(rows: Dataset, options: SiteOptions, data: Path) -> People:
    """Return a site's people in groups of equal budgets; δ never depends on their number."""
    delta: float | str = _DELTA if options.delta is None else options.delta
    if options.delta is None and options.policy is not None and options.policy.delta is not None:
        delta = "auto"  # the policy's
    people = make_people(
        rows.n_rows,
        budgets=rows.epsilon,
        levels=rows.levels,
        policy=options.policy,
        epsilon=options.epsilon,
        delta=delta,
        person_id=rows.person_id,
        merge_within=options.merge_within,
        source=str(data),
        place=rows.where or row_name,
    )
    if rows.person_id is not None:
        warn_alike(people.ids.tolist(), where=str(data))
    return people


def _allocate_people(rows: Dataset, options: SiteOptions, data: Path) -> Allocation:
    """Allocate a site's people to its teachers, at least one teacher per group."""
    people = people_of(rows, options, data)
    most = group_limit(
        options.max_groups,
        n_people=people.n_people,
        n_classes=rows.n_classes,
        n_teachers=options.n_teachers or "auto",
        points_per_teacher=options.points_per_teacher,
    )
    people = people.merged(max_groups=most, min_group_size=options.min_group_size)
    wanted = options.n_teachers
    if wanted is None:
        points = usual_points(people.n_people, rows.n_classes)
        if options.points_per_teacher is not None:
            points = check_count("points_per_teacher", options.points_per_teacher)
        wanted = max(len(people.groups), people.n_people // points)
    return allocate(options.variant, people=people, n_teachers=wanted, seed=options.seed)
