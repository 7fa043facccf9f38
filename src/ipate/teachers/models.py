"""Models of teachers and students, by name or as module:attribute of any scikit-learn classifier."""

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from ipate.errors import InputError, refuse_name

NETS = ("paper-mnist", "small", "vgg")  # nets for images (extra torch): the paper's CNN, a small net, a VGG-style net
MODELS: Mapping[str, tuple[str, Mapping[str, Any]]] = {  # where each classifier is imported from, and its defaults
    "logistic": ("sklearn.linear_model:LogisticRegression", {"max_iter": 300}),
    "forest": ("sklearn.ensemble:RandomForestClassifier", {"n_estimators": 100}),
    "boosting": ("sklearn.ensemble:HistGradientBoostingClassifier", {}),
    "bayes": ("sklearn.naive_bayes:GaussianNB", {}),
}
DEFAULT = "logistic"  # the default teacher and the default student of runs and of the classifier


def make_model(name: Any = DEFAULT, options: Mapping[str, Any] | None = None, *, seed: int | None = None) -> Any:
    """Return the classifier of this name, or a clone of an estimator; `seed` sets a `random_state` that is None."""
    path, defaults = MODELS.get(name, (name, {})) if isinstance(name, str) else ("", {})
    maker: Callable[..., Any]
    if not isinstance(name, str):
        maker = _maker(name)
    elif name in NETS:
        maker = _net(name)
    elif ":" in path:
        module, _, attribute = path.partition(":")
        try:
            found = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise InputError(
                f"model is {name!r}: it cannot be imported ({error}); a module is looked for on Python's path and in "
                "the folder of the TOML file"
            ) from None
        maker = _maker(found)
    else:
        refuse_name("model", name, (*MODELS, *NETS, "module:attribute"))
    try:
        model = maker(**{**defaults, **(options or {})})
    except (TypeError, ValueError) as error:
        raise InputError(f"options of model {name!r}: {error}") from None
    if seed is not None and hasattr(model, "get_params") and model.get_params().get("random_state", 0) is None:
        model.set_params(random_state=seed)
    return model


def as_teacher(given: Any) -> Any:
    """Return the teacher of a classifier: an estimator as it is, the model of a name, or by default `DEFAULT`."""
    if given is None or isinstance(given, str):
        return make_model(given or DEFAULT)
    if isinstance(given, type) or not hasattr(given, "fit"):
        names = ", ".join((*MODELS, *NETS))
        raise InputError(
            f"teacher is {given!r}: it must be an estimator, such as LogisticRegression(), or one of {names}"
        )
    return given


def _maker(found: Any) -> Callable[..., Any]:
    """Return what makes a model: a class or a function itself, and for an estimator a clone with options set."""
    if isinstance(found, type) or not hasattr(found, "get_params"):
        return cast("Callable[..., Any]", found)
    from sklearn.base import clone

    return cast("Callable[..., Any]", clone(found).set_params)


def import_from(folder: Path) -> None:
    """Let `module:attribute` find modules of a folder; worker processes get the same path."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
        importlib.invalidate_caches()


def _net(name: str) -> Callable[..., Any]:
    try:
        from ipate.torch.estimator import TorchClassifier
    except ModuleNotFoundError as error:
        raise InputError(f"model is {name!r}: it needs PyTorch ({error}); pip install 'ipate[torch]'") from None
    return lambda **options: TorchClassifier(preset=name, **options)
