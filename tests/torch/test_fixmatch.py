"""The semi-supervised student: better than a supervised one with few labels, seeded, stored without pickle."""

import numpy as np
import pytest

pytest.importorskip("torch.nn", reason="needs torch: pip install 'ipate[torch]'")

import torch

from ipate.errors import InputError
from ipate.students.deployed import read_model, write_model
from ipate.torch import fixmatch
from ipate.torch.contrastive import train_encoder
from ipate.torch.fixmatch import train_fixmatch
from ipate.torch.training import train_student
from pictures import TINY, pictures

X, Y = pictures(240, seed=0)
TEST, TRUTH = pictures(300, seed=1)
FEW = np.full(240, -1)
FEW[:6] = Y[:6]
SMALL = {"n_classes": 3, "batch_size": (8, 64), "device": "cpu"}


@pytest.fixture(scope="module")
def encoder():
    torch.set_num_threads(1)
    return train_encoder(X, steps=60, batch_size=120, net=TINY, device="cpu")


def test_student_beats_a_supervised_one_with_few_labels(encoder):
    student = train_fixmatch(X, FEW, encoder=encoder, steps=300, **SMALL)
    supervised = train_student(X[:6], Y[:6], n_classes=3, preset="small", steps=60, device="cpu")
    ours, theirs = ((model.predict(TEST) == TRUTH).mean() for model in (student, supervised))
    assert ours > theirs + 0.1
    assert ours > 0.9


def test_first_targets_teach_a_class_without_labels(encoder):
    labels = np.where(FEW == 2, -1, FEW)
    told, untold = Y, np.where(Y == 2, -1, Y)
    found = [
        train_fixmatch(X, labels, encoder=encoder, steps=300, first_targets=first, first_share=0.5, **SMALL)
        for first in (told, np.eye(3)[told], untold)
    ]
    said = [(student.predict(TEST[TRUTH == 2]) == 2).mean() for student in found]
    assert said[0] > 0.8
    assert said[2] < 0.2
    np.testing.assert_array_equal(found[0].predict_proba(TEST), found[1].predict_proba(TEST))


def test_first_targets_bind_in_the_first_part_alone(encoder):
    first = (Y + 1) % 3
    found = [
        train_fixmatch(X, FEW, encoder=encoder, steps=20, first_targets=given, first_share=share, **SMALL)
        for given, share in ((first, 0.0), (None, 0.3), (first, 0.3))
    ]
    unused, none, used = (student.predict_proba(TEST) for student in found)
    np.testing.assert_array_equal(unused, none)
    assert not np.array_equal(used, none)


def test_colour_images_start_from_new_weights(monkeypatch):
    monkeypatch.setattr(fixmatch, "train_encoder", None)  # which would fail if it were called
    generator = np.random.default_rng(0)
    colours = generator.uniform(0.3, 1, (len(X), 1, 1, 3))
    pool = (X[..., None] * colours).astype(np.uint8)
    student = train_fixmatch(pool, Y, n_classes=3, batch_size=(32, 64), steps=40, device="cpu")
    assert student.ensemble.image == (3, 12, 12)
    assert (student.predict(pool) == Y).mean() > 0.8


def test_labels_of_weight_zero_teach_nothing(encoder):
    wrong, weights = FEW.copy(), np.ones(240)
    wrong[6:12], weights[6:12] = (Y[6:12] + 1) % 3, 0
    student = train_fixmatch(X, wrong, sample_weight=weights, encoder=encoder, steps=300, **SMALL)
    assert (student.predict(TEST) == TRUTH).mean() > 0.9


def test_same_seed_gives_the_same_student(encoder):
    found = [train_fixmatch(X[:20], FEW[:20], encoder=encoder, steps=3, seed=s, **SMALL) for s in (5, 5, 6)]
    probabilities = [student.predict_proba(TEST) for student in found]
    np.testing.assert_array_equal(probabilities[0], probabilities[1])
    assert not np.array_equal(probabilities[0], probabilities[2])


def test_student_works_on_a_pool_of_eight_points(encoder):
    student = train_fixmatch(X[:8], FEW[:8], n_classes=3, encoder=encoder, steps=2, device="cpu")
    np.testing.assert_allclose(student.predict_proba(X[:4]).sum(axis=1), 1, rtol=1e-4)


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        (np.full(240, -1), {}, "no point has a label"),
        (FEW[:100], {}, "one class id per point"),
        (FEW * 1.0, {}, "one class id per point"),
        (np.where(FEW >= 0, 3, -1), {}, "go from 0 to 2"),
        (FEW, {"sample_weight": np.zeros(240)}, "not only zeros"),
        (FEW, {"sample_weight": np.ones(3)}, "240 points"),
        (FEW, {"first_targets": np.full(240, 3)}, "first_targets"),
        (FEW, {"first_targets": -np.ones((240, 3))}, "first_targets"),
        (FEW, {"batch_size": (8, 0)}, "batch_size"),
        (FEW, {"steps": 0}, "steps is 0"),
    ],
)
def test_unusable_labels_and_settings_are_refused(encoder, labels, options, message):
    with pytest.raises(InputError, match=message):
        train_fixmatch(X, labels, encoder=encoder, **{**SMALL, "steps": 1, **options})


def test_estimator_follows_scikit_learn_and_is_stored_without_pickle(tmp_path):
    base = pytest.importorskip("sklearn.base")
    from ipate.torch.estimator import FixMatchClassifier

    names = np.array([2, 5, 9])
    y = np.where(FEW[:60] >= 0, names[FEW[:60]], -1)
    model = base.clone(FixMatchClassifier(steps=2, encoder_steps=1, random_state=3, device="cpu"))
    assert model.fit(X[:60], y) is model
    assert set(model.classes_) == set(names[Y[:6]])
    np.testing.assert_array_equal(model.transduction_, model.predict(X[:60]))
    told = write_model(model, tmp_path)
    assert told["format"] == "npz"
    path = tmp_path / told["file"]
    again = read_model(path, "npz", sha256=told["sha256"], allow_pickle=False, classes=model.classes_)
    assert type(again) is FixMatchClassifier
    np.testing.assert_allclose(again.predict_proba(TEST), model.predict_proba(TEST), rtol=1e-5, atol=1e-6)
    with pytest.raises(InputError, match="not among the classes"):
        FixMatchClassifier(classes=[0, 1]).fit(X[:60], y)
