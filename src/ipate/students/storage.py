"""Files of trained models: skops or npz, which run no code when they are read, and pickles for everything else."""

import hashlib
import io
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ipate.errors import InputError
from ipate.files import replacing

Format: TypeAlias = Literal["skops", "npz", "pickle"]
FILES: dict[Format, str] = {"skops": "model.skops", "npz": "model.npz", "pickle": "model.pickle.joblib"}
TRUSTED = (  # beside what skops itself trusts; none of these runs code of the file
    "collections.OrderedDict",
    "functools.partial",
    "ipate.public.features.Features",
    "ipate.students.graph.GraphStudent",
    "lightgbm.basic.Booster",
    "lightgbm.sklearn.LGBMClassifier",
    "numpy.dtype",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.metrics._dist_metrics.EuclideanDistance64",
    "sklearn.metrics._scorer._PassthroughScorer",
    "sklearn.model_selection._split.StratifiedKFold",
    "sklearn.neighbors._ball_tree.BallTree",
    "sklearn.neighbors._kd_tree.KDTree",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.tree._tree.Tree",
    "sklearn.utils.validation.check_array",
)


def write_model(model: Any, folder: Path) -> dict[str, Any]:
    """Write a model in the first format that suits it; return its file, format and SHA-256, and the types to trust."""
    found: tuple[Format, bytes] | None = _as_npz(model) or _as_skops(model)
    kind, data = found or ("pickle", _pickled(model))
    for name in FILES.values():
        (folder / name).unlink(missing_ok=True)
    with replacing(folder / FILES[kind]) as file:
        file.write(data)
    trusted = _extra_types(data) if kind == "skops" else []
    return {"file": FILES[kind], "format": kind, "sha256": hashlib.sha256(data).hexdigest(), "trusted": trusted}


def _as_npz(model: Any) -> tuple[Format, bytes] | None:
    """Return a net of the torch room as its parameters and a description; None for everything else."""
    if type(model).__module__ != "ipate.torch.estimator" or not hasattr(model, "student_"):
        return None
    buffer = io.BytesIO()
    try:
        model.student_.save(buffer)
    except InputError:  # a net that is not built in
        return None
    return "npz", buffer.getvalue()


def _as_skops(model: Any) -> tuple[Format, bytes] | None:
    """Return a model as skops if all of its types are trusted; None otherwise."""
    import skops.io

    try:
        data = skops.io.dumps(model)
    except Exception:  # skops fails in many ways for types that it does not know
        return None
    return ("skops", data) if set(_extra_types(data)) <= set(TRUSTED) else None


def _extra_types(data: bytes) -> list[str]:
    """Return the types in a skops file that skops itself does not trust."""
    import skops.io

    return sorted(skops.io.get_untrusted_types(data=data))


def _pickled(model: Any) -> bytes:
    import joblib

    buffer = io.BytesIO()
    joblib.dump(model, buffer, compress=3)
    return buffer.getvalue()


def read_model(path: Path, kind: str, *, sha256: str, allow_pickle: bool, classes: Any = None) -> Any:
    """Read a model; a damaged file, an untrusted type, and a pickle without `allow_pickle` are refused."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    if kind == "pickle" and not allow_pickle:
        raise InputError(
            f"{path} is a pickle, and reading one runs whatever code is in it: if you trust its origin, load it with "
            "--allow-pickle, or allow_pickle=True in Python"
        )
    if hashlib.sha256(data).hexdigest() != sha256:
        raise InputError(f"{path} is not the file that student.json describes: it is damaged or was replaced")
    try:
        return _READERS[kind](data, path, classes)
    except InputError:
        raise
    except Exception as error:
        why = " ".join(str(error).split())[:200]
        raise InputError(f"{path}: the model cannot be read ({type(error).__name__}: {why})") from None


def _read_skops(data: bytes, path: Path, classes: Any) -> Any:
    import skops.io

    unknown = sorted(set(_extra_types(data)) - set(TRUSTED))
    if unknown:
        raise InputError(f"{path} holds the type {unknown[0]}, which is not trusted: the file is refused")
    return skops.io.loads(data, trusted=list(TRUSTED))


def _read_npz(data: bytes, path: Path, classes: Any) -> Any:
    from ipate.torch import Student
    from ipate.torch.contrastive import NET as FIXMATCH
    from ipate.torch.estimator import FixMatchClassifier, TorchClassifier

    trained = Student.load(io.BytesIO(data), device="cpu")
    name = trained.ensemble.net.name
    model = FixMatchClassifier(device="cpu") if name == FIXMATCH.name else TorchClassifier(preset=name, device="cpu")
    model.student_, model.classes_ = trained, classes
    return model


def _read_pickle(data: bytes, path: Path, classes: Any) -> Any:
    import joblib

    return joblib.load(io.BytesIO(data))


_READERS = {"skops": _read_skops, "npz": _read_npz, "pickle": _read_pickle}
