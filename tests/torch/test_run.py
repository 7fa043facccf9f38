"""`ipate run` with nets: teachers trained in blocks, a net as student, an error where there are no images."""

import json

import numpy as np
import pytest

pytest.importorskip("torch.nn", reason="needs torch: pip install 'ipate[torch]'")

from blocks import flat
from ipate import load_student
from ipate.cli.app import _run
from ipate.engines.teachers.store import VoteStore, learnt_from
from ipate.models.training import train_nets_and_vote
from ipate.torch.estimator import TorchClassifier

RUN = """
[data]
name = "digits"
public = 200
test = 200
[budgets]
epsilon = 500.0
[teachers]
model = "small"
options = { steps = 12 }
number = 6
n_jobs = 1
device = "cpu"
[labelling]
sigma = 0.5
check_sigma = 1.0
threshold = 2.0
[student]
model = "small"
options = { steps = 30, device = "cpu" }
"""


def test_run_with_net_teachers_and_student(tmp_path, capsys):
    (tmp_path / "run.toml").write_text(RUN)
    assert _run(["run", str(tmp_path / "run.toml"), "--out", str(tmp_path / "out"), "--json"]) == 0
    report = flat(json.loads(capsys.readouterr().out))
    assert report["labels"] > 20
    assert report["student_accuracy"] > 0.15


def test_run_with_learnt_cells_and_semi_supervised_student(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("ipate.torch.contrastive.usual_steps", lambda *_, **__: 4)
    options = "{ steps = 4, encoder_steps = 4, device = 'cpu' }"
    (tmp_path / "run.toml").write_text(
        '[data]\nname = "digits"\npublic = 200\ntest = 200\n[budgets]\nepsilon = 100.0\n'
        f'[labelling]\nvoting = "ballots"\nembedding = "learnt"\n[student]\nmodel = "semi"\noptions = {options}\n'
    )
    assert _run(["run", str(tmp_path / "run.toml"), "--out", str(tmp_path / "out"), "--json"]) == 0
    report = flat(json.loads(capsys.readouterr().out))
    assert report["labels"] == 200
    assert report["voting_accuracy"] > 0.5  # of cells in features that four steps have hardly trained
    student = load_student(tmp_path / "out")
    assert type(student.model.model).__name__ == "FixMatchClassifier"
    assert student.predict_proba(np.zeros((3, 8, 8), np.uint8)).shape == (3, 10)


def test_nets_without_images_are_refused(tmp_path, capsys):
    (tmp_path / "run.toml").write_text(RUN.replace("digits", "synthetic").replace("epsilon = 500.0", ""))
    assert _run(["run", str(tmp_path / "run.toml"), "--out", str(tmp_path / "out"), "--min-labels", "0"]) == 2
    assert "needs images" in capsys.readouterr().err


def train(store, X, y, *, steps, **options):
    """Train the nets that have not voted yet and put their votes into the store."""
    teacher, missing = TorchClassifier(preset="small", steps=steps), store.missing
    for number, votes in train_nets_and_vote(teacher, X, y, n_classes=3, missing=missing, device="cpu", **options):
        store.put(number, votes)


def test_finished_block_is_kept_and_empty_slots_change_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr("ipate.models.training.BLOCK", 2)
    rng = np.random.default_rng(0)
    X, y = rng.random((40, 8, 8), dtype=np.float32), rng.integers(3, size=40)
    rows = [np.arange(i, 40, 4) for i in range(4)]
    slots = np.full(4, 10)

    def vote(folder, given, progress=None):
        store = VoteStore(folder, n_teachers=4, n_queries=30, n_classes=3, fingerprint="x")
        train(store, X, y, steps=4, rows=given, slots=slots, X_public=X[:30], progress=progress)
        return store

    trained = []
    one = vote(tmp_path / "a", rows, trained.append)
    assert sorted(set(trained)) == [0, 1, 2, 3, 4]  # in teachers, not in steps
    kept = np.array(one.matrix)
    one.matrix[0] = 2 - one.matrix[0]  # would be overwritten if the block were trained again
    np.testing.assert_array_equal(vote(tmp_path / "a", rows).matrix[0], 2 - kept[0])
    left = [rows[0][:-1], *rows[1:]]
    np.testing.assert_array_equal(np.array(vote(tmp_path / "b", left).matrix)[1:], kept[1:])


def test_withdrawal_retrains_one_net_and_keeps_others_votes(tmp_path):
    rng = np.random.default_rng(1)
    X, y = rng.random((40, 8, 8), dtype=np.float32), rng.integers(3, size=40)
    rows = [np.arange(i, 40, 4) for i in range(4)]

    def vote(folder, given, vacant=()):
        store = VoteStore(
            folder,
            n_teachers=4,
            n_queries=30,
            n_classes=3,
            fingerprint="x",
            learnt=learnt_from(X, y, given),
            vacant=vacant,
        )
        train(store, X, y, steps=4, rows=given, slots=np.full(4, 10), X_public=X[:30])
        return store

    kept = vote(tmp_path / "a", rows)
    kept.matrix[[0, 2, 3]] = 2 - kept.matrix[[0, 2, 3]]  # would be overwritten if they were trained again
    marked = np.array(kept.matrix)
    left = [rows[0], rows[1][:-4], *rows[2:]]
    again = vote(tmp_path / "a", left, vacant=[1])
    np.testing.assert_array_equal(np.array(again.matrix)[[0, 2, 3]], marked[[0, 2, 3]])
    np.testing.assert_array_equal(again.matrix[1], vote(tmp_path / "b", left).matrix[1])


def test_net_that_diverges_votes_fixed_class(tmp_path):
    """Rows that are not finite, or have no class, train no net; a net whose loss is NaN votes a fixed class."""
    X, y = np.random.default_rng(2).random((40, 8, 8), dtype=np.float32), np.arange(40) % 3
    X[1] = np.nan
    y[5] = -1
    X[2] = 3e38
    store = VoteStore(tmp_path, n_teachers=4, n_queries=30, n_classes=3, fingerprint="x")
    rows = [np.arange(i, 40, 4) for i in range(4)]
    notes = {}
    train(store, X, y, steps=2, rows=rows, slots=np.full(4, 10), X_public=X[3:33], notes=notes)
    assert store.done.all()
    assert notes == {2: ["failed: its training diverged"]}
    assert not store.matrix[2].any()


def test_run_goes_on_if_every_net_fails(tmp_path, monkeypatch):
    def failing(*_):
        raise MemoryError("no room")

    monkeypatch.setattr("ipate.torch.training.train_chunk", failing)
    X, y = np.random.default_rng(3).random((40, 8, 8), dtype=np.float32), np.arange(40) % 3
    store, notes = VoteStore(tmp_path, n_teachers=4, n_queries=40, n_classes=3, fingerprint="x"), {}
    rows = [np.arange(i, 40, 4) for i in range(4)]
    train(store, X, y, steps=2, rows=rows, slots=np.full(4, 10), X_public=X, notes=notes)
    assert store.done.all()
    assert not store.matrix.any()
    assert notes == {teacher: ["failed: MemoryError: no room"] for teacher in range(4)}
