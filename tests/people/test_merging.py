"""Groups are merged downwards, with the least loss, and nobody gets more than they allowed."""

from itertools import combinations

import numpy as np
import pytest

from ipate.errors import InputError
from ipate.people.budgets import Budget, Group, shown_counts
from ipate.people.grouping import merge_groups
from ipate.people.people import People


def groups(epsilon, people, delta=1e-5):
    deltas = np.broadcast_to(delta, len(epsilon)).tolist()
    rows = zip(epsilon, deltas, people, strict=True)
    return [Group(id=f"g{i}", budget=Budget(e, d), people=n) for i, (e, d, n) in enumerate(rows)]


def lost(made, home):
    return sum((g.people or 0) * (g.budget.mu - made[into].budget.mu) for g, into in zip(made, home, strict=True))


def test_few_large_groups_are_left_alone():
    home, notes = merge_groups(groups([1.0, 2.0, 3.0], [50, 5, 9]), max_groups=3, min_group_size=5)
    assert home.tolist() == [0, 1, 2]
    assert notes == ()


@pytest.mark.parametrize("seed", range(5))
def test_merge_loses_least_of_all_merges(seed):
    rng = np.random.default_rng(seed)
    made = groups(rng.uniform(0.2, 8, size=8).tolist(), rng.integers(1, 90, size=8).tolist())
    order = np.argsort([g.epsilon for g in made])

    def by_cuts(cuts):
        starts = np.array([0, *cuts])
        home = np.empty(8, dtype=int)
        home[order] = order[starts[np.searchsorted(starts, np.arange(8), side="right") - 1]]
        return lost(made, home)

    least = min(by_cuts(cuts) for cuts in combinations(range(1, 8), 2))
    home, notes = merge_groups(made, max_groups=3)
    assert len(set(home.tolist())) == 3
    assert lost(made, home) == pytest.approx(least)
    assert "8 different budgets are merged into 3 groups" in notes[0]


def test_merged_people_never_get_more_than_allowed():
    rng = np.random.default_rng(0)
    made = groups(rng.uniform(0.1, 9, 300).tolist(), [1] * 300, rng.choice([1e-5, 1e-6], 300))
    home, _ = merge_groups(made, max_groups=12, min_group_size=7)
    kept, sizes = np.unique(home, return_counts=True)
    assert len(kept) <= 12
    assert sizes.min() >= 7
    for group, into in zip(made, home, strict=True):
        assert made[into].epsilon <= group.epsilon
        assert made[into].delta <= group.delta


def test_each_delta_gets_its_share_of_groups():
    epsilon = [1.0, 1.01, 5.0, 1.0, 9.0, 2.0]
    made = groups(epsilon, [10] * 6, [1e-5, 1e-5, 1e-5, 1e-6, 1e-6, 1e-6])
    home, _ = merge_groups(made, max_groups=5)
    assert home.tolist() == [0, 0, 2, 3, 4, 5]
    with pytest.raises(InputError, match="2 different delta and at most 1 groups"):
        merge_groups(made, max_groups=1)


def test_small_groups_join_next_stricter_strictest_stays():
    home, notes = merge_groups(groups([3.0, 1.0, 2.0, 8.0], [2, 3, 3, 100]), min_group_size=5)
    assert home.tolist() == [2, 1, 2, 3]  # 2 and 3 people make a group of 5; the strictest stays though it is small
    assert "Under 5 people join the next stricter group" in notes[0]


def test_ten_thousand_budgets_lose_less_than_by_quantiles():
    rng = np.random.default_rng(0)
    epsilon = rng.lognormal(0, 0.7, size=10_000)
    made = groups(epsilon.tolist(), [1] * 10_000)
    home, _ = merge_groups(made, max_groups=16)
    assert len(set(home.tolist())) == 16
    assert (epsilon[home] <= epsilon).all()
    starts = np.sort(epsilon)[np.arange(16) * 625]
    by_quantile = starts[np.searchsorted(starts, epsilon, side="right") - 1]
    assert np.mean(epsilon - epsilon[home]) < 0.8 * np.mean(epsilon - by_quantile)


def test_people_keep_ids_rows_and_stricter_groups():
    people = People.from_budgets([1.0, 4.0, 1.0, 4.5, 4.0, 1.0], delta=1e-9, person_id=list("abcdea"))
    merged = people.merged(min_group_size=2)
    assert [(group.id, group.people) for group in merged.groups] == [("eps=1", 2), ("eps=4", 3)]
    assert merged.group_of("d").epsilon == 4.0
    assert merged.ids.tolist() == list("abcde")
    np.testing.assert_array_equal(merged.person_of_row, people.person_of_row)
    assert any("min_group_size" in note for note in merged.notes)


def test_repr_of_people_shows_no_ids():
    people = People.from_budgets([1.0, 2.0, 1.0], delta=1e-9, person_id=["ada", "bob", "cleo"])
    assert repr(people) == "People(3 people, 3 rows, 2 groups: eps=1: 2, eps=2: 1)"


def test_sizes_with_one_total_look_alike_beside_a_small_group():
    assert shown_counts([1, 62, 60]) == shown_counts([4, 59, 60]) == ["under 5", "5 or more", "5 or more"]
    assert shown_counts([5, 60]) == [5, 60]
    assert shown_counts([5, 60], least=6) == ["under 6", "6 or more"]
    assert shown_counts([None, 7]) == [None, 7]
