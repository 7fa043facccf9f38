"""Self-supervised features: seeded, from the pool alone, and better than pixels; the exact net that they become."""

from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("torch.nn", reason="needs torch: pip install 'ipate[torch]'")

import torch

from ipate.engines.ballots.release import PublicMaps
from ipate.errors import InputError
from ipate.files import read_npz, write_npz
from ipate.public.features import Features, fit_features
from ipate.torch.contrastive import contrastive_loss, train_encoder, usual_steps
from pictures import TINY, pictures

X, Y = pictures(240, seed=0)


@pytest.fixture(scope="module")
def encoder():
    torch.set_num_threads(1)
    return train_encoder(X, steps=60, batch_size=120, net=TINY, device="cpu")


def agreement(points, labels):
    unit = points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-9)
    near = unit @ unit.T - 2 * np.eye(len(unit))
    return float((labels[near.argmax(axis=1)] == labels).mean())


def test_learnt_features_find_classes_without_labels(encoder):
    wrong = 1 - agreement(encoder.features(X, device="cpu"), Y)
    assert 3 * wrong < 1 - agreement(X.reshape(len(X), -1) / 255, Y)


def test_encoder_depends_on_pool_and_seed_alone():
    found = []
    for seed, state in ((3, 0), (3, 1), (4, 0)):
        torch.manual_seed(state)
        np.random.seed(state)  # noqa: NPY002
        found.append(train_encoder(X[:40], steps=3, net=TINY, seed=seed, device="cpu").state)
    same = [[torch.equal(a[name], b[name]) for name in a] for a, b in pairwise(found)]
    assert all(same[0])
    assert not all(same[1])


def test_layouts_and_types_of_images_agree():
    colour = np.stack([X[:30], X[30:60], X[60:90]], axis=3)
    kinds = (colour, np.moveaxis(colour, 3, 1), (colour / 255).astype(np.float32))
    found = [train_encoder(kind, steps=2, net=TINY, device="cpu").features(kind, device="cpu") for kind in kinds]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(found[0], found[2], rtol=1e-3, atol=1e-4)


def test_progress_reaches_the_last_step():
    seen = []
    train_encoder(X[:20], steps=5, net=TINY, device="cpu", progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (5, 5)


def test_default_length_follows_the_pool():
    assert [usual_steps(1500, n, min(n, 1024), rounds=200) for n in (50, 5_000, 9_000, 10**6)] == [300, 977, 1500, 1500]


def test_loss_is_smallest_for_equal_views():
    views = torch.eye(6)
    equal = contrastive_loss(torch.cat([views, views]), 0.2)
    mixed = contrastive_loss(torch.cat([views, views.roll(1, 0)]), 0.2)
    assert float(equal) < 0.1
    assert float(mixed) > 3


@pytest.mark.parametrize(
    ("images", "options", "message"),
    [
        (X[:5], {}, "at least 8"),
        (np.full((9, 12, 12), np.nan), {}, "NaN"),
        (np.zeros((9, 7)), {}, "not an image"),
        (X[:20], {"steps": 0}, "steps is 0"),
        (X[:20], {"batch_size": 1}, "batch_size is 1"),
        (X[:20], {"temperature": 0}, "temperature 0"),
    ],
)
def test_unusable_pools_and_settings_are_refused(images, options, message):
    with pytest.raises(InputError, match=message):
        train_encoder(images, net=TINY, device="cpu", **options)
    with pytest.raises(InputError, match="trained on"):
        train_encoder(X[:20], steps=1, net=TINY, device="cpu").features(np.zeros((2, 5, 5)), device="cpu")


def test_learnt_features_of_a_row_stay_exact_when_stored(encoder):
    features = fit_features(X, n_classes=3, kind="learnt", encoder=encoder)
    points = features.transform(X)
    assert agreement(points, Y) > 0.9 * agreement(encoder.features(X, device="cpu"), Y)
    again = Features.from_arrays(features.arrays())
    for start, size in ((0, 1), (5, 3), (20, 37)):
        np.testing.assert_array_equal(again.transform(X[start : start + size]), points[start : start + size])
    np.testing.assert_array_equal(again.transform(X.reshape(len(X), -1)), points)
    assert features.describe()["steps"] == "a net trained on the pool without labels"
    assert all(array.dtype.kind != "O" for array in features.arrays().values())


def test_cells_of_learnt_features_are_stored_without_pickle(encoder, tmp_path):
    features = fit_features(X, n_classes=3, kind="learnt", encoder=encoder)
    maps = PublicMaps.make(X, n_classes=3, cells=6, partitions=2, features=features)
    write_npz(tmp_path / "cells.npz", maps.arrays())
    again = PublicMaps.from_arrays(read_npz(tmp_path / "cells.npz", PublicMaps.NAMES))
    np.testing.assert_array_equal(again.cells.assign(again.features.transform(X)), maps.pool)


def test_learnt_features_of_tables_are_refused():
    with pytest.raises(InputError, match="'learnt' for rows of the shape"):
        fit_features(np.zeros((20, 16)), n_classes=2, kind="learnt")
