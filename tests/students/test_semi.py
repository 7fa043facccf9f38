"""The student "semi": registered, for images only, and what it makes of ballots and of few labels."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import BaseEstimator

from ipate.errors import InputError
from ipate.students import student as students
from ipate.students.student import find_student

SEMI = find_student("semi")


CENTRES = np.array([[3.0, 0.0], [0.0, 3.0], [-3.0, -3.0]])


class Points:
    """Stands for an encoder: images carry their features in their first two pixels."""

    def features(self, X, device="auto"):
        return np.asarray(X).reshape(len(X), -1)[:, :2]


class Recorder(BaseEstimator):
    """Stands for the classifier and keeps what it is given."""

    def __init__(self, classes=None, encoder_steps=None, device="auto"):
        self.classes, self.encoder_steps, self.device = classes, encoder_steps, device

    def fit(self, X, y, sample_weight=None, *, first_targets=None, encoder=None):
        self.given = {
            "X": X,
            "y": y,
            "sample_weight": sample_weight,
            "first_targets": first_targets,
            "encoder": encoder,
        }
        return self


def images(per_class=40, *, seed=0):
    """Return images of three clusters, and their classes."""
    truth = np.repeat(np.arange(3), per_class)
    found = np.zeros((len(truth), 6, 6))
    found[:, 0, :2] = CENTRES[truth] + np.random.default_rng(seed).normal(0, 0.3, (len(truth), 2))
    return found, truth


def shares(given, truth):
    """Return the share of every class that has a label, after checking that all labels are right."""
    labels = given["y"]
    np.testing.assert_array_equal(labels[labels >= 0], truth[labels >= 0])
    return np.array([(labels[truth == c] >= 0).mean() for c in np.unique(truth)])


def test_few_labels_are_spread_over_the_pool():
    X, truth = images()
    labels = np.full(len(X), -1)
    labels[[0, 1, 40, 80]] = truth[[0, 1, 40, 80]]
    weights = np.where(labels >= 0, 0.5, 0.0)
    model = SEMI.fit(Recorder(), X, labels, n_classes=3, sample_weight=weights, encoder=Points())
    np.testing.assert_array_equal(model.given["first_targets"], truth)
    assert (shares(model.given, truth) >= 0.7).all()
    assert (model.given["y"] < 0).any()
    assert model.classes.tolist() == [0, 1, 2]


def test_wrong_label_within_a_cluster_is_not_taught():
    X, truth = images()
    labels = np.full(len(X), -1)
    labels[[0, 1, 2, 40, 41, 80, 81]] = [2, 0, 0, 1, 1, 2, 2]
    given = SEMI.fit(Recorder(), X, labels, n_classes=3, encoder=Points()).given
    assert given["y"][0] != 2
    assert (given["first_targets"] == truth).mean() > 0.95


def test_posterior_replaces_labels():
    X, truth = images()
    targets = np.zeros((len(X), 3))
    targets[[0, 40, 80]] = 0.8 * np.eye(3) + 0.05
    given = SEMI.fit(Recorder(), X, np.full(len(X), -1), n_classes=3, targets=targets, encoder=Points()).given
    np.testing.assert_array_equal(given["first_targets"], truth)
    assert (shares(given, truth) >= 0.7).all()


def scenes(per_class=60, *, seed=0):
    """Return colour images of three sorts of stripes, with any colours, and their classes."""
    generator = np.random.default_rng(seed)
    truth = np.repeat(np.arange(3), per_class)
    down, across = np.mgrid[:16, :16]
    stripes = np.stack([down // 4 % 2, across // 4 % 2, (down + across) // 4 % 2])[truth]
    colours = generator.uniform(0, 1, (2, len(truth), 1, 1, 3))
    drawn = np.where(stripes[..., None] > 0, colours[0], colours[1]) + generator.normal(
        0, 0.05, (len(truth), 16, 16, 3)
    )
    return (255 * drawn.clip(0, 1)).astype(np.uint8), truth


def test_colour_images_have_gradients_instead_of_an_encoder():
    X, truth = scenes()
    labels = np.full(len(X), -1)
    labels[::6] = truth[::6]
    for pool in (X, np.moveaxis(X, 3, 1)):
        given = SEMI.fit(Recorder(), pool, labels, n_classes=3).given
        assert given["encoder"] is None
        assert (given["first_targets"] == truth).mean() > 0.95
        found = np.bincount(given["first_targets"], minlength=3)
        told = np.bincount(given["y"][given["y"] >= 0], minlength=3)
        np.testing.assert_array_equal(told, np.ceil(found / 2))  # the clearest half of every class


def test_learnt_features_suit_grey_images_alone():
    assert [SEMI.embedding(shape) for shape in ((28, 28), (28, 28, 1), (1, 28, 28))] == ["learnt"] * 3
    assert [SEMI.embedding(shape) for shape in ((32, 32, 3), (3, 32, 32))] == [None, None]
    assert find_student("graph").embedding((28, 28)) is None


def test_every_cluster_keeps_sure_labels_of_ballots():
    X, truth = images(100)
    weights = np.where(truth == 2, 0.05, 8.0)  # one cluster is less sure than all others
    labels = truth.copy()
    labels[[5, 105, 205]] = [1, 2, 0]
    given = SEMI.fit(Recorder(), X, labels, n_classes=3, sample_weight=weights, encoder=Points()).given
    np.testing.assert_array_equal(given["first_targets"], truth)
    for cluster in range(3):
        sure = given["y"][truth == cluster]
        assert set(sure[sure >= 0].tolist()) == {cluster}
        assert 60 <= (sure >= 0).sum() < 100
    assert given["sample_weight"] is None


def test_further_labelled_images_join_the_pool():
    X, truth = images()
    labels = np.full(len(X), -1)
    labels[[0, 40]] = [0, 1]
    more = X[truth == 2][:2], np.array([2, 2])
    given = SEMI.fit(Recorder(), X, labels, n_classes=3, labelled=more, encoder=Points()).given
    assert given["X"].shape == (122, 6, 6)
    np.testing.assert_array_equal(given["first_targets"], [*truth, 2, 2])
    assert given["y"][120:].tolist() == [2, 2]
    assert (shares(given, np.array([*truth, 2, 2])) >= 0.7).all()


def test_no_label_at_all_is_refused():
    X, _ = images()
    with pytest.raises(InputError, match="nothing to teach"):
        SEMI.fit(Recorder(), X, np.full(len(X), -1), n_classes=3, encoder=Points())


def test_usual_student_depends_on_shape_and_device(monkeypatch):
    monkeypatch.setattr(students, "has_gpu", lambda: False)
    assert [students.usual_student(shape) for shape in ((), (12,), (8, 8), (28, 28), (3, 32, 32))] == [
        "logistic",
        "logistic",
        "logistic",
        "graph",
        "graph",
    ]
    monkeypatch.setattr(students, "has_gpu", lambda: True)
    assert [students.usual_student(shape) for shape in ((12,), (8, 8), (28, 28))] == ["logistic", "logistic", "semi"]


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
        "from ipate.students.student import STUDENTS\n"
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


def test_two_classes_of_grey_images_are_tried():
    pytest.importorskip("skorch", reason="needs torch: pip install 'ipate[torch]'")
    pool = np.random.default_rng(0).integers(0, 256, (30, 16, 16), dtype=np.uint8)
    SEMI.try_on(SEMI.make({"device": "cpu"}, seed=0), pool, n_classes=2)
