"""The graph of the pool: symmetric, the stated weights, and spreading that equals the closed form."""

import logging

import numpy as np
import pytest
from sklearn.semi_supervised import LabelSpreading

from ipate.errors import InputError
from ipate.public import graph as module
from ipate.public.graph import logged_bar, make_graph, margins, usual_alpha

RNG = np.random.default_rng(0)
POINTS = np.concatenate([RNG.normal(size=(40, 3)), RNG.normal(size=(30, 3)) + 4])
GRAPH = make_graph(POINTS, n_neighbors=6)
TARGETS = np.zeros((70, 3))
TARGETS[[0, 5, 50, 60], [0, 1, 2, 2]] = 1.0


def by_hand(points, k):
    """W, from all pairs of points."""
    distance = np.linalg.norm(points[:, None] - points[None], axis=2)
    np.fill_diagonal(distance, np.inf)
    nearest = np.argsort(distance, axis=1)[:, :k]
    mean = np.take_along_axis(distance, nearest, axis=1).mean()
    weights = np.zeros(distance.shape)
    for i, own in enumerate(nearest):
        weights[i, own] = np.exp(-((distance[i, own] / mean) ** 2))
    return np.maximum(weights, weights.T)


def test_graph_is_symmetric_with_stated_weights():
    found = GRAPH.similarity.toarray()
    np.testing.assert_array_equal(found, found.T)
    weights = by_hand(POINTS, 6)
    degree = weights.sum(axis=1)
    np.testing.assert_allclose(GRAPH.degree, degree, rtol=1e-10)
    np.testing.assert_allclose(found, weights / np.sqrt(np.outer(degree, degree)), rtol=1e-8, atol=1e-15)
    assert np.abs(np.linalg.eigvalsh(found)).max() <= 1 + 1e-12


@pytest.mark.parametrize("tolerance", [1e-9, 1e-2])
@pytest.mark.parametrize("alpha", [0.3, 0.95, 0.99])
def test_chebyshev_series_equals_the_direct_solution(alpha, tolerance):
    values = RNG.normal(size=(70, 5))
    direct = np.linalg.solve(np.eye(70) - alpha * GRAPH.similarity.toarray(), values)
    found = GRAPH.solve(values, alpha=alpha, tolerance=tolerance)
    assert np.all(np.linalg.norm(found - direct, axis=0) <= tolerance * np.linalg.norm(values, axis=0) + 1e-12)


def test_blocks_of_columns_do_not_change_the_solution(monkeypatch):
    values = RNG.normal(size=(70, 7))
    whole = GRAPH.solve(values, alpha=0.95)
    monkeypatch.setattr(module, "_ENTRIES", 140)
    np.testing.assert_array_equal(GRAPH.solve(values, alpha=0.95), whole)


def test_spreading_equals_scikit_learn_on_one_graph():
    root = np.sqrt(GRAPH.degree)
    weights = GRAPH.similarity.toarray() * np.outer(root, root)
    labels = np.where(TARGETS.any(axis=1), TARGETS.argmax(axis=1), -1)
    other = LabelSpreading(kernel=lambda X, Y: weights, alpha=0.9, max_iter=2000, tol=1e-10).fit(POINTS, labels)
    found = GRAPH.spread(TARGETS, alpha=0.9, balance=False)
    np.testing.assert_allclose(found, other.label_distributions_, atol=1e-6)


def test_balance_divides_by_the_mass_of_classes():
    inverse = np.linalg.inv(np.eye(70) - 0.9 * GRAPH.similarity.toarray())
    known = inverse @ (TARGETS / TARGETS.sum(axis=0))
    np.testing.assert_allclose(GRAPH.spread(TARGETS, alpha=0.9), known / known.sum(axis=1, keepdims=True), atol=1e-7)


def test_traces_of_a_class_are_not_raised_to_a_class():
    traces = TARGETS.copy()
    traces[0, 1], traces[5, 1] = 1e-6, 0.0  # a posterior that all but excludes the class 1
    assert (GRAPH.spread(traces, alpha=0.9)[:, 1] < 1e-4).all()


def test_points_that_no_label_reaches_have_no_margin():
    apart = np.concatenate([POINTS[:20], POINTS[:20] + 1000])
    graph = make_graph(apart, n_neighbors=4)
    targets = np.zeros((40, 2))
    targets[[0, 1], [0, 1]] = 1
    found = graph.spread(targets, alpha=0.95)
    np.testing.assert_array_equal(found[20:], 0.5)
    assert not margins(found)[20:].any()
    assert margins(found)[:20].any()


def test_copies_and_outliers_stay_joined():
    points = np.concatenate([np.zeros((15, 2)), RNG.normal(size=(20, 2)), [[1e6, 0.0]]])
    graph = make_graph(points, n_neighbors=3)
    assert (graph.degree > 0).all()
    assert not graph.similarity.diagonal().any()
    assert np.isfinite(graph.spread(np.eye(36, 2), alpha=0.99)).all()
    assert (make_graph(np.ones((5, 2))).degree == 4).all()  # fewer points than neighbours, all alike


def test_threads_do_not_change_the_graph(monkeypatch):
    monkeypatch.setattr(module, "_ROWS", 16)
    one, two = (make_graph(POINTS, n_jobs=jobs) for jobs in (1, 2))
    assert (one.similarity != two.similarity).nnz == 0
    np.testing.assert_array_equal(one.reach, two.reach)
    monkeypatch.undo()
    whole = make_graph(POINTS)
    np.testing.assert_array_equal((whole.similarity != 0).toarray(), (one.similarity != 0).toarray())
    np.testing.assert_allclose(whole.similarity.toarray(), one.similarity.toarray(), rtol=1e-9)


def test_margins_are_the_lead_of_the_first_class():
    np.testing.assert_allclose(margins(np.array([[0.2, 0.7, 0.1], [0.5, 0.5, 0.0]])), [0.5, 0.0], atol=1e-15)
    np.testing.assert_array_equal(margins(np.ones((2, 1))), [1.0, 1.0])


def test_scarce_labels_are_spread_further():
    assert usual_alpha(120, 9000) == 0.99
    assert usual_alpha(121, 9000) == 0.95


def test_long_work_logs_its_progress(monkeypatch, caplog):
    caplog.set_level(logging.INFO, logger="ipate")
    make_graph(POINTS)
    assert not caplog.records  # quick work logs nothing
    monkeypatch.setattr(module, "_FIRST", 0.0)
    with logged_bar("nearest neighbours", 1000) as told:
        told(400)
        told(500)
    assert [record.getMessage() for record in caplog.records] == ["nearest neighbours: 400 of 1,000"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make_graph(POINTS[:1]), "at least two"),
        (lambda: make_graph(np.full((4, 2), np.nan)), "finite"),
        (lambda: make_graph(np.ones(4)), "shape"),
        (lambda: make_graph(POINTS, n_neighbors=0), "n_neighbors is 0"),
        (lambda: GRAPH.spread(TARGETS, alpha=1.0), "alpha is 1.0"),
        (lambda: GRAPH.spread(TARGETS, alpha="auto"), "alpha is 'auto'"),
        (lambda: GRAPH.spread(-TARGETS, alpha=0.9), "0 or above"),
        (lambda: GRAPH.solve(TARGETS[:5], alpha=0.9), r"\(70, columns\)"),
    ],
)
def test_bad_points_and_targets_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
