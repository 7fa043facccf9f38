"""Made-up images for self-supervised and semi-supervised training: three shapes, moved about, in noise."""

import numpy as np

from ipate.torch.nets import Average, Conv, Dense, Net, Norm, Pool, Relu

TINY = Net(
    name="tiny",
    layers=(
        Conv(channels=8),
        Norm(),
        Relu(),
        Pool(),
        Conv(channels=16),
        Norm(),
        Relu(),
        Conv(channels=16),
        Norm(),
        Relu(),
        Average(),
        Dense(),
    ),
    image=(1, 12, 12),
)


def pictures(count, *, seed):
    """Return 8-bit images (N, 12, 12) of a cross, a ring or two bars at a random place, and their classes."""
    generator = np.random.default_rng(seed)
    shapes = np.zeros((3, 5, 5))
    shapes[0, 2], shapes[0, :, 2] = 1, 1
    shapes[1] = 1
    shapes[1, 1:4, 1:4] = 0
    shapes[2, 0], shapes[2, 3] = 1, 1
    labels = generator.integers(0, 3, count)
    images = generator.uniform(0, 0.25, (count, 12, 12))
    for image, label in zip(images, labels, strict=True):
        down, across = generator.integers(1, 7, 2)
        image[down : down + 5, across : across + 5] += generator.uniform(0.5, 0.75) * shapes[label]
    return (255 * images.clip(0, 1)).astype(np.uint8), labels
