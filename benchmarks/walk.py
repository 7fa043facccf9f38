"""Trace a run with its report, and a fit, and count how often the main path changes rooms.

    python benchmarks/walk.py [--engine teachers|ballots] [--list] [--pipeline]

Runs `ipate run --dataset synthetic` and `ipate report` in this process, then `PATEClassifier.fit` and its report on
the same people. It notes every function of ipate when it is called for the first time. Properties, special methods and
functions inside functions do not count, nor do calls while a module is imported. Rooms that every other room uses do
not count either: errors, files, types, and the accounting, which is pure. The main path is that sequence of functions,
and a crossing is a step from one room (the folder below `ipate`, or the module at its root) to another.
"""

import argparse
import ast
import contextlib
import inspect
import io
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import ipate
from ipate import PATEClassifier, load
from ipate.cli.app import _run
from ipate.data.dataset import partition
from ipate.data.synthetic import CLASSES
from ipate.pipeline import train
from ipate.students.student import find_student

ROOT = Path(ipate.__file__).parent
SHARED = ("accounting", "errors", "files", "_types", "_version")
POLICY = {"high": 1.0, "average": 2.0, "low": 3.0}
Place = tuple[str, int]


def functions() -> dict[Place, str]:
    """Return every function and method that counts, by file and first line."""
    found = {}
    for path in ROOT.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        nodes = [*tree.body, *(item for node in tree.body if isinstance(node, ast.ClassDef) for item in node.body)]
        for node in nodes:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("__"):
                decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
                first = node.decorator_list[0].lineno if node.decorator_list else node.lineno
                if not any("property" in decorator for decorator in decorators):
                    found[str(path), first] = node.name
    return found


def room_of(file: str) -> str:
    """Return the room that a file lies in."""
    parts = Path(file).relative_to(ROOT).parts
    return Path(parts[0]).stem


def trace(*steps: Callable[[], object]) -> list[Place]:
    """Take some steps and return the functions that were called, in the order of their first call."""
    counted, seen = functions(), dict[Place, None]()
    importing = 0  # depth of module bodies that are being executed

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal importing
        if frame.f_code.co_name == "<module>":
            importing += (event == "call") - (event == "return")
        place = (frame.f_code.co_filename, frame.f_code.co_firstlineno)
        if event == "call" and not importing and place in counted and room_of(place[0]) not in SHARED:
            seen.setdefault(place)

    for step in steps:
        sys.setprofile(note)
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                step()
        finally:
            sys.setprofile(None)
    return list(seen)


def command(*arguments: str) -> Callable[[], None]:
    """Return the step that runs one command."""

    def run() -> None:
        code = _run(list(arguments))
        if code:
            raise SystemExit(f"ipate {' '.join(arguments)} ended with {code}")

    return run


def fit(engine: str, report: Path) -> list[Place]:
    """Return the path of a fit on the people of the run, and of its report."""
    data = load("synthetic")
    parts = partition(data.n_rows, public=0.1, test=0.1, seed=0)
    rows, levels = data.X[parts.private], data.levels
    assert levels is not None
    model = PATEClassifier(
        teacher="bayes", student=find_student("logistic").make({}), voting=engine, classes=CLASSES, verbose=0
    )
    given = {"levels": levels[parts.private], "policy": POLICY, "X_public": data.X[parts.public]}
    codes = [CLASSES[code] for code in data.y[parts.private]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return trace(lambda: model.fit(rows, codes, **given), lambda: model.report(report))


def show(title: str, path: list[Place], *, listed: bool) -> None:
    """Print the number of functions, files and crossings, and how often each room is entered."""
    rooms = [room_of(file) for file, _ in path]
    entered = Counter(room for before, room in zip(["", *rooms], rooms, strict=False) if room != before)
    print(f"{title}:", end="" if listed else " ")
    if listed:
        names = functions()
        for place, (file, line) in enumerate(path):
            if place == 0 or rooms[place - 1] != rooms[place]:
                print(f"\n{rooms[place]}:", end="")
            print(f" {Path(file).stem}.{names[file, line]}", end="")
        print("\n")
    print(f"{len(path)} functions in {len({file for file, _ in path})} files, {entered.total() - 1} changes of room")
    print("entered: " + ", ".join(f"{room} {count}" for room, count in entered.most_common()) + "\n")


def main() -> None:
    """Print the paths of a run and of a fit."""
    parser = argparse.ArgumentParser(description="Count changes of room along the main path of a run and its report.")
    parser.add_argument("--engine", choices=["teachers", "ballots"], action="append", help="both unless said")
    parser.add_argument("--list", action="store_true", help="print the paths, one line per stay in a room")
    parser.add_argument("--pipeline", action="store_true", help="print the pipeline as it stands")
    options = parser.parse_args()
    if options.pipeline:
        print(inspect.getsource(train))
    for engine in options.engine or ("teachers", "ballots"):
        with tempfile.TemporaryDirectory() as folder:
            out = str(Path(folder) / "run")
            run = command("run", "--dataset", "synthetic", "--voting", engine, "--jobs", "1", "--out", out)
            show(f"run + report, {engine}", trace(run, command("report", out)), listed=options.list)
            show(f"fit + report, {engine}", fit(engine, Path(folder) / "fit.html"), listed=options.list)


if __name__ == "__main__":
    main()
