"""Random affine maps, one per image and step, computed on the device for many steps at once."""

import math

import torch
from torch import Tensor
from torch.nn import functional

from ipate.torch import streams
from ipate.torch.nets import Shape
from ipate.torch.presets import Augmentation

__all__ = ["affine_maps", "moved"]

_DRAWS = 5  # numbers per image: angle, two shifts, scale, shear


def affine_maps(
    augmentation: Augmentation, *, keys: Tensor, start: int, steps: int, batch_size: int, image: Shape
) -> Tensor:
    """Draw the maps of a block of steps.

    Parameters
    ----------
    keys : int64 tensor of shape (T,)
        One stream per teacher.
    start, steps : int
        The block: steps start to start + steps − 1.

    Returns
    -------
    tensor of shape (steps, B·T, 2, 3)
        From output to input coordinates, as `affine_grid` wants them; images in the order (B, T).
    """
    order = torch.arange(start * batch_size, (start + steps) * batch_size, dtype=torch.int64, device=keys.device)
    counter = order[:, None, None] * _DRAWS + torch.arange(_DRAWS, device=keys.device)
    drawn = streams.uniform(keys[None, :, None], counter) * 2 - 1  # (steps·B, T, 5)
    angle = drawn[..., 0] * math.radians(augmentation.degrees)
    across, down = drawn[..., 1] * 2 * augmentation.shift, drawn[..., 2] * 2 * augmentation.shift
    scale = 1 / (1 + drawn[..., 3] * augmentation.scale)
    shear = drawn[..., 4] * augmentation.shear
    cos, sin = angle.cos() * scale, angle.sin() * scale
    _, height, width = image
    ratio = height / width
    rows = (cos, (cos * shear - sin) * ratio, across, sin / ratio, sin * shear + cos, down)
    return torch.stack(rows, dim=-1).view(steps, -1, 2, 3)


def moved(images: Tensor, maps: Tensor) -> Tensor:
    """Move every image (N, C, H, W) by its own map (N, 2, 3); what comes from outside is 0."""
    grid = functional.affine_grid(maps, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
