"""A site's teachers, kept: trained once, loaded from the site's own folder alone, heard whenever it votes.

Models are kept by joblib, which is pickle: whoever can write such a file can run code here. So a model is loaded
only from the private folder of its own site, only while nobody but its owner can write there, and only if it is
byte for byte the one that was trained. Vote files, which travel, hold no models and are never unpickled.
"""

import io
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.errors import InputError, TeacherError
from ipate.parties.archive import sha256
from ipate.teachers.ensemble import FIXED_CLASS, _own_copy, hear

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class FixedVote:
    """A teacher that has nothing to learn from, no data or one class: it always votes the same."""

    label: int

    def predict(self, X: NDArray[Any]) -> Ints:
        """Return the one class for every row."""
        return np.full(len(X), self.label, dtype=np.int64)


def make_teacher(name: str) -> Any:
    """Return the classifier of this name, not yet trained, as `ipate.teachers.models.make_model` knows it.

    Fixed bounds are wide, and a regularised linear model learns little from features that use a corner of [0, 1].
    So 'logistic' standardises inside the teacher, by that teacher's own rows, which its one vote covers.
    """
    from ipate.teachers.models import make_model

    model = make_model(name, {})
    if name != "logistic":
        return model
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), model)


def fit_teachers(
    estimator: Any,
    X: NDArray[Any],
    y: Ints,
    *,
    rows: Sequence[Ints],
    folder: Path,
    seed: int,
    n_jobs: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[str, ...]:
    """Train a teacher on each set of rows and keep it in `folder`; those that are there are not trained again.

    Parameters
    ----------
    estimator, X, y, rows, seed, n_jobs, progress
        As in `ipate.teachers.train_and_vote`; the same seed gives the same teachers.
    folder : path
        A private folder.

    Returns
    -------
    tuple of str
        The hash of every teacher's file, by which it is known again.
    """
    from joblib import Parallel, delayed

    missing = [teacher for teacher in range(len(rows)) if not _file(folder, teacher).exists()]
    done, failures = len(rows) - len(missing), []
    tasks = (
        delayed(_fit_one)(estimator, (X[rows[teacher]], y[rows[teacher]]), teacher, seed, _file(folder, teacher))
        for teacher in missing
    )
    results = Parallel(n_jobs=n_jobs, return_as="generator_unordered", pre_dispatch="2*n_jobs")(tasks)
    for teacher, reason in results:
        if reason:
            failures.append((teacher, reason))
            continue
        done += 1
        if progress is not None:
            progress(done)
    if failures:
        teacher, reason = min(failures)
        others = "" if len(failures) == 1 else f" and {len(failures) - 1} others"
        raise TeacherError(f"teacher {teacher}{others} failed: {reason}. The other {done} teachers are kept")
    return tuple(sha256(_file(folder, teacher).read_bytes()) for teacher in range(len(rows)))


def _file(folder: Path, teacher: int) -> Path:
    return folder / f"{teacher:05d}.joblib"


def _fit_one(estimator: Any, own: tuple[NDArray[Any], Ints], teacher: int, seed: int, path: Path) -> tuple[int, str]:
    """Train one teacher and keep it; returns the reason where it could not."""
    import joblib
    from threadpoolctl import threadpool_limits

    X, y = own
    try:
        known = np.unique(y)
        model: Any = FixedVote(int(known[0]) if known.size else FIXED_CLASS)
        if known.size > 1:
            model = _own_copy(estimator, teacher, seed)
            with threadpool_limits(1):
                model.fit(X, y)
        aside = path.with_suffix(f".{os.getpid()}.part")
        joblib.dump(model, aside)
        aside.replace(path)
    except Exception as error:  # a worker must hand its reason back, whatever it is
        return teacher, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return teacher, ""


def check_private(folder: Path) -> None:
    """Refuse to load models from a folder that lies elsewhere, or that somebody else owns or can write to."""
    if folder.is_symlink():
        raise InputError(f"{folder}: is a link; a site's private folder must lie in the site itself")
    found = folder.stat()
    if os.name == "posix" and (found.st_uid != os.geteuid() or found.st_mode & 0o022):
        raise InputError(
            f"{folder}: others own it or can write to it, and whoever writes a model can run code here; if you trust "
            "what is in it, make it yours alone (chown, chmod 700)"
        )


def hear_teachers(
    folder: Path, hashes: Sequence[str], X: NDArray[Any], *, n_classes: int, n_jobs: int | None = None
) -> Iterator[NDArray[Any]]:
    """Yield the votes of every teacher in turn, one row of class ids each."""
    from joblib import Parallel, delayed

    check_private(folder.parent)
    check_private(folder)
    tasks = (delayed(_hear_one)(_file(folder, teacher), known, X, n_classes) for teacher, known in enumerate(hashes))
    yield from Parallel(n_jobs=n_jobs, return_as="generator", pre_dispatch="2*n_jobs")(tasks)


def _hear_one(path: Path, known: str, X: NDArray[Any], n_classes: int) -> NDArray[Any]:
    """Load one teacher, if it is the one that was trained, and let it vote."""
    import joblib
    from threadpoolctl import threadpool_limits

    if path.is_symlink() or not path.is_file():
        raise InputError(f"{path}: the teacher is not there, or is a link to elsewhere; fit the site again")
    data = path.read_bytes()
    if sha256(data) != known:
        raise InputError(f"{path}: this is not the teacher that was trained, and it is not loaded; fit the site again")
    try:
        model = joblib.load(io.BytesIO(data))
        with threadpool_limits(1):
            return hear(model, X, n_classes=n_classes)
    except Exception as error:  # a model may fail in any way; which one, and how, is said in one line
        reason = " ".join(str(error).split())[:300]
        raise TeacherError(f"{path}: the teacher cannot vote ({type(error).__name__}: {reason})") from None
