"""The teachers of a site: fitted and stored one by one, loaded to vote, and what they said noted privately."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ipate.errors import InputError
from ipate.files import replacing, write_text
from ipate.parties.exchange import sha256
from ipate.teachers.ensemble import Ints, fit_teacher, predict_votes
from ipate.teachers.isolation import FIT, VOTE, Attempt, attempt


def teacher_file(folder: Path, teacher: int) -> Path:
    """Return the file of one teacher."""
    return folder / f"{teacher:05d}.joblib"


def make_teacher(name: str) -> Any:
    """Return the unfitted classifier of this name; 'logistic' standardises by the teacher's own rows, within its vote.

    Public bounds are wide, and a regularised linear model learns little from features that use a small part of [0, 1].
    """
    from ipate.teachers.models import make_model

    model = make_model(name, {})
    if name != "logistic":
        return model
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), model)


def fit_one(
    task: tuple[int, Ints], *, estimator: Any, X: NDArray[Any], y: Ints, seed: int, folder: Path,
    cpu_seconds: float | None, home: int,
) -> Attempt:  # fmt: skip
    """Train one teacher and store it."""
    teacher, rows = task
    done = attempt(
        lambda: pickled(fit_teacher(estimator, X[rows], y[rows], teacher=teacher, seed=seed)),
        key=(seed, teacher, FIT), cpu_seconds=cpu_seconds, home=home,
    )  # fmt: skip
    if not done.failed:
        store(teacher_file(folder, teacher), done.result)
    return replace(done, result=None)


def pickled(model: Any) -> bytes:
    """Return a model as joblib stores it."""
    import joblib

    joblib.dump(model, held := io.BytesIO())
    return held.getvalue()


def store(path: Path, model: bytes) -> None:
    """Write a teacher's file atomically, readable by its owner only."""
    with replacing(path, private=True) as file:
        file.write(model)


def load_and_vote(
    task: tuple[int, Ints], *, folder: Path, hashes: tuple[str, ...], X: NDArray[Any], n_classes: int,
    cpu_seconds: float | None, home: int,
) -> Attempt:  # fmt: skip
    """Load one teacher, if its file has the known hash, and let it vote."""
    import joblib

    teacher, path = task[0], teacher_file(folder, task[0])
    if path.is_symlink() or not path.is_file():
        raise InputError(f"{path}: the teacher is missing, or is a link; fit the site again")
    data = path.read_bytes()
    if sha256(data) != hashes[teacher]:
        raise InputError(f"{path}: this is not the teacher that was trained, and it is not loaded; fit the site again")
    return attempt(
        lambda: predict_votes(joblib.load(io.BytesIO(data)), X, n_classes=n_classes),
        key=(teacher, VOTE), cpu_seconds=cpu_seconds, home=home,
    )  # fmt: skip


def note(private: Path, **sections: Any) -> None:
    """Add sections to the private notes: teachers that failed, and what teachers warned, logged or printed."""
    path = private / "notes.json"
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    write_text(path, json.dumps(kept | sections, indent=2, ensure_ascii=False) + "\n")
