"""A proposal for the section [data] of a run, from the header of a file of people and from public rows alone."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ipate.data import cells
from ipate.data.raw import Table, header_of, open_table
from ipate.data.schema import FEW_VALUES, MOST_VALUES, kind_of, type_of
from ipate.errors import InputError, show
from ipate.files import FilePath, is_csv, no_column, plain_number, separator

UNKNOWN = "?"
_NAMES = {  # what columns of this role are often called, in small letters
    "person": ("person", "person_id", "patient", "patient_id", "pid", "id", "user", "user_id", "customer", "subject"),
    "level": ("consent", "consent_level", "level", "levels", "privacy", "privacy_level"),
    "epsilon": ("epsilon", "eps", "ε", "budget", "privacy_budget"),
    "label": ("label", "class", "target", "y", "outcome", "diagnosis", "truth"),
    "consent_date": (
        "consent_date",
        "consent_day",
        "consented",
        "consented_on",
        "date_of_consent",
        "agreed_on",
        "signed",
        "signed_on",
    ),
    "consent_version": ("consent_version", "policy", "policy_version", "version"),
}
_GUESSED = {
    "consent_date": "by its name the day of each person's consent; if it is not, drop it",
    "consent_version": "by its name the policy version that each person agreed to; if it is not, drop it",
}


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """The keys of [data] in order, each with its value and a comment for the reader."""

    entries: tuple[tuple[str, Any, str], ...]
    notes: tuple[str, ...]  # what the user has to decide

    @property
    def values(self) -> dict[str, Any]:
        """The section as values."""
        return {key: value for key, value, _ in self.entries}

    def toml(self) -> str:
        """The section as TOML, with comments."""
        lines = [f"# {note}" for note in self.notes] + ["[data]"]
        for key, value, comment in self.entries:
            text = f"{key} = {json.dumps(value, ensure_ascii=False)}"  # text, lists: JSON and TOML write them alike
            plain = "".join(letter if letter.isprintable() else "?" for letter in comment)
            lines.append(f"{text:<43} # {plain}" if plain else text)
        return "\n".join(lines) + "\n"


def propose(
    path: FilePath,
    *,
    public: FilePath | None = None,
    roles: Mapping[str, str | None] | None = None,
    classes: Sequence[str] | None = None,
) -> Proposal:
    """Propose the section [data] for a file of people.

    Kinds of columns and categories come from the public file. Of the private file the header is read, and the types
    of a parquet file; roles are guessed from the names of columns, unless `roles` states them.
    """
    header = header_of(path)
    table = None if public is None else open_table(public)
    if is_csv(path) and not any((roles or {}).values()):  # a stated role that is not there is refused below
        _check_header(path, header, known=() if table is None else table.names)
    repeated = [name for place, name in enumerate(header) if name in header[:place]]
    if repeated:
        raise InputError(f"{path}: duplicate column {show(repeated[0])}: column names must be unique")
    named = _roles(header, table, roles or {}, source=str(path))
    entries: list[tuple[str, Any, str]] = [("file", str(path), "")]
    stated = UNKNOWN if public is None else str(public)
    entries.append(("public_file", stated, "" if public else "a file with public rows of the same columns"))
    for role in ("person", "level", "epsilon", "consent_date", "consent_version", "label"):
        if role in named or role == "label":
            comment = _GUESSED.get(role, "") if role in named else "name the column of the class"
            entries.append((role, named.get(role, UNKNOWN), comment))
    found = list(classes or _public_classes(table, named.get("label")))
    entries.append(("classes", found, "" if classes else "all classes in your order; they are public"))
    others = [name for name in header if name not in named.values()]
    entries += _columns(path, others, table)
    return Proposal(entries=tuple(entries), notes=_notes(path, public, named))


def _check_header(path: FilePath, header: Sequence[str], *, known: Sequence[str]) -> None:
    """Refuse a first line that does not look like a header, without a word of it: it may be a person's row."""
    usual = {name for names in _NAMES.values() for name in names}
    if set(header).intersection(known) or (not known and any(name.casefold() in usual for name in header)):
        return
    mark = separator(header)
    if known or mark or any(plain_number(name) is not None for name in header):
        hint = "the first line must have the names of the columns" if mark is None else f"is its separator {mark}?"
        raise InputError(f"{path}: its first line does not look like a header, and is not shown: {hint}")


def _roles(
    header: Sequence[str], table: Table | None, given: Mapping[str, str | None], *, source: str
) -> dict[str, str]:
    """Return the stated columns, and for the other roles those whose names say it."""
    named = {role: column for role, column in given.items() if column is not None}
    for role, column in named.items():
        if column not in header:
            known = [*named.values(), *(() if table is None else table.names)]
            raise no_column(source, column, header, known=known, role=role)
    for role, names in _NAMES.items():
        if role in named or (role == "epsilon" and "level" in named):
            continue
        for column in header:
            private = table is None or column not in table.names  # ids and consent are not in the public file
            if column.casefold() in names and column not in named.values() and (private or role == "label"):
                named[role] = column
                break
    return named


def _public_classes(table: Table | None, label: str | None) -> list[str]:
    """Return the classes that occur in the public file, if it has labels."""
    if table is None or label is None or label not in table.columns:
        return []
    return sorted(set(cells.texts(table.column(label)).tolist()) - {""})


def _columns(path: FilePath, names: Sequence[str], table: Table | None) -> list[tuple[str, Any, str]]:
    """Sort the columns without a role into numbers, categories, dates and columns to drop."""
    kinds: dict[str, list[str]] = {"number": [], "category": [], "date": [], "drop": []}
    why: list[str] = []
    types = _types(path) if table is None else {}
    for name in names:
        if table is not None:
            kind, reason = _public_kind(table, name)
        else:
            kind = {"number": "number", "date": "date"}.get(types.get(name, ""), "drop" if types else "number")
            reason = "text: declare its values in categories to use it" if kind == "drop" else ""
        kinds[kind].append(name)
        why += [f"{name}: {reason}"] if reason else []
    undecided = "" if table is not None or types else "decide: columns that are no numbers belong below, or into drop"
    values = "their values are those of the public file" if table is not None else ""
    return [
        ("numbers", kinds["number"], undecided),
        ("categories", kinds["category"], values),
        ("dates", kinds["date"], ""),
        ("drop", kinds["drop"], "; ".join(why)),
    ]


def _public_kind(table: Table, name: str) -> tuple[str, str]:
    """Return where a column belongs by the public rows, and why if it is dropped."""
    if name not in table.columns:
        return "drop", "not in the public file"
    column = table.column(name)
    kind = kind_of(column)
    if kind == "empty":
        return "drop", "no values in the public file"
    if kind != "text":
        return kind, ""
    written = cells.texts(column)
    values, rows = len(np.unique(written[written != ""])), np.count_nonzero(written != "")
    if values > MOST_VALUES or values > max(FEW_VALUES, rows / 2):
        return "drop", f"looks like free text ({values:,} values)"
    return "category", ""


def _types(path: FilePath) -> dict[str, str]:
    """Return what the columns of a typed file are by their types; a csv file has none."""
    file = Path(path)
    if file.suffix.lower() in (".parquet", ".pq"):
        from pyarrow import parquet

        empty = parquet.ParquetFile(file).schema_arrow.empty_table()
        return {name: type_of(empty.column(name)) for name in empty.column_names}
    return {} if file.suffix.lower() == ".csv" else dict.fromkeys(header_of(path), "number")


def _notes(path: FilePath, public: FilePath | None, named: Mapping[str, str]) -> tuple[str, ...]:
    basis = f"the header of {path}" + ("" if public is None else f" and the rows of {public}")
    lines = [f"Proposed from {basis}; no private cell was read. Check it, and add [budgets]."]
    if "person" not in named:
        lines.append("No column of ids was found: name it as person, or every row counts as a person of its own.")
    if "level" not in named and "epsilon" not in named:
        lines.append("No column of consent was found: name one as level or epsilon, or set epsilon in [budgets].")
    return tuple(lines)
