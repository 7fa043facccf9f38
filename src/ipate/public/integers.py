"""Histograms of oriented gradients (Dalal and Triggs 2005), in numpy, for images of any size.

Pixels, the parts of gradients and the entries of cells are whole numbers, so that every sum is exact and an image's
result depends on that image alone.

A net of convolutions in whole numbers, so that the features of an image depend on that image alone, to the last bit.

Every activation is a whole number from 0 to 255 and every weight a whole number, scaled per output channel so that all
sums stay below 2^24: exact in float32 in any order, and so the same for every block of rows, number of threads, library
and device. This is the usual 8-bit quantisation of a trained net (Jacob et al., "Quantization and training of neural
networks for efficient integer-arithmetic-only inference", CVPR 2018), with the norms folded into the convolutions and
powers of two as the steps between layers.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ipate._types import Floats
from ipate.errors import InputError

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


Singles = NDArray[np.float32]
TOP = 255  # of an activation
_EXACT = 2**24 - 1  # whole numbers up to here are exact in float32
_CLIPPED = 1e-4  # the share of the pool's positive activations above the top
_ROWS, _ROWS_GPU = 16, 512  # images at a time
_CALIBRATION = 512  # images of the pool that decide the scales


@dataclass(frozen=True, kw_only=True, eq=False)
class Convolution:
    """A padded 3×3 convolution, rectified and rounded to 0…255; with `pool`, then the maximum of 2×2 squares."""

    weights: Singles  # (9, out, in), whole numbers; the nine shifts row by row
    bias: Singles  # (out,), whole numbers
    step: Singles  # (out,), powers of two: the sum is multiplied by them before it is rounded
    pool: bool

    def __post_init__(self) -> None:
        most = TOP * np.abs(self.weights, dtype=np.float64).sum(axis=(0, 2)) + np.abs(self.bias)
        whole = all(np.array_equal(part, np.rint(part)) for part in (self.weights, self.bias))
        if not whole or not most.max() <= _EXACT or not np.all(np.frexp(self.step)[0] == 0.5):
            raise InputError("the net's weights are not whole numbers with sums below 2^24, so it is not exact")


@dataclass(frozen=True, eq=False)
class ExactNet:
    """Convolutions one after another, then the sum of every channel over the image, at unit length."""

    layers: tuple[Convolution, ...]

    @property
    def width(self) -> int:
        """The number of features."""
        return len(self.layers[-1].bias)

    @cached_property
    def exact_here(self) -> bool:
        """Whether this machine computes the sums of every layer as integers would, on made-up activations."""
        for layer in self.layers:
            into = layer.weights.shape[2]
            planes = (np.arange(into * 64) * 37 % (TOP + 1)).reshape(into, 1, 8, 8)
            whole = _sums(planes, layer.weights.astype(np.int64), layer.bias.astype(np.int64), np)
            if not np.array_equal(whole, _sums(planes.astype(np.float32), layer.weights, layer.bias, np)):
                return False
        return True

    def features(self, images: NDArray[Any]) -> Floats:
        """Return the features of (N, H, W) or (N, H, W, C) images, uint8 or 0 to 1; what is no number is 0."""
        if not self.exact_here:
            raise InputError("this machine's float32 products are not exact: learnt features cannot be used on it")
        torch, found = _gpu(), [np.empty((0, self.width))]
        layers: Sequence[Convolution] = self.layers
        if torch is not None:  # in doubles: a GPU's float32 products may be shortened
            layers = [_on_gpu(layer, torch) for layer in layers]
        rows = _ROWS if torch is None else _ROWS_GPU
        for start in range(0, len(images), rows):
            planes: Any = _planes(images[start : start + rows])
            if torch is not None:
                planes = torch.from_numpy(planes).cuda().double()
            for layer in layers:
                planes = _layer(planes, layer, torch or np)
            sums = planes.sum((2, 3))
            found.append(np.asarray(sums if torch is None else sums.cpu().numpy(), dtype=np.float64).T)
        sums = np.concatenate(found)
        norm = np.sqrt(np.square(sums).sum(axis=1, keepdims=True))
        return np.asarray(sums / np.maximum(norm, 1.0))

    def array(self) -> NDArray[np.int32]:
        """Return the net as one array of whole numbers, to be stored."""
        parts: list[Any] = [len(self.layers)]
        for one in self.layers:
            _, out, into = one.weights.shape
            parts += [into, out, one.pool, *one.weights.ravel(), *one.bias, *-np.log2(one.step)]
        return np.array(parts, dtype=np.int32)

    @classmethod
    def from_array(cls, stored: NDArray[Any]) -> Self:
        """Return the net that `array` describes."""
        place, layers = 1, []
        for _ in range(int(stored[0])):
            into, out, pool = (int(value) for value in stored[place : place + 3])
            sizes = np.cumsum([place + 3, 9 * out * into, out, out])
            if min(into, out) < 1 or sizes[-1] > len(stored):
                raise InputError("the stored net is damaged")
            w, b, k = (stored[a:z].astype(np.float32) for a, z in pairwise(sizes))
            layers.append(
                Convolution(weights=w.reshape(9, out, into), bias=b, step=np.exp2(-k).astype(np.float32), pool=pool > 0)
            )
            place = int(sizes[-1])
        if not layers:
            raise InputError("the stored net is damaged")
        return cls(tuple(layers))


def quantise(state: Mapping[str, NDArray[Any]], pools: Sequence[bool], images: NDArray[Any]) -> ExactNet:
    """Return a trained net in whole numbers; the scales of its activations come from images of the pool.

    `state` has, for every convolution in order, `weight` (out, in, 3, 3) and its norm's `scale`, `shift`, `mean` and
    `deviation`, each with the number of the convolution before it, as in `0.weight`; `pools` says where to pool.
    """
    planes = _planes(images[:_CALIBRATION])
    unit, layers = np.full(planes.shape[0], 1 / TOP), []
    for number, pool in enumerate(pools):
        own = {name: np.asarray(state[f"{number}.{name}"], np.float64) for name in _STATE}
        gain = own["scale"] / own["deviation"]
        real = own["weight"] * gain[:, None, None, None] * unit[:, None, None]
        offset = own["shift"] - own["mean"] * gain
        weights = np.moveaxis(real.reshape(*real.shape[:2], 9), 2, 0)
        seen = [_sums(planes[:, i : i + _ROWS], weights, offset, np) for i in range(0, planes.shape[1], _ROWS)]
        values = np.concatenate(seen, axis=1)
        top = np.array([_top(channel) for channel in values])
        least = (
            1.0 if number == len(pools) - 1 else 1e-3
        )  # one scale for all features; elsewhere a channel may be all 0
        out = np.maximum(top, max(least * top.max(), 1e-12)) / TOP
        weights, offset = weights / out[:, None], offset / out
        room = TOP * np.abs(weights).sum(axis=(0, 2)) + np.abs(offset)
        slack = TOP * 4.5 * weights.shape[2] + 0.5  # rounding adds at most one half to every weight
        power = np.floor(np.log2((_EXACT - slack) / np.maximum(room, 1e-9))).clip(0, 30)
        layer = Convolution(
            weights=np.rint(weights * np.exp2(power)[:, None]).astype(np.float32),
            bias=np.rint(offset * np.exp2(power)).astype(np.float32),
            step=np.exp2(-power).astype(np.float32),
            pool=pool,
        )
        layers.append(layer)
        parts = [_layer(planes[:, i : i + _ROWS], layer, np) for i in range(0, planes.shape[1], _ROWS)]
        planes, unit = np.concatenate(parts, axis=1), out
    return ExactNet(tuple(layers))


_STATE = ("weight", "scale", "shift", "mean", "deviation")


def _top(values: Floats) -> float:
    """Return what only a few of the positive values exceed."""
    positive = values[values > 0]
    return float(np.quantile(positive, 1 - _CLIPPED)) if positive.size else 0.0


def _planes(images: NDArray[Any]) -> Singles:
    """Return images as whole numbers 0…255, channels first: (C, N, H, W)."""
    scale = 1.0 if images.dtype == np.uint8 else float(TOP)
    with np.errstate(invalid="ignore", over="ignore"):
        pixels = np.clip(np.rint(np.nan_to_num(np.asarray(images, np.float64)) * scale), 0, TOP)
    pixels = pixels[..., None] if pixels.ndim == 3 else pixels
    return np.ascontiguousarray(np.moveaxis(pixels, 3, 0), dtype=np.float32)


def _on_gpu(layer: Convolution, torch: Any) -> Any:
    parts = {name: torch.from_numpy(getattr(layer, name)).cuda().double() for name in ("weights", "bias", "step")}
    return SimpleNamespace(**parts, pool=layer.pool)


def _layer(planes: Any, layer: Convolution, xp: Any) -> Any:
    """Return the activations (out, N, H, W) after one convolution; `xp` is numpy or torch."""
    values = _sums(planes, layer.weights, layer.bias, xp)
    values = (values * layer.step[:, None, None, None]).round().clip(0, TOP)
    if layer.pool:
        height, width = values.shape[2] // 2 * 2, values.shape[3] // 2 * 2
        rows = xp.maximum(values[:, :, 0:height:2], values[:, :, 1:height:2])
        values = xp.maximum(rows[..., 0:width:2], rows[..., 1:width:2])
    return values


def _sums(planes: Any, weights: Any, bias: Any, xp: Any) -> Any:
    """Return Σ w·x + b of a padded 3×3 convolution, as nine products with shifted copies of one flat plane."""
    into, count, height, width = planes.shape
    kind = {"dtype": weights.dtype} if xp is np else {"dtype": weights.dtype, "device": weights.device}
    flat = xp.zeros((into, count * (height + 2) * (width + 2) + 2 * width + 6), **kind)
    size = count * (height + 2) * (width + 2)
    flat[:, :size].reshape(into, count, height + 2, width + 2)[:, :, 1:-1, 1:-1] = planes
    total = xp.zeros((len(bias), size), **kind)
    for shift in range(9):
        start = shift // 3 * (width + 2) + shift % 3
        total += weights[shift] @ flat[:, start : start + size]
    total += bias[:, None]
    return total.reshape(len(bias), count, height + 2, width + 2)[:, :, :height, :width]


def _gpu() -> Any:
    """Return torch if the program has loaded it and there is a GPU: the result is the same, and sooner."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and torch.cuda.is_available() else None
