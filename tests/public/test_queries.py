"""Which points are asked: the same for the same pool and seed, and no cluster of the pool without a query."""

import numpy as np
import pytest

from ipate.errors import InputError
from ipate.public.graph import make_graph
from ipate.public.queries import CLUSTERS, RULES, _greedy, choose_queries, clusters, next_queries, second_round

SIZES = (100, 60, 40, 30, 25, 20, 15, 12)
CENTRES = 12 * np.array([[x, y] for x in range(4) for y in range(2)])
CLUSTER = np.repeat(np.arange(8), SIZES)


def pool(seed=0):
    """Eight clusters of different sizes and widths."""
    rng = np.random.default_rng(seed)
    return CENTRES[CLUSTER] + rng.normal(size=(len(CLUSTER), 2)) * (0.5 + CLUSTER[:, None] / 8)


@pytest.mark.parametrize("rule", RULES)
def test_same_pool_and_seed_give_the_same_queries(rule):
    points = pool()
    found = choose_queries(rule, points, 20, seed=3)
    np.testing.assert_array_equal(found, choose_queries(rule, points.copy(), 20, seed=3, n_jobs=2))
    np.testing.assert_array_equal(found, choose_queries(rule, points, 20, seed=3, graph=make_graph(points)))
    assert len(np.unique(found)) == 20
    assert found.min() >= 0
    assert found.max() < len(points)
    assert found.tolist() != choose_queries(rule, points, 20, seed=4).tolist()


@pytest.mark.parametrize("seed", range(5))
def test_coverage_leaves_no_cluster_without_a_query(seed):
    asked = choose_queries("coverage", pool(seed), 10, seed=seed)
    assert set(CLUSTER[asked]) == set(range(8))


def test_typical_queries_are_the_densest_of_their_cells():
    points = pool()
    graph = make_graph(points)
    cell = clusters(points, 8, 0)
    densest = [np.flatnonzero(cell == own)[graph.reach[cell == own].argmin()] for own in range(8)]
    asked = choose_queries("typical", points, 8, seed=0, graph=graph)
    assert sorted(asked.tolist()) == sorted(densest)
    sizes = np.bincount(cell)[cell[asked]]
    assert (np.diff(sizes) <= 0).all()  # large cells first


def test_lazy_greedy_equals_plain_greedy():
    reached = np.random.default_rng(0).random((30, 50)).astype(np.float32) ** 4
    best, chosen = np.zeros(50, dtype=np.float32), []
    for _ in range(12):
        gains = np.maximum(reached - best, 0).sum(axis=1, dtype=np.float64)
        gains[chosen] = -1
        chosen.append(int(gains.argmax()))
        best = np.maximum(best, reached[chosen[-1]])
    assert _greedy(reached, 12).tolist() == chosen


@pytest.mark.parametrize("missing", [0, 4, 7])
def test_second_round_asks_the_cluster_without_a_label(missing):
    points = pool()
    graph = make_graph(points)
    targets = np.zeros((len(points), 8))
    for cluster in set(range(8)) - {missing}:
        targets[np.flatnonzero(cluster == CLUSTER)[0], cluster] = 1
    asked = next_queries(points, graph, targets, 2, seed=0)
    assert (CLUSTER[asked] == missing).all()
    np.testing.assert_array_equal(asked, next_queries(points, graph, targets, 2, seed=0))


def test_second_round_asks_between_contradicting_labels():
    points = pool()
    targets = np.zeros((len(points), 8))
    for cluster in range(8):
        targets[np.flatnonzero(cluster == CLUSTER)[0], cluster] = 1
    targets[np.flatnonzero(CLUSTER == 2)[1], 5] = 1
    asked = next_queries(points, make_graph(points), targets, 3, seed=1)
    assert (CLUSTER[asked] == 2).all()


def test_second_round_repeats_no_query():
    points = pool()
    targets = np.zeros((len(points), 3))
    targets[:5, 0] = 1
    vain = np.arange(5, 50)
    rest = len(points) - 50
    assert rest > CLUSTERS
    asked = next_queries(points, make_graph(points), targets, rest, seed=0, asked=vain)
    assert sorted(asked.tolist()) == list(range(50, len(points)))
    with pytest.raises(InputError, match="m is 1: the pool has 0 points that were not asked"):
        next_queries(points, make_graph(points), targets, 1, seed=0, asked=np.arange(len(points)))


def test_second_round_takes_a_quarter():
    assert (second_round(60), second_round(3)) == (15, 0)


@pytest.mark.parametrize("rule", RULES)
def test_pools_of_equal_points_are_asked_in_full(rule):
    assert sorted(choose_queries(rule, np.ones((30, 2)), 30, seed=0).tolist()) == list(range(30))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: choose_queries("nearest", pool(), 3, seed=0), "queries is 'nearest': allowed are random, typical"),
        (lambda: choose_queries("random", pool(), 0, seed=0), "m is 0"),
        (lambda: choose_queries("random", pool(), 303, seed=0), "m is 303: the pool has 302 points"),
        (lambda: choose_queries("random", pool(), 3, seed=-1), "seed is -1"),
        (lambda: choose_queries("random", pool() * np.inf, 3, seed=0), "finite"),
        (lambda: choose_queries("coverage", pool(), 3, seed=0, graph=make_graph(pool()[:9])), "9 points"),
        (lambda: next_queries(pool(), make_graph(pool()), np.ones((5, 2)), 1, seed=0), "one row per point"),
    ],
)
def test_bad_rules_and_numbers_are_refused(call, message):
    with np.errstate(invalid="ignore"), pytest.raises(InputError, match=message):
        call()
