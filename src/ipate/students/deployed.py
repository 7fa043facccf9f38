"""Files of trained models: skops or npz, which run no code when they are read, and pickles for everything else.

The columns of a DataFrame that a student learnt from, so that a file can be read as the same kind of frame.

The deployed student: a trained model with its classes, its columns and the public schema, in a folder of its own.
"""

import hashlib
import io
import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.metaestimators import available_if

from ipate._version import library_versions
from ipate.data import cells
from ipate.data.dataset import images_to_float
from ipate.data.raw import open_table
from ipate.data.schema import Feature, Schema
from ipate.errors import InputError, show
from ipate.files import json_text, replacing, write_csv, write_text
from ipate.students.card import card, example, made_up_rows
from ipate.students.student import NamedClassifier, class_names, has, over_all_classes

Format: TypeAlias = Literal["skops", "npz", "pickle"]
FILES: dict[Format, str] = {"skops": "model.skops", "npz": "model.npz", "pickle": "model.pickle.joblib"}
TRUSTED = (  # beside what skops itself trusts; none of these runs code of the file
    "collections.OrderedDict",
    "functools.partial",
    "ipate.public.features.Features",
    "ipate.students.spreading.GraphStudent",
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


_LIBRARIES = ("pandas", "polars", "pyarrow")


def describe(X: Any) -> dict[str, Any] | None:
    """Return the library of a public frame and the kind of each column, with the values of categories.

    None for an array, and for a frame whose columns have no names, which scikit-learn treats as an array.
    """
    import narwhals.stable.v2 as nw

    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame) or not all(isinstance(name, str) for name in frame.columns):
        return None
    columns = [{"name": name, **_kind(frame[name])} for name in frame.columns]
    return {"library": str(frame.implementation).rpartition(".")[2].lower(), "columns": columns}


def _kind(column: Any) -> dict[str, Any]:
    import narwhals.stable.v2 as nw

    if column.dtype in (nw.Categorical, nw.Enum):
        return {"kind": "category", "values": [str(value) for value in column.cat.get_categories().to_list()]}
    if column.dtype.is_numeric():
        return {"kind": "number"}
    text = column.dtype in (nw.String, nw.Object)
    return {"kind": "text" if text else str(column.dtype)}


def as_frame(X: Any, described: Mapping[str, Any]) -> Any:
    """Return the student's columns of a frame as they are, or of a file or mapping as a frame of the same library."""
    import narwhals.stable.v2 as nw

    names = [column["name"] for column in described["columns"]]
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        for name in names:
            if name not in frame.columns:
                raise InputError(f"the table has no column {show(name)}: it must have {', '.join(names)}")
        return frame.select(names).to_native()
    table, library = open_table(X, columns=names), described["library"]
    if library not in _LIBRARIES:
        raise InputError(f"the student takes frames of {library}: pass one instead of a file")
    read = {column["name"]: _cells(table.column(column["name"]), column) for column in described["columns"]}
    if library != "pandas":
        import_module(library)
        return nw.from_dict(read, backend=library).to_native()
    import pandas as pd

    values = {column["name"]: column.get("values") for column in described["columns"]}
    return pd.DataFrame(
        {
            name: own if values[name] is None else pd.Categorical(own, categories=values[name])
            for name, own in read.items()
        }
    )


def _cells(column: Any, described: Mapping[str, Any]) -> Any:
    if described["kind"] == "number":
        return cells.numbers(column)
    if described["kind"] in ("text", "category"):
        found = cells.texts(column).astype(object)
        found[found == ""] = None
        return found
    name = described["name"]
    raise InputError(f"column {show(name)} is of type {described['kind']}, which no file holds: pass a DataFrame")


_FORMAT = "ipate student 1"


@dataclass(frozen=True, kw_only=True, eq=False)
class DeployedStudent:
    """A trained student that takes a raw table in any order of columns and predicts class names.

    It is made by `ipate run` and by `PATEClassifier.save_student`, and read by `ipate.load_student`.

    Attributes
    ----------
    model : classifier
        The trained model alone; it takes rows that are encoded already.
    classes_ : array
        The names of all classes; a class without a released label is never predicted.
    schema : Schema or None
        How columns become numbers; None where the model takes a DataFrame or an array as it is.
    frame : mapping or None
        For a model that learnt from a DataFrame: its library and the kinds of its columns.
    image : tuple of int or None
        The shape of one image, (height, width) or (height, width, channels).
    facts : mapping
        What `student.json` says: how the student was made, and for whom which guarantee holds.

    Methods
    -------
    predict(X)
        The class of every row.
    predict_proba(X)
        The probability of every class, with columns as in `classes_`. It exists only if the model has it.
    decision_function(X)
        The model's scores. It exists only if the model has it.
    save(folder)
        Write model, schema, description, model card and example.

    Examples
    --------
    >>> import ipate
    >>> student = ipate.load_student("march")  # doctest: +SKIP
    >>> student.predict(table)  # doctest: +SKIP
    """

    model: Any
    classes_: NDArray[Any]
    schema: Schema | None = None
    frame: Mapping[str, Any] | None = None
    image: tuple[int, ...] | None = None
    channels_first: bool = False  # whether the model takes images as (N, C, H, W) instead of flat rows
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """The columns that a table must have, in any order; images and arrays have none."""
        columns = () if self.frame is None else (column["name"] for column in self.frame["columns"])
        return np.array(list(columns) if self.schema is None else self.schema.names, dtype=object)

    def __repr__(self) -> str:
        return f"DeployedStudent({type(self.model).__name__}, {len(self.classes_)} classes)"

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class name of every row."""
        return self.predict_encoded(self.encode(X))

    def predict_encoded(self, rows: Any) -> NDArray[Any]:
        """Return the class name of every row that `encode` returned."""
        with _unnamed_rows():
            return np.asarray(self.model.predict(rows))

    @available_if(has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of every class, with columns as in `classes_`."""
        return self.proba_encoded(self.encode(X))

    def proba_encoded(self, rows: Any) -> NDArray[np.float64]:
        """Return the probability of every class, for rows that `encode` returned."""
        with _unnamed_rows():
            return self._over_all(self.model.predict_proba(rows), empty=0.0)

    @available_if(has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the model's scores: one column per class, or one number per row if there are two classes."""
        with _unnamed_rows():
            return self._over_all(self.model.decision_function(self.encode(X)), empty=-np.inf)

    def _over_all(self, scores: Any, *, empty: float) -> NDArray[np.float64]:
        return over_all_classes(scores, np.asarray(self.model.classes_), self.classes_, empty=empty)

    def encode(self, X: Any) -> Any:
        """Return a raw table, or images, as the rows that `model` takes.

        A table is a DataFrame, a mapping of columns, or the path of a csv, parquet or npz file.
        """
        if self.image is not None:
            return self._pixels(np.asarray(X))
        if self.schema is not None:
            return self.schema.encode(X)
        return X if self.frame is None else as_frame(X, self.frame)

    def _pixels(self, X: NDArray[Any]) -> NDArray[np.float32]:
        shape, size = self.image or (), math.prod(self.image or ())
        if X.shape[1:] not in (shape, (size,)):
            raise InputError(f"X has the shape {X.shape}: it must be (rows, {', '.join(map(str, shape))})")
        pixels = images_to_float(X)
        if not self.channels_first:
            return pixels.reshape(len(pixels), size)
        pixels = pixels.reshape(len(pixels), *shape)
        return np.moveaxis(pixels, 3, 1) if len(shape) == 3 else pixels

    def save(self, folder: str | Path) -> Path:
        """Write model, schema, description, model card and example into a folder, and return its path.

        `student.json` is written last, so a folder that has it is complete.
        """
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        (target / "student.json").unlink(missing_ok=True)
        facts = self._described(target)
        if self.schema is not None:
            self.schema.write(target / "schema.json")
            write_csv(target / "example.csv", self.schema.names, made_up_rows(self.schema))
        write_text(target / "README.md", card(facts))
        write_text(target / "example.py", example(facts))
        write_text(target / "student.json", json_text(facts))
        return target

    def _described(self, target: Path) -> dict[str, Any]:
        """Write the model and return the contents of `student.json`."""
        wrapped = isinstance(self.model, NamedClassifier)
        bare = self.model.model if wrapped else self.model
        module = type(bare).__module__.partition(".")[0]
        nets = type(bare).__module__.startswith("ipate.torch")
        packages = {"sklearn": "scikit-learn", "ipate": "torch" if nets else "scikit-learn"}
        return {
            "format": _FORMAT,
            **self.facts,
            "model": {
                **write_model(bare, target),
                "type": f"{type(bare).__module__}.{type(bare).__qualname__}",
                "predicts": "indices" if wrapped else "names",
                "classes": np.asarray(bare.classes_).tolist(),
            },
            "classes": self.classes_.tolist(),
            "features": list(map(str, self.feature_names_in_)),
            "inputs": int(getattr(bare, "n_features_in_", 1)),
            "encoded": [] if self.schema is None else list(self.schema.encoded_names),
            "schema": None if self.schema is None else "schema.json",
            "frame": self.frame,
            "image": None if self.image is None else list(self.image),
            "channels_first": self.channels_first,
            "versions": library_versions("skops", packages.get(module, module)),
        }


def plain_schema(names: Sequence[str], public: NDArray[Any]) -> Schema:
    """Return the schema of a table whose columns are numbers as they are; a missing one becomes the public median."""
    found = np.nanmedian(np.asarray(public, dtype=np.float64), axis=0)
    columns = names or [f"x{place}" for place in range(len(found))]
    pairs = zip(columns, np.nan_to_num(found).tolist(), strict=True)
    return Schema(tuple(Feature(name=name, kind="number", median=median) for name, median in pairs))


def name_inputs(model: Any, names: Sequence[str]) -> None:
    """Note the names of the encoded columns in a model that learnt from an array, where it can hold them.

    Scikit-learn then refuses a DataFrame with other columns.
    """
    steps = getattr(model, "steps", None)
    if steps:
        name_inputs(steps[0][1], names)
    elif getattr(model, "n_features_in_", None) == len(names) and not hasattr(model, "feature_names_in_"):
        with suppress(AttributeError):
            model.feature_names_in_ = np.array(names, dtype=object)


@contextmanager
def _unnamed_rows() -> Iterator[None]:
    """Ignore scikit-learn's warning that rows have no names: the schema has put the columns into order."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        yield


def load_student(path: str | Path, *, allow_pickle: bool = False) -> DeployedStudent:
    """Load a deployed student.

    Parameters
    ----------
    path : path
        The folder of a run, the folder of a student, or a file in it.
    allow_pickle : bool
        Whether a pickle may be read, which runs the code in it. Models of scikit-learn, LightGBM and `ipate.torch` are
        stored in formats that run no code; other types are stored as a pickle.

    Returns
    -------
    DeployedStudent
        It has `predict`, and `predict_proba` and `decision_function` where the model has them.

    Examples
    --------
    >>> import ipate
    >>> student = ipate.load_student("march")  # doctest: +SKIP
    >>> student.predict(table)  # doctest: +SKIP
    """
    folder = find_folder(Path(path))
    stated = folder / "student.json"
    try:
        facts = json.loads(stated.read_text(encoding="utf-8"))
        if facts["format"] != _FORMAT:
            raise InputError(f"{stated}: its format is {show(facts['format'])}: this version reads {_FORMAT!r}")
        about, classes = facts["model"], class_names(facts["classes"])
        file, kind, frame = FILES[about["format"]], about["format"], facts["frame"]
        image = None if facts["image"] is None else tuple(int(side) for side in facts["image"])
        seen, digest, indices = class_names(about["classes"]), str(about["sha256"]), about["predicts"] == "indices"
        channels_first, described = bool(facts["channels_first"]), facts["schema"]
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{stated}: not a readable description of a student ({error})") from None
    schema = None if described is None else Schema.from_file(folder / "schema.json")
    model = read_model(folder / file, kind, sha256=digest, allow_pickle=allow_pickle, classes=seen)
    return DeployedStudent(
        model=NamedClassifier(model, classes.tolist()) if indices else model,
        classes_=classes,
        schema=schema,
        frame=frame,
        image=image,
        channels_first=channels_first,
        facts=facts,
    )


def find_folder(path: Path) -> Path:
    """Return the folder of a student: the given one, a run's, or the one of a file in it."""
    if path.is_file():
        path = path.parent
    places = [path, path / "public" / "student", path / "private" / "student"]
    found = next((place for place in places if (place / "student.json").is_file()), None)
    if found is None:
        why = "the run has no student yet" if (path / "config.json").is_file() else "there is no student.json in it"
        raise InputError(f"{path}: {'no such file or folder' if not path.exists() else why}; name a run or its student")
    return found
