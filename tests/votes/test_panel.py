"""Teachers, groups and accounts are matched by id; the order of rows does not matter."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.votes import Votes
from ipate.errors import InputError
from ipate.people.budgets import Account, Budget, Group

BALLOT = np.array([[0, 1, 2, -1], [2, 2, 0, 1], [1, 1, 1, 1], [0, 0, -1, 1], [2, 1, 0, 0]])
GROUPS = ("a", "b", "a", "b", "c")
BUDGETS = [("a", 1.0, 1e-5, None), ("b", 2.0, 1e-6, None), ("c", 3.0, 1e-4, None)]
WEIGHTS = np.array([0.5, 1.25, 0.5, 1.25, 1.5])


def ballot(**changes):
    made = {"votes": BALLOT, "n_classes": 3, "groups": GROUPS, **changes}
    return Votes(**made)


def weighted(budgets=BUDGETS, **changes):
    return Panel.from_votes(ballot(**changes), budgets, weights=WEIGHTS)


# Matching by id


def test_sensitivity_defaults_to_weight_of_group_teachers():
    panel = weighted()
    assert [(group.id, group.sensitivity) for group in panel.groups] == [("a", 0.5), ("b", 1.25), ("c", 1.5)]
    assert panel.total_weight == 5.0
    assert panel.account_ids == ("a", "b", "c")


def test_weights_and_sensitivities_default_to_one():
    panel = Panel.from_votes(ballot(), BUDGETS)
    assert panel.weights.tolist() == [1] * 5
    assert [group.sensitivity for group in panel.groups] == [1, 1, 1]


def test_given_sensitivity_overrides_the_teacher_weight():
    panel = weighted([("a", 1.0, 1e-5, 3.0), *BUDGETS[1:]])
    assert [group.sensitivity for group in panel.groups] == [3, 1.25, 1.5]


def by_id(panel):
    epsilon, delta = panel.budgets
    return {
        name: (float(epsilon[i]), float(delta[i]), float(panel.tally(BALLOT, 3).sensitivity[i]))
        for i, name in enumerate(panel.account_ids)
    }


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_order_of_budget_rows_does_not_matter(order):
    panel = weighted([BUDGETS[i] for i in order])
    assert by_id(panel) == {"a": (1.0, 1e-5, 0.5), "b": (2.0, 1e-6, 1.25), "c": (3.0, 1e-4, 1.5)}
    assert [panel.groups[i].id for i in panel.member] == list(GROUPS)
    assert np.array_equal(panel.tally(BALLOT, 3).counts, weighted().tally(BALLOT, 3).counts)


def test_renaming_groups_changes_nothing_but_names():
    names = {"a": "z", "b": "10", "c": "9"}  # another order, whichever way they are sorted
    panel = weighted([(names[name], *rest) for name, *rest in BUDGETS], groups=tuple(names[name] for name in GROUPS))
    assert by_id(panel) == {names[name]: values for name, values in by_id(weighted()).items()}


def test_permuted_teachers_keep_their_group_and_weight():
    order = [4, 2, 0, 3, 1]
    panel = Panel.from_votes(
        ballot(votes=BALLOT[order], groups=tuple(GROUPS[i] for i in order)), BUDGETS, weights=WEIGHTS[order]
    )
    assert by_id(panel) == by_id(weighted())
    assert np.array_equal(panel.tally(BALLOT[order], 3).counts, weighted().tally(BALLOT, 3).counts)


# Refusals


def test_group_with_teachers_without_budget_is_refused():
    with pytest.raises(InputError, match="group 'c' has teachers but no budget"):
        weighted(BUDGETS[:2])


def test_group_with_budget_without_teachers_is_refused():
    with pytest.raises(InputError, match="group 'idle' has a budget but no teachers"):
        weighted([*BUDGETS, ("idle", 1.0, 1e-5, None)])


def test_group_ids_are_compared_as_exact_text():
    with pytest.raises(InputError, match="group '01' has teachers but no budget"):
        Panel.from_votes(ballot(groups=("01",) * 5), [("1", 1.0, 1e-5, None)])


@pytest.mark.parametrize("groups", [GROUPS, None])
def test_sensitivity_below_a_teacher_weight_is_refused(groups):
    budgets = [("a", 1.0, 1e-5, 9.0), ("b", 1.0, 1e-5, 1.2), ("c", 1.0, 1e-5, 9.0)]
    message = "group 'b' has the sensitivity 1.2, below the weight 1.(25|5) of one of its teachers"
    with pytest.raises(InputError, match=message):
        weighted(budgets, groups=groups)


def test_sensitivity_equal_to_the_weight_is_allowed():
    assert weighted([("a", 1.0, 1e-5, 0.5), *BUDGETS[1:]]).groups[0].sensitivity == 0.5


def test_votes_without_groups_need_explicit_sensitivities():
    with pytest.raises(InputError, match="group 'b' has no sensitivity: the votes name no groups"):
        Panel.from_votes(ballot(groups=None), [("a", 1.0, 1e-5, 1.0), ("b", 1.0, 1e-5, None)])


def test_duplicate_group_id_in_panel_is_refused():
    twice = Account(group=Group(id="a", budget=Budget(1.0, 1e-5)), sensitivity=1.0)
    with pytest.raises(InputError, match="duplicate group id 'a': ids must be unique"):
        Panel(groups=(twice, twice), weights=np.ones(2))


def test_vanishing_without_groups_is_refused():
    present = np.ones((5, 4), bool)
    with pytest.raises(InputError, match="participation is given without groups"):
        Panel.from_votes(ballot(groups=None, participation=present), [("a", 1.0, 1e-5, 1.0)])


def test_vanishing_with_explicit_weights_is_refused():
    with pytest.raises(InputError, match="participation and weights are both given"):
        weighted(participation=np.ones((5, 4), bool))


# Counting


CASES = st.tuples(st.integers(1, 8), st.integers(1, 6), st.integers(2, 5)).flatmap(
    lambda size: st.fixed_dictionaries(
        {
            "votes": st.lists(
                st.lists(st.integers(-1, size[2] - 1), min_size=size[1], max_size=size[1]),
                min_size=size[0],
                max_size=size[0],
            ),
            "groups": st.lists(st.sampled_from("abc"), min_size=size[0], max_size=size[0]),
            "weights": st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.75]), min_size=size[0], max_size=size[0]),
            "present": st.lists(
                st.lists(st.booleans(), min_size=size[1], max_size=size[1]), min_size=size[0], max_size=size[0]
            ),
            "classes": st.just(size[2]),
        }
    )
)


def panel_of(case, *, rotating=False):
    budgets = [(name, 1.0, 1e-5, None) for name in sorted(set(case["groups"]), reverse=True)]
    made = Votes(
        votes=np.array(case["votes"]),
        n_classes=case["classes"],
        groups=tuple(case["groups"]),
        participation=np.array(case["present"]) if rotating else None,
    )
    return Panel.from_votes(made, budgets, weights=None if rotating else np.array(case["weights"]))


@given(CASES)
def test_weighted_tally_matches_a_plain_loop(case):
    panel = panel_of(case)
    tally = panel.tally(np.array(case["votes"]), case["classes"])
    for query in range(len(case["votes"][0])):
        for c in range(case["classes"]):
            total = sum(w for row, w in zip(case["votes"], case["weights"], strict=True) if row[query] == c)
            assert tally.counts[query, c] == pytest.approx(total)
    assert tally.votes.tolist() == case["votes"]
    assert tally.present is None


@given(CASES)
def test_blocs_share_one_group_and_one_weight(case):
    panel = panel_of(case)
    seen = {}
    for position, weight, teachers in panel.blocs:
        key = (panel.groups[position].id, weight)
        assert key not in seen
        seen[key] = sorted(teachers.tolist())
    expected = {}
    for teacher, key in enumerate(zip(case["groups"], case["weights"], strict=True)):
        expected.setdefault(key, []).append(teacher)
    assert seen == expected


@given(CASES)
def test_tally_records_votes_and_abstentions_per_bloc(case):
    panel = panel_of(case)
    voted = panel.tally(np.array(case["votes"]), case["classes"]).voted
    for index, (_, _, teachers) in enumerate(panel.blocs):
        for query in range(len(case["votes"][0])):
            said = {case["votes"][teacher][query] for teacher in teachers}
            expected = [c in said for c in range(case["classes"])] + [-1 in said]
            assert voted[index, query].tolist() == expected


@given(CASES)
def test_vanishing_scales_present_votes_to_all_teachers(case):
    panel = panel_of(case, rotating=True)
    present = np.array(case["present"])
    tally = panel.tally(np.array(case["votes"]), case["classes"], present)
    k = len(case["votes"])
    delta = tally.sensitivity
    assert tally.present is not None
    for query in range(len(case["votes"][0])):
        here = [teacher for teacher in range(k) if case["present"][teacher][query]]
        scale = k / len(here) if here else 0.0
        assert tally.scale[query] == pytest.approx(scale)
        for c in range(case["classes"]):
            total = sum(case["votes"][teacher][query] == c for teacher in here) * scale
            assert tally.counts[query, c] == pytest.approx(total)
        said = [case["votes"][teacher][query] if teacher in here else -1 for teacher in range(k)]
        assert tally.votes[:, query].tolist() == said
        assert delta[query].tolist() == pytest.approx([scale if teacher in here else 0.0 for teacher in range(k)])
        heard = {case["votes"][teacher][query] for teacher in here}
        assert tally.voted[0, query].tolist() == [c in heard for c in [*range(case["classes"]), -1]]


def test_vanishing_gives_every_teacher_its_own_account():
    panel = Panel.from_votes(ballot(participation=np.ones((5, 4), bool)), BUDGETS)
    assert panel.account_ids == tuple(f"teacher {i}" for i in range(5))
    assert [panel.groups[i].id for i in panel.account_group] == list(GROUPS)
    epsilon, delta = panel.budgets
    assert epsilon.tolist() == [1, 2, 1, 2, 3]
    assert delta.tolist() == [1e-5, 1e-6, 1e-5, 1e-6, 1e-4]


# Leaving


def test_weights_of_leaving_groups_go_to_others():
    panel = weighted().without(frozenset({"b"}))
    assert panel.total_weight == pytest.approx(5.0)
    assert panel.weights == pytest.approx(WEIGHTS * [1, 0, 1, 0, 1] * 2)
    assert [group.sensitivity for group in panel.groups] == pytest.approx([1.0, 0.0, 3.0])
    assert [group.epsilon for group in panel.groups] == [1, 2, 3]


def test_removing_every_group_is_refused():
    with pytest.raises(InputError, match="every group would leave"):
        weighted().without(frozenset("abc"))


@pytest.mark.parametrize("changes", [{"groups": None}, {"participation": np.ones((5, 4), bool)}])
def test_leaving_is_refused_for_mixed_or_rotating_teachers(changes):
    budgets = [(name, epsilon, delta, 2.0) for name, epsilon, delta, _ in BUDGETS]
    if "participation" in changes:
        budgets = BUDGETS
    panel = Panel.from_votes(ballot(**changes), budgets)
    with pytest.raises(InputError, match="groups can leave only if every teacher belongs to one group"):
        panel.without(frozenset({"a"}))


def test_invalid_teacher_weights_are_refused():
    votes = Votes(votes=np.zeros((3, 2), dtype=np.int8), n_classes=2, groups=("a", "a", "a"))
    for bad in (-5.0, np.nan, np.inf):
        with pytest.raises(InputError, match="weights contain"):
            Panel.from_votes(votes, [("a", 1.0, 1e-5, None)], weights=np.array([1.0, 1.0, bad]))


def test_explicit_sensitivity_under_vanishing_is_refused():
    votes = Votes(
        votes=np.zeros((2, 2), dtype=np.int8), n_classes=2, groups=("a", "a"), participation=np.ones((2, 2), dtype=bool)
    )
    with pytest.raises(InputError, match="under vanishing"):
        Panel.from_votes(votes, [("a", 1.0, 1e-5, 3.0)])
