"""Students that speak in class names: scores over all classes, and a wrapper for models that learnt class ids.

Students: what learns from the pool and its released labels, by name.

Each student is one object and one entry of `STUDENTS`; nobody else compares its name. All of it is post-processing
of released labels, so it costs nobody anything.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if

from ipate._types import Floats
from ipate.data.frames import stacked, take
from ipate.errors import InputError, check_count, import_part, refuse_name
from ipate.models.named import DEFAULT, MODELS, NETS, make_model
from ipate.public.features import Kind
from ipate.public.integers import SMALLEST
from ipate.release.lesson import Lesson, Review


def class_names(classes: Sequence[Any] | NDArray[Any]) -> NDArray[Any]:
    """Return the class names as an array that keeps their type."""
    found = np.asarray(classes)
    return found if found.dtype.kind in "biufU" else np.array(list(classes), dtype=object)


def over_all_classes(scores: Any, seen: NDArray[Any], classes: NDArray[Any], *, empty: float) -> Floats:
    """Return scores with one column per class; a class that the model has not seen gets the value `empty`.

    A single column of a binary decision function, if there are more classes than the two, becomes a column for each.
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim == 1 and len(classes) > 2:
        values = np.stack([-values, values], axis=1)
    if values.ndim == 1 or values.shape[1] != len(seen):
        return values
    spread = np.full((len(values), len(classes)), empty)
    place = {name: index for index, name in enumerate(classes.tolist())}
    spread[:, [place[name] for name in seen.tolist()]] = values
    return spread


def has(method: str, *, of: str = "model") -> Any:
    """Return the condition that a method exists only where the wrapped model has it."""
    return lambda self: hasattr(getattr(self, of), method)


class NamedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A model that was trained on class ids, with the names of all classes in its predictions and in `classes_`."""

    def __init__(self, model: Any, classes: Sequence[Any]) -> None:
        self.model, self.classes = model, classes

    def __sklearn_is_fitted__(self) -> bool:
        return True

    @property
    def classes_(self) -> NDArray[Any]:
        """The names of all classes, in the order of their ids."""
        return class_names(self.classes)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class name of every row."""
        return np.asarray(self.classes_[np.asarray(self.model.predict(X)).astype(np.int64)])

    @available_if(has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:
        """Return the probabilities, with a column per class."""
        return self._over_all(self.model.predict_proba(X), empty=0.0)

    @available_if(has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Floats:
        """Return the model's scores, with a column per class if there are more than two."""
        return self._over_all(self.model.decision_function(X), empty=-np.inf)

    def _over_all(self, scores: Any, *, empty: float) -> Floats:
        ids = np.arange(len(self.classes))
        whole = np.ndim(scores) == 2 and np.shape(scores)[1] == len(ids)
        return over_all_classes(scores, ids if whole else np.asarray(self.model.classes_), ids, empty=empty)


def named(trained: Any, classes: Sequence[Any] | NDArray[Any]) -> Any:
    """Return a model trained on class ids as one that predicts class names."""
    names = class_names(classes)
    same = names.dtype.kind in "iu" and np.array_equal(names, np.arange(len(names)))
    return trained if same else NamedClassifier(trained, names.tolist())


Labelled = tuple[NDArray[Any], NDArray[np.int64]]
NOTHING_TO_TEACH = (
    "no public point has a label, so there is nothing to teach the student: the budgets pay for no label at this "
    "noise. Use more teachers, larger budgets or a lower threshold (ipate plan shows what they afford)"
)


class Student(ABC):
    """A way to learn from released labels; a semi-supervised one also uses the points without a label."""

    name: str
    images = False  # wants images, channels first, instead of one line of numbers per point
    queries = "random"  # the rule of `ipate.public.queries` that suits it
    wants_shape = False  # whether `make` takes `image_shape`, the shape of one image, as an option
    tried = False  # whether its model has scikit-learn's interface, so that `try_on` can train it on made-up labels
    uses_posterior = False  # whether `fit` takes `targets`: weights of the classes at every point
    reviews = False  # whether `fit` takes `review`, which gives the targets of a second training after a first one

    def embedding(self, shape: Sequence[int]) -> Kind | None:
        """Return the features in which queries and cells suit it, for points of this shape; None: by the shape."""
        return None

    def labels_wanted(self, k: int, q: float, *, n_classes: int) -> int | None:
        """Return how many labels of little noise serve it best; None: as many as possible.

        k is the number of teachers, and m labels cost the whole budget at σ = √(2m)/q.
        """
        return None

    @abstractmethod
    def make(self, options: Mapping[str, Any], *, seed: int | None = None, n_jobs: int | None = None) -> Any:
        """Return the model, not yet trained; `seed` fills an empty random_state."""

    @abstractmethod
    def fit(
        self,
        model: Any,
        pool: NDArray[Any],
        labels: NDArray[np.int64],
        *,
        n_classes: int,
        sample_weight: NDArray[np.float64] | None = None,
        labelled: Labelled | None = None,
    ) -> Any:
        """Return the model trained on class ids, with `predict` and `classes_`; `model` stays as it is.

        `labels` has a class id or −1 for every point of the pool, `sample_weight` says how much each point counts,
        and `labelled` is further public data with its class ids.
        """

    def try_on(self, model: Any, pool: Any, *, n_classes: int) -> None:
        """Refuse a model that cannot learn made-up labels of the pool, before anybody pays for true ones.

        A net is trained for one step, on two points per class or as many as self-supervised training needs.
        """
        from ipate.models.named import dry_fit
        from ipate.models.workers import Backend

        if not self.tried:
            return
        given: dict[str, Any] = {"estimator": model}
        if self.images:
            from ipate.torch.contrastive import FEWEST

            given = {"estimator": _one_step(model), "each": max(2, -(-FEWEST // n_classes))}
        engine = Backend(backend="sequential")
        dry_fit(**given, points=pool, n_classes=n_classes, rows=0, engine=engine, name=self.name, what="student")

    def known(self, lesson: Lesson) -> dict[str, Any]:
        """Return what this student can use of a lesson beside its labels, as options of `fit`."""
        found: dict[str, Any] = {}
        if lesson.targets is not None and self.uses_posterior:
            found["targets"] = lesson.targets
        elif lesson.weights is not None or lesson.targets is not None:
            found["sample_weight"] = lesson.confidence if lesson.weights is None else lesson.weights
        if lesson.review is not None and self.reviews:
            found["review"] = lesson.review
        return found

    def learn(
        self, model: Any, pool: Any, lesson: Lesson, *, classes: Sequence[Any], labelled: Labelled | None = None
    ) -> Any:
        """Return the model that learnt a lesson, and further public rows with their class ids."""
        extra = {} if labelled is None else {"labelled": labelled}
        return self.teach(model, pool, lesson.record.labels, classes=classes, **self.known(lesson), **extra)

    def teach(self, model: Any, pool: Any, labels: NDArray[np.int64], *, classes: Sequence[Any], **options: Any) -> Any:
        """Return the trained model, whose predictions and `classes_` are class names; `options` are those of `fit`."""
        return named(self.fit(model, pool, labels, n_classes=len(classes), **options), classes)


class Supervised(Student):
    """Any classifier on the points that have a label: by name, as module:attribute, or an estimator to clone."""

    tried = True

    def __init__(self, name: str, *, estimator: Any = None, images: bool = False, parallel: bool = False) -> None:
        self.name, self.estimator, self.images = name, estimator, images
        self.reviews = not images
        self.parallel = parallel  # one model may use the cores of all teachers

    def make(self, options: Mapping[str, Any], *, seed: int | None = None, n_jobs: int | None = None) -> Any:
        """Return the classifier with its options."""
        model = make_model(self.name if self.estimator is None else self.estimator, options, seed=seed)
        if self.parallel and model.n_jobs is None:
            model.set_params(n_jobs=n_jobs)
        return model

    def fit(
        self,
        model: Any,
        pool: NDArray[Any],
        labels: NDArray[np.int64],
        *,
        n_classes: int,
        sample_weight: NDArray[np.float64] | None = None,
        labelled: Labelled | None = None,
        review: Review | None = None,
    ) -> Any:
        """Train a clone on class ids; one that saw a single class always says that class.

        With `review`, a model that has probabilities and takes weights is then trained anew: every point counts for
        several classes, with the weights that `review` finds from the probabilities of the first training.
        """
        return self._trained(
            model, pool, labels, np.arange(n_classes), sample_weight=sample_weight, labelled=labelled, review=review
        )

    def teach(self, model: Any, pool: Any, labels: NDArray[np.int64], *, classes: Sequence[Any], **options: Any) -> Any:
        """Train a clone on class names, or on class ids if it refuses names, as nets do."""
        names = class_names(classes)
        with suppress(Exception):  # what is really wrong appears again below
            trained = self._trained(model, pool, labels, names, **options)
            if set(np.asarray(trained.predict(pool[:100])).tolist()) <= set(names.tolist()):
                return trained
        return super().teach(model, pool, labels, classes=classes, **options)

    def _trained(
        self,
        model: Any,
        pool: Any,
        labels: NDArray[np.int64],
        names: NDArray[Any],
        *,
        sample_weight: NDArray[np.float64] | None = None,
        labelled: Labelled | None = None,
        review: Review | None = None,
    ) -> Any:
        """Return a clone that was trained on `names` of the classes."""
        from sklearn.base import clone
        from sklearn.dummy import DummyClassifier

        chosen = labels >= 0
        points, targets = take(pool, np.flatnonzero(chosen)), labels[chosen]
        weights = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)[chosen]
        if labelled is not None:
            more, known = labelled
            points, targets = stacked(points, more), np.concatenate([targets, known])
            if weights is not None:
                weights = np.concatenate([weights, np.ones(len(known))])
        if not len(targets):
            raise InputError(NOTHING_TO_TEACH)
        if targets.min() < 0 or targets.max() >= len(names):
            raise InputError(f"labels hold {targets.max()}: class ids go from 0 to {len(names) - 1}")
        targets = names[targets]
        if np.unique(targets).size == 1:
            return DummyClassifier(strategy="most_frequent").fit(np.zeros((len(targets), 1)), targets)
        found = _fitted(clone(model), points, targets, weights)
        if review is None or not (_takes_weights(model) and hasattr(found, "predict_proba")):
            return found
        guess = over_all_classes(found.predict_proba(pool), np.asarray(found.classes_), names, empty=0.0)
        shares = review(guess)
        point, known = np.nonzero(shares)
        again: dict[str, Any] = {"sample_weight": shares[point, known], "labelled": labelled}
        return self._trained(model, take(pool, point), known.astype(np.int64), names, **again)


def _one_step(net: Any) -> Any:
    """Return a clone that is trained for one step; a length that is not above 0 stays, so that it is refused."""
    from sklearn.base import clone

    lengths = {name: net.get_params(deep=False).get(name, 0) for name in ("steps", "encoder_steps", "epochs")}
    fine = [name for name, own in lengths.items() if own is None or (isinstance(own, int | float) and own > 0)]
    return clone(net).set_params(**{name: None if name == "epochs" else 1 for name in fine})


def _takes_weights(model: Any) -> bool:
    """Return whether a model, or the last step of a pipeline, knows weights of its points."""
    from sklearn.pipeline import Pipeline
    from sklearn.utils.validation import has_fit_parameter

    return bool(has_fit_parameter(model.steps[-1][1] if isinstance(model, Pipeline) else model, "sample_weight"))


def _fitted(model: Any, points: Any, targets: NDArray[Any], weights: NDArray[np.float64] | None) -> Any:
    """Fit a model with weights where it knows them, a pipeline through its last step; others learn without them."""
    from sklearn.pipeline import Pipeline

    prefix = f"{model.steps[-1][0]}__" if isinstance(model, Pipeline) else ""
    if weights is None or not _takes_weights(model):
        return model.fit(points, targets)
    return model.fit(points, targets, **{f"{prefix}sample_weight": weights})


class Graph(Student):
    """Label spreading on the graph of the pool, then a classifier: `ipate.students.spreading.GraphStudent`."""

    name = "graph"
    queries = "coverage"
    wants_shape = True
    tried = uses_posterior = True

    def labels_wanted(self, k: int, q: float, *, n_classes: int) -> int | None:
        """Return m at which σ = .28k, and at least 6 labels per class: their counts say how sure they are."""
        return max(int((0.28 * k * q) ** 2 / 2), 6 * n_classes)

    def make(self, options: Mapping[str, Any], *, seed: int | None = None, n_jobs: int | None = None) -> Any:
        """Return the student with its options, which are the parameters of `GraphStudent`."""
        from ipate.students.spreading import GraphStudent

        return make_model(GraphStudent, {"n_jobs": n_jobs, **options}, seed=seed)

    def fit(
        self,
        model: Any,
        pool: Any,
        labels: NDArray[np.int64],
        *,
        n_classes: int,
        sample_weight: NDArray[np.float64] | None = None,
        labelled: Labelled | None = None,
        targets: Floats | None = None,
        made: Any = None,
    ) -> Any:
        """Train a clone on class ids, with further labelled data as points of the pool.

        `targets` are weights of the classes at every point, such as a posterior, and replace the labels. `made` is the
        graph of the pool, if it was made before (`ipate.students.spreading.pool_graph`).
        """
        from sklearn.base import clone

        pool, known = _joined(pool, labels, n_classes, sample_weight=sample_weight, labelled=labelled, targets=targets)
        return clone(model).fit(pool, known, made=made)


def _joined(
    pool: Any,
    labels: NDArray[np.int64],
    n_classes: int,
    *,
    sample_weight: Floats | None,
    labelled: Labelled | None,
    targets: Floats | None,
) -> tuple[Any, Floats]:
    """Return the pool with further labelled points, and the weights of the classes at all of them."""
    check_count("n_classes", n_classes, least=2)
    if targets is None:
        targets = _one_hot(labels, n_classes)
    elif np.shape(targets) != (len(labels), n_classes):
        raise InputError(f"targets have the shape {np.shape(targets)}: it must be {(len(labels), n_classes)}")
    if sample_weight is not None:
        targets = targets * np.asarray(sample_weight, dtype=np.float64)[:, None]
    if labelled is not None:
        more, classes = labelled
        pool, targets = stacked(pool, more), np.concatenate([targets, _one_hot(classes, n_classes)])
    if not targets.any():
        raise InputError(NOTHING_TO_TEACH)
    return pool, targets


def _one_hot(labels: NDArray[np.int64], n_classes: int) -> Floats:
    if labels.size and (labels.min() < -1 or labels.max() >= n_classes):
        raise InputError(f"labels hold {labels.min()} to {labels.max()}: class ids go from 0 to {n_classes - 1}")
    return np.asarray((labels[:, None] == np.arange(n_classes)).astype(np.float64))


class Semi(Student):
    """The semi-supervised student of images, `ipate.torch.FixMatchClassifier`, which learns from the whole pool.

    Labels are spread over the graph of the pool's features, and the result is the first target of every point. The
    labelled set is the part of the pool where the result is clearest. In learnt features that is 70% of every cluster:
    a cluster between two classes, such as crossed sevens, must not be without a label. Images with several channels
    have histograms of oriented gradients, because learnt features follow colours. Their clusters have several classes
    each, and so the labelled set is the clearest half of every class.
    """

    name = "semi"
    images = True
    queries = "coverage"
    tried = uses_posterior = True
    CLUSTERS, LEAST = 150, 20  # clusters at most, and points per cluster on average at least
    SURE_OF_CLUSTER, SURE_OF_CLASS = 0.7, 0.5

    def embedding(self, shape: Sequence[int]) -> Kind | None:
        """Return learnt features for grey images."""
        return None if len(shape) == 3 and min(shape) > 1 else "learnt"

    def labels_wanted(self, k: int, q: float, *, n_classes: int) -> int | None:
        """Return m = kq, where σ/k = √(2/m), and at least 3 labels per class: few labels, nearly all right."""
        return max(int(k * q), 3 * n_classes)

    def make(self, options: Mapping[str, Any], *, seed: int | None = None, n_jobs: int | None = None) -> Any:
        """Return the student with its options, which are the parameters of `FixMatchClassifier`."""
        try:
            from ipate.torch.estimator import FixMatchClassifier
        except ModuleNotFoundError as error:
            raise InputError(f"student is 'semi': it needs PyTorch ({error}); pip install 'ipate[torch]'") from None
        return make_model(FixMatchClassifier, options, seed=seed)

    def fit(
        self,
        model: Any,
        pool: NDArray[Any],
        labels: NDArray[np.int64],
        *,
        n_classes: int,
        sample_weight: NDArray[np.float64] | None = None,
        labelled: Labelled | None = None,
        targets: Floats | None = None,
        encoder: Any = None,
    ) -> Any:
        """Train a clone on class ids, with further labelled images as points of the pool.

        `encoder` is the net of the pool, if it was trained before (`ipate.public.features.pool_encoder`).
        """
        from sklearn.base import clone

        from ipate.public.features import neighbourly, pool_encoder, unit_length
        from ipate.public.graph import make_graph, margins, nearly_all, usual_alpha
        from ipate.public.queries import clusters

        self._check_images(pool)
        n_pool, learnt = len(pool), encoder is not None or self.embedding(np.shape(pool)[1:]) == "learnt"
        pool, known = _joined(pool, labels, n_classes, sample_weight=sample_weight, labelled=labelled, targets=targets)
        own = clone(model).set_params(classes=np.arange(n_classes))
        if learnt:
            encoder = pool_encoder(pool, encoder=encoder, steps=own.encoder_steps, device=own.device)
            points = unit_length(encoder.features(pool, device=own.device))
        else:
            points = neighbourly(pool, n_classes=n_classes)
        told = int(known.any(axis=1).sum())
        balance = not nearly_all(told, len(known))
        spread = make_graph(points).spread(known, alpha=usual_alpha(told, len(known)), balance=balance)
        first, lead = spread.argmax(axis=1), margins(spread)
        if learnt:
            parts = clusters(points, max(1, min(self.CLUSTERS, len(points) // self.LEAST)), 0)
            sure = _clearest(parts, lead, self.SURE_OF_CLUSTER)
        else:
            sure = _clearest(first, lead, self.SURE_OF_CLASS)
        y = np.where(sure, first, -1)
        more = known[n_pool:]  # further labelled images are certain
        y[n_pool:] = np.where(more.any(axis=1), more.argmax(axis=1), -1)
        return own.fit(pool, y, first_targets=first, encoder=encoder)

    def try_on(self, model: Any, pool: Any, *, n_classes: int) -> None:
        """Refuse a pool that has no images, and options that a training of one step refuses."""
        self._check_images(pool)
        super().try_on(model, pool, n_classes=n_classes)

    def _check_images(self, pool: Any) -> None:
        if np.ndim(pool) not in (3, 4):
            raise InputError(
                f"student is 'semi': it needs images, but the pool is a table of the shape {np.shape(pool)}; use "
                "another student, such as logistic"
            )


def _clearest(part: NDArray[np.integer[Any]], lead: Floats, share: float) -> NDArray[np.bool_]:
    """Return which points are among this share of the largest lead in their part of the pool."""
    order = np.lexsort((np.arange(len(lead)), -lead, part))
    size = np.bincount(part)
    rank = np.arange(len(lead)) - (np.cumsum(size) - size)[part[order]]
    chosen = np.zeros(len(lead), dtype=bool)
    chosen[order] = rank < np.ceil(share * size)[part[order]]
    return chosen


STUDENTS: dict[str, Student] = {
    **{name: Supervised(name, parallel=name == "forest") for name in MODELS},
    **{name: Supervised(name, images=True) for name in NETS},
    Graph.name: Graph(),
    Semi.name: Semi(),
}
"""Every student by name; a new one is added with `STUDENTS[mine.name] = mine`."""


def usual_student(shape: Sequence[int]) -> str:
    """Return the default student of points of this shape: of images semi with a GPU and graph without, else logistic.

    Classes of images are clusters of the pool's features; those of tables often are not, and spreading would mislead.
    Images below 16 pixels a side, which have no other features than their pixels, count as tables.
    """
    if len(shape) < 2 or sorted(shape)[-2] < SMALLEST:
        return DEFAULT
    return Semi.name if has_gpu() else Graph.name


def has_gpu() -> bool:
    """Return whether torch is installed and finds a GPU."""
    try:
        import torch
    except ModuleNotFoundError:
        return False
    return bool(torch.cuda.is_available())


def find_student(student: Any) -> Student:
    """Return the student of this name, or a supervised one for a classifier.

    What module:attribute names may be either. A classifier that cannot be imported is refused when its model is made.
    """
    if not isinstance(student, str):
        return student if isinstance(student, Student) else Supervised(type(student).__name__, estimator=student)
    if student in STUDENTS:
        return STUDENTS[student]
    if ":" not in student:
        refuse_name("model", student, (*STUDENTS, "module:attribute"))
    with suppress(InputError):
        found = import_part("model", student)
        made = found() if isinstance(found, type) and issubclass(found, Student) else found
        if isinstance(made, Student):
            return made
    return Supervised(student)
