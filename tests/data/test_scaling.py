import inspect

import numpy as np
import pytest

from ipate.data.dataset import Scaler, images_to_float, make_scaler
from ipate.errors import InputError


def test_fixed_bounds_are_scaled_and_clipped():
    scaler = make_scaler(bounds=[(0, 10), (-1, 1)])
    assert scaler.transform([[0, -1], [10, 1], [5, 0], [20, -9]]).tolist() == [[0, 0], [1, 1], [0.5, 0.5], [1, 0]]
    assert scaler.basis == "fixed bounds"


def test_single_pair_of_bounds_scales_one_feature():
    assert make_scaler(bounds=(0, 4)).transform([[1.0]]).tolist() == [[0.25]]


def test_public_range_is_scaled_and_clipped():
    scaler = make_scaler(public=[[1.0, 5.0], [3.0, 5.0]])
    assert scaler.transform([[2.0, 5.0], [9.0, 4.0]]).tolist() == [[0.5, 0.0], [1.0, 0.0]]
    assert scaler.basis == "2 public rows"


def test_standard_scores_use_public_rows():
    rng = np.random.default_rng(0)
    public = rng.normal(5, 3, size=(500, 2))
    scaler = make_scaler(public=public, method="standard")
    scaled = scaler.transform(public)
    assert np.allclose(scaled.mean(axis=0), 0)
    assert np.allclose(scaled.std(axis=0), 1)
    assert scaler.transform([[1e9, -1e9]]).tolist() == [[10, -10]]


def test_float32_is_kept_and_input_is_unchanged():
    X = np.array([[2.0]], dtype=np.float32)
    assert make_scaler(bounds=(0, 4)).transform(X).dtype == np.float32
    assert X.tolist() == [[2.0]]
    assert make_scaler(bounds=(0, 4)).transform([[2]]).dtype == np.float64


def test_scaler_has_no_fit_method():
    assert not hasattr(Scaler, "fit")
    assert not hasattr(Scaler, "fit_transform")
    kinds = {parameter.kind for parameter in inspect.signature(make_scaler).parameters.values()}
    assert kinds == {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "neither is given"),
        ({"bounds": (0, 1), "public": [[1.0]]}, "both are given"),
        ({"bounds": (1, 1)}, r"bounds of feature 0 are \(1.0, 1.0\)"),
        ({"bounds": [(0, 1), (0, np.inf)]}, "bounds of feature 1"),
        ({"bounds": [1, 2, 3]}, "must be .low, high. pairs"),
        ({"bounds": (0, 1), "method": "standard"}, "variance of public="),
        ({"bounds": (0, 1), "method": "robust"}, "method is 'robust'"),
        ({"public": [[np.nan]]}, "public, row 0, feature 0 is nan"),
        ({"public": [1.0]}, r"public has the shape \(1,\)"),
    ],
)
def test_invalid_scaler_settings_are_refused(settings, words):
    with pytest.raises(InputError, match=words):
        make_scaler(**settings)


def test_table_of_another_width_is_refused():
    with pytest.raises(InputError, match=r"this scaler is for \(rows, 1\)"):
        make_scaler(bounds=(0, 1)).transform([[1, 2]])


def test_images_become_floats_between_0_and_1():
    assert images_to_float(np.array([[0, 255]], np.uint8)).tolist() == [[0.0, 1.0]]
    assert images_to_float(np.array([[0.5]])).dtype == np.float32
    with pytest.raises(InputError, match=r"hold values from 0.0 to 255.0: floats must lie in \[0, 1\]"):
        images_to_float(np.array([[0.0, 255.0]]))
    with pytest.raises(InputError, match="images are of type int64"):
        images_to_float(np.array([[1]]))
