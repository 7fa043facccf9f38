"""Histograms of oriented gradients (Dalal and Triggs 2005), in numpy, for images of any size.

Pixels, the parts of gradients and the entries of cells are whole numbers, so that every sum is exact and an image's
result depends on that image alone.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
SMALLEST = 16  # pixels a side; smaller images have too few pixels per cell
_ANGLES = np.arange(9) * np.pi / 9
_SCALE = 2.0**12  # pixels become whole numbers from 0 to this
_CELLS = 8  # a side, at most; a cell has at least 4 × 4 pixels


def gradients(images: Floats, *, bytes_: bool) -> Floats:
    """Return the histograms of (N, H, W) or (N, H, W, C) images, flat; `bytes_` for 8-bit pixels, else 0 to 1."""
    with np.errstate(invalid="ignore", over="ignore"):  # whether a pixel is a number stays private
        grey = images if images.ndim == 3 else np.rint(images * 2.0**10).sum(axis=3) / (2.0**10 * images.shape[3])
        pixels = np.clip(np.rint(np.nan_to_num(grey * (_SCALE / 255 if bytes_ else _SCALE))), 0, _SCALE)
    padded = np.pad(pixels, ((0, 0), (1, 1), (1, 1)), mode="edge")
    down, right = padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1], padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2]
    power = down * down + right * right
    size = np.sqrt(power)
    safe = np.where(power > 0, power, 1.0)
    down_to, right_to = (_pooling(side) for side in pixels.shape[1:])
    histograms = []
    for angle in _ANGLES:  # the size of the gradient times cos⁸ of its angle to the orientation
        along = right * np.cos(angle) + down * np.sin(angle)
        cosine = along * along / safe
        part = np.rint(size * (cosine * cosine) * (cosine * cosine))
        histograms.append(np.rint(down_to.T @ part @ right_to))
    cells = np.stack(histograms, axis=3)
    corners = [cells[:, :-1, :-1], cells[:, 1:, :-1], cells[:, :-1, 1:], cells[:, 1:, 1:]]
    blocks = np.concatenate(corners, axis=3)
    norm = np.sqrt(np.square(blocks).sum(axis=3, keepdims=True) + (0.1 * _SCALE) ** 2)
    return np.asarray(np.minimum(blocks / norm, 0.2).reshape(len(images), -1))


def _pooling(side: int) -> Floats:
    """Return how much every pixel of a side counts in every cell: (pixels, cells), triangles in multiples of 1/256."""
    cells = min(_CELLS, side // 4)
    centres = (np.arange(cells) + 0.5) * side / cells - 0.5
    away = np.abs(np.arange(side)[:, None] - centres) * cells / side
    return np.asarray(np.rint(np.maximum(1 - away, 0.0) * 2.0**8) / 2.0**8)
