"""Synthetic ensembles whose teachers are right with a probability that varies from point to point."""

import numpy as np
import pytest

from paper.models import Ensemble, EnsembleSpec


def make_ensemble(spec: EnsembleSpec, *, points: int = 1500, skill: float = 0.9, seed: int = 0) -> Ensemble:
    rng = np.random.default_rng([seed, spec.replicate])
    k = round(250 * sum(s * c for s, c in zip(spec.shares, spec.copies, strict=True))) if spec.copies else 250
    truth = rng.integers(0, 10, points)
    chance = rng.beta(12 * skill, 12 * (1 - skill), points)
    wrong = (truth + rng.integers(1, 10, (k, points))) % 10
    votes = np.where(rng.random((k, points)) < chance, truth, wrong).astype(np.uint8)
    return Ensemble(spec=spec, votes=votes, truth=truth, public=np.arange(points))


@pytest.fixture
def common() -> Ensemble:
    return make_ensemble(EnsembleSpec(setup="mnist", replicate=1))


@pytest.fixture
def weak() -> Ensemble:
    return make_ensemble(EnsembleSpec(setup="svhn", replicate=0), skill=0.55, points=1200)


@pytest.fixture
def copied() -> Ensemble:
    return make_ensemble(EnsembleSpec(setup="mnist", replicate=1, shares=(0.5, 0.5), copies=(1, 3)))


@pytest.fixture
def make():
    return make_ensemble
