"""The tutorials run as a reader runs them: every notebook, from its first cell to its last, in an empty folder."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
NOTEBOOKS = sorted((DOCS / "tutorial").glob("*.ipynb"))


def cells(path, kind):
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == kind]


def text_of(path):
    """All that the code cells of a notebook printed."""
    outputs = [output for cell in cells(path, "code") for output in cell["outputs"]]
    return "".join("".join(output.get("text", "")) for output in outputs)


def test_five_tutorials_exist_and_are_listed():
    assert [path.stem for path in NOTEBOOKS] == ["engines", "hospital", "parties", "table1", "votes"]
    listed = (DOCS / "tutorial" / "README.md").read_text(encoding="utf-8")
    assert all(f"({path.name})" in listed for path in NOTEBOOKS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_and_prints_the_stored_words(path):
    pytest.importorskip("nbclient")
    steady = path.stem in ("hospital", "parties")  # in the others chance decides which sentences are printed
    ran = subprocess.run(
        [sys.executable, str(DOCS / "hooks" / "notebooks.py"), path.stem, *(["--check"] if steady else [])],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout.startswith(f"{path.stem}: ")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs_are_small_complete_and_clean(path):
    assert path.stat().st_size < 250_000
    assert all(cell["execution_count"] for cell in cells(path, "code")), "run: make notebooks"
    printed = text_of(path)
    assert printed
    assert "Traceback" not in printed
    assert "/tmp" not in printed
    assert "\x1b" not in printed


def test_hospital_runs_every_command_of_a_data_owner():
    source = "".join("".join(cell["source"]) for cell in cells(DOCS / "tutorial" / "hospital.ipynb", "code"))
    used = set(re.findall(r"^ipate (\w+)", source, flags=re.MULTILINE))
    assert used == {"consent", "schema", "plan", "run", "predict", "statement", "withdraw"}


def test_second_run_of_the_hospital_was_refused():
    printed = text_of(DOCS / "tutorial" / "hospital.ipynb")
    assert "cannot pay for one more query" in printed
    assert "exit code 1" in printed


def test_statement_after_withdrawal_keeps_what_was_spent():
    before, _, after = text_of(DOCS / "tutorial" / "hospital.ipynb").rpartition("Statement for person")
    spent = re.search(r"In all, ε = ([\d.]+) was spent", before)
    assert spent is not None
    assert f"In all, ε = {spent[1]} was spent" in after
    assert "withdrew" in after
