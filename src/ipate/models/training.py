"""Teachers are each fitted on the rows of their own people and vote on public points.

Any scikit-learn classifier is trained teacher by teacher; nets are trained in blocks of teachers, as one batched model
on a GPU or in worker processes on a CPU.
"""

import os
import random
from collections.abc import Callable, Generator, Mapping, MutableMapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ipate._types import Ints
from ipate.data.frames import incomplete, is_frame, n_rows, take
from ipate.errors import InputError, show
from ipate.models.isolation import FIT, VOTE, Attempt, attempt, lines, set_apart
from ipate.models.workers import Backend, Died

Notes: TypeAlias = MutableMapping[int, list[str]]  # by teacher: why it failed and what it said; always private
FIXED_CLASS = 0  # the vote of a teacher without data or that failed; it is public and does not depend on who left
BLOCK = 250  # nets per call of train_ensemble; an interrupted block is trained again
_CHUNK = 16_384  # public points that a teacher predicts in one call


def vote_dtype(n_classes: int) -> np.dtype[Any]:
    """Return the smallest integer type that holds every class id."""
    return np.dtype(np.uint8 if n_classes <= 256 else np.uint16)


def train_and_vote(
    estimator: Any,
    X: Any,
    y: Ints,
    *,
    rows: Sequence[Ints],
    X_public: Any,
    n_classes: int,
    missing: Sequence[int] | None = None,
    seed: int = 0,
    n_jobs: int | None = None,
    backend: str | None = None,
    address: str | None = None,
    cpu_seconds: float | None = None,
    progress: Callable[[int], None] | None = None,
    notes: Notes | None = None,
) -> Generator[tuple[int, NDArray[Any]], None, None]:
    """Train the `missing` teachers (default: all) on private X (n, ...) and class ids y; yield each with its votes.

    `estimator` is cloned for each teacher, `rows` holds each teacher's rows of X, `progress` receives the number of
    teachers that have voted. X may also be a sparse matrix or a frame; workers then get slices of it. Teachers come in
    any order. The votes depend on the data and on `seed` (the split seed) alone, not on the engine (`n_jobs`, `backend`
    and `address` are those of `Backend`) nor on the order of training.
    A teacher that fails, or whose fit or vote takes more than `cpu_seconds` of CPU time, votes `FIXED_CLASS`; `notes`
    receives the reason and whatever teachers warned, logged or printed.
    """
    engine = Backend(backend=backend, n_jobs=n_jobs, address=address)
    check_public(estimator, X_public)
    shared = {
        "estimator": estimator,
        "X_public": X_public,
        "seed": seed,
        "classes": n_classes,
        "cpu_seconds": cpu_seconds,
        "home": os.getpid(),
    }
    if isinstance(X, np.ndarray):  # sent to each worker once
        shared |= {"X": X, "y": y}
    wanted = range(len(rows)) if missing is None else missing
    fixed = np.full(n_rows(X_public), FIXED_CLASS, dtype=vote_dtype(n_classes))
    found = run_teachers(
        _one_teacher,
        engine,
        rows=rows,
        missing=wanted,
        shared=shared,
        progress=progress,
        notes=notes,
        sent=None if "X" in shared else lambda own: (take(X, own), y[own]),
    )
    with closing(found):
        for teacher, done in found:
            yield teacher, fixed.copy() if done.failed else done.result


def run_teachers(
    function: Callable[..., Any],
    engine: Backend,
    *,
    rows: Sequence[Ints],
    missing: Sequence[int],
    shared: Mapping[str, Any],
    progress: Callable[[int], None] | None,
    notes: Notes | None,
    sent: Callable[[Ints], Any] | None = None,
) -> Generator[tuple[int, Attempt], None, None]:
    """Yield every missing teacher with the attempt that `function((teacher, rows), **shared)` returns, in any order.

    With `sent`, a worker gets `sent(rows)` instead of the rows' numbers.
    """
    done = len(rows) - len(missing)
    tasks = {teacher: (teacher, rows[teacher] if sent is None else sent(rows[teacher])) for teacher in missing}
    with closing(engine.run(function, tasks, shared=shared)) as results:
        for teacher, result in results:
            found = Attempt(failed=str(result)) if isinstance(result, Died) else result
            if notes is not None and found.notes:
                notes[teacher] = found.notes
            yield teacher, found
            done += 1
            if progress is not None:
                progress(done)


def _one_teacher(
    task: tuple[int, Any],
    *,
    estimator: Any,
    X_public: Any,
    seed: int,
    classes: int,
    cpu_seconds: float | None,
    home: int,
    X: NDArray[Any] | None = None,
    y: Ints | None = None,
) -> Attempt:
    """Train one teacher on its rows of X and y, or on the slices that its task holds, and let it vote."""
    teacher, own = task
    features, targets = own if X is None or y is None else (X[own], y[own])
    fitted = attempt(
        lambda: fit_teacher(estimator, features, targets, teacher=teacher, seed=seed),
        key=(seed, teacher, FIT),
        cpu_seconds=cpu_seconds,
        home=home,
    )
    if fitted.failed:
        return fitted
    voted = attempt(
        lambda: predict_votes(fitted.result, X_public, n_classes=classes),
        key=(seed, teacher, VOTE),
        cpu_seconds=cpu_seconds,
        home=home,
    )
    return replace(voted, said=(*fitted.said, *voted.said))


def fit_teacher(estimator: Any, X: Any, y: Ints, *, teacher: int, seed: int) -> Any:
    """Fit one teacher on its own rows, with generators seeded by the split seed and the teacher's index.

    A row trains no teacher if its label is no class (−1), or if its features are not finite and the estimator does
    not take that. Without rows, or with rows of one class, there is nothing to learn: the vote is always the same.
    """
    usable = y >= 0
    if isinstance(X, np.ndarray) and X.dtype.kind == "f":
        flat = X.reshape(len(X), -1)
        usable &= ~np.isinf(flat).any(axis=1) if allows_missing(estimator) else np.isfinite(flat).all(axis=1)
    if not usable.all():
        X, y = take(X, np.flatnonzero(usable)), y[usable]
    known = np.unique(y)
    if known.size < 2:
        return constant_teacher(int(known[0]) if known.size else FIXED_CLASS)
    return own_copy(estimator, teacher=teacher, seed=seed).fit(X, y)


def constant_teacher(only: int = FIXED_CLASS) -> Any:
    """Return a fitted classifier that always votes for one class."""
    from sklearn.dummy import DummyClassifier

    return DummyClassifier(strategy="constant", constant=only).fit([[0]], [only])


def own_copy(estimator: Any, *, teacher: int, seed: int) -> Any:
    """Return a clone whose every `random_state` and every generator among its parameters is the teacher's own."""
    from sklearn.base import clone

    model = clone(estimator)
    parameters = model.get_params(deep=True)
    names = sorted(name for name in parameters if name.split("__")[-1] == "random_state")
    states = np.random.SeedSequence([seed, teacher]).generate_state(max(1, len(names)))
    model.set_params(**{name: int(state % (2**31)) for name, state in zip(names, states, strict=False)})
    fresh = np.random.SeedSequence([seed, teacher, FIT, 1])
    for name, value in sorted(parameters.items()):
        if name in names:
            continue
        if (own := _own_generator(value, fresh)) is not None:
            model.set_params(**{name: own})
        elif not hasattr(value, "get_params") and hasattr(value, "__dict__") and not isinstance(value, type):
            for part, held in list(vars(value).items()):  # a splitter of folds, for example
                if (own := _own_generator(held, fresh)) is not None:
                    setattr(value, part, own)
    return model


def _own_generator(value: Any, fresh: np.random.SeedSequence) -> Any:
    """Return a new generator of the same kind if the value is one, else None."""
    if isinstance(value, np.random.RandomState):
        return np.random.RandomState(np.random.MT19937(fresh.spawn(1)[0]))
    if isinstance(value, np.random.Generator):
        return np.random.default_rng(fresh.spawn(1)[0])
    if isinstance(value, random.Random):
        return random.Random(int(fresh.spawn(1)[0].generate_state(1)[0]))  # noqa: S311 - not the privacy noise
    return None


def predict_votes(model: Any, X: Any, *, n_classes: int) -> NDArray[Any]:
    """Return a fitted teacher's votes, in chunks; a prediction that is no class id raises an error."""
    votes = np.empty(n_rows(X), dtype=vote_dtype(n_classes))
    for start in range(0, len(votes), _CHUNK):
        own = take(X, np.arange(start, min(start + _CHUNK, len(votes))))  # a copy: a model may work in place
        found = np.asarray(model.predict(own))
        if found.shape != (n_rows(own),) or found.dtype.kind not in "biuf":
            raise ValueError(
                f"it votes with {found.dtype} of the shape {found.shape}: one class id per point is needed"
            )
        if not (found.min() >= 0 and found.max() < n_classes and np.all(found == np.floor(found))):
            raise ValueError(f"it votes for class {found.min()} or {found.max()}: there are {n_classes}, from 0 on")
        votes[start : start + _CHUNK] = found
    return votes


def train_nets_and_vote(
    estimator: Any,
    X: NDArray[Any],
    y: Ints,
    *,
    rows: Sequence[Ints],
    slots: Ints,
    X_public: NDArray[Any],
    n_classes: int,
    missing: Sequence[int],
    seed: int = 0,
    device: str = "auto",
    n_jobs: int = 1,
    progress: Callable[[int], None] | None = None,
    notes: Notes | None = None,
) -> Generator[tuple[int, NDArray[Any]], None, None]:
    """Train the missing nets in blocks, and yield each with its votes; one that fails votes `FIXED_CLASS`.

    The preset, epochs and steps are those of `estimator`, a TorchClassifier; the seed of a block is derived
    from `seed`. `slots` is the number of people dealt to each teacher. The length of training follows from it
    alone, and it is public: nobody's rows, and nobody who left, change the training of other teachers.
    """
    from ipate.torch.nets import find_preset
    from ipate.torch.training import train_ensemble

    preset = find_preset(estimator.preset).lasting(epochs=estimator.epochs, steps=estimator.steps)
    steps = preset.n_steps(float(np.mean(slots)))
    left, usable = frozenset(missing), y >= 0
    if X.dtype.kind == "f":
        usable &= np.isfinite(X.reshape(len(X), -1)).all(axis=1)
    for start in range(0, len(rows), BLOCK):
        block = range(start, min(start + BLOCK, len(rows)))
        wanted = [teacher for teacher in block if teacher in left]
        if not wanted:
            continue
        nothing = np.empty(0, dtype=np.int64)  # a teacher that has voted is not trained again but keeps its number
        members = [rows[teacher][usable[rows[teacher]]] if teacher in left else nothing for teacher in block]
        heard: list[str] = []
        with set_apart(heard, key=(seed, start)):
            ensemble = train_ensemble(
                X,
                y,
                members,
                n_classes=n_classes,
                preset=estimator.preset,
                steps=steps,
                seed=int(np.random.SeedSequence([seed, start]).generate_state(1)[0]),
                device=device,
                n_jobs=n_jobs,
                fixed_class=FIXED_CLASS,
                on_failure="fixed",
                progress=_counted(progress, start, steps),
            )
            votes = np.concatenate([part for _, part in ensemble.vote(X_public)], axis=1)
        if notes is not None:
            for failure in ensemble.failures:
                notes[start + failure.teacher] = [f"failed: {failure.reason}"]
            if said := lines(heard):
                notes[start] = [*notes.get(start, []), f"teachers {start} to {block[-1]}, trained together:", *said]
        for teacher in wanted:
            yield teacher, votes[teacher - start]


def _counted(progress: Callable[[int], None] | None, first: int, steps: int) -> Callable[[int, int], None] | None:
    """Turn a block's count of steps × teachers into the number of teachers trained so far in all blocks."""
    if progress is None:
        return None
    return lambda done, _: progress(first + done // steps)


def check_public(estimator: Any, X: Any, *, called: str = "public features", what: str = "teacher") -> None:
    """Refuse public features that are not finite; missing ones are allowed if the estimator may support them."""
    allowed = allows_missing(estimator)
    if is_frame(X) and not allowed and hasattr(estimator, "__sklearn_tags__"):
        for name in incomplete(X):
            raise InputError(
                f"{called}: missing values in the column {show(name)}, and the {what} is "
                f"{type(estimator).__name__}, which takes none: put an imputer into its pipeline, or fill them in"
            )
    if not isinstance(X, np.ndarray) or X.dtype.kind != "f":
        return
    for start in range(0, len(X), 65536):
        block = X[start : start + 65536].reshape(len(X[start : start + 65536]), -1)
        bad = np.isinf(block) if allowed else ~np.isfinite(block)
        if bad.any():
            row, column = (int(place[0]) for place in np.nonzero(bad))
            raise InputError(
                f"{called}: {block[row, column]} in row {start + row}, column {column}; fill or drop such rows, or "
                f"put an imputer into the {what}'s pipeline"
            )


def allows_missing(estimator: Any) -> bool:
    """Return whether an estimator may accept NaN: it does, or a part of it that could be an imputer does."""
    from sklearn.utils import get_tags

    inner = estimator.get_params(deep=True).values() if hasattr(estimator, "get_params") else ()
    parts = [estimator, *(part for part in inner if hasattr(part, "fit"))]
    try:
        return any(get_tags(part).input_tags.allow_nan for part in parts)
    except (AttributeError, TypeError):  # no estimator of scikit-learn's
        return False
