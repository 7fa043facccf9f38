"""Private rows given as the public pool must not end up in a model that is called releasable."""

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from attacks.making import run, write_csv
from ipate import PATEClassifier
from ipate.errors import InputError

N = 300


def people():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3))
    return X, (X[:, 0] > 0).astype(int)


def model(**options):
    return PATEClassifier(
        student=KNeighborsClassifier(1),
        classes=[0, 1],
        epsilon=8.0,
        n_teachers=15,
        random_state=0,
        verbose=0,
        **options,
    )


def attack(X, y, pool):
    """Publish a student that stores its pool, and look for private rows in it, bit for bit."""
    fitted = model().fit(X, y, X_public=pool)
    own = {row.tobytes() for row in np.ascontiguousarray(fitted.student_._fit_X)}
    found = np.mean([row.tobytes() in own for row in X])
    pytest.fail(f"a student that is called {fitted.guarantee_.kind} holds {found:.0%} of the private rows")


@pytest.mark.parametrize("copy", ["all rows", "shuffled rows", "two thirds"])
def test_copy_of_private_rows_is_refused_as_pool(copy):
    X, y = people()
    rng = np.random.default_rng(1)
    pool = {
        "all rows": X,
        "shuffled rows": X[rng.permutation(N)],
        "two thirds": np.vstack([X[:200], rng.normal(size=(100, 3))]),
    }[copy]
    with pytest.raises(InputError, match="copies of private rows"):
        attack(X, y, pool)


def test_one_equal_row_changes_nothing():
    X, y = people()
    pool = np.random.default_rng(2).normal(size=(100, 3))
    pool[17] = X[4]
    assert model().fit(X, y, X_public=pool).guarantee_.kind == "releasable"


def test_allowed_overlap_has_no_guarantee(tmp_path):
    X, y = people()
    fitted = model(allow_overlap=True).fit(X, y, X_public=X)
    assert fitted.guarantee_.kind == "none"
    assert "private data was also used as public data" in fitted.report(tmp_path / "report.html").read_text()
    with pytest.raises(InputError, match="labelled X are copies"):
        model().fit(X, y, X_public=np.random.default_rng(3).normal(size=(50, 3)), labelled=(X, y))


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_frame_with_people_of_private_rows_is_refused(kind):
    """Newer rows of the same people are no copies, but nobody's budget would protect them."""
    pandas = pytest.importorskip("pandas")
    make = {
        "pandas": lambda frame: frame,
        "polars": lambda frame: pytest.importorskip("polars").from_pandas(frame),
        "pyarrow": lambda frame: pytest.importorskip("pyarrow").Table.from_pandas(frame, preserve_index=False),
    }[kind]
    X, y = people()
    own = pandas.DataFrame(X, columns=list("abc")).assign(id=np.arange(N), y=y)
    pool = pandas.DataFrame(np.random.default_rng(3).normal(size=(60, 3)), columns=list("abc"))
    pool = pool.assign(id=[f"{N - 1}.0", *map(str, range(1000, 1059))])
    with pytest.raises(InputError, match=f"X_public has rows of 1 people of the private data, such as '{N - 1}'"):
        model().fit(make(own), "y", person_id="id", X_public=make(pool))
    fitted = model().fit(make(own), "y", person_id="id", X_public=make(pool.iloc[1:]))
    assert fitted.guarantee_.kind == "releasable"


@pytest.mark.parametrize("person", ["id", None], ids=["ids", "rows"])
@pytest.mark.parametrize("first", [True, False], ids=["overlap first", "overlap second"])
def test_overlap_shares_no_ledger_with_other_runs(tmp_path, person, first):
    """Nobody records whose rows were in the pool, so no later promise on the same ledger would be true."""
    file = write_csv(tmp_path / "people.csv")
    options = [["--allow-overlap"], []] if first else [[], ["--allow-overlap"]]
    assert run(file, "one", *options[0], person=person, labelling="max_labels = 2").code == 0
    refused = run(file, "two", *options[1], person=person)
    assert refused.code == 2
    assert "(allow_overlap)" in refused.err
    assert "--fresh-ledger" in refused.err
    assert not (tmp_path / "two").exists()
    assert run(file, "three", *options[0], person=person, labelling="max_labels = 2").code == 0
