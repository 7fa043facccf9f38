"""T models of one architecture as one module, which a GPU trains at once; random streams and augmentation.

Images have the shape (B, T·C, H, W), with every teacher's channels side by side: convolutions are
grouped, batch normalisation runs over T·C channels, and dense layers are batched matrix products on
(T, B, features). No operation mixes teachers, forwards or backwards: nothing of one teacher's data
can reach another's parameters. Parameters are the single model's with a leading axis of length T.

Random numbers are a pure function of (seed, teacher, purpose, counter) and the same on every device.
They are drawn by hashing a counter (splitmix64: Steele, Lea and Flood, "Fast splittable pseudorandom
number generators", OOPSLA 2014), so that a teacher's training does not depend on which other teachers
it is trained with, in how many chunks, or in which process. Privacy noise is never drawn from them.
"""

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from ipate.torch.nets import Augmentation, Average, Conv, Dense, Dropout, Flatten, Layer, Net, Norm, Pool, Relu, Shape

ConvMode: TypeAlias = Literal["grouped", "matmul", "first"]
INIT, AUGMENT, DROPOUT, ORDER = 1, 2, 3, 4  # purposes, which have separate streams
_STEP, _FIRST, _SECOND = (  # splitmix64's constants, as the signed integers that torch can hold
    constant - (1 << 64) for constant in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
_BLOCK = 1 << 24  # numbers drawn at a time
_DRAWS = 5  # random numbers per augmented image: angle, two shifts, scale, shear


def _mixed(z: Tensor) -> Tensor:
    """Return splitmix64's finaliser of 64-bit integers; the masks turn torch's signed shifts into unsigned ones."""
    z = (z ^ ((z >> 30) & ((1 << 34) - 1))) * _FIRST
    z = (z ^ ((z >> 27) & ((1 << 37) - 1))) * _SECOND
    return z ^ ((z >> 31) & ((1 << 33) - 1))


def stream_keys(seed: int, teachers: Sequence[int], *purpose: int) -> Tensor:
    """Return one 64-bit key per teacher for a purpose, as an int64 tensor on the CPU."""
    first = (seed + _STEP + (1 << 63)) % (1 << 64) - (1 << 63)  # as a signed integer, whatever the seed
    key = _mixed(torch.tensor(first))
    for part in (list(teachers), *purpose):
        key = _mixed(key ^ _mixed((torch.tensor(part) + 1) * _STEP))
    return key


def uniform(key: Tensor, counter: Tensor) -> Tensor:
    """Return float32 numbers in [0, 1) for every (key, counter), broadcast against each other."""
    return ((_mixed(key + counter * _STEP) >> 40) & ((1 << 24) - 1)).to(torch.float32) * (1.0 / (1 << 24))


def uniform_rows(key: Tensor, size: int) -> Tensor:
    """Return numbers (T, size) where row t comes from key t; a few rows are drawn at a time."""
    out = torch.empty(len(key), size, dtype=torch.float32, device=key.device)
    counter = torch.arange(size, dtype=torch.int64, device=key.device)
    rows = max(1, _BLOCK // max(1, size))
    for start in range(0, len(key), rows):
        out[start : start + rows] = uniform(key[start : start + rows, None], counter)
    return out


def affine_maps(
    augmentation: Augmentation, *, keys: Tensor, start: int, steps: int, batch_size: int, image: Shape
) -> Tensor:
    """Draw the maps (steps, B·T, 2, 3) from output to input coordinates; the key (T,) of a teacher seeds its stream."""
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


def moved(images: Tensor, maps: Tensor, *, padding: Literal["zeros", "border"] = "zeros") -> Tensor:
    """Transform every image (N, C, H, W) by its own map (N, 2, 3); pixels from outside are 0, or those of the edge."""
    grid = functional.affine_grid(maps, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, mode="bilinear", padding_mode=padding, align_corners=False)


class BatchedNet(nn.Sequential):
    """T models of one architecture; it maps (B, T·C, H, W), or images (B, C, H, W) for all, to logits (T, B, classes).

    `conv` is as in `Compute`; the first layer needs no gradient of its input, so patches pay most there.
    """

    def __init__(self, net: Net, n_models: int, *, image: Shape, n_classes: int, conv: ConvMode = "grouped") -> None:
        shapes = net.shapes(image, n_classes)
        layers = []
        for position, layer in enumerate(net.layers):
            patches = conv == "matmul" or (conv == "first" and position == 0)
            layers.append(_layer(layer, n_models, shapes[position], n_classes, patches))
        super().__init__(*layers)

    def start(self, seed: int, teachers: Sequence[int]) -> None:
        """Draw the initial weights of a new net, and the keys of its dropout, from every teacher's own streams."""
        weighted = [layer for layer in self if isinstance(layer, _Weighted)]
        for position, layer in enumerate(weighted):
            fan_in = math.prod(layer.weight.shape[2:])
            fan_out = layer.weight.shape[1] * math.prod(layer.weight.shape[3:])
            last = position == len(weighted) - 1
            bound = math.sqrt(6 / (fan_in + fan_out)) if last else math.sqrt(6 / fan_in)
            key = stream_keys(seed, teachers, INIT, position).to(layer.weight.device)
            drawn = uniform_rows(key, math.prod(layer.weight.shape[1:]))
            with torch.no_grad():
                layer.weight.copy_(drawn.mul_(2 * bound).sub_(bound).view_as(layer.weight))
        for position, module in enumerate(self):
            if isinstance(module, _Dropout):
                module.key.copy_(stream_keys(seed, teachers, DROPOUT, position))


class _Weighted(nn.Module):
    """A layer with a weight (T, …) and, if it has one, a bias (T, …)."""

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(self, shape: tuple[int, ...], bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(shape))
        self.bias = nn.Parameter(torch.zeros(shape[:2])) if bias else None


class _Conv(_Weighted):
    def __init__(self, models: int, channels: int, spec: Conv, patches: bool) -> None:
        super().__init__((models, spec.channels, channels, 3, 3), spec.bias)
        self.padding = spec.padding
        self.patches = patches

    def forward(self, x: Tensor) -> Tensor:
        models, _, channels = self.weight.shape[:3]
        shared = x.shape[1] == channels
        if self.patches and not shared:
            return self._by_patches(x)
        bias = None if self.bias is None else self.bias.flatten()
        groups = 1 if shared else models
        return functional.conv2d(x, self.weight.flatten(0, 1), bias, padding=self.padding, groups=groups)

    def _by_patches(self, x: Tensor) -> Tensor:
        """Multiply weights with 3×3 patches; the bias is one more column, which meets a patch entry of 1."""
        models, out, channels = self.weight.shape[:3]
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        if self.padding:
            x = functional.pad(x, [self.padding] * 4)
        batch, height, width = x.shape[0], x.shape[2] - 2, x.shape[3] - 2
        count, inner = batch * models, channels * 9
        depth = -(-(inner + 1) // 8) * 8  # aligned for the matrix units
        windows = x.reshape(count, channels, *x.shape[2:]).unfold(2, 3, 1).unfold(3, 3, 1)
        patches = x.new_empty(count, depth, height * width)
        patches[:, :inner].view(count, channels, 3, 3, height, width).copy_(windows.permute(0, 1, 4, 5, 2, 3))
        patches[:, inner] = 1
        patches[:, inner + 1 :] = 0
        bias = self.weight.new_zeros(models, out) if self.bias is None else self.bias
        matrix = torch.cat([self.weight.flatten(2), bias[:, :, None]], dim=2)
        matrix = functional.pad(matrix, [0, depth - inner - 1])
        matrix = matrix.expand(batch, models, out, depth).reshape(count, out, depth)
        return torch.bmm(matrix, patches).view(batch, models * out, height, width)


class _Dense(_Weighted):
    def __init__(self, models: int, features: int, units: int, bias: bool) -> None:
        super().__init__((models, units, features), bias)

    def forward(self, x: Tensor) -> Tensor:
        if self.bias is None:
            return torch.bmm(x, self.weight.transpose(1, 2))
        return torch.baddbmm(self.bias[:, None, :], x, self.weight.transpose(1, 2))


class BatchedNorm(nn.Module):
    """Batch normalisation of every teacher's features by its own batches."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, models: int, features: int, spec: Norm) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(models, features))
        self.bias = nn.Parameter(torch.zeros(models, features))
        self.register_buffer("running_mean", torch.zeros(models, features))
        self.register_buffer("running_var", torch.ones(models, features))
        self.momentum, self.eps = spec.momentum, spec.eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise images (B, T·C, H, W) or features (T, B, C)."""
        flat = x if x.dim() == 4 else x.transpose(0, 1).flatten(1)
        found = functional.batch_norm(
            flat,
            self.running_mean.flatten(),
            self.running_var.flatten(),
            self.weight.flatten(),
            self.bias.flatten(),
            training=self.training,
            momentum=self.momentum,
            eps=self.eps,
        )
        return found if x.dim() == 4 else found.view(len(found), *self.weight.shape).transpose(0, 1)


class _Dropout(nn.Module):
    key: Tensor
    step: Tensor

    def __init__(self, models: int, p: float) -> None:
        super().__init__()
        self.p = p
        self.register_buffer("key", torch.zeros(models, dtype=torch.int64), persistent=False)
        self.register_buffer("step", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        models, batch, features = x.shape
        within = torch.arange(batch * features, device=x.device).view(batch, features)
        drawn = uniform(self.key.view(models, 1, 1), within + self.step * (batch * features))
        self.step.add_(1)
        return x * (drawn >= self.p).to(x.dtype).mul_(1 / (1 - self.p))


class _Pool(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.is_cuda or torch.is_grad_enabled():
            return functional.max_pool2d(x, 2)
        height, width = x.shape[2] // 2 * 2, x.shape[3] // 2 * 2  # without gradients, five times faster on a CPU
        rows = torch.maximum(x[:, :, 0:height:2], x[:, :, 1:height:2])
        return torch.maximum(rows[..., 0:width:2], rows[..., 1:width:2])


class _Flatten(nn.Module):
    def __init__(self, models: int) -> None:
        super().__init__()
        self.models = models

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], self.models, -1).transpose(0, 1).contiguous()


class _Average(_Flatten):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.mean(dim=(2, 3)))


def _layer(layer: Layer, models: int, shape: tuple[int, ...], n_classes: int, patches: bool) -> nn.Module:
    module: nn.Module
    match layer:
        case Conv():
            module = _Conv(models, shape[0], layer, patches)
        case Dense():
            module = _Dense(models, shape[0], layer.units or n_classes, layer.bias)
        case Norm():
            module = BatchedNorm(models, shape[0], layer)
        case Dropout():
            module = _Dropout(models, layer.p)
        case Relu():
            module = nn.ReLU(inplace=True)
        case Pool():
            module = _Pool()
        case Flatten():
            module = _Flatten(models)
        case Average():
            module = _Average(models)
    return module
