"""Five of the pairs of benchmarks/neighbours.py: one person's cells are anything, and nobody can tell."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from ipate.students.scores import label_notes

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "neighbours.py"


@pytest.fixture(scope="module")
def neighbours():
    spec = importlib.util.spec_from_file_location("neighbours", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPT.parent))
        spec.loader.exec_module(module)
        yield module


@pytest.mark.parametrize("number", [4, 5, 7, 15, 23])
def test_neighbouring_files_look_alike(neighbours, tmp_path, number):
    pair = neighbours.compare(number, tmp_path, seed=1, process=number == 7)
    assert pair.code == 0
    assert pair.difference == ""


@pytest.mark.parametrize("number", [0, 1, 2])
def test_ballots_of_neighbouring_files_look_alike(neighbours, tmp_path, number):
    pair = neighbours.compare(number, tmp_path, seed=2, process=number == 2, ballots=True)
    assert pair.code == 0
    assert pair.difference == ""


def test_comparison_notices_every_visible_difference(neighbours):
    seen = {"code": 0, "files": ("labels.csv",), "stdout": "30 labels", "stderr": "ipate: begun\n"}
    for name, other in (("code", 1), ("files", ()), ("stdout", "29 labels"), ("stderr", "ipate: warning\n")):
        one, two = neighbours.Outcome(**seen), neighbours.Outcome(**{**seen, name: other})
        assert one.difference(two).startswith(f"{name}:")
    assert one.difference(neighbours.Outcome(**seen)) == ""


def test_notes_on_released_labels_are_masked(neighbours, tmp_path):
    """They follow from labels that were paid for, and the noise decides whether a run has them."""
    for labels in ([0] * 30, [0] * 27 + [1, 2, 2]):
        for note in label_notes(np.array(labels), ("ill", "well", "unsure")):
            assert neighbours._masked(f"ipate: warning: {note}\nipate: begun\n", tmp_path) == "ipate: begun\n"
