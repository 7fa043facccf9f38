"""The queries file holds public points and the encoding of all sites, identified by a hash of both."""

import numpy as np
import pytest

from ipate.errors import InputError
from ipate.parties.queries import make_queries, read_queries
from parties.making import queries, write_pool

CLASSES = ["well", "ill"]


def test_queries_round_trip_to_equal_bytes(tmp_path):
    made = queries(tmp_path)
    made.write(tmp_path / "one.npz")
    queries(tmp_path).write(tmp_path / "other.npz")
    found = read_queries(tmp_path / "one.npz")
    np.testing.assert_array_equal(found.X, made.X)
    assert (found.encoding, found.sha256, found.ids) == (made.encoding, made.sha256, None)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "other.npz").read_bytes()
    with pytest.raises(InputError, match="already exists"):
        made.write(tmp_path / "one.npz")


def test_hash_covers_everything_votes_depend_on(tmp_path):
    def made(classes=CLASSES, bounds=(0, 100), names=("age", "bmi"), ids=None, x=1.0, shape=(2, 2)):
        given = {"queries": np.array(ids)} if ids else {}
        X = np.full(shape, 20.0)
        X[0, 0] = x
        np.savez(tmp_path / "pool.npz", X=X, feature_names=names, bounds=[bounds, (10, 50)], **given)
        return make_queries(tmp_path / "pool.npz", classes=classes).sha256

    every = [
        made(),
        made(classes=CLASSES[::-1]),
        made(bounds=(0, 99)),
        made(names=("bmi", "age")),
        made(ids=["a", "b"]),
        made(ids=["b", "a"]),
        made(x=2.0),
        made(shape=(3, 2)),
    ]
    assert len(set(every)) == len(every)
    assert made() == every[0]


def test_csv_ids_and_columns_are_read(tmp_path):
    (tmp_path / "pool.csv").write_text('id,"bmi",age,note\np1,22,40,x\np2,30,70,y\n')
    made = make_queries(tmp_path / "pool.csv", classes=CLASSES, features=["age", "bmi"], id_column="id")
    assert made.ids == ("p1", "p2")
    assert made.X.tolist() == [[40, 22], [70, 30]]
    assert made.encoding.bounds is None
    made.write(tmp_path / "queries.npz")
    assert read_queries(tmp_path / "queries.npz").sha256 == made.sha256


BAD = {
    "text": ("age,bmi\n40,tall\n", {}, "line 2: feature 'bmi' is 'tall'"),
    "a missing value": ("age,bmi\n40,\n", {}, "line 2: bmi is missing"),
    "infinity": ("age,bmi\n40,inf\n", {}, "'bmi' is infinite"),
    "no rows": ("age,bmi\n", {}, "no rows"),
    "no classes": ("age,bmi\n40,22\n", {"classes": None}, "at least two"),
    "one class": ("age,bmi\n40,22\n", {"classes": ["a"]}, "at least two"),
    "a class without a name": ("age,bmi\n40,22\n", {"classes": ["a", ""]}, "one has no name"),
    "duplicate ids": ("age,bmi\n40,22\n40,23\n", {"id_column": "age"}, "1 different ids for 2 queries"),
    "a missing column": ("age,bmi\n40,22\n", {"features": ["age", "bim"]}, "no column 'bim'"),
}


@pytest.mark.parametrize("case", BAD)
def test_unusable_pool_is_refused(tmp_path, case):
    text, options, words = BAD[case]
    (tmp_path / "pool.csv").write_text(text)
    with pytest.raises(InputError, match=words):
        make_queries(tmp_path / "pool.csv", **{"classes": CLASSES, **options})


def test_binary_pool_is_refused_with_its_byte(tmp_path):
    (tmp_path / "pool.csv").write_bytes(b"age,bmi\n40,\x80\n")
    with pytest.raises(InputError, match=r"pool\.csv holds the byte b'\\x80': a csv file must be text in UTF-8"):
        make_queries(tmp_path / "pool.csv", classes=CLASSES)


BOUNDS = {
    "a missing feature": ("age,0,100\n", "no bounds for feature 'bmi'"),
    "an unknown feature": ("age,0,100\nbmi,0,50\nwaist,0,1\n", "unknown feature 'waist'"),
    "a duplicate feature": ("age,0,100\nage,0,50\n", "duplicate feature 'age'"),
    "low above high": ("age,100,0\nbmi,0,50\n", "low must be below high"),
    "not a number": ("age,zero,100\nbmi,0,50\n", "must be numbers"),
    "another unit": ("age,0,1\nbmi,0,50\n", "'age' lies outside the bounds"),
}


@pytest.mark.parametrize("case", BOUNDS)
def test_unusable_bounds_are_refused(tmp_path, case):
    text, words = BOUNDS[case]
    pool = write_pool(tmp_path)
    (tmp_path / "bounds.csv").write_text(f"feature,low,high\n{text}")
    with pytest.raises(InputError, match=words):
        make_queries(pool, classes=CLASSES, bounds=tmp_path / "bounds.csv")


def test_files_without_queries_are_refused(tmp_path):
    np.savez(tmp_path / "data.npz", X=np.zeros((2, 2)))
    for call, words in [
        (lambda: read_queries(tmp_path / "data.npz"), "is not a queries file"),
        (lambda: read_queries(tmp_path / "nowhere.npz"), "no such file"),
        (lambda: make_queries(tmp_path / "data.npz", classes=CLASSES), "no 'feature_names'"),
        (lambda: make_queries(tmp_path / "data.npz", classes=CLASSES, features=["a"]), "names its own features"),
        (lambda: make_queries(tmp_path / "pool.txt", classes=CLASSES), "'.txt' is unknown"),
        (lambda: make_queries(tmp_path / "pool.csv", classes=CLASSES), "no such file"),
    ]:
        with pytest.raises(InputError, match=words):
            call()
