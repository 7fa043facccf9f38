"""Random views: what they change, and that one law's numbers do not move another's."""

import numpy as np
import pytest

pytest.importorskip("torch.nn", reason="needs torch: pip install 'ipate[torch]'")

import torch

from ipate.torch.nets import Augmentation
from ipate.torch.views import Views

STILL = Augmentation(degrees=0, shift=0)
CPU = torch.device("cpu")


def one(law, images):
    """Return the first view of a batch."""
    shape = (images.shape[1], images.shape[2], images.shape[3])
    return next(law.draw(seed=1, stream=2, steps=1, batch_size=len(images), image=shape, device=CPU)).of(images)


def scenes(count=400):
    return torch.from_numpy(np.random.default_rng(0).uniform(0.2, 0.8, (count, 3, 8, 8)).astype(np.float32))


def test_recoloured_views_differ_and_some_are_grey():
    images = scenes()
    found = one(Views(affine=STILL, colour=0.4), images)
    assert (found - images).abs().amax(dim=(1, 2, 3)).min() > 0.01
    changed = found - found.mean(dim=(2, 3), keepdim=True)  # a grey view has channels that differ by factors alone
    scaled = changed / changed.square().sum(dim=(2, 3), keepdim=True).sqrt()
    grey = (scaled - scaled[:, :1]).abs().amax(dim=(1, 2, 3)) < 1e-4
    assert 0.14 < grey.float().mean() < 0.26


def test_stronger_law_changes_colours_more():
    images = scenes()
    weak, strong = (one(Views(affine=STILL, colour=c), images) - images for c in (0.1, 0.4))
    assert strong.abs().mean() > 2 * weak.abs().mean()


def test_edges_continue_beyond_the_image():
    images = torch.full((50, 3, 8, 8), 0.7)
    law = Augmentation(degrees=20, shift=0.3)
    assert one(Views(affine=law), images).min() == 0
    torch.testing.assert_close(one(Views(affine=law, edges=True, hole=0.3), images), images)
