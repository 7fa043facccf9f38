"""The dry fit: a teacher is tried on made-up rows before any private row is used, so that a bad configuration shows."""

import io
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.data.frames import n_rows, take
from ipate.errors import InputError
from ipate.teachers.engines import Engine
from ipate.teachers.ensemble import Ints, check_public, own_copy, predict_votes
from ipate.teachers.isolation import FIT, Attempt, attempt
from ipate.teachers.workers import Died

_EACH, _ALL, _LEAST = 50, 1000, 10  # made-up rows per class, unless there are many classes; then at least so many
_ASKED = 20  # public points that a dry teacher votes on


def dry_fit(
    estimator: Any, points: Any, *, n_classes: int, rows: int, engine: Engine, name: str = "",
    cpu_seconds: float | None = None, stored: bool = False, what: str = "teacher", each: int = _EACH,
) -> None:  # fmt: skip
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
