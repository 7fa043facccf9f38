"""Tables, sparse matrices and missing values reach teachers and the student of `PATEClassifier` untouched."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.sparse import csr_matrix
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from ipate import PATEClassifier
from ipate.errors import InputError

WARDS = ["north", "south", "west"]


def patients(n, seed):
    """Make rows whose class depends on a category and on a number that is missing in places."""
    rng = np.random.default_rng(seed)
    ward, age = rng.choice(WARDS, size=n), rng.normal(60, 10, size=n)
    y = np.where((ward == "north") ^ (age > 75), "home", "ward")
    age[rng.random(n) < 0.1] = np.nan
    frame = pd.DataFrame({"ward": pd.Categorical(ward, categories=WARDS), "age": age, "noise": rng.normal(size=n)})
    return frame, y


def columns():
    wards = OneHotEncoder(categories=[WARDS], handle_unknown="ignore")
    numbers = make_pipeline(StandardScaler(), SimpleImputer())
    split = ColumnTransformer([("ward", wards, ["ward"]), ("numbers", numbers, ["age", "noise"])])
    return make_pipeline(split, LogisticRegression())


def lightgbm():
    module = pytest.importorskip("lightgbm")
    return module.LGBMClassifier(n_estimators=10, min_child_samples=2, verbose=-1, n_jobs=1)


def boosting():
    return HistGradientBoostingClassifier(max_iter=10, min_samples_leaf=2, categorical_features="from_dtype")


def model(estimator, **options):
    given = {"classes": ["home", "ward"], "n_teachers": 12, "random_state": 0, "noise_seed": 0, "verbose": 0}
    return PATEClassifier(estimator, estimator, **{"epsilon": 40.0, **given, **options})


@pytest.mark.parametrize("make", [columns, boosting, lightgbm])
def test_teachers_and_student_see_the_columns(make):
    X, y = patients(600, seed=0)
    pool, _ = patients(200, seed=1)
    fitted = model(make()).fit(X, y, X_public=pool)
    later, truth = patients(500, seed=2)
    assert fitted.score(later, truth) > 0.8
    assert fitted.feature_names_in_.tolist() == ["ward", "age", "noise"]
    assert fitted.n_features_in_ == 3
    assert fitted.predict_proba(later.head(3)).shape == (3, 2)


def test_worker_processes_get_slices_of_frames():
    X, y = patients(240, seed=0)
    pool, _ = patients(50, seed=1)
    alone = model(columns(), n_teachers=4).fit(X, y, X_public=pool)
    beside = model(columns(), n_teachers=4, n_jobs=2).fit(X, y, X_public=pool)
    np.testing.assert_array_equal(alone.labels_, beside.labels_)


def test_polars_columns_may_be_named_for_everything():
    X, y = patients(400, seed=0)
    rows = {"ward": X["ward"].astype(str), "age": X["age"].to_numpy(), "noise": X["noise"].to_numpy()}
    ids, epsilon = np.arange(400) // 2, np.repeat(np.random.default_rng(3).choice([20.0, 40.0], size=200), 2)
    table = pl.DataFrame({**rows, "home": y, "patient": ids, "epsilon": epsilon})
    pool, _ = patients(100, seed=1)
    public = pl.DataFrame({name: pool[name].astype(str if name == "ward" else float).tolist() for name in rows})
    fitted = model(columns(), epsilon=None).fit(
        table, "home", budgets="epsilon", person_id="patient", X_public=public, y_public=None
    )
    assert fitted.feature_names_in_.tolist() == ["ward", "age", "noise"]
    people = fitted.allocation_.people
    assert [people.group_of(person).epsilon for person in range(200)] == epsilon[::2].tolist()
    np.testing.assert_array_equal(fitted.predict(table), fitted.predict(table.select("ward", "age", "noise")))


def test_missing_values_pass_to_imputer_anywhere():
    X, y = patients(400, seed=0)
    numbers = X[["age", "noise"]].to_numpy()
    inner = make_pipeline(StandardScaler(), make_pipeline(SimpleImputer(), LogisticRegression()))
    fitted = model(inner).fit(numbers, y, X_public=numbers[:50] + 0.001)
    assert set(fitted.predict(numbers)) <= {"home", "ward"}
    with pytest.raises(ValueError, match="X_public: nan in row 19, column 0"):
        model(LogisticRegression()).fit(numbers, y, X_public=numbers)


def test_sparse_matrices_stay_sparse():
    rng = np.random.default_rng(0)
    X = csr_matrix((rng.random((500, 30)) < 0.2).astype(float))
    y = np.where(X[:, :2].sum(axis=1).A1 > 0, "home", "ward")

    class Sparse(LogisticRegression):
        def fit(self, X, y):
            assert isinstance(X, csr_matrix)
            return super().fit(X, y)

    fitted = model(Sparse()).fit(X, y, X_public=csr_matrix((rng.random((120, 30)) < 0.2).astype(float)))
    assert fitted.predict(X).shape == (500,)


def test_skorch_net_is_teacher_and_student():
    torch = pytest.importorskip("torch")
    skorch = pytest.importorskip("skorch")
    net = skorch.NeuralNetClassifier(
        torch.nn.Linear,
        module__in_features=2,
        module__out_features=2,
        criterion=torch.nn.CrossEntropyLoss,
        max_epochs=20,
        lr=0.5,
        verbose=0,
        train_split=None,
    )
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2)).astype(np.float32)
    y = np.where(X[:, 0] > 0, "home", "ward")
    fitted = model(net, n_teachers=5).fit(X, y, X_public=rng.normal(size=(60, 2)).astype(np.float32))
    assert fitted.score(X, y) > 0.8


def test_columns_are_checked_by_name_at_predict():
    X, y = patients(300, seed=0)
    pool, _ = patients(50, seed=1)
    fitted = model(columns(), n_teachers=5).fit(X, y, X_public=pool)
    for wrong in (X[["age", "ward", "noise"]], X.drop(columns="age"), X.assign(more=1.0)):
        with pytest.raises(ValueError, match="feature names"):
            fitted.predict(wrong)
    with pytest.raises(ValueError, match="feature names"):
        model(columns()).fit(X, y, X_public=pool.rename(columns={"age": "years"}))
    with pytest.raises(InputError, match="both be DataFrames"):
        model(columns()).fit(X, y, X_public=np.zeros((5, 3)))


def test_no_warning_arises_from_named_columns():
    X, y = patients(300, seed=0)
    pool, truth = patients(60, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = model(columns(), n_teachers=5).fit(X, y, X_public=pool, y_public=pd.Series(truth)[::-1])
    assert fitted.vote_accuracy_ > 0.5
