"""Any `torch.nn.Module` of the user's as a scikit-learn classifier, through skorch."""

from typing import Any, Self

import numpy as np
from torch import nn
from torch.optim import Adam

try:
    from skorch import NeuralNetClassifier
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("a module of your own needs skorch: pip install 'ipate[torch]'") from error

__all__ = ["ModuleClassifier", "module_classifier"]


class ModuleClassifier(NeuralNetClassifier):  # type: ignore[misc]
    """Skorch's classifier for modules that return logits; takes float64 and any integers as they come.

    Parameters are skorch's; `criterion` is the cross-entropy unless given.
    """

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
    """Return X as float32, which torch's layers want."""
    return X.astype(np.float32) if isinstance(X, np.ndarray) and X.dtype != np.float32 else X


def module_classifier(module: Any, **settings: Any) -> ModuleClassifier:
    """Return a quiet classifier for a module that gives one logit per class.

    Parameters
    ----------
    module : nn.Module class or instance
    settings
        Skorch's: `max_epochs`, `lr`, `optimizer`, `batch_size`, `module__…`, `device`, …
    """
    return ModuleClassifier(module, **{"verbose": 0, "train_split": None, "optimizer": Adam, "lr": 1e-3, **settings})
