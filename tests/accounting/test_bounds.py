import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ipate.accounting.bounds import BOUNDS, Meter, best_order, find_bound, planning_bounds, queries_afforded
from ipate.errors import InputError

INDEPENDENT = st.sampled_from([Meter("gdp"), Meter("loose", "classic"), Meter("loose"), Meter("sup")])
ORDERS = [float(order) for order in range(2, 51)]


def total(meter, *, checks, labels, sensitivity, sigma, check_sigma):
    cost = labels * meter.worst_label(sensitivity=sensitivity, sigma=sigma)
    if check_sigma is not None:
        cost = cost + checks * meter.worst_check(sensitivity=sensitivity, check_sigma=check_sigma)
    return cost


@settings(max_examples=60, deadline=None)
@given(
    INDEPENDENT,
    st.floats(0.3, 8),
    st.floats(1e-8, 1e-3),
    st.sampled_from([0.5, 1.0, 2.5]),
    st.sampled_from([10.0, 40.0]),
    st.sampled_from([None, 60.0, 150.0]),
    st.sampled_from([0.5, 0.75, 1.0]),
)
def test_afforded_queries_use_the_budget_and_never_exceed_it(
    meter, epsilon, delta, sensitivity, sigma, check_sigma, rate
):
    """Spend exactly what is afforded: within budget, and one more query of the same kind is not."""
    n = queries_afforded(
        meter,
        epsilon=epsilon,
        delta=delta,
        sensitivity=sensitivity,
        sigma=sigma,
        check_sigma=check_sigma,
        answer_rate=rate,
    )
    kind = {"sensitivity": sensitivity, "sigma": sigma, "check_sigma": check_sigma}
    if n:
        cost = total(meter, checks=n, labels=int((n - 1) * rate) + 1, **kind)
        assert float(meter.epsilon(cost, delta)[0]) <= epsilon
    over = total(meter, checks=n + 1, labels=n * rate + 1, **kind)
    assert float(meter.epsilon(over, delta)[0]) > epsilon * (1 - 1e-6)


def test_best_order_affords_the_most_queries():
    meter = Meter("loose")
    label = meter.worst_label(sensitivity=1.0, sigma=40.0)
    order = best_order(meter, epsilon=1.0, delta=1e-5, label=label)
    afforded = meter.limit(1.0, 1e-5) / label
    assert afforded[meter.orders.index(order)] == afforded.max()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Meter("tightest"), "'tightest'"),
        (lambda: Meter("loose", "gdp"), "conversion is 'gdp'"),
        (lambda: Meter("loose", "best"), "'best'"),
        (lambda: Meter("loose", "classic", [0.5]), "orders hold 0.5"),
        (lambda: queries_afforded(Meter("exact"), epsilon=1, delta=1e-5, sensitivity=1, sigma=4), "'exact'"),
        (
            lambda: queries_afforded(Meter("gdp"), epsilon=1, delta=1e-5, sensitivity=1, sigma=4, answer_rate=1.5),
            "answer_rate is 1.5",
        ),
        (
            lambda: queries_afforded(Meter("gdp"), epsilon=1, delta=1e-5, sensitivity=0, sigma=4),
            "sensitivity",
        ),
    ],
)
def test_bad_requests_are_named(call, words):
    with pytest.raises(InputError, match=words):
        call()


def test_gdp_ignores_the_conversion():
    assert Meter("gdp", "classic").conversion == "gdp"


@given(st.floats(0.2, 5), st.floats(0.2, 5))
def test_limits_grow_with_the_budget(one, other):
    assume(one < other)
    for meter in (Meter("gdp"), Meter("loose", "classic")):
        assert np.all(meter.limit(one, 1e-5) <= meter.limit(other, 1e-5))


@pytest.mark.parametrize("name", list(BOUNDS))
def test_registry_key_is_the_bounds_own_name(name):
    bound = find_bound(name)
    assert bound.name == name
    assert bound.summary.startswith(f"{name}: ")
    assert Meter(name).width == (len(Meter(name).orders) if bound.has_orders else 1)


def test_flags_of_the_built_in_bounds():
    def named(test):
        return [name for name in BOUNDS if test(find_bound(name))]

    assert planning_bounds() == ("loose", "gdp", "sup")
    assert named(lambda bound: bound.whole) == ["ptr"]
    assert named(lambda bound: bound.fixes_order) == ["loose", "sup"]
    assert named(lambda bound: bound.needs_votes_by_group) == ["exact"]
    assert named(lambda bound: "laplace" in bound.noises) == ["loose", "gdp", "tight"]


def test_exact_refuses_labels_without_votes_by_group():
    with pytest.raises(InputError, match="who voted what"):
        find_bound("exact").label_cost(
            (2.0,), np.ones((1, 2)), sensitivity=np.ones(1), sigma=4.0, noise="gaussian", voters=None
        )
