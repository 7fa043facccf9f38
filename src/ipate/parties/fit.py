"""Fit a site: read its rows, allocate its people to teachers, train these and store them in its private folder."""

import json
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate._version import __version__
from ipate.allocation import VARIANTS, allocate
from ipate.allocation.allocation import Allocation, class_warning
from ipate.data.dataset import Dataset
from ipate.data.files import read_data
from ipate.errors import InputError, check_count, refuse_name, show
from ipate.files import read_npz, replacing, write_text
from ipate.parties.exchange import Encoding, check_site, sha256
from ipate.parties.site import SITE_FORMAT, Bar, Site, no_bar, teacher_file
from ipate.people.people import People, make_people
from ipate.people.policy import Policy
from ipate.planning.choose import usual_points
from ipate.teachers.engines import Engine, one_line
from ipate.teachers.ensemble import Ints, fingerprint, fit_teacher, run_teachers

_DELTA = 1e-5  # a δ computed from the number of people would reveal that number
_README = """This folder is private: it holds the allocation of people to teachers, and the teachers. It never leaves
this site; only the vote files of `ipate party vote` do. The teachers are pickled: load them from no other place.
"""


@dataclass(frozen=True, kw_only=True)
class SiteOptions:
    """What a site says about its data, its people's budgets and its teachers."""

    label: str | None = None  # this and the next three are columns, as in `ipate.data.read_data`
    level: str | None = None
    epsilon_column: str | None = None
    person: str | None = None
    policy: Policy | None = None
    epsilon: float | None = None  # one ε for everybody, if the data has none
    delta: float | None = (
        None  # default: the policy's, else 1e-5; one computed from the people would reveal their number
    )
    merge_within: float | None = None  # as in `People.from_budgets`
    variant: str = "weighting"
    n_teachers: int | None = None
    points_per_teacher: int | None = None  # default: the chooser's rule, on the site's own people
    seed: int = 0  # the public split seed

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            refuse_name("variant", self.variant, [name for name, made in VARIANTS.items() if not made.site_refusal])
        refusal = VARIANTS[self.variant].site_refusal
        if refusal is not None:
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
    bar: Bar = no_bar,
) -> Site:
    """Allocate a site's people to teachers, train these and store both in the site's private folder.

    An interrupted fit is continued if data and settings are the same.
    """
    check_site(name)
    engine = Engine(n_jobs=n_jobs)
    private, stated = out / "private", out / "private" / "site.json"
    if stated.exists():
        raise InputError(f"{out}: already holds a fitted site; name another folder, or remove this one")
    rows = _read_rows(data, encoding, options)
    X = encoding.transform(rows.X)
    allocation = _allocate_people(rows, options, data)
    class_warning(allocation, rows.y)
    dealt = [allocation.rows_of_teacher(teacher) for teacher in range(allocation.n_teachers)]
    budgets = [asdict(group) for group in allocation.groups]
    mark = fingerprint(X, rows.y, *dealt, estimator, options.seed, name, budgets, allocation.teacher_groups)
    _start_folder(out, mark)
    allocation.save(private / "allocation.npz")
    files = [teacher_file(private / "teachers", teacher) for teacher in range(allocation.n_teachers)]
    missing = [teacher for teacher, file in enumerate(files) if not file.exists()]
    shared = {"estimator": estimator, "X": X, "y": rows.y, "seed": options.seed, "folder": private / "teachers"}
    with bar("teachers trained", len(dealt)) as progress:
        run_teachers(
            _fit_one, engine, rows=dealt, missing=missing, shared=shared, outcome="are stored", progress=progress
        )
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
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: is a file; a site needs a folder, so name another path")
    if not started.is_file() and any(teachers.glob("*")):
        raise InputError(f"{teachers}: holds files that no fit has written; name another folder")
    private.mkdir(parents=True, exist_ok=True)
    private.chmod(0o700)
    teachers.mkdir(mode=0o700, exist_ok=True)
    write_text(private / "README", _README)
    write_text(started, f"{mark}\n")


def make_teacher(name: str) -> Any:
    """Return the unfitted classifier of this name; 'logistic' standardises the features within each teacher.

    Public bounds are wide, and a regularised linear model learns little from features that use a small part of [0, 1].
    The scale comes from the teacher's own rows, so it is covered by the teacher's vote.
    """
    from ipate.teachers.models import make_model

    model = make_model(name, {})
    if name != "logistic":
        return model
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), model)


def _fit_one(
    task: tuple[int, Ints], *, estimator: Any, X: NDArray[Any], y: Ints, seed: int, folder: Path
) -> str | None:
    """Train one teacher and store it; return the reason if it failed."""
    import joblib

    teacher, rows = task
    try:
        model = fit_teacher(estimator, X[rows], y[rows], teacher=teacher, seed=seed)
        with replacing(teacher_file(folder, teacher), private=True) as file:
            joblib.dump(model, file)
    except Exception as error:  # a worker must return its reason, whatever the error is
        return f"{type(error).__name__}: {one_line(error)}"
    return None


def _read_rows(data: Path, encoding: Encoding, options: SiteOptions) -> Dataset:
    """Read a site's rows in the encoding of the queries: the same features by name, the same classes in order."""
    if data.suffix.lower() == ".npz" and data.is_file():
        stated = tuple(str(name) for name in read_npz(data, ["classes"]).get("classes", np.array([])).ravel())
        if stated and stated != encoding.classes:
            raise InputError(
                f"{data}: its classes are {show(stated)}, and those of the queries {show(encoding.classes)}"
            )
    rows = read_data(
        data, label=options.label, level=options.level, epsilon=options.epsilon_column, person=options.person,
        features=encoding.features or None, classes=encoding.classes,
    )  # fmt: skip
    encoding.check_rows(rows.X, file=str(data))
    return rows


def _allocate_people(rows: Dataset, options: SiteOptions, data: Path) -> Allocation:
    """Allocate a site's people to its teachers, at least one teacher per group."""
    people = _people(rows, options, data)
    wanted = options.n_teachers
    if wanted is None:
        points = usual_points(people.n_people, rows.n_classes)
        if options.points_per_teacher is not None:
            points = check_count("points_per_teacher", options.points_per_teacher)
        wanted = max(len(people.groups), people.n_people // points)
    return allocate(options.variant, people=people, n_teachers=wanted, seed=options.seed)


def _people(rows: Dataset, options: SiteOptions, data: Path) -> People:
    """Return whose rows these are and what they consent to; δ never depends on how many people there are."""
    delta: float | str = _DELTA if options.delta is None else options.delta
    if options.delta is None and options.policy is not None and options.policy.delta is not None:
        delta = "auto"  # the policy's
    return make_people(
        rows.n_rows, budgets=rows.epsilon, levels=rows.levels, policy=options.policy, epsilon=options.epsilon,
        delta=delta, person_id=rows.person_id, merge_within=options.merge_within, source=str(data),
    )  # fmt: skip
