"""Run the whole command on pairs of files that differ in one person, and compare everything that others can see.

Each pair has the same header, ids, consent and public pool. In the second file the feature and label cells of one
person are replaced by anything: text, nothing, huge numbers, infinities, another class, no class. `ipate run` must end
with the same exit code, the same names of files in `public`, and the same stderr and stdout. The settings are such that
no figure of the output depends on the noise: as many labels as asked for, at a price that depends on public facts.
Only hashes, times and the notes about released labels are masked; see `MASKS` and `FROM_LABELS`.

    python benchmarks/neighbours.py [--ballots] [--pairs 200] [--processes 20] [--seed 0]

Prints how many pairs were alike, how many of them had failing teachers or unusable cells, and the first difference;
exits with 1 if there is one. Some pairs run as processes of their own, the others in this one.
"""

import argparse
import csv
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

CONSOLE = Path(sys.executable).with_name("ipate")
HERE = Path(__file__).resolve().parent
CLASSES, CATEGORIES = ("ill", "well", "unsure"), ("a", "b", "c")
TEACHERS = {
    "logistic": "logistic",
    "bayes": "bayes",
    "tree": "sklearn.tree:DecisionTreeClassifier",
    "knn": "sklearn.neighbors:KNeighborsClassifier",
    "quadratic": "neighbours:quadratic",
    "search": "neighbours:searched",
    "bagged": "neighbours:bagged",
    "touchy": "neighbours:Touchy",
}
VARIANTS = ("weighting", "standard", "upsampling", "vanishing")
ODD_CELLS = (
    "",
    " ",
    "abc",
    "nan",
    "NaN",
    "inf",
    "-inf",
    "1e308",
    "-1e308",
    "1e-320",
    "1e999",
    "0",
    "-0.0",
    "7,5",
    "3.5",
    "99999999999999999999999",
    "true",
    "None",
    "2026-11-16",
    "é",
    '"',
    "a,b",
    "line\nbreak",
    "=1+1",
    "0x10",
    "1_000",
    "ill",
    "b",
    "zzz",
    "-1",
    "  12  ",
    "5%",
    "x" * 300,
)
ODD_LABELS = (*CLASSES, "", "nan", "martian", "0", "ILL", "1e308", "inf", "é", " ill ")
MASKS = (  # what differs between any two runs of the same command
    (r"[0-9a-f]{32,64}", "HASH"),
    (r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.+]+", "TIME"),
)
FROM_LABELS = re.compile(  # lines about released labels, which were paid for
    r"^ipate: (warning: )?(no label was released for the class(es)? |[0-9,]+ of [0-9,]+ labels \([0-9.]+%\) are )"
    r"[^\n]*\n",
    re.M,
)
CONFIG = """
split_seed = {seed}
[data]
file = "people.csv"
public_file = "pool.csv"
label = "state"
level = "consent"
person = "id"
classes = ["ill", "well", "unsure"]
numbers = {{ age = [0, 100], dose = [0, 10] }}
categories = {{ ward = ["a", "b", "c"] }}
[budgets]
policy = {{ high = 4.0, low = 8.0 }}
[teachers]
model = "{teacher}"
number = 6
{engine}
[labelling]
variant = "{variant}"
aggregator = "gnmax"
sigma = 8.0
max_labels = 30
[student]
model = "bayes"
"""


BALLOTS = (  # of the configuration, where people cast ballots
    ('model = "{teacher}"\nnumber = 6\n', ""),
    ('aggregator = "gnmax"\nsigma = 8.0\nmax_labels = 30\n', 'voting = "ballots"\n'),
)


def quadratic() -> Any:
    """Return a discriminant analysis that needs two rows of every class that a teacher sees."""
    from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis

    return QuadraticDiscriminantAnalysis(solver="eigen", shrinkage=0.1)


def searched() -> Any:
    """Return a search over parameters with shuffled folds; it fails where no class has as many rows as folds."""
    from sklearn.model_selection import GridSearchCV, StratifiedKFold
    from sklearn.neighbors import KNeighborsClassifier

    return GridSearchCV(KNeighborsClassifier(), {"n_neighbors": [1, 2]}, cv=StratifiedKFold(3, shuffle=True))


def bagged() -> Any:
    """Return bagged trees."""
    from sklearn.ensemble import BaggingClassifier
    from sklearn.tree import DecisionTreeClassifier

    return BaggingClassifier(DecisionTreeClassifier(), n_estimators=3)


def Touchy() -> Any:  # noqa: N802 - used like a class
    """Return a teacher that warns, prints, and fails on rows that differ from others by little."""
    from sklearn.naive_bayes import GaussianNB

    class Touchy(GaussianNB):  # type: ignore[misc]
        """Fails or talks depending on the sum of its rows, but not on an even sample."""

        def fit(self, X: Any, y: Any) -> Any:
            if np.ptp(np.bincount(y)) > 1:
                odd = int(1e6 * abs(float(np.sum(X)))) % 4
                if odd == 0:
                    raise RuntimeError("secret")
                if odd == 1:
                    raise SystemExit(3)
                sys.stderr.write("secret\n")
            return super().fit(X, y)

    return Touchy()


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Everything that somebody who is not the data owner can see of a command."""

    code: int
    files: tuple[str, ...]
    stdout: str
    stderr: str

    def difference(self, other: "Outcome") -> str:
        """Return the first difference in words; empty if there is none."""
        for name in ("code", "files", "stderr", "stdout"):
            one, two = getattr(self, name), getattr(other, name)
            if one != two:
                return f"{name}:\n{_first(one, two)}"
        return ""


def _first(one: Any, two: Any) -> str:
    if not isinstance(one, str):
        return f"  {one}\n  {two}"
    lines = zip([*one.splitlines(), ""], [*two.splitlines(), ""], strict=False)
    return next((f"  {a[:300]}\n  {b[:300]}" for a, b in lines if a != b), "  another number of lines")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """How one pair was run, how it ended, and whether something private happened in either run."""

    number: int
    teacher: str
    variant: str
    cells: tuple[str, ...]
    code: int
    difference: str
    noted: bool


def write_people(path: Path, rows: Sequence[Sequence[str]]) -> None:
    """Write a csv of people."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["id", "age", "dose", "ward", "consent", "state"], *rows])


def make_rows(rng: np.random.Generator, n: int, *, people: bool) -> list[list[str]]:
    """Draw people, or points of the public pool, of three overlapping classes."""
    made = []
    for number in range(n):
        state = int(rng.integers(3))
        age, dose = rng.normal(30 + 15 * state, 12), rng.normal(3 + state, 1)
        row = [f"{age:.1f}", f"{dose:.3f}", CATEGORIES[int(rng.integers(3))]]
        extra = [f"p{number:03d}"], [("high", "low")[int(rng.integers(2))], CLASSES[state]]
        made.append([*extra[0], *row, *extra[1]] if people else row)
    return made


def changed(rng: np.random.Generator, rows: list[list[str]]) -> tuple[list[list[str]], tuple[str, ...]]:
    """Return the rows with some feature and label cells of one person replaced, and these cells."""
    person, cells = int(rng.integers(len(rows))), []
    other = [list(row) for row in rows]
    for place in rng.permutation([1, 2, 3, 5])[: int(rng.integers(1, 5))].tolist():
        odd = ODD_LABELS if place == 5 else ODD_CELLS
        other[person][place] = odd[int(rng.integers(len(odd)))]
        cells.append(other[person][place])
    return other, tuple(cells)


def run(folder: Path, options: Sequence[str], *, process: bool) -> Outcome:
    """Run `ipate run` in a folder with its files."""
    arguments = ["run", "run.toml", "--out", "out", *options]
    if process:
        done = subprocess.run(
            [str(CONSOLE), *arguments],
            cwd=folder,
            check=False,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=600,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])},
        )
        code, out, err = done.returncode, done.stdout, done.stderr
    else:
        from ipate.cli.app import _run

        if str(HERE) not in sys.path:
            sys.path.insert(0, str(HERE))
        with chdir(folder), redirect_stdout(io.StringIO()) as heard, redirect_stderr(io.StringIO()) as warned:
            code = _run(arguments)
        out, err = heard.getvalue(), warned.getvalue()
    public = folder / "out" / "public"
    files = tuple(sorted(str(path.relative_to(public)) for path in public.rglob("*"))) if public.is_dir() else ()
    return Outcome(code=code, files=files, stdout=_masked(_public_json(out), folder), stderr=_masked(err, folder))


def _public_json(text: str) -> str:
    """Return JSON without the notes about released labels, line by line; other text as it is."""
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return json.dumps(_without_notes(found), indent=1, sort_keys=True)


def _without_notes(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_notes(inner) for name, inner in value.items() if name != "label_notes"}
    return [_without_notes(inner) for inner in value] if isinstance(value, list) else value


def _masked(text: str, folder: Path) -> str:
    for place in (folder.resolve(), folder):
        text = text.replace(str(place), "FOLDER")
    for pattern, mask in MASKS:
        text = re.sub(pattern, mask, text)
    return FROM_LABELS.sub("", text)


def compare(number: int, folder: Path, *, seed: int, process: bool, ballots: bool = False) -> Pair:
    """Make one pair of neighbouring files, run the command on both, and compare what can be seen."""
    rng = np.random.default_rng([seed, number])
    rows, pool = make_rows(rng, 90, people=True), make_rows(rng, 40, people=False)
    teacher = "ballots" if ballots else list(TEACHERS)[number % len(TEACHERS)]
    variant = VARIANTS[number % 2] if ballots else VARIANTS[(number // len(TEACHERS)) % len(VARIANTS)]
    options = ["--json"] if rng.integers(2) else []
    engine = "n_jobs = 1" if process else 'backend = "sequential"'
    text = CONFIG
    for old, new in BALLOTS if ballots else ():
        text = text.replace(old, new)
    config = text.format(seed=number, teacher=TEACHERS.get(teacher, ""), variant=variant, engine=engine)
    other, cells = changed(rng, rows)
    seen = []
    for name, people in (("one", rows), ("two", other)):
        here = folder / f"{number}" / name
        here.mkdir(parents=True)
        write_people(here / "people.csv", people)
        with (here / "pool.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([["age", "dose", "ward"], *pool])
        (here / "run.toml").write_text(config)
        seen.append((run(here, options, process=process), _noted(here)))
    (one, first), (two, second) = seen
    return Pair(
        number=number,
        teacher=teacher,
        variant=variant,
        cells=cells,
        code=one.code,
        difference=one.difference(two),
        noted=first or second,
    )


def _noted(folder: Path) -> bool:
    """Whether the private notes of a run name a teacher that failed or a cell that was not usable."""
    path = folder / "out" / "private" / "notes.json"
    notes = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return bool(notes.get("votes")) or bool(notes.get("data"))


def main() -> int:
    """Run all pairs and print how many were alike."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first pair")
    parser.add_argument("--processes", type=int, default=20, help="how many of the pairs run as processes")
    parser.add_argument("--ballots", action="store_true", help="let people cast ballots instead of training teachers")
    parser.add_argument("--seed", type=int, default=0)
    wanted = parser.parse_args()
    begun, pairs = time.perf_counter(), []
    every = max(1, wanted.pairs // wanted.processes) if wanted.processes else wanted.pairs + 1
    with tempfile.TemporaryDirectory() as folder:
        for number in range(wanted.first, wanted.first + wanted.pairs):
            process = wanted.processes > 0 and number % every == 0
            pairs.append(compare(number, Path(folder), seed=wanted.seed, process=process, ballots=wanted.ballots))
            if pairs[-1].difference:
                sys.stdout.write(f"{pairs[-1]}\n".replace("\\n", "\n"))
    alike = sum(not pair.difference for pair in pairs)
    noted, ended = sum(pair.noted for pair in pairs), sum(pair.code == 0 for pair in pairs)
    took = time.perf_counter() - begun
    sys.stdout.write(
        f"{alike} of {len(pairs)} pairs alike; {ended} ended with 0; in {noted} a teacher failed or a cell was not "
        f"usable; {took:.0f} s\n"
    )
    return 0 if alike == len(pairs) else 1


if __name__ == "__main__":
    sys.exit(main())
