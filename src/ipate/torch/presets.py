"""Presets: an architecture with the augmentation, the optimiser and the length of training that suit it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from ipate.errors import InputError
from ipate.torch.nets import NETS, Net


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """A random affine map per image and step: every number is the half-width of a uniform law around 'none'."""

    degrees: float = 0.0
    shift: float = 0.0  # of the image's width and height
    scale: float = 0.0
    shear: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Optimiser:
    """Adam, or AdamW where weights decay; the rate is constant or falls along a half cosine to 0."""

    rate: float = 1e-3
    eps: float = 1e-8
    decay: float = 0.0
    schedule: Literal["constant", "cosine"] = "constant"

    def rates(self, steps: int) -> list[float]:
        """Return the learning rate of every step."""
        if self.schedule == "constant":
            return [self.rate] * steps
        return [self.rate * 0.5 * (1 + math.cos(math.pi * step / steps)) for step in range(steps)]


@dataclass(frozen=True, kw_only=True)
class Preset:
    """How a model is trained.

    Attributes
    ----------
    net : Net
    optimiser : Optimiser
    augmentation : Augmentation or None
    batch_size : int
    label_smoothing : float
    epochs, steps : one of them
        The length of training.
    """

    name: str
    net: Net
    optimiser: Optimiser
    augmentation: Augmentation | None = None
    batch_size: int = 32
    label_smoothing: float = 0.0
    epochs: float | None = None
    steps: int | None = None

    def lasting(self, *, epochs: float | None = None, steps: int | None = None) -> "Preset":
        """Return the preset with another length of training; itself where none is given."""
        if epochs is None and steps is None:
            return self
        if epochs is not None and steps is not None:
            raise InputError(f"epochs is {epochs:g} and steps is {steps}: give one of them")
        return replace(self, epochs=epochs, steps=steps)

    def n_steps(self, points: float) -> int:
        """Return the number of steps for so many points per model."""
        if self.steps is not None:
            if self.steps < 1:
                raise InputError(f"steps is {self.steps}: it must be at least 1")
            return self.steps
        if self.epochs is None or not 0 < self.epochs < math.inf:
            raise InputError(f"epochs is {self.epochs}: it must be a number above 0")
        return max(1, math.ceil(self.epochs * points / self.batch_size))


def find_preset(preset: "str | Preset") -> Preset:
    """Return a preset by its name, or as it is."""
    if isinstance(preset, Preset):
        return preset
    if preset not in PRESETS:
        raise InputError(f"preset is {preset!r}: the presets are {', '.join(PRESETS)}")
    return PRESETS[preset]


_MADE = (
    # The paper, 'Datasets and Models': Adam and the rest as in TensorFlow 2.4 (rate .001, ε = 1e-7, batches of
    # 32), rotations of ±7.5° and shifts of 7%. The number of epochs is not in the paper.
    Preset(
        name="paper-mnist",
        net=NETS["paper-mnist"],
        optimiser=Optimiser(eps=1e-7),
        augmentation=Augmentation(degrees=7.5, shift=0.07),
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
    Preset(
        name="vgg",
        net=NETS["vgg"],
        optimiser=Optimiser(),
        augmentation=Augmentation(degrees=7.5, shift=0.07),
        epochs=100,
    ),
    Preset(name="vgg-plain", net=NETS["vgg-plain"], optimiser=Optimiser(), epochs=60),  # for comparison
)
PRESETS: Mapping[str, Preset] = MappingProxyType({preset.name: preset for preset in _MADE})
