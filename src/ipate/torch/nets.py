"""Architectures as plain descriptions, and one model of them as ordinary torch modules.

The same description builds a `torch.nn.Sequential` (here) and a batched ensemble of T models
(`ipate.torch.batched`); their parameters have the same names, so that one member of an ensemble is
an ordinary model.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
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
    """A fully connected layer; `units` None means one per class."""

    units: int | None = None
    bias: bool = True


@dataclass(frozen=True, kw_only=True)
class Norm:
    """Batch normalisation; `momentum` is torch's (1 − Keras's)."""

    momentum: float = 0.1
    eps: float = 1e-5


@dataclass(frozen=True, kw_only=True)
class Dropout:
    """Zero a unit with probability p while training."""

    p: float


@dataclass(frozen=True)
class Relu:
    """max(0, x)."""


@dataclass(frozen=True)
class Pool:
    """The largest of each 2×2 square."""


@dataclass(frozen=True)
class Flatten:
    """From images to vectors."""


Layer: TypeAlias = Conv | Dense | Norm | Dropout | Relu | Pool | Flatten


@dataclass(frozen=True, kw_only=True)
class Net:
    """An architecture: its layers in order, and the image shape it was made for (others work too).

    Hidden weights start from the He uniform law and those of the last layer from the Glorot uniform
    law, as in the paper's section 'Datasets and Models'; biases start at 0.
    """

    name: str
    layers: tuple[Layer, ...]
    image: Shape

    def shapes(self, image: Shape, n_classes: int) -> list[tuple[int, ...]]:
        """Return the shape of every layer's input, and of the output at the end."""
        shape: tuple[int, ...] = image
        found = [shape]
        for layer in self.layers:
            if isinstance(layer, Conv):
                _, height, width = shape
                shape = (layer.channels, height + 2 * layer.padding - 2, width + 2 * layer.padding - 2)
            elif isinstance(layer, Pool):
                shape = (shape[0], shape[1] // 2, shape[2] // 2)
            elif isinstance(layer, Flatten):
                shape = (math.prod(shape),)
            elif isinstance(layer, Dense):
                shape = (layer.units or n_classes,)
            if min(shape) < 1:
                raise InputError(f"images of {image[1]}×{image[2]} are too small for the net {self.name!r}")
            found.append(shape)
        return found

    def activations(self, image: Shape, n_classes: int) -> int:
        """Return how many numbers one image's forward pass makes, all layers together."""
        return sum(math.prod(shape) for shape in self.shapes(image, n_classes))

    def parameters(self, image: Shape, n_classes: int) -> int:
        """Return the number of trained parameters of one model."""
        return sum(parameter.numel() for parameter in single(self, image=image, n_classes=n_classes).parameters())


def single(net: Net, *, image: Shape, n_classes: int) -> nn.Sequential:
    """Build one model as ordinary torch modules: images (B, C, H, W) in, logits (B, classes) out."""
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
    return module


def _paper_mnist() -> Net:
    """Build the table 'CNN-architecture for MNIST' of the paper.

    Kernel size, order and widths are the table's (ReLU before batch normalisation); what the paper
    leaves to TensorFlow 2.4 is Keras's default: no padding, ε = .001 in the norms. One default is not
    kept: Keras's running averages (momentum .99) are still warming up when a teacher of 240 points has
    taken its 375 steps, which costs it .8% accuracy on MNIST (ten teachers: .908 against .916).
    """
    norm = Norm(momentum=0.1, eps=1e-3)
    layers: tuple[Layer, ...] = (
        Conv(channels=32, padding=0, bias=True), Relu(), norm, Pool(),
        Flatten(), Dense(units=100), Relu(), norm, Dense(),
    )  # fmt: skip
    return Net(name="paper-mnist", layers=layers, image=(1, 28, 28))


def _small() -> Net:
    """Build a stronger small net for teachers with few points: normalised before every ReLU, dropout .3."""
    layers: tuple[Layer, ...] = (
        Conv(channels=16), Norm(), Relu(),
        Conv(channels=16), Norm(), Relu(), Pool(),
        Conv(channels=32), Norm(), Relu(), Pool(),
        Flatten(), Dense(units=64, bias=False), Norm(), Relu(), Dropout(p=0.3), Dense(),
    )  # fmt: skip
    return Net(name="small", layers=layers, image=(1, 28, 28))


def _vgg(name: str, *dropout: Layer) -> Net:
    """Build a VGG-style net of 7 layers with weights for 32×32 colour images: five 3×3 convolutions, two dense."""

    def block(*widths: int) -> tuple[Layer, ...]:
        return (*(part for width in widths for part in (Conv(channels=width), Norm(), Relu())), Pool())

    head: tuple[Layer, ...] = (Flatten(), Dense(units=128, bias=False), Norm(), Relu(), *dropout, Dense())
    return Net(name=name, layers=(*block(32, 32), *block(64, 64), *block(128), *head), image=(3, 32, 32))


_MADE = (_paper_mnist(), _small(), _vgg("vgg", Dropout(p=0.3)), _vgg("vgg-plain"))
NETS: Mapping[str, Net] = MappingProxyType({net.name: net for net in _MADE})
Ints: TypeAlias = NDArray[np.integer[Any]]
_ORDER = 4  # the purpose of this stream, beside those of `streams`


@dataclass(frozen=True, kw_only=True)
class Members:
    """The rows of T teachers, one after another.

    Attributes
    ----------
    offsets : integer array of shape (T + 1,)
        Teacher t has the slots offsets[t] to offsets[t + 1] − 1.
    indices : integer array
        A row per slot; −1 is the empty slot of a person who left. Slots are public and stay, so that
        the length of training, which may depend on them, tells nobody who left.
    """

    offsets: Ints
    indices: Ints

    @property
    def n_teachers(self) -> int:
        """T."""
        return len(self.offsets) - 1

    @property
    def slots(self) -> Ints:
        """The number of slots of every teacher, empty ones included."""
        return np.diff(self.offsets)

    def rows(self, teacher: int) -> NDArray[np.int64]:
        """Return the rows that a teacher learns from."""
        own = self.indices[self.offsets[teacher] : self.offsets[teacher + 1]]
        return np.asarray(own[own >= 0], dtype=np.int64)


def as_members(members: "Members | Sequence[Any] | NDArray[Any]", *, n_rows: int) -> Members:
    """Read a list of row indices per teacher, a matrix (T, slots), or Members, and check every index."""
    if not isinstance(members, Members):
        lists = [np.asarray(own) for own in members]
        for teacher, own in enumerate(lists):
            if own.size and (own.ndim != 1 or not np.issubdtype(own.dtype, np.integer)):
                raise InputError(
                    f"members of teacher {teacher} are {own.dtype} {own.shape}: give a list of row numbers"
                )
        offsets = np.cumsum([0, *(own.size for own in lists)])
        indices = np.concatenate([np.asarray(own, dtype=np.int64).ravel() for own in lists] or [np.empty(0, np.int64)])
        members = Members(offsets=offsets, indices=indices)
    if members.n_teachers < 1:
        raise InputError("members name no teacher: there must be at least one")
    if members.offsets[0] != 0 or members.offsets[-1] != members.indices.size or np.any(members.slots < 0):
        raise InputError("offsets must rise from 0 to the number of indices")
    bad = np.flatnonzero((members.indices < -1) | (members.indices >= n_rows))
    if bad.size:
        teacher = int(np.searchsorted(members.offsets, bad[0], side="right")) - 1
        raise InputError(
            f"members of teacher {teacher} hold {members.indices[bad[0]]}: rows go from 0 to {n_rows - 1}, "
            "and −1 is an empty slot"
        )
    return members


def visits(size: int, *, seed: int, teacher: int, length: int) -> NDArray[np.int64]:
    """Return which of its `size` points a teacher meets, one after another: shuffled, again and again."""
    rounds = -(-length // size)
    generator = np.random.default_rng([seed, teacher, _ORDER])
    orders = generator.permuted(np.tile(np.arange(size), (rounds, 1)), axis=1)
    return np.asarray(orders.ravel()[:length], dtype=np.int64)
