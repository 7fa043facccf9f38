"""Supervised students: any classifier on the public points that have a label."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.errors import InputError


def fit_student(
    estimator: Any,
    X: NDArray[Any],
    labels: NDArray[np.int64],
    *,
    n_classes: int,
    sample_weight: NDArray[np.float64] | None = None,
    labelled: tuple[NDArray[Any], NDArray[np.int64]] | None = None,
) -> Any:
    """Return the estimator, cloned and trained on the public points whose label is not −1.

    All of it is post-processing of released labels: the student costs nobody anything.

    Parameters
    ----------
    estimator : scikit-learn classifier
        Cloned, so that the caller's stays as it is.
    X, labels : arrays of shape (Q, ...) and (Q,)
        The public pool, and a class id or −1 for every point; points without one are left out.
    n_classes : int
        C; a student that saw one class only always says that class.
    sample_weight : array of shape (Q,), optional
        How much each point counts, where the estimator takes weights.
    labelled : (X, y), optional
        Further public labelled data, such as that of people who need no protection.
    """
    from sklearn.base import clone
    from sklearn.dummy import DummyClassifier

    chosen = labels >= 0
    points, targets = X[chosen], labels[chosen]
    weights = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)[chosen]
    if labelled is not None:
        more, known = labelled
        points, targets = np.concatenate([points, more]), np.concatenate([targets, known])
        if weights is not None:
            weights = np.concatenate([weights, np.ones(len(known))])
    if not len(targets):
        raise InputError(
            "no public point has a label, so there is nothing to teach the student: the budgets pay for no label at "
            "this noise. Use more teachers, larger budgets or a lower threshold (ipate plan shows what they afford)"
        )
    if targets.min() < 0 or targets.max() >= n_classes:
        raise InputError(f"labels hold {targets.max()}: class ids go from 0 to {n_classes - 1}")
    if np.unique(targets).size == 1:
        return DummyClassifier(strategy="most_frequent").fit(points.reshape(len(points), -1), targets)
    model = clone(estimator)
    return model.fit(points, targets) if weights is None else model.fit(points, targets, sample_weight=weights)
