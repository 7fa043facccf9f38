"""`ipate predict`: predict the rows of a file with a deployed student."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option, echo

from ipate.cli.options import AsJson, check_out
from ipate.cli.output import print_json, progress_bar
from ipate.errors import InputError, show

if TYPE_CHECKING:
    from ipate.data.raw import Table
    from ipate.students.deployed import DeployedStudent

EXAMPLE = (
    "Examples: ipate predict march patients.csv --out predictions.csv; ipate predict march/public/student "
    "patients.parquet --id patient --proba --out predictions.csv. The file needs the columns that the student learnt "
    "from, in any order; other columns are ignored and named."
)
_BLOCK = 1 << 14  # rows that are predicted at once


def command(
    student: Annotated[Path, Argument(help="A run's folder, or the folder of a student.", metavar="RUN_OR_MODEL")],
    data: Annotated[Path, Argument(help="A csv, parquet or npz file; images as the array X of an npz file.")],
    out: Annotated[Path, Option(help="The csv file to write, with one line per row of the data, in its order.")],
    id_column: Annotated[str | None, Option("--id", help="A column of the data that is copied to the output.")] = None,
    proba: Annotated[bool, Option("--proba", help="Also write the probability of each class.")] = False,
    allow_pickle: Annotated[
        bool, Option("--allow-pickle", help="Read a student that is a pickle, which runs the code in it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Predict the class of every row of a file with the student of a run."""
    from ipate.runs.folder import refuse_public
    from ipate.students.deployed import find_folder, load_student

    check_out(out, "predictions")
    refuse_public(out, "a prediction depends on its row, which may be private: predictions", near=find_folder(student))
    if out.exists() and out.resolve() == data.resolve():
        raise InputError(f"out is {out}: it is the data itself; name another file")
    loaded = load_student(student, allow_pickle=allow_pickle)
    if proba and not hasattr(loaded, "predict_proba"):
        raise InputError(f"{student}: a {type(loaded.model).__name__} has no probabilities; leave --proba out")
    rows, ids, ignored = _rows(loaded, data, id_column)
    X, missing = _encoded(loaded, rows)
    _write(out, loaded, X, ids=ids, id_column=id_column, proba=proba, quiet=as_json)
    found = {
        "student": str(student),
        "data": str(data),
        "out": str(out),
        "rows": _length(X),
        "classes": [str(name) for name in loaded.classes_.tolist()],
        "ignored_columns": ignored,
        "missing_cells": missing,
    }
    print_json(found) if as_json else _show(found)


def _length(X: Any) -> int:
    return int(X.shape[0])


def _rows(student: "DeployedStudent", path: Path, id_column: str | None) -> tuple[Any, list[str] | None, list[str]]:
    """Return the images or the table of a file, its ids, and the columns that are not used."""
    from ipate.data.cells import texts
    from ipate.data.raw import open_table
    from ipate.files import read_npz

    names = student.feature_names_in_.tolist()
    if not names:
        if path.suffix.lower() != ".npz" or not path.is_file():
            raise InputError(f"{path}: this student takes arrays: it must be an npz file with an array X")
        arrays = read_npz(path, {"X", id_column or "X"})
        for name in {"X", id_column or "X"} - arrays.keys():
            raise InputError(f"{path} has no array {show(name)}: it must hold the rows, or the ids that --id names")
        return arrays["X"], None if id_column is None else texts(arrays[id_column]).tolist(), []
    table = open_table(path, columns=[*names, *([] if id_column is None else [id_column])])
    lacking = [name for name in names if name not in table.names]
    if lacking:
        near = f"it has {', '.join(table.names[:20])}"
        raise InputError(f"{path} has no column {', '.join(map(show, lacking))}, which the student needs: {near}")
    ids = None if id_column is None else texts(table.column(id_column, role="id")).tolist()
    return table, ids, [name for name in table.names if name not in (*names, id_column)]


def _encoded(student: "DeployedStudent", rows: "Table | Any") -> tuple[Any, dict[str, int]]:
    """Return the rows as the model takes them, and the columns with cells that are missing or unknown."""
    if student.schema is None:
        return student.encode(rows if student.frame is None else rows.columns), {}
    X, counts = student.schema.encode_counting(rows)
    return X, {name: count for name, count in counts.items() if count}


def _write(
    out: Path,
    student: "DeployedStudent",
    X: Any,
    *,
    ids: list[str] | None,
    id_column: str | None,
    proba: bool,
    quiet: bool,
) -> None:
    """Predict in blocks of rows and write the file when all are done."""
    from ipate.files import write_csv

    n_rows = _length(X)
    lines: list[tuple[Any, ...]] = []
    with progress_bar("rows predicted", n_rows, quiet=quiet) as progress:
        for start in range(0, n_rows, _BLOCK):
            block = X[start : start + _BLOCK]
            columns: list[list[Any]] = [student.predict_encoded(block).tolist()]
            if proba:
                columns += [[f"{value:.6g}" for value in own] for own in student.proba_encoded(block).T.tolist()]
            first = range(start, n_rows) if ids is None else ids[start : start + len(columns[0])]
            lines += list(zip(first, *columns, strict=False))
            progress(min(start + _BLOCK, n_rows))
    shares = [f"p({name})" for name in student.classes_.tolist()] if proba else []
    write_csv(out, [id_column or "row", "prediction", *shares], lines)


def _show(found: dict[str, Any]) -> None:
    echo(f"Written: {found['out']}, {found['rows']:,} predictions.")
    if found["ignored_columns"]:
        echo(f"Not used: {', '.join(found['ignored_columns'])}.")
    for name, count in found["missing_cells"].items():
        echo(f"Missing or unknown: {count:,} cells of {name}; the student sees them as missing.")
