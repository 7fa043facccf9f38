"""Teachers are each fitted on the rows of their own people and vote on public points.

Any scikit-learn classifier is trained teacher by teacher; nets are trained in blocks of teachers, as one batched model
on a GPU or in worker processes on a CPU.
"""

import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.data.frames import n_rows, take
from ipate.errors import InputError, TeacherError, TrainingError
from ipate.teachers.engines import Engine, one_line
from ipate.votes.store import vote_dtype

Ints = NDArray[np.int64]
FIXED_CLASS = 0  # the vote of a teacher without data; it is public and does not depend on who left
BLOCK = 250  # nets per call of train_ensemble; an interrupted block is trained again
_CHUNK = 16_384  # public points that a teacher predicts in one call


def train_and_vote(
    estimator: Any, X: Any, y: Ints, *, rows: Sequence[Ints], X_public: Any, n_classes: int,
    missing: Sequence[int] | None = None, seed: int = 0, n_jobs: int | None = None, backend: str | None = None,
    address: str | None = None, progress: Callable[[int], None] | None = None,
) -> Generator[tuple[int, NDArray[Any]], None, None]:  # fmt: skip
    """Train the `missing` teachers (default: all) on private X (n, ...) and class ids y; yield each with its votes.

    `estimator` is cloned for each teacher, `rows` holds each teacher's rows of X, `progress` receives the number of
    teachers that have voted. X may also be a sparse matrix or a frame; workers then get slices of it. Teachers come in
    any order, and failures are raised after the last one. The votes depend on the data and on `seed` (the split seed)
    alone, not on the engine (`n_jobs`, `backend` and `address` are those of `Engine`) nor on the order of training.
    """
    engine = Engine(backend=backend, n_jobs=n_jobs, address=address)
    _check_features(estimator, X, "private features")
    _check_features(estimator, X_public, "public features")
    shared = {"estimator": estimator, "X_public": X_public, "seed": seed, "classes": n_classes}
    if isinstance(X, np.ndarray):  # sent to each worker once
        shared |= {"X": X, "y": y}
    wanted = range(len(rows)) if missing is None else missing
    return run_teachers(
        _one_teacher, engine, rows=rows, missing=wanted, shared=shared, outcome="have voted", progress=progress,
        sent=None if "X" in shared else lambda own: (take(X, own), y[own]),
    )  # fmt: skip


def run_teachers(
    function: Callable[..., Any], engine: Engine, *, rows: Sequence[Ints], missing: Sequence[int],
    shared: Mapping[str, Any], outcome: str, progress: Callable[[int], None] | None,
    sent: Callable[[Ints], Any] | None = None,
) -> Generator[tuple[int, Any], None, None]:  # fmt: skip
    """Yield every missing teacher with the result of `function((teacher, rows), **shared)`, in any order.

    With `sent`, a worker gets `sent(rows)` instead of the rows' numbers.
    The function returns a text where a teacher failed. Failures are raised as one error after all other results.
    """
    failures: list[tuple[int, str]] = []
    done = len(rows) - len(missing)
    tasks = {teacher: (teacher, rows[teacher] if sent is None else sent(rows[teacher])) for teacher in missing}
    with closing(engine.run(function, tasks, shared=shared)) as results:
        for teacher, result in results:
            if isinstance(result, str):
                failures.append((teacher, result))
                continue
            yield teacher, result
            done += 1
            if progress is not None:
                progress(done)
    if failures:
        teacher, reason = min(failures)
        named = f"teacher {teacher} with {len(rows[teacher])} points"
        others = "" if len(failures) == 1 else f" and {len(failures) - 1} others"
        raise TeacherError(f"{named}{others} failed: {reason}. The other {done} teachers {outcome}")


def _one_teacher(
    task: tuple[int, Any],
    *,
    estimator: Any,
    X_public: Any,
    seed: int,
    classes: int,
    X: NDArray[Any] | None = None,
    y: Ints | None = None,
) -> NDArray[Any] | str:
    """Train one teacher on its rows of X and y, or on the slices that its task holds; return its votes or a reason."""
    teacher, own = task
    try:
        features, targets = own if X is None or y is None else (X[own], y[own])
        model = fit_teacher(estimator, features, targets, teacher=teacher, seed=seed)
        return predict_votes(model, X_public, n_classes=classes)
    except Exception as error:  # a worker must return its reason, whatever the error is
        return f"{type(error).__name__}: {one_line(error)}"


def fit_teacher(estimator: Any, X: Any, y: Ints, *, teacher: int, seed: int) -> Any:
    """Fit one teacher on its own rows, with every `random_state` seeded by the split seed and the teacher's index.

    Without rows, or with rows of one class, there is nothing to learn: the teacher always votes the same class.
    """
    from sklearn.base import clone
    from sklearn.dummy import DummyClassifier

    known = np.unique(y)
    if known.size < 2:
        only = int(known[0]) if known.size else FIXED_CLASS
        return DummyClassifier(strategy="constant", constant=only).fit([[0]], [only])
    model = clone(estimator)
    names = sorted(name for name in model.get_params(deep=True) if name.split("__")[-1] == "random_state")
    states = np.random.SeedSequence([seed, teacher]).generate_state(max(1, len(names)))
    model.set_params(**{name: int(state % (2**31)) for name, state in zip(names, states, strict=False)})
    with _thread_pools(len(sys.modules)).limit(limits=1):  # small models train slower with several threads each
        model.fit(X, y)
    return model


def predict_votes(model: Any, X: Any, *, n_classes: int) -> NDArray[Any]:
    """Return a fitted teacher's votes, in chunks; a prediction that is no class id raises an error."""
    votes = np.empty(n_rows(X), dtype=vote_dtype(n_classes))
    with _thread_pools(len(sys.modules)).limit(limits=1):
        for start in range(0, len(votes), _CHUNK):
            own = take(X, np.arange(start, min(start + _CHUNK, len(votes))))  # a copy: a model may work in place
            found = np.asarray(model.predict(own))
            if not (found.min() >= 0 and found.max() < n_classes):
                raise ValueError(f"it votes for class {found.min()} or {found.max()}: there are {n_classes}, from 0 on")
            votes[start : start + _CHUNK] = found
    return votes


def train_nets_and_vote(
    estimator: Any, X: NDArray[Any], y: Ints, *, rows: Sequence[Ints], slots: Ints, X_public: NDArray[Any],
    n_classes: int, missing: Sequence[int], seed: int = 0, device: str = "auto", n_jobs: int = 1,
    progress: Callable[[int], None] | None = None,
) -> Generator[tuple[int, NDArray[Any]], None, None]:  # fmt: skip
    """Train the missing nets in blocks, and yield each with its votes.

    The preset, epochs and steps are those of `estimator`, a TorchClassifier; the seed of a block is derived
    from `seed`. `slots` is the number of people dealt to each teacher. The length of training follows from it
    alone, and it is public: nobody's rows, and nobody who left, change the training of other teachers.
    """
    from ipate.torch.nets import find_preset
    from ipate.torch.training import train_ensemble

    preset = find_preset(estimator.preset).lasting(epochs=estimator.epochs, steps=estimator.steps)
    steps = preset.n_steps(float(np.mean(slots)))
    left, done = frozenset(missing), len(rows) - len(missing)
    for start in range(0, len(rows), BLOCK):
        block = range(start, min(start + BLOCK, len(rows)))
        wanted = [teacher for teacher in block if teacher in left]
        if not wanted:
            continue
        nothing = np.empty(0, dtype=np.int64)  # a teacher that has voted is not trained again but keeps its number
        members = [rows[teacher] if teacher in left else nothing for teacher in block]
        ensemble = train_ensemble(
            X, y, members, n_classes=n_classes, preset=estimator.preset, steps=steps,
            seed=int(np.random.SeedSequence([seed, start]).generate_state(1)[0]), device=device, n_jobs=n_jobs,
            on_failure="fixed", progress=_counted(progress, start, steps),
        )  # fmt: skip
        failed = {failure.teacher for failure in ensemble.failures}
        votes = np.concatenate([part for _, part in ensemble.vote(X_public)], axis=1)
        for teacher in wanted:
            if teacher - start not in failed:
                yield teacher, votes[teacher - start]
                done += 1
        if failed:
            raise TeacherError(f"{TrainingError(ensemble.failures, ensemble)}. The other {done} teachers have voted")


def _counted(progress: Callable[[int], None] | None, first: int, steps: int) -> Callable[[int, int], None] | None:
    """Turn a block's count of steps × teachers into the number of teachers trained so far in all blocks."""
    if progress is None:
        return None
    return lambda done, _: progress(first + done // steps)


@lru_cache(maxsize=1)
def _thread_pools(modules: int) -> Any:
    """Return the loaded libraries that have thread pools; the search is slow, so it is repeated after imports only."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _check_features(estimator: Any, X: Any, what: str) -> None:
    """Raise an error for features that are not finite; NaN is allowed if the estimator supports it, or in a frame."""
    if not isinstance(X, np.ndarray) or X.dtype.kind != "f":
        return
    allowed = allows_missing(estimator)
    for start in range(0, len(X), 65536):
        block = X[start : start + 65536].reshape(len(X[start : start + 65536]), -1)
        bad = np.isinf(block) if allowed else ~np.isfinite(block)
        if bad.any():
            row, column = (int(place[0]) for place in np.nonzero(bad))
            raise InputError(
                f"{what} hold {block[row, column]} in row {start + row}, column {column}: fill or drop such rows, "
                "or put an imputer into the teacher's pipeline"
            )


def allows_missing(estimator: Any) -> bool:
    """Return whether an estimator may accept NaN: it does, or a part of it that could be an imputer does."""
    from sklearn.utils import get_tags

    inner = estimator.get_params(deep=True).values() if hasattr(estimator, "get_params") else ()
    parts = [estimator, *(part for part in inner if hasattr(part, "fit"))]
    return any(get_tags(part).input_tags.allow_nan for part in parts)
