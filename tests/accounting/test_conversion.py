import numpy as np
import pytest
from dp_accounting.rdp import compute_epsilon
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ipate.accounting.bounds import PAPER_ORDERS
from ipate.accounting.loose import BOUND
from ipate.errors import InputError

ORDERS = np.array(PAPER_ORDERS)
# above δ², where dp_accounting has a second argument that ends in ε = 0
CURVES = arrays(np.float64, ORDERS.shape, elements=st.floats(1e-3, 20))
DELTAS = st.floats(1e-12, 1e-2)


def epsilon_of(rdp, orders, **budget):
    return BOUND.epsilon(orders, np.asarray(rdp, dtype=float), **budget)


def test_specification_vectors():
    for name, expected in (("classic", 0.8059434455), ("improved", 0.5969800315)):
        epsilon, order = epsilon_of([0.2], [20], delta=1e-5, conversion=name)
        assert float(epsilon) == pytest.approx(expected, rel=1e-9)
        assert float(order) == 20


@given(CURVES, DELTAS)
def test_improved_is_what_dp_accounting_gives(curve, delta):
    epsilon, order = epsilon_of(curve, ORDERS, delta=delta, conversion="improved")
    theirs, their_order = compute_epsilon(ORDERS, curve, delta)
    assert float(epsilon) == pytest.approx(theirs, rel=1e-12, abs=1e-14)
    if theirs > 0:
        assert float(order) == their_order


@given(CURVES, DELTAS)
def test_improved_never_exceeds_classic(curve, delta):
    improved, _ = epsilon_of(curve, ORDERS, delta=delta, conversion="improved")
    classic, _ = epsilon_of(curve, ORDERS, delta=delta, conversion="classic")
    assert improved <= classic


@given(st.floats(1e-2, 50), DELTAS, st.sampled_from(["classic", "improved"]))
def test_limit_converts_to_at_most_the_budget(epsilon, delta, name):
    limit = BOUND.limit(ORDERS, epsilon=epsilon, delta=delta, conversion=name)
    for order, allowed in zip(ORDERS, limit, strict=True):
        if np.isfinite(allowed):
            cost, _ = epsilon_of([allowed], [order], delta=delta, conversion=name)
            assert float(cost) <= epsilon
            more, _ = epsilon_of([allowed * 1.000001 + 1e-9], [order], delta=delta, conversion=name)
            assert float(more) > epsilon * (1 - 1e-9)


def test_only_zero_cost_converts_to_zero_epsilon():
    epsilon, order = epsilon_of(np.zeros((2, 49)), ORDERS, delta=1e-5, conversion="classic")
    assert epsilon.tolist() == [0, 0]
    assert np.isnan(order).all()
    cost = np.zeros(49)
    cost[0] = 1e-12
    assert epsilon_of(cost, ORDERS, delta=1e-5, conversion="classic")[0] > 0


def test_delta_may_differ_by_account():
    curve = np.tile(ORDERS * 0.01, (2, 1))
    epsilon, _ = epsilon_of(curve, ORDERS, delta=[1e-5, 1e-9], conversion="improved")
    assert epsilon[0] < epsilon[1]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: epsilon_of([0.1], [1.0], delta=1e-5, conversion="classic"), "orders hold 1"),
        (lambda: epsilon_of([0.1], [2.0], delta=0, conversion="classic"), "delta is 0"),
        (lambda: epsilon_of([0.1], [2.0], delta=0.1, conversion="magic"), "'magic'"),
        (lambda: epsilon_of([0.1, 0.2], [2.0], delta=0.1, conversion="classic"), "last axis"),
        (lambda: epsilon_of([], [], delta=0.1, conversion="classic"), "at least one"),
        (lambda: BOUND.limit([2.0], epsilon=-1, delta=0.1, conversion="classic"), "epsilon is -1"),
    ],
)
def test_bad_numbers_are_named(call, words):
    with pytest.raises(InputError, match=words):
        call()
