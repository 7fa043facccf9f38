"""Parquet files, through pyarrow where it is installed."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.data.columns import Columns, Labels, Roles, as_text, check_epsilon, check_finite, label_array
from ipate.errors import InputError
from ipate.tables import show

__all__ = ["read_parquet"]


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
        labels=_labels(table.column(roles.label), f"label {show(roles.label)}", where),
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


def _labels(column: Any, what: str, where: Any) -> Labels:
    """Take the labels apart before they become Python text: a million rows have few classes."""
    coded = _plain(column, what, where).combine_chunks().dictionary_encode()
    codes = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    few = _text(coded.dictionary, what, lambda code: where(int(np.flatnonzero(codes == code)[0])))
    merged = label_array(few, what, where)
    return Labels(merged.names, merged.codes[codes])
