"""Reading a user's data from csv, parquet and npz files with named columns."""

import warnings
import zipfile
from array import array
from collections.abc import Sequence
from functools import partial
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.data.columns import Columns, Labels, Roles, Where, check_finite, label_array, place_labels
from ipate.data.dataset import Dataset
from ipate.errors import ClassesWarning, InputError, nearest, show
from ipate.files import FilePath, open_csv, plain_number, read_npz

_CSV_BLOCK = 1 << 14  # rows of a csv file that are held as text at once
_MISSING = frozenset({"", "nan", "na", "n/a", "null", "none", "?"})
_DEFAULTS = {"label": "y", "level": "levels", "epsilon": "epsilon", "person": "person"}  # the arrays of an npz file


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
    """Read a file of rows with named columns; an invalid value is refused with its place.

    Parameters
    ----------
    path : path
        A file that ends in .csv, .parquet (needs pyarrow) or .npz.
    label : str
        The column of the class. In an npz file, this and the next three name arrays and are optional: the defaults
        are `y`, `levels`, `epsilon` and `person`, the last three if the file has them.
    level, epsilon : str, optional
        The column of each row's consent level or ε; not both.
    person : str, optional
        The column that identifies the person of each row. Default: every row is a person of its own.
    features : sequence of str, optional
        The feature columns, which must be numeric. Default: all other columns.
    classes : sequence, optional
        The class set, in order. Which classes exist is public, so you should state it. Default: the distinct labels,
        with a `ClassesWarning`.

    Returns
    -------
    Dataset

    Raises
    ------
    InputError
        A column is missing or a value cannot be used.
    """
    file = Path(path)
    for name, value in (("features", features), ("classes", classes)):
        if isinstance(value, str):
            raise InputError(f"{name} is {show(value)}: it must be a list of names")
    stated = None if classes is None else tuple(str(name) for name in classes)
    chosen = None if features is None else tuple(features)
    roles = {"label": label, "level": level, "epsilon": epsilon, "person": person, "features": chosen}
    columns = _read(file, roles, stated)
    given = columns.classes if stated is None else stated
    check_finite(columns.X, columns.feature_names, columns.where)
    y, names = place_labels(columns.labels, given, what=f"label {show(label or 'y')}", where=columns.where)
    notes: tuple[str, ...] = ()
    if given is None:
        found = show(", ".join(names))
        words = f"{file}: classes are not given: the {len(names)} that occur are taken as public ({found})"
        warnings.warn(words, ClassesWarning, stacklevel=2)
        notes = (f"The class set was read off the labels and declared public: {found}.",)
    return Dataset(
        name=file.stem,
        X=columns.X,
        y=y,
        classes=names,
        kind="table" if columns.X.ndim == 2 else "image",
        levels=columns.text("level"),
        epsilon=columns.epsilon(),
        person_id=columns.text("person"),
        feature_names=columns.feature_names,
        notes=notes,
        source=file.name,
    )


def _read(file: Path, roles: dict[str, Any], classes: tuple[str, ...] | None) -> Columns:
    """Read a file by its suffix."""
    suffix = file.suffix.lower()
    if suffix == ".npz":
        return read_arrays(file, roles, classes)
    if suffix not in (".csv", ".parquet", ".pq"):
        raise InputError(f"{file}: the suffix {show(suffix)} is unknown: it must be .csv, .parquet or .npz")
    if roles["label"] is None:
        raise InputError(f"{file}: label is not given: name the column of the class")
    return (read_csv if suffix == ".csv" else read_parquet)(file, Roles(**roles))


def read_csv(path: Path, roles: Roles) -> Columns:
    """Read the named columns of a csv file, whose first line names the columns, in blocks of rows."""
    labels: dict[str, int] = {}
    codes = array("q")
    texts: dict[str, list[str]] = {role: [] for role, _ in roles.named() if role not in ("label", "feature")}
    blocks: list[NDArray[np.float64]] = []
    with open_csv(path) as (header, rows, lines):

        def where(row: int) -> str:
            return f"{path}, line {lines[row]}"

        features = roles.match(header, file=str(path))
        pick = itemgetter(*[header.index(column) for column in features])  # one feature alone comes without a tuple
        label = header.index(roles.label)
        while block := list(islice(rows, _CSV_BLOCK)):
            start = len(codes)
            for role, column in texts.items():
                position = header.index(getattr(roles, role))
                column.extend(row[position].strip() for row in block)
            for number, row in enumerate(block, start):
                name = row[label].strip()
                if not name or name.casefold() == "nan":
                    raise InputError(f"{where(number)}: label {show(roles.label)} is missing: every row needs one")
                codes.append(labels.setdefault(name, len(labels)))
            cells = [pick(row) for row in block]
            flat = cells if len(features) == 1 else list(chain.from_iterable(cells))
            blocks.append(_csv_numbers(flat, features, start, where))
    return Columns(
        X=np.concatenate(blocks),
        feature_names=features,
        labels=Labels(list(labels), np.array(codes, dtype=np.int64)),
        given={role: (f"{role} {show(getattr(roles, role))}", np.array(cells)) for role, cells in texts.items()},
        where=where,
    )


def _csv_numbers(cells: list[str], features: Sequence[str], start: int, where: Where) -> NDArray[np.float64]:
    """Return the feature cells of a block that begins with row `start` as numbers; a missing value becomes NaN."""
    joined = "".join(cells)
    if "_" not in joined and joined.isascii():  # as in `plain_number`, but for the whole block at once
        try:
            return np.fromiter(map(float, cells), dtype=np.float64, count=len(cells)).reshape(-1, len(features))
        except ValueError:
            pass
    X = np.full(len(cells), np.nan)
    for place, cell in enumerate(cells):
        text = cell.strip()
        if (number := plain_number(text)) is not None:
            X[place] = number
        elif text.casefold() not in _MISSING:
            row, column = divmod(place, len(features))
            raise InputError(
                f"{where(start + row)}: feature {show(features[column])} is {show(text)}: features must be numeric; "
                "encode this column, or list the numeric ones with features="
            )
    return X.reshape(-1, len(features))


def read_arrays(path: Path, roles: dict[str, Any], classes: tuple[str, ...] | None) -> Columns:
    """Read the arrays of an npz file; if the class set (given, or else the file's) is words, labels may be indices."""
    there = _array_names(path)
    used = {role: _choose_array(path, there, role, roles[role]) for role in _DEFAULTS}
    if used["level"] and used["epsilon"]:
        if (roles["level"] is None) == (roles["epsilon"] is None):
            raise InputError(
                f"{path} has levels and epsilon: a row has one of them; name the one to use, with level= or epsilon="
            )
        used["level" if roles["level"] is None else "epsilon"] = None
    if "X" not in there:
        raise InputError(f"{path} has no array 'X': it must hold the features; it has {', '.join(there)}")
    arrays = read_npz(path, {"X", "feature_names", "classes", *filter(None, used.values())})
    where = partial("{}, row {}".format, path)
    X, names = _npz_features(path, arrays, roles["features"])
    for name in filter(None, used.values()):
        if arrays[name].shape != (len(X),):
            raise InputError(f"{path}: {name!r} has the shape {arrays[name].shape}: X has {len(X)} rows")
    epsilon = used["epsilon"]
    if epsilon and arrays[epsilon].dtype.kind not in "fiu":
        raise InputError(f"{path}: {epsilon!r} is of type {arrays[epsilon].dtype}: it must hold numbers")
    if classes is None and "classes" in arrays:
        classes = tuple(str(name) for name in arrays["classes"].ravel())
    labels = _npz_labels(arrays[used["label"] or "y"], classes, where)
    given = {role: (name, arrays[name]) for role, name in used.items() if name and role != "label"}
    return Columns(X=X, feature_names=names, labels=labels, given=given, where=where, classes=classes)


def _array_names(path: Path) -> list[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except zipfile.BadZipFile as error:
        raise InputError(f"{path}: not a readable npz file ({error})") from None


def _choose_array(path: Path, there: list[str], role: str, asked: str | None) -> str | None:
    name = asked or _DEFAULTS[role]
    if name in there:
        return name
    if asked is None and role != "label":
        return None
    close = f": nearest is {show(nearest(name, there))}" if there else ": it is empty"
    raise InputError(f"{path} has no array {show(name)} ({role}){close}")


def _npz_features(
    path: Path, arrays: dict[str, NDArray[Any]], chosen: tuple[str, ...] | None
) -> tuple[NDArray[Any], tuple[str, ...]]:
    X = arrays["X"]
    if X.ndim not in (2, 3, 4) or X.size == 0:
        raise InputError(f"{path}: 'X' has the shape {X.shape}: it must be (rows, features) or images, and not empty")
    if X.dtype.kind not in "fiub":
        raise InputError(f"{path}: 'X' is of type {X.dtype}: features must be numeric; encode them")
    names = tuple(str(name) for name in arrays["feature_names"].ravel()) if "feature_names" in arrays else ()
    if names and (X.ndim != 2 or len(names) != X.shape[1]):
        raise InputError(f"{path}: 'feature_names' has {len(names)} names: X has the shape {X.shape}")
    if chosen is not None:
        if not names:
            raise InputError(f"{path} has no 'feature_names': features= needs them")
        Roles(label="\0", features=chosen).match([*names, "\0"], file=str(path))  # "\0": a name that no feature has
        X, names = X[:, [names.index(name) for name in chosen]], chosen
    if X.ndim == 2 and X.dtype not in (np.float32, np.float64):
        X = X.astype(np.float64)
    return X, names


def _npz_labels(values: NDArray[Any], classes: tuple[str, ...] | None, where: Where) -> Labels:
    labels = label_array(values, "y", where)
    if classes is None or values.dtype.kind not in "iu" or any(name.lstrip("-").isdigit() for name in classes):
        return labels
    for code, name in enumerate(labels.names):
        if not 0 <= int(name) < len(classes):
            row = int(np.flatnonzero(labels.codes == code)[0])
            raise InputError(f"{where(row)}: y is {name}: indices into the class set go from 0 to {len(classes) - 1}")
    return Labels([classes[int(name)] for name in labels.names], labels.codes)


def read_parquet(path: Path, roles: Roles) -> Columns:
    """Read the named columns of a parquet file, and no others."""
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
        raise InputError(f"{path} is not a readable parquet file: {' '.join(str(error).split())}") from None
    if not names or not table.num_rows:
        raise InputError(f"{path} has no rows: it must have at least one")
    where = partial("{}, row {}".format, path)
    X = np.empty((table.num_rows, len(features)), dtype=np.float64)
    for position, name in enumerate(features):
        X[:, position] = _parquet_numbers(table.column(name), name, path)
    given = {}
    for role, name in roles.named():
        what, column = f"{role} {show(name)}", table.column(name)
        if role == "label":
            labels = _parquet_labels(column, what, where)
        elif role == "epsilon":
            given[role] = (what, _parquet_numbers(column, name, path))
        elif role != "feature":
            given[role] = (what, _parquet_values(column, what, where))
    return Columns(X=X, feature_names=features, labels=labels, given=given, where=where)


def _parquet_numbers(column: Any, name: str, path: Path) -> NDArray[np.float64]:
    """Return a numeric or boolean column as floats; a null becomes NaN."""
    import pyarrow as pa
    from pyarrow import types

    kind = column.type
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind)):
        wrong = f"{path}: column {show(name)} is of type {kind}"
        raise InputError(f"{wrong}: features must be numeric; encode it, or list the numeric ones with features=")
    numbers: NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy()
    return numbers


def _without_nulls(column: Any, what: str, where: Where) -> Any:
    """Refuse nulls, and decode a dictionary-encoded column."""
    import pyarrow as pa

    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise InputError(f"{where(row)}: {what} is missing: every row needs one")
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _parquet_values(column: Any, what: str, where: Where) -> NDArray[Any]:
    values: NDArray[Any] = _without_nulls(column, what, where).to_numpy(zero_copy_only=False)
    return values.astype(np.str_) if values.dtype.kind == "O" else values


def _parquet_labels(column: Any, what: str, where: Where) -> Labels:
    """Encode the labels before they become Python text: a million rows have few classes."""
    coded = _without_nulls(column, what, where).combine_chunks().dictionary_encode()
    codes = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)

    def where_code(code: int) -> str:
        return where(int(np.flatnonzero(codes == code)[0]))

    merged = label_array(_parquet_values(coded.dictionary, what, where_code), what, where_code)
    return Labels(merged.names, merged.codes[codes])
