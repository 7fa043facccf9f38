"""DP-SGD with Opacus, and individual DP-SGD: the rivals that train one model on the private rows themselves.

Every step takes each person with probability q (Poisson sampling), clips their gradient to the norm c, adds noise of
standard deviation z·c per coordinate, and divides by the expected batch. *Neighbours* differ by one person who is
added or removed: that is the relation of Opacus' accountant.

Individual DP-SGD is the variant Scale of Boenisch, Mühl, Dziedzic, Rinberg and Papernot, "Have it your way:
individualized privacy assignment for DP-SGD", NeurIPS 2023: group g, whose budget needs the noise multiplier z_g at
this q and number of steps, has the clip norm c_g = c·z/z_g, where 1/z is the mean of 1/z_g over all people, and the
noise is z·c. So the mean clip norm is c, the noise is z_g·c_g for every group, and each group is accounted with its own
multiplier. Where everybody is in every step, 1/z_g is proportional to μ_g.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate._types import Floats
from ipate.errors import InputError

Array = NDArray[Any]
_TOLERANCE = 1e-3  # relative, of the ε that a calibrated noise multiplier reaches, from below
_ERROR = 0.01  # relative, of ε, which the accountant adds to be safe; its default of .01 is a tenth of ε = .1
_AT_ONCE = 4096  # rows whose gradients are in memory together
_HINT = "DP-SGD needs Opacus: pip install 'ipate[bench]'"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting of DP-SGD: the model, the share of people in a batch, the steps, the clip norm and the rate."""

    model: str  # "logistic", "mlp", "cnn16" or "cnn32"
    share: float
    steps: int
    clip: float
    rate: float

    @property
    def name(self) -> str:
        """A short text that tells settings apart."""
        return f"{self.model}, q {self.share:g}, {self.steps} steps, clip {self.clip:g}, rate {self.rate:g}"

    def json(self) -> dict[str, Any]:
        """Return the setting as plain data."""
        return asdict(self)


def _settings(model: str, *rows: tuple[float, int, float, float]) -> tuple[Setting, ...]:
    return tuple(Setting(model=model, share=q, steps=steps, clip=c, rate=rate) for q, steps, c, rate in rows)


TABLES: tuple[Setting, ...] = (
    *_settings(
        "logistic",
        (0.1, 300, 0.5, 8.0),
        (0.1, 100, 0.5, 8.0),
        (0.1, 300, 0.5, 2.0),
        (1.0, 30, 0.5, 2.0),
        (1.0, 30, 0.5, 8.0),
    ),
    *_settings("mlp", (0.1, 300, 0.5, 0.5), (0.1, 100, 0.5, 0.5), (0.3, 60, 0.5, 2.0)),
)
_ROWS = (
    (0.07, 60, 0.1, 2.0),
    (0.14, 100, 0.1, 1.0),
    (0.14, 100, 0.1, 4.0),
    (0.07, 300, 0.1, 4.0),
    (0.14, 400, 0.1, 4.0),
    (0.07, 800, 0.1, 4.0),
)
IMAGES: tuple[Setting, ...] = (*_settings("cnn16", *_ROWS), *_settings("cnn32", *_ROWS))


def available() -> bool:
    """Whether Opacus can be imported."""
    try:
        import opacus  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True


def _require() -> None:
    if not available():
        raise InputError(_HINT)


@lru_cache(maxsize=512)
def noise_multiplier(epsilon: float, delta: float, share: float, steps: int) -> float:
    """Return the smallest noise multiplier, to a tolerance, at which Opacus' accountant (PRV) certifies (ε, δ)."""
    _require()
    from opacus.accountants.utils import get_noise_multiplier

    return float(
        get_noise_multiplier(
            target_epsilon=epsilon,
            target_delta=delta,
            sample_rate=share,
            steps=steps,
            accountant="prv",
            epsilon_tolerance=_TOLERANCE * epsilon,
            eps_error=min(0.01, _ERROR * epsilon),
        )
    )


def spent_epsilon(multiplier: float, delta: float, share: float, steps: int) -> float:
    """Return ε at δ of all steps by Opacus' accountant: a person is added or removed."""
    _require()
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = [(multiplier, share, steps)]
    return float(accountant.get_epsilon(delta=delta, eps_error=0.005))


@dataclass(frozen=True, kw_only=True)
class Noise:
    """How the noise of a training protects every group: one clip norm each, and one standard deviation for all."""

    clips: tuple[float, ...]  # by group
    deviation: float  # of the noise per coordinate of the summed gradients

    def multipliers(self) -> tuple[float, ...]:
        """Return the noise multiplier by which every group is accounted."""
        return tuple(self.deviation / clip for clip in self.clips)


def individual_noise(epsilon: Sequence[float], people: Sequence[int], *, delta: float, setting: Setting) -> Noise:
    """Return clip norms and noise for groups of people; one group is plain DP-SGD."""
    needed = [noise_multiplier(float(value), delta, setting.share, setting.steps) for value in epsilon]
    mean = float(np.average([1 / value for value in needed], weights=people))
    clips = tuple(setting.clip / (value * mean) for value in needed)
    return Noise(clips=clips, deviation=setting.clip / mean)


def spent_by_group(noise: Noise, *, delta: float, setting: Setting) -> tuple[float, ...]:
    """Return every group's ε at δ, by Opacus' accountant."""
    return tuple(spent_epsilon(own, delta, setting.share, setting.steps) for own in noise.multipliers())


def train(
    X: Array,
    y: Array,
    *,
    clips: Floats,
    deviation: float,
    setting: Setting,
    n_classes: int,
    seed: int,
    device: str = "cpu",
) -> Any:
    """Train a model with Opacus' per-sample gradients and return it; `clips` has the clip norm of every row.

    Rows are one person each. Momentum is .9 for nets and 0 for logistic regression.
    """
    _require()
    import torch
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer
    from torch.nn import functional

    torch.manual_seed(seed)
    generator = torch.Generator(device=device).manual_seed(seed + 1)
    rows = torch.as_tensor(X, dtype=torch.float32, device=device)
    classes = torch.as_tensor(y, dtype=torch.long, device=device)
    limits = torch.as_tensor(clips, dtype=torch.float32, device=device)
    model = GradSampleModule(build(setting.model, rows.shape[1:], n_classes).to(device), loss_reduction="sum")
    momentum = 0.0 if setting.model == "logistic" else 0.9
    optimiser = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=setting.rate, momentum=momentum),
        noise_multiplier=1.0,
        max_grad_norm=deviation,
        expected_batch_size=None,
        loss_reduction="sum",
        generator=generator,
    )
    for _ in range(setting.steps):
        taken = torch.nonzero(torch.rand(len(rows), generator=generator, device=device) < setting.share)[:, 0]
        for part in torch.split(taken, _AT_ONCE):  # an empty batch is one empty part: noise is added all the same
            loss: Any = functional.cross_entropy(model(rows[part]), classes[part], reduction="sum")
            loss.backward()
            optimiser.max_grad_norm = limits[part]  # every row has its own clip norm
            optimiser.clip_and_accumulate()
            for p in optimiser.params:
                p.grad_sample = None
        optimiser.max_grad_norm = deviation
        optimiser.add_noise()
        for p in optimiser.params:
            p.grad /= setting.share * len(rows)
        optimiser.original_optimizer.step()
        optimiser.zero_grad(set_to_none=True)
    return model


def build(name: str, shape: Sequence[int], n_classes: int) -> Any:
    """Return an untrained model for rows of this shape."""
    from torch import nn

    size = math.prod(shape)
    if name == "logistic":
        layer = nn.Linear(size, n_classes)
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
        return layer
    if name == "mlp":
        return nn.Sequential(nn.Linear(size, 32), nn.Tanh(), nn.Linear(32, n_classes))
    filters = {"cnn16": 16, "cnn32": 32}[name]  # the tanh net of Papernot et al. 2021, with its first width or twice it
    return nn.Sequential(
        nn.Conv2d(1, filters, 8, stride=2, padding=3),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(filters, 32, 4, stride=2),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.Tanh(),
        nn.Linear(32, n_classes),
    )


def predict(model: Any, X: Array, *, device: str = "cpu") -> NDArray[np.int64]:
    """Return the class ids that a trained model gives to rows."""
    import torch

    with torch.no_grad():
        parts = [
            model(torch.as_tensor(X[start : start + 8192], dtype=torch.float32, device=device)).argmax(dim=1)
            for start in range(0, len(X), 8192)
        ]
    return np.concatenate([part.cpu().numpy() for part in parts]).astype(np.int64)


GRIDS: Mapping[bool, tuple[Setting, ...]] = {False: TABLES, True: IMAGES}
"""The stated grid of settings, by whether the rows are images."""
