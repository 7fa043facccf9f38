"""The columns of a DataFrame that a student learnt from, so that a file can be read as the same kind of frame."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ipate.data import cells
from ipate.data.tables import open_table
from ipate.errors import InputError, show

_LIBRARIES = ("pandas", "polars", "pyarrow")


def describe(X: Any) -> dict[str, Any] | None:
    """Return the library of a public frame and the kind of each column, with the values of categories.

    None for an array, and for a frame whose columns have no names, which scikit-learn treats as an array.
    """
    import narwhals.stable.v2 as nw

    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame) or not all(isinstance(name, str) for name in frame.columns):
        return None
    columns = [{"name": name, **_kind(frame[name])} for name in frame.columns]
    return {"library": str(frame.implementation).rpartition(".")[2].lower(), "columns": columns}


def _kind(column: Any) -> dict[str, Any]:
    import narwhals.stable.v2 as nw

    if column.dtype in (nw.Categorical, nw.Enum):
        return {"kind": "category", "values": [str(value) for value in column.cat.get_categories().to_list()]}
    if column.dtype.is_numeric():
        return {"kind": "number"}
    text = column.dtype in (nw.String, nw.Object)
    return {"kind": "text" if text else str(column.dtype)}


def as_frame(X: Any, described: Mapping[str, Any]) -> Any:
    """Return the student's columns of a frame as they are, or of a file or mapping as a frame of the same library."""
    import narwhals.stable.v2 as nw

    names = [column["name"] for column in described["columns"]]
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        for name in names:
            if name not in frame.columns:
                raise InputError(f"the table has no column {show(name)}: it must have {', '.join(names)}")
        return frame.select(names).to_native()
    table, library = open_table(X, columns=names), described["library"]
    if library not in _LIBRARIES:
        raise InputError(f"the student takes frames of {library}: pass one instead of a file")
    read = {column["name"]: _cells(table.column(column["name"]), column) for column in described["columns"]}
    if library != "pandas":
        import_module(library)
        return nw.from_dict(read, backend=library).to_native()
    import pandas as pd

    values = {column["name"]: column.get("values") for column in described["columns"]}
    return pd.DataFrame({name: own if values[name] is None else pd.Categorical(own, categories=values[name])
                         for name, own in read.items()})  # fmt: skip


def _cells(column: Any, described: Mapping[str, Any]) -> Any:
    if described["kind"] == "number":
        return cells.numbers(column)
    if described["kind"] in ("text", "category"):
        found = cells.texts(column).astype(object)
        found[found == ""] = None
        return found
    name = described["name"]
    raise InputError(f"column {show(name)} is of type {described['kind']}, which no file holds: pass a DataFrame")
