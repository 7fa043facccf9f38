"""Run the tutorials, each in an empty folder, and say how long each took.

    python docs/hooks/notebooks.py [NAME ...] [--write | --check]

With --write the cells' outputs are stored in the notebooks; otherwise nothing is changed. With --check the words that
are printed are compared with the stored ones; figures and ids differ from run to run and are left out. A cell that
fails ends the command with its traceback.
"""

import argparse
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from shutil import copy

import nbformat
from nbclient import NotebookClient

TUTORIALS = Path(__file__).parents[1] / "tutorial"
_FEW = 8  # words that may differ by chance: a sentence that depends on a figure


def main() -> None:
    """Run the notebooks that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = sorted(path.stem for path in TUTORIALS.glob("*.ipynb"))
    parser.add_argument("names", nargs="*", choices=[*names, []], metavar="NAME", help=", ".join(names))
    parser.add_argument("--write", action="store_true", help="store the outputs in the notebooks")
    parser.add_argument("--check", action="store_true", help="fail if other words are printed than are stored")
    arguments = parser.parse_args()
    for name in arguments.names or names:
        start = time.perf_counter()
        book = run(TUTORIALS / f"{name}.ipynb")
        print(f"{name}: {time.perf_counter() - start:.1f} s", flush=True)
        differ = sorted(words(book) ^ words(nbformat.read(TUTORIALS / f"{name}.ipynb", as_version=4)))
        if arguments.check and len(differ) > _FEW:
            sys.exit(f"{name}: what it prints is not what is stored; run make notebooks. Words: {' '.join(differ)}")
        if arguments.write:
            nbformat.write(book, TUTORIALS / f"{name}.ipynb")


def words(book: nbformat.NotebookNode) -> set[str]:
    """Return the words that the cells printed, but for warnings, which depend on the labels that chance gave."""
    texts = [output.get("text", "") for cell in book.cells for output in cell.get("outputs", [])]
    printed = " ".join(line for text in texts for line in text.splitlines() if "warning:" not in line)
    tokens = (token.strip(".,;:()'\"%") for token in re.split(r"[\s│┃━─]+", printed))
    return {token for token in tokens if re.fullmatch(r"[A-Za-z’'-]{3,}", token)}


def run(path: Path) -> nbformat.NotebookNode:
    """Return the notebook with fresh outputs; it finds `ipate` of this environment and the scripts beside it."""
    book = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        for script in path.parent.glob("*.py"):
            copy(script, folder)
        os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        os.environ["IPYTHONDIR"] = str(Path(folder, ".ipython"))
        NotebookClient(book, timeout=300, coalesce_streams=True, resources={"metadata": {"path": folder}}).execute()
        for cell in book.cells:
            cell.metadata.pop("execution", None)  # times of day
            for output in cell.get("outputs", []):
                if "text" in output:
                    output["text"] = output["text"].replace(f"{folder}{os.sep}", "").replace(folder, ".")
    book.metadata.pop("widgets", None)
    return book


if __name__ == "__main__":
    main()
