"""Students: accuracy, saving and loading, sample weights and invalid input."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch.nn", reason="needs torch: pip install 'ipate[torch]'")

from torch import nn

from ipate.errors import InputError
from ipate.torch.ensemble import Student
from ipate.torch.nets import PRESETS
from ipate.torch.training import train_ensemble, train_student

PRESET = replace(PRESETS["small"], batch_size=8, steps=60)
SETTINGS = {"preset": PRESET, "n_classes": 3, "device": "cpu"}


def test_student_learns_and_loads_unchanged(world, tmp_path):
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


def test_sample_weights_are_relative_and_zero_ignores(world):
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
def test_invalid_input_is_refused(world, change, message):
    X, y = world
    with pytest.raises(InputError, match=message):
        train_student(**{"X": X, "y": y, **SETTINGS, **change})


def test_file_of_two_models_is_not_a_student(world, tmp_path):
    X, y = world
    train_ensemble(X, y, [range(9), range(9)], **SETTINGS, steps=1).save(tmp_path / "two.npz")
    with pytest.raises(InputError, match="a student is a single model"):
        Student.load(tmp_path / "two.npz")
