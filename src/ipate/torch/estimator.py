"""Nets as scikit-learn classifiers: the built-in ones, and any torch module through skorch."""

import sys
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch import nn
from torch.optim import Adam

from ipate.errors import InputError
from ipate.torch.contrastive import NET, Encoder, Report, checked_images, train_encoder
from ipate.torch.fixmatch import train_fixmatch
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
            np.asarray(X),
            np.searchsorted(self.classes_, labels),
            n_classes=max(2, len(self.classes_)),
            preset=self.preset,
            epochs=self.epochs,
            steps=self.steps,
            sample_weight=sample_weight,
            seed=self.seed,
            device=self.device,
        )
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """Return the probabilities of all classes, in the order of `classes_`."""
        check_is_fitted(self, "student_")
        return self.student_.predict_proba(np.asarray(X))[:, : len(self.classes_)]

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of every point."""
        found: NDArray[Any] = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return found


class FixMatchClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A semi-supervised classifier of images: self-supervised features and FixMatch.

    It learns from the whole pool; `y` has −1 where a point has no label, as in scikit-learn's semi-supervised models.

    Parameters
    ----------
    steps, encoder_steps : int, optional
        The length of FixMatch, and of the self-supervised training before it; by default the size of the pool decides.
    classes : array, optional
        All class ids, which are public; default: those of `y`. Probabilities have a column for each.
    random_state : int, optional
        The seed of initial weights, order and views; None is 0.
    device : str
        "auto", "cpu", "cuda" or another torch device.
    verbose : bool
        Whether to write the progress to stderr.

    Attributes
    ----------
    classes_ : array
        The classes, sorted.
    student_ : Student
        The trained model.
    encoder_ : Encoder or None
        The net after its self-supervised training, where FixMatch started; None if it started from new weights, as it
        does for images with several channels.
    transduction_ : array of shape (N,)
        The prediction for every point of the pool.

    References
    ----------
    Chen et al., "A simple framework for contrastive learning of visual representations", ICML 2020.
    Sohn et al., "FixMatch: simplifying semi-supervised learning with consistency and confidence", NeurIPS 2020.

    Examples
    --------
    >>> from ipate.torch import FixMatchClassifier
    >>> FixMatchClassifier(steps=50).get_params()["steps"]
    50
    """

    def __init__(
        self,
        *,
        steps: int | None = None,
        encoder_steps: int | None = None,
        classes: Any = None,
        random_state: int | None = None,
        device: str = "auto",
        verbose: bool = False,
    ) -> None:
        self.steps, self.encoder_steps, self.classes = steps, encoder_steps, classes
        self.random_state, self.device, self.verbose = random_state, device, verbose

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, first_targets: Any = None, encoder: Encoder | None = None
    ) -> Self:
        """Train on images, of which some have labels.

        Parameters
        ----------
        X : array of shape (N, H, W), (N, H, W, C), (N, C, H, W) or flat rows
            The pool.
        y : integer array of shape (N,)
            Class ids of 0 or above, −1 without a label.
        sample_weight : array of shape (N,), optional
            How sure each label is; only ratios matter.
        first_targets : array of shape (N,), optional
            What the points are taught in the first part of training, −1 for nothing, such as labels that were spread
            over the features. The student "semi" of runs makes them.
        encoder : Encoder, optional
            A net that was trained on this pool before.
        """
        images, labels, seed = np.asarray(X), np.asarray(y), self.random_state or 0
        if labels.dtype.kind not in "iu":
            raise InputError(f"y is of type {labels.dtype}: give integer class ids, −1 without a label")
        self.classes_ = np.unique(labels[labels >= 0] if self.classes is None else np.asarray(self.classes))
        if not np.isin(labels[labels >= 0], self.classes_).all():
            raise InputError(f"y holds {np.setdiff1d(labels, [-1, *self.classes_])[0]}, which is not among the classes")
        told = None if first_targets is None else self._ids(np.asarray(first_targets))
        self.encoder_ = encoder
        if encoder is None and checked_images(images, NET).shape[1] == 1:
            self.encoder_ = train_encoder(
                images, steps=self.encoder_steps, seed=seed, device=self.device, progress=self._progress("features")
            )
        self.student_ = train_fixmatch(
            images,
            self._ids(labels),
            n_classes=max(2, len(self.classes_)),
            sample_weight=sample_weight,
            first_targets=told,
            encoder=self.encoder_,
            steps=self.steps,
            seed=seed,
            device=self.device,
            progress=self._progress("student"),
        )
        self.transduction_ = self.predict(images)
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """Return the probabilities of all classes, in the order of `classes_`."""
        check_is_fitted(self, "student_")
        return self.student_.predict_proba(np.asarray(X))[:, : len(self.classes_)]

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of every point."""
        found: NDArray[Any] = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return found

    def _ids(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        """Return the places of labels among the classes, −1 without a label."""
        return np.where(labels >= 0, np.searchsorted(self.classes_, np.maximum(labels, 0)), -1).astype(np.int64)

    def _progress(self, what: str) -> Report | None:
        if not self.verbose:
            return None

        def report(done: int, total: int) -> None:
            sys.stderr.write(f"{what}: {done} of {total} steps\n")

        return report


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
