"""The queries: public points that every site votes on, in one file that also says how rows are encoded."""

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from ipate.allocation import allocate
from ipate.allocation.allocation import Allocation
from ipate.data.columns import as_text, check_finite
from ipate.data.dataset import Dataset
from ipate.data.files import read_data
from ipate.errors import InputError, check_count, refuse_name, show
from ipate.files import read_npz, read_table
from ipate.parties.archive import Encoding, array_sha256, canonical, new_npz, read_bounds, require_new, sha256
from ipate.people.people import People, make_people
from ipate.people.policy import Policy
from ipate.planning.choose import usual_points

_MEMBERS = ("X", "ids", "encoding")
_POOL = ("X", "feature_names", "bounds", "classes", "queries")


@dataclass(frozen=True, kw_only=True, eq=False)
class Queries:
    """Public points, their ids and their encoding; known by the hash of all three.

    Attributes
    ----------
    X : array
        The points as they were given, before any scaling.
    ids : tuple of str, optional
        What the points are called in the labels; their row numbers unless given.
    encoding : Encoding
    sha256 : str
        The hash of the contents, by which sites and aggregator know that they mean the same queries.
    """

    X: NDArray[Any]
    encoding: Encoding
    ids: tuple[str, ...] | None = None
    sha256: str = field(init=False)

    def __post_init__(self) -> None:
        if self.ids is not None and (len(self.ids) != len(self.X) or len(set(self.ids)) < len(self.ids)):
            raise InputError(f"there are {len(set(self.ids))} different ids for {len(self.X)} queries: each needs one")
        about = {"X": array_sha256(self.X), "ids": self.ids, "encoding": self.encoding.model_dump(mode="json")}
        object.__setattr__(self, "sha256", sha256(canonical(about)))

    def __len__(self) -> int:
        return len(self.X)

    def write(self, path: Path) -> None:
        """Write the file that goes to every site; the same queries give the same bytes."""
        require_new(path)
        with new_npz(path) as archive:
            archive.add("X", self.X)
            if self.ids is not None:
                archive.add("ids", np.frombuffer(canonical(self.ids), dtype=np.uint8))
            encoding = canonical(self.encoding.model_dump(mode="json"))
            archive.add("encoding", np.frombuffer(encoding, dtype=np.uint8))
        path.chmod(0o644)


def read_queries(path: Path) -> Queries:
    """Read a file that `Queries.write` made; nothing is unpickled."""
    if not path.is_file():
        raise InputError(f"{path}: no such file; `ipate parties queries` makes a queries file")
    arrays = read_npz(path, _MEMBERS)
    if not {"X", "encoding"} <= set(arrays):
        raise InputError(f"{path}: is no queries file; make one with `ipate parties queries {path} --out queries.npz`")
    try:
        encoding = Encoding.model_validate_json(arrays["encoding"].tobytes())
        ids = None if "ids" not in arrays else tuple(str(name) for name in json.loads(arrays["ids"].tobytes()))
    except (ValidationError, ValueError) as error:
        raise InputError(f"{path}: its encoding cannot be read ({show(str(error))}); ask for the file again") from None
    queries = Queries(X=arrays["X"], encoding=encoding, ids=ids)
    if queries.X.shape[1:] != encoding.shape or queries.X.dtype.kind not in "fiub" or not len(queries):
        found = f"rows of {queries.X.dtype} and the shape {queries.X.shape[1:]}"
        raise InputError(
            f"{path}: has {len(queries)} {found}: they must be numbers, {encoding.shape}; ask for it again"
        )
    check_finite(queries.X, encoding.features, lambda row: f"{path}, row {row}")
    return queries


def make_queries(
    pool: Path,
    *,
    classes: Sequence[str] | None = None,
    bounds: Path | None = None,
    features: Sequence[str] | None = None,
    id_column: str | None = None,
) -> Queries:
    """Make queries of a public pool.

    Parameters
    ----------
    pool
        A csv with a column per feature, or an npz with `X` and, for tables, `feature_names`; it may hold `classes`,
        `bounds` and `queries` (ids) too.
    classes
        The class set, in order.
    bounds
        A csv with `feature,low,high`: fixed, known without looking at anybody's data.
    features
        The columns of a csv to use; all but the id column unless given.
    id_column
        The column of a csv that names the points.
    """
    ending = pool.suffix.lower()
    if ending not in (".csv", ".npz"):
        raise InputError(f"{pool}: the ending {show(ending)} is unknown: a pool is a csv or an npz file")
    if not pool.is_file():
        raise InputError(f"{pool}: no such file; a pool is a csv or an npz file of public points")
    arrays = read_npz(pool, _POOL) if ending == ".npz" else _read_csv(pool, features, id_column)
    if ending == ".npz" and (features is not None or id_column is not None):
        raise InputError(f"{pool}: an npz file names its own features and ids ('feature_names', 'queries')")
    if "X" not in arrays:
        raise InputError(f"{pool} has no array 'X': it must hold the points")
    X, names = _points(pool, arrays)
    stated = tuple(classes) if classes is not None else tuple(str(name) for name in arrays.get("classes", ()))
    fixed: Any = None
    if bounds is not None:
        fixed = read_bounds(str(bounds), names)
    elif "bounds" in arrays:
        fixed = tuple(tuple(pair) for pair in arrays["bounds"].tolist())
    try:
        encoding = Encoding(classes=stated, features=names, bounds=fixed, shape=X.shape[1:])
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InputError(f"{pool}: {first['msg'].removeprefix('Value error, ')}") from None
    encoding.check_rows(X, file=str(pool))
    encoding.transform(X[:1])  # bounds and pixels that cannot be used are refused here, not at every site
    ids = arrays.get("queries")
    texts = None if ids is None else as_text(ids, "query id", lambda row: f"{pool}, row {row}")
    return Queries(X=X, encoding=encoding, ids=None if texts is None else tuple(texts.tolist()))


def _points(pool: Path, arrays: dict[str, NDArray[Any]]) -> tuple[NDArray[Any], tuple[str, ...]]:
    X = arrays["X"]
    names = tuple(str(name) for name in arrays["feature_names"].ravel()) if "feature_names" in arrays else ()
    if X.ndim not in (2, 3, 4) or X.size == 0 or X.dtype.kind not in "fiub":
        raise InputError(f"{pool}: 'X' is {X.dtype} of the shape {X.shape}: it must be a table of numbers, or images")
    if X.ndim == 2:
        X = X.astype(np.float64)
        if not names:
            raise InputError(f"{pool} has no 'feature_names': sites match their columns with the queries by name")
    check_finite(X, names, lambda row: f"{pool}, row {row}")
    return X, names


def _read_csv(pool: Path, features: Sequence[str] | None, id_column: str | None) -> dict[str, NDArray[Any]]:
    """Read the points of a csv column by column; every feature is a number."""
    try:
        with pool.open(encoding="utf-8-sig", newline="") as stream:
            header = [cell.strip() for cell in next(csv.reader(stream), [])]
    except (OSError, UnicodeDecodeError, csv.Error):
        header = []  # reading the table says what is wrong
    chosen = tuple(features) if features is not None else tuple(name for name in header if name != id_column)
    wanted = [*chosen, *([] if id_column is None else [id_column])]
    table = read_table(pool, required=wanted, others=True)
    X = np.empty((len(table.lines), len(chosen)))
    for column, name in enumerate(chosen):
        cells = table.texts(name)
        try:
            X[:, column] = np.array(cells, dtype=np.float64)
        except ValueError:
            row = next(row for row, cell in enumerate(cells) if not _is_number(cell))
            raise InputError(
                f"{table.where(row)}: feature {show(name)} is {show(cells[row])}: features must be numbers; encode "
                "this column, or list the numeric ones with --features"
            ) from None
    arrays: dict[str, NDArray[Any]] = {"X": X, "feature_names": np.array(chosen)}
    if id_column is not None:
        arrays["queries"] = np.array(table.texts(id_column))
    return arrays


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


SITE_DELTA = 1e-5  # a δ made from the number of people would tell that number
_REFUSED = {
    "upsampling": (
        "copies are whole numbers in the ratio of all people's budgets, and a site knows its own people only; and "
        "teachers that mix groups cannot be weighted by budgets when votes are merged; use weighting"
    ),
    "vanishing": (
        "who sits out depends on the budgets of all sites; fit with weighting, which trains the same teachers, and "
        "let the aggregator choose: ipate label --variant vanishing"
    ),
}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a site says about its data, its people's budgets and its teachers.

    Attributes
    ----------
    label, level, epsilon_column, person : str, optional
        The columns of the class, the consent level or the ε, and the person, as in `ipate.data.read_data`.
    policy : Policy, optional
        What levels mean.
    epsilon : float, optional
        One ε for everybody, where the data names none.
    delta : float, optional
        δ; the policy's unless given, else 1e-5. A δ made from the number of people would tell that number.
    merge_within : float, optional
        As in `People.from_budgets`.
    variant : {"weighting", "standard"}
    n_teachers, points_per_teacher : int, optional
        How many teachers, or how many people each should have; by the chooser's rule for the site's own people
        unless given.
    seed : int
        The public split seed.
    """

    label: str | None = None
    level: str | None = None
    epsilon_column: str | None = None
    person: str | None = None
    policy: Policy | None = None
    epsilon: float | None = None
    delta: float | None = None
    merge_within: float | None = None
    variant: str = "weighting"
    n_teachers: int | None = None
    points_per_teacher: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.variant in _REFUSED:
            raise InputError(f"variant is {self.variant!r}: {_REFUSED[self.variant]}")
        if self.variant not in ("weighting", "standard"):
            refuse_name("variant", self.variant, ("weighting", "standard"))


def read_rows(data: Path, encoding: Encoding, asked: Asked) -> Dataset:
    """Read a site's rows as the queries are encoded: the same features by name, the same classes in order."""
    if data.suffix.lower() == ".npz" and data.is_file():
        stated = tuple(str(name) for name in read_npz(data, ["classes"]).get("classes", np.array([])).ravel())
        if stated and stated != encoding.classes:
            raise InputError(
                f"{data}: its classes are {show(stated)}, and those of the queries {show(encoding.classes)}"
            )
    rows = read_data(
        data, label=asked.label, level=asked.level, epsilon=asked.epsilon_column, person=asked.person,
        features=encoding.features or None, classes=encoding.classes,
    )  # fmt: skip
    encoding.check_rows(rows.X, file=str(data))
    return rows


def allocate_people(rows: Dataset, asked: Asked, data: Path) -> Allocation:
    """Deal a site's people to its teachers; more groups than teachers would be refused, so each has one at least."""
    people = _people(rows, asked, data)
    wanted = asked.n_teachers
    if wanted is None:
        points = usual_points(people.n_people, rows.n_classes)
        if asked.points_per_teacher is not None:
            points = check_count("points_per_teacher", asked.points_per_teacher)
        wanted = max(len(people.groups), people.n_people // points)
    return allocate(asked.variant, people=people, n_teachers=wanted, seed=asked.seed)


def _people(rows: Dataset, asked: Asked, data: Path) -> People:
    """Return whose rows these are and what they consent to; δ never depends on how many people there are."""
    delta: float | str = SITE_DELTA if asked.delta is None else asked.delta
    if asked.delta is None and asked.policy is not None and asked.policy.delta is not None:
        delta = "auto"  # the policy's
    return make_people(
        rows.n_rows, budgets=rows.epsilon, levels=rows.levels, policy=asked.policy, epsilon=asked.epsilon, delta=delta,
        person_id=rows.person_id, merge_within=asked.merge_within, source=str(data),
    )  # fmt: skip
