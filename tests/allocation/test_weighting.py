"""Weights and copies: by id, summing to k, exhausting together; small groups only ever become stricter."""

import math
import warnings
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocation.cases import many_groups
from ipate.accounting.gdp import mu_of
from ipate.engines.teachers.influence import affordance
from ipate.engines.teachers.variants import (
    RULES,
    blocs_of,
    copies_for,
    fractions_for,
    lay_out,
    teachers_for,
    weights_for,
)
from ipate.errors import InputError, ReproductionWarning
from ipate.people.budgets import Budget, Group

PAPER = [
    Group(id=name, budget=Budget(epsilon, 1e-5), people=people)
    for name, epsilon, people in (("a", 1.0, 5400), ("b", 2.0, 3700), ("c", 3.0, 900))
]


def weigh(rule, groups, teachers):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReproductionWarning)
        return weights_for(rule=rule, groups=groups, teachers_per_group=teachers)


def test_affordance_matches_reference_values():
    mu = {e: affordance("gdp", Budget(e, 1e-5)) for e in (math.log(2), 1.0, 3.0)}
    assert mu[math.log(2)] == pytest.approx(0.1918205640, rel=1e-9)
    assert mu[1.0] == pytest.approx(0.2680511232, rel=1e-9)
    assert mu[3.0] == pytest.approx(0.7191174352, rel=1e-9)
    classic = affordance("classic", Budget(1.0, 1e-5))
    tail = math.log(1e5)
    assert classic == pytest.approx(math.sqrt(1 + tail) - math.sqrt(tail), rel=1e-12)


@settings(deadline=None)
@given(groups=many_groups(), rule=st.sampled_from(RULES), data=st.data())
def test_weights_sum_to_k_and_follow_ids(groups, rule, data):
    """Mutant: sorting weights or budgets apart from their ids changes a weight under some permutation."""
    teachers = {group.id: data.draw(st.integers(1, 300)) for group in groups}
    weights = weigh(rule, groups, teachers)
    assert sum(weights[name] * n for name, n in teachers.items()) == pytest.approx(sum(teachers.values()))
    for order in list(permutations(groups))[:6]:
        assert weigh(rule, order, dict(reversed(teachers.items()))) == weights


def test_algorithm2_multiplies_by_teachers_and_warns():
    """The published pairing: sorted weights with sorted budgets would charge 'a' the weight of 'c'."""
    teachers = {"a": 135, "b": 92, "c": 23}
    with pytest.warns(ReproductionWarning, match="reproduce the paper only"):
        weights = weights_for(rule="algorithm2", groups=PAPER, teachers_per_group=teachers)
    total = 1 * 135**2 + 2 * 92**2 + 3 * 23**2
    for name, epsilon in (("a", 1), ("b", 2), ("c", 3)):
        assert weights[name] == pytest.approx(250 * epsilon * teachers[name] / total)
    assert weights["b"] > weights["a"] > weights["c"]
    proportional = weigh("proportional", PAPER, teachers)
    assert proportional["c"] == pytest.approx(3 * proportional["a"])


def test_all_groups_exhaust_together_under_gdp():
    layout = lay_out("weighting", groups=PAPER, n_teachers=250)
    assert dict(layout.teachers) == {"a": 135, "b": 93, "c": 22}
    labels = [(float(mu_of(g.epsilon, g.delta)) / g.sensitivity) ** 2 for g in layout.groups]
    assert max(labels) / min(labels) - 1 < 0.007
    assert layout.weights.sum() == pytest.approx(250)


@pytest.mark.parametrize(
    ("groups", "teachers", "parts"),
    [
        (PAPER, {"a": 1, "b": 1}, ["'c'", "number of teachers"]),
        (PAPER, {"a": 1, "b": 1, "c": 0}, ["'c'", "is 0"]),
        (PAPER, {"a": 1, "b": 1, "c": 1, "d": 1}, ["'d'", "no budget"]),
        ([*PAPER, PAPER[0]], {"a": 1, "b": 1, "c": 1}, ["'a'", "duplicate"]),
        ([], {}, ["no groups"]),
    ],
)
def test_groups_without_teachers_or_budget_are_refused(groups, teachers, parts):
    with pytest.raises(InputError) as caught:
        weights_for(groups=groups, teachers_per_group=teachers)
    for part in parts:
        assert part in str(caught.value)


@settings(deadline=None)
@given(sizes=st.lists(st.integers(1, 10_000), min_size=1, max_size=8), extra=st.integers(0, 300))
def test_teachers_are_proportional_to_people(sizes, extra):
    named = {f"g{place}": size for place, size in enumerate(sizes)}
    k = len(sizes) + extra
    teachers = teachers_for(sizes=named, n_teachers=k)
    assert sum(teachers.values()) == k
    assert min(teachers.values()) >= 1
    assert teachers == teachers_for(sizes=dict(reversed(named.items())), n_teachers=k)
    quota = {name: k * size / sum(sizes) for name, size in named.items()}
    assert all(teachers[name] <= max(1, math.ceil(quota[name] - 1e-9)) for name in named)
    if min(quota.values()) >= 1:
        assert all(abs(teachers[name] - quota[name]) < 1 for name in named)


@settings(deadline=None)
@given(groups=many_groups(largest=400), n_teachers=st.integers(5, 60))
def test_small_groups_join_only_stricter_ones(groups, n_teachers):
    if n_teachers > sum(group.people for group in groups):
        return
    by_id = {group.id: group for group in groups}
    blocs = blocs_of(groups=groups, n_teachers=n_teachers)
    for name, into in blocs.home.items():
        assert by_id[into].epsilon <= by_id[name].epsilon
        assert by_id[into].delta <= by_id[name].delta
    for merge in blocs.merged:
        assert 2 * n_teachers * merge.people < sum(group.people for group in groups)
        assert any(repr(merge.group) in note and repr(merge.into) in note for note in blocs.notes)
    assert sum(group.people for group in blocs.groups) == sum(group.people for group in groups)
    assert sum(blocs.teachers.values()) == n_teachers


def group(name, epsilon, people, delta=1e-5):
    return Group(id=name, budget=Budget(epsilon, delta), people=people)


def test_small_group_joins_the_next_stricter_one():
    groups = [group("lax", 3.0, 3), group("strict", 0.5, 2), group("mid", 1.0, 500), group("wide", 2.0, 495)]
    blocs = blocs_of(groups=groups, n_teachers=10)
    assert blocs.home == {"lax": "wide", "strict": "strict", "mid": "mid", "wide": "wide"}
    assert blocs.teachers == {"strict": 1, "mid": 5, "wide": 4}
    assert [(m.group, m.into, m.people) for m in blocs.merged] == [("lax", "wide", 3)]
    chain = [group("a", 3.0, 30), group("b", 2.0, 30), group("c", 1.0, 940)]
    assert blocs_of(groups=chain, n_teachers=10).home == {"a": "b", "b": "b", "c": "c"}


def test_group_never_joins_one_with_larger_delta():
    """Mutant: going by ε alone would put people with δ = 1e-9 under δ = 1e-5."""
    groups = [group("lax", 3.0, 3, delta=1e-9), group("other", 2.0, 500), group("safe", 1.0, 497, delta=1e-9)]
    assert blocs_of(groups=groups, n_teachers=10).home["lax"] == "safe"
    alone = [group("lax", 3.0, 3, delta=1e-9), group("other", 2.0, 500)]
    assert blocs_of(groups=alone, n_teachers=10).home["lax"] == "lax"


def test_copies_match_the_paper():
    two = [group("high", math.log(2), 1), group("low", math.log(8), 1)]
    assert copies_for(rule="proportional", groups=two).by_id == {"high": 1, "low": 3}
    assert copies_for(rule="proportional", groups=PAPER).by_id == {"a": 1, "b": 2, "c": 3}
    assert copies_for(groups=PAPER).by_id == {"a": 7, "b": 13, "c": 19}
    assert copies_for(groups=PAPER, tolerance=0.12).by_id == {"a": 1, "b": 2, "c": 3}


@settings(deadline=None)
@given(groups=many_groups(), tolerance=st.floats(0.001, 0.3))
def test_copies_are_the_smallest_within_the_tolerance(groups, tolerance):
    found = copies_for(groups=groups, tolerance=tolerance)
    afforded = {g.id: float(mu_of(g.epsilon, g.delta)) for g in groups}
    strict = min(afforded, key=afforded.__getitem__)
    assert max(found.by_id.values()) <= 20
    assert min(found.by_id.values()) >= 1
    errors = {
        name: abs(copies / found.by_id[strict] * afforded[strict] / afforded[name] - 1)
        for name, copies in found.by_id.items()
    }
    assert max(errors.values()) == pytest.approx(found.error, abs=1e-9)
    if found.error <= tolerance:
        for base in range(1, found.by_id[strict]):
            ideal = {name: base * value / afforded[strict] for name, value in afforded.items()}
            nearest = {name: math.floor(value + 0.5) for name, value in ideal.items()}
            assert max(abs(nearest[name] / ideal[name] - 1) for name in ideal) > tolerance or max(nearest.values()) > 20


def test_note_says_when_copies_miss_the_tolerance():
    groups = [group("a", 0.01, 500), group("b", 10.0, 500)]
    layout = lay_out("upsampling", groups=groups, n_teachers=100)
    assert layout.copies == {"a": 1, "b": 20}
    assert "off by" in layout.notes[0]
    assert "'b'" in layout.notes[0]
    assert layout.by_id["b"].sensitivity == 20


def test_noise_scales_with_the_number_of_teachers():
    layout = lay_out("upsampling", groups=PAPER, n_teachers=250, rule="proportional")
    assert layout.n_teachers == 388  # 250 · 1.55 = 387.5
    assert layout.scale == 388 / 250
    assert lay_out("upsampling", groups=PAPER, n_teachers=250, rule="uniform").scale == 1
    half = [group("high", math.log(2), 50), group("low", math.log(8), 50)]
    assert lay_out("upsampling", groups=half, n_teachers=10, rule="proportional").scale == 2


def test_fractions_follow_budgets_or_a_power():
    fractions = fractions_for(groups=PAPER)
    mu = [float(mu_of(e, 1e-5)) for e in (1.0, 2.0, 3.0)]
    assert fractions == pytest.approx({"a": (mu[0] / mu[2]) ** 2, "b": (mu[1] / mu[2]) ** 2, "c": 1.0})
    assert fractions_for(groups=PAPER, power=4) == pytest.approx({"a": 3**-4, "b": (2 / 3) ** 4, "c": 1.0})


def test_standard_takes_smallest_epsilon_and_delta():
    groups = [group("a", 1.0, 5, delta=1e-5), group("b", 2.0, 5, delta=1e-9)]
    layout = lay_out("standard", groups=groups, n_teachers=2)
    assert [(g.id, g.epsilon, g.delta) for g in layout.groups] == [("everyone", 1.0, 1e-9)]
    assert "10 of 10" in layout.notes[0]
