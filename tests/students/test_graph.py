"""The graph student learns from the whole pool, predicts raw rows, and is stored without a pickle."""

import json

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_moons
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from ipate import InputError, PATEClassifier, load_student
from ipate.students.deployed import DeployedStudent
from ipate.students.spreading import GraphStudent, pool_graph
from ipate.students.student import STUDENTS, find_student
from students.making import CLASSES, deployed, raw

MOONS, SIDE = make_moons(400, noise=0.06, random_state=0)
FEW = np.full(400, -1)
for own in (0, 1):
    FEW[np.flatnonzero(own == SIDE)[:2]] = own


def images(n=120, seed=0):
    """Images of 20 × 20 pixels with a bright bar at one of three heights, and the class of each."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    bars = (np.arange(20) // 7)[None, :, None] == y[:, None, None]
    return np.clip(0.3 * rng.random((n, 20, 20)) + 0.6 * bars, 0, 1).astype(np.float32), y


def taught(pool, labels, options=None, *, classes=CLASSES, **more):
    student = find_student("graph")
    return student.teach(student.make(options or {}, seed=0), pool, labels, classes=classes, **more)


def test_few_labels_are_spread_along_clusters():
    student = GraphStudent(SVC(gamma=2)).fit(MOONS, FEW)
    supervised = SVC(gamma=2).fit(MOONS[FEW >= 0], FEW[FEW >= 0])
    assert np.mean(student.transduction_ == SIDE) > 0.98
    assert student.score(MOONS, SIDE) > 0.97 > supervised.score(MOONS, SIDE)
    assert student.label_distributions_.shape == (400, 2)
    np.testing.assert_allclose(student.label_distributions_.sum(axis=1), 1)
    first, second = student.label_distributions_.T
    np.testing.assert_allclose(student.margin_, np.abs(first - second))
    assert student.alpha_ == 0.99


def test_alpha_follows_the_number_of_labels():
    labels = np.where(np.arange(400) < 6, SIDE, -1)
    assert GraphStudent().fit(MOONS, labels).alpha_ == 0.95  # 6 of 400: more than every 75th point
    assert GraphStudent(alpha=0.5).fit(MOONS, labels).alpha_ == 0.5


def test_same_input_gives_the_same_student():
    one, two = (GraphStudent("forest", random_state=3, n_jobs=jobs).fit(MOONS, FEW) for jobs in (1, 2))
    np.testing.assert_array_equal(one.label_distributions_, two.label_distributions_)
    np.testing.assert_array_equal(one.predict_proba(MOONS), two.predict_proba(MOONS))
    assert clone(one).get_params()["estimator"] == "forest"


def test_targets_and_weights_agree_with_labels():
    plain = GraphStudent().fit(MOONS, FEW).label_distributions_
    targets = (FEW[:, None] == np.arange(2)).astype(float)
    np.testing.assert_array_equal(GraphStudent().fit(MOONS, targets).label_distributions_, plain)
    more = FEW.copy()
    more[10:20] = 1 - SIDE[10:20]  # wrong labels that do not count
    weight = np.where(np.isin(np.arange(400), np.arange(10, 20)), 0.0, 2.0)
    np.testing.assert_allclose(GraphStudent().fit(MOONS, more, weight).label_distributions_, plain, atol=1e-9)


def test_margins_weigh_the_points_of_the_classifier():
    mixed, _ = make_moons(400, noise=0.3, random_state=0)  # labels of both classes reach most points
    student = GraphStudent().fit(mixed, FEW)
    assert np.ptp(student.margin_) > 0.5
    points = student.features_.directions(mixed) * student.scale_
    other = LogisticRegression(max_iter=300).fit(points, student.transduction_, sample_weight=student.margin_)
    np.testing.assert_allclose(student.predict_proba(mixed), other.predict_proba(points))
    piped = GraphStudent(make_pipeline(StandardScaler(), LogisticRegression())).fit(mixed, FEW)
    scaled = piped.estimator_[0].transform(points)
    other = LogisticRegression().fit(scaled, student.transduction_, sample_weight=student.margin_)
    np.testing.assert_allclose(piped.predict_proba(mixed), other.predict_proba(scaled))
    assert GraphStudent(KNeighborsClassifier()).fit(MOONS, FEW).score(MOONS, SIDE) > 0.95  # takes no weights


def test_classes_without_a_label_are_never_predicted():
    pool, y = images()
    labels = np.where((np.arange(120) < 12) & (y != 1), y, -1)
    student = taught(pool, labels)
    assert set(student.predict(pool).tolist()) == {"home", "clinic"}
    assert (student.predict_proba(pool)[:, 1] == 0).all()
    single = taught(pool, np.where(np.arange(120) == 0, 0, -1))
    assert set(single.predict(pool).tolist()) == {"home"}


def test_further_labelled_data_joins_the_pool():
    pool, y = images()
    more, known = images(30, seed=1)
    nothing = np.full(120, -1)
    student = taught(pool, nothing, labelled=(more, known), sample_weight=np.ones(120))
    assert np.mean(student.predict(pool) == np.array(CLASSES)[y]) > 0.95
    weighted = taught(pool, nothing, targets=np.eye(3)[y] * (np.arange(120) < 9)[:, None])
    assert np.mean(weighted.predict(pool) == np.array(CLASSES)[y]) > 0.95


@pytest.mark.parametrize("estimator", [None, "forest", SVC(), make_pipeline(StandardScaler(), LogisticRegression())])
def test_stored_student_predicts_raw_images(estimator, tmp_path):
    pool, y = images()
    labels = np.where(np.arange(120) < 12, y, -1)
    model = taught(pool.reshape(120, -1), labels, {"image_shape": (20, 20), "estimator": estimator})
    made = DeployedStudent(model=model, classes_=np.array(CLASSES), image=(20, 20))
    folder = made.save(tmp_path / "student")
    student = load_student(folder)
    stated = json.loads((folder / "student.json").read_text())
    assert stated["model"]["format"] == "skops"
    assert "torch" not in stated["versions"]
    new, truth = images(60, seed=5)
    np.testing.assert_array_equal(student.predict(new), made.predict(new))
    np.testing.assert_array_equal(student.predict((255 * new).round().astype(np.uint8)), made.predict(new))
    assert np.mean(student.predict(new) == np.array(CLASSES)[truth]) > 0.95
    assert hasattr(student, "predict_proba") == (not isinstance(estimator, SVC))
    kept = student.model.model
    np.testing.assert_array_equal(kept.label_distributions_, model.model.label_distributions_)


def test_stored_student_predicts_raw_tables(tmp_path):
    columns, y = raw()
    made = deployed("graph", labels=np.where(np.arange(150) < 30, y, -1))
    student = load_student(made.save(tmp_path / "student"))
    new, truth = raw(seed=1)
    np.testing.assert_array_equal(student.predict_proba(new), made.predict_proba(new))
    assert np.mean(student.predict(new) == np.array(CLASSES)[truth]) > 0.8
    assert student.predict(columns).shape == (150,)


def test_classifier_takes_the_student_by_name():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=1900)
    X = rng.normal(size=(1900, 5)) + 4 * np.eye(3, 5)[y]
    model = PATEClassifier(
        LogisticRegression(), "graph", classes=[0, 1, 2], n_teachers=30, random_state=0, noise_seed=0, verbose=0
    )
    model.fit(X[:1500], y[:1500], budgets=np.full(1500, 2.0), X_public=X[1500:])
    assert isinstance(model.student_, GraphStudent)
    assert model.score(X[:300], y[:300]) > 0.9
    assert model.predict_proba(X[:5]).shape == (5, 3)


def test_students_say_which_queries_suit_them():
    assert (STUDENTS["graph"].queries, STUDENTS["graph"].uses_posterior) == ("coverage", True)
    assert (STUDENTS["logistic"].queries, STUDENTS["logistic"].uses_posterior) == ("random", False)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: GraphStudent().fit(MOONS, FEW[:9]), r"y has the shape \(9,\) for 400 points"),
        (lambda: GraphStudent().fit(MOONS, np.full(400, -1)), "no public point has a label"),
        (lambda: GraphStudent().fit(MOONS, FEW - 1), "y holds -2"),
        (lambda: GraphStudent().fit(MOONS, FEW, -np.ones(400)), "sample_weight"),
        (lambda: GraphStudent().fit(MOONS, FEW, np.ones(3)), r"sample_weight has the shape \(3,\)"),
        (lambda: GraphStudent().fit(MOONS, -np.ones((400, 2))), "0 or above"),
        (
            lambda: GraphStudent().fit(MOONS, FEW, made=pool_graph(MOONS[1:], n_classes=2)),
            "399 points and the pool 400",
        ),
        (lambda: GraphStudent(alpha=1.5).fit(MOONS, FEW), "alpha is 1.5"),
        (lambda: GraphStudent(alpha="none").fit(MOONS, FEW), "alpha is 'none'"),
        (lambda: GraphStudent(features="text").fit(MOONS, FEW), "kind is 'text'"),
        (lambda: GraphStudent(image_shape=(3, 3)).fit(MOONS, FEW), "shape is"),
        (lambda: GraphStudent("forrest").fit(MOONS, FEW), "nearest is 'forest'"),
        (lambda: taught(MOONS, FEW + 2), "class ids go from 0 to 2"),
        (lambda: taught(MOONS, FEW, targets=np.ones((400, 2))), r"targets have the shape \(400, 2\)"),
        (lambda: taught(MOONS, FEW, {"neighbours": 3}), "options of model"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
