"""The made-up input of every case: files that a user would have, and arrays and frames for a classifier.

Nothing here imports ipate, and nothing here depends on the machine. `provide` writes a file by its name, so a case
names the files that it reads and gets them. The generators are seeded, so a change of a number here changes results.
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

VOTES = {"strict": (2.0, 27), "middle": (4.0, 18), "lax": (8.0, 15)}  # ε and teachers of each group
CLASSES, QUERIES = 4, 150
WARDS = ("north", "south", "west")


def provide(name: str, folder: Path) -> None:
    """Write an input file into a folder, unless it is there; a name that is no input is left to the command."""
    if name in FILES and not (folder / name).exists():
        FILES[name](folder / name)


def table(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows of cells as a csv file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


# --- people ---


def people(path: Path, *, public: bool = False) -> None:
    """Write 330 people in 420 rows, two numbers and a level each; `public` adds who agreed to be public."""
    rng = np.random.default_rng(5)
    y = rng.integers(2, size=420)
    X = rng.normal(size=(420, 2)) + 2.5 * y[:, None]
    rows = []
    for row in range(420):
        person = row % 330
        cells = {"a": f"{X[row, 0]:.4f}", "b": f"{X[row, 1]:.4f}", "sick": y[row]}
        cells |= {"consent": "high" if person % 3 else "low", "person": f"p{person}"}
        rows.append(cells | ({"agreed": {0: "public", 1: "test"}.get(person % 5, "")} if public else {}))
    table(path, rows)


def many_budgets(path: Path) -> None:
    """Write 400 people with an ε of their own each, so that groups are merged."""
    rng = np.random.default_rng(6)
    y = rng.integers(2, size=400)
    X = rng.normal(size=(400, 2)) + 2.5 * y[:, None]
    budgets = rng.uniform(10, 60, size=400)
    table(
        path,
        [
            {"a": f"{X[row, 0]:.4f}", "b": f"{X[row, 1]:.4f}", "sick": y[row], "eps": f"{budgets[row]:.2f}", "who": row}
            for row in range(400)
        ],
    )


def points(path: Path) -> None:
    """Write a grid of points, to predict."""
    steps = np.linspace(-2.05, 4.45, 14)
    table(path, [{"a": f"{a:.3f}", "b": f"{b:.3f}"} for a in steps for b in steps])


def patients(n: int, *, seed: int, private: bool) -> list[dict[str, Any]]:
    """Return rows with a gap, categories and dates; of the private ones a fifth share a person with another."""
    rng = np.random.default_rng(seed)
    sick = rng.integers(2, size=n)
    made = []
    for index in range(n):
        person = index // 2 if index < n // 5 else index
        cells = {
            "patient": f"p{person}",
            "consent": ("high", "low")[person % 2],
            "agreed": f"2024-0{1 + person % 9}-15",
            "version": "2",
            "age": f"{40 + 25 * sick[index] + rng.normal(0, 5):.1f}",
            "bmi": "" if index % 11 == 0 else f"{rng.normal(26, 4):.2f}",
            "sex": "FM"[int(rng.integers(2))],
            "ward": "ABC"[int(rng.integers(3))],
            "admitted": f"2024-{1 + index % 12:02d}-{1 + index % 28:02d}",
            "note": "",
            "outcome": ("home", "readmitted")[sick[index]],
        }
        if private and index % 29 == 4:
            cells |= {"age": "unknown", "outcome": "neither"}  # such cells are not refused, only noted
        made.append(cells if private else {k: v for k, v in cells.items() if k not in _OF_PEOPLE})
    return made


def unclear(path: Path) -> None:
    """Write patients whose ages lie between those of the healthy and of the sick, to predict."""
    ages_ = np.random.default_rng(4).uniform(44, 61, size=150)
    rows = patients(150, seed=4, private=False)
    table(path, [row | {"age": f"{age:.2f}"} for row, age in zip(rows, ages_, strict=True)])


_OF_PEOPLE = ("patient", "consent", "agreed", "version")


def parquet(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as a parquet file with typed columns."""
    import pyarrow as pa
    from pyarrow import parquet as files

    columns: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in rows[0]}
    for name in ("age", "bmi"):
        columns[name] = [_number(cell) for cell in columns[name]]
    files.write_table(pa.table(columns), path)


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def arrays(path: Path) -> None:
    """Write people as arrays: features, class ids and an ε each."""
    rng = np.random.default_rng(8)
    y = rng.integers(3, size=500)
    X = rng.normal(size=(500, 3)) + 3 * np.eye(3)[y]
    np.savez(path, X=X, y=y, epsilon=np.where(np.arange(500) % 3 == 0, 40.0, 20.0), classes=np.array(["x", "y", "z"]))


def of_blobs(path: Path, part: str) -> None:
    """Write the rows of `blobs` that a fit has as arrays: the private ones, the pool, or test data."""
    world = blobs()
    if part == "private":
        more = {"y": world["y"], "level": world["levels"], "person": world["person_id"]}
        X = world["X"]
    else:
        X, y = (world["X_public"], world["y_public"]) if part == "pool" else world["labelled"]
        more = {"y": y}
    rows = range(len(X))
    own = [{"a": repr(float(X[row, 0])), "b": repr(float(X[row, 1]))} for row in rows]
    table(path, [own[row] | {name: value[row] for name, value in more.items()} for row in rows])


# --- votes and ballots that are there already ---


def votes(path: Path, *, without: Sequence[str] = (), **more: Any) -> None:
    """Write the votes of 60 teachers in three groups on 150 queries of four classes."""
    rng = np.random.default_rng(7)
    truth = rng.integers(0, CLASSES, size=QUERIES)
    k = sum(teachers for _, teachers in VOTES.values())
    right = rng.random((k, QUERIES)) < rng.uniform(0.55, 1.0, size=QUERIES)
    cast = np.where(right, truth, rng.integers(0, CLASSES, size=(k, QUERIES))).astype(np.int16)
    names = np.repeat(list(VOTES), [teachers for _, teachers in VOTES.values()])
    found = {"votes": cast, "groups": names, "classes": CLASSES, "labels": truth, **more}
    np.savez(path, **{name: value for name, value in found.items() if name not in without})


def turns(path: Path) -> None:
    """Write votes in which not every teacher takes part, and a few abstain."""
    rng = np.random.default_rng(17)
    k = sum(teachers for _, teachers in VOTES.values())
    cast = rng.integers(-1, CLASSES, size=(k, QUERIES)).astype(np.int16)
    names = np.repeat(list(VOTES), [teachers for _, teachers in VOTES.values()])
    np.savez(path, votes=cast, groups=names, classes=CLASSES, participation=rng.random((k, QUERIES)) < 0.7)


def sure(path: Path, *, wrong: float = 0.05, mixed: bool = False) -> None:
    """Write the votes of 24 teachers on 40 queries, of which most agree: with them the test of ptr is passed."""
    rng = np.random.default_rng(1)
    truth = rng.integers(3, size=40)
    cast = np.where(rng.random((24, 40)) < wrong, rng.integers(3, size=(24, 40)), truth)
    names = {} if mixed else {"groups": np.repeat(["strict", "lax"], 12)}
    np.savez(path, votes=cast, labels=truth, classes=3, **names)


def groups(path: Path, **columns: Sequence[Any]) -> None:
    """Write the budgets of the groups of `votes`, with more columns."""
    rows = [{"group": name, "epsilon": epsilon, "delta": "1e-5"} for name, (epsilon, _) in VOTES.items()]
    table(path, [row | {key: own[place] for key, own in columns.items()} for place, row in enumerate(rows)])


def probabilities(path: Path) -> None:
    """Write a student's probabilities for the queries of `votes`: sure on most of them, sometimes wrong."""
    rng = np.random.default_rng(7)
    truth = rng.integers(0, CLASSES, size=QUERIES)
    own = np.where(np.arange(QUERIES) % 10 == 3, (truth + 1) % CLASSES, truth)
    shares = np.full((QUERIES, CLASSES), 0.02)
    shares[np.arange(QUERIES), own] = 0.94
    shares[::4] = 1 / CLASSES
    np.save(path, shares)


def mask(path: Path) -> None:
    """Write which queries of `votes` were answered, asked in vain, or not asked."""
    np.save(path, np.array([1, 1, 0, -1, 1])[np.arange(QUERIES) % 5])


UNITS = {"a": 20_000, "b": 40_000, "c": 80_000}  # what a member adds, in steps of 2^-20


def ballots(path: Path, *, per_group: bool = False, only: Sequence[str] = (), **more: Any) -> None:
    """Write the sum of the ballots of three groups of 300 people, or of each group, in 4 partitions of 6 cells."""
    rng = np.random.default_rng(23)
    sums = np.zeros((3, 4, 6, 3), dtype=np.int64)
    for place, unit in enumerate(UNITS.values()):
        for _ in range(300):
            y = int(rng.integers(3))
            cells = (2 * y + rng.integers(0, 2, size=4) + (rng.random(4) < 0.1)) % 6
            sums[place, np.arange(4), cells, y] += unit
    where = rng.integers(0, 6, size=(120, 4))
    held = {"ballots": sums if per_group else sums.sum(axis=0), "cells": where, "groups": np.array(list(UNITS))}
    held |= {"units": np.array(list(UNITS.values())), **more}
    np.savez(path, **{name: value for name, value in held.items() if not only or name in only})


def voters(path: Path) -> None:
    """Write the budgets and numbers of people of the groups of `ballots`."""
    rows = zip(UNITS, (0.5, 1.0, 2.0), strict=True)
    table(path, [{"group": name, "epsilon": epsilon, "delta": "1e-4", "people": 300} for name, epsilon in rows])


# --- sites ---

SITES = {  # people of the strict and of the lax level, the policy, and the first number of a person
    "north": (120, 80, "high = 1.0\nlow = 3.0\n", 0),
    "south": (60, 40, "high = 0.5\nlow = 2.0\ndelta = 1e-6\n", 200),
    "west": (40, 160, "high = 2.0\nlow = 8.0\n", 300),
}


def ages(n: int, seed: int) -> tuple[Any, Any]:
    """Return ages and body mass indices, and who is ill."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    return np.column_stack([rng.normal(40 + 25 * y, 6), rng.normal(22 + 9 * y, 3)]), y


def pool(path: Path) -> None:
    """Write the public points of all sites, with the bounds of the features beside them."""
    X, _ = ages(120, 9)
    path.with_name("bounds.csv").write_text("feature,low,high\nage,0,100\nbmi,10,50\n")
    table(path, [{"name": f"q{row}", "age": repr(float(a)), "bmi": repr(float(b))} for row, (a, b) in enumerate(X)])


def site(folder: Path, name: str) -> None:
    """Write the rows and the policy of a site; some of its people have two rows, some cells cannot be read."""
    high, low, policy, first = SITES[name]
    people_, extra = high + low, (high + low) // 4
    X, y = ages(people_ + extra, 30 + first)
    rows = []
    for row in range(people_ + extra):
        person = first + row % people_
        rows.append(
            {
                "patient": f"p{person}",
                "bmi": repr(float(X[row, 1])),
                "diagnosis": "neither" if row % 37 == 3 else "ill" if y[row] else "well",
                "age": "unknown" if row % 41 == 5 else repr(float(X[row, 0])),
                "consent": "high" if row % people_ < high else "low",
            }
        )
    table(folder / "rows.csv", rows)
    (folder / "policy.toml").write_text(policy)


FILES: dict[str, Callable[[Path], None]] = {
    "people.csv": people,
    "agreed.csv": lambda path: people(path, public=True),
    "budgets.csv": many_budgets,
    "points.csv": points,
    "private.csv": lambda path: table(path, patients(600, seed=1, private=True)),
    "public.csv": lambda path: table(path, patients(120, seed=2, private=False)),
    "test.csv": lambda path: table(path, patients(60, seed=3, private=False)),
    "patients.csv": unclear,
    "private.parquet": lambda path: parquet(path, patients(600, seed=1, private=True)),
    "public.parquet": lambda path: parquet(path, patients(120, seed=2, private=False)),
    "test.parquet": lambda path: parquet(path, patients(60, seed=3, private=False)),
    "people.npz": arrays,
    "blobs.csv": lambda path: of_blobs(path, "private"),
    "blobs-pool.csv": lambda path: of_blobs(path, "pool"),
    "blobs-test.csv": lambda path: of_blobs(path, "test"),
    "votes.npz": votes,
    "named.npz": lambda path: votes(path, queries=np.array([f"point {row}" for row in range(QUERIES)])),
    "weighted.npz": lambda path: votes(path, weights=np.repeat([0.5, 1.0, 2.0], [27, 18, 15])),
    "mixed.npz": lambda path: votes(path, without=("groups",)),
    "turns.npz": turns,
    "sure.npz": sure,
    "sure-mixed.npz": lambda path: sure(path, mixed=True),
    "sure-others.npz": lambda path: sure(path, wrong=0.3),
    "groups.csv": groups,
    "copies.csv": lambda path: groups(path, sensitivity=(1, 2, 4)),
    "weights.csv": lambda path: groups(path, weight=(0.5, 1, 2)),
    "sure.csv": lambda path: path.write_text("group,epsilon,delta\nstrict,4,1e-3\nlax,6,1e-3\n"),
    "sure-copies.csv": lambda path: path.write_text("group,epsilon,delta,sensitivity\nstrict,4,1e-3,1\nlax,6,1e-3,2\n"),
    "probs.npy": probabilities,
    "answered.npy": mask,
    "ballots.npz": ballots,
    "ballots-by-group.npz": lambda path: ballots(path, per_group=True),
    "ballots-bare.npz": lambda path: ballots(path, only=("ballots", "cells")),
    "voters.csv": voters,
    "pool.csv": pool,
}


# --- what a classifier is given ---


def blobs(n: int = 1200, *, gaps: bool = False, copies: bool = False) -> dict[str, Any]:
    """Return three classes in the plane: private rows with budgets, levels and persons, a pool, and points.

    With `gaps` some private cells are missing and some labels are no class; with `copies` the pool is private rows.
    """
    centres = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])

    def world(size: int, seed: int) -> tuple[Any, Any]:
        rng = np.random.default_rng(seed)
        y = rng.integers(0, 3, size)
        return centres[y] + rng.standard_normal((size, 2)), y

    (X, y), (pool_, truth) = world(n, 1), world(200, 2)
    rng = np.random.default_rng(4)
    person = np.where(np.arange(n) < n // 5, np.arange(n) // 2, np.arange(n))
    level = rng.choice(["high", "low"], n, p=[0.7, 0.3])[person]
    labels = y.astype(object)
    if gaps:
        X[::50, 0] = np.nan
        labels[2::40] = "no class"
    return {
        "X": X,
        "y": labels if gaps else y,
        "levels": level,
        "budgets": np.where(level == "high", 8.0, 24.0),
        "person_id": person,
        "X_public": X[: len(truth)] if copies else pool_,
        "y_public": truth,
        "points": world(300, 3)[0],
        "labelled": world(60, 5),
    }


def wards(n: int = 600) -> dict[str, Any]:
    """Return columns of a table: a category, a number with gaps and noise, whose class depends on the first two."""

    def rows(size: int, seed: int) -> tuple[dict[str, Any], Any]:
        rng = np.random.default_rng(seed)
        ward, age = rng.choice(WARDS, size=size), rng.normal(60, 10, size=size)
        y = np.where((ward == "north") ^ (age > 75), "home", "ward")
        age[rng.random(size) < 0.1] = np.nan
        return {"ward": ward, "age": age, "noise": rng.normal(size=size)}, y

    (X, y), (pool_, truth), (points_, _) = rows(n, 0), rows(200, 1), rows(150, 2)
    person = np.arange(n) // 2
    budgets = np.random.default_rng(3).choice([20.0, 40.0], size=n)[person]
    return {
        "X": X,
        "y": y,
        "budgets": budgets,
        "person_id": person,
        "X_public": pool_,
        "y_public": truth,
        "points": points_,
    }


TABLES: dict[str, Callable[[], dict[str, Any]]] = {
    "blobs": blobs,
    "blobs with gaps": lambda: blobs(gaps=True),
    "blobs of copies": lambda: blobs(copies=True),
    "wards": wards,
}


def frame(form: str, columns: Any) -> Any:
    """Return an array as it is, as a sparse matrix, or with columns as a frame of a library."""
    if form == "array":
        return columns
    if form == "sparse":
        from scipy.sparse import csr_matrix

        return csr_matrix(columns)
    if not isinstance(columns, dict):
        columns = {f"x{place}": column for place, column in enumerate(np.asarray(columns).T)}
    if form == "pandas":
        import pandas as pd

        return pd.DataFrame(columns)
    if form == "polars":
        import polars as pl

        return pl.DataFrame(columns)
    import pyarrow as pa

    return pa.table(columns)


def mixed_columns() -> Any:
    """Return a classifier for `wards`, which encodes the category and fills the gaps by itself."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.naive_bayes import GaussianNB
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    encoder = OneHotEncoder(categories=[list(WARDS)], handle_unknown="ignore", sparse_output=False)
    split = ColumnTransformer([("ward", encoder, ["ward"]), ("numbers", SimpleImputer(), ["age", "noise"])])
    return make_pipeline(split, GaussianNB(var_smoothing=1e-3))
