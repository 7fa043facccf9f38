"""Nets in whole numbers: exact sums, the same features in any company, and close to the net they come from."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from ipate.errors import InputError
from ipate.public import integers as exact
from ipate.public.integers import Convolution, ExactNet, quantise

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (40, 10, 12), dtype=np.uint8)
POOLS = (True, False, True)
WIDTHS = (1, 6, 8, 10)


def made_state():
    state = {}
    for number, (into, out) in enumerate(pairwise(WIDTHS)):
        state[f"{number}.weight"] = RNG.normal(0, 0.4, (out, into, 3, 3))
        state[f"{number}.scale"], state[f"{number}.shift"] = RNG.uniform(0.5, 2, out), RNG.normal(0, 0.3, out)
        state[f"{number}.mean"], state[f"{number}.deviation"] = RNG.normal(0, 0.3, out), RNG.uniform(0.5, 2, out)
    return state


STATE = made_state()
NET = quantise(STATE, POOLS, IMAGES)


def in_floats(images):
    """Return the features that the net has before it is rounded, by the definition of a convolution."""
    values = images[:, None] / 255.0
    for number, pool in enumerate(POOLS):
        weight = STATE[f"{number}.weight"]
        padded = np.pad(values, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
        values = np.einsum("nihwab,oiab->nohw", windows, weight) - STATE[f"{number}.mean"][:, None, None]
        gain = (STATE[f"{number}.scale"] / STATE[f"{number}.deviation"])[:, None, None]
        values = np.maximum(values * gain + STATE[f"{number}.shift"][:, None, None], 0)
        if pool:
            n, channels, height, width = values.shape
            cut = values[:, :, : height // 2 * 2, : width // 2 * 2]
            values = cut.reshape(n, channels, height // 2, 2, width // 2, 2).max(axis=(3, 5))
    sums = values.sum(axis=(2, 3))
    return sums / np.linalg.norm(sums, axis=1, keepdims=True)


def test_whole_numbers_stay_close_to_the_net():
    similarity = (NET.features(IMAGES) * in_floats(IMAGES)).sum(axis=1)
    assert similarity.min() > 0.998


def test_features_of_an_image_do_not_depend_on_others():
    together = NET.features(IMAGES)
    for start, size in ((0, 1), (3, 2), (5, 17), (9, 31)):
        np.testing.assert_array_equal(NET.features(IMAGES[start : start + size]), together[start : start + size])


def test_sums_are_exact_in_any_precision_and_order():
    for number, layer in enumerate(NET.layers):
        into = layer.weights.shape[2]
        planes = RNG.integers(0, 256, (into, 5, 9, 7)).astype(np.float32)
        order = RNG.permutation(into)
        doubles = replace(layer, weights=layer.weights[:, :, order].astype(np.float64), bias=layer.bias.astype(float))
        single, double = (
            exact._layer(planes, layer, np),
            exact._layer(planes[order].astype(np.float64), doubles, np),
        )
        np.testing.assert_array_equal(single, double, err_msg=str(number))
        np.testing.assert_array_equal(single, np.rint(single))


def test_torch_gives_the_same_bits_as_numpy():
    torch = pytest.importorskip("torch")
    planes = exact._planes(IMAGES)
    mine, theirs = planes, torch.from_numpy(planes).double()
    for layer in NET.layers:
        parts = {name: torch.from_numpy(getattr(layer, name)).double() for name in ("weights", "bias", "step")}
        mine, theirs = exact._layer(mine, layer, np), exact._layer(theirs, _Plain(**parts, pool=layer.pool), torch)
        np.testing.assert_array_equal(mine, theirs.numpy())


class _Plain:
    def __init__(self, **parts):
        vars(self).update(parts)


def test_net_with_inexact_sums_is_refused():
    layer = NET.layers[0]
    kinds = {"weights": layer.weights * 4, "bias": layer.bias + np.float32(0.5), "step": layer.step * np.float32(0.3)}
    for name, value in kinds.items():
        with pytest.raises(InputError, match="not exact"):
            replace(layer, **{name: value})
    assert isinstance(replace(layer, pool=False), Convolution)


def test_machine_with_shortened_products_is_refused(monkeypatch):
    assert ExactNet(NET.layers).exact_here
    sums = exact._sums

    def shortened(planes, weights, bias, xp):  # to ten bits, as TF32 does
        short = (weights.view(np.int32) & -(1 << 13)).view(np.float32) if weights.dtype == np.float32 else weights
        return sums(planes, short, bias, xp)

    monkeypatch.setattr(exact, "_sums", shortened)
    with pytest.raises(InputError, match="not exact"):
        ExactNet(NET.layers).features(IMAGES[:1])


def test_stored_net_gives_the_same_features():
    stored = NET.array()
    assert stored.dtype == np.int32
    np.testing.assert_array_equal(ExactNet.from_array(stored).features(IMAGES), NET.features(IMAGES))
    for damaged in (stored[:-1], stored[:40], np.zeros(1, np.int32)):
        with pytest.raises(InputError, match="damaged"):
            ExactNet.from_array(damaged)


def test_bytes_and_floats_have_the_same_features():
    np.testing.assert_array_equal(NET.features(IMAGES / 255), NET.features(IMAGES))


def test_pixels_that_are_no_numbers_become_zero():
    odd = (IMAGES[:2] / 255).copy()
    odd[0, 0, 0], odd[1, 2, 2] = np.nan, -np.inf
    plain = odd.copy()
    plain[0, 0, 0] = plain[1, 2, 2] = 0
    np.testing.assert_array_equal(NET.features(odd), NET.features(plain))
    assert np.isfinite(NET.features(np.zeros((1, 10, 12), np.uint8))).all()
