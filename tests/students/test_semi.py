"""The student "semi": registered, for images only, and what it makes of ballots and of few labels."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import BaseEstimator

from ipate.errors import InputError
from ipate.students import find_student

SEMI = find_student("semi")
IMAGES = np.zeros((10, 6, 6))


class Recorder(BaseEstimator):
    """Stands for the classifier and keeps what it is given."""

    def __init__(self, classes=None):
        self.classes = classes

    def fit(self, X, y, sample_weight=None, *, first_targets=None):
        self.given = {"X": X, "y": y, "sample_weight": sample_weight, "first_targets": first_targets}
        return self


def test_ballots_become_sure_labels_and_first_targets():
    labels = np.arange(10) % 3
    weights = np.array([1, 9, 1, 9, 9, 9, 9, 9, 9, 1.0])
    given = SEMI.fit(Recorder(), IMAGES, labels, n_classes=3, sample_weight=weights).given
    np.testing.assert_array_equal(given["y"], np.where(weights > 1, labels, -1))
    np.testing.assert_array_equal(given["first_targets"], labels)
    assert given["sample_weight"] is None
    np.testing.assert_array_equal(labels, np.arange(10) % 3)


def test_few_labels_keep_their_confidence():
    labels = np.where(np.arange(10) < 3, np.arange(10), -1)
    weights = np.linspace(0.1, 1, 10)
    more = (np.ones((2, 6, 6)), np.array([1, 2]))
    model = SEMI.fit(Recorder(), IMAGES, labels, n_classes=4, sample_weight=weights, labelled=more)
    assert model.classes.tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(model.given["y"], [*labels, 1, 2])
    np.testing.assert_array_equal(model.given["sample_weight"], [*weights, 1, 1])
    assert model.given["first_targets"] is None
    assert model.given["X"].shape == (12, 6, 6)


def test_tables_are_refused_in_one_line():
    with pytest.raises(InputError, match="needs images, but the pool is a table"):
        SEMI.fit(Recorder(), np.zeros((10, 36)), np.zeros(10, int), n_classes=2)


def test_missing_torch_gives_an_install_hint(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipate.torch.estimator", None)
    with pytest.raises(InputError, match=r"pip install 'ipate\[torch\]'"):
        SEMI.make({})


def test_torch_is_not_imported_unless_asked_for():
    code = (
        "import sys, numpy as np\n"
        "from ipate.students import STUDENTS\n"
        "from ipate.public.features import Features, fit_features\n"
        "assert 'semi' in STUDENTS\n"
        "found = fit_features(np.random.default_rng(0).integers(0, 256, (20, 16, 16), dtype=np.uint8), n_classes=2)\n"
        "Features.from_arrays(found.arrays())\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_made_student_takes_options_and_the_seed():
    pytest.importorskip("skorch", reason="needs torch: pip install 'ipate[torch]'")
    made = SEMI.make({"steps": 7}, seed=3)
    assert (made.steps, made.random_state) == (7, 3)
    with pytest.raises(InputError, match="options of model"):
        SEMI.make({"no_such_option": 1})
