import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from ipate.accounting import _argmax
from ipate.accounting._argmax import Batch, argmax_log_law, check_counts, grid_points, laws_of
from ipate.errors import InputError


def batch(values, *, weight=0.1, abstain=False, sizes=None):
    array = np.atleast_2d(np.asarray(values, dtype=float))
    many = np.ones_like(array) if sizes is None else np.atleast_2d(np.asarray(sizes, dtype=float))
    classes = int(many[0].sum())
    moves = np.full(len(array), weight)
    points = int(grid_points(array.min(axis=1), array.max(axis=1), moves, classes).max())
    return Batch(array, many, moves, points, classes, abstain)


def test_vectors():
    unanimous = argmax_log_law([250.0] + [0.0] * 9, 40.0)
    assert unanimous[1] == pytest.approx(-12.2447839366, rel=1e-11)
    assert argmax_log_law([1000.0, 0, 0, 0], 20.0)[1] == pytest.approx(-629.485186355, rel=1e-11)


@pytest.mark.parametrize(
    ("counts", "sigma"),
    [
        ([250, 0, 0, 0, 0, 0, 0, 0, 0, 0], 40.0),
        ([230, 12, 5, 3, 0, 0, 0, 0, 0, 0], 40.0),
        ([1000, 0, 0, 0], 20.0),
        ([5.5, 4.25, 4.25, 1, -2], 1.0),
        ([0, 0], 1.0),
        ([10] * 20, 3.0),
    ],
)
def test_log_law_agrees_with_sixty_digits(counts, sigma):
    exact = oracles.mp_argmax_law(counts, sigma)
    with mp.workdps(60):
        assert abs(mp.fsum(exact) - 1) < mp.mpf(10) ** -35
        logs = np.array([float(mp.log(p)) for p in exact])
    np.testing.assert_allclose(argmax_log_law(counts, sigma), logs, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("classes", [2, 10, 50, 51, 200, 201, 1000])
def test_log_law_of_many_classes_agrees_with_a_finer_wider_grid(classes):
    rng = np.random.default_rng(classes)
    for counts in (np.zeros(classes), rng.gamma(0.3, 10, classes), np.arange(classes) % 2 * 12.0):
        fine = oracles.argmax_law(counts, 2.0, step=0.03)
        np.testing.assert_allclose(argmax_log_law(counts, 2.0), fine, rtol=1e-12, atol=2e-12)


@given(st.lists(st.floats(0, 200), min_size=2, max_size=12), st.floats(2, 100))
@settings(max_examples=60, deadline=None)
def test_log_law_is_a_law_and_agrees_with_the_wide_grid(counts, sigma):
    law = argmax_log_law(counts, sigma)
    assert np.exp(law).sum() == pytest.approx(1, abs=1e-13)
    np.testing.assert_allclose(law, oracles.argmax_law(counts, sigma), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("gap", [0.0, 0.3, 5.0, 100.0, 700.0])
def test_laplace_law_of_two_classes_has_closed_form(gap):
    found = argmax_log_law([4.0 * gap, 0.0], 4.0, "laplace")
    assert found[1] == pytest.approx(np.log((2 + gap) / 4) - gap, abs=1e-11)


@pytest.mark.parametrize("counts", [[3, 1, 0], [25, *[0] * 9], [0, *[20] * 30], [7, 7, 2, 1.5, 900]])
def test_laplace_law_agrees_with_sixty_digits(counts):
    found = np.exp(argmax_log_law(np.array([counts, counts[::-1]]), 1.0, "laplace"))
    np.testing.assert_allclose(found[0], found[1][::-1], rtol=1e-12)
    assert found[0].sum() == pytest.approx(1, abs=1e-12)

    def integrand(t):
        below = [mp.exp(t - n) / 2 if t < n else 1 - mp.exp(n - t) / 2 for n in counts[1:]]
        return mp.exp(-abs(t - counts[0])) / 2 * mp.fprod(below)

    with mp.workdps(30):
        inner = sorted({mp.mpf(n) + step for n in counts for step in (-30, 0, 30)})
        oracle = mp.quad(integrand, [inner[0] - 30, *inner, inner[-1] + 30])
    assert found[0, 0] == pytest.approx(float(oracle), abs=1e-11)


def test_log_law_keeps_shape_order_and_doesnt_depend_on_chunks(monkeypatch):
    rng = np.random.default_rng(0)
    counts = rng.uniform(0, 100, (50, 6))
    law = argmax_log_law(counts, 10.0)
    np.testing.assert_array_equal(np.argsort(law), np.argsort(counts))
    monkeypatch.setattr(_argmax, "_CELLS", 1)
    np.testing.assert_allclose(argmax_log_law(counts, 10.0), law, rtol=1e-14)
    assert argmax_log_law(np.zeros((0, 3)), 1.0).shape == (0, 3)
    assert argmax_log_law([7.0], 1.0) == pytest.approx([0.0], abs=1e-14)


def test_equal_classes_of_all_queries_are_computed_once(monkeypatch):
    computed = []
    monkeypatch.setattr(
        _argmax, "Batch", lambda values, *rest, **more: computed.append(values) or Batch(values, *rest, **more)
    )
    counts = np.tile([[5.0], [3.0]], 3000)
    counts[:, 0], counts[:, 7] = (40.0, 30.0), (20.0, 30.0)
    law = argmax_log_law(counts, 4.0)
    assert sum(values.size for values in computed) == 2 * 3
    for row, found in zip(counts, law, strict=True):
        np.testing.assert_allclose(found, oracles.argmax_law(row, 4.0, step=0.03), rtol=1e-12, atol=2e-12)


@pytest.mark.parametrize("spread", [0.5, 6.0, 25.0, 45.0])
@pytest.mark.parametrize("weight", [0.02, 0.5, 3.0])
@pytest.mark.parametrize("abstain", [False, True])
def test_neighbours_are_the_laws_of_the_moved_histograms(spread, weight, abstain):
    values, sizes = [0.0, spread / 3, spread], [2, 1, 1]
    laws = laws_of(batch(values, weight=weight, abstain=abstain, sizes=sizes))
    targets = 3 + abstain
    q, a = np.zeros(targets, dtype=np.intp), np.arange(targets)
    moved, many = laws.moved(q, a), laws.sizes(q, a)
    classes = np.array([0.0, 0.0, spread / 3, spread])
    first = {0: 0, 1: 2, 2: 3, 3: None}
    for source in range(targets):
        for target in range(targets):
            if source == target and source != 0:
                assert not many[:, source, target].any()
                continue
            lose, gain = first[source], 1 if source == target == 0 else first[target]
            after = classes.copy()
            if lose is not None:
                after[lose] -= weight
            if gain is not None:
                after[gain] += weight
            law = oracles.argmax_law(after, 1.0)
            assert many[:, source, target].sum() == 4
            assert many[3, source, target] == (lose is not None)
            assert many[4, source, target] == (gain is not None)
            for outcome, position in ((3, lose), (4, gain)):
                if position is not None:
                    assert moved[outcome, source, target] == pytest.approx(law[position], rel=1e-12, abs=1e-12)
            for outcome, positions in ((0, (0, 1)), (1, (2,)), (2, (3,))):
                rest = [law[i] for i in positions if i not in (lose, gain)]
                assert many[outcome, source, target] == len(rest)
                if rest:
                    assert moved[outcome, source, target] == pytest.approx(rest[0], rel=1e-12, abs=1e-12)


def test_both_ways_of_summing_agree():
    example = batch([[0.0, 2.0, 9.0], [1.0, 4.0, 12.0]], weight=0.3, sizes=[[3, 1, 2]] * 2, abstain=True)
    linear, logs = _argmax._LinearLaws(example), _argmax._LogLaws(example)
    q, a = (each.ravel() for each in np.indices((2, 4)))
    np.testing.assert_allclose(linear.log_law, logs.log_law, rtol=1e-13, atol=1e-14)
    used = linear.sizes(q, a) > 0
    np.testing.assert_allclose(linear.moved(q, a)[used], logs.moved(q, a)[used], rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(linear.overlaps(), logs.overlaps(), rtol=1e-12)


@pytest.mark.parametrize("spread", [4.0, 45.0])
def test_slopes_are_the_derivatives_of_the_log_law(spread):
    values, weight = np.array([0.0, 1.0, spread]), 0.7
    laws = laws_of(batch(values, weight=weight, abstain=True))
    q, a = np.zeros(4, dtype=np.intp), np.arange(4)
    slopes, many = laws.slopes(q, a), laws.sizes(q, a)
    mass = many * np.exp(laws.stayed(q, a))
    assert np.abs((mass * slopes).sum(axis=0)).max() < 1e-14
    directions = np.vstack([np.eye(3), np.zeros(3)])
    for source in range(4):
        for target in range(4):
            if source == target:
                continue
            v = weight * (directions[target] - directions[source])
            h = 1e-4
            ahead, behind = (oracles.argmax_law(values + s * h * v, 1.0) for s in (1, -1))
            numeric = (ahead - behind) / (2 * h)
            outcomes = {**{j: j for j in range(3)}, source: 3, target: 4}
            for j in range(3):
                got = slopes[outcomes[j], source, target]
                assert got == pytest.approx(numeric[j], rel=1e-6, abs=1e-9)


def test_bad_input_is_named():
    for bad in ([[1.0, -1.0]], [[np.nan, 1.0]], [1.0, 2.0], np.zeros((3, 0))):
        with pytest.raises(InputError, match="counts"):
            check_counts(bad)
    with pytest.raises(InputError, match="sigma"):
        argmax_log_law([1.0, 2.0], 0.0)
    with pytest.raises(InputError, match="counts"):
        argmax_log_law([1.0, np.inf], 1.0)
