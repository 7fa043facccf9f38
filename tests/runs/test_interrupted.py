"""A run is interrupted in every stage by SIGKILL and SIGINT, with the benchmark's script and fewer rounds."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "interrupt.py"
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def interrupt(*arguments):
    told = subprocess.run(
        [sys.executable, str(SCRIPT), "--json", *arguments], check=False, capture_output=True, text=True, timeout=300
    )
    assert told.returncode == 0, told.stderr
    return json.loads(told.stdout)


@pytest.mark.parametrize("how", ["kill", "int"])
def test_interrupted_run_resumes_with_labels_charged_once(how):
    found = interrupt("--only", how, "--random", "4")
    assert found[how]["stops"] >= 8
    assert found[how]["labels"] > 5
    assert found[f"{how}_at_random"]["stops"] >= 1


def test_concurrent_runs_on_one_ledger_charge_once():
    found = interrupt("--only", "writers")["writers"]
    assert found["queries"] > 5
