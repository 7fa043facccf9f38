"""Any scikit-learn classifier as a teacher: cloned, trained on its own people's rows, heard through joblib."""

import hashlib
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.errors import InputError, TeacherError
from ipate.teachers.engines import Engine
from ipate.votes.store import VoteStore, vote_dtype

Ints = NDArray[np.int64]
FIXED_CLASS = 0  # what a teacher without data votes: public, and the same whoever left
_CHUNK = 16_384  # public points that a teacher looks at in one go


def train_and_vote(
    estimator: Any,
    X: NDArray[Any],
    y: Ints,
    *,
    rows: Sequence[Ints],
    X_public: NDArray[Any],
    store: VoteStore,
    seed: int = 0,
    n_jobs: int | None = None,
    backend: str | None = None,
    address: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Train the teachers that have not voted yet, and put their votes into the store as they come.

    Parameters
    ----------
    estimator : scikit-learn classifier
        Cloned for every teacher. Parameters called `random_state`, nested ones too, are set per teacher.
    X, y : arrays of shape (n, ...) and (n,)
        The private data; y holds class ids from 0 to C − 1.
    rows : sequence of index arrays
        The rows of X that each teacher learns from.
    X_public : array of shape (Q, ...)
        What the teachers vote on.
    store : VoteStore
        Receives every teacher's votes; teachers marked there are not trained again.
    seed : int
        The split seed: with a teacher's index it fixes the teacher's own seed.
    n_jobs, backend, address
        Where teachers are trained, as in `Engine`; their work never depends on who trained them, or in which
        order, and a worker that dies costs only the time of the teachers it had begun.
    progress : callable, optional
        Receives the number of teachers that have voted.
    """
    engine = Engine(backend=backend, n_jobs=n_jobs, address=address)
    _check_features(estimator, X, "private features")
    _check_features(estimator, X_public, "public features")
    failures: list[tuple[int, int, str]] = []
    done = len(rows) - len(store.missing)
    shared = {"estimator": estimator, "X": X, "y": y, "X_public": X_public, "seed": seed, "classes": store.n_classes}
    tasks = {teacher: (teacher, rows[teacher]) for teacher in store.missing}
    with closing(engine.run(_one_teacher, tasks, shared=shared)) as results, store.writing() as put:
        for teacher, result in results:
            if isinstance(result, str):
                failures.append((teacher, len(rows[teacher]), result))
                continue
            put(teacher, result)
            done += 1
            if progress is not None:
                progress(done)
    if failures:
        teacher, points, reason = min(failures)
        others = "" if len(failures) == 1 else f" and {len(failures) - 1} others"
        raise TeacherError(
            f"teacher {teacher} with {points} points{others} failed: {reason}. The other {done} teachers have voted"
        )


def _one_teacher(
    task: tuple[int, Ints],
    *,
    estimator: Any,
    X: NDArray[Any],
    y: Ints,
    X_public: NDArray[Any],
    seed: int,
    classes: int,
) -> NDArray[Any] | str:
    """Train one teacher on its rows and return its votes, or the reason why it could not."""
    teacher, rows = task
    try:
        known = np.unique(y[rows])
        if known.size < 2:  # no data, or one class: there is nothing to learn
            only = int(known[0]) if known.size else FIXED_CLASS
            return np.full(len(X_public), only, dtype=vote_dtype(classes))
        model = _own_copy(estimator, teacher, seed)
        with _libraries(len(sys.modules)).limit(limits=1):  # threads inside small models get into each other's way
            model.fit(X[rows], y[rows])
            return hear(model, X_public, n_classes=classes)
    except Exception as error:  # a worker must hand its reason back, whatever it is
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def hear(model: Any, X: NDArray[Any], *, n_classes: int) -> NDArray[Any]:
    """Return a trained model's votes, some points at a time; a vote for no class is an error, never another class."""
    votes = np.empty(len(X), dtype=vote_dtype(n_classes))
    for start in range(0, len(X), _CHUNK):
        own = np.array(X[start : start + _CHUNK])  # a model that works in place spoils only its own
        heard = np.asarray(model.predict(own))
        if not (heard.min() >= 0 and heard.max() < n_classes):
            raise ValueError(f"it votes for class {heard.min()} or {heard.max()}: there are {n_classes}, from 0 on")
        votes[start : start + _CHUNK] = heard
    return votes


@lru_cache(maxsize=1)
def _libraries(modules: int) -> Any:
    """Return the libraries that have threads: looked for again only where modules were imported since.

    Looking takes a good part of the time of a small teacher.
    """
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _own_copy(estimator: Any, teacher: int, seed: int) -> Any:
    """Clone the estimator and seed every `random_state` in it from the split seed and the teacher."""
    from sklearn.base import clone

    model = clone(estimator)
    names = sorted(name for name in model.get_params(deep=True) if name.split("__")[-1] == "random_state")
    states = np.random.SeedSequence([seed, teacher]).generate_state(max(1, len(names)))
    model.set_params(**{name: int(state % (2**31)) for name, state in zip(names, states, strict=False)})
    return model


def _check_features(estimator: Any, X: NDArray[Any], what: str) -> None:
    """Refuse features that are not finite, unless the estimator says it can take them."""
    if X.dtype.kind != "f":
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
    """Whether an estimator takes NaN; a pipeline does if its first step does."""
    from sklearn.utils import get_tags

    first = estimator.steps[0][1] if getattr(estimator, "steps", None) else estimator
    return bool(get_tags(first).input_tags.allow_nan)


def fingerprint(*parts: Any) -> str:
    """Return a hash of what votes depend on: arrays by content, estimators by all their parameters."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype}{part.shape}".encode())
            for start in range(0, len(part) if part.ndim else 0, 4096):
                digest.update(np.ascontiguousarray(part[start : start + 4096]).tobytes())
        elif hasattr(part, "get_params"):
            settings = sorted((name, repr(value)) for name, value in part.get_params(deep=True).items())
            digest.update(f"{type(part).__module__}.{type(part).__qualname__}{settings}".encode())
        else:
            digest.update(repr(part).encode())
        digest.update(b"\0")
    return digest.hexdigest()[:32]


def learnt_from(X: NDArray[Any], y: Ints, rows: Sequence[Ints]) -> list[bytes]:
    """Return a hash of what each teacher learns from: the content of its rows, so it covers nobody else's."""
    return [bytes.fromhex(fingerprint(X[own], y[own])) for own in rows]
