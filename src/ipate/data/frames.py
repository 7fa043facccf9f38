"""Features in memory as a caller gives them: arrays, sparse matrices, and frames of pandas, polars or pyarrow.

Frames reach models untouched. What belongs to the rows (y, budgets, levels, person ids) is matched by index label, by
the name of a column, or by person id; where labels differ it is refused, because a budget must follow its person.

Rows that are read a block at a time: slices of them are arrays of numbers, whatever they are stored as.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.data import cells
from ipate.errors import InputError, show
from ipate.people.ids import plain_ids

_BY_PERSON = ("budgets", "levels")  # what may be a table that is looked up by person id


def is_frame(X: Any) -> bool:
    """Return whether X is a table with named columns: pandas, polars or pyarrow."""
    import narwhals as nw

    return bool(nw.dependencies.is_into_dataframe(X))


def n_rows(X: Any) -> int:
    """Return the number of rows of an array, a sparse matrix, a frame or a list of rows."""
    return int(_shape(X)[0])


def _shape(X: Any) -> tuple[int, ...]:
    return tuple(X.shape) if hasattr(X, "shape") else np.array(X, dtype=object).shape


def take(X: Any, rows: Any) -> Any:
    """Return these rows of an array, a sparse matrix or a frame, as the same type and in this order."""
    if isinstance(X, np.ndarray):
        return X[rows]
    from sklearn.utils import _safe_indexing

    return _safe_indexing(X, np.asarray(rows))


def incomplete(X: Any) -> list[str]:
    """Return the names of a frame's numeric columns that have missing values."""
    import narwhals as nw

    frame = nw.from_native(X)
    numeric = [column for column in frame.iter_columns() if column.dtype.is_numeric()]
    gaps = [
        column for column in numeric if column.is_null().any() or (column.dtype.is_float() and column.is_nan().any())
    ]
    return [column.name for column in gaps]


def check_form(X: Any, what: str) -> Any:
    """Return features that are rows of a table or images; refuse others by their shape or type, without a value."""
    if is_frame(X):
        return X
    shape = _shape(X)
    if len(shape) < 2:
        raise InputError(
            f"{what} has the shape {shape}: it must be (rows, features), or (rows, height, width) for images. Reshape "
            f"your data, for example by reshape(-1, 1) if it is one feature; rows of a list must be equally long"
        )
    if np.dtype(getattr(X, "dtype", object)).kind == "c":
        raise InputError(f"{what} holds complex numbers. Complex data not supported: give real numbers")
    return X


def numbers_alone(X: Any) -> Any:
    """Return lists and arrays of text or objects as numbers, each cell alone; NaN where a cell is none."""
    if not isinstance(X, list | tuple) and not (isinstance(X, np.ndarray) and X.dtype.kind in "OUST"):
        return X
    rows = np.array(X, dtype=object)
    return cells.numbers(rows.ravel()).reshape(rows.shape)


def stacked(first: Any, second: Any) -> Any:
    """Return the rows of both, which must be of one type."""
    if isinstance(first, np.ndarray):
        return np.concatenate([first, second])
    if is_frame(first):
        import narwhals as nw

        return nw.concat([nw.from_native(first), nw.from_native(second)], how="vertical").to_native()
    from scipy.sparse import vstack

    return vstack([first, second], format="csr")


def parts(X: Any) -> tuple[Any, ...]:
    """Return the content of X for a fingerprint: arrays, and for a frame also names and types of its columns."""
    if isinstance(X, np.ndarray):
        return (X,)
    if is_frame(X):
        import narwhals as nw

        frame = nw.from_native(X)
        kinds = [str(kind) for kind in frame.schema.values()]
        return list(frame.columns), kinds, *(column.to_list() for column in frame.iter_columns())
    matrix = X.tocsr().sorted_indices()
    return matrix.shape, matrix.data, matrix.indices, matrix.indptr


def check_shared(X: Any, like: Any, what: str) -> None:
    """Refuse a public frame that shares no column with the private one, whose names may be a person's row."""
    import narwhals as nw

    if is_frame(X) and set(nw.from_native(X).columns).isdisjoint(nw.from_native(like).columns):
        raise InputError(f"{what} shares no column with X: both need the same names; do their files have a header?")


def without(X: Any, names: tuple[str, ...]) -> Any:
    """Return a frame without those of the named columns that it has; anything else is returned as it is."""
    import narwhals as nw

    if not names or not is_frame(X):
        return X
    frame = nw.from_native(X)
    return frame.drop([name for name in names if name in frame.columns]).to_native()


def column_of(X: Any, name: str) -> NDArray[Any] | None:
    """Return a column of a frame; None if there is none of that name."""
    import narwhals as nw

    return np.asarray(nw.from_native(X)[name].to_numpy()) if is_frame(X) and name in nw.from_native(X).columns else None


def matched(X: Any, given: Mapping[str, Any]) -> tuple[Any, tuple[str, ...], dict[str, Any]]:
    """Match what belongs to the rows of X with them, by label where there are labels.

    A text names a column of X, which is then no feature. Values with a pandas index are put into the order of X's
    index. A frame of budgets or levels is looked up by the column that `person_id` names. Values without labels are
    taken by position. Where X has no index, values whose index holds person ids in another order are refused.

    Returns the features, the names of the columns that are no features, and the values by name.
    """
    named = {name: value for name, value in given.items() if isinstance(value, str)}
    columns = {name: _column(X, name, value, known=list(named.values())) for name, value in named.items()}
    features = without(X, tuple(named.values()))
    index = _reference(X, given)
    found: dict[str, Any] = {}
    for name, values in given.items():
        if name in columns:
            found[name] = columns[name]
        elif values is not None and is_frame(values) and name in _BY_PERSON:
            found[name] = _looked_up(name, values, named.get("person_id"), columns.get("person_id"))
        else:
            found[name] = None if values is None else _in_order(name, values, index)
    if _index(X) is None and (ids := found.get("person_id")) is not None:
        rows = plain_ids(ids)
        for name, values in given.items():
            if not is_frame(values):
                _refuse_ids_elsewhere(name, values, rows)
    return features, tuple(named.values()), found


def _column(X: Any, name: str, column: str, *, known: list[str]) -> NDArray[Any]:
    """Return a column of X that an argument names; others are told if one of those that are named is there.

    Otherwise the frame may come from a file without a header, and its names may be a person's row.
    """
    import narwhals as nw

    if not is_frame(X):
        raise InputError(f"{name} is {show(column)}: a text names a column, but X has none; give one value per row")
    frame = nw.from_native(X)
    if column not in frame.columns:
        told = f"its columns are {', '.join(map(str, frame.columns[:20]))}"
        if not set(known).intersection(frame.columns):
            told = "its names are not shown, since they may be a person's row: does its file have a header?"
        raise InputError(f"{name} is {show(column)}: X has no such column; {told}")
    return np.asarray(frame[column].to_numpy())


def _looked_up(name: str, table: Any, key: str | None, ids: NDArray[Any] | None) -> NDArray[Any]:
    """Return the value of every row's person from a table with one row per person."""
    import narwhals as nw

    frame = nw.from_native(table)
    if key is None or ids is None or key not in frame.columns or len(frame.columns) != 2:
        raise InputError(
            f"{name} is a table with the columns {', '.join(map(str, frame.columns))}: it must have two, the one that "
            "person_id names and the value; or give one value per row"
        )
    own = frame[key].to_list()
    value = dict(zip(own, frame[next(column for column in frame.columns if column != key)].to_list(), strict=True))
    if len(value) != len(own):
        raise InputError(f"{name} has several rows of one person in its column {show(key)}: it must have one each")
    asked = ids.tolist()
    missing = next((person for person in asked if person not in value), None)
    if missing is not None:
        raise InputError(f"{name} has no row of person {show(missing)}: every person of X needs one")
    return np.array([value[person] for person in asked])


def _index(values: Any) -> Any:
    """Return the index of a pandas object, else None."""
    import narwhals as nw

    pandas = nw.dependencies.is_pandas_like_dataframe(values) or nw.dependencies.is_pandas_like_series(values)
    return values.index if pandas else None


def _reference(X: Any, given: Mapping[str, Any]) -> Any:
    """Return the index that gives the order of rows: X's, or the one that all indexed values share."""
    index = _index(X)
    if index is not None:
        return index
    first = ""
    for name, values in given.items():
        own = None if is_frame(values) and name in _BY_PERSON else _index(values)
        if own is None:
            continue
        if index is None:
            index, first = own, name
        elif not own.equals(index):
            raise InputError(
                f"{first} and {name} have different indices, and X has none: which row is whose is unclear; give X "
                "with its index, or pass arrays in the order of X"
            )
    if index is not None and _permuted(index):
        raise InputError(
            f"{first} has the row numbers of X as its index, in another order, and X has no index: give X with its "
            f"index, or pass {first}.to_numpy() if it is in the order of X"
        )
    return index


def _refuse_ids_elsewhere(name: str, values: Any, ids: list[str]) -> None:
    """Refuse values that are indexed by person ids in another order than the rows of an X without an index.

    Labels that are whole numbers may be row numbers of another table: they count as ids only if all of them are.
    """
    if (own := _index(values)) is None or (labels := plain_ids(own.to_numpy())) == ids:
        return
    known = set(ids).intersection(labels)
    if known == set(labels) or (known and own.dtype.kind not in "iu"):
        raise InputError(
            f"{name} has person ids as its index, such as {show(min(known))}, in another order than the rows of X, "
            f"which has no index: give X with these ids as its index, or pass {name}.to_numpy() if it is in the order "
            "of X"
        )


def _permuted(index: Any) -> bool:
    """Return whether an index holds the numbers 0 to n − 1 in another order."""
    labels = index.to_numpy()
    if labels.dtype.kind not in "iu" or labels.ndim != 1:
        return False
    numbers = np.arange(len(labels))
    return not np.array_equal(labels, numbers) and np.array_equal(np.sort(labels), numbers)


def _in_order(name: str, values: Any, index: Any) -> NDArray[Any]:
    """Return the values as an array in the order of the index, or as given if they have no labels."""
    own = _index(values)
    try:
        array = np.asarray(values)
    except ValueError:
        raise InputError(f"{name} has entries of different lengths: one value per row is needed") from None
    if own is None or index is None or own.equals(index):
        return array
    for what, labels in ((name, own), ("X", index)):
        if not labels.is_unique:
            twice = show(labels[labels.duplicated()][0])
            raise InputError(
                f"{what} has the index label {twice} more than once, and {name} and X differ in their indices: give "
                f"both one index, or pass {name}.to_numpy() if it is in the order of X"
            )
    places = own.get_indexer(index)
    if len(own) != len(index) or (places < 0).any():
        lacking = (places < 0).any()
        label = show((index[places < 0] if lacking else own[index.get_indexer(own) < 0])[0])
        where = f"X has {label} and {name} does not" if lacking else f"{name} has {label} and X does not"
        raise InputError(
            f"{name} and X have different index labels ({where}): give both the same labels, or pass "
            f"{name}.to_numpy() if it is in the order of X"
        )
    return np.asarray(array[places])


@dataclass(frozen=True, eq=False)
class RowBlocks:
    """Some rows of an array, a sparse matrix or encoded rows, which are taken and encoded when a slice is."""

    data: Any
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, part: slice) -> NDArray[Any]:
        taken = self.data[self.rows[part]]
        return np.asarray(taken.toarray() if hasattr(taken, "toarray") else taken)


def as_numbers(X: Any, pool: Any) -> tuple[RowBlocks, NDArray[Any]]:
    """Return private rows in blocks of numbers, and the pool as an array of the same columns.

    Frames are encoded by a schema of the pool, which depends on no private row.
    """
    from ipate.data.schema import schema_from

    if is_frame(pool):
        schema = schema_from(pool)
        X, pool = schema.read(X), schema.read(pool)
    elif hasattr(pool, "toarray"):
        X, pool = X.tocsr(), pool.toarray()
    return RowBlocks(X, np.arange(X.shape[0])), np.asarray(pool)
