"""A student that uses the whole pool: labels are spread over its nearest neighbours, then any classifier learns."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, has_fit_parameter, validate_data

from ipate._types import Floats
from ipate.errors import InputError, show
from ipate.models.named import DEFAULT, make_model
from ipate.public.features import Features, Kind, fit_features
from ipate.public.graph import NEIGHBORS, Graph, check_alpha, make_graph, margins, nearly_all, usual_alpha
from ipate.students.student import NOTHING_TO_TEACH, over_all_classes


@dataclass(frozen=True, kw_only=True, eq=False)
class PoolGraph:
    """The features of a pool, its points in them and their graph; made once, it serves all students of this pool."""

    features: Features
    points: Floats
    graph: Graph


def pool_graph(
    pool: NDArray[Any],
    *,
    n_classes: int,
    kind: Kind | None = None,
    shape: tuple[int, ...] | None = None,
    n_neighbors: int = NEIGHBORS,
    n_jobs: int | None = None,
) -> PoolGraph:
    """Fit features on the pool and join its points to their nearest neighbours."""
    features = fit_features(pool, n_classes=n_classes, kind=kind, shape=shape)
    points = features.directions(pool)
    graph = make_graph(points, n_neighbors=n_neighbors, n_jobs=n_jobs)
    return PoolGraph(features=features, points=points, graph=graph)


def _has(method: str) -> Any:
    """Return the condition that the classifier, fitted or still to be, has a method."""
    return lambda self: hasattr(getattr(self, "estimator_", None) or self._made(), method)


class GraphStudent(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Label spreading on the sparse graph of nearest neighbours, then a classifier on the whole pool.

    Parameters
    ----------
    estimator : classifier or str, optional
        Any scikit-learn classifier, or a name such as "forest"; logistic regression by default. It learns the spread
        labels of all points, weighted by their margins if it takes weights.
    n_neighbors : int
        The neighbours of a point.
    alpha : float or "auto"
        How far labels are spread, between 0 and 1; "auto" is `ipate.public.graph.usual_alpha`.
    balance : bool or "auto"
        Whether all classes get the same mass, which helps with few labels unless some classes are rare; "auto" says no
        where nearly all points have a label, as after ballots.
    features : {"table", "image", "given"}, optional
        What the rows are; by default images where `image_shape` is given or rows are arrays, and a table otherwise.
    image_shape : tuple of int, optional
        The shape of one image, if rows are flat.
    random_state : int, optional
        The seed of the classifier.
    n_jobs : int, optional
        Threads that look for neighbours; the result is the same for every number.

    Attributes
    ----------
    classes_ : array
        The class ids that have a label.
    transduction_ : array
        The class id of every point of the pool, after spreading.
    label_distributions_ : array
        The share of each class at every point.
    margin_ : array
        The lead of the first class before the second at every point; 0 where no label reaches.
    estimator_ : classifier
        The trained classifier, which takes features.
    features_ : Features
        The map from rows to features, fitted on the pool.

    Examples
    --------
    >>> import numpy as np
    >>> from ipate.students.spreading import GraphStudent
    >>> rng = np.random.default_rng(0)
    >>> pool = np.repeat([[0.0, 0.0], [6.0, 6.0]], 50, axis=0) + rng.normal(size=(100, 2))
    >>> labels = np.full(100, -1)
    >>> labels[[0, 99]] = [0, 1]
    >>> GraphStudent().fit(pool, labels).predict([[0.5, 0.0], [6.0, 5.0]])
    array([0, 1])
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        n_neighbors: int = NEIGHBORS,
        alpha: float | str = "auto",
        balance: bool | str = "auto",
        features: Any = None,
        image_shape: Any = None,
        random_state: int | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator, self.n_neighbors, self.alpha, self.balance = estimator, n_neighbors, alpha, balance
        self.features, self.image_shape, self.random_state, self.n_jobs = features, image_shape, random_state, n_jobs

    def fit(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, *, made: PoolGraph | None = None
    ) -> "GraphStudent":
        """Spread the labels over the pool and train the classifier.

        Parameters
        ----------
        X : array of rows or images
            The whole pool.
        y : array
            A class id or −1 for every point; or, for a posterior, a row of weights per class, zeros for a point
            without a label.
        sample_weight : array, optional
            How much each point's label counts.
        made : PoolGraph, optional
            What `pool_graph` made of this pool before; by default it is made here.

        Returns
        -------
        GraphStudent
            This student.
        """
        alpha = None if self.alpha == "auto" else check_alpha(self.alpha)
        rows = self._rows(X, reset=True)
        known, targets = _targets(y, len(rows), sample_weight)
        shape = None if self.image_shape is None else tuple(self.image_shape)
        if shape is None and np.ndim(X) > 2:
            shape = tuple(np.shape(X)[1:])
        own = made or pool_graph(
            rows,
            n_classes=max(2, targets.shape[1]),
            kind=self.features,
            shape=shape,
            n_neighbors=self.n_neighbors,
            n_jobs=self.n_jobs,
        )
        if own.graph.points != len(rows):
            raise InputError(f"the graph has {own.graph.points} points and the pool {len(rows)}: they must be the same")
        self.features_: Features = own.features
        self.scale_ = 1 / max(float(np.sqrt(np.square(own.points).mean())), 1e-300)
        seen = targets.any(axis=0)
        self.classes_ = known[seen]
        labelled = int(targets.any(axis=1).sum())
        self.alpha_ = usual_alpha(labelled, len(rows)) if alpha is None else alpha
        balance = not nearly_all(labelled, len(rows)) if self.balance == "auto" else bool(self.balance)
        self.label_distributions_ = own.graph.spread(targets[:, seen], alpha=self.alpha_, balance=balance)
        self.transduction_ = self.classes_[self.label_distributions_.argmax(axis=1)]
        self.margin_ = margins(self.label_distributions_)
        self.estimator_ = self._trained(own.points * self.scale_)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class id of every row."""
        return np.asarray(self.estimator_.predict(self._points(X)))

    @available_if(_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of every class."""
        found = self.estimator_.predict_proba(self._points(X))
        return over_all_classes(found, self.estimator_.classes_, self.classes_, empty=0.0)

    @available_if(_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Floats:
        """Return the classifier's scores."""
        found = self.estimator_.decision_function(self._points(X))
        return over_all_classes(found, self.estimator_.classes_, self.classes_, empty=-np.inf)

    def _made(self) -> Any:
        return make_model(DEFAULT if self.estimator is None else self.estimator, {}, seed=self.random_state)

    def _trained(self, points: Floats) -> Any:
        """Train the classifier on the points that a label reaches."""
        from sklearn.dummy import DummyClassifier

        reached = self.margin_ > 0 if self.margin_.any() else np.ones(len(points), dtype=bool)
        inputs, targets, weight = points[reached], self.transduction_[reached], self.margin_[reached]
        if np.unique(targets).size == 1:
            return DummyClassifier(strategy="most_frequent").fit(inputs, targets)
        model = self._made()
        last = f"{model.steps[-1][0]}__" if hasattr(model, "steps") else ""
        takes = has_fit_parameter(model.steps[-1][1] if last else model, "sample_weight")
        return model.fit(inputs, targets, **({f"{last}sample_weight": weight} if takes and weight.any() else {}))

    def _points(self, X: Any) -> Floats:
        check_is_fitted(self)
        return self.features_.directions(self._rows(X, reset=False)) * self.scale_

    def _rows(self, X: Any, *, reset: bool) -> NDArray[Any]:
        """Return flat rows of finite numbers; bytes stay bytes, because as pixels they are on another scale."""
        flat = np.reshape(X, (len(X), -1)) if np.ndim(X) > 2 else X
        found: NDArray[Any] = validate_data(
            self, flat, reset=reset, dtype=None if getattr(flat, "dtype", None) == np.uint8 else np.float64
        )
        return found


def _targets(y: ArrayLike, n: int, sample_weight: ArrayLike | None) -> tuple[NDArray[np.int64], Floats]:
    """Return the class ids and the weight of each at every point."""
    given = np.asarray(y)
    if len(given) != n or given.ndim not in (1, 2) or given.dtype.kind not in "iuf":
        raise InputError(
            f"y has the shape {given.shape} for {n} points: it must be one class id per point, −1 for none, or one row "
            "of weights of the classes per point"
        )
    if given.ndim == 2:
        known, targets = np.arange(given.shape[1]), given.astype(np.float64)
    else:
        if not np.array_equal(given, np.rint(given)) or given.min() < -1:
            raise InputError(f"y holds {show(given.min())}: class ids are whole numbers from 0, and −1 is no label")
        known = np.unique(given[given >= 0]).astype(np.int64)
        targets = (given[:, None] == known).astype(np.float64)
    if sample_weight is not None:
        weight = np.asarray(sample_weight, dtype=np.float64)
        if weight.shape != (n,) or not np.isfinite(weight).all() or (weight < 0).any():
            raise InputError(f"sample_weight has the shape {weight.shape}: it must be {n} finite numbers, 0 or above")
        targets *= weight[:, None]
    if not targets.any():
        raise InputError(NOTHING_TO_TEACH)
    return known, targets
