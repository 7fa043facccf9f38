import numpy as np
import pytest

from ipate.data import DATASETS, load
from ipate.data.dataset import Dataset
from ipate.errors import InputError


def small(**changes):
    parts = {"name": "small", "X": np.eye(3), "y": np.array([0, 1, 0]), "classes": ("no", "yes")}
    return Dataset(**{**parts, **changes})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "sound"}, "kind is 'sound'"),
        ({"X": np.zeros((3, 0))}, r"X has the shape \(3, 0\)"),
        ({"X": np.zeros((3, 2, 2))}, r"for kind 'table' it must be \(rows, features\)"),
        ({"kind": "image"}, r"it must be \(N, H, W\) or"),
        ({"y": np.array([0, 1])}, r"y has the shape \(2,\)"),
        ({"y": np.array([0, 1, 2])}, "y of row 2 is 2: class indices go from 0 to 1"),
        ({"y": np.array([0, -2, 1])}, "y of row 1 is -2"),
        ({"classes": ("a",)}, "at least two"),
        ({"classes": ("a", "a", "b")}, "all different"),
        ({"levels": np.array(["a"])}, "levels has the shape"),
        ({"levels": np.array(["a"] * 3), "epsilon": np.ones(3)}, "not both"),
        ({"feature_names": ("a",)}, "feature_names has 1 names"),
    ],
)
def test_inconsistent_parts_are_refused(changes, words):
    with pytest.raises(InputError, match=words):
        small(**changes)


def test_arrays_are_read_only_but_the_callers_are_not():
    X = np.eye(3)
    data = small(X=X)
    with pytest.raises(ValueError, match="read-only"):
        data.X[0, 0] = 5
    X[0, 0] = 5


def test_take_selects_rows_of_every_array():
    data = small(epsilon=np.array([1.0, 2.0, 3.0]), person_id=np.array(["a", "b", "c"]), test_rows=np.array([2]))
    part = data.take([2, 0])
    assert part.X.tolist() == [[0, 0, 1], [1, 0, 0]]
    assert part.y.tolist() == [0, 0]
    assert part.epsilon.tolist() == [3.0, 1.0]
    assert part.person_id.tolist() == ["c", "a"]
    assert part.test_rows is None


def test_image_features_are_floats_between_0_and_1():
    pixels = np.array([0, 51, 102, 255], dtype=np.uint8).reshape(1, 2, 2).repeat(2, axis=0)
    data = Dataset(name="i", X=pixels, y=np.array([0, 1]), classes=("a", "b"), kind="image")
    assert data.features().shape == (2, 4)
    assert data.features().dtype == np.float32
    assert data.features([0], flat=False).tolist() == np.float32([[[0, 0.2], [0.4, 1]]]).tolist()
    assert np.array_equal(small().features([1]), [[0, 1, 0]])


def test_digits_are_loaded_from_scikit_learn():
    data = load("digits")
    assert data.X.shape == (1797, 8, 8)
    assert (float(data.X.min()), float(data.X.max())) == (0.0, 1.0)
    assert data.classes == tuple("0123456789")
    assert np.bincount(data.y).min() >= 174


def test_unknown_data_set_is_refused_with_the_nearest():
    with pytest.raises(
        InputError, match=r"dataset is 'digit': allowed are synthetic, .*; nearest is 'digits'; .* paper"
    ):
        load("digit")
    assert {"synthetic", "digits"} <= set(DATASETS)  # tests of the paper add others


def test_option_of_loader_without_options_is_refused():
    with pytest.raises(InputError, match="option 'seed' is unknown to 'digits': it has no options"):
        load("digits", seed=1)
