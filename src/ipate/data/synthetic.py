"""A synthetic population of patients, drawn from the model below without any download.

The model:

1. A person's class is one of six, with the probabilities of `PRIORS`.
2. A person is a *marked* case of it with probability `MARKED`, else a *mild* one.
3. Feature j is ``centre_j + spread_j · (s · SHIFTS[class][j] + e_j)``, with s = 1 for marked cases and `MILD`
   for mild ones, and e normal with variance 1: e = √(1−ρ)·own + √ρ·common, where `common` is one normal number
   per block of features (`BLOCK` in a row) and ρ = `SHARED`. So each class is a mixture of two Gaussians.
4. Values are clipped to the fixed bounds of `FEATURES` and given as (value − centre_j) / spread_j, as laboratories
   report scores against a published reference, so no private row decides a scale.
5. Consent levels are assigned in the exact shares of `SHARES`, in the order of a score
   ``c · sensitivity(class) + √(1−c²) · normal``. With c = `correlation` = 0, the default, levels are independent of
   everything else; above 0, classes later in `CLASSES` choose more privacy.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ipate.data.dataset import Dataset
from ipate.errors import InputError, check_count, show

FEATURES: Final = {
    "age_years": (18, 100, 50, 12),
    "bmi": (12, 60, 27, 4),
    "waist_cm": (50, 160, 92, 11),
    "steps_per_day_thousands": (0, 30, 8, 3),
    "systolic_mmhg": (70, 240, 124, 13),
    "diastolic_mmhg": (40, 140, 78, 9),
    "heart_rate_bpm": (35, 180, 71, 10),
    "nt_probnp_log10": (0, 5, 1.8, 0.4),
    "glucose_mmol_l": (2, 30, 5.4, 0.8),
    "hba1c_percent": (3, 16, 5.5, 0.5),
    "triglycerides_mmol_l": (0, 12, 1.5, 0.6),
    "hdl_mmol_l": (0, 4, 1.4, 0.3),
    "creatinine_umol_l": (20, 600, 80, 16),
    "egfr_ml_min": (0, 150, 90, 14),
    "potassium_mmol_l": (2, 8, 4.2, 0.35),
    "albumin_ratio_log10": (-1, 4, 0.8, 0.4),
    "fev1_percent": (10, 150, 96, 12),
    "spo2_percent": (60, 100, 96.5, 1.2),
    "crp_log10": (-1, 3, 0.3, 0.4),
    "smoking_pack_years": (0, 150, 12, 8),
}
"""The features in the order of the columns: fixed public bounds (low, high), then centre and spread of the healthy."""
CLASSES: Final = ("healthy", "hypertension", "diabetes", "lung disease", "heart failure", "kidney disease")
PRIORS: Final = (0.26, 0.20, 0.17, 0.14, 0.12, 0.11)
SHIFTS: Final = (
    (0.0, -0.2, -0.2, 0.3, -0.2, -0.2, 0.0, -0.2, -0.1, -0.1, -0.2, 0.2, 0.0, 0.1, 0.0, -0.1, 0.1, 0.1, -0.2, -0.2),
    (0.4, 0.4, 0.4, -0.2, 2.2, 1.9, 0.3, 0.3, 0.1, 0.1, 0.3, -0.2, 0.2, -0.2, -0.1, 0.5, 0.0, 0.0, 0.1, 0.1),
    (0.3, 0.9, 0.9, -0.5, 0.4, 0.2, 0.2, 0.1, 2.0, 2.1, 1.0, -0.8, 0.1, -0.1, 0.1, 0.7, 0.0, 0.0, 0.4, 0.0),
    (0.5, -0.3, -0.2, -0.8, 0.0, 0.0, 0.4, 0.3, 0.0, 0.1, 0.0, 0.0, 0.0, -0.1, 0.0, 0.0, -2.2, -1.5, 0.9, 1.4),
    (0.9, 0.2, 0.4, -1.1, -0.1, -0.2, 0.9, 2.4, 0.3, 0.3, 0.0, -0.3, 0.7, -0.7, 0.2, 0.5, -0.5, -0.7, 0.6, 0.3),
    (0.6, 0.1, 0.1, -0.6, 0.8, 0.4, 0.1, 0.7, 0.2, 0.2, 0.4, -0.3, 1.9, -2.0, 1.1, 1.6, -0.1, -0.1, 0.5, 0.1),
)
"""The distance of each class from the healthy centre, in spreads: one row per class, one column per feature."""
MARKED: Final = 0.75
MILD: Final = 0.8
SHARED: Final = 0.3
BLOCK: Final = 4
SHARES: Final = (("high", 0.54), ("average", 0.37), ("low", 0.09))
"""The consent levels and the shares of people who choose them: the second set-up of the paper's experiments."""


def load_synthetic(*, n_people: int = 50_000, seed: int = 0, correlation: float = 0.0) -> Dataset:
    """Draw a population of `n_people`, one row each; the same seed gives the same people, and `correlation` is c."""
    check_count("n_people", n_people)
    check_count("seed", seed, least=0)
    if not 0 <= correlation <= 1:
        raise InputError(f"correlation is {show(correlation)}: it must lie between 0 and 1")
    rng = np.random.default_rng(int(seed))
    y = rng.choice(len(CLASSES), size=int(n_people), p=PRIORS).astype(np.int64)
    X = _features(y, rng)
    return Dataset(
        name="synthetic",
        X=X,
        y=y,
        classes=CLASSES,
        kind="table",
        levels=_levels(y, correlation, rng),
        feature_names=tuple(FEATURES),
        bounds=_bounds(),
        notes=(f"{len(y):,} people drawn from a model with seed {seed}; none of them is real.",),
        source="generated; the model is in ipate.data.synthetic",
        licence="none needed: generated data",
    )


def _bounds() -> NDArray[np.float64]:
    low, high, centre, spread = np.array(list(FEATURES.values())).T
    bounds: NDArray[np.float64] = np.column_stack([low - centre, high - centre]) / spread[:, None]
    return bounds


def _features(y: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.float32]:
    """Steps 2 to 4 of the model."""
    n, width = len(y), len(FEATURES)
    strength = np.where(rng.random(n) < MARKED, 1.0, MILD).astype(np.float32)
    noise = rng.standard_normal((n, width), dtype=np.float32) * np.float32(np.sqrt(1 - SHARED))
    common = rng.standard_normal((n, width // BLOCK), dtype=np.float32) * np.float32(np.sqrt(SHARED))
    noise += np.repeat(common, BLOCK, axis=1)
    noise += strength[:, None] * np.array(SHIFTS, dtype=np.float32)[y]
    return np.clip(noise, *_bounds().T.astype(np.float32), out=noise)


def _levels(y: NDArray[np.int64], correlation: float, rng: np.random.Generator) -> NDArray[np.str_]:
    """Step 5 of the model."""
    sensitivity = np.arange(len(CLASSES)) - np.dot(PRIORS, np.arange(len(CLASSES)))
    sensitivity /= np.sqrt(np.dot(PRIORS, sensitivity**2))
    score = correlation * sensitivity[y] + np.sqrt(1 - correlation**2) * rng.standard_normal(len(y))
    names = np.array([name for name, _ in SHARES])
    ends = np.rint(np.cumsum([share for _, share in SHARES]) * len(y)).astype(np.int64)
    place = np.searchsorted(ends, np.arange(len(y)), side="right")
    levels = np.empty(len(y), dtype=names.dtype)
    levels[np.argsort(-score, kind="stable")] = names[place]
    return levels
