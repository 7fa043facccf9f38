"""The columns of csv, parquet and npz files: their roles, and the checks of their values."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.data import cells
from ipate.errors import LIMITS, InputError, show
from ipate.files import no_column
from ipate.people.ids import ALLOWED, all_plain, plain_ids
from ipate.people.policy import check_consent_day

Where = Callable[[int], str]
"""Returns the place of a row for a message: its line in a csv file, its row number in other formats."""


@dataclass(frozen=True, kw_only=True)
class Roles:
    """Which column of a file of people holds what; all others may be features."""

    label: str | None = None
    level: str | None = None
    epsilon: str | None = None
    person: str | None = None
    part: str | None = None  # who agreed to be public or test data
    consent_date: str | None = None  # when the person agreed
    consent_version: str | None = None  # to which version of the policy

    def __post_init__(self) -> None:
        if self.level is not None and self.epsilon is not None:
            raise InputError("level and epsilon are both named: a row has a consent level or an ε, not both")
        taken: dict[str, str] = {}
        for role, column in self.named():
            if column in taken:
                twice = f"column {show(column)} is named as {taken[column]} and as {role}"
                raise InputError(f"{twice}: it can be one of them")
            taken[column] = role

    def named(self) -> list[tuple[str, str]]:
        """Return the pairs (role, column) of all columns that are named."""
        pairs = [(field.name, getattr(self, field.name)) for field in fields(self)]
        return [(role, column) for role, column in pairs if column is not None]

    @property
    def consent(self) -> tuple[str, ...]:
        """The columns that are public: ids and consent."""
        return tuple(column for role, column in self.named() if role != "label")

    def match(self, header: Sequence[str], *, file: str, declared: Sequence[str] = ()) -> None:
        """Check that every named column occurs exactly once; `declared` are further columns that should be there."""
        known = [*(column for _, column in self.named()), *declared]
        for role, column in self.named():
            if column not in header:
                raise no_column(file, column, header, known=known, role=role)
            if list(header).count(column) > 1:
                raise InputError(f"{file}: duplicate column {show(column)}: column names must be unique")


def read_epsilon(column: Any, what: str, where: Where) -> NDArray[np.float64]:
    """Return each row's ε, which comes as a number or as text; an invalid one is refused."""
    numbers = cells.numbers(column)
    test, allowed = LIMITS["epsilon"]
    bad = np.flatnonzero(~np.asarray(test(numbers)))
    if len(bad):
        found = one_text(column, int(bad[0]))
        raise InputError(f"{where(int(bad[0]))}: {what} is {show(found) if found else 'missing'}: {allowed}")
    return numbers


def one_text(column: Any, row: int) -> str:
    """Return one cell as text."""
    cell = column[row] if isinstance(column, np.ndarray) else column[row].as_py()
    return cells.text(cell)


def read_texts(column: Any, what: str, where: Where) -> NDArray[np.str_]:
    """Return consent levels as text; a missing one is refused."""
    if not isinstance(column, np.ndarray):
        import pyarrow as pa

        if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
            return as_text(column.to_numpy(), what, where)
    elif column.dtype.kind not in "OT":
        return as_text(column, what, where)
    values, index = cells.distinct(column)  # few, so that each is read once
    return _complete(np.array([cells.text(value) for value in values] or [""])[index], what, where)


def read_dates(column: Any, what: str, where: Where) -> NDArray[np.str_]:
    """Return days of consent as text such as 2026-01-31; a cell that is no day, or in the future, is refused."""
    texts = read_texts(column, what, where)
    values, index = np.unique(texts, return_inverse=True)
    days = []
    for place, value in enumerate(values.tolist()):
        try:
            days.append(check_consent_day(value, what=what).isoformat())
        except InputError as error:
            raise InputError(f"{where(int(np.flatnonzero(index == place)[0]))}: {error}") from None
    return np.array(days)[index]


def read_ids(column: Any, what: str, where: Where) -> NDArray[np.str_]:
    """Return the ids of people in their one form, the same for every file format; an invalid one is refused."""
    if not isinstance(column, np.ndarray):
        import pyarrow as pa

        numeric = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        column = column.to_numpy() if numeric else cells.texts(column)
    elif column.dtype.kind in "OT":
        column = cells.texts(column)
    if column.dtype.kind in "iu":
        return np.asarray(column.astype(np.str_))
    if all_plain(column):
        return np.asarray(column)
    ids = plain_ids(column)
    if "" in ids:
        row = ids.index("")
        wrong = "missing" if str(column[row]).strip() in ("", "nan") else show(column[row])
        raise InputError(f"{where(row)}: {what} is {wrong}: {ALLOWED}, in every row")
    return np.array(ids)


def check_finite(X: NDArray[Any], names: Sequence[str], where: Where) -> None:
    """Refuse missing and infinite features; the message gives their number and the place of the first."""
    if X.dtype.kind != "f":
        return
    finite = np.isfinite(X)
    if finite.all():
        return
    first = tuple(int(index) for index in np.unravel_index(finite.argmin(), X.shape))
    column = show(names[first[1]]) if names else f"({', '.join(map(str, first[1:]))})"
    found = "missing" if np.isnan(X[first]) else "infinite"
    count, rows = X.size - int(finite.sum()), len(X) - int(finite.reshape(len(X), -1).all(axis=1).sum())
    raise InputError(
        f"{where(first[0])}: feature {column} is {found}, the first of {count:,} such values in {rows:,} of {len(X):,} "
        "rows: drop these rows, impute the values from public data, or exclude the column with features="
    )


def as_text(values: NDArray[Any], what: str, where: Where) -> NDArray[np.str_]:
    """Return ids, levels or labels as text without surrounding spaces; 3.0 becomes '3'."""
    if values.dtype.kind == "f":
        bad = ~np.isfinite(values) | (values != np.rint(values))
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            wrong = "missing" if math.isnan(values[row]) else show(values[row])
            raise InputError(f"{where(row)}: {what} is {wrong}: it must be text or a whole number, in every row")
        values = values.astype(np.int64)
    elif values.dtype.kind not in "iubU":
        raise InputError(f"{what} is of type {values.dtype}: it must be text or whole numbers")
    text: NDArray[np.str_] = values.astype(np.str_)
    return _complete(np.strings.strip(text), what, where) if values.dtype.kind == "U" else text


def _complete(text: NDArray[np.str_], what: str, where: Where) -> NDArray[np.str_]:
    if (text == "").any():
        row = int(np.flatnonzero(text == "")[0])
        raise InputError(f"{where(row)}: {what} is missing: every row needs one")
    return text


def check_classes(classes: Sequence[object] | None, *, source: str) -> tuple[str, ...]:
    """Return the declared class set as text; without one, refuse."""
    if classes is None:
        raise InputError(
            f"{source}: classes are not declared: which classes exist is public, so they are not read off private "
            'labels; declare them: classes = ["no", "yes"] in [data] of a TOML file, --classes no,yes, or classes= in '
            "Python"
        )
    if isinstance(classes, str):
        raise InputError(f"classes is {show(classes)}: it must be a list of names")
    named = tuple(cells.text(name) for name in classes)
    if len(set(named)) < max(2, len(named)) or "" in named:
        stated = ", ".join(map(show, named)) or "empty"
        raise InputError(
            f'classes are {stated}: there must be at least two, all different, as in classes = ["no", "yes"]'
        )
    return named


def class_codes(column: Any, classes: tuple[str, ...]) -> NDArray[np.int64]:
    """Return each label's index in the class set; −1 for a label that is no class, and for a missing one.

    Whole numbers are indices themselves if no class is a number.
    """
    whole = isinstance(column, np.ndarray) and column.dtype.kind in "iu"
    if whole and not any(name.lstrip("-").isdigit() for name in classes):
        return np.where((column >= 0) & (column < len(classes)), column, -1).astype(np.int64)
    found = cells.codes(column, classes)
    return np.where(found < len(classes), found, -1)
