"""Designs verify themselves: no file can promise more than its tables keep."""

import json
import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipate.accounting.ladder import Design, GroupTable, bound_limits, hash_queries, make_design, profile_of
from ipate.accounting.ptr import PtrGroup, Setting
from ipate.errors import InputError

SETTING = Setting(
    sigma=40.0,
    check_sigma=150.0,
    threshold=200.0,
    classes=10,
    total_weight=250.0,
    groups=(
        PtrGroup(id="strict", epsilon=1.0, delta=1e-5, sensitivity=1.0),
        PtrGroup(id="lax", epsilon=2.5, delta=1e-6, sensitivity=2.0),
    ),
    orders=(1.5, 3.0, 6.0, 10.0, 16.0, 24.0),
)
VOTES = np.array([[240.0, 6, 4, *[0.0] * 7], [225.0, 20, 5, *[0.0] * 7]])
PROFILE = profile_of(SETTING, VOTES, source="two histograms", source_hash="abc", radii=120)


def design(fallback=False):
    return make_design(PROFILE, n_queries=300, queries_hash=hash_queries("abc"), reserve=0.1, fallback=fallback)


DESIGNS = {fallback: design(fallback) for fallback in (False, True)}
EITHER = pytest.mark.parametrize("fallback", [False, True])


@EITHER
def test_design_conditions_hold_at_fifty_digits(fallback):
    made = DESIGNS[fallback]
    for group, table in zip(SETTING.groups, made.tables, strict=True):
        with mp.workdps(50):
            losses = [mp.mpf(x) for x in made.losses]
            pi = [mp.exp(-x) for x in losses]
            epsilon, j = mp.mpf(group.epsilon), int(group.sensitivity)
            delta = mp.mpf(group.delta) * (mp.mpf("0.9") if fallback else 1)
            growth = mp.exp(epsilon / 2 if fallback else epsilon)
            assert pi[0] <= delta * (1 + mp.mpf("1e-14"))
            for s in range(made.levels + 1):
                assert 1 - pi[s] <= growth * (1 - pi[min(s + j, made.levels)])
                if pi[s] <= delta:
                    continue
                alpha, bound = mp.mpf(table.orders[s]), mp.mpf(table.bounds[s])
                shifted = epsilon - mp.log(pi[s] / pi[max(s - j, 0)])
                # Canonne, Kamath and Steinke 2020, Proposition 12.
                stick = mp.exp((alpha - 1) * (bound - shifted)) / alpha * (1 - 1 / alpha) ** (alpha - 1)
                assert pi[s] * stick <= delta


@EITHER
def test_design_round_trips_through_json(fallback):
    made = DESIGNS[fallback]
    again = Design.from_json(made.to_json())
    assert again == made
    assert again.digest == made.digest
    assert json.loads(made.to_json())["setting"]["groups"][1]["id"] == "lax"


def tampered(change):
    content = json.loads(DESIGNS[False].to_json())
    change(content)
    return json.dumps(content)


def set_bound(level, value):
    def change(content):
        content["tables"][0]["bounds"][level] = value

    return change


def shifted(level, by):
    def change(content):
        content["losses"][level] += by

    return change


def eager(content):
    """A bound at level 0, which no level ever tests, does not make up for passing there."""
    content["losses"][:2] = [x - 1e-3 for x in content["losses"][:2]]
    content["tables"][1]["bounds"][:2] = [-9.0, -9.0]


def steeper(content):
    """Nothing is asked of the costs, and the ramp's first step is too high."""
    for table in content["tables"]:
        table["bounds"] = [-1.0] * len(table["bounds"])
    content["losses"][-1] -= 1e-4


NEEDED = next(s for s, b in enumerate(DESIGNS[False].tables[0].bounds) if math.isfinite(b))
TOP = DESIGNS[False].levels


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_bound(NEEDED, DESIGNS[False].tables[0].bounds[NEEDED] + 1e-6), "above"),
        (set_bound(TOP, DESIGNS[False].tables[0].bounds[TOP] + 1e-6), "above"),
        (set_bound(TOP, None), "above"),
        (set_bound(TOP, math.nan), "no number"),
        (set_bound(TOP, -math.inf), "no number"),
        (lambda c: c.update(losses=[x * 0.999 for x in c["losses"]]), "above"),
        (lambda c: c.update(losses=[x - 1e-3 * (i < 2) for i, x in enumerate(c["losses"])]), "level 0"),
        (shifted(TOP, 0.1), "monotone"),
        (eager, "passes at level 0"),
        (steeper, "steeply"),
        (shifted(TOP, -0.1), "negative"),
        (lambda c: c["losses"].__setitem__(3, math.inf), "finite"),
        (lambda c: c["losses"].pop(), "entries"),
        (lambda c: c["setting"]["groups"][0].update(epsilon=0.99), "above|steeply"),
        (lambda c: c["setting"]["groups"][0].update(delta=1e-6), "above|level 0"),
        (lambda c: c["setting"]["groups"][0].update(sensitivity=2.0), "above|steeply"),
        (lambda c: c["setting"]["groups"][0].update(sensitivity=1.01), "sensitivity of group 'strict' is 1.01"),
        (lambda c: c.update(fallback=True), "above|level 0|steeply"),
        (lambda c: c["tables"].reverse(), "one table per group"),
        (lambda c: c["tables"][0]["orders"].__setitem__(TOP, 17.0), "order"),
        (lambda c: c["setting"].update(orders=[0.5, 3.0]), "order"),
        (lambda c: c["setting"].update(sigma=-1.0), "sigma"),
        (lambda c: c["setting"].update(check_sigma=None), "check_sigma"),
        (lambda c: c["setting"].update(grid=0.3), "power of two"),
        (lambda c: c["setting"].update(total_weight=250.5), "multiple"),
        (lambda c: c["setting"].update(lattice=2.0), "coarser"),
        (lambda c: c["setting"].update(lattice=0.3), "power of two"),
        (lambda c: c["setting"].update(lattice=True), "lattice"),
        (lambda c: c["setting"].update(classes=True), "classes"),
        (lambda c: c["setting"]["groups"][1].update(id="strict"), "one table|duplicate"),
        (lambda c: c.update(version=1), "version 1: .* make a new design"),
        (lambda c: c.update(n_queries=0), "queries"),
        (lambda c: c.update(n_queries="300"), "n_queries"),
        (lambda c: c.update(reserve=-1.0), "reserve"),
        (lambda c: c.update(extra=1), "wrong entries"),
        (lambda c: c.pop("setting"), "not a design"),
        (lambda c: c.update(losses="abc"), "not a design"),
    ],
)
def test_tampered_design_file_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        Design.from_json(tampered(change))


@pytest.mark.parametrize("text", ["", "[]", "{", '{"setting": 3}', "null"])
def test_invalid_design_file_is_refused(text):
    with pytest.raises(InputError, match="design"):
        Design.from_json(text)


@settings(max_examples=100, deadline=None)
@given(level=st.integers(0, TOP), by=st.floats(1e-7, 5.0))
def test_raising_a_needed_bound_is_refused(level, by):
    made = DESIGNS[False]
    table = made.tables[1]
    if math.isinf(table.bounds[level]):
        return
    bounds = (*table.bounds[:level], table.bounds[level] + by, *table.bounds[level + 1 :])
    with pytest.raises(InputError, match="above"):
        replace(made, tables=(made.tables[0], replace(table, bounds=bounds)))


def ramp_from(loss, *, epsilon=30.0, delta=1e-6, kept=0.0):
    """A design with the loss `loss` at the highest level, which grows as fast as ε and δ less `kept` allow."""
    losses = [loss]
    group = PtrGroup(id="one", epsilon=epsilon, delta=delta, sensitivity=1.0)
    delta = delta - kept
    while losses[-1] < math.log(1 / delta) + 1e-8:
        failing = math.exp(epsilon - 2e-9) * -math.expm1(-losses[-1])
        losses.append(min(-math.log1p(-failing) if failing < 1 else math.inf, losses[-1] + 10))
    losses.reverse()
    limits = bound_limits(np.array(losses), 1, np.full(len(losses), 3.0), epsilon=epsilon - 1e-8, delta=delta)
    table = GroupTable(group="one", orders=(3.0,) * len(losses), bounds=tuple(limits.tolist()))
    return replace(DESIGNS[False], setting=replace(SETTING, groups=(group,)), losses=tuple(losses), tables=(table,))


def test_chances_of_the_coin_keep_the_condition_on_failures():
    with pytest.raises(InputError, match="coin"):
        ramp_from(1e-18)  # as a double this chance to fail is 0, and that of a neighbour is 1e-5, above δ
    made = ramp_from(1.1e-6)
    thrown = [Fraction(math.ceil(Fraction(chance) * 2**53), 2**53) for chance in made.pi.tolist()]
    for here, above in pairwise(thrown):
        assert 1 - here <= Fraction(math.exp(30.0)) * (1 - above)


def test_delta_covers_the_last_bit_of_the_coin():
    assert ramp_from(0.01, delta=1e-12, kept=2.0**-53).pi[0] + 2.0**-53 <= 1e-12
    with pytest.raises(InputError, match="above"):
        ramp_from(0.01, delta=1e-12)


def test_huge_epsilon_needs_no_infinite_factor():
    group = PtrGroup(id="one", epsilon=5000.0, delta=1e-6, sensitivity=1.0)
    profile = profile_of(replace(SETTING, groups=(group,)), VOTES, source="two", source_hash="abc", radii=120)
    assert make_design(profile, n_queries=3, queries_hash="abc", reserve=0.1).setting.groups == (group,)


def test_fallback_keeps_half_epsilon_and_tenth_delta():
    group = SETTING.groups[0]
    assert DESIGNS[False].left_after_failure(group) == (0.0, 0.0)
    assert DESIGNS[True].left_after_failure(group) == (0.5, pytest.approx(1e-6))


def test_query_hash_depends_on_the_order():
    assert hash_queries(["a", "b"]) != hash_queries(["b", "a"])
    assert hash_queries(["ab"]) != hash_queries(["a", "b"])
    assert hash_queries([1, 2]) == hash_queries(["1", "2"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"groups": ()}, "no groups"),
        ({"groups": (SETTING.groups[0], SETTING.groups[0])}, "duplicate"),
        ({"orders": (3.0, 2.0)}, "grow"),
        ({"classes": 1}, "classes"),
        ({"threshold": math.inf}, "threshold"),
        ({"threshold": None}, "threshold"),
        ({"total_weight": 1.0}, "more than all"),
    ],
)
def test_invalid_settings_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        replace(SETTING, **changes)


def test_steps_are_rounded_up():
    quarter = replace(SETTING, grid=0.25, lattice=2.0**-6, groups=(replace(SETTING.groups[0], sensitivity=0.765625),))
    assert quarter.steps(quarter.groups[0]) == 4
    assert SETTING.steps(SETTING.groups[1]) == 2
    assert SETTING.group("lax").epsilon == 2.5
    with pytest.raises(InputError, match="nobody"):
        SETTING.group("nobody")


@pytest.mark.parametrize("values", [{"id": ""}, {"epsilon": 0.0}, {"delta": 1.0}, {"sensitivity": 0.0}])
def test_invalid_groups_are_refused(values):
    with pytest.raises(InputError, match=next(iter(values))):
        replace(SETTING.groups[0], **values)
