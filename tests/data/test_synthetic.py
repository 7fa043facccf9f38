import time

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from ipate.data import load
from ipate.data.synthetic import CLASSES, FEATURES, PRIORS, SHARES, SHIFTS
from ipate.errors import InputError
from ipate.people.people import People
from ipate.people.policy import Policy


def test_shares_bounds_and_size_match_documentation():
    data = load("synthetic")
    assert data.n_rows == 50_000
    assert data.X.shape == (50_000, 20)
    assert {name: float(np.mean(data.levels == name)) for name, _ in SHARES} == dict(SHARES)
    assert np.allclose(np.bincount(data.y) / data.n_rows, PRIORS, atol=0.01)
    assert (data.bounds[:, 0].astype(np.float32) <= data.X).all()
    assert (data.bounds[:, 1].astype(np.float32) >= data.X).all()
    assert sum(PRIORS) == pytest.approx(1)
    assert len(SHIFTS) == len(CLASSES)
    assert all(len(row) == len(FEATURES) for row in SHIFTS)


def test_same_seed_gives_the_same_population():
    one, same, other = (load("synthetic", n_people=500, seed=seed) for seed in (3, 3, 4))
    assert np.array_equal(one.X, same.X)
    assert np.array_equal(one.y, same.y)
    assert np.array_equal(one.levels, same.levels)
    assert not np.array_equal(one.y, other.y)


def test_default_population_is_drawn_within_a_second():
    start = time.perf_counter()
    load("synthetic")
    assert time.perf_counter() - start < 1.0


def test_levels_depend_on_class_only_with_correlation():
    alike = load("synthetic")
    shares = [np.mean(alike.levels[alike.y == c] == "high") for c in range(6)]
    assert max(shares) - min(shares) < 0.03
    tilted = load("synthetic", correlation=0.5)
    shares = [np.mean(tilted.levels[tilted.y == c] == "high") for c in range(6)]
    assert all(np.diff(shares) > 0.05)
    assert float(np.mean(tilted.levels == "high")) == 0.54
    assert np.array_equal(alike.X, tilted.X)


@threadpool_limits.wrap(limits=1)  # models as small as these lose most of their time to threads
def test_accuracies_match_documentation():
    data = load("synthetic")
    test = slice(45_000, None)
    X, y = data.X[test], data.y[test]
    ceiling = LogisticRegression(max_iter=300).fit(data.X[:20_000], data.y[:20_000]).score(X, y)
    assert 0.90 <= ceiling <= 0.93
    votes = []
    for teacher in range(100):
        rows = slice(150 * teacher, 150 * (teacher + 1))
        votes.append(LogisticRegression(max_iter=300).fit(data.X[rows], data.y[rows]).predict(X))
    votes = np.array(votes)
    counts = np.stack([(votes == c).sum(axis=0) for c in range(6)])
    assert 0.81 <= np.mean(votes == y) <= 0.87
    assert 0.89 <= np.mean(counts.argmax(axis=0) == y) <= 0.93


def test_levels_make_people_under_a_policy():
    data = load("synthetic", n_people=100)
    people = People.from_levels(
        data.levels, policy=Policy(levels={"high": 1.0, "average": 2.0, "low": 3.0}, delta=1e-5)
    )
    assert people.group_sizes == {"high": 54, "average": 37, "low": 9}


@pytest.mark.parametrize("n", [1, 2, 7])
def test_tiny_population_is_allowed(n):
    assert load("synthetic", n_people=n).n_rows == n


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_people": 0}, "n_people is 0"),
        ({"n_people": 1.5}, "n_people is 1.5"),
        ({"n_people": True}, "n_people is True"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": True}, "seed is True"),
        ({"correlation": 1.1}, "correlation is 1.1"),
        ({"correlation": float("nan")}, "correlation is nan"),
        ({"sed": 1}, "option 'sed' is unknown to 'synthetic': its options are n_people, seed, correlation"),
    ],
)
def test_invalid_options_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        load("synthetic", **options)
