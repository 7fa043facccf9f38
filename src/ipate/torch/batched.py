"""T models of one architecture as one module: what a GPU needs to train an ensemble at once.

Images travel as (B, T·C, H, W): every teacher's channels side by side, so that convolutions are
grouped, batch normalisation runs over T·C channels, and dense layers are batched matrix products on
(T, B, features). No operation mixes teachers, forwards or backwards: nothing of one teacher's data
can reach another's parameters. Parameters are the single model's with a leading axis of length T.
"""

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from ipate.torch import streams
from ipate.torch.nets import Conv, Dense, Dropout, Flatten, Layer, Net, Norm, Pool, Relu, Shape

ConvMode: TypeAlias = Literal["grouped", "matmul", "first"]


class BatchedNet(nn.Sequential):
    """An ensemble of T models of one architecture.

    Parameters
    ----------
    net : Net
        The architecture.
    n_models : int
        T.
    image : (channels, height, width)
    n_classes : int
    conv : "grouped", "matmul" or "first"
        Convolutions as grouped convolutions, as patches times matrices, or the first layer (which
        needs no gradient of its input) as patches and the others grouped.
    """

    def __init__(self, net: Net, n_models: int, *, image: Shape, n_classes: int, conv: ConvMode = "grouped") -> None:
        shapes = net.shapes(image, n_classes)
        layers: list[nn.Module] = []
        for position, layer in enumerate(net.layers):
            patches = conv == "matmul" or (conv == "first" and position == 0)
            made = _layer(
                layer, models=n_models, shape=shapes[position], n_classes=n_classes, position=position, patches=patches
            )
            layers.append(made)
        super().__init__(*layers)
        self.n_models = n_models
        self.image = image

    def start(self, seed: int, teachers: Sequence[int]) -> None:
        """Draw every teacher's initial weights from its own stream and reset the norms."""
        weighted = [layer for layer in self if isinstance(layer, _Weighted)]
        for position, layer in enumerate(weighted):
            fan_in = math.prod(layer.weight.shape[2:])
            fan_out = layer.weight.shape[1] * math.prod(layer.weight.shape[3:])
            last = position == len(weighted) - 1
            bound = math.sqrt(6 / (fan_in + fan_out)) if last else math.sqrt(6 / fan_in)
            key = streams.keys(seed, list(teachers), streams.INIT, position).to(layer.weight.device)
            drawn = streams.uniform_rows(key, math.prod(layer.weight.shape[1:]))
            with torch.no_grad():
                layer.weight.copy_(drawn.mul_(2 * bound).sub_(bound).view_as(layer.weight))
                if layer.bias is not None:
                    layer.bias.zero_()
        for norm in self.children():
            if isinstance(norm, _Norm):
                norm.reset()
        for dropout in self.children():
            if isinstance(dropout, _Dropout):
                dropout.key.copy_(streams.keys(seed, list(teachers), streams.DROPOUT, dropout.position))
                dropout.step.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (T, B, classes) for images (B, T·C, H, W), or (B, C, H, W) that all teachers see."""
        for layer in self:
            x = layer(x)
        return x


class _Weighted(nn.Module):
    """A layer with a weight (T, …) and perhaps a bias (T, …)."""

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
        """Multiply weights with 3×3 patches; the bias is one more column, against a patch entry of 1."""
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


class _Norm(nn.Module):
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, models: int, features: int, spec: Norm) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(models, features))
        self.bias = nn.Parameter(torch.zeros(models, features))
        self.register_buffer("running_mean", torch.zeros(models, features))
        self.register_buffer("running_var", torch.ones(models, features))
        self.momentum, self.eps = spec.momentum, spec.eps

    def reset(self) -> None:
        with torch.no_grad():
            self.weight.fill_(1)
            self.bias.zero_()
            self.running_mean.zero_()
            self.running_var.fill_(1)

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() == 4:
            return self._normalised(x)
        models, batch, features = x.shape
        flat = x.transpose(0, 1).reshape(batch, models * features)
        return self._normalised(flat).view(batch, models, features).transpose(0, 1)

    def _normalised(self, x: Tensor) -> Tensor:
        return functional.batch_norm(
            x, self.running_mean.flatten(), self.running_var.flatten(), self.weight.flatten(), self.bias.flatten(),
            training=self.training, momentum=self.momentum, eps=self.eps,
        )  # fmt: skip


class _Dropout(nn.Module):
    key: Tensor
    step: Tensor

    def __init__(self, models: int, p: float, position: int) -> None:
        super().__init__()
        self.p, self.position = p, position
        self.register_buffer("key", torch.zeros(models, dtype=torch.int64), persistent=False)
        self.register_buffer("step", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        models, batch, features = x.shape
        within = torch.arange(batch * features, device=x.device).view(batch, features)
        drawn = streams.uniform(self.key.view(models, 1, 1), within + self.step * (batch * features))
        self.step.add_(1)
        return x * (drawn >= self.p).to(x.dtype).mul_(1 / (1 - self.p))


class _Relu(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(x, inplace=True)


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


def _layer(
    layer: Layer, *, models: int, shape: tuple[int, ...], n_classes: int, position: int, patches: bool
) -> nn.Module:
    module: nn.Module
    match layer:
        case Conv():
            module = _Conv(models, shape[0], layer, patches)
        case Dense():
            module = _Dense(models, shape[0], layer.units or n_classes, layer.bias)
        case Norm():
            module = _Norm(models, shape[0], layer)
        case Dropout():
            module = _Dropout(models, layer.p, position)
        case Relu():
            module = _Relu()
        case Pool():
            module = _Pool()
        case Flatten():
            module = _Flatten(models)
    return module
