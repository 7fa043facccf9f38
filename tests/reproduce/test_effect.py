"""The effect that matters, small enough for every commit: people who allow more buy more labels and a better student.

Nobody pays more for it: the account is the releasable one, and every group is charged for its own weight.
"""

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from ipate import PATEClassifier
from ipate.data import load

SEEDS = range(5)


def run(variant: str, seed: int) -> tuple[int, float]:
    data = load("synthetic", n_people=9000, seed=seed)
    rng = np.random.default_rng(seed)
    epsilon = np.where(rng.random(6000) < 0.5, 1.0, 3.0)
    model = PATEClassifier(
        teacher=GaussianNB(), student=GaussianNB(), variant=variant, n_teachers=100, sigma=16, check_sigma=40,
        threshold=55, delta=1e-5, classes=list(range(data.n_classes)), random_state=seed, noise_seed=seed, verbose=0,
    )  # fmt: skip
    model.fit(data.X[:6000], data.y[:6000], budgets=epsilon, X_public=data.X[6000:8000])
    assert all(group.cost <= group.budget for group in model.guarantees_)
    labels = int(np.count_nonzero(model.labels_ >= 0))
    return labels, float(model.score(data.X[8000:], data.y[8000:]))


@pytest.mark.parametrize("variant", ["weighting", "upsampling"])
def test_individual_budgets_buy_more_labels_and_better_students(variant):
    alike = [run("standard", seed) for seed in SEEDS]
    own = [run(variant, seed) for seed in SEEDS]
    for (few, _), (many, _) in zip(alike, own, strict=True):
        assert many > 1.8 * few
    gain = np.array([after - before for (_, before), (_, after) in zip(alike, own, strict=True)])
    assert gain.mean() > 0.01
    assert np.count_nonzero(gain > 0) >= 4
