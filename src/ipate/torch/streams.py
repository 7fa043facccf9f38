"""Random numbers as a pure function of (seed, teacher, purpose, counter): the same on every device.

Initial weights, augmentation and dropout are drawn by hashing a counter (splitmix64: Steele, Lea and
Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014), so that a teacher's training
does not depend on which other teachers it is trained with, in how many chunks, or in which process.
For training only: privacy noise never comes from here.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

from ipate.torch.nets import Shape
from ipate.torch.presets import Augmentation

INIT, AUGMENT, DROPOUT = 1, 2, 3  # purposes: streams that never meet
_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_BLOCK = 1 << 24  # numbers drawn in one go


def _mixed(value: int) -> int:
    """Splitmix64's finaliser on a Python integer."""
    value &= _MASK
    value = ((value ^ (value >> 30)) * _FIRST) & _MASK
    value = ((value ^ (value >> 27)) * _SECOND) & _MASK
    return value ^ (value >> 31)


def _signed(value: int) -> int:
    """The same 64 bits as the signed integer that torch holds."""
    return value - (1 << 64) if value >> 63 else value


def keys(seed: int, teachers: list[int], *purpose: int) -> Tensor:
    """Return one 64-bit key per teacher for a purpose, as an int64 tensor on the CPU."""
    made = []
    for teacher in teachers:
        key = _mixed(seed + _STEP)
        for part in (teacher, *purpose):
            key = _mixed(key ^ _mixed((part + 1) * _STEP))
        made.append(_signed(key))
    return torch.tensor(made, dtype=torch.int64)


def uniform(key: Tensor, counter: Tensor) -> Tensor:
    """Return float32 numbers in [0, 1) for every (key, counter), broadcast against each other."""
    z = key + counter * _signed(_STEP)
    z = (z ^ ((z >> 30) & ((1 << 34) - 1))) * _signed(_FIRST)
    z = (z ^ ((z >> 27) & ((1 << 37) - 1))) * _signed(_SECOND)
    z = z ^ ((z >> 31) & ((1 << 33) - 1))
    return ((z >> 40) & ((1 << 24) - 1)).to(torch.float32) * (1.0 / (1 << 24))


def uniform_rows(key: Tensor, size: int) -> Tensor:
    """Return (T, size) numbers, row t from key t, drawn a few rows at a time."""
    out = torch.empty(len(key), size, dtype=torch.float32, device=key.device)
    counter = torch.arange(size, dtype=torch.int64, device=key.device)
    rows = max(1, _BLOCK // max(1, size))
    for start in range(0, len(key), rows):
        out[start : start + rows] = uniform(key[start : start + rows, None], counter)
    return out


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
    drawn = uniform(keys[None, :, None], counter) * 2 - 1  # (steps·B, T, 5)
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
