"""Files of the user's own: csv, parquet and npz, with named columns."""

import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.data.columns import (
    Columns,
    Labels,
    Roles,
    as_text,
    check_epsilon,
    check_finite,
    label_array,
    place_labels,
    read_csv,
)
from ipate.data.dataset import Dataset
from ipate.errors import ClassesWarning, InputError, nearest, show
from ipate.files import FilePath, read_npz


def read_data(
    path: FilePath,
    *,
    label: str | None = None,
    level: str | None = None,
    epsilon: str | None = None,
    person: str | None = None,
    features: Sequence[str] | None = None,
    classes: Sequence[object] | None = None,
) -> Dataset:
    """Read a file of rows with named columns; whatever cannot be used is refused with its place and value.

    Parameters
    ----------
    path
        A file that ends in .csv, .parquet (needs pyarrow) or .npz.
    label
        The column of the class. In an npz file all these name arrays, and need not be named: see `read_arrays`.
    level, epsilon
        The column of the consent level or of the ε of each row, if there is one; not both.
    person
        The column that says whose a row is; without it every row is a person of its own.
    features
        The columns to learn from; all the other columns unless given. They must be numbers.
    classes
        The class set, in order. Which classes exist is public, so it should come from you; left out, it is
        read off the labels, and a `ClassesWarning` says so.
    """
    file = Path(path)
    for name, value in (("features", features), ("classes", classes)):
        if isinstance(value, str):
            raise InputError(f"{name} is {show(value)}: it must be a list of names")
    given = None if classes is None else tuple(str(name) for name in classes)
    named: dict[str, str | None] = {"label": label, "level": level, "epsilon": epsilon, "person": person}
    columns, given = _read(file, named, None if features is None else tuple(features), given)
    y, names = place_labels(columns.labels, given, what=f"label {show(label or 'y')}", where=columns.where)
    notes: tuple[str, ...] = ()
    if given is None:
        words = (
            f"{file}: classes are not given: the {len(names)} that occur are taken as public ({show(', '.join(names))})"
        )
        warnings.warn(words, ClassesWarning, stacklevel=2)
        notes = (f"The class set was read off the labels and declared public: {show(', '.join(names))}.",)
    return Dataset(
        name=file.stem,
        X=columns.X,
        y=y,
        classes=names,
        kind="table" if columns.X.ndim == 2 else "image",
        levels=columns.levels,
        epsilon=columns.epsilon,
        person_id=columns.person_id,
        feature_names=columns.feature_names,
        notes=notes,
        source=file.name,
    )


def _read(
    file: Path, named: dict[str, Any], features: tuple[str, ...] | None, classes: tuple[str, ...] | None
) -> tuple[Columns, tuple[str, ...] | None]:
    """Read by the file's ending; an npz file may state its class set itself."""
    ending = file.suffix.lower()
    if ending == ".npz":
        return read_arrays(file, {**named, "features": features}, classes)
    if ending not in (".csv", ".parquet", ".pq"):
        raise InputError(f"{file}: the ending {show(ending)} is unknown: it must be .csv, .parquet or .npz")
    if named["label"] is None:
        raise InputError(f"{file}: label is not given: name the column that holds the class")
    roles = Roles(**named, features=features)
    return (read_csv(file, roles) if ending == ".csv" else read_parquet(file, roles)), classes


_DEFAULTS = {"label": "y", "level": "levels", "epsilon": "epsilon", "person": "person"}


def read_arrays(
    path: Path, roles: dict[str, Any], classes: tuple[str, ...] | None
) -> tuple[Columns, tuple[str, ...] | None]:
    """Read the arrays of an npz file, and the class set that is given or that the file states.

    `label`, `level`, `epsilon` and `person` name arrays here; unless named, they are `y`, `levels`, `epsilon`
    and `person`, the last three where the file has them. Labels that are whole numbers, in a class set of
    words, are places in it.
    """
    there = _names(path)
    used = {role: _pick(path, there, role, roles[role]) for role in _DEFAULTS}
    if used["level"] and used["epsilon"]:
        if (roles["level"] is None) == (roles["epsilon"] is None):
            raise InputError(f"{path} has levels and epsilon: a row has one of them; name the one to use")
        used["level" if roles["level"] is None else "epsilon"] = None
    if "X" not in there:
        raise InputError(f"{path} has no array 'X': it must hold the features; it has {', '.join(there)}")
    extra = {"X", "feature_names", "classes"}
    arrays = read_npz(path, extra | {name for name in used.values() if name})

    def where(row: int) -> str:
        return f"{path}, row {row}"

    X, names = _features(path, arrays, roles["features"])
    for name in filter(None, used.values()):
        if arrays[name].shape != (len(X),):
            raise InputError(f"{path}: {name!r} has the shape {arrays[name].shape}: X has {len(X)} rows")
    check_finite(X, names, where)
    if classes is None and "classes" in arrays:
        classes = tuple(str(name) for name in arrays["classes"].ravel())
    level, person, epsilon = used["level"], used["person"], used["epsilon"]
    columns = Columns(
        X=X,
        labels=_labels(arrays[used["label"] or "y"], classes, where),
        levels=as_text(arrays[level], level, where) if level else None,
        epsilon=check_epsilon(_floats(path, arrays[epsilon], epsilon), epsilon, where) if epsilon else None,
        person_id=as_text(arrays[person], person, where) if person else None,
        feature_names=names,
        where=where,
    )
    return columns, classes


def _names(path: Path) -> list[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except zipfile.BadZipFile as error:
        raise InputError(f"{path}: not a readable npz file ({error})") from None


def _pick(path: Path, there: list[str], role: str, asked: str | None) -> str | None:
    name = asked or _DEFAULTS[role]
    if name in there:
        return name
    if asked is None and role != "label":
        return None
    close = f": nearest is {show(nearest(name, there))}" if there else ": it is empty"
    raise InputError(f"{path} has no array {show(name)} ({role}){close}")


def _features(
    path: Path, arrays: dict[str, NDArray[Any]], chosen: tuple[str, ...] | None
) -> tuple[NDArray[Any], tuple[str, ...]]:
    X = arrays["X"]
    if X.ndim not in (2, 3, 4) or X.size == 0:
        raise InputError(f"{path}: 'X' has the shape {X.shape}: it must be (rows, features) or images, none of them 0")
    if X.dtype.kind not in "fiub":
        raise InputError(f"{path}: 'X' is of type {X.dtype}: features must be numbers; encode them")
    names = tuple(str(name) for name in arrays["feature_names"].ravel()) if "feature_names" in arrays else ()
    if names and (X.ndim != 2 or len(names) != X.shape[1]):
        raise InputError(f"{path}: 'feature_names' has {len(names)} names: X has the shape {X.shape}")
    if chosen is not None:
        if not names:
            raise InputError(f"{path} has no 'feature_names': features= needs them")
        roles = Roles(label="\0", features=chosen)  # a name that no feature has
        roles.match([*names, "\0"], file=str(path))
        X, names = X[:, [names.index(name) for name in chosen]], chosen
    if X.ndim == 2 and X.dtype not in (np.float32, np.float64):
        X = X.astype(np.float64)
    return X, names


def _floats(path: Path, values: NDArray[Any], name: str) -> NDArray[np.float64]:
    if values.dtype.kind not in "fiu":
        raise InputError(f"{path}: {name!r} is of type {values.dtype}: it must hold numbers")
    return values.astype(np.float64)


def _labels(values: NDArray[Any], classes: tuple[str, ...] | None, where: Any) -> Labels:
    labels = label_array(values, "y", where)
    if classes is None or values.dtype.kind not in "iu" or any(name.lstrip("-").isdigit() for name in classes):
        return labels
    for code, name in enumerate(labels.names):
        if not 0 <= int(name) < len(classes):
            row = int(np.flatnonzero(labels.codes == code)[0])
            raise InputError(f"{where(row)}: y is {name}: places in the class set go from 0 to {len(classes) - 1}")
    return Labels([classes[int(name)] for name in labels.names], labels.codes)


def read_parquet(path: Path, roles: Roles) -> Columns:
    """Read the named columns of a parquet file; columns that nobody asked for are not read."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise InputError(
            f"{path}: parquet files need pyarrow, which is not installed: pip install 'ipate[parquet]'"
        ) from None
    try:
        file = parquet.ParquetFile(path)
        names = list(file.schema_arrow.names)
        features = roles.match(names, file=str(path)) if names else ()
        wanted = [column for role, column in roles.named() if role != "feature"]
        table = file.read(columns=[*wanted, *features])
    except OSError as error:
        raise InputError(f"{path} cannot be read: {' '.join(str(error).split())}") from None
    except pa.ArrowException as error:
        raise InputError(f"{path} is no readable parquet file: {' '.join(str(error).split())}") from None
    if not names or not table.num_rows:
        raise InputError(f"{path} has no rows: it must have at least one")
    return _columns(table, roles, features, str(path))


def _columns(table: Any, roles: Roles, features: tuple[str, ...], path: str) -> Columns:
    def where(row: int) -> str:
        return f"{path}, row {row}"

    X = np.empty((table.num_rows, len(features)), dtype=np.float64)
    for position, column in enumerate(features):
        X[:, position] = _feature(table.column(column), column, path)
    check_finite(X, features, where)

    def text(role: str) -> NDArray[np.str_] | None:
        column = getattr(roles, role)
        return None if column is None else _text(table.column(column), f"{role} {show(column)}", where)

    epsilon = None
    if roles.epsilon is not None:
        epsilon = _feature(table.column(roles.epsilon), roles.epsilon, path)
        epsilon = check_epsilon(epsilon, f"epsilon {show(roles.epsilon)}", where)
    return Columns(
        X=X,
        labels=_parquet_labels(table.column(roles.label), f"label {show(roles.label)}", where),
        levels=text("level"),
        epsilon=epsilon,
        person_id=text("person"),
        feature_names=features,
        where=where,
    )


def _feature(column: Any, name: str, path: str) -> NDArray[np.float64]:
    """Return numbers and yes/no columns as floats; a null is NaN."""
    import pyarrow as pa
    from pyarrow import types

    kind = column.type
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind)):
        wrong = f"{path}: column {show(name)} is of type {kind}"
        raise InputError(f"{wrong}: features must be numbers; encode it, or list the numeric ones with features=")
    if types.is_boolean(kind):
        column = column.cast(pa.int8())
    numbers: NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy()
    return numbers


def _plain(column: Any, what: str, where: Any) -> Any:
    """Refuse nulls and undo dictionary encoding."""
    import pyarrow as pa

    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise InputError(f"{where(row)}: {what} is missing: every row needs one")
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _text(column: Any, what: str, where: Any) -> NDArray[np.str_]:
    values = _plain(column, what, where).to_numpy(zero_copy_only=False)
    return as_text(values.astype(np.str_) if values.dtype.kind == "O" else values, what, where)


def _parquet_labels(column: Any, what: str, where: Any) -> Labels:
    """Take the labels apart before they become Python text: a million rows have few classes."""
    coded = _plain(column, what, where).combine_chunks().dictionary_encode()
    codes = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    few = _text(coded.dictionary, what, lambda code: where(int(np.flatnonzero(codes == code)[0])))
    merged = label_array(few, what, where)
    return Labels(merged.names, merged.codes[codes])
