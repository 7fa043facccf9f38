"""The sup bound against independent laws, against an adversary that searches for worse votes, and its proof's
steps one by one. What catches a wrong constant: `test_an_adversary_…` any answer that is 0.3% too low, and
`test_cells_…` (which proves its own power) a missing second-order term."""

from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import log_ndtr, logsumexp

from ipate.accounting import _ternary, sup
from ipate.accounting._ternary import BINARY, TERNARY
from ipate.accounting.sup import CHECK_MARGIN, LABEL_MARGIN, LARGEST_MOVE, check_rdp, label_rdp
from ipate.errors import InputError

PAPER_ORDERS = np.arange(2.0, 51.0)


def oracle_divergence(log_p, log_q, alpha):
    """The Rényi divergence of two laws: plainly, and by differences where it is small."""
    plain = logsumexp(alpha * log_p + (1 - alpha) * log_q) / (alpha - 1)
    r = log_p - log_q
    if (alpha - 1) * plain > 0.1 or alpha * r.max() > 30:
        return plain
    return np.log1p(np.sum(np.exp(log_q) * (np.expm1(alpha * r) - alpha * np.expm1(r)))) / (alpha - 1)


def oracle_argmax(n):
    """Log-probabilities of argmax(n + N(0, I)): the trapezoid rule on one grid."""
    t = np.arange(n.min() - 10, n.max() + 30, 0.1)
    below = log_ndtr(t[:, None] - n)
    density = -0.5 * (t[:, None] - n) ** 2 - 0.5 * np.log(2 * np.pi)
    return logsumexp(density + below.sum(axis=1, keepdims=True) - below, axis=0) + np.log(0.1)


def oracle_ternary(A, B):
    """Log-probabilities of a, b, o by Simpson's rule on a plain grid."""
    t = np.linspace(0, max(A, B, 0) + 12, 801)
    weights = np.full(801, 2.0)
    weights[1::2], weights[[0, -1]] = 4, 1
    rows = [-0.5 * (t - x) ** 2 + log_ndtr(t - y) for x, y in ((A, B), (B, A))]
    first = [logsumexp(row, b=weights) + np.log(t[1] / 3) - 0.5 * np.log(2 * np.pi) for row in rows]
    return np.array([*first, log_ndtr(-A) + log_ndtr(-B)])


def oracle_binary(t):
    return np.array([log_ndtr(t), log_ndtr(-t)])


# The answers


def test_known_suprema():
    check = check_rdp([20], sensitivity=1, check_sigma=150)[0]
    assert 2.8302733577e-4 <= check <= 2.8302733577e-4 * (1 + CHECK_MARGIN + 1e-6)
    known = {(20, 1): 8.06564e-3, (40, 1): 1.656669e-2, (50, 3): 0.248380}
    for (alpha, moved), best in known.items():
        cost = label_rdp([alpha], sensitivity=moved, sigma=40)[0]
        assert best <= cost <= best * (1 + LABEL_MARGIN + 1e-5)


@given(data=st.data())
@settings(deadline=None, max_examples=40)
def test_sup_covers_every_histogram(data):
    classes = data.draw(st.integers(2, 20))
    n = np.array(data.draw(st.lists(st.floats(0, 8), min_size=classes, max_size=classes)))
    d = data.draw(st.sampled_from([0.01, 0.1, 0.5, 2.0]))
    a, b = data.draw(st.permutations(range(classes)))[:2]
    taken, given_ = data.draw(st.sampled_from([(1, 1), (1, 0), (0, 1), (0.5, 1), (0.3, 0.2)]))
    moved = n.copy()
    moved[a] -= taken * d
    moved[b] += given_ * d
    orders = np.array([1.01, 1.5, 2, 7, 30])
    bound = label_rdp(orders, sensitivity=d, sigma=1)
    p, q = oracle_argmax(n), oracle_argmax(moved)
    for alpha, most in zip(orders, bound, strict=True):
        assert max(oracle_divergence(p, q, alpha), oracle_divergence(q, p, alpha)) <= most * (1 + 1e-9) + 1e-12


def test_sup_covers_moves_over_several_classes():
    """Upsampling: votes leave several classes for several others."""
    rng = np.random.default_rng(3)
    for _ in range(40):
        n, d = rng.uniform(0, 4, rng.integers(3, 8)), rng.choice([0.2, 1.0, 2.0])
        moved = n - d * rng.dirichlet(np.full(n.size, 0.3)) + d * rng.dirichlet(np.full(n.size, 0.3))
        p, q = oracle_argmax(n), oracle_argmax(moved)
        for alpha, most in zip((2, 20), label_rdp([2, 20], sensitivity=d, sigma=1), strict=True):
            assert max(oracle_divergence(p, q, alpha), oracle_divergence(q, p, alpha)) <= most


@given(t=st.floats(-12, 30), d=st.sampled_from([1e-3, 0.05, 0.4, 3.0]), part=st.floats(0, 1))
@settings(deadline=None)
def test_sup_covers_every_check(t, d, part):
    orders = np.array([1.01, 2, 9, 40])
    bound = check_rdp(orders, sensitivity=d, check_sigma=1)
    p, q = oracle_binary(t), oracle_binary(t + part * d)
    for alpha, most in zip(orders, bound, strict=True):
        assert max(oracle_divergence(p, q, alpha), oracle_divergence(q, p, alpha)) <= most * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize(
    ("alpha", "d"),
    [(2, 1 / 40), (20, 1 / 40), (50, 3 / 40), (30, 0.3), (200, 0.01), (1.01, 1.0), (2, 5.0), (1.2, 3.0)],
)
def test_optimiser_stays_below_sup_and_comes_close(alpha, d):
    """Search with restarts: never above the bound, and within its margin. So a bound scaled by .99 fails."""

    def gain(x, law, move):
        return -oracle_divergence(law(*x), law(*(np.asarray(x) + move)), alpha) / (alpha * d * d)

    for law, move, bound, margin in (
        (oracle_binary, [d], check_rdp([alpha], sensitivity=d, check_sigma=1)[0], CHECK_MARGIN),
        (oracle_ternary, [-d, d], label_rdp([alpha], sensitivity=d, sigma=1)[0], LABEL_MARGIN),
    ):
        rng = np.random.default_rng(7)
        dims, reach = len(move), (alpha - 1) * d
        starts = [rng.uniform(-1.5, 2, dims) + reach * np.array([-0.5, 1.0])[-dims:] * rng.uniform() for _ in range(3)]
        starts.append(np.array([1.5 - 0.7 * reach, 1.5 + 0.7 * reach]) if dims == 2 else np.array([reach]))
        options = {"xatol": 1e-4, "fatol": 1e-9, "maxiter": 150}
        found = [minimize(gain, x, args=(law, move), method="Nelder-Mead", options=options).fun for x in starts]
        worst = -min(found) * alpha * d * d
        assert worst <= bound <= worst * (1 + margin + 1e-3)


def test_sup_is_monotone_and_at_most_loose():
    orders = np.array([1.0 + 1e-9, 1.01, 1.7, 2, 5, 20, 50, 120, 200])
    moves = np.array([1e-6, 1e-5, 1e-3, 0.007, 0.03, 0.1, 0.3, 1.0, 5.0])
    checks = check_rdp(orders, sensitivity=moves, check_sigma=1)
    labels = label_rdp(orders, sensitivity=moves, sigma=1)
    squares = orders * moves[:, None] ** 2
    for cost, loose in ((checks, squares / 2), (labels, squares)):
        assert np.all(cost <= loose)
        assert np.all(cost >= 0.636 * loose)
        assert np.all(np.diff(cost, axis=0) > 0)
        assert np.all(np.diff(cost, axis=1) > 0)
    assert np.all(labels >= checks)
    close = check_rdp(20 + np.linspace(0, 1e-3, 9), sensitivity=0.02, check_sigma=1)
    assert np.all(np.diff(close) > 0)


def test_sup_of_small_moves_is_two_over_pi_of_loose():
    for d in (1e-100, 1e-12, 1e-6, 0.99e-5, 1.01e-5):
        assert check_rdp([2, 30], sensitivity=d, check_sigma=1) / (d * d) == pytest.approx(
            np.array([2, 30]) / np.pi, rel=CHECK_MARGIN + 2e-4
        )
        assert label_rdp([2, 30], sensitivity=d, sigma=1) / (d * d) == pytest.approx(
            np.array([2, 30]) * 0.63997, rel=LABEL_MARGIN + 1e-4
        )


def test_sup_of_large_moves_is_loose():
    """Where αd is so large that loose is returned, mpmath shows a vote that costs as much, but for 1%."""
    for alpha, d in ((50, 1.0), (200, 1.0), (50, 5.0), (1000, 0.5), (3, 15.0), (1000, 5.0)):
        with mp.workdps(30):
            t = mp.mpf(alpha - 1) * d * mp.sqrt(2)
            p, q = mp.ncdf(-t), mp.ncdf(-t - d * mp.sqrt(2))
            attained = float((alpha * mp.log(p) - (alpha - 1) * mp.log(q)) / (alpha - 1))
        loose = alpha * d * d
        cost = label_rdp([alpha], sensitivity=d, sigma=1)[0]
        assert attained <= cost <= min(loose, attained * 1.01)
        assert cost == pytest.approx(loose, rel=1e-15) or alpha * d < 60


def test_labels_beyond_the_largest_move_are_loose():
    d = LARGEST_MOVE * 1.001
    for alpha, excess in ((2, 1.01), (5, 1.01), (1.01, 1.17), (1.0001, 1.17)):
        attained = check_rdp([alpha], sensitivity=np.sqrt(2) * d, check_sigma=1)[0] / (1 + CHECK_MARGIN)
        assert label_rdp([alpha], sensitivity=d, sigma=1)[0] == alpha * d * d
        assert alpha * d * d <= attained * excess


def test_shapes_scaling_and_zero():
    moves = np.array([[0.0, 1.0, 3.0], [2.0, 1.0, 0.0]])
    table = label_rdp([2, 20], sensitivity=moves, sigma=40)
    assert table.shape == (2, 3, 2)
    assert np.all(table[moves == 0] == 0)
    assert np.array_equal(table[0, 1], table[1, 1])
    assert np.array_equal(table[0, 2], label_rdp([2, 20], sensitivity=3, sigma=40))
    assert label_rdp([2, 20], sensitivity=[], sigma=40).shape == (0, 2)
    assert table == pytest.approx(label_rdp([2, 20], sensitivity=3 * moves, sigma=120), rel=1e-9)
    assert check_rdp(5, sensitivity=1, check_sigma=8) == pytest.approx(
        check_rdp(5, sensitivity=2, check_sigma=16), rel=1e-12
    )
    table[:] = 0  # a result is the caller's own: the cache keeps its values
    assert label_rdp([2, 20], sensitivity=3, sigma=40)[0] > 0


def test_sup_of_an_order_ignores_other_orders():
    together = label_rdp(PAPER_ORDERS, sensitivity=1, sigma=40)
    alone = [label_rdp([alpha], sensitivity=1, sigma=40)[0] for alpha in (2.0, 17.0, 50.0)]
    assert together[[0, 15, 48]] == pytest.approx(alone, rel=1e-12)


def test_specification_vectors():
    assert float(check_rdp([20.0], sensitivity=1, check_sigma=150)[0].round(7)) == 0.0002832
    assert float(label_rdp([20.0], sensitivity=1, sigma=40)[0].round(5)) == 0.00808


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: check_rdp([1.0], sensitivity=1, check_sigma=1), "orders hold 1"),
        (lambda: label_rdp([], sensitivity=1, sigma=1), "orders"),
        (lambda: label_rdp([2, np.nan], sensitivity=1, sigma=1), "orders hold nan"),
        (lambda: label_rdp([2], sensitivity=[1, -3], sigma=1), "sensitivity is -3"),
        (lambda: check_rdp([2], sensitivity=np.inf, check_sigma=1), "sensitivity is inf"),
        (lambda: label_rdp([2], sensitivity=1, sigma=0), "sigma is 0"),
        (lambda: check_rdp([2], sensitivity=1, check_sigma=-2), "check_sigma is -2"),
    ],
)
def test_bad_input_is_named(call, named):
    with pytest.raises(InputError, match=named):
        call()


# The laws


@pytest.mark.parametrize("point", [(0.7, 0.7), (-1, 3), (-12, 2), (-8, -9), (-25, 25), (0, 40)])
def test_ternary_law_against_mpmath(point):
    def probability(A, B):
        peak = max(0, A, (A + B) / 2)
        top = mp.npdf(peak - A) * mp.ncdf(peak - B)
        cuts = sorted({0, *(max(0, peak + x) for x in (-10, -2, 0, 0.1, 0.5, 2, 10))})
        return top * mp.quad(lambda t: mp.npdf(t - A) * mp.ncdf(t - B) / top, cuts)

    with mp.workdps(22):
        A, B = map(mp.mpf, point)
        exact = [probability(A, B), probability(B, A), mp.ncdf(-A) * mp.ncdf(-B)]
        gap = mp.mpf("1e-6")
        sideways = (probability(A + gap, B) - probability(A - gap, B)) / (2 * gap) / exact[0]
        across = (probability(B, A + gap) - probability(B, A - gap)) / (2 * gap) / exact[1]
    logs, gradient = _ternary.ternary_law(np.array(point, dtype=float))
    assert logs == pytest.approx([float(mp.log(x)) for x in exact], rel=2e-13, abs=2e-12)
    assert gradient[:2, 0] == pytest.approx([float(sideways), float(across)], rel=1e-8)
    if exact[2] > 1e-9:
        assert np.exp(logs).sum() == pytest.approx(1, abs=1e-12)


def test_derivatives_stay_within_the_proofs_constants():
    """−I ≤ ∇²ℓ ≤ 0 and |∇³ℓ| ≤ 2, by differences of the gradient along random lines."""
    rng = np.random.default_rng(0)
    n, turn = rng.uniform(-9, 9, (3000, 2)), rng.uniform(0, 2 * np.pi, 3000)
    u = np.stack([np.cos(turn), np.sin(turn)], axis=-1)
    gap = 1e-3
    slopes = [np.einsum("njk,nk->nj", _ternary.ternary_law(n + s * gap * u)[1], u) for s in (-1, 0, 1)]
    second = (slopes[2] - slopes[0]) / (2 * gap)
    third = (slopes[2] - 2 * slopes[1] + slopes[0]) / gap**2
    assert second.min() >= -1 - 1e-5
    assert second.max() <= 1e-5
    assert np.abs(third).max() <= 2
    assert np.abs(third).max() > 0.1


@given(
    size=st.floats(-12, 1.5),
    sign=st.sampled_from([-1, 1]),
    alpha=st.sampled_from([1 + 1e-6, 1.01, 1.5, 2, 3, 50, 300]),
)
@settings(deadline=None)
def test_excess_and_its_curvature_against_mpmath(size, sign, alpha):
    r = sign * 10**size
    with mp.workdps(80 + int(alpha * abs(r))):
        x, a = mp.mpf(r), mp.mpf(alpha)
        g = mp.exp(a * x) - a * mp.exp(x) + a - 1
        slope, bend = a * (mp.exp(a * x) - mp.exp(x)), a * (a * mp.exp(a * x) - mp.exp(x))
        scaled = float(g * mp.exp(-max(a * x, 0)))
        limit = a * (a - 1) * mp.exp(x) * max(1, min(max(a - 1, 1 / (a - 1)), mp.exp((a - 2) * x)))
        assert g <= 0 or slope**2 / g - bend <= limit * (1 + mp.mpf("1e-20"))
    got = _ternary.weighted_excess(np.array(-max(alpha * r, 0.0)), np.array(r), np.array(alpha))
    assert got == pytest.approx(scaled, rel=1e-8, abs=1e-300)


# The proof


def violations(mutate):
    """How many random cells hold a point that costs more than the cell's bound."""
    rng = np.random.default_rng(11)
    bad = 0
    for trial in range(48):
        release = (BINARY, TERNARY)[trial % 2]
        d, alpha, half = 10 ** rng.uniform([-6.5, -1.5, -2], [0.8, 2.2, -0.3])
        dims, alpha = release.move.size, np.array(1 + alpha)
        centres = rng.uniform(-3, 5, (40, dims))
        cells = mutate(_ternary._Cells.at(release, centres, half, d))
        bound = cells.bounds(np.arange(40), np.full(40, alpha), np.zeros(40))
        points = centres[:, None] + half * np.clip(rng.uniform(-1.3, 1.3, (40, 40, dims)), -1, 1)
        excess = (alpha - 1) * _ternary.costs(release, points, d=d, orders=alpha).max(axis=1)
        bad += np.sum(np.log1p(bound) < excess * (1 - 1e-7))
    return bad


def test_cell_bound_covers_its_points():
    assert violations(lambda cells: cells) == 0
    assert violations(lambda cells: replace(cells, bend=0 * cells.bend, r=0.999 * cells.r)) > 0
    centre = lambda x: x.mean(axis=-1, keepdims=True)  # noqa: E731
    assert violations(lambda c: replace(c, r=centre(c.r), log_weight=centre(c.log_weight), bend=centre(c.bend))) > 100


def test_corner_bound_holds_with_the_bend():
    """Step 4 alone: e^{pδ}g(r + qδ) on a segment stays below its corners' bound, and not without the bend."""
    rng = np.random.default_rng(2)
    missed = 0
    for _ in range(300):
        r, p, alpha = rng.normal(0, 0.5), rng.normal(0, 1), np.array([1 + 10 ** rng.uniform(-1, 1.5)])
        q, half = r * rng.normal(0, 1), 10 ** rng.uniform(-1, 0)
        ends = half * np.array([[[-1.0, 1.0]]])
        cells = _ternary._Cells(
            log_weight=p * ends,
            r=r + q * ends,
            bend=(q * ends) ** 2,
            log_top=np.array([[half * abs(p)]]),
            r_top=np.array([[r + half * abs(q)]]),
        )
        inside = np.linspace(-half, half, 101)
        most = _ternary.weighted_excess(p * inside, r + q * inside, alpha).max() * (1 - 1e-9)
        bare = replace(cells, bend=0 * cells.bend)
        bounds = [c.bounds(np.array([0]), alpha, np.array([0.0]))[0] for c in (cells, bare)]
        assert most <= bounds[0]
        missed += most > bounds[1]
    assert missed > 5


def test_certificate_refuses_a_target_below_the_supremum(monkeypatch):
    monkeypatch.setattr(_ternary, "CELLS", 2000)
    orders = np.array([2.0, 60.0])
    for d in (0.01, 0.3):
        for factor in (0.5, 0.99, 0.9999):
            x = (orders - 1) * sup._worst_binary(d, orders) * factor
            assert not sup._binary_holds(d, orders, x).any()
            x = (orders - 1) * sup._worst_binary(np.sqrt(2) * d, orders) * factor
            single = (orders - 1) * check_rdp(orders, sensitivity=d, check_sigma=1)
            assert not sup._ternary_holds(d, orders, x, 0.995 * x, single).any()


def test_tail_bounds_hold():
    """Points in the regions that need no cells cost no more than the target, however low it is set."""
    rng = np.random.default_rng(5)
    orders = np.array([1.01, 2.0, 10.0, 50.0, 150.0])
    for d in (1e-6, 0.01, 0.08, 0.4, 3.0):
        single = (orders - 1) * check_rdp(orders, sensitivity=d, check_sigma=1)
        for share in (0.05, 0.7):
            binary = np.log(np.expm1(np.minimum(share * single, 600)))
            x = np.minimum((1 + share) * single, 600)
            for sign in (1, -1):
                end = sup._reach(sign * d, orders, binary)
                points = end - rng.exponential(1.5, (300, 1)) * rng.integers(0, 2, (300, 1))
                costs = _ternary.costs(BINARY, (-sign * points)[..., None], d=d, orders=orders)
                assert np.all((costs * (orders - 1) <= np.minimum(share * single, 600)) | np.isnan(end))
                end = sup._reach(sign * d, orders, np.log(np.expm1(x)), single)
                assert d > 0.1 or np.isfinite(end).all()
                points = end - rng.exponential(1.5, (300, 1)) * rng.integers(0, 2, (300, 1))
                other = rng.uniform(-4, 6, points.shape) + rng.uniform(0, 1, (300, 1)) * (orders - 1) * d
                n = np.stack([points, sign * other][::sign], axis=-1)
                costs = _ternary.costs(TERNARY, n, d=d, orders=orders) * (orders - 1)
                assert np.all((costs <= x) | np.isnan(end))
