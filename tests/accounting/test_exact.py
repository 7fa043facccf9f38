import itertools
import tracemalloc

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from ipate.accounting import exact
from ipate.accounting._argmax import argmax_log_law
from ipate.accounting._renyi import worst_divergence, worst_tangent
from ipate.accounting.exact import check_rdp, group_label_rdp, label_rdp_by_source, upsampled_label_rdp
from ipate.errors import InputError

ORDERS = np.array([1.25, 2.0, 7.5, 20.0, 50.0])
UNANIMOUS = [250.0] + [0.0] * 9
CLEAR = [230.0, 12, 5, 3] + [0.0] * 6
CLOSE = [120.0, 110, 10, 5, 5] + [0.0] * 5
# Below this, plain double-precision oracles know nothing.
FLOOR = 1e-13


def renyi(logp, logq, orders):
    """D_α(P‖Q) of laws (..., J), shape (..., A), by the code under test."""
    p, q = np.broadcast_arrays(np.asarray(logp, dtype=float), np.asarray(logq, dtype=float))
    flat_p, flat_q = (np.moveaxis(each, -1, 0).reshape(p.shape[-1], -1, 1) for each in (p, q))
    alphas = np.atleast_1d(np.asarray(orders, dtype=float))
    cost = worst_divergence(flat_p, flat_q, np.ones_like(flat_p), alphas, reverse=False)
    return cost.reshape(*p.shape[:-1], alphas.size)


def shifted(counts, source, target, weight):
    moved = np.array(counts, dtype=float)
    if source is not None:
        moved[source] -= weight
    if target is not None:
        moved[target] += weight
    return moved


def both(counts, source, target, *, sigma=40.0, weight=1.0, orders=(2.0, 20.0)):
    p = argmax_log_law(counts, sigma)
    q = argmax_log_law(shifted(counts, source, target, weight), sigma)
    return renyi(p, q, orders), renyi(q, p, orders)


def brute_force(counts, *, weight, sigma, orders=ORDERS, abstain=False):
    """The worst two-sided divergence by source, over all targets, (C [+ 1], A)."""
    classes = [*range(len(counts)), *([None] if abstain else [])]
    pairs = [(a, b) for a in classes for b in classes if a != b]
    moved = np.array([shifted(counts, a, b, weight) for a, b in pairs])
    costs = oracles.two_sided(counts, moved, sigma, orders)
    return np.array([costs[[a == source for a, _ in pairs]].max(axis=0) for source in classes])


@st.composite
def histograms(draw, most=8):
    classes = draw(st.integers(2, most))
    integers = st.integers(0, 120).map(float)
    return draw(st.lists(integers | st.floats(0, 120), min_size=classes, max_size=classes))


weights = st.sampled_from([0.3, 1.0, 2.5, 9.0])
sigmas = st.sampled_from([1.5, 8.0, 20.0, 40.0, 100.0])


# Vectors of the specification, from 60-digit mpmath.


def test_label_vectors():
    forward, reverse = both(UNANIMOUS, 0, 1)
    np.testing.assert_allclose(forward, [3.784882833e-7, 2.253893245e-6], rtol=1e-9)
    np.testing.assert_allclose(reverse, [4.222009034e-7, 1.018177048e-5], rtol=1e-9)
    assert both(CLEAR, 0, 1)[1][1] == pytest.approx(5.923226916e-5, rel=1e-9)
    assert both(CLEAR, 1, 0)[0][1] == pytest.approx(5.369706373e-5, rel=1e-9)
    forward, reverse = both(CLOSE, 0, 1, weight=2.5)
    assert forward[1] == pytest.approx(0.03643806622, rel=1e-9)
    assert reverse[1] == pytest.approx(0.04184044343, rel=1e-9)
    reverse = both([100, 100, 50], 0, 2, sigma=20.0, weight=5.0)[1]
    assert reverse[1] == pytest.approx(0.5434668169, rel=1e-9)


def test_by_source_on_the_vectors():
    cost = label_rdp_by_source([UNANIMOUS, CLEAR], [2.0, 20.0], weight=1.0, sigma=40.0)
    np.testing.assert_allclose(cost[0, 0], [4.222009034e-7, 1.018177048e-5], rtol=1e-9)
    assert cost[1, 0, 1] == pytest.approx(5.923226916e-5, rel=1e-9)
    assert cost[1, 1, 1] == pytest.approx(5.369706373e-5, rel=1e-9)


def test_check_vectors():
    for sensitivity, cost in ((1.0, 2.794347060e-4), (3.0, 2.552708212e-3)):
        got = check_rdp([240.0], 20.0, sensitivity=sensitivity, check_sigma=150.0, threshold=200.0)
        assert got[0, 0] == pytest.approx(cost, rel=1e-9)


def test_check_sup_vector():
    at = np.linspace(-300, 300, 2401)
    cost = check_rdp(at, 20.0, sensitivity=1.0, check_sigma=150.0, threshold=0.0)
    assert cost.max() == pytest.approx(2.8302733577e-4, rel=1e-6)
    assert cost.max() <= 2.8302733577e-4 * (1 + 1e-9)


def test_worst_move_may_involve_the_third_class():
    counts = [125.0, 120, 5] + [0.0] * 7
    cost = label_rdp_by_source([counts], 40.0, weight=3.0, sigma=40.0)
    third_to_top = max(d[0] for d in both(counts, 2, 0, weight=3.0, orders=40.0))
    among_first = max(d[0] for a, b in ((0, 1), (1, 0)) for d in both(counts, a, b, weight=3.0, orders=40.0))
    assert third_to_top > among_first
    assert cost[0, 2, 0] == pytest.approx(third_to_top, rel=1e-10)
    assert group_label_rdp(cost, np.array([counts]) > 0)[0, 0] == pytest.approx(third_to_top, rel=1e-10)


def test_tiny_probabilities_still_give_accurate_costs():
    # At 60 digits the top class must not be subtracted from 1: its ratio comes from the others.
    p = oracles.mp_argmax_law([1000, 0, 0, 0], 20.0)
    q = oracles.mp_argmax_law([999, 1, 0, 0], 20.0)
    with mp.workdps(60):
        terms = [
            b * (mp.expm1(2 * mp.log(a / b)) - 2 * mp.expm1(mp.log(a / b))) for a, b in zip(p[1:], q[1:], strict=True)
        ]
        true = float(mp.fsum(terms))
    got = renyi(argmax_log_law([1000.0, 0, 0, 0], 20.0), argmax_log_law([999.0, 1, 0, 0], 20.0), 2.0)[0]
    assert got == pytest.approx(true, rel=1e-9)
    assert 0 < true < 1e-250
    by_source = label_rdp_by_source([[1000.0, 0, 0, 0]], 2.0, weight=1.0, sigma=20.0)[0, 0, 0]
    assert by_source == pytest.approx(max(d[0] for d in both([1000, 0, 0, 0], 0, 1, sigma=20.0)), rel=1e-9)


def test_released_label_never_costs_exactly_zero():
    cost = label_rdp_by_source([[4000.0, 0, 0]], ORDERS, weight=1.0, sigma=20.0)
    assert (cost > 0).all()
    assert (check_rdp([1e6], ORDERS, sensitivity=1.0, check_sigma=10.0, threshold=0.0) > 0).all()


def test_high_orders_count_unlikely_classes():
    # P_j is below every float, P_j^α Q_j^(1−α) is not.
    counts, orders = [1200.0, 30, 0], np.array([2.0, 20.0, 50.0])
    got = label_rdp_by_source([counts], orders, weight=20.0, sigma=20.0)[0]
    true = brute_force(counts, weight=20.0, sigma=20.0, orders=orders)
    np.testing.assert_allclose(got, np.minimum(true, orders), rtol=1e-9, atol=FLOOR**2)
    assert got[0, 0] < 1e-200
    assert true[0, -1] > 10
    got = check_rdp([-600.0], 50.0, sensitivity=10.0, check_sigma=10.0, threshold=0.0)[0, 0]
    p, *neighbours = (oracles.check_law(m, 10.0, 0.0) for m in (-600.0, -610.0, -590.0))
    pairs = [pair for q in neighbours for pair in ((p, q), (q, p))]
    assert got == pytest.approx(max(float(oracles.mp_divergence(*pair, 50.0)) for pair in pairs), rel=1e-9)


# Divergences.


@given(
    st.lists(st.floats(-30, 0), min_size=2, max_size=6),
    st.lists(st.floats(-3, 3), min_size=6, max_size=6),
    st.sampled_from([1e-7, 1e-3, 0.1, 1.0]),
)
@settings(max_examples=80, deadline=None)
def test_renyi_agrees_with_sixty_digits(logits, change, size):
    orders = np.array([1.0001, 1.5, 2.0, 3.0, 17.25, 60.0, 200.0])
    with mp.workdps(60):
        laws = []
        for scale in (0.0, size):
            raw = [mp.exp(mp.mpf(x) + mp.mpf(scale) * mp.mpf(y)) for x, y in zip(logits, change, strict=False)]
            laws.append([x / mp.fsum(raw) for x in raw])
        logp, logq = ([float(mp.log(x)) for x in law] for law in laws)
        true = np.array([max(0.0, float(oracles.mp_divergence(*laws, order))) for order in orders])
    # The rounding of the logarithms that go in moves each ratio r by up to 7e-15, and D ≈ α E[r²]/2 with it.
    allowed = 1e-11 * true + 2e-14 * np.sqrt(orders * true) + 1e-26
    assert (np.abs(renyi(logp, logq, orders) - true) <= allowed).all()


@pytest.mark.parametrize("orders", [np.arange(2.0, 51.0), np.arange(2.0, 65.0, 0.5), np.array([30.0, 2.0, 5.5])])
@pytest.mark.parametrize("size", [0.01, 0.15, 0.17, 0.5, 3.0, 30.0])
def test_equally_spaced_orders_match_single_orders(orders, size):
    p = np.log([0.7, 0.2, 0.1 - 1e-9, 1e-9])
    q = p + size * np.array([-0.3, 0.5, 1.0, -1.0])
    q -= np.log(np.exp(q).sum())
    together = np.array([renyi(p, q, orders), renyi(q, p, orders)])
    alone = np.array([[renyi(a, b, [x])[0] for x in orders] for a, b in ((p, q), (q, p))])
    np.testing.assert_allclose(together, alone, rtol=2e-12)
    np.testing.assert_allclose(together[0], oracles.divergence(p, q, orders), rtol=1e-11)


def test_overflowing_sums_use_log_space():
    p, q = np.log([1e-3, 1 - 1e-3]), np.log([1 - 1e-9, 1e-9])
    orders = np.array([2.0, 100.0, 1e4])
    with mp.workdps(60):
        laws = [[mp.exp(mp.mpf(float(x))) for x in law] for law in (p, q)]
        true = [float(oracles.mp_divergence(*laws, order)) for order in orders]
    np.testing.assert_allclose(renyi(p, q, orders), true, rtol=1e-12)


def test_probabilities_below_float_range_are_counted():
    logp, logq = np.array([-760.0, 0.0]), np.array([-770.0, 0.0])
    assert renyi(logp, logq, 41.0)[0] == pytest.approx(np.exp(-760 + 40 * 10) / 40, rel=1e-12)


def test_divergence_of_two_coins_is_known():
    assert renyi(np.log([0.5, 0.5]), np.log([0.25, 0.75]), 2.0)[0] == pytest.approx(np.log(4 / 3), rel=1e-12)


def test_worst_divergence_computes_each_row_by_itself():
    p = np.log(np.random.default_rng(0).dirichlet(np.ones(4), (3, 2)))
    cost = renyi(p, p[0, 0], ORDERS)
    assert cost.shape == (3, 2, 5)
    np.testing.assert_allclose(cost[2, 1], renyi(p[2, 1], p[0, 0], ORDERS), rtol=1e-13)
    assert (cost[0, 0] == 0).all()


# The check.


@given(st.floats(-400, 400), st.sampled_from([0.2, 1.0, 6.0, 40.0]), st.sampled_from([20.0, 150.0]))
@settings(max_examples=60, deadline=None)
def test_check_cost_is_the_worst_reachable_maximum(maximum, sensitivity, scale):
    got = check_rdp([maximum], ORDERS, sensitivity=sensitivity, check_sigma=scale, threshold=10.0)[0]
    p = oracles.check_law(maximum, scale, 10.0)
    costs = {}
    for part in (-1.0, -0.6, 0.3, 1.0):
        q = oracles.check_law(maximum + part * sensitivity, scale, 10.0)
        with mp.workdps(60):
            costs[part] = np.array(
                [[float(oracles.mp_divergence(a, b, x)) for x in ORDERS] for a, b in ((p, q), (q, p))]
            )
    for cost in costs.values():
        assert (cost <= got * (1 + 1e-9) + 1e-50).all()
    np.testing.assert_allclose(got, np.vstack([costs[-1.0], costs[1.0]]).max(axis=0), rtol=1e-9, atol=1e-50)
    assert (got <= ORDERS * sensitivity**2 / (2 * scale**2)).all()


def test_check_takes_a_sensitivity_per_query():
    maxima, sensitivity = np.array([100.0, 100.0, -30.0]), np.array([0.0, 2.0, 1.0])
    cost = check_rdp(maxima, ORDERS, sensitivity=sensitivity, check_sigma=30.0, threshold=90.0)
    assert (cost[0] == 0).all()
    for i in (1, 2):
        alone = check_rdp(maxima[i : i + 1], ORDERS, sensitivity=sensitivity[i], check_sigma=30.0, threshold=90.0)
        np.testing.assert_allclose(cost[i], alone[0], rtol=1e-13)


# Labels by source.


@given(histograms(), weights, sigmas)
@settings(max_examples=40, deadline=None)
def test_by_source_is_the_worst_over_all_pairs(counts, weight, sigma):
    got = label_rdp_by_source([counts], ORDERS, weight=weight, sigma=sigma)[0]
    true = brute_force(counts, weight=weight, sigma=sigma)
    loose = ORDERS * (weight / sigma) ** 2
    assert (true <= got * (1 + 1e-8) + FLOOR**2).all()
    assert (got <= loose).all()
    np.testing.assert_allclose(got, np.minimum(true, loose), rtol=1e-8, atol=FLOOR**2)


@given(histograms(most=5), weights, sigmas)
@settings(max_examples=20, deadline=None)
def test_abstaining_covers_removal_and_addition(counts, weight, sigma):
    got = label_rdp_by_source([counts], ORDERS, weight=weight, sigma=sigma, abstain=True)[0]
    true = brute_force(counts, weight=weight, sigma=sigma, abstain=True)
    assert got.shape == true.shape == (len(counts) + 1, ORDERS.size)
    np.testing.assert_allclose(got, np.minimum(true, ORDERS * (weight / sigma) ** 2), rtol=1e-8, atol=FLOOR**2)


@pytest.mark.parametrize("classes", [12, 20])
def test_by_source_with_many_classes(classes):
    rng = np.random.default_rng(classes)
    counts = np.concatenate([[80.0, 75.5], rng.integers(0, 12, classes - 2)])
    got = label_rdp_by_source([counts], ORDERS, weight=1.7, sigma=15.0)[0]
    np.testing.assert_allclose(got, brute_force(counts, weight=1.7, sigma=15.0), rtol=1e-8)


@given(histograms(), st.randoms(use_true_random=False))
@settings(max_examples=20, deadline=None)
def test_permuting_classes_permutes_the_costs(counts, random):
    order = list(range(len(counts)))
    random.shuffle(order)
    cost = label_rdp_by_source([counts], ORDERS, weight=1.0, sigma=20.0)[0]
    permuted = label_rdp_by_source([np.array(counts)[order]], ORDERS, weight=1.0, sigma=20.0)[0]
    np.testing.assert_array_equal(permuted, cost[order])


def test_equal_classes_cost_what_nearly_equal_ones_do():
    counts = np.array([60.0, 60, 20, 20, 20, 1, 1])
    apart = counts + 1e-9 * np.arange(7)
    for kwargs in ({"weight": 1.0}, {"weight": 30.0}, {"weight": 2.0, "abstain": True}):
        merged = label_rdp_by_source([counts], ORDERS, sigma=15.0, **kwargs)
        single = label_rdp_by_source([apart], ORDERS, sigma=15.0, **kwargs)
        np.testing.assert_allclose(merged, single, rtol=1e-7)
    merged, single = (upsampled_label_rdp([c], ORDERS, copies=3.0, sigma=15.0) for c in (counts, apart))
    np.testing.assert_allclose(merged, single, rtol=1e-7)


@pytest.mark.parametrize("copies", [0.0, 2.0])
def test_equal_queries_agree_and_unwanted_sources_stay_zero(copies):
    rng = np.random.default_rng(1)
    counts = rng.integers(0, 4, (60, 4)).astype(float)
    weight = np.where(rng.random(60) < 0.3, copies, 1.0)
    sources = rng.random((60, 5)) < 0.5
    full = label_rdp_by_source(counts, ORDERS, weight=weight, sigma=3.0, abstain=True)
    some = label_rdp_by_source(counts, ORDERS, weight=weight, sigma=3.0, abstain=True, sources=sources)
    assert (some[~sources] == 0).all()
    np.testing.assert_allclose(some[sources], full[sources], rtol=1e-13)
    assert (full[weight == 0] == 0).all()
    assert (full[weight > 0] > 0).all()
    for q in range(0, 60, 7):
        alone = label_rdp_by_source(counts[q : q + 1], ORDERS, weight=weight[q], sigma=3.0, abstain=True)
        np.testing.assert_allclose(full[q], alone[0], rtol=1e-12)


def test_group_pays_for_its_worst_vote():
    cost = label_rdp_by_source([CLEAR, CLOSE], ORDERS, weight=1.0, sigma=40.0)
    voted = np.zeros((2, 10), dtype=bool)
    voted[0, [1, 3]] = True
    got = group_label_rdp(cost, voted)
    np.testing.assert_array_equal(got[0], np.maximum(cost[0, 1], cost[0, 3]))
    assert (got[1] == 0).all()
    with pytest.raises(InputError, match="voted"):
        group_label_rdp(cost, voted[:, :9])


# Upsampling.


def test_upsampling_covers_moves_from_several_classes():
    counts, orders = [100.0, 100, 50], np.array([2.0])
    p, q = (oracles.argmax_law(c, 20.0) for c in (counts, [80.0, 80, 90]))
    reverse = oracles.divergence(q, p, orders)[0]
    pairs = [shifted(counts, a, b, 40.0) for a, b in itertools.permutations(range(3), 2)]
    single = max(oracles.divergence(oracles.argmax_law(m, 20.0), p, orders)[0] for m in pairs)
    assert reverse == pytest.approx(3.32, abs=5e-3)
    assert single == pytest.approx(2.71, abs=5e-3)
    assert upsampled_label_rdp([counts], orders, copies=40, sigma=20.0)[0, 0] >= reverse


def test_upsampling_never_costs_more_than_loose():
    tangent = 0.01432
    cost = upsampled_label_rdp([[130.0, 120, 0]], 2.0, copies=3, sigma=40.0)[0, 0]
    assert cost == pytest.approx(0.01125, rel=1e-12)
    assert cost < tangent


def test_the_tangent_bound_of_the_specification():
    counts, h = np.array([130.0, 120, 0]), 1e-3
    p = oracles.argmax_law(counts, 40.0)
    best = 0.0
    for a, b in itertools.permutations(range(3), 2):
        v = shifted(np.zeros(3), a, b, 3.0)
        s = (oracles.argmax_law(counts + h * v, 40.0) - oracles.argmax_law(counts - h * v, 40.0)) / (2 * h)
        got = worst_tangent(p[:, None, None], s[:, None, None], np.ones((3, 1, 1)), np.array([2.0]))
        assert got[0, 0] == pytest.approx(np.log(np.exp(p + 2 * s).sum()), rel=1e-6)
        best = max(best, float(got[0, 0]))
    assert best == pytest.approx(0.01432, abs=5e-6)


@given(histograms(most=5), st.integers(1, 12), sigmas, st.booleans(), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_upsampling_covers_every_move(counts, copies, sigma, abstain, seed):
    rng, votes = np.random.default_rng(seed), np.floor(counts)
    bound = upsampled_label_rdp([votes], ORDERS, copies=copies, sigma=sigma, abstain=abstain)[0]
    assert (bound <= ORDERS * (copies / sigma) ** 2).all()
    ballots = np.repeat(np.arange(len(votes)), votes.astype(int))
    moves = []
    for _ in range(40):
        leave = rng.permutation(ballots)[: rng.integers(0, copies + 1)]
        arrive = rng.integers(0, len(votes) if rng.random() < 0.7 else 1, len(leave))
        if abstain:
            leave = leave[: rng.integers(0, len(leave) + 1)]
            arrive = np.concatenate([arrive, rng.integers(0, len(votes), copies - len(arrive))])
        moved = votes.copy()
        np.subtract.at(moved, leave, 1.0)
        np.add.at(moved, arrive, 1.0)
        moves.append(moved)
    true = oracles.two_sided(votes, np.array(moves), sigma, ORDERS)
    assert (true <= bound * (1 + 1e-8) + FLOOR**2).all()


@given(histograms(), sigmas, st.booleans())
@settings(max_examples=20, deadline=None)
def test_one_copy_costs_at_least_one_teacher(counts, sigma, abstain):
    votes = np.floor(np.array([counts]))
    by_source = label_rdp_by_source(votes, ORDERS, weight=1.0, sigma=sigma, abstain=abstain)
    voted = np.pad(votes > 0, ((0, 0), (0, int(abstain))), constant_values=True)
    upsampled = upsampled_label_rdp(votes, ORDERS, copies=1, sigma=sigma, abstain=abstain)
    assert (upsampled * (1 + 1e-10) >= group_label_rdp(by_source, voted)).all()


def test_upsampling_of_far_moves_and_no_votes():
    cost = upsampled_label_rdp([[500.0, 0, 3], [0, 0, 0]], np.arange(2.0, 51.0), copies=60, sigma=10.0)
    assert np.isfinite(cost).all()
    assert (cost[0] > 0).all()
    assert (cost[1] == 0).all()
    crowd = np.linspace(0, 100, 60)[None]
    by_source = label_rdp_by_source(crowd, np.arange(2.0, 51.0), weight=20.0, sigma=1.0, sources=crowd > 99)
    assert np.isfinite(by_source).all()
    assert (by_source[0, -1] > 0).all()


# Chunks, memory, input.


def test_chunks_dont_change_the_costs(monkeypatch):
    rng = np.random.default_rng(3)
    counts = np.sort(rng.integers(0, 30, (80, 5)), axis=1) * rng.integers(1, 6, (80, 1)) * 1.0
    weight = rng.choice([0.5, 1.0, 7.0], 80)

    def costs():
        by_source = label_rdp_by_source(counts, ORDERS, weight=weight, sigma=4.0, abstain=True)
        return by_source, upsampled_label_rdp(counts, ORDERS, copies=weight, sigma=4.0)

    whole = costs()
    for name in ("_BATCH_CELLS", "_BLOCK_CELLS"):
        monkeypatch.setattr(exact, name, 1000)
    monkeypatch.setattr(exact, "_PART_CELLS", 5 * 11)
    monkeypatch.setattr("ipate.accounting._renyi._CELLS", 1)
    monkeypatch.setattr("ipate.accounting._renyi._FAR_CELLS", 1)
    for got, want in zip(costs(), whole, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13)
    monkeypatch.setattr(exact, "_MOST_CELLS", 0)
    by_source, upsampled = costs()
    loose = (weight / 4.0)[:, None] ** 2 * ORDERS
    np.testing.assert_allclose(by_source, np.broadcast_to(loose[:, None], by_source.shape))
    np.testing.assert_allclose(upsampled, loose)


def test_memory_doesnt_grow_with_the_queries():
    rng = np.random.default_rng(4)
    counts = rng.multinomial(250, [0.7, 0.2, 0.06, 0.02, 0.01, 0.004, 0.003, 0.001, 0.001, 0.001], 20_000) * 1.0
    counts += rng.random((20_000, 1)) * (counts > 0)  # no two queries are alike
    sources = np.zeros(counts.shape, dtype=bool)
    sources[:, 0] = True
    tracemalloc.start()
    try:
        cost = label_rdp_by_source(counts, np.arange(2.0, 51.0), weight=1.0, sigma=40.0, sources=sources)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (cost[:, 0] > 0).all()
    assert peak - cost.nbytes < 100e6


def test_single_class_costs_nothing():
    assert (label_rdp_by_source([[5.0]], ORDERS, weight=1.0, sigma=1.0, abstain=True) == 0).all()
    assert (upsampled_label_rdp([[5.0]], ORDERS, copies=2, sigma=1.0) == 0).all()
    assert label_rdp_by_source(np.zeros((0, 3)), ORDERS, weight=1.0, sigma=1.0).shape == (0, 3, 5)


def test_bad_input_is_named():
    def label(**changes):
        kwargs = {"weight": 1.0, "sigma": 40.0} | changes
        return label_rdp_by_source([CLEAR, CLOSE], ORDERS, **kwargs)

    with pytest.raises(InputError, match="weight"):
        label(weight=[1.0, 2.0, 3.0])
    with pytest.raises(InputError, match="sensitivity"):
        label(weight=-1.0)
    with pytest.raises(InputError, match="sigma"):
        label(sigma=0.0)
    with pytest.raises(InputError, match="sources"):
        label(sources=np.ones((2, 11)))
    with pytest.raises(InputError, match="maxima"):
        check_rdp([np.nan], ORDERS, sensitivity=1.0, check_sigma=1.0, threshold=0.0)
