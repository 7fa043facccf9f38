"""The deployed student: a trained model with its classes, its columns and the public schema, in a folder of its own."""

import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.metaestimators import available_if

from ipate._version import library_versions
from ipate.data.dataset import images_to_float
from ipate.data.schema import Feature, Schema
from ipate.errors import InputError, show
from ipate.files import json_text, write_csv, write_text
from ipate.students.card import card, example, made_up_rows
from ipate.students.frames import as_frame
from ipate.students.named import NamedClassifier, class_names, has, over_all_classes
from ipate.students.storage import FILES, read_model, write_model

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
        classes_=classes, schema=schema, frame=frame, image=image, channels_first=channels_first,
        facts=facts,
    )  # fmt: skip


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
