"""The queries file: the public points that every site votes on, and the encoding of all sites' rows."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from ipate.data.columns import as_text, check_finite
from ipate.errors import InputError, show
from ipate.files import open_csv, plain_number, read_npz, read_table
from ipate.parties.exchange import Encoding, array_sha256, canonical_json, first_problem, new_npz, require_new, sha256

_MEMBERS = ("X", "ids", "encoding")
_POOL = ("X", "feature_names", "bounds", "classes", "queries")


@dataclass(frozen=True, kw_only=True, eq=False)
class Queries:
    """Public points, their ids and their encoding, identified by the hash of all three."""

    X: NDArray[Any]  # before any scaling
    encoding: Encoding
    ids: tuple[str, ...] | None = None  # the points' ids in the labels; default: row numbers
    sha256: str = field(init=False)

    def __post_init__(self) -> None:
        if self.ids is not None and (len(self.ids) != len(self.X) or len(set(self.ids)) < len(self.ids)):
            raise InputError(f"there are {len(set(self.ids))} different ids for {len(self.X)} queries: each needs one")
        about = {"X": array_sha256(self.X), "ids": self.ids, "encoding": self.encoding.model_dump(mode="json")}
        object.__setattr__(self, "sha256", sha256(canonical_json(about)))

    def __len__(self) -> int:
        return len(self.X)

    @property
    def points(self) -> NDArray[Any]:
        """The points as teachers and students read them."""
        return self.encoding.transform(self.X)

    def write(self, path: Path) -> None:
        """Write the file that every site receives; equal queries give equal bytes."""
        require_new(path)
        with new_npz(path) as archive:
            archive.add("X", self.X)
            if self.ids is not None:
                archive.add("ids", np.frombuffer(canonical_json(self.ids), dtype=np.uint8))
            encoding = canonical_json(self.encoding.model_dump(mode="json"))
            archive.add("encoding", np.frombuffer(encoding, dtype=np.uint8))
        path.chmod(0o644)


def read_queries(path: Path) -> Queries:
    """Read a file that `Queries.write` wrote, without pickle."""
    if not path.is_file():
        raise InputError(f"{path}: no such file; `ipate parties queries` writes a queries file")
    arrays = read_npz(path, _MEMBERS)
    if not {"X", "encoding"} <= set(arrays):
        raise InputError(f"{path}: is not a queries file; `ipate parties queries {path} --out queries.npz` makes one")
    try:
        encoding = Encoding.model_validate_json(arrays["encoding"].tobytes())
        ids = None if "ids" not in arrays else tuple(str(name) for name in json.loads(arrays["ids"].tobytes()))
    except (ValidationError, ValueError) as error:
        raise InputError(f"{path}: its encoding cannot be read ({show(str(error))}); ask for the file again") from None
    queries = Queries(X=arrays["X"], encoding=encoding, ids=ids)
    if queries.X.shape[1:] != encoding.shape or queries.X.dtype.kind not in "fiub" or not len(queries):
        raise InputError(
            f"{path}: has {len(queries)} rows of {queries.X.dtype} and the shape {queries.X.shape[1:]}: they must be "
            f"numbers of the shape {encoding.shape}; ask for the file again"
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
    """Make queries from a public pool, which is a csv with one column per feature, or an npz.

    An npz holds `X` and, for tables, `feature_names`; `classes`, `bounds` and `queries` (ids) are optional. `bounds` is
    a csv with `feature,low,high`, fixed without looking at private data. `features` (default: all but `id_column`) and
    `id_column` name columns of a csv.
    """
    ending = pool.suffix.lower()
    if ending not in (".csv", ".npz"):
        raise InputError(f"{pool}: the file type {show(ending)} is unknown: a pool is a csv or an npz file")
    if not pool.is_file():
        raise InputError(f"{pool}: no such file; a pool is a csv or an npz file of public points")
    arrays = read_npz(pool, _POOL) if ending == ".npz" else _read_csv(pool, features, id_column)
    if ending == ".npz" and (features is not None or id_column is not None):
        raise InputError(f"{pool}: an npz file names its own features and ids ('feature_names', 'queries')")
    if "X" not in arrays:
        raise InputError(f"{pool} has no array 'X': it must hold the points")
    X, names = _points(pool, arrays)
    stated = tuple(classes) if classes is not None else tuple(str(name) for name in arrays.get("classes", ()))
    fixed: Any = _read_bounds(str(bounds), names) if bounds is not None else None
    if bounds is None and "bounds" in arrays:
        fixed = arrays["bounds"].tolist()
    try:
        encoding = Encoding(classes=stated, features=names, bounds=fixed, shape=X.shape[1:])
    except ValidationError as error:
        raise InputError(f"{pool}: {first_problem(error)}") from None
    encoding.check_rows(X, file=str(pool))
    if difference := encoding.other_unit(X):
        raise InputError(f"{pool}: {difference}")
    encoding.transform(X[:1])  # refuse unusable bounds and pixels here rather than at every site
    ids = arrays.get("queries")
    texts = None if ids is None else as_text(ids, "query id", lambda row: f"{pool}, row {row}")
    return Queries(X=X, encoding=encoding, ids=None if texts is None else tuple(texts.tolist()))


def _points(pool: Path, arrays: dict[str, NDArray[Any]]) -> tuple[NDArray[Any], tuple[str, ...]]:
    X = arrays["X"]
    names = tuple(str(name) for name in arrays["feature_names"].ravel()) if "feature_names" in arrays else ()
    if X.ndim not in (2, 3, 4) or X.size == 0 or X.dtype.kind not in "fiub":
        raise InputError(f"{pool}: 'X' is {X.dtype} of the shape {X.shape}: it must be a table of numbers or images")
    if X.ndim == 2:
        X = X.astype(np.float64)
        if not names:
            raise InputError(f"{pool} has no 'feature_names': sites match their columns to the queries by name")
    check_finite(X, names, lambda row: f"{pool}, row {row}")
    return X, names


def _read_csv(pool: Path, features: Sequence[str] | None, id_column: str | None) -> dict[str, NDArray[Any]]:
    """Read the points of a csv, whose features must all be numbers."""
    chosen = list(features or ())
    if features is None:
        with open_csv(pool) as (header, _, _):
            chosen = [name for name in header if name != id_column]
    table = read_table(pool, required=chosen if id_column is None else [*chosen, id_column], others=True)
    X = np.empty((len(table.lines), len(chosen)))
    for column, name in enumerate(chosen):
        cells = table.texts(name)
        try:
            X[:, column] = cells
        except ValueError:
            row = next(row for row, cell in enumerate(cells) if plain_number(cell) is None)
            raise InputError(
                f"{table.where(row)}: feature {show(name)} is {show(cells[row])}: features must be numbers; encode "
                "this column, or list the numeric ones with --features"
            ) from None
    arrays: dict[str, NDArray[Any]] = {"X": X, "feature_names": np.array(chosen)}
    if id_column is not None:
        arrays["queries"] = np.array(table.texts(id_column))
    return arrays


def _read_bounds(path: str, features: Sequence[str]) -> tuple[tuple[float, float], ...]:
    """Read a csv with `feature,low,high` and one row per feature, in any order."""
    table = read_table(path, required=("feature", "low", "high"))
    found: dict[str, tuple[float, float]] = {}
    for row, name in enumerate(table.texts("feature")):
        if name not in features or name in found:
            wrong = "duplicate" if name in found else "unknown"
            known = show(tuple(features))
            raise InputError(f"{table.where(row)}: {wrong} feature {show(name)}; the features are {known}")
        try:
            found[name] = (float(table.texts("low")[row]), float(table.texts("high")[row]))
        except ValueError:
            raise InputError(f"{table.where(row)}: low and high must be numbers") from None
        if not -np.inf < found[name][0] < found[name][1] < np.inf:
            raise InputError(f"{table.where(row)}: the bounds are {found[name]}: low must be below high, both finite")
    for name in features:
        if name not in found:
            raise InputError(f"{path}: there are no bounds for feature {show(name)}: every feature needs a row")
    return tuple(found[name] for name in features)
