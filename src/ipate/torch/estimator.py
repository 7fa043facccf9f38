"""Nets as scikit-learn classifiers: the built-in ones, and any torch module through skorch."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch import nn
from torch.optim import Adam

from ipate.errors import InputError
from ipate.torch.nets import Preset
from ipate.torch.training import train_student

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.validation import check_is_fitted
    from skorch import NeuralNetClassifier
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"ipate.torch's classifiers need {error.name}: pip install 'ipate[torch]'") from error


class TorchClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """One of the built-in nets with scikit-learn's interface.

    Parameters
    ----------
    preset : str or Preset
        Architecture, augmentation, optimiser and length of training.
    epochs, steps : optional
        A length of training other than the preset's.
    classes : array, optional
        All classes, which are public; default: those of `y`. Probabilities have a column for each.
    seed : int
        The seed of initial weights, order, augmentation and dropout.
    device : str
        "auto", "cpu", "cuda" or another torch device.

    Attributes
    ----------
    classes_ : array
        The classes, sorted.
    student_ : Student
        The trained model.

    Examples
    --------
    >>> from ipate.torch import TorchClassifier
    >>> TorchClassifier(preset="small", steps=50).get_params()["steps"]
    50
    """

    def __init__(
        self,
        preset: str | Preset = "small",
        *,
        epochs: float | None = None,
        steps: int | None = None,
        classes: Any = None,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        self.preset, self.epochs, self.steps = preset, epochs, steps
        self.classes, self.seed, self.device = classes, seed, device

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on images: (N, C, H, W), (N, H, W) or flat rows."""
        labels = np.asarray(y)
        self.classes_ = np.unique(labels if self.classes is None else np.asarray(self.classes))
        if not np.isin(labels, self.classes_).all():
            raise InputError(f"y holds {np.setdiff1d(labels, self.classes_)[0]!r}, which is not among the classes")
        self.student_ = train_student(
            np.asarray(X), np.searchsorted(self.classes_, labels), n_classes=max(2, len(self.classes_)),
            preset=self.preset, epochs=self.epochs, steps=self.steps, sample_weight=sample_weight, seed=self.seed,
            device=self.device,
        )  # fmt: skip
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """Return the probabilities of all classes, in the order of `classes_`."""
        check_is_fitted(self, "student_")
        return self.student_.predict_proba(np.asarray(X))[:, : len(self.classes_)]

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of every point."""
        found: NDArray[Any] = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return found


class ModuleClassifier(NeuralNetClassifier):  # type: ignore[misc]
    """Skorch's classifier for modules that return logits; float64 features and all integer labels are accepted."""

    def __init__(self, module: Any, *args: Any, criterion: Any = nn.CrossEntropyLoss, **kwargs: Any) -> None:
        super().__init__(module, *args, criterion=criterion, **kwargs)

    def fit(self, X: Any, y: Any, **fit_params: Any) -> Self:
        """Train from scratch."""
        super().fit(_single(X), np.asarray(y).astype(np.int64), **fit_params)
        return self

    def predict_proba(self, X: Any) -> Any:
        """Return a probability per output of the module."""
        return super().predict_proba(_single(X))


def _single(X: Any) -> Any:
    """Return X as float32, which torch's layers need."""
    return X.astype(np.float32) if isinstance(X, np.ndarray) and X.dtype != np.float32 else X


def module_classifier(module: Any, **settings: Any) -> ModuleClassifier:
    """Return a scikit-learn classifier (skorch's) for a torch module of your own.

    Parameters
    ----------
    module : nn.Module class or instance
        It must return one logit per class.
    settings
        Skorch's: `max_epochs`, `lr`, `optimizer`, `batch_size`, `module__…`, `device`, … By default it prints
        nothing, validates on no split, and uses Adam with a rate of .001.
    """
    return ModuleClassifier(module, **{"verbose": 0, "train_split": None, "optimizer": Adam, "lr": 1e-3, **settings})
