"""kill -9 at random moments, two writers, a full disk: the benchmark's own script, with fewer rounds."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "crash.py"


def crash(*arguments):
    told = subprocess.run(
        [sys.executable, str(SCRIPT), "--json", *arguments], check=False, capture_output=True, text=True, timeout=300
    )
    assert told.returncode == 0, told.stderr
    return json.loads(told.stdout)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_hundred_killed_processes_lose_no_charge():
    found = crash("--only", "kills", "--kills", "100", "--seed", "1")["kills"]
    assert found["kills"] == 100
    assert found["runs_completed"] >= 1
    assert found["kills_that_hit_a_run_in_progress"] >= 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("what", ["writers", "full"])
def test_concurrent_writers_and_full_disks_lose_nothing(what):
    found = crash("--only", what)[what]
    assert sum(found.values()) >= 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_labellings_share_one_default_ledger():
    found = crash("--only", "shared", "--kills", "8", "--seed", "1")["shared"]
    assert found["kills"] == 8
    assert found["finished"] >= 1
