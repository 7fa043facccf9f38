"""Npz files: `X` and `y`, and if wanted `levels` or `epsilon`, `person`, `feature_names` and `classes`."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.data.columns import Columns, Labels, Roles, as_text, check_epsilon, check_finite, label_array
from ipate.data.words import nearest
from ipate.errors import InputError
from ipate.npz import read_npz
from ipate.tables import show

__all__ = ["read_arrays"]

_DEFAULTS = {"label": "y", "level": "levels", "epsilon": "epsilon", "person": "person"}


def read_arrays(
    path: Path, roles: dict[str, Any], classes: tuple[str, ...] | None
) -> tuple[Columns, tuple[str, ...] | None]:
    """Read the arrays of an npz file, and the class set that is given or that the file states.

    `label`, `level`, `epsilon` and `person` name arrays here; unless named, they are `y`, `levels`, `epsilon`
    and `person`, the last three where the file has them. Labels that are whole numbers, in a class set of
    words, are places in it.
    """
    there = _names(path)
    used = {role: _pick(path, there, role, roles[role]) for role in _DEFAULTS}
    if used["level"] and used["epsilon"]:
        if (roles["level"] is None) == (roles["epsilon"] is None):
            raise InputError(f"{path} has levels and epsilon: a row has one of them; name the one to use")
        used["level" if roles["level"] is None else "epsilon"] = None
    if "X" not in there:
        raise InputError(f"{path} has no array 'X': it must hold the features; it has {', '.join(there)}")
    extra = {"X", "feature_names", "classes"}
    arrays = read_npz(path, extra | {name for name in used.values() if name})

    def where(row: int) -> str:
        return f"{path}, row {row}"

    X, names = _features(path, arrays, roles["features"])
    for name in filter(None, used.values()):
        if arrays[name].shape != (len(X),):
            raise InputError(f"{path}: {name!r} has the shape {arrays[name].shape}: X has {len(X)} rows")
    check_finite(X, names, where)
    if classes is None and "classes" in arrays:
        classes = tuple(str(name) for name in arrays["classes"].ravel())
    level, person, epsilon = used["level"], used["person"], used["epsilon"]
    columns = Columns(
        X=X,
        labels=_labels(arrays[used["label"] or "y"], classes, where),
        levels=as_text(arrays[level], level, where) if level else None,
        epsilon=check_epsilon(_floats(path, arrays[epsilon], epsilon), epsilon, where) if epsilon else None,
        person_id=as_text(arrays[person], person, where) if person else None,
        feature_names=names,
        where=where,
    )
    return columns, classes


def _names(path: Path) -> list[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except zipfile.BadZipFile as error:
        raise InputError(f"{path}: not a readable npz file ({error})") from None


def _pick(path: Path, there: list[str], role: str, asked: str | None) -> str | None:
    name = asked or _DEFAULTS[role]
    if name in there:
        return name
    if asked is None and role != "label":
        return None
    close = f": nearest is {nearest(name, there)}" if there else ": it is empty"
    raise InputError(f"{path} has no array {show(name)} ({role}){close}")


def _features(
    path: Path, arrays: dict[str, NDArray[Any]], chosen: tuple[str, ...] | None
) -> tuple[NDArray[Any], tuple[str, ...]]:
    X = arrays["X"]
    if X.ndim not in (2, 3, 4) or X.size == 0:
        raise InputError(f"{path}: 'X' has the shape {X.shape}: it must be (rows, features) or images, none of them 0")
    if X.dtype.kind not in "fiub":
        raise InputError(f"{path}: 'X' is of type {X.dtype}: features must be numbers; encode them")
    names = tuple(str(name) for name in arrays["feature_names"].ravel()) if "feature_names" in arrays else ()
    if names and (X.ndim != 2 or len(names) != X.shape[1]):
        raise InputError(f"{path}: 'feature_names' has {len(names)} names: X has the shape {X.shape}")
    if chosen is not None:
        if not names:
            raise InputError(f"{path} has no 'feature_names': features= needs them")
        roles = Roles(label="\0", features=chosen)  # a name that no feature has
        roles.match([*names, "\0"], file=str(path))
        X, names = X[:, [names.index(name) for name in chosen]], chosen
    if X.ndim == 2 and X.dtype not in (np.float32, np.float64):
        X = X.astype(np.float64)
    return X, names


def _floats(path: Path, values: NDArray[Any], name: str) -> NDArray[np.float64]:
    if values.dtype.kind not in "fiu":
        raise InputError(f"{path}: {name!r} is of type {values.dtype}: it must hold numbers")
    return values.astype(np.float64)


def _labels(values: NDArray[Any], classes: tuple[str, ...] | None, where: Any) -> Labels:
    labels = label_array(values, "y", where)
    if classes is None or values.dtype.kind not in "iu" or any(name.lstrip("-").isdigit() for name in classes):
        return labels
    for code, name in enumerate(labels.names):
        if not 0 <= int(name) < len(classes):
            row = int(np.flatnonzero(labels.codes == code)[0])
            raise InputError(f"{where(row)}: y is {name}: places in the class set go from 0 to {len(classes) - 1}")
    return Labels([classes[int(name)] for name in labels.names], labels.codes)
