"""Histograms of oriented gradients on images whose gradients are known."""

import numpy as np
import pytest

from ipate.public.integers import gradients


def stripes(angle, side=32):
    """A wave of brightness that runs along `angle`."""
    rows, columns = np.mgrid[:side, :side]
    return 0.5 + 0.5 * np.sin(0.6 * (columns * np.cos(angle) + rows * np.sin(angle)))


def test_strongest_orientation_is_that_of_the_stripes():
    for bin_ in range(9):
        found = gradients(stripes(bin_ * np.pi / 9)[None], bytes_=False).reshape(-1, 9).sum(axis=0)
        assert np.argmax(found) == bin_


def test_brightness_and_contrast_hardly_change_the_result():
    image = stripes(0.7)
    plain, dim = (gradients(part[None], bytes_=False) for part in (image, 0.3 + 0.4 * image))
    np.testing.assert_allclose(dim, plain, atol=0.02)


def test_bytes_and_floats_give_nearly_the_same():
    image = np.rint(stripes(0.2) * 255)
    one = gradients(image[None], bytes_=True)
    np.testing.assert_allclose(gradients(image[None] / 255, bytes_=False), one, atol=1e-9)


def test_colour_images_are_averaged_and_sizes_may_be_odd():
    image = np.random.default_rng(0).random((2, 19, 26))
    assert gradients(image, bytes_=False).shape == (2, 3 * 5 * 36)
    colour = np.repeat(image[..., None], 3, axis=3)
    np.testing.assert_allclose(gradients(colour, bytes_=False), gradients(image, bytes_=False), atol=0.02)


def test_flat_images_have_no_gradient():
    assert not gradients(np.full((1, 16, 16), 0.4), bytes_=False).any()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("shape", [(16, 16), (16, 16, 3)])
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e308])
def test_pixels_that_are_no_numbers_stay_silent(shape, value):
    images = np.random.default_rng(0).random((2, *shape))
    images[0].ravel()[:3] = value, -value, value
    changed = gradients(images, bytes_=False)
    assert np.isfinite(changed).all()
