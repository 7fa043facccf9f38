"""The envelope against the exact law of check and label, its ladder, and a plain version of its formula."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from ipate.accounting import sup
from ipate.accounting.ptr import PtrGroup, Setting, inflation, kappa, top_excess, total_costs
from ipate.errors import InputError
from ptr_attack import climb, ladder, make, query_costs, random_setting, ratios

KINDS = ("unit", "weighted", "upsampled")


def paper(**changes):
    spec = Setting(
        sigma=40.0,
        check_sigma=150.0,
        threshold=200.0,
        classes=10,
        total_weight=250.0,
        groups=(PtrGroup(id="all", epsilon=1.0, delta=1e-5, sensitivity=1.0),),
        orders=(1.5, 4.0, 20.0),
    )
    return replace(spec, **changes)


def plain(setting, votes, r):
    """g_r of one histogram by loops, for unit moves on whole numbers."""
    orders, sigma, k = np.array(setting.orders), setting.sigma, setting.total_weight
    n = np.sort(votes)[::-1]
    gaps = n[0] - n[1:]
    cap = np.expm1((orders - 1) * sup.label_rdp(orders, sensitivity=1, sigma=sigma))
    wrong = sum(ndtr(-(g - r - r * (i == 0)) / (np.sqrt(2) * sigma)) for i, g in enumerate(gaps))
    label = cap
    if gaps[0] > 2 * r and wrong < 0.5:
        grid = np.arange(0, k + 3)
        tables = {}
        for size, taus in ((1, (-1, 0, 1)), (2, (-2, -1, 0, 1, 2))):
            table = np.max([kappa(grid, t, orders, sigma=sigma) for t in taus], axis=0)
            for i in range(len(table) - 3, -1, -1):
                table[i] = np.maximum(table[i], 2 * table[i + 1] - table[i + 2])
            tables[size] = table
        places = range(len(gaps))
        losing = np.max(
            [
                sum(tables[1 + (i == j)][int(gaps[i] - r - r * (i == b))] for i in places)
                for j, b in itertools.product(places, places)
            ],
            axis=0,
        )
        moved = [np.log(ndtr(-(ndtri(wrong) + sign * np.sqrt(2) / sigma))) for sign in (1, -1)]
        ends = [top_excess(np.log1p(-wrong), end, orders) for end in moved]
        label = np.minimum(losing + np.maximum(*ends), cap)
    if setting.check_sigma is None:
        return np.log1p(label) / (orders - 1)
    check = np.expm1((orders - 1) * sup.check_rdp(orders, sensitivity=1, check_sigma=setting.check_sigma))
    z = (np.arange(0, min(n[0] + r, k) + 1) - setting.threshold) / setting.check_sigma
    passing = (ndtr(z)[:, None] ** orders * ndtr(z - 1 / setting.check_sigma)[:, None] ** (1 - orders)).max(axis=0)
    return np.log1p(check + passing * label) / (orders - 1)


@pytest.mark.parametrize("radius", [0, 1, 7, 40])
@pytest.mark.parametrize("checked", [True, False])
def test_envelope_matches_its_formula(radius, checked):
    spec = paper() if checked else paper(check_sigma=None, threshold=None)
    votes = np.zeros((6, 10))
    votes[0, 0] = 250
    votes[1, :4] = 230, 12, 5, 3
    votes[2, :3] = 120, 110, 20
    votes[3, :3] = 180, 40, 30
    votes[4, :2] = 60, 0
    votes[5, 3:7] = 150, 33, 33, 34
    found = query_costs(spec, spec.groups[0], votes, np.array([radius]))[:, 0]
    for row, cost in zip(votes, found, strict=True):
        expected = plain(spec, row, radius)
        assert (cost >= expected * (1 - 1e-12)).all()
        assert cost == pytest.approx(expected, rel=5e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_random_attacks_stay_below_the_envelope(kind):
    rng = np.random.default_rng(KINDS.index(kind))
    best = 0.0
    for radius in (0, 1, 2, 5, 0):
        spec = random_setting(rng, kind)
        found = ratios(spec, radius, make(rng, spec, radius, 40, kind))
        assert found.max() <= 1
        best = max(best, found.max())
    assert best > 0.9  # the attacks do come close


@pytest.mark.parametrize("kind", KINDS)
def test_climbing_attacks_stay_below_the_envelope(kind):
    rng = np.random.default_rng(10 + KINDS.index(kind))
    for radius in (0, 2):
        assert climb(rng, random_setting(rng, kind), radius, 12, kind, 10).max() <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_ladder_holds_for_random_neighbours(kind):
    rng = np.random.default_rng(20 + KINDS.index(kind))
    for _ in range(3):
        assert ladder(rng, random_setting(rng, kind), 300, [0, 1, 4], kind)[1] <= 1


def test_ladder_holds_for_all_small_histograms():
    spec = paper(sigma=1.0, check_sigma=3.0, threshold=5.0, classes=3, total_weight=9.0)
    votes = np.array([v for v in itertools.product(range(10), repeat=3) if sum(v) <= 9], dtype=float)
    place = {tuple(v): i for i, v in enumerate(votes)}
    cost = query_costs(spec, spec.groups[0], votes, np.arange(6))
    cost *= inflation(np.arange(6))[:, None]
    moves = [np.array(m) for m in itertools.product((-1, 0, 1), repeat=3) if sum(map(abs, m)) <= 2 and abs(sum(m)) <= 1]
    pairs = [(i, place[t]) for i, v in enumerate(votes) for m in moves if (t := tuple(v + m)) in place]
    low, high = np.array(pairs).T
    assert (cost[low, :-1] <= cost[high, 1:]).all()


def test_dividing_by_weight_equals_scaling_everything():
    votes = np.zeros((2, 10))
    votes[0, :3], votes[1, :3] = (230, 15, 5), (140, 100, 10)
    unit = paper()
    heavy = paper(
        sigma=80.0,
        check_sigma=300.0,
        threshold=400.0,
        total_weight=500.0,
        grid=2.0,
        groups=(PtrGroup(id="all", epsilon=1.0, delta=1e-5, sensitivity=2.0),),
    )
    radii = np.array([0, 3, 20])
    light = query_costs(unit, unit.groups[0], votes, radii)
    assert query_costs(heavy, heavy.groups[0], 2 * votes, radii) == pytest.approx(light, rel=1e-9)


def test_finer_lattice_costs_whole_votes_the_same():
    votes = np.zeros((3, 10))
    votes[0, :3], votes[1, :3], votes[2, 0] = (230, 15, 5), (140, 100, 10), 250
    spec = paper()
    fine = paper(lattice=2.0**-6, grid=0.25)
    whole = query_costs(spec, spec.groups[0], votes, np.array([0, 5]))
    between = query_costs(fine, fine.groups[0], votes, np.array([0, 20]))
    assert between == pytest.approx(whole, rel=1e-3)


def test_totals_are_inflated_sums_in_any_class_order():
    rng = np.random.default_rng(0)
    votes = rng.multinomial(250, [0.8, 0.1, 0.1, *[0] * 7], 50).astype(float)
    spec, radii = paper(), np.array([0, 4])
    summed = query_costs(spec, spec.groups[0], votes, radii).sum(axis=0)
    total = total_costs(spec, spec.groups[0], votes[::-1, ::-1], radii)
    assert (total > summed).all()
    assert total == pytest.approx(summed, rel=1e-8)
    assert total_costs(spec, spec.groups[0], votes, radii, (4.0,))[:, 0] == pytest.approx(total[:, 1], rel=1e-12)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        (np.zeros((2, 3)), "shape"),
        (np.full((1, 10), -1.0), "counts hold -1"),
        (np.full((1, 10), 26.0), "more votes"),
        (np.full((1, 10), 0.5), "lattice"),
    ],
)
def test_counts_outside_the_setting_are_refused(counts, message):
    spec = paper()
    with pytest.raises(InputError, match=message):
        total_costs(spec, spec.groups[0], counts, np.array([0]))


def test_tiny_noise_gives_large_costs_without_nan():
    spec = paper(sigma=0.05, check_sigma=0.02, threshold=200.0)
    votes = np.zeros((2, 10))
    votes[0, :2], votes[1, :2] = (250, 0), (125, 125)
    cost = query_costs(spec, spec.groups[0], votes, np.array([0, 60, 130]))
    assert not np.isnan(cost).any()
    assert (np.diff(cost[np.isfinite(cost).all(axis=(1, 2))], axis=1) >= 0).all()
    assert cost[1].min() > 100


def test_negative_radii_are_refused():
    spec = paper()
    with pytest.raises(InputError, match="radii"):
        total_costs(spec, spec.groups[0], np.zeros((1, 10)), np.array([-1]))
