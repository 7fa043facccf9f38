"""A run is interrupted in every stage by SIGKILL and SIGINT, with the benchmark's script and fewer rounds."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "interrupt.py"
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def interrupt(*arguments):
    command = [sys.executable, str(SCRIPT), "--json", *arguments]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:  # workers of killed runs hold a pipe
        told = subprocess.run(command, check=False, stdout=out, stderr=err, timeout=300)
        for file in (out, err):
            file.seek(0)
        assert told.returncode == 0, err.read()
        return json.load(out)


@pytest.mark.parametrize("how", ["kill", "int"])
def test_interrupted_run_resumes_with_labels_charged_once(how):
    found = interrupt("--only", how, "--random", "4")  # fails where a stopped run cannot be finished
    assert found[how]["stops"] >= 8
    assert found[how]["labels"] > 5


def test_concurrent_runs_on_one_ledger_charge_once():
    found = interrupt("--only", "writers")["writers"]
    assert found["queries"] > 5
