"""Architectures as plain descriptions, one model of them as ordinary torch modules, and presets for training.

The same description builds a `torch.nn.Sequential` (here) and a batched ensemble of T models
(`ipate.torch.batched`). Both name their parameters alike, so one member of an ensemble is an ordinary model.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal, TypeAlias

from torch import nn

from ipate.errors import InputError

Shape: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class Conv:
    """A 3×3 convolution; without padding the image shrinks by 2."""

    channels: int
    padding: int = 1
    bias: bool = False


@dataclass(frozen=True, kw_only=True)
class Dense:
    """A fully connected layer; `units` None means one unit per class."""

    units: int | None = None
    bias: bool = True


@dataclass(frozen=True, kw_only=True)
class Norm:
    """Batch normalisation; `momentum` is torch's (1 − Keras's)."""

    momentum: float = 0.1
    eps: float = 1e-5


@dataclass(frozen=True, kw_only=True)
class Dropout:
    """Dropout: during training each unit is set to zero with probability p."""

    p: float


@dataclass(frozen=True)
class Relu:
    """The rectifier max(0, x)."""


@dataclass(frozen=True)
class Pool:
    """Max pooling over 2×2 squares."""


@dataclass(frozen=True)
class Flatten:
    """From images to vectors."""


@dataclass(frozen=True)
class Average:
    """The mean of every channel over the image: from images to vectors."""


Layer: TypeAlias = Conv | Dense | Norm | Dropout | Relu | Pool | Flatten | Average


@dataclass(frozen=True, kw_only=True)
class Net:
    """An architecture.

    Hidden weights start from the He uniform law and those of the last layer from the Glorot uniform
    law, as in the paper's section 'Datasets and Models'; biases start at 0.
    """

    name: str
    layers: tuple[Layer, ...]  # in the order of the forward pass
    image: Shape  # (channels, height, width) that it was designed for; other shapes work too

    def shapes(self, image: Shape, n_classes: int) -> list[tuple[int, ...]]:
        """Return the shape of every layer's input, followed by that of the output."""
        shape: tuple[int, ...] = image
        found = [shape]
        for layer in self.layers:
            match layer:
                case Conv():
                    shape = (layer.channels, *(side + 2 * layer.padding - 2 for side in shape[1:]))
                case Pool():
                    shape = (shape[0], shape[1] // 2, shape[2] // 2)
                case Flatten():
                    shape = (math.prod(shape),)
                case Average():
                    shape = (shape[0],)
                case Dense():
                    shape = (layer.units or n_classes,)
            if min(shape) < 1:
                raise InputError(f"images of {image[1]}×{image[2]} are too small for the net {self.name!r}")
            found.append(shape)
        return found

    def activations(self, image: Shape, n_classes: int) -> int:
        """Return how many numbers the forward pass of one image computes in all layers together."""
        return sum(math.prod(shape) for shape in self.shapes(image, n_classes))

    def parameters(self, image: Shape, n_classes: int) -> int:
        """Return the number of trained parameters of one model."""
        return sum(parameter.numel() for parameter in single(self, image=image, n_classes=n_classes).parameters())


def single(net: Net, *, image: Shape, n_classes: int) -> nn.Sequential:
    """Build one model from ordinary torch modules; it maps images (B, C, H, W) to logits (B, classes)."""
    shapes = net.shapes(image, n_classes)
    return nn.Sequential(*(_module(layer, shapes[i], n_classes) for i, layer in enumerate(net.layers)))


def _module(layer: Layer, shape: tuple[int, ...], n_classes: int) -> nn.Module:
    module: nn.Module
    match layer:
        case Conv():
            module = nn.Conv2d(shape[0], layer.channels, 3, padding=layer.padding, bias=layer.bias)
        case Dense():
            module = nn.Linear(shape[0], layer.units or n_classes, bias=layer.bias)
        case Norm():
            kind = nn.BatchNorm2d if len(shape) == 3 else nn.BatchNorm1d
            module = kind(shape[0], momentum=layer.momentum, eps=layer.eps)
        case Dropout():
            module = nn.Dropout(layer.p)
        case Relu():
            module = nn.ReLU()
        case Pool():
            module = nn.MaxPool2d(2)
        case Flatten():
            module = nn.Flatten()
        case Average():
            module = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return module


def _nets() -> tuple[Net, ...]:
    """Build the built-in nets.

    "paper-mnist" is the paper's table 'CNN-architecture for MNIST': kernel size, order and widths are the
    table's (ReLU before batch normalisation), and what the paper leaves to TensorFlow 2.4 is Keras's default
    (no padding, ε = .001 in the norms). One default is not kept: Keras's running averages (momentum .99) are
    still warming up when a teacher of 240 points has taken its 375 steps, which costs it .8% accuracy on
    MNIST (ten teachers: .908 against .916). "small" is a stronger net for teachers with few points.
    "vgg" is a VGG-style net for 32×32 colour images: five 3×3 convolutions and two dense layers.
    "average" is the net of self-supervised features and of the semi-supervised student: six 3×3 convolutions
    and the mean over the image.
    """

    def normalised(*widths: int) -> tuple[Layer, ...]:
        return tuple(part for width in widths for part in (Conv(channels=width), Norm(), Relu()))

    def vgg(name: str, *dropout: Layer) -> Net:
        body = (*normalised(32, 32), Pool(), *normalised(64, 64), Pool(), *normalised(128), Pool(), Flatten())
        layers = (*body, Dense(units=128, bias=False), Norm(), Relu(), *dropout, Dense())
        return Net(name=name, layers=layers, image=(3, 32, 32))

    norm = Norm(momentum=0.1, eps=1e-3)
    paper: tuple[Layer, ...] = (
        Conv(channels=32, padding=0, bias=True),
        Relu(),
        norm,
        Pool(),
        Flatten(),
        Dense(units=100),
        Relu(),
        norm,
        Dense(),
    )
    small: tuple[Layer, ...] = (
        *normalised(16, 16),
        Pool(),
        *normalised(32),
        Pool(),
        Flatten(),
        Dense(units=64, bias=False),
        Norm(),
        Relu(),
        Dropout(p=0.3),
        Dense(),
    )
    average: tuple[Layer, ...] = (
        *normalised(48, 48),
        Pool(),
        *normalised(96, 96),
        Pool(),
        *normalised(192, 192),
        Average(),
        Dense(),
    )
    return (
        Net(name="paper-mnist", layers=paper, image=(1, 28, 28)),
        Net(name="small", layers=small, image=(1, 28, 28)),
        vgg("vgg", Dropout(p=0.3)),
        vgg("vgg-plain"),
        Net(name="average", layers=average, image=(1, 28, 28)),
    )


NETS: Mapping[str, Net] = MappingProxyType({net.name: net for net in _nets()})
"""The nets by name."""


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """A random affine map per image and step; every value is the half-width of a uniform law around no change."""

    degrees: float = 0.0  # of rotation
    shift: float = 0.0  # as a fraction of the image's width and height
    scale: float = 0.0  # the relative change of the size
    shear: float = 0.0  # the shear factor


@dataclass(frozen=True, kw_only=True)
class Optimiser:
    """Adam, or AdamW where weights decay."""

    rate: float = 1e-3  # the learning rate, at the start
    eps: float = 1e-8  # the constant in Adam's denominator
    decay: float = 0.0  # the weight decay
    # the rate stays, falls to 0 along a half cosine, or rises for 30% of the steps before it falls
    schedule: Literal["constant", "cosine", "cycle"] = "constant"

    def rates(self, steps: int) -> list[float]:
        """Return the learning rate of every step."""
        if self.schedule == "constant":
            return [self.rate] * steps
        if self.schedule == "cycle":  # Smith and Topin, "Super-convergence", 2018; as torch's OneCycleLR
            rise = max(1, round(0.3 * steps))
            up = [self.rate * (0.52 - 0.48 * math.cos(math.pi * (step + 1) / rise)) for step in range(min(rise, steps))]
            return up + replace(self, schedule="cosine").rates(steps - len(up))
        return [self.rate * 0.5 * (1 + math.cos(math.pi * step / steps)) for step in range(steps)]


@dataclass(frozen=True, kw_only=True)
class Preset:
    """An architecture with the augmentation, the optimiser and the length of training that suit it."""

    name: str
    net: Net
    optimiser: Optimiser
    augmentation: Augmentation | None = None
    batch_size: int = 32
    label_smoothing: float = 0.0
    epochs: float | None = None  # the length of training: either epochs or steps
    steps: int | None = None

    def lasting(self, *, epochs: float | None = None, steps: int | None = None) -> "Preset":
        """Return the preset with another length of training, or itself if none is given."""
        if epochs is None and steps is None:
            return self
        if epochs is not None and steps is not None:
            raise InputError(f"epochs is {epochs:g} and steps is {steps}: give one of them")
        return replace(self, epochs=epochs, steps=steps)

    def n_steps(self, points: float) -> int:
        """Return the number of steps for this many points per model."""
        if self.steps is not None:
            if self.steps < 1:
                raise InputError(f"steps is {self.steps}: it must be at least 1")
            return self.steps
        if self.epochs is None or not 0 < self.epochs < math.inf:
            raise InputError(f"epochs is {self.epochs}: it must be a number above 0")
        return max(1, math.ceil(self.epochs * points / self.batch_size))


def find_preset(preset: str | Preset) -> Preset:
    """Return the preset of this name; a Preset is returned unchanged."""
    if isinstance(preset, Preset):
        return preset
    if preset not in PRESETS:
        raise InputError(f"preset is {preset!r}: the presets are {', '.join(PRESETS)}")
    return PRESETS[preset]


_PAPER_AUGMENTATION = Augmentation(degrees=7.5, shift=0.07)
_PRESETS = (
    # The paper, 'Datasets and Models': Adam and the rest as in TensorFlow 2.4 (rate .001, ε = 1e-7, batches of
    # 32), rotations of ±7.5° and shifts of 7%. The number of epochs is not in the paper.
    Preset(
        name="paper-mnist",
        net=NETS["paper-mnist"],
        optimiser=Optimiser(eps=1e-7),
        augmentation=_PAPER_AUGMENTATION,
        epochs=50,
    ),
    Preset(
        name="small",
        net=NETS["small"],
        optimiser=Optimiser(rate=3e-3, decay=0.01, schedule="cosine"),
        augmentation=Augmentation(degrees=12, shift=0.10, scale=0.12, shear=0.15),
        label_smoothing=0.1,
        steps=1000,
    ),
    Preset(name="vgg", net=NETS["vgg"], optimiser=Optimiser(), augmentation=_PAPER_AUGMENTATION, epochs=100),
    Preset(name="vgg-plain", net=NETS["vgg-plain"], optimiser=Optimiser(), epochs=60),  # for comparison
)
PRESETS: Mapping[str, Preset] = MappingProxyType({preset.name: preset for preset in _PRESETS})
