"""A made-up ensemble whose teachers are right with a chance that varies from point to point."""

import numpy as np
import pytest

from ipate.reproduce.ensembles import Ensemble, Spec


def make_ensemble(spec: Spec, *, points: int = 1500, skill: float = 0.9, seed: int = 0) -> Ensemble:
    rng = np.random.default_rng([seed, spec.replicate])
    k = round(250 * sum(s * c for s, c in zip(spec.shares, spec.copies, strict=True))) if spec.copies else 250
    truth = rng.integers(0, 10, points)
    chance = rng.beta(12 * skill, 12 * (1 - skill), points)
    wrong = (truth + rng.integers(1, 10, (k, points))) % 10
    votes = np.where(rng.random((k, points)) < chance, truth, wrong).astype(np.uint8)
    return Ensemble(spec=spec, votes=votes, truth=truth, public=np.arange(points), test=np.arange(10), meta={})


@pytest.fixture
def common() -> Ensemble:
    return make_ensemble(Spec(setup="mnist", replicate=1))


@pytest.fixture
def weak() -> Ensemble:
    return make_ensemble(Spec(setup="svhn", replicate=0), skill=0.55, points=1200)


@pytest.fixture
def copied() -> Ensemble:
    return make_ensemble(Spec(setup="mnist", replicate=1, shares=(0.5, 0.5), copies=(1, 3)))
