"""Teachers and students by name, or any scikit-learn classifier as module:attribute."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from ipate.errors import InputError, refuse_name


def _logistic(**options: Any) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(**{"max_iter": 300, **options})


def _forest(**options: Any) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(**{"n_estimators": 100, **options})


def _boosting(**options: Any) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(**options)


def _bayes(**options: Any) -> Any:
    from sklearn.naive_bayes import GaussianNB

    return GaussianNB(**options)


NETS = ("paper-mnist", "small", "vgg")
"""Nets for images, which need the extra torch: the paper's CNN, a stronger small net, a VGG-style net."""
MODELS: Mapping[str, Callable[..., Any]] = {
    "logistic": _logistic,
    "forest": _forest,
    "boosting": _boosting,
    "bayes": _bayes,
}
"""Classifiers by name: logistic regression, random forest, gradient boosting, naive Bayes."""


DEFAULT = "logistic"
"""The default teacher and the default student of runs and of the classifier."""


def make_model(name: str = DEFAULT, options: Mapping[str, Any] | None = None, *, seed: int | None = None) -> Any:
    """Return the classifier of this name, with its options; `seed` fills an empty random_state."""
    if name in NETS:
        maker = _net(name)
    elif ":" in name:
        module, _, attribute = name.partition(":")
        try:
            maker = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise InputError(f"model is {name!r}: it cannot be imported ({error})") from None
    else:
        if name not in MODELS:
            refuse_name("model", name, (*MODELS, *NETS, "module:attribute"))
        maker = MODELS[name]
    try:
        model = maker(**(options or {}))
    except TypeError as error:
        raise InputError(f"options of model {name!r}: {error}") from None
    if seed is not None and hasattr(model, "get_params") and model.get_params().get("random_state", 0) is None:
        model.set_params(random_state=seed)
    return model


def _net(name: str) -> Callable[..., Any]:
    try:
        from ipate.torch.estimator import TorchClassifier
    except ModuleNotFoundError as error:
        raise InputError(f"model is {name!r}: it needs PyTorch ({error}); pip install 'ipate[torch]'") from None
    return lambda **options: TorchClassifier(preset=name, **options)
