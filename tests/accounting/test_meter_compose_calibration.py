import dp_accounting
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ipate.accounting.calibration import best_order, queries_afforded, sigma_for
from ipate.accounting.compose import Cost
from ipate.accounting.meter import Meter
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
def test_a_calibrated_run_never_overshoots_and_stops_only_at_the_budget(
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


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([Meter("gdp"), Meter("loose", "classic"), Meter("loose")]),
    st.floats(0.5, 8),
    st.floats(0.5, 3),
    st.integers(1, 5000),
    st.sampled_from([None, 2.0, 3.75]),
)
def test_sigma_for_a_plan_is_the_smallest_that_fits(meter, epsilon, sensitivity, labels, ratio):
    sigma = sigma_for(
        meter,
        epsilon=epsilon,
        delta=1e-5,
        sensitivity=sensitivity,
        labels=labels,
        queries=2 * labels,
        check_ratio=ratio,
    )

    def spends(noise):
        cost = total(
            meter,
            checks=2 * labels,
            labels=labels,
            sensitivity=sensitivity,
            sigma=noise,
            check_sigma=None if ratio is None else ratio * noise,
        )
        return float(meter.epsilon(cost, 1e-5)[0])

    assert spends(sigma) <= epsilon
    assert spends(sigma * 0.999) > epsilon


def test_sigma_for_sup_needs_less_noise_than_loose():
    plan = {"epsilon": 1.0, "delta": 1e-5, "sensitivity": 1.0, "labels": 50, "check_ratio": 3.75}
    loose, sup = sigma_for(Meter("loose"), **plan), sigma_for(Meter("sup"), **plan)
    assert 0.7 * loose < sup < 0.9 * loose


def test_best_order_affords_most_and_beats_its_neighbours():
    meter = Meter("loose")
    label = meter.worst_label(sensitivity=1.0, sigma=40.0)
    order = best_order(meter, epsilon=1.0, delta=1e-5, label=label)
    afforded = meter.limit(1.0, 1e-5) / label
    assert afforded[meter.orders.index(order)] == afforded.max()


def test_gaussian_parts_add_exactly_and_renyi_parts_add_by_order():
    gaussian = Cost.gaussian(0.3) + Cost.gaussian(0.4)
    assert gaussian.mu2 == pytest.approx(0.25)
    assert gaussian.epsilon(delta=1e-5) == pytest.approx(Cost.gaussian(0.5).epsilon(delta=1e-5), rel=1e-12)
    mixed = gaussian + Cost.renyi(np.full(49, 0.1))
    np.testing.assert_allclose(mixed.curve(), np.array(ORDERS) * 0.125 + 0.1)
    assert mixed.epsilon(delta=1e-5) > gaussian.epsilon(delta=1e-5)


def test_a_renyi_part_never_makes_the_account_cheaper_than_its_gaussian_part():
    """A curve of nothing keeps the account sound: Rényi conversion is at or above exact gdp."""
    silent = Cost.gaussian(0.5) + Cost.renyi(np.zeros(49))
    assert silent.epsilon(delta=1e-5) >= Cost.gaussian(0.5).epsilon(delta=1e-5)


def test_an_event_of_dp_accounting_composes():
    event = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(20.0), 10)
    np.testing.assert_allclose(Cost.event(event).curve(), np.array(ORDERS) * 10 / 800)


def test_an_event_without_a_replacement_account_is_refused():
    event = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.0))
    with pytest.raises(InputError, match="replacement"):
        Cost.event(event)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Meter("tightest"), "'tightest'"),
        (lambda: Meter("loose", "gdp"), "conversion is 'gdp'"),
        (lambda: Meter("loose", "best"), "'best'"),
        (lambda: Meter("loose", "classic", [0.5]), "orders hold 0.5"),
        (lambda: Cost.gaussian(-1), "mu is -1"),
        (lambda: Cost.renyi([0.1]), "49 orders"),
        (lambda: Cost.renyi(np.full(49, -0.5)), "-0.5"),
        (lambda: Cost.gaussian(1) + Cost.gaussian(1, orders=[2.0]), "different orders"),
        (lambda: queries_afforded(Meter("exact"), epsilon=1, delta=1e-5, sensitivity=1, sigma=4), "'exact'"),
        (
            lambda: queries_afforded(Meter("gdp"), epsilon=1, delta=1e-5, sensitivity=1, sigma=4, answer_rate=1.5),
            "answer_rate is 1.5",
        ),
        (
            lambda: queries_afforded(Meter("gdp"), epsilon=1, delta=1e-5, sensitivity=0, sigma=4),
            "sensitivity",
        ),
        (
            lambda: sigma_for(Meter("gdp"), epsilon=1, delta=1e-5, sensitivity=1, labels=5, queries=3),
            "labels is 5",
        ),
        (
            lambda: sigma_for(Meter("loose", "classic"), epsilon=0.1, delta=1e-5, sensitivity=1, labels=5),
            "epsilon is 0.1",
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
