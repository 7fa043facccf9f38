"""Noisy gradient descent on logistic regression: one model, everybody's own budget, and no pool of points to label.

Every step releases the weighted sum of everybody's clipped gradient with Gaussian noise:

    S_t = Σ_i w_i·clip(g_i(θ_t), c) + N(0, σ²) per entry,    θ_{t+1} = θ_t − rate·S_t/Σw

*Neighbours* differ in one person's rows, which are replaced by any others or by nothing. The clipped gradient of a
person, the mean of the clipped gradients of their rows, lies in a ball of radius c, and two points of that ball are 2c
apart at most, so S_t moves by at most 2·c·w_i. This cannot be improved: two classes that are equally likely give the
gradients +x/2 and −x/2 to two people with the same features. A step is therefore (2·c·w_i/σ)-GDP, T adaptive steps
together are μ_i-GDP with

    μ_i = 2·c·w_i·√T/σ

(Dong, Roth and Su, "Gaussian differential privacy", 2022, Theorem 1 and Corollary 2), and the weight that spends
exactly (ε_i, δ_i) is w_i = σ·mu_of(ε_i, δ_i)/(2·c·√T). Weights instead of individual clip norms leave the direction of
strict people's gradients as it is. Weights, people, classes, settings and the scale of the features are public; the
scale must come from public rows (`Scale.fit`).

Only sums in whole multiples of σ/8 leave the function that draws the noise. What a release by a run would need beyond
this module is a ledger that is charged before each step is used.
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from ipate._types import Floats
from ipate.accounting.gdp import epsilon_of
from ipate.errors import InputError, check_count
from ipate.release.noise import STEPS, NoiseSource, SecureNoise, in_steps

_PURPOSE = "gradient"
_SIGMA = 1.0  # the noise's standard deviation; weights are scaled to it
_NEGLIGIBLE = 1e-3  # principal components of the pool below this share of the largest deviation are left out


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The public settings of a descent; rate is in units of 1/clip, so that one step moves θ by about `rate`.

    `average` is the share of the last steps whose θ are averaged, which is post-processing and reduces the noise.
    """

    steps: int = 30
    clip: float = 0.2
    rate: float = 8.0
    whiten: bool = False
    average: float = 0.5

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        for name in ("clip", "rate"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InputError(f"{name} is {value}: it must be a finite number above 0")
        if not 0 < self.average <= 1:
            raise InputError(f"average is {self.average}: it must be a share of the steps, above 0 and at most 1")


def step_sensitivity(weight: ArrayLike, clip: float) -> Floats:
    """Return 2·c·w: how far one person's replaced rows move the sum of a step, in Euclidean norm."""
    return np.asarray(2.0 * clip * np.asarray(weight, dtype=np.float64))


def total_mu(weight: ArrayLike, settings: Settings, *, sigma: float = _SIGMA) -> Floats:
    """Return μ of all steps together towards a person of this weight."""
    return np.asarray(step_sensitivity(weight, settings.clip) * math.sqrt(settings.steps) / sigma)


def weights_for(mu: ArrayLike, settings: Settings, *, sigma: float = _SIGMA) -> Floats:
    """Return the weight that spends exactly μ in all steps together."""
    return np.asarray(np.asarray(mu, dtype=np.float64) * sigma / (2.0 * settings.clip * math.sqrt(settings.steps)))


def spent_epsilon(weight: ArrayLike, delta: ArrayLike, settings: Settings) -> Floats:
    """Return ε at δ of all steps together towards a person of this weight."""
    return epsilon_of(total_mu(weight, settings), delta)


@dataclass(frozen=True, kw_only=True, eq=False)
class Scale:
    """A fixed linear map of features that public rows decide, with a last column of ones; rows have length about 1."""

    centre: Floats
    map: Floats  # (columns, dimensions)

    @classmethod
    def fit(cls, pool: ArrayLike, *, whiten: bool) -> Self:
        """Fit on public rows: standardise every column, or rotate to principal components of variance 1."""
        rows = np.asarray(pool, dtype=np.float64)
        if rows.ndim != 2 or len(rows) < 2 or not np.isfinite(rows).all():
            raise InputError(f"the public rows have the shape {rows.shape}: give two or more finite rows of columns")
        centre, spread = rows.mean(axis=0), rows.std(axis=0)
        gain = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)
        found = np.diag(gain)[:, spread > 0]
        if whiten:
            _, deviations, components = np.linalg.svd((rows - centre) @ found, full_matrices=False)
            kept = deviations > _NEGLIGIBLE * deviations[0]
            found = found @ (components[kept].T * (math.sqrt(len(rows)) / deviations[kept]))
        return cls(centre=centre, map=found / math.sqrt(found.shape[1] + 1))

    def transform(self, X: ArrayLike) -> Floats:
        """Return rows in the coordinates of the model; the last one is constant."""
        rows = (np.asarray(X, dtype=np.float64) - self.centre) @ self.map
        constant = np.full((len(rows), 1), 1.0 / math.sqrt(self.map.shape[1] + 1))
        return np.hstack([rows, constant])


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearModel:
    """The released model: class scores are linear in the scaled features."""

    scale: Scale
    theta: Floats  # (dimensions + 1, classes)

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the class id of the largest score."""
        return np.asarray((self.scale.transform(X) @ self.theta).argmax(axis=1))


def clipped_sum(rows: Floats, y: NDArray[np.int64], theta: Floats, *, row_weight: Floats, clip: float) -> Floats:
    """Return Σ over rows of weight·clip(gradient, c), shape (dimensions, classes): exact, private, without noise.

    The gradient of the logistic loss of a row x with class y is x ⊗ (p − e_y), whose norm is ‖x‖·‖p − e_y‖.
    """
    residual = softmax(rows @ theta, axis=1)
    residual[np.arange(len(y)), y] -= 1.0
    norms = np.linalg.norm(rows, axis=1) * np.linalg.norm(residual, axis=1)
    shrink = clip / np.maximum(norms, clip)
    return np.asarray(rows.T @ (residual * (row_weight * shrink)[:, None]))


def fit_descent(
    X: ArrayLike,
    y: ArrayLike,
    *,
    mu: ArrayLike,
    n_classes: int,
    scale: Scale,
    settings: Settings | None = None,
    person_of_row: ArrayLike | None = None,
    noise: NoiseSource | None = None,
) -> LinearModel:
    """Train logistic regression that is μ_i-GDP towards every person i under replacement.

    Parameters
    ----------
    X, y : array
        Private rows and class ids. A row with a value that is not finite or with no class counts as zero.
    mu : array of shape (people,)
        Everybody's own μ, `mu_of(ε, δ)`, a public figure.
    n_classes : int
        The size of the public class set.
    scale : Scale
        The scale of the features, fitted on public rows.
    person_of_row : array of shape (rows,), optional
        The place in `mu` of every row's person. By default row i is person i.
    noise : NoiseSource, optional
        Default: secure noise.
    """
    chosen, source = settings or Settings(), noise or SecureNoise()
    own = np.asarray(mu, dtype=np.float64)
    if own.ndim != 1 or not (np.isfinite(own) & (own >= 0)).all() or not own.any():
        raise InputError("mu must have one finite number of 0 or above for every person, and one above 0")
    classes = np.asarray(y, dtype=np.int64)
    person = np.arange(len(own)) if person_of_row is None else np.asarray(person_of_row, dtype=np.int64)
    if not len(X) == len(classes) == len(person):  # type: ignore[arg-type]
        raise InputError(f"there are {len(classes)} labels and {len(person)} rows of people: one per row is needed")
    weight = weights_for(own, chosen)
    rows = scale.transform(X)
    readable = np.isfinite(rows).all(axis=1) & (classes >= 0) & (classes < n_classes)
    rows, classes = np.where(readable[:, None], rows, 0.0), np.where(readable, classes, 0)
    n_rows = np.bincount(person, minlength=len(own))
    row_weight = weight[person] / n_rows[person]
    theta = np.zeros((rows.shape[1], n_classes))
    total, kept, last = float(weight.sum()), np.zeros_like(theta), math.ceil(chosen.average * chosen.steps)
    for step in range(chosen.steps):
        exact = clipped_sum(rows, classes, theta, row_weight=row_weight, clip=chosen.clip)
        drawn = source.normal(_PURPOSE, [str(step)], exact.size).reshape(exact.shape)
        noisy = in_steps(exact + _SIGMA * drawn, sigma=_SIGMA) * (_SIGMA / STEPS)
        theta = theta - chosen.rate / chosen.clip * noisy / total
        if step >= chosen.steps - last:
            kept += theta / last
    return LinearModel(scale=scale, theta=kept)
