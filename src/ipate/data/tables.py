"""Raw tables: named columns from csv, parquet and npz files, DataFrames and mappings, before any encoding."""

import zipfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.data import cells
from ipate.data.columns import Where
from ipate.data.csvfile import read_csv
from ipate.errors import InputError, nearest, show
from ipate.files import open_csv, read_npz

SUFFIXES = (".csv", ".parquet", ".pq", ".npz")


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """Columns of equal length by name, as numpy arrays or pyarrow columns; `where` names a row for a message."""

    source: str
    names: tuple[str, ...]
    columns: Mapping[str, Any]
    n_rows: int
    where: Where
    malformed: int = 0  # rows of a csv file with too many or too few cells, whose private cells are missing
    images: NDArray[Any] | None = None  # the array X of an npz file, if it holds images
    classes: tuple[str, ...] | None = None  # the class set, if an npz file states it

    def column(self, name: str, *, role: str = "feature") -> Any:
        """Return a column; one that is not there is refused with the nearest name."""
        if name not in self.columns:
            near = f": nearest is {show(nearest(name, self.names))}" if self.names else ""
            raise InputError(f"{self.source} has no column {show(name)} ({role}){near}")
        return self.columns[name]

    def take(self, rows: NDArray[np.int64]) -> "Table":
        """Return these rows, in this order."""
        taken = {
            name: values[rows] if isinstance(values, np.ndarray) else values.take(rows)
            for name, values in self.columns.items()
        }
        images = None if self.images is None else self.images[rows]
        where = self.where
        return replace(self, columns=taken, n_rows=len(rows), where=lambda row: where(int(rows[row])), images=images)


def open_table(
    source: Any,
    *,
    columns: Collection[str] | None = None,
    kinds: Mapping[str, str] | None = None,
    consent: Collection[str] | None = None,
) -> Table:
    """Read a table from a path, a DataFrame (pandas, polars, pyarrow) or a mapping of columns.

    Parameters
    ----------
    source
        A path that ends in .csv, .parquet or .npz (arrays by name; the columns of `X` are named by `feature_names`,
        else x0, x1, …), a DataFrame, or a mapping from names to one-dimensional arrays.
    columns
        The columns to read, if they exist. Default: all.
    kinds
        What columns of a csv file hold, if this is known: "number", or "category" and "date" for texts of which many
        are equal. They are read faster then.
    consent
        For a file of people: the columns of ids and consent. A malformed row of a csv file is then refused only if
        these cannot be located in it; its other cells are missing. Default: a public file, of which every malformed
        row is refused.
    """
    if isinstance(source, str) or hasattr(source, "__fspath__"):
        return _from_file(Path(source), columns, kinds or {}, consent)
    if isinstance(source, Mapping):
        found = {str(name): _column(values) for name, values in source.items()}
        return _checked("the table", tuple(found), found)
    import narwhals.stable.v2 as nw

    frame = nw.from_native(source, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        raise InputError(f"the table is a {type(source).__name__}: it must be a DataFrame, a mapping or a file's path")
    names = tuple(str(name) for name in frame.columns)
    if len(set(names)) < len(names):
        raise InputError("the table has duplicate column names: column names must be unique")
    wanted = [(own, name) for own, name in zip(frame.columns, names, strict=True) if columns is None or name in columns]
    return _checked("the table", names, {name: frame[own].to_numpy() for own, name in wanted}, n_rows=len(frame))


def _column(values: Any) -> NDArray[Any]:
    """Return a column of a mapping; a list that holds more than numbers keeps each cell as it is."""
    plain = all(isinstance(cell, int | float | np.number) for cell in values) if isinstance(values, list) else True
    return np.asarray(values if plain else cells.alone(values))


def _checked(source: str, names: Sequence[str], columns: Mapping[str, Any], n_rows: int | None = None) -> Table:
    length = len(next(iter(columns.values()), ())) if n_rows is None else n_rows
    for name, values in columns.items():
        if values.shape != (length,):
            raise InputError(f"{source}: column {show(name)} has the shape {values.shape}: it must be ({length},)")
    if not length:
        raise InputError(f"{source} has no rows: it must have at least one")
    where = partial("{}, row {}".format, source)
    return Table(source=source, names=tuple(names), columns=columns, n_rows=length, where=where)


def _from_file(
    path: Path, columns: Collection[str] | None, kinds: Mapping[str, str], consent: Collection[str] | None
) -> Table:
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{path}: the suffix {show(suffix)} is unknown: it must be .csv, .parquet or .npz")
    if not path.is_file():
        raise InputError(f"{path} cannot be read: {'it is a folder' if path.is_dir() else 'No such file'}")
    if suffix == ".npz":
        return _from_npz(path, columns)
    if suffix != ".csv":
        return _from_parquet(path, columns, kinds)
    read = read_csv(path, columns=columns, kinds=kinds, consent=consent)
    return Table(
        source=str(path), names=read.names, columns=read.columns, n_rows=read.n_rows, where=read.where,
        malformed=read.malformed,
    )  # fmt: skip


def _from_npz(path: Path, columns: Collection[str] | None) -> Table:
    """Return the arrays of an npz file that have one entry per row, and each column of its X."""
    arrays = read_npz(path, npz_names(path))
    X, names, classes = arrays.pop("X", None), arrays.pop("feature_names", None), arrays.pop("classes", None)
    if X is None:
        raise InputError(f"{path} has no array 'X': it must hold the features; it has {', '.join(sorted(arrays))}")
    if X.ndim not in (2, 3, 4) or X.size == 0:
        raise InputError(f"{path}: 'X' has the shape {X.shape}: it must be (rows, features) or images, and not empty")
    if X.dtype.kind not in "fiub":
        raise InputError(f"{path}: 'X' is of type {X.dtype}: features must be numeric; encode them")
    named = [] if names is None else [str(name) for name in names.ravel()]
    if names is None and X.ndim == 2:
        named = [f"x{place}" for place in range(X.shape[1])]
    if len(named) != (X.shape[1] if X.ndim == 2 else 0) or len(set(named)) < len(named):
        raise InputError(f"{path}: 'feature_names' has {len(named)} names: X has the shape {X.shape}")
    found: dict[str, Any] = {name: X[:, place] for place, name in enumerate(named)}
    for name, values in arrays.items():
        if name in found or values.shape != (len(X),):
            wrong = f"has the shape {values.shape}" if name not in found else "is also the name of a feature"
            if columns is None or name in columns:
                raise InputError(f"{path}: {name!r} {wrong}: X has {len(X)} rows")
    found.update({name: values for name, values in arrays.items() if values.shape == (len(X),)})
    kept = {name: values for name, values in found.items() if columns is None or name in columns}
    stated = None if classes is None else tuple(str(name) for name in classes.ravel())
    table = _checked(str(path), (*named, *(name for name in arrays if name not in named)), kept, n_rows=len(X))
    return replace(table, images=None if X.ndim == 2 else X, classes=stated)


def npz_names(path: Path) -> list[str]:
    """Return the names of an npz file's arrays."""
    try:
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except (OSError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: not a readable npz file ({error})") from None


def header_of(source: Any) -> tuple[str, ...]:
    """Return the names of a table's columns, without reading its rows where that is possible."""
    if isinstance(source, str) or hasattr(source, "__fspath__"):
        path = Path(source)
        if path.suffix.lower() == ".csv" and not path.is_dir():
            with open_csv(path, consent=()) as (header, _, _):
                return tuple(header)
        return _from_file(path, (), {}, None).names
    return open_table(source, columns=()).names


def _from_parquet(path: Path, columns: Collection[str] | None, kinds: Mapping[str, str]) -> Table:
    """Read the named columns of a parquet file, and no others."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise InputError(
            f"{path}: parquet files need pyarrow, which is not installed: pip install 'ipate[parquet]'"
        ) from None
    try:
        equal = [name for name, kind in kinds.items() if kind in ("category", "date")]
        file = parquet.ParquetFile(path, read_dictionary=equal)
        names = tuple(file.schema_arrow.names)
        if len(set(names)) < len(names):
            raise InputError(f"{path} has duplicate column names: column names must be unique")
        wanted = [name for name in names if columns is None or name in columns]
        table = file.read(columns=wanted)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {' '.join(str(error).split())}") from None
    except pa.ArrowException as error:
        raise InputError(f"{path} is not a readable parquet file: {' '.join(str(error).split())}") from None
    if not names or not table.num_rows:
        raise InputError(f"{path} has no rows: it must have at least one")
    found = {name: table.column(name) for name in wanted}
    where = partial("{}, row {}".format, path)
    return Table(source=str(path), names=names, columns=found, n_rows=table.num_rows, where=where)
