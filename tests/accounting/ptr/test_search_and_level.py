"""The ramp, the level, and the whole release of small ensembles worked out exactly."""

from dataclasses import replace

import numpy as np
import pytest

from ipate.accounting.ladder import level, make_design, most_queries, pass_probability, profile_of
from ipate.accounting.ptr import PtrGroup, Setting, inflation
from ipate.errors import InputError
from ptr_attack import query_costs
from ptr_cases import BROKEN, CASES, QUICK, worst_by_level

ORDERS = (1.5, 3.0, 6.0, 12.0, 20.0)
SETTING = Setting(
    sigma=40.0,
    check_sigma=150.0,
    threshold=200.0,
    classes=10,
    total_weight=250.0,
    groups=(PtrGroup(id="all", epsilon=1.0, delta=1e-5, sensitivity=1.0),),
    orders=ORDERS,
)
GROUPED = replace(
    SETTING,
    groups=(
        PtrGroup(id="strict", epsilon=1.0, delta=1e-5, sensitivity=0.703125),
        PtrGroup(id="lax", epsilon=2.0, delta=1e-5, sensitivity=1.296875),
    ),
    grid=0.25,
    lattice=2.0**-6,
)


def votes(queries, seed=0, right=0.95):
    rng = np.random.default_rng(seed)
    return rng.multinomial(250, [right, *[(1 - right) / 9] * 9], queries).astype(float)


def designed(setting, queries=200, **more):
    reference = votes(queries)
    radii = 320 if setting.grid < 1 else 110
    profile = profile_of(setting, reference, source="drawn", source_hash="abc", radii=radii)
    return profile, make_design(profile, n_queries=queries, queries_hash="none", reserve=0.0, **more)


@pytest.mark.parametrize("setting", [SETTING, GROUPED], ids=["one", "two"])
def test_reference_reaches_the_highest_level(setting):
    _, design = designed(setting)
    assert level(design, votes(200)) == design.levels
    assert pass_probability(design, votes(200)) == pytest.approx(0.99)


@pytest.mark.parametrize("setting", [SETTING, GROUPED], ids=["one", "two"])
def test_level_matches_its_definition(setting):
    _, design = designed(setting)
    seen = set()
    for right in (0.95, 0.9, 0.8, 0.7, 0.6):
        counts = votes(200, seed=1, right=right)
        radii = np.arange(design.levels)
        totals = [
            query_costs(setting, group, counts, radii).sum(axis=0) * inflation(radii)[:, None]
            for group in setting.groups
        ]
        expected = max(
            s
            for s in range(design.levels + 1)
            if all(
                cost[r, ORDERS.index(table.orders[s - r])] <= table.bounds[s - r]
                for cost, table in zip(totals, design.tables, strict=True)
                for r in range(s)
            )
        )
        assert level(design, counts) == expected
        seen.add(expected)
    assert len(seen) > 2


def test_one_person_moves_the_level_by_their_steps():
    _, design = designed(GROUPED)
    rng = np.random.default_rng(5)
    moved = []
    for right in (0.9, 0.85, 0.8):
        counts = votes(200, seed=2, right=right)
        for group in GROUPED.groups:
            near = counts.copy()
            target = rng.integers(1, 10, 200)
            near[:, 0] -= group.sensitivity
            near[np.arange(200), target] += group.sensitivity
            change = abs(level(design, counts) - level(design, near))
            assert change <= GROUPED.steps(group)
            moved.append(change)
    assert max(moved) > 0


@pytest.mark.parametrize("name", QUICK)
def test_release_is_within_delta_for_all_neighbours(name):
    worst, _ = worst_by_level(*CASES[name]())
    assert 0.6 < max(worst.values()) <= 1
    assert len({level for _, level in worst}) > 4


@pytest.mark.parametrize("name", BROKEN)
def test_delta_test_detects_a_broken_design(name):
    worst, _ = worst_by_level(*BROKEN[name]())
    assert max(worst.values()) > 1.1


def test_reserve_and_fallback_reduce_the_queries():
    profile, _ = designed(SETTING)
    plain = most_queries(profile, pool=5000, reserve=0.0)
    assert plain > most_queries(profile, pool=5000, reserve=0.0, fallback=True) > 0.85 * plain
    assert most_queries(profile, pool=5000, reserve=0.25) == pytest.approx(plain / 1.25, abs=1)
    assert most_queries(profile, pool=100, reserve=0.0) == 100


def test_larger_budget_never_shrinks_the_design():
    profile, _ = designed(SETTING)
    larger = replace(profile, setting=replace(SETTING, groups=(replace(SETTING.groups[0], epsilon=1.5),)))
    assert most_queries(larger, pool=9000, reserve=0.0) > most_queries(profile, pool=9000, reserve=0.0)


def test_too_many_queries_are_refused_with_the_maximum():
    profile, _ = designed(SETTING)
    most = most_queries(profile, pool=10**5, reserve=0.1)
    make_design(profile, n_queries=most, queries_hash="none", reserve=0.1)
    with pytest.raises(InputError, match=f"affords {most}"):
        make_design(profile, n_queries=most + 1, queries_hash="none", reserve=0.1)


def test_wrong_number_of_queries_is_refused():
    _, design = designed(SETTING)
    with pytest.raises(InputError, match="exactly 200"):
        level(design, votes(199))


def test_costlier_queries_lower_the_pass_probability():
    _, design = designed(SETTING)
    assert pass_probability(design, votes(200, seed=3, right=0.6)) < 0.2


@pytest.mark.parametrize(
    ("more", "message"), [({"reserve": -0.1}, "reserve"), ({"reserve": 0.0, "pass_at_best": 1.0}, "pass_at_best")]
)
def test_invalid_search_parameters_are_refused(more, message):
    profile, _ = designed(SETTING)
    with pytest.raises(InputError, match=message):
        make_design(profile, n_queries=10, queries_hash="none", **more)


def test_empty_reference_is_refused():
    with pytest.raises(InputError, match="no queries"):
        profile_of(SETTING, np.zeros((0, 10)), source="", source_hash="")
