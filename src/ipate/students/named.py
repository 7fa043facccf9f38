"""Students that speak in class names: scores over all classes, and a wrapper for models that learnt class ids."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if

Floats = NDArray[np.float64]


def class_names(classes: Sequence[Any] | NDArray[Any]) -> NDArray[Any]:
    """Return the class names as an array that keeps their type."""
    found = np.asarray(classes)
    return found if found.dtype.kind in "biufU" else np.array(list(classes), dtype=object)


def over_all_classes(scores: Any, seen: NDArray[Any], classes: NDArray[Any], *, empty: float) -> Floats:
    """Return scores with one column per class; a class that the model has not seen gets the value `empty`.

    A single column of a binary decision function, if there are more classes than the two, becomes a column for each.
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim == 1 and len(classes) > 2:
        values = np.stack([-values, values], axis=1)
    if values.ndim == 1 or values.shape[1] != len(seen):
        return values
    spread = np.full((len(values), len(classes)), empty)
    place = {name: index for index, name in enumerate(classes.tolist())}
    spread[:, [place[name] for name in seen.tolist()]] = values
    return spread


def has(method: str, *, of: str = "model") -> Any:
    """Return the condition that a method exists only where the wrapped model has it."""
    return lambda self: hasattr(getattr(self, of), method)


class NamedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A model that was trained on class ids, with the names of all classes in its predictions and in `classes_`."""

    def __init__(self, model: Any, classes: Sequence[Any]) -> None:
        self.model, self.classes = model, classes

    def __sklearn_is_fitted__(self) -> bool:
        return True

    @property
    def classes_(self) -> NDArray[Any]:
        """The names of all classes, in the order of their ids."""
        return class_names(self.classes)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class name of every row."""
        return np.asarray(self.classes_[np.asarray(self.model.predict(X)).astype(np.int64)])

    @available_if(has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:
        """Return the probabilities, with a column per class."""
        return self._over_all(self.model.predict_proba(X), empty=0.0)

    @available_if(has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Floats:
        """Return the model's scores, with a column per class if there are more than two."""
        return self._over_all(self.model.decision_function(X), empty=-np.inf)

    def _over_all(self, scores: Any, *, empty: float) -> Floats:
        ids = np.arange(len(self.classes))
        whole = np.ndim(scores) == 2 and np.shape(scores)[1] == len(ids)
        return over_all_classes(scores, ids if whole else np.asarray(self.model.classes_), ids, empty=empty)


def named(trained: Any, classes: Sequence[Any] | NDArray[Any]) -> Any:
    """Return a model trained on class ids as one that predicts class names."""
    names = class_names(classes)
    same = names.dtype.kind in "iu" and np.array_equal(names, np.arange(len(names)))
    return trained if same else NamedClassifier(trained, names.tolist())
