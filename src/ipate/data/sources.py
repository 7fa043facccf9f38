"""A user's own rows: a private file of people, with a public and a test file or with rows that are public."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate._types import Ints
from ipate.data.columns import (
    Roles,
    check_classes,
    class_codes,
    one_text,
    read_dates,
    read_epsilon,
    read_ids,
    read_texts,
)
from ipate.data.dataset import Dataset, Partition, partition
from ipate.data.overlap import check_overlap, row_hashes
from ipate.data.raw import Table, header_of, npz_names, open_table
from ipate.data.schema import (
    ORIGIN,
    Declared,
    EncodedRows,
    Schema,
    declare_types,
    feature_columns,
    make_schema,
    unreadable,
)
from ipate.errors import InputError, show

_DEFAULTS = {"label": "y", "level": "levels", "epsilon": "epsilon", "person": "person"}  # the arrays of an npz file
_PARTS = ("", "private", "public", "test")


def read_data(
    source: Any,
    *,
    label: str | None = None,
    level: str | None = None,
    epsilon: str | None = None,
    person: str | None = None,
    classes: Sequence[object] | None = None,
    schema: Schema | None = None,
    public: Any = None,
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    categories: Sequence[str] | Mapping[str, Sequence[Any]] = (),
    dates: Sequence[str] | Mapping[str, str] = (),
    numbers: Sequence[str] | Mapping[str, Sequence[float]] = (),
    missing: Sequence[str] = (),
    origin: str = ORIGIN,
) -> Dataset:
    """Read rows of people with named columns; feature and label cells never cause an error.

    Parameters
    ----------
    source : path, DataFrame or mapping
        A file that ends in .csv, .parquet (needs pyarrow) or .npz, a DataFrame (pandas, polars, pyarrow), or a mapping
        from names to columns.
    label : str
        The column of the class. In an npz file, this and the next three name arrays and are optional: the defaults
        are `y`, `levels`, `epsilon` and `person`, the last three if the file has them.
    level, epsilon : str, optional
        The column of each row's consent level or ε; not both.
    person : str, optional
        The column that identifies the person of each row. Default: every row is a person of its own.
    classes : sequence
        The class set, in order. Which classes exist is public, so it must be declared, here or in the npz file. A
        label that is no class becomes −1: a row without a vote.
    schema : Schema, optional
        The schema of the features. Default: it is made from `public` and the next parameters.
    public : path, DataFrame or mapping, optional
        Public rows with the same feature columns, from which kinds, categories, medians and scales are taken. Without
        them, columns that are not declared are numbers and are not scaled.
    features, drop : sequence of str, optional
        The feature columns (default: all others), and columns to leave out.
    categories : sequence of str, or mapping
        The columns of categories; a mapping declares their values, otherwise they are those of `public`.
    dates : sequence of str, or mapping
        The columns of dates, which become days since `origin`; a mapping states their format as `strptime` has it.
    numbers : sequence of str, or mapping
        Columns of numbers; a mapping declares their range [low, high], to which values are clipped.
    missing : sequence of str
        Columns that get an indicator of missing values even if `public` has none.
    origin : str
        The date from which days are counted.

    Returns
    -------
    Dataset

    Raises
    ------
    InputError
        A column is missing, the classes are not declared, or an id or a consent cell cannot be used.
    """
    declared = Declared.of(
        features=features,
        drop=drop,
        categories=categories,
        dates=dates,
        numbers=numbers,
        missing=missing,
        origin=origin,
    )
    roles = Roles(label=label, level=level, epsilon=epsilon, person=person)
    sources = Sources(private=source, roles=roles, classes=classes, declared=declared, schema=schema)
    if public is not None and schema is None:
        sources = replace(sources, schema=_schema(sources, open_table(public)))
    return _People(sources, sources.schema).dataset()


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Where the rows of a run come from: files or tables, their roles, and what is declared about the columns."""

    private: Any
    roles: Roles
    classes: Sequence[object] | None
    public: Any = None
    test: Any = None
    declared: Declared
    schema: Schema | None = None

    @property
    def name(self) -> str:
        """How messages call the private rows."""
        is_file = isinstance(self.private, str) or hasattr(self.private, "__fspath__")
        return str(self.private) if is_file else "the table"

    def columns(self) -> list[str]:
        """Return the feature columns of the private rows, by their header alone."""
        header = header_of(self.private)
        roles = _npz_roles(self)
        if roles.label is None:
            raise InputError(f"{self.name}: label is not given: name the column of the class")
        roles.match(header, file=self.name, declared=self.declared.names())
        if self.schema is not None:
            return list(self.schema.names)
        taken = [column for _, column in roles.named()]
        if _is_npz(self.name):
            taken += npz_names(Path(self.name))  # the features are the columns of X
        return feature_columns(header, taken, self.declared, source=self.name)


def _npz_roles(sources: Sources) -> Roles:
    """Return the roles, with the default names of the arrays that an npz file has."""
    roles = sources.roles
    if not _is_npz(sources.name):
        return roles
    there = npz_names(Path(sources.name))
    named = dict(roles.named())
    default = {role: name for role, name in _DEFAULTS.items() if role not in named and name in there}
    if "level" in {**named, **default} and "epsilon" in {**named, **default}:
        if ("level" in named) == ("epsilon" in named):
            raise InputError(
                f"{sources.name} has levels and epsilon: a row has one of them; name the one to use, with level= or "
                "epsilon="
            )
        default.pop("epsilon" if "level" in named else "level")
    return replace(roles, **{"label": "y", **default, **named})


def _schema(sources: Sources, public: Table | None) -> Schema | None:
    """Return the given schema, or the one of the public rows; None for images."""
    if sources.schema is not None:
        return sources.schema
    if public is not None and public.images is not None:
        return None
    return make_schema(public, sources.columns(), sources.declared)


class _People:
    """The private rows: roles as arrays, features as a raw table that is encoded later."""

    def __init__(self, sources: Sources, schema: Schema | None) -> None:
        self.sources, self.roles, self.schema = sources, _npz_roles(sources), schema
        names = sources.columns() if not _is_image(sources) else []
        wanted = [*(column for _, column in self.roles.named()), *names]
        kinds = {column: "category" for role, column in self.roles.named() if role not in ("person", "epsilon")}
        kinds |= {} if schema is None else schema.kinds
        self.table = open_table(sources.private, columns=wanted, kinds=kinds, consent=self.roles.consent)
        self.roles.match(self.table.names, file=sources.name)
        stated = self.table.classes if sources.classes is None else sources.classes
        self.classes = check_classes(stated, source=sources.name)
        self.y = class_codes(self.table.column(self.roles.label or "", role="label"), self.classes)
        self.levels, self.person = (self._texts(role) for role in ("level", "person"))
        self.epsilon = self._read("epsilon", read_epsilon)
        self.consent_date = self._read("consent_date", read_dates)
        self.consent_version = self._read("consent_version", read_texts)

    def _read(self, role: str, read: Any) -> Any:
        name = getattr(self.roles, role)
        if name is None:
            return None
        return read(self.table.column(name, role=role), f"{role} {show(name)}", self.table.where)

    def _texts(self, role: str) -> NDArray[np.str_] | None:
        found: NDArray[np.str_] | None = self._read(role, read_ids if role == "person" else read_texts)
        return found

    def dataset(self) -> Dataset:
        """Return all rows as a data set."""
        schema = self.schema
        if schema is None and self.table.images is None:
            names, declared = self.sources.columns(), self.sources.declared
            if Path(self.sources.name).suffix.lower() != ".csv":
                declared = declare_types(self.table, names, declared)
            schema = make_schema(None, names, declared)
        rows = _read(schema, self.table)
        counts = rows.missing() if isinstance(rows, EncodedRows) else {}
        return self.joined(schema, np.asarray(rows), counts, y=self.y, n_rows=self.table.n_rows)

    def joined(
        self, schema: Schema | None, X: Any, counts: Mapping[str, int], *, y: Ints, n_rows: int, **more: Any
    ) -> Dataset:
        """Return the data set of the private rows and of further rows, whose people and consent are empty."""

        def longer(column: NDArray[Any] | None, fill: Any) -> NDArray[Any] | None:
            if column is None or len(column) == n_rows:
                return column
            return np.concatenate([column, np.full(n_rows - len(column), fill, dtype=column.dtype)])

        path = Path(self.sources.name)
        return Dataset(
            name=path.stem,
            X=X,
            y=y,
            classes=self.classes,
            kind="table" if X.ndim == 2 else "image",
            levels=longer(self.levels, ""),
            epsilon=longer(self.epsilon, np.nan),
            person_id=longer(self.person, ""),
            feature_names=() if schema is None else schema.encoded_names,
            schema=schema,
            private_notes=self._private_notes(counts),
            source=path.name,
            where=self.table.where,
            consent_date=longer(self.consent_date, ""),
            consent_version=longer(self.consent_version, ""),
            **more,
        )

    def _private_notes(self, counts: Mapping[str, int]) -> tuple[str, ...]:
        lines = [
            f"Column {show(name)}: {count:,} cells are missing, unreadable or no declared value."
            for name, count in counts.items()
            if count
        ]
        if unknown := int(np.count_nonzero(self.y < 0)):
            lines.append(f"{unknown:,} rows have no label or one that is no class: they have no vote.")
        if self.table.malformed:
            lines.append(f"{self.table.malformed:,} rows have too many or too few cells: their features are missing.")
        return tuple(lines)


def _is_npz(name: str) -> bool:
    return Path(name).suffix.lower() == ".npz" and Path(name).is_file()


def _is_image(sources: Sources) -> bool:
    return _is_npz(sources.name) and open_table(sources.private, columns=()).images is not None


def _read(schema: Schema | None, table: Table) -> Any:
    """Read the features of a table; the pixels of an image that are no numbers in [0, 1] are clipped."""
    if schema is not None:
        return schema.read(table)
    X = table.images
    if X is None or X.dtype.kind not in "fu" or (X.dtype.kind == "u" and X.dtype != np.uint8):
        found = "a table" if X is None else f"of type {X.dtype}"
        raise InputError(f"{table.source}: 'X' is {found}: images must be uint8, or floats in [0, 1]")
    return np.clip(np.nan_to_num(X), 0, 1) if X.dtype.kind == "f" else X


def read_parts(
    sources: Sources, *, n_public: float | None, n_test: float | None, seed: int, allow_overlap: bool = False
) -> tuple[Dataset, Partition]:
    """Read all files of a run, and return the rows and their partition.

    Public rows come from a public file, from a column that says who agreed to be public, or from `n_public` people of
    the private file, who are not protected; test rows likewise. A public file that is a copy of private rows is refused
    unless `allow_overlap`.
    """
    public = None if sources.public is None else open_table(sources.public)
    test = None if sources.test is None else open_table(sources.test)
    schema = None if public is None else _schema(sources, public)
    people = _People(sources, sources.schema or schema)
    own = _own_parts(people, n_public, n_test, seed)
    if public is None:
        chosen = people.table.take(own.public)
        schema = _schema(sources, replace(chosen, source=f"{sources.name} (public rows)"))
    others = [table for table in (public, test) if table is not None]
    for table in others:
        _check_columns(table, people, schema)
    sizes = (0 if public is None else public.n_rows, 0 if test is None else test.n_rows)
    n_own, n_rows = people.table.n_rows, people.table.n_rows + sum(sizes)
    own_rows, y, found = _read(schema, people.table), [people.y], []
    hashes = None if allow_overlap or not others else row_hashes(own_rows)
    for table in others:
        found.append(_read(schema, table))
        if hashes is not None:
            ids = _ids(table, people)
            check_overlap(hashes, found[-1], what=table.source, private_ids=people.person, public_ids=ids)
        y.append(_public_labels(table, people))
    counts = own_rows.missing() if isinstance(own_rows, EncodedRows) else {}
    X = own_rows.joined(*found) if isinstance(own_rows, EncodedRows) else np.concatenate([own_rows, *found])
    rng = np.random.default_rng([seed, 3])
    parts = Partition(
        private=own.private,
        public=own.public if public is None else n_own + rng.permutation(sizes[0]),
        test=own.test if test is None else n_own + sizes[0] + rng.permutation(sizes[1]),
    )
    data = people.joined(
        schema, X, counts, y=np.concatenate(y), n_rows=n_rows, separate=sizes, notes=_notes(others, people, schema)
    )
    return data, parts


def _own_parts(people: _People, n_public: float | None, n_test: float | None, seed: int) -> Partition:
    """Split the private file's own rows: by the column of parts, by numbers, or all private."""
    n_rows, none = people.table.n_rows, np.zeros(0, dtype=np.int64)
    if people.roles.part is None:
        if n_public is None and n_test is None:
            rows = np.random.default_rng([seed, 4]).permutation(n_rows).astype(np.int64)
            return Partition(private=rows, public=none, test=none.copy())
        return partition(n_rows, public=n_public or 0, test=n_test or 0, seed=seed, person_id=people.person)
    column, where = people.table.column(people.roles.part, role="part"), people.table.where
    sides = [one_text(column, row).casefold() for row in range(n_rows)]
    for row, side in enumerate(sides):
        if side not in _PARTS:
            raise InputError(
                f"{where(row)}: {people.roles.part} is {show(side)}: it must be public, test, or empty or private"
            )
    found = np.array([side or "private" for side in sides])
    if people.person is not None:
        _, first, index = np.unique(people.person, return_index=True, return_inverse=True)
        mixed = np.flatnonzero(found != found[first][index])
        if len(mixed):
            who = show(str(people.person[mixed[0]]))
            raise InputError(f"{where(int(mixed[0]))}: person {who} has rows of two parts: all must be in the same one")
    rng = np.random.default_rng([seed, 4])
    made = [rng.permutation(np.flatnonzero(found == side)).astype(np.int64) for side in ("private", "public", "test")]
    if not len(made[0]):
        raise InputError(f"{people.table.source}: {people.roles.part} makes every row public or test: none is private")
    return Partition(private=made[0], public=made[1], test=made[2])


def _check_columns(table: Table, people: _People, schema: Schema | None) -> None:
    """Refuse a public file that lacks a feature column, or that has no images where the private file has."""
    if schema is None:
        if (
            table.images is None
            or people.table.images is None
            or table.images.shape[1:] != people.table.images.shape[1:]
        ):
            raise InputError(f"{table.source}: its images must have the shape of those of {people.table.source}")
        return
    for name in schema.names:
        table.column(name)


def _notes(tables: Sequence[Table], people: _People, schema: Schema | None) -> tuple[str, ...]:
    """Say which columns of public files are not used."""
    roles = {column for _, column in people.roles.named()}
    used = roles | set(() if schema is None else schema.names) | set(people.table.names)
    lines = []
    for table in tables:
        if others := [name for name in table.names if name not in used and name not in _DEFAULTS.values()]:
            lines.append(
                f"{table.source}: columns that the private file does not have are ignored: {', '.join(others)}"
            )
        lines += [] if schema is None else unreadable(table, schema)
    return tuple(lines)


def _public_labels(table: Table, people: _People) -> Ints:
    """Return the labels of a public file, −1 where there are none; a label that is no class is refused."""
    name = people.roles.label or "y"
    if name not in table.columns:
        return np.full(table.n_rows, -1, dtype=np.int64)
    column = table.column(name)
    found = class_codes(column, people.classes)
    for row in np.flatnonzero(found < 0).tolist():
        if stated := one_text(column, row):
            allowed = ", ".join(people.classes)
            raise InputError(f"{table.where(row)}: label {show(name)} is {show(stated)}: the classes are {allowed}")
    return found


def _ids(table: Table, people: _People) -> NDArray[np.str_] | None:
    """Return the person ids of a public file, if it has the private file's column of ids."""
    name = people.roles.person
    if name is None or name not in table.columns:
        return None
    return read_ids(table.column(name), f"person {show(name)}", table.where)
