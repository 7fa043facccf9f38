"""Ballots that were summed elsewhere: what is checked of a file, and units that budgets afford."""

import numpy as np
import pytest

from ballots.making import PEOPLE, POOL, POOL_Y, X, Y
from ipate.accounting.bounds import Meter
from ipate.engines.ballots.counting import sum_ballots, units_by_person
from ipate.engines.ballots.design import ballot_terms, make_design, state_design
from ipate.engines.ballots.given import check_sum, read_ballots, release_given
from ipate.engines.ballots.release import PublicMaps, release, sum_private
from ipate.errors import InputError
from ipate.people.budgets import GroupRow
from ipate.release.noise import SeededNoise

ROWS = [GroupRow(group=g.id, epsilon=g.epsilon, delta=g.delta, people=g.people) for g in PEOPLE.groups]
IDS = [group.id for group in PEOPLE.groups]
DESIGN = make_design(ballot_terms(PEOPLE.groups), n_classes=3, n_pool=len(POOL), partitions=4)
MAPS = PublicMaps.make(POOL, n_classes=3, cells=DESIGN.cells, partitions=4)
TOTAL = sum_private(X, Y, PEOPLE, design=DESIGN, maps=MAPS)
UNITS = np.array([DESIGN.units[name] for name in IDS])
GIVEN = {"ballots": TOTAL, "cells": MAPS.pool, "groups": np.array(IDS), "units": UNITS}


def by_group():
    """The sum of every group's ballots, by plain counting of the group's own rows."""
    cells, units = MAPS.cells.assign(MAPS.features.transform(X)), units_by_person(DESIGN, PEOPLE)
    own = PEOPLE.group_of_person[PEOPLE.person_of_row]
    return np.stack(
        [
            sum_ballots(
                cells, np.where(own == g, Y, -1), units=units, person_of_row=PEOPLE.person_of_row, shape=DESIGN.shape
            )
            for g in range(len(IDS))
        ]
    )


def read(folder, *, rows=ROWS, bound="gdp", without=(), **changes):
    arrays = {name: value for name, value in {**GIVEN, **changes}.items() if name not in without}
    np.savez(folder / "ballots.npz", **arrays)
    return read_ballots(folder / "ballots.npz", rows, delta=1e-4, meter=Meter(bound))


def test_file_of_the_engines_own_sum_gives_its_labels(tmp_path):
    result, decoded = release_given(read(tmp_path), noise=SeededNoise(5))
    own = release(POOL, X, Y, PEOPLE, n_classes=3, partitions=4, noise=SeededNoise(5))
    np.testing.assert_array_equal(result.labels, own.labelling.labels)
    np.testing.assert_array_equal(decoded.confidence, own.decoded.confidence)
    assert [(g.id, g.cost, g.weight) for g in result.groups] == [(g.id, g.cost, g.weight) for g in own.labelling.groups]
    assert np.mean(result.labels == POOL_Y) > 0.9


def test_sums_per_group_are_added_in_any_order(tmp_path):
    shuffled = [2, 0, 1]
    found = read(
        tmp_path, ballots=by_group()[shuffled], groups=np.array(IDS)[shuffled], units=UNITS[shuffled], rows=ROWS[::-1]
    )
    np.testing.assert_array_equal(found.total, TOTAL)
    assert found.design.units == dict(DESIGN.units)


def test_one_partition_may_lack_its_axis(tmp_path):
    units = np.full(3, 1000)
    flat = read(tmp_path, ballots=np.full((5, 3), 7), cells=np.zeros(9, dtype=int), units=units)
    assert flat.total.shape == (1, 5, 3)
    each = read(tmp_path, ballots=np.full((3, 5, 3), 7), cells=np.zeros(9, dtype=int), units=units)
    np.testing.assert_array_equal(each.total, 3 * flat.total)


def test_ballots_without_units_cost_whole_budgets(tmp_path):
    result, _ = release_given(read(tmp_path, without=("units", "groups")), noise=SeededNoise(0))
    for group in result.groups:
        assert 0.999 * group.budget.epsilon < group.cost <= group.budget.epsilon


@pytest.mark.parametrize("bound", ["loose", "sup"])
def test_renyi_bounds_charge_the_vector_within_budgets(tmp_path, bound):
    """Under the order α that the account has fixed, the whole vector costs α·w² (σ = 1)."""
    given = read(tmp_path, bound=bound, ballots=TOTAL // 2, without=("units", "groups"))
    result, _ = release_given(given, noise=SeededNoise(0))
    for group in result.groups:
        assert 0.999 * group.budget.epsilon < group.cost <= group.budget.epsilon
        exact = Meter(bound, "improved", (group.order,)).epsilon(np.array([group.order * group.weight**2]), 1e-4)[0]
        assert group.cost == pytest.approx(float(exact), rel=1e-9)
    with pytest.raises(InputError, match="its budget affords whole numbers up to"):
        read(tmp_path, bound=bound, units=[make_most("gdp", name) for name in IDS])


def make_most(bound, name):
    return state_design(ballot_terms(PEOPLE.groups, Meter(bound)), shape=DESIGN.shape).units[name]


@pytest.mark.parametrize("bound", ["tight", "exact", "ptr"])
def test_bounds_of_single_labels_are_refused(tmp_path, bound):
    with pytest.raises(InputError, match="ballots have a cost for all data"):
        read(tmp_path, bound=bound)


def test_units_up_to_the_whole_budget_are_accepted_only(tmp_path):
    most = np.array([make_most("gdp", name) for name in IDS])
    assert read(tmp_path, units=most).design.share == 1.0
    with pytest.raises(InputError, match=rf"units of group '{IDS[1]}' is {most[1] + 1}"):
        read(tmp_path, units=np.add(most, [0, 1, 0]))


def test_sum_may_reach_but_not_pass_declared_units():
    table = np.zeros((2, 3, 2), dtype=np.int64)
    table[:, 1, 0], table[:, 2, 1] = 60, 40
    np.testing.assert_array_equal(check_sum(table, most=100), table)
    table[1, 0, 0] = 1
    with pytest.raises(InputError, match="partition 1 sum to more than the declared units of all people, 100"):
        check_sum(table, most=100)
    with pytest.raises(InputError, match="negative"):
        check_sum(np.array([[[101, -1]]]), most=100)
    with pytest.raises(InputError, match="partition 0 sum to more"):
        check_sum(np.array([[[2**63, 2**63]]], dtype=np.uint64), most=100)


BAD = {
    "fractions": ({"ballots": TOTAL / 2}, "whole multiples of the grid"),
    "a negative entry": ({"ballots": TOTAL - TOTAL.max()}, "0 or above"),
    "more than the groups declare": ({"ballots": TOTAL * 3}, "more than the declared units"),
    "more than one group declares": ({"ballots": by_group()[[2, 1, 0]]}, "more than the declared units"),
    "an unknown shape": ({"ballots": TOTAL[0]}, "(partitions, cells, classes)"),
    "one class": ({"ballots": TOTAL[..., :1]}, "2 classes or more"),
    "other partitions": ({"cells": MAPS.pool[:, :3]}, "for 3 partitions"),
    "cells beyond those of the ballots": ({"cells": MAPS.pool + DESIGN.cells}, "the ballots have the cells 0 to"),
    "cells that are no integers": ({"cells": MAPS.pool / 2}, "points × partitions"),
    "groups that the csv lacks": ({"groups": np.array(["a", "b", "c"])}, "and the groups are"),
    "duplicate groups": ({"groups": np.array(["a", "a", "c"])}, "ids must be unique"),
    "units without groups": ({"without": ("groups",)}, "one per 'groups'"),
    "no units at all": ({"units": np.zeros(3, dtype=int)}, "nobody's ballot has any weight"),
    "negative units": ({"units": -UNITS}, "affords whole numbers up to"),
    "sums per group without groups": ({"ballots": by_group(), "without": ("groups", "units")}, "their ids in this"),
    "no cells": ({"without": ("cells",)}, "has no array 'cells'"),
    "labels of other points": ({"labels": POOL_Y[1:]}, "there are 120 points"),
    "labels that are no classes": ({"labels": POOL_Y / 2}, "labels are float64"),
    "other classes": ({"classes": np.array(["a", "b"])}, "classes has 2 classes"),
    "people unknown": ({"rows": [GroupRow(group=name, epsilon=1.0) for name in IDS]}, "has no number of people"),
    "weights in the csv": (
        {"rows": [GroupRow(group=name, epsilon=1.0, people=9, weight=1.0) for name in IDS]},
        "those of ballots are 'units'",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_unusable_file_is_refused_by_name(tmp_path, case):
    changes, words = BAD[case]
    with pytest.raises(InputError) as error:
        read(tmp_path, **changes)
    assert words in str(error.value)
    assert str(error.value).startswith(f"{tmp_path / 'ballots.npz'}: ")
    assert "\n" not in str(error.value)
