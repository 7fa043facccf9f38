"""Teachers learn from their own rows only, vote with the full class ids, and are kept if others fail."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from ipate.engines.teachers.store import VoteStore, learnt_from
from ipate.errors import InputError
from ipate.files import fingerprint
from ipate.models.training import train_and_vote


class Fragile(ClassifierMixin, BaseEstimator):
    """A classifier that fails on the value 99 and counts how often it was trained."""

    trained = 0

    def fit(self, X, y):
        Fragile.trained += 1
        if np.any(X == 99):
            raise RuntimeError("no good")
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[-1])


def task(n=200, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=n)
    X = rng.normal(size=(n, 4)) + 3 * np.eye(classes, 4)[y]
    return X, y, X[:50] + 0.1, [np.arange(i, n, 10) for i in range(10)]


def store(folder, rows, pool, classes=3, mark="x"):
    return VoteStore(folder, n_teachers=len(rows), n_queries=len(pool), n_classes=classes, fingerprint=mark)


def train(estimator, kept, X, y, rows, pool, **options):
    """Train the teachers that have not voted yet and put their votes into the store."""
    voted = train_and_vote(
        estimator, X, y, rows=rows, X_public=pool, n_classes=kept.n_classes, missing=kept.missing, **options
    )
    with kept.writing() as put:
        for teacher, votes in voted:
            put(teacher, votes)


def votes_of(estimator, folder, *, X, y, pool, rows, **options):
    kept = store(folder, rows, pool)
    train(estimator, kept, X, y, rows, pool, **options)
    assert kept.missing == ()
    return np.array(kept.matrix)


def test_teacher_depends_on_its_own_rows_only(tmp_path):
    """Changing one teacher's rows changes only its own votes, as the sensitivity assumes."""
    X, y, pool, rows = task()
    before = votes_of(DecisionTreeClassifier(), tmp_path / "a", X=X, y=y, pool=pool, rows=rows)
    changed = y.copy()
    changed[rows[3]] = (changed[rows[3]] + 1) % 3
    after = votes_of(DecisionTreeClassifier(), tmp_path / "b", X=X, y=changed, pool=pool, rows=rows)
    assert not np.array_equal(before[3], after[3])
    others = [t for t in range(10) if t != 3]
    np.testing.assert_array_equal(before[others], after[others])


@pytest.mark.parametrize("options", [{"n_jobs": 2}, {"n_jobs": 2, "backend": "threading"}, {"n_jobs": 1}])
def test_votes_do_not_depend_on_engine(tmp_path, options):
    X, y, pool, rows = task()
    teacher = DecisionTreeClassifier(max_features=1)
    one = votes_of(teacher, tmp_path / "a", X=X, y=y, pool=pool, rows=rows, seed=5)
    other = votes_of(teacher, tmp_path / "b", X=X, y=y, pool=pool, rows=rows, seed=5, **options)
    np.testing.assert_array_equal(one, other)
    third = votes_of(teacher, tmp_path / "c", X=X, y=y, pool=pool, rows=rows, seed=6)
    assert not np.array_equal(one, third)


def test_teacher_with_missing_classes_keeps_class_ids(tmp_path):
    X, y, pool, _ = task()
    only_last_two = np.flatnonzero(y > 0)
    one_class = np.flatnonzero(y == 2)[:5]
    rows = [only_last_two, one_class, np.array([], dtype=np.int64)]
    votes = votes_of(LogisticRegression(), tmp_path, X=X, y=y, pool=pool, rows=rows)
    assert set(votes[0]) <= {1, 2}
    assert set(votes[1]) == {2}
    assert set(votes[2]) == {0}  # without data, a fixed public class


def test_failing_teacher_votes_fixed_class_and_others_as_before(tmp_path):
    X, y, pool, rows = task()
    before = votes_of(Fragile(), tmp_path / "a", X=X, y=y, pool=pool, rows=rows)
    X[rows[4]] = 99
    notes = {}
    after = votes_of(Fragile(), tmp_path / "b", X=X, y=y, pool=pool, rows=rows, notes=notes)
    assert notes == {4: ["failed: RuntimeError: no good"]}
    assert before[4].any()
    assert not after[4].any()
    others = [t for t in range(10) if t != 4]
    np.testing.assert_array_equal(before[others], after[others])


def test_store_with_other_fingerprint_is_refused(tmp_path):
    _, _, pool, rows = task()
    store(tmp_path, rows, pool, mark="one")
    with pytest.raises(InputError, match="fingerprint 'one', not 'two'"):
        store(tmp_path, rows, pool, mark="two")
    (tmp_path / "store.json").write_text("{")
    with pytest.raises(InputError, match="not readable"):
        store(tmp_path, rows, pool, mark="one")


def cut(path):
    path.write_bytes(path.read_bytes()[:-5])


def other_shape(path):
    np.save(path, np.zeros((3, 3), dtype=np.uint8))


@pytest.mark.parametrize("name", ["votes.npy", "done.npy", "learnt.npy"])
@pytest.mark.parametrize("spoil", [cut, other_shape, lambda path: path.unlink()], ids=["cut", "shape", "gone"])
def test_store_with_damaged_array_is_refused(tmp_path, name, spoil):
    """Otherwise teachers marked as done would silently vote class 0."""
    _, _, pool, rows = task()
    store(tmp_path, rows, pool).put(0, np.ones(len(pool), dtype=np.int64))
    spoil(tmp_path / name)
    with pytest.raises(InputError, match=rf"{name}: .*to start again"):
        store(tmp_path, rows, pool)


class Astray(Fragile):
    """A classifier that votes for an unknown class, which a byte would turn into another one."""

    says = 256

    def predict(self, X):
        return np.full((len(X), *np.shape(self.says)[1:]), self.says)


@pytest.mark.parametrize("says", [256, 3, -1, np.nan, 0.5, "ape", [[1]]])
def test_vote_for_unknown_class_becomes_fixed_class(tmp_path, monkeypatch, says):
    """Also if all teachers fail: then all of them vote the fixed class, and the run goes on."""
    X, y, pool, rows = task()
    monkeypatch.setattr(Astray, "says", says)
    notes = {}
    votes = votes_of(Astray(), tmp_path, X=X, y=y, pool=pool, rows=rows, notes=notes)
    assert not votes.any()
    assert len(notes) == 10
    assert all(reason.startswith("failed: ValueError: it votes") for (reason,) in notes.values())


def test_private_store_refuses_votes_of_wrong_shape_or_class(tmp_path):
    _, _, pool, rows = task()
    kept = store(tmp_path / "votes", rows, pool)
    for bad in (np.zeros(3, int), np.full(len(pool), 3), np.full(len(pool), -1)):
        with pytest.raises(InputError, match="teacher 0"):
            kept.put(0, bad)
    assert not kept.done.any()
    assert (tmp_path / "votes").stat().st_mode & 0o077 == 0


def test_forgotten_teacher_is_the_only_one_retrained(tmp_path):
    X, y, pool, rows = task()
    kept = store(tmp_path, rows, pool)
    train(Fragile(), kept, X, y, rows, pool)
    kept.forget(7)
    Fragile.trained = 0
    train(Fragile(), kept, X, y, rows, pool)
    assert Fragile.trained == 1


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nonfinite_row_trains_nobody_and_point_is_refused(tmp_path, value):
    X, y, pool, rows = task()
    X[17, 2] = value
    notes = {}
    votes = votes_of(LogisticRegression(), tmp_path, X=X, y=y, pool=pool, rows=rows, notes=notes)
    without = [own[own != 17] for own in rows]
    np.testing.assert_array_equal(
        votes, votes_of(LogisticRegression(), tmp_path / "b", X=X, y=y, pool=pool, rows=without)
    )
    assert notes == {}
    X[17, 2] = 0
    pool[3, 1] = value
    with pytest.raises(InputError, match=r"public features: .* row 3, column 1"):
        votes_of(LogisticRegression(), tmp_path, X=X, y=y, pool=pool, rows=rows)


def test_pipeline_with_imputer_accepts_missing_values(tmp_path):
    X, y, pool, rows = task()
    X[17, 2] = np.nan
    teacher = make_pipeline(SimpleImputer(), LogisticRegression())
    votes = votes_of(teacher, tmp_path, X=X, y=y, pool=pool, rows=rows)
    assert votes.shape == (10, 50)


def test_fingerprint_covers_every_value():
    X = np.zeros((9000, 2))
    changed = X.copy()
    changed[8999, 1] = 1
    assert fingerprint(X, "a") != fingerprint(changed, "a") != fingerprint(changed, "b")
    assert fingerprint(X, "a") == fingerprint(X.copy(), "a")


def test_progress_counts_teachers(tmp_path):
    X, y, pool, rows = task()
    seen = []
    votes_of(DecisionTreeClassifier(), tmp_path, X=X, y=y, pool=pool, rows=rows, progress=seen.append)
    assert seen == list(range(1, 11))


class Spoiler(ClassifierMixin, BaseEstimator):
    """A classifier that modifies its inputs in place, which must never affect another teacher."""

    def fit(self, X, y):
        self.shift_ = X.mean()
        self.classes_ = np.unique(y)
        X[:] = 0
        return self

    def predict(self, X):
        X += self.shift_
        return np.where(X.sum(axis=1) > 0, self.classes_[0], self.classes_[-1])


IN_PLACE = make_pipeline(StandardScaler(copy=False), DecisionTreeClassifier())


@pytest.mark.parametrize(
    ("teacher", "options"),
    [
        (Spoiler(), {}),
        (Spoiler(), {"n_jobs": 2, "backend": "threading"}),
        (IN_PLACE, {}),
        (IN_PLACE, {"n_jobs": 2}),
    ],
)
def test_in_place_teacher_does_not_affect_others(tmp_path, teacher, options):
    X, y, pool, rows = task()
    private, public = X.copy(), pool.copy()
    before = votes_of(teacher, tmp_path / "a", X=X, y=y, pool=pool, rows=rows, **options)
    np.testing.assert_array_equal(X, private)
    np.testing.assert_array_equal(pool, public)
    X[rows[0]] += 100
    after = votes_of(teacher, tmp_path / "b", X=X, y=y, pool=pool, rows=rows, **options)
    np.testing.assert_array_equal(before[1:], after[1:])


def test_fingerprint_covers_every_estimator_parameter():
    one, other = (dict.fromkeys(range(100), 1.0) | {99: w} for w in (1.0, 2.0))
    assert fingerprint(LogisticRegression(class_weight=one)) != fingerprint(LogisticRegression(class_weight=other))


def test_votes_of_changed_teachers_are_erased_or_refused(tmp_path):
    X, y, pool, rows = task()

    def open_store(given, vacant=()):
        return VoteStore(
            tmp_path,
            n_teachers=10,
            n_queries=len(pool),
            n_classes=3,
            fingerprint="x",
            learnt=learnt_from(X, y, given),
            vacant=vacant,
        )

    first = open_store(rows)
    train(LogisticRegression(), first, X, y, rows, pool)
    assert open_store(rows).missing == ()
    left = [*rows[:6], rows[6][:-1], *rows[7:]]
    with pytest.raises(InputError, match="data of teacher 6 changed since it voted, without a withdrawal"):
        open_store(left, vacant=[5])
    assert open_store(rows).missing == ()
    again = open_store(left, vacant=[6])
    assert again.missing == (6,)
    assert not again.matrix[6].any()
    assert open_store(rows, vacant=[6]).missing == (6,)  # never taken up again


def test_row_without_class_trains_no_teacher(tmp_path):
    X, y, pool, rows = task()
    gone = rows[2][:5]
    without = [own[~np.isin(own, gone)] for own in rows]
    expected = votes_of(LogisticRegression(), tmp_path / "a", X=X, y=y, pool=pool, rows=without)
    y[gone] = -1
    votes = votes_of(LogisticRegression(), tmp_path / "b", X=X, y=y, pool=pool, rows=rows)
    np.testing.assert_array_equal(votes, expected)
    y[rows[2]] = -1  # nothing is left to learn from
    assert not votes_of(LogisticRegression(), tmp_path / "c", X=X, y=y, pool=pool, rows=rows)[2].any()
