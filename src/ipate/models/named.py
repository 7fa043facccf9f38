"""Models of teachers and students, by name or as module:attribute of any scikit-learn classifier.

The dry fit: a teacher is tried on made-up rows before any private row is used, so that a bad configuration shows.
"""

import importlib
import io
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ipate._types import Ints
from ipate.data.frames import n_rows, take
from ipate.errors import InputError, import_part, refuse_name
from ipate.models.isolation import FIT, Attempt, attempt
from ipate.models.training import check_public, own_copy, predict_votes
from ipate.models.workers import Backend, Died

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
        found = import_part("model", path)
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


_EACH, _ALL, _LEAST = 50, 1000, 10  # made-up rows per class, unless there are many classes; then at least so many
_ASKED = 20  # public points that a dry teacher votes on


def dry_fit(
    estimator: Any,
    points: Any,
    *,
    n_classes: int,
    rows: int,
    engine: Backend,
    name: str = "",
    cpu_seconds: float | None = None,
    stored: bool = False,
    what: str = "teacher",
    each: int = _EACH,
) -> None:
    """Refuse a teacher that cannot be fitted on public points with made-up labels, or cannot vote on them.

    It is tried on many rows of all classes, and on `rows`, the number that the largest teacher has, with few classes:
    what fails on so favourable a sample is wrong in general. Of the private data only this public number is used.
    With `stored` the teacher must also be picklable. `what` names the model in the message: a student is tried too,
    before anybody pays for labels that it could not learn from. `each` is the number of rows per class.
    """
    check_public(estimator, points, what=what)
    many = max(rows, n_classes * min(each, max(_LEAST, _ALL // n_classes)))
    trials = [(many, n_classes)]
    if 2 <= rows < many:
        trials.append((rows, min(n_classes, max(2, rows // _LEAST))))
    shared = {"estimator": estimator, "n_classes": n_classes, "stored": stored, "home": os.getpid()}
    tasks = {
        number: (*_made_up(points, size, classes), cpu_seconds if size <= rows else None)
        for number, (size, classes) in enumerate(trials)
    }
    if engine.n_workers:
        found = dict(engine.run(_dry_one, tasks, shared=shared))
    else:
        found = {number: _dry_one(task, **shared) for number, task in tasks.items()}
    for number, (size, classes) in enumerate(trials):
        result = found[number]
        reason = str(result) if isinstance(result, Died) else result.failed
        if reason:
            named = name or type(estimator).__name__
            few = (
                f", as many as the largest teacher has: {rows}; use fewer teachers, or another model" if number else ""
            )
            raise InputError(
                f"{what} is {named}: it fails on {size} made-up rows of {classes} classes, before any private row is "
                f"used ({reason}){few}"
            )


def _dry_one(
    task: tuple[Any, Ints, float | None], *, estimator: Any, n_classes: int, stored: bool, home: int
) -> Attempt:
    X, y, cpu_seconds = task
    asked = take(X, np.arange(min(_ASKED, len(y))))

    def work() -> None:
        model = own_copy(estimator, teacher=0, seed=0).fit(X, y.copy())
        predict_votes(model, asked, n_classes=n_classes)
        if stored:
            import joblib

            joblib.dump(model, io.BytesIO())

    return attempt(work, key=(0, 0, FIT), cpu_seconds=cpu_seconds, home=home)


def _made_up(points: Any, size: int, n_classes: int) -> tuple[Any, Ints]:
    """Return public points with labels of equal shares, cut along a random direction, so that they can be learnt.

    Points in a frame or a sparse matrix have random labels.
    """
    rng, known = np.random.default_rng(0), n_rows(points)
    chosen = rng.permutation(known)[:size] if size <= known else rng.integers(known, size=size)
    X, place = take(points, chosen), np.zeros(size)
    if isinstance(X, np.ndarray) and X.dtype.kind in "biuf":
        flat = np.nan_to_num(X.reshape(size, -1).astype(np.float64))
        spread = flat.std(axis=0)
        place = (flat / np.where(spread > 0, spread, 1)) @ rng.normal(size=flat.shape[1])
    order = np.lexsort((rng.permutation(size), place))
    y = np.empty(size, dtype=np.int64)
    y[order] = np.arange(size) * n_classes // size
    mixed = rng.permutation(size)
    return take(X, mixed), y[mixed]


def dry_fit_net(estimator: Any, points: NDArray[Any], *, n_classes: int, device: str, name: str) -> None:
    """Refuse a net that cannot take one step on public images with made-up labels, or cannot vote on them."""
    from ipate.torch.training import train_ensemble

    X, y = _made_up(points, 2 * n_classes, n_classes)

    def work() -> None:
        ensemble = train_ensemble(
            X, y, [np.arange(len(X))], n_classes=n_classes, preset=estimator.preset, steps=1, device=device
        )
        list(ensemble.vote(X[:_ASKED]))

    if reason := attempt(work, key=(0, 0, FIT)).failed:
        raise InputError(
            f"teacher is {name}: it fails on {len(X)} made-up rows of {n_classes} classes, before any private row is "
            f"used ({reason})"
        )
