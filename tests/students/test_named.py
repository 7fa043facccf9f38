"""Students predict class names, whether their model learns names or class ids."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from ipate.errors import InputError
from ipate.students.student import NamedClassifier, find_student, named, over_all_classes

NAMES = ["home", "ward", "clinic"]


def pool(n=120, classes=3):
    rng = np.random.default_rng(0)
    y = np.arange(n) % classes
    return rng.normal(size=(n, 4)) + 4 * np.eye(3, 4)[y], y


class OnlyIds(ClassifierMixin, BaseEstimator):
    """A classifier that refuses names, as nets do."""

    def fit(self, X, y):
        self.inner_ = LogisticRegression().fit(X, np.asarray(y).astype(np.int64))
        self.classes_ = self.inner_.classes_
        return self

    def predict(self, X):
        return self.inner_.predict(X)

    def predict_proba(self, X):
        return self.inner_.predict_proba(X)

    def decision_function(self, X):
        return self.inner_.decision_function(X)


def taught(model, labels, classes=NAMES):
    X, _ = pool()
    student = find_student(model)
    return X, student.teach(student.make({}), X, labels, classes=classes)


@pytest.mark.parametrize("model", ["logistic", HistGradientBoostingClassifier(max_iter=3), OnlyIds()])
def test_taught_student_predicts_names(model):
    _, y = pool()
    X, student = taught(model, y)
    assert set(student.classes_.tolist()) == set(NAMES)
    assert np.mean(student.predict(X) == np.array(NAMES)[y]) > 0.9


def test_ids_that_look_like_names_are_not_mistaken():
    """A model that reads the text '7' as the number 7 must not be asked for the class '7'."""
    _, y = pool()
    X, student = taught(OnlyIds(), y, classes=["7", "8", "9"])
    assert isinstance(student, NamedClassifier)
    assert set(student.predict(X).tolist()) == {"7", "8", "9"}


def test_integer_ids_as_names_need_no_wrapper():
    model = LogisticRegression().fit(*pool())
    assert named(model, range(3)) is model
    assert isinstance(named(model, [1, 2, 3]), NamedClassifier)


def test_wrapper_gives_columns_of_all_classes():
    X, y = pool()
    labels = np.where(y == 1, -1, y)  # no label of the class 'ward'
    _, student = taught(OnlyIds(), labels)
    found = student.predict_proba(X)
    assert found.shape == (120, 3)
    assert (found[:, 1] == 0).all()
    scores = student.decision_function(X)
    assert np.isneginf(scores[:, 1]).all()
    assert (student.classes_[scores.argmax(axis=1)] == student.predict(X)).all()


def test_wrapper_has_only_methods_of_its_model():
    wrapper = NamedClassifier(LinearSVC().fit(*pool()), NAMES)
    assert not hasattr(wrapper, "predict_proba")
    assert hasattr(wrapper, "decision_function")


def test_binary_scores_stay_one_number_per_row():
    two = np.array(["no", "yes"])
    np.testing.assert_array_equal(over_all_classes([0.5, -1.0], two, two, empty=-np.inf), [0.5, -1.0])
    three = over_all_classes([0.5, -1.0], two, np.array(["yes", "perhaps", "no"]), empty=-np.inf)
    np.testing.assert_array_equal(three, [[0.5, -np.inf, -0.5], [-1.0, -np.inf, 1.0]])


def test_single_released_class_is_always_predicted():
    X, student = taught("logistic", np.where(pool()[1] == 2, 2, -1))
    assert set(student.predict(X).tolist()) == {"clinic"}


def test_pool_without_labels_is_refused():
    with pytest.raises(InputError, match="no public point has a label"):
        taught("logistic", np.full(120, -1))


class Recorder(LogisticRegression):
    """A logistic regression that remembers what it was trained on."""

    def fit(self, X, y, sample_weight=None):
        self.given_ = (len(X), np.asarray(y), sample_weight)
        return super().fit(X, y, sample_weight)


@pytest.mark.parametrize("labelled", [None, (np.zeros((2, 4)), np.array([1, 1]))])
def test_reviewed_student_counts_points_for_several_classes(labelled):
    X, y = pool()
    seen = []

    def review(guess):
        seen.append(guess)
        return np.tile([0.0, 2.0, 1.0], (len(X), 1))

    student = find_student(Recorder())
    labels = np.where(y == 0, 1, y)  # class 0 has no label, so the first training does not know it
    found = student.teach(student.make({}), X, labels, classes=NAMES, labelled=labelled, review=review)
    more = 0 if labelled is None else 2
    rows, targets, weights = found.given_
    assert rows == 2 * len(X) + more
    assert [np.sum(targets == name) for name in NAMES] == [0, len(X) + more, len(X)]
    assert weights.sum() == 3 * len(X) + more
    assert seen[0].shape == (len(X), 3)
    assert not seen[0][:, 0].any()


@pytest.mark.parametrize("model", [OnlyIds(), LinearSVC()])
def test_student_without_weights_or_probabilities_is_not_reviewed(model):
    def review(guess):
        raise AssertionError("reviewed")

    X, y = pool()
    student = find_student(model)
    found = student.teach(student.make({}), X, y, classes=NAMES, review=review, sample_weight=np.ones(len(X)))
    assert np.mean(found.predict(X) == np.array(NAMES)[y]) > 0.9
