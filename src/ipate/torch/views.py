"""Random views of images for self-supervised and semi-supervised training: moved, recoloured, with a hole."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ipate.torch.batched import AUGMENT, affine_maps, moved, stream_keys, uniform
from ipate.torch.nets import Augmentation, Shape

_BLOCK = 1 << 16  # views drawn at a time
_DRAWS = 3  # random numbers per view beside its map: two of the hole, one of the brightness
_GREY = 0.2  # the share of recoloured views that lose their colours


@dataclass(frozen=True, kw_only=True)
class Views:
    """The law of random views."""

    affine: Augmentation
    hole: float = 0.0  # the side of a square that is set to 0, as a fraction of the image's
    brightness: float = 0.0  # the half-width of a uniform factor around 1
    colour: float = 0.0  # the strength of random changes of saturation, channels, contrast and brightness
    edges: bool = False  # whether what comes from outside the image has the colour of its edge, instead of 0

    def draw(
        self, *, seed: int, stream: int, steps: int, batch_size: int, image: Shape, device: torch.device
    ) -> Iterator["View"]:
        """Yield one view of every step's batch, a function of (seed, stream, step, place) on every device."""
        maps_key = stream_keys(seed, [0], AUGMENT, stream, 0).to(device)
        key = stream_keys(seed, [0], AUGMENT, stream, 1).to(device)
        block, draws = max(1, _BLOCK // batch_size), _DRAWS + (4 + image[0] if self.colour > 0 else 0)
        for start in range(0, steps, block):
            count = min(block, steps - start)
            maps = affine_maps(self.affine, keys=maps_key, start=start, steps=count, batch_size=batch_size, image=image)
            first, last = start * batch_size * draws, (start + count) * batch_size * draws
            drawn = uniform(key, torch.arange(first, last, device=device)).view(count, batch_size, draws)
            for offset in range(count):
                yield View(law=self, maps=maps[offset], drawn=drawn[offset])


@dataclass(frozen=True, kw_only=True)
class View:
    """One random view of a batch."""

    law: Views
    maps: Tensor  # (B, 2, 3)
    drawn: Tensor  # (B, 3 or more), uniform in [0, 1)

    def of(self, images: Tensor) -> Tensor:
        """Return the view of float images (B, C, H, W)."""
        found = moved(images, self.maps, padding="border" if self.law.edges else "zeros")
        if self.law.colour > 0:
            found = self._recoloured(found)
        if self.law.hole > 0:
            down, across = (
                (torch.arange(side, device=found.device) + 0.5 - self.drawn[:, place, None] * side).abs()
                < self.law.hole * side / 2
                for place, side in enumerate(found.shape[2:])
            )
            inside = (down[:, :, None] & across[:, None, :])[:, None]
            found = torch.where(inside, found.mean(dim=(1, 2, 3), keepdim=True) if self.law.edges else 0.0, found)
        if self.law.brightness > 0:
            found = found * (1 + self.law.brightness * (2 * self.drawn[:, 2] - 1))[:, None, None, None]
        return found

    def _recoloured(self, images: Tensor) -> Tensor:
        """Change saturation, the channels' factors, contrast and brightness, in this order."""
        strength, grey = self.law.colour, images.mean(dim=1, keepdim=True)
        drawn = 2 * self.drawn[:, _DRAWS:, None, None] - 1
        none, saturation, contrast, brightness = (drawn[:, place, None] for place in range(4))
        kept = torch.where(none < 2 * _GREY - 1, 0.0, 1 + 2 * strength * saturation)
        found = (grey + kept * (images - grey)) * (1 + strength / 2 * drawn[:, 4:])
        mean = found.mean(dim=(1, 2, 3), keepdim=True)
        return mean + (1 + 1.5 * strength * contrast) * (found - mean) + strength / 2 * brightness
