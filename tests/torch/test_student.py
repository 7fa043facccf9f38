"""Students, scikit-learn's and skorch's view of them, the command, and what may be imported."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch.nn", reason="needs torch: pip install 'ipate[torch]'")

from torch import nn

from ipate.errors import InputError
from ipate.torch.presets import PRESETS
from ipate.torch.student import Student, train_student
from ipate.torch.train import main

ROOT = Path(__file__).parents[2]
PRESET = replace(PRESETS["small"], batch_size=8, steps=60)
SETTINGS = {"preset": PRESET, "n_classes": 3, "device": "cpu"}


def test_a_student_learns_and_survives_its_file(world, tmp_path):
    X, y = world
    student = train_student(X[:60], y[:60], **SETTINGS)
    assert (student.predict(X[60:]) == y[60:]).mean() > 0.9
    probabilities = student.predict_proba(X)
    assert probabilities.shape == (90, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    student.save(tmp_path / "student.npz")
    again = Student.load(tmp_path / "student.npz", device="cpu")
    assert np.array_equal(again.predict_proba(X), probabilities)
    assert isinstance(student.model(), nn.Sequential)


def test_weights_count(world):
    X, y = world
    wrong = y.copy()
    wrong[30:] = (y[30:] + 1) % 3
    weight = np.where(np.arange(90) < 30, 1.0, 0.0)
    student = train_student(X, wrong, sample_weight=weight, **SETTINGS)
    assert (student.predict(X) == y).mean() > 0.9
    alike = [train_student(X, y, sample_weight=np.full(90, w), steps=3, **SETTINGS).predict_proba(X) for w in (1, 5)]
    assert np.array_equal(*alike)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sample_weight": np.full(90, -1.0)}, "sample_weight"),
        ({"sample_weight": np.zeros(90)}, "sample_weight"),
        ({"sample_weight": np.ones(3)}, "sample_weight"),
        ({"X": np.empty((0, 8, 8)), "y": np.empty(0, int)}, "no labels"),
        ({"X": np.full((90, 8, 8), np.nan)}, "NaN"),
        ({"y": np.full(90, 3)}, "labels go from 3 to 3"),
    ],
)
def test_what_cannot_be_used_is_refused(world, change, message):
    X, y = world
    with pytest.raises(InputError, match=message):
        train_student(**{"X": X, "y": y, **SETTINGS, **change})


def test_a_student_is_one(world, tmp_path):
    from ipate.torch.training import train_ensemble

    X, y = world
    train_ensemble(X, y, [range(9), range(9)], **SETTINGS, steps=1).save(tmp_path / "two.npz")
    with pytest.raises(InputError, match="a student is one"):
        Student.load(tmp_path / "two.npz")


# scikit-learn and skorch


def test_the_classifier_keeps_to_scikit_learn(world):
    base = pytest.importorskip("sklearn.base")
    from ipate.torch.estimator import TorchClassifier

    X, y = world
    names = np.array(["ant", "bee", "cat"])
    model = base.clone(TorchClassifier(preset=PRESET, steps=40, device="cpu"))
    assert model.fit(X[:60].reshape(60, 64), names[y[:60]]) is model
    assert model.classes_.tolist() == names.tolist()
    assert model.score(X[60:].reshape(30, 64), names[y[60:]]) > 0.9
    one = TorchClassifier(preset=PRESET, steps=2, device="cpu", classes=names).fit(X[:1], names[:1])
    assert one.predict_proba(X).shape == (90, 3)
    with pytest.raises(InputError, match="not among the classes"):
        one.fit(X[:1], ["dog"])


def test_any_module_works_through_skorch(world):
    pytest.importorskip("skorch")
    from ipate.torch.estimator import module_classifier

    X, y = world
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 5))
    model = module_classifier(module, max_epochs=60, lr=0.05, device="cpu").fit(X.astype(np.float64), y)
    assert (model.predict(X.astype(np.float64)) == y).mean() > 0.9
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1, rtol=1e-4)


# The command


@pytest.fixture
def files(world, tmp_path):
    X, y = world
    np.savez(tmp_path / "x.npz", X=X, y=y, public=X[:25], labels=y[:25])
    np.savez(tmp_path / "m.npz", offsets=[0, 30, 60], indices=np.arange(60), groups=["a", "b"], weights=[1.0, 2.0])
    return tmp_path


def command(files, *more):
    given = ["--data", files / "x.npz", "--members", files / "m.npz", "--out", files / "v.npz", "--device", "cpu"]
    return main([*map(str, given), "--steps", "5", "--jobs", "1", *more])


def test_the_command_writes_votes(files, capsys):
    assert command(files, "--classes", "4", "--chunk", "10") == 0
    with np.load(files / "v.npz", allow_pickle=False) as read:
        assert read["votes"].shape == (2, 25)
        assert int(read["classes"]) == 4
        assert read["groups"].tolist() == ["a", "b"]
        assert read["weights"].tolist() == [1, 2]
        assert read["labels"].shape == (25,)
    assert "trained 2 teachers" in capsys.readouterr().err


def test_the_command_names_what_is_wrong(files, capsys):
    assert command(files, "--data", str(files / "m.npz")) == 2
    assert "holds no 'X'" in capsys.readouterr().err
    assert command(files, "--members", str(files / "x.npz")) == 2
    assert "'offsets' and 'indices'" in capsys.readouterr().err
    (files / "bad.npz").write_bytes(b"nothing")
    assert command(files, "--data", str(files / "bad.npz")) == 2
    assert "not a readable npz" in capsys.readouterr().err
    assert command(files, "--classes", "2") == 1
    assert "2 of 2 teachers failed" in capsys.readouterr().err


# Bare machines

_BARE = """
import sys
ABSENT = {"scipy", "sklearn", "skorch", "dp_accounting", "randomgen", "rich", "typer", "joblib"}
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Nothing())
import ipate.torch, ipate.torch.train
allowed = ("ipate.torch", "ipate.errors", "ipate._version")
ours = {name for name in sys.modules if name.startswith("ipate.") and not name.startswith(allowed)}
assert not ours, ours
for name in ("TorchClassifier", "module_classifier"):
    try:
        getattr(ipate.torch, name)
    except ModuleNotFoundError as error:
        assert "pip install 'ipate[torch]'" in str(error)
    else:
        raise AssertionError(name)
"""


def test_it_imports_with_numpy_and_torch_alone():
    subprocess.run([sys.executable, "-c", _BARE], check=True, env={"PYTHONPATH": str(ROOT / "src"), "PATH": ""})
