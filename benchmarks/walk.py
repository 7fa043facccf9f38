"""Trace a run and its report, and count how often the main path changes rooms.

    python benchmarks/walk.py [--list]

Runs `ipate run --dataset synthetic` and `ipate report` in this process and notes every function of ipate when it is
called for the first time; properties, special methods and functions inside functions do not count, nor do calls
while a module is imported, nor `errors` and `files`, which every room uses. The main path is that sequence of
functions, and a crossing is a step from one room (the folder below `ipate`, or the module at its root) to another.
"""

import argparse
import ast
import contextlib
import io
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import ipate

ROOT = Path(ipate.__file__).parent
SHARED = ("errors", "files", "tables", "npz", "_version")  # tables and npz: earlier names of what is in files
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


def trace(commands: list[list[str]]) -> list[Place]:
    """Run commands and return the functions that were called, in the order of their first call."""
    run: Any
    try:
        from ipate.cli.app import _run as run
    except ImportError:  # where the command line was one module
        from ipate.cli import _run as run  # type: ignore[attr-defined, no-redef]
    counted, seen = functions(), dict[Place, None]()
    importing = 0  # depth of module bodies that are being executed

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal importing
        if frame.f_code.co_name == "<module>":
            importing += (event == "call") - (event == "return")
        place = (frame.f_code.co_filename, frame.f_code.co_firstlineno)
        if event == "call" and not importing and place in counted and room_of(place[0]) not in SHARED:
            seen.setdefault(place)

    for command in commands:
        sys.setprofile(note)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            code = run(command)
        sys.setprofile(None)
        if code:
            raise SystemExit(f"ipate {' '.join(command)} ended with {code}")
    return list(seen)


def main() -> None:
    """Print the number of functions, files and crossings, and how often each room is entered."""
    parser = argparse.ArgumentParser(description="Count changes of room along the main path of a run and its report.")
    parser.add_argument("--list", action="store_true", help="print the path, one line per stay in a room")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "run")
        path = trace([["run", "--dataset", "synthetic", "--jobs", "1", "--out", out], ["report", out]])
    rooms = [room_of(file) for file, _ in path]
    entered = Counter(room for before, room in zip(["", *rooms], rooms, strict=False) if room != before)
    if options.list:
        names = functions()
        for place, (file, line) in enumerate(path):
            if place == 0 or rooms[place - 1] != rooms[place]:
                print(f"\n{rooms[place]}:", end="")
            print(f" {Path(file).stem}.{names[file, line]}", end="")
        print("\n")
    print(f"{len(path)} functions in {len({file for file, _ in path})} files, {entered.total() - 1} changes of room")
    print("entered: " + ", ".join(f"{room} {count}" for room, count in entered.most_common()))


if __name__ == "__main__":
    main()
