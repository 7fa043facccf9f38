"""Files of the user's own: csv, parquet and npz, with named columns."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ipate.data.columns import Columns, Roles, place_labels
from ipate.data.csvfile import read_csv
from ipate.data.dataset import Dataset
from ipate.data.npzfile import read_arrays
from ipate.data.parquet import read_parquet
from ipate.errors import InputError
from ipate.tables import FilePath, show

__all__ = ["ClassesWarning", "read_data"]


class ClassesWarning(UserWarning):
    """The class set was read off the labels, and is thereby declared public."""


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
