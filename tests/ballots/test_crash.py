"""Processes that die between draw, charge and release of ballots: nothing uncharged is seen, nothing drawn twice."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ballots.making import PEOPLE, POOL, X, Y, on_disk
from ipate.engines.ballots import release as module
from ipate.engines.ballots.counting import Histogram

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "ballots.py"
KNOWN = {"n_classes": 3, "partitions": 4}
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def die_at(name, path, monkeypatch):
    """Release ballots in a child process that dies when it calls the function `name`."""
    monkeypatch.setattr(module, name, lambda *_, **__: os._exit(9))
    child = os.fork()
    if child == 0:
        with on_disk(path, noise="secure") as book:
            module.release(POOL, X, Y, PEOPLE, ledger=book, **KNOWN)
        os._exit(0)
    assert os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 9
    monkeypatch.undo()


def test_death_before_the_charge_leaves_nothing(tmp_path, monkeypatch):
    path = tmp_path / "l.sqlite"
    die_at("charge_ballots", path, monkeypatch)
    with on_disk(path, noise="secure") as book:
        assert Histogram.of(book) is None
        assert not any(book.spent(account).any() for account in book.terms)
        assert module.release(POOL, X, Y, PEOPLE, ledger=book, **KNOWN).labelling.n_labels == len(POOL)


def test_death_after_the_charge_keeps_the_draw(tmp_path, monkeypatch):
    path = tmp_path / "l.sqlite"
    die_at("_result", path, monkeypatch)
    with on_disk(path, noise="secure") as book:
        stored, spent = Histogram.of(book), [book.spent(account) for account in book.terms]
        assert all(own.any() for own in spent)
        found = module.release(POOL, X, Y, PEOPLE, ledger=book, **KNOWN)
        np.testing.assert_array_equal(found.histogram.counts, stored.counts)
        assert [book.spent(account) for account in book.terms] == spent
        assert len(book.charges) == 1


def test_killed_processes_lose_no_charge_and_draw_once():
    told = subprocess.run(
        [sys.executable, str(SCRIPT), "--part", "kills", "--kills", "20"],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert told.returncode == 0, told.stderr
    assert "no second draw was made" in told.stdout
