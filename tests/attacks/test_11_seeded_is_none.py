"""Seeded noise protects nobody: nothing that a seeded release prints may call it releasable."""

import json

import numpy as np
import pytest

from ipate import PATEClassifier
from ipate.cli.app import _run


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=40)
    votes = np.where(rng.random((60, 40)) < 0.95, truth, rng.integers(3, size=(60, 40)))
    np.savez("votes.npz", votes=votes, groups=np.repeat(["a", "b"], 30), classes=3)
    (tmp_path / "groups.csv").write_text("group,epsilon\na,8\nb,12\n")
    return tmp_path


@pytest.mark.parametrize("bound", ["gdp", "loose", "sup", "ptr", "tight"])
def test_seeded_labels_are_never_called_releasable(files, capsys, bound):
    noise = ["--sigma", "12", "--check-sigma", "20", "--threshold", "30"]
    command = ["label", "votes.npz", "--groups", "groups.csv", *noise, "--bound", bound, "--seed", "1"]
    command += ["--accuracy", "0.95"] if bound == "ptr" else []
    assert _run([*command, "--out", "a.csv", "--json"]) == 0
    told = capsys.readouterr().out
    assert "releasable" not in told
    assert "may be published" not in told
    assert json.loads(told)["publishable"]["guarantee"] == json.loads(told)["private"]["guarantee"] == "none"
    assert _run([*command, "--out", "b.csv"]) == 0
    table = " ".join(capsys.readouterr().out.split())
    assert "RELEASABLE" not in table
    assert "figures may be published" not in table


def test_seeded_classifier_promises_nothing():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    model = PATEClassifier(classes=[0, 1], epsilon=8.0, n_teachers=20, noise_seed=1, random_state=0, verbose=0)
    model.fit(X, (X[:, 0] > 0).astype(int), X_public=rng.normal(size=(80, 2)))
    assert model.guarantee_.kind == "none"
    assert model.guarantee_.seeded
