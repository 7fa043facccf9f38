import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipate.data.dataset import partition
from ipate.errors import InputError


def check(parts, n):
    together = np.concatenate([parts.private, parts.public, parts.test])
    assert sorted(together.tolist()) == list(range(n))
    assert len(parts.private) >= 1


@given(st.data(), st.integers(1, 200), st.integers(0, 2**32))
def test_sizes_are_exact_and_every_row_is_used(data, n, seed):
    public = data.draw(st.integers(0, n - 1))
    test = data.draw(st.integers(0, n - 1 - public))
    parts = partition(n, public=public, test=test, seed=seed)
    check(parts, n)
    assert parts.sizes == {"private": n - public - test, "public": public, "test": test}
    again = partition(n, public=public, test=test, seed=seed)
    assert np.array_equal(parts.public, again.public)
    assert np.array_equal(parts.private, again.private)


@given(st.lists(st.integers(0, 12), min_size=3, max_size=120), st.data())
def test_people_stay_in_one_part_and_sizes_count_people(owners, data):
    n, there = len(owners), len(set(owners))
    public = data.draw(st.integers(0, 13))
    test = data.draw(st.integers(0, 13))
    if public + test >= there:
        with pytest.raises(InputError, match="sizes count people"):
            partition(n, public=public, test=test, seed=1, person_id=owners)
        return
    parts = partition(n, public=public, test=test, seed=1, person_id=owners)
    check(parts, n)
    sides = [{owners[row] for row in rows} for rows in (parts.private, parts.public, parts.test)]
    assert [len(side) for side in sides] == [there - public - test, public, test]


@pytest.mark.parametrize(("public", "test"), [(100, 10), (0.1, 0.01)])
def test_row_counts_of_one_person_move_nobody_else(public, test):
    """The partition is public: it may depend on the number of people, not on their rows."""
    owners = np.repeat(np.arange(1000), 3)
    more = np.concatenate([owners, np.full(500, 7)])
    one = partition(len(owners), public=public, test=test, seed=0, person_id=owners)
    other = partition(len(more), public=public, test=test, seed=0, person_id=more)
    for side in ("private", "public", "test"):
        assert set(owners[getattr(one, side)]) == set(more[getattr(other, side)])
    assert one.sizes == {"private": 2670, "public": 300, "test": 30}


@given(st.lists(st.integers(0, 3), min_size=10, max_size=150), st.integers(0, 100))
def test_stratified_parts_keep_class_shares(y, seed):
    n = len(y)
    parts = partition(n, public=0.3, test=0.2, seed=seed, y=y)
    check(parts, n)
    for rows in (parts.public, parts.test):
        for c in set(y):
            assert abs(sum(y[row] == c for row in rows) - y.count(c) * len(rows) / n) <= 2


def test_fractions_are_rounded_to_at_least_one_row():
    assert partition(1000, public=0.15, test=0.05, seed=0).sizes == {"private": 800, "public": 150, "test": 50}
    assert partition(10, public=1, test=0, seed=0).sizes == {"private": 9, "public": 1, "test": 0}
    assert partition(10, public=0.001, test=0.0, seed=0).sizes == {"private": 9, "public": 1, "test": 0}
    assert partition(1, public=0, test=0, seed=0).sizes == {"private": 1, "public": 0, "test": 0}
    assert partition(np.int64(10), public=np.int64(2), test=np.float64(0.1), seed=np.int64(3)).sizes["public"] == 2


def test_official_test_part_is_kept():
    official = np.array([9, 7, 8])
    parts = partition(10, public=2, test=official, seed=5)
    check(parts, 10)
    assert parts.test.tolist() == [9, 7, 8]
    with pytest.raises(ValueError, match="read-only"):
        parts.test[0] = 1
    official[0] = 9  # the caller's own array stays theirs


def test_seeds_differ_and_rows_are_shuffled():
    one = partition(1000, public=100, test=100, seed=0)
    other = partition(1000, public=100, test=100, seed=1)
    assert not np.array_equal(one.public, other.public)
    assert not np.array_equal(one.public, np.sort(one.public))
    assert not np.array_equal(one.test, np.random.default_rng(0).permutation(1000)[:100])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"public": 95, "test": 5}, "public = 95 and test = 5 leave 0 of 100 rows: at least one must be private"),
        ({"public": 95, "test": 50}, "leave -45 of 100 rows"),
        ({"public": 0.7, "test": 0.4}, "public = 70 and test = 40 leave -10 of 100 rows"),
        ({"public": -1}, "public is -1"),
        ({"public": 1.0}, "public is 1.0: it must be a count of rows, or a share that is below 1"),
        ({"public": 20.0}, "public is 20.0"),
        ({"public": True}, "public is True"),
        ({"public": "9"}, "public is '9'"),
        ({"test": float("nan")}, "test is nan"),
        ({"test": np.array([1, 1])}, "they must be distinct"),
        ({"test": np.array([100])}, "lie in 0 to 99"),
        ({"test": np.array([0.5])}, "it must be row numbers"),
        ({"test": np.arange(95)}, "public = 10 and test = 95"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": None}, "seed is None"),
        ({"person_id": [1, 2]}, r"person_id has the shape \(2,\)"),
        ({"y": [1, 2]}, r"y has the shape \(2,\)"),
        ({"y": np.zeros(100), "person_id": np.zeros(100)}, "at most one of these"),
        ({"n": 0}, "n is 0"),
    ],
)
def test_invalid_sizes_are_refused_with_their_values(changes, words):
    settings = {"n": 100, "public": 10, "test": 10, "seed": 0, **changes}
    with pytest.raises(InputError, match=words):
        partition(settings.pop("n"), **settings)
