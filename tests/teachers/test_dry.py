"""A misconfigured teacher is refused on made-up rows; one that is usable passes, whatever the private rows are."""

import os
from typing import ClassVar

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

from ipate import PATEClassifier
from ipate.errors import InputError
from ipate.models.named import dry_fit
from ipate.models.workers import Backend

GRID = GridSearchCV(KNeighborsClassifier(), {"n_neighbors": [1, 3]}, cv=5)
POOL = np.random.default_rng(0).normal(size=(300, 4))


def tried(estimator, points=POOL, *, n_classes=3, rows=40, **options):
    dry_fit(estimator, points, n_classes=n_classes, rows=rows, engine=Backend(), **options)


@pytest.mark.parametrize("n_classes", [2, 3, 10])
@pytest.mark.parametrize("rows", [40, 400])
@pytest.mark.parametrize("teacher", [LogisticRegression(), QuadraticDiscriminantAnalysis(), GRID], ids=str)
def test_usable_teacher_passes(teacher, n_classes, rows):
    tried(teacher, n_classes=n_classes, rows=rows)


def test_missing_values_and_small_pool_pass():
    pool = POOL[:12].copy()
    pool[::3, 1] = np.nan
    tried(HistGradientBoostingClassifier(), pool)
    tried(make_pipeline(SimpleImputer(), LogisticRegression()), pool)


class Wide(ClassifierMixin, BaseEstimator):
    """A classifier whose votes have the wrong shape."""

    def fit(self, X, y):
        return self

    def predict(self, X):
        return np.zeros((len(X), 1))


@pytest.mark.parametrize(
    ("teacher", "words"),
    [
        (LogisticRegression(C=-1), r"LogisticRegression: it fails on 150 made-up rows of 3 classes, .*'C' parameter"),
        (LinearRegression(), "LinearRegression: .*it votes for class"),
        (Wide(), r"Wide: .*it votes with float64 of the shape \(20, 1\)"),
        (object(), "object: "),
        (KNeighborsClassifier(60), r"fails on 40 made-up rows of 3 classes, .*n_neighbors.*largest teacher has: 40"),
    ],
    ids=["option", "regressor", "shape", "no estimator", "few rows"],
)
def test_misconfigured_teacher_is_refused_with_reason(teacher, words):
    with pytest.raises(InputError, match=words):
        tried(teacher)


def test_crash_of_trial_is_refused_in_worker():
    class Crashing(LogisticRegression):
        def fit(self, X, y):
            os._exit(3)

    with pytest.raises(InputError, match=r"Crashing: it fails .*worker process died"):
        dry_fit(Crashing(), POOL, n_classes=2, rows=20, engine=Backend(backend="loky", n_jobs=1))


class Recording(LogisticRegression):
    """A classifier that records what it is fitted on."""

    seen: ClassVar[list[np.ndarray]] = []

    def fit(self, X, y):
        Recording.seen.append(np.array(X))
        return super().fit(X, y)


def test_trial_uses_public_points_only():
    rng = np.random.default_rng(1)
    X, pool = rng.normal(size=(400, 2)) + 100, rng.normal(size=(60, 2))
    y = (X[:, 0] > 100).astype(int)
    Recording.seen.clear()
    model = PATEClassifier(Recording(), epsilon=50.0, n_teachers=10, classes=[0, 1], random_state=0, verbose=0)
    model.fit(X, y, X_public=pool)
    trials = Recording.seen[:-10]
    assert len(trials) == 2
    assert all(trial.max() < 50 for trial in trials)
