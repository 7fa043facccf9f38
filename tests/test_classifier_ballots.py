"""`PATEClassifier` with ballots: the whole pool is labelled at once, whatever form the rows have."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.sparse import csr_matrix
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from ipate import PATEClassifier, load_student
from ipate.errors import BudgetExceededError, InputError

RNG = np.random.default_rng(3)
CENTRES = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
N, POOL = 1500, 240


def world(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return CENTRES[y] + rng.standard_normal((n, 2)), y


X, Y = world(N, 1)
X_POOL, Y_POOL = world(POOL, 2)
EPSILON = np.random.default_rng(4).choice([0.2, 1.0, 3.0], N, p=[0.54, 0.37, 0.09])


def fitted(X=X, pool=X_POOL, **options):
    options = {"voting": "ballots", "classes": [0, 1, 2], "random_state": 0, "verbose": 0, **options}
    return PATEClassifier(**options).fit(X, Y, budgets=EPSILON, X_public=pool, y_public=Y_POOL)


def test_ballots_label_whole_pool_within_budgets():
    model = fitted()
    assert (model.labels_ >= 0).all()
    assert model.vote_accuracy_ > 0.9
    assert model.score(X, Y) > 0.9
    assert model.guarantee_.kind == "releasable"
    assert model.choice_.engine == "ballots"
    assert {group.budget.epsilon for group in model.guarantees_} == {0.2, 1.0, 3.0}
    for group in model.guarantees_:
        assert 0.95 * group.budget.epsilon < group.cost <= group.budget.epsilon


def test_seeded_ballots_promise_nothing_and_repeat():
    first, second = fitted(noise_seed=5), fitted(noise_seed=5)
    assert first.guarantee_.kind == "none"
    np.testing.assert_array_equal(first.labels_, second.labels_)


def test_frames_and_sparse_rows_vote_like_arrays():
    plain = fitted(noise_seed=1)
    sparse = fitted(csr_matrix(X), csr_matrix(X_POOL), noise_seed=1)
    np.testing.assert_array_equal(plain.labels_, sparse.labels_)
    ward = np.random.default_rng(0).choice(["north", "south"], N)
    rows = {"a": X[:, 0], "b": X[:, 1], "ward": ward}
    public = {"a": X_POOL[:, 0], "b": X_POOL[:, 1], "ward": np.tile(["north", "south"], POOL // 2)}
    encode = make_column_transformer((OneHotEncoder(), ["ward"]), remainder="passthrough")
    student = make_pipeline(encode, LogisticRegression())
    pandas = fitted(pd.DataFrame(rows), pd.DataFrame(public), student=student, noise_seed=1)
    polars = fitted(pl.DataFrame(rows), pl.DataFrame(public), student=student, noise_seed=1)
    assert pandas.score(pd.DataFrame(rows), Y) > 0.9
    np.testing.assert_array_equal(pandas.labels_, polars.labels_)


def test_missing_cells_of_private_rows_stay_silent(recwarn):
    holes = X.copy()
    holes[::5, 0] = np.nan
    holes[1::50] = np.inf
    labels = Y.astype(object)
    labels[2::40] = "no class"
    options = {"voting": "ballots", "classes": [0, 1, 2], "random_state": 0, "verbose": 0}
    model = PATEClassifier(**options).fit(holes, labels, budgets=EPSILON, X_public=X_POOL)
    assert model.score(X, Y) > 0.85
    assert model.private_notes_["rows_without_class"] == len(labels[2::40])
    assert [group.cost for group in model.guarantees_] == [group.cost for group in fitted().guarantees_]
    assert {str(warning.category.__name__) for warning in recwarn} <= {"LedgerWarning"}


def test_missing_public_values_are_refused_by_their_place(tmp_path):
    gap = X_POOL.copy()
    gap[150, 1] = np.nan
    with pytest.raises(
        InputError, match="X_public: nan in row 150, column 1; fill or drop such rows, or put an imputer"
    ):
        fitted(pool=gap)
    private, public = (pd.DataFrame(rows, columns=["a", "b"]) for rows in (X, gap))
    model = PATEClassifier(voting="ballots", classes=[0, 1, 2], ledger=tmp_path / "people.sqlite", verbose=0)
    with pytest.raises(InputError, match="missing values in the column 'b', and the student is LogisticRegression"):
        model.fit(private, Y, budgets=EPSILON, X_public=public, person_id=np.arange(N))
    assert not (tmp_path / "people.sqlite").exists()
    pipe = make_pipeline(SimpleImputer(), LogisticRegression())
    assert fitted(pool=gap, teacher=pipe, student=pipe).score(X, Y) > 0.8


def test_students_that_know_no_weights_learn_without_them():
    for student in (KNeighborsClassifier(), make_pipeline(GaussianNB()), "forest"):
        assert fitted(student=student).score(X, Y) > 0.85


def test_student_of_ballots_is_reviewed_with_the_histogram():
    """A second training counts points near a border for two classes, so it has more rows than the pool."""

    class Recorder(LogisticRegression):
        def fit(self, X, y, sample_weight=None):
            self.rows_ = len(X)
            return super().fit(X, y, sample_weight)

    model = fitted(student=Recorder(), noise_seed=1)
    assert model.student_.rows_ > POOL
    assert not hasattr(model, "_decoded")
    model.fit(X, Y, budgets=np.full(N, 0.2), X_public=X_POOL)
    assert model.student_.rows_ == POOL  # too little weight per class


def test_shared_ledger_refuses_second_release_of_ballots(tmp_path):
    options = {
        "voting": "ballots",
        "classes": [0, 1, 2],
        "ledger": tmp_path / "people.sqlite",
        "verbose": 0,
    }
    ids = np.arange(N)
    PATEClassifier(**options).fit(X, Y, budgets=EPSILON, X_public=X_POOL, person_id=ids)
    with pytest.raises(BudgetExceededError, match="left of the budgets"):
        PATEClassifier(**options).fit(X, Y, budgets=EPSILON, X_public=X_POOL, person_id=ids)


def test_one_person_with_many_rows_has_one_ballot():
    people = np.concatenate([np.zeros(300, dtype=int), np.arange(1, N - 299)])
    budgets = np.full(N, 1.0)
    options = {"voting": "ballots", "classes": [0, 1, 2], "verbose": 0}
    model = PATEClassifier(**options).fit(X, Y, budgets=budgets, X_public=X_POOL, person_id=people)
    (group,) = model.guarantees_
    assert group.group.people == N - 299
    assert model.labelling_.ballots.weight == pytest.approx((N - 299) * group.weight)


def test_report_and_deployed_student_of_ballots(tmp_path):
    model = fitted()
    page = model.report(tmp_path / "report.html")
    assert "cast one ballot each" in " ".join(page.read_text().split())
    student = load_student(model.save_student(tmp_path / "student"))
    np.testing.assert_array_equal(student.predict(X[:20]), model.predict(X[:20]))
    card = (tmp_path / "student" / "README.md").read_text()
    assert "Every person cast one ballot" in " ".join(card.split())


def test_auto_says_why_it_chose():
    model = fitted(voting="auto")
    assert model.choice_.engine == "ballots"
    assert model.choice_.reason.startswith("auto chose ballots")


def test_invalid_engine_or_embedding_is_refused():
    with pytest.raises(InputError, match=r"engine is 'ballot'.*nearest is 'ballots'"):
        fitted(voting="ballot")
    with pytest.raises(InputError, match="embedding is 'learned'"):
        fitted(embedding="learned")
    with pytest.raises(InputError, match="number is 30: it is for teachers"):
        fitted(n_teachers=30)


def test_student_that_cannot_learn_is_refused_before_charging(tmp_path):
    rows = pd.DataFrame({"a": X[:, 0], "ward": np.where(X[:, 1] > 1, "north", "south")})
    public = pd.DataFrame({"a": X_POOL[:, 0], "ward": np.tile(["north", "south"], POOL // 2)})
    options = {"classes": [0, 1, 2], "ledger": tmp_path / "people.sqlite", "verbose": 0}
    for voting in ("ballots", "teachers"):
        model = PATEClassifier(GaussianNB(), voting=voting, **options)  # the student takes no text
        with pytest.raises(InputError, match=r"student is logistic: it fails on .* made-up rows"):
            model.fit(rows, Y, budgets=EPSILON * 10, X_public=public, person_id=np.arange(N))
    assert not (tmp_path / "people.sqlite").exists()
