"""People and budgets: no budget grows, groups are identified by id, and invalid values are named."""

import pickle
import re
import subprocess
import sys
import warnings
from dataclasses import FrozenInstanceError, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipate.errors import DeltaWarning, InputError, PolicyWarning
from ipate.people.budgets import Budget, Group
from ipate.people.people import People, make_people
from ipate.people.policy import Policy

POLICY = Policy.from_mapping({"low": 3.0, "average": 2.0, "high": 1.0})
TINY = 1e-9

epsilons = st.sampled_from([0.5, 1.0, 1.0000000000000002, 1.01, 1.02, 1.03, 2.0, 3.0]) | st.floats(1e-3, 50)
deltas = st.sampled_from([1e-9, 1e-8, 2e-8])
persons = st.sampled_from(["ada", "bob", "cyd", "01", "1", "é"])
row = st.tuples(epsilons, deltas, persons)
rows = st.lists(row, min_size=1, max_size=40)
tolerances = st.none() | st.floats(0, 1)


def build(data, **options):
    epsilon, delta, person = (list(column) for column in zip(*data, strict=True))
    return People.from_budgets(epsilon, delta=delta, person_id=person, **options)


def contents(people):
    """Return the budget and the people of each group, by group id."""
    return {
        group.id: (group.epsilon, group.delta, sorted(people.ids[people.group_of_person == index].tolist()))
        for index, group in enumerate(people.groups)
    }


def refusal(call):
    with pytest.raises(InputError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@given(data=rows, within=tolerances)
def test_no_person_exceeds_their_smallest_row_budget(data, within):
    people = build(data, merge_within=within)
    for epsilon, delta, person in data:
        group = people.group_of(person)
        assert group.epsilon <= epsilon
        assert group.delta <= delta


@given(data=rows)
def test_without_merging_each_person_keeps_strictest_budget(data):
    people = build(data)
    for person in people.ids.tolist():
        mine = [entry for entry in data if entry[2] == person]
        group = people.group_of(person)
        assert (group.epsilon, group.delta) == (min(e for e, _, _ in mine), min(d for _, d, _ in mine))
    disagree = sum(len({e for e, _, p in data if p == person}) > 1 for person in people.ids.tolist())
    said = [note for note in people.notes if "disagree on epsilon" in note]
    assert len(said) == bool(disagree)
    assert not said or said[0].startswith(f"{disagree} of {people.n_people} people")


@given(data=rows, within=tolerances)
def test_rows_by_person_partition_all_the_rows(data, within):
    people = build(data, merge_within=within)
    for person in people.ids.tolist():
        assert people.rows_of(person).tolist() == [i for i, entry in enumerate(data) if entry[2] == person]
    assert sorted(people.rows_by_person[0].tolist()) == list(range(len(data)))
    assert people.ids.tolist() == list(dict.fromkeys(person for _, _, person in data))


@given(data=rows, within=tolerances, random=st.randoms(use_true_random=False))
def test_permuting_people_keeps_every_group_by_id(data, within, random):
    shuffled = random.sample(data, len(data))
    before, after = build(data, merge_within=within), build(shuffled, merge_within=within)
    assert contents(before) == contents(after)
    assert before.strictest == after.strictest


@given(data=rows, within=tolerances)
def test_groups_are_distinct_budgets_in_appearance_order(data, within):
    people = build(data, merge_within=within)
    assert len({group.id for group in people.groups}) == len(people.groups)
    assert len({(group.epsilon, group.delta) for group in people.groups}) == len(people.groups)
    assert list(dict.fromkeys(people.group_of_person.tolist())) == list(range(len(people.groups)))
    assert sum(people.group_sizes.values()) == people.n_people
    assert people.group_sizes == {group: len(who) for group, (_, _, who) in contents(people).items()}
    assert sum(people.shares.values()) == pytest.approx(1)


@given(budgets=st.lists(epsilons, min_size=1, max_size=40), within=st.floats(0, 1))
def test_merging_anchors_at_smallest_epsilon_without_chaining(budgets, within):
    people = People.from_budgets(budgets, delta=TINY, merge_within=within)
    got = np.array([people.groups[index].epsilon for index in people.group_of_person])
    assert (got <= budgets).all()
    assert (np.array(budgets) <= got * (1 + within)).all()
    anchors = sorted({group.epsilon for group in people.groups})
    assert set(anchors) <= set(budgets)
    assert all(high > low * (1 + within) for low, high in pairwise(anchors))
    moved = int((got < budgets).sum())
    assert len(people.notes) == bool(moved)
    assert not moved or f"{moved} of {len(budgets)} people moved" in people.notes[0]


@given(levels=st.lists(st.sampled_from(["low", "average", "high"]), min_size=1, max_size=30))
def test_levels_become_the_ids_of_groups(levels):
    people = People.from_levels(levels, policy=POLICY, delta=TINY)
    for person, level in enumerate(levels):
        assert people.group_of(person) == people.by_id[level]
        assert people.by_id[level].epsilon == POLICY.levels[level]


def sorted_apart(people):
    """Pair sorted budgets with sorted ids, which is wrong."""
    groups = list(people.groups)
    budgets = sorted(group.epsilon for group in groups)
    order = sorted(range(len(groups)), key=lambda index: groups[index].id)
    for epsilon, index in zip(budgets, order, strict=True):
        groups[index] = replace(groups[index], budget=Budget(epsilon, groups[index].delta))
    return replace(people, groups=tuple(groups))


@pytest.mark.parametrize(
    ("asked", "make"),
    [
        ([10.0, 9.0, 10.0], lambda: People.from_budgets([10.0, 9.0, 10.0], delta=TINY)),
        ([3.0, 1.0, 2.0], lambda: People.from_levels(["low", "high", "average"], policy=POLICY, delta=TINY)),
    ],
)
def test_budgets_are_paired_with_ids_not_ranks(asked, make):
    def nobody_gets_more(people):
        return all(people.group_of(i).epsilon <= epsilon for i, epsilon in enumerate(asked))

    people = make()
    assert nobody_gets_more(people)
    assert not nobody_gets_more(sorted_apart(people))


def test_nearly_equal_budgets_get_different_group_ids():
    close = [1.0, np.nextafter(1.0, 2), 0.1 + 0.2, 0.3]
    people = People.from_budgets(close, delta=TINY)
    assert people.n_people == len(people.groups) == 4
    assert [group.id for group in people.groups] == [
        "eps=1",
        "eps=1.0000000000000002",
        "eps=0.30000000000000004",
        "eps=0.3",
    ]
    assert people.notes == ()


def test_merging_keeps_groups_of_different_delta_apart():
    people = People.from_budgets([1.0, 1.01, 1.02], delta=[1e-9, 1e-8, 1e-8], merge_within=0.1)
    assert contents(people) == {
        "eps=1_delta=1e-09": (1.0, 1e-9, ["0"]),
        "eps=1.01_delta=1e-08": (1.01, 1e-8, ["1", "2"]),
    }


def test_numeric_and_text_person_ids_are_equivalent():
    assert People.from_budgets([1, 1, 1], delta=TINY, person_id=["01", "1", " 1 "]).ids.tolist() == [
        "01",
        "1",
    ]
    assert People.from_budgets([1, 1], delta=TINY, person_id=[7, "7"]).ids.tolist() == ["7"]
    numbers = People.from_budgets([1, 2, 1], delta=TINY, person_id=np.array([20, 3, 20]))
    assert numbers.ids.tolist() == ["20", "3"]
    assert numbers.rows_of(20).tolist() == numbers.rows_of("20").tolist() == [0, 2]
    assert "'4'" in refusal(lambda: numbers.rows_of("4"))


def test_levels_of_equal_epsilon_form_one_group():
    policy = Policy.from_mapping({"low": 3.0, "medium": 2.0, "average": 2.0})
    people = People.from_levels(["average", "low", "medium"], policy=policy, delta=TINY)
    assert people.group_sizes == {"medium+average": 2, "low": 1}
    apart = {"medium": 1e-9, "average": 1e-8, "low": 1e-8}
    people = People.from_levels(["average", "low", "medium"], policy=policy, delta=apart)
    assert people.group_sizes == {"average": 1, "low": 1, "medium": 1}


def test_group_id_states_delta_that_differs():
    delta = {"low": 1e-9, "average": 1e-9, "high": 1e-8}
    people = People.from_levels(["low", "high"], policy=POLICY, delta=delta, person_id=["ada", "ada"])
    assert contents(people) == {"high_delta=1e-09": (1.0, 1e-9, ["ada"])}
    assert len(people.notes) == 2


def test_delta_of_one_over_n_warns_with_reason():
    with pytest.warns(DeltaWarning, match=r"0\.25.*'eps=1'.*N = 4 people.*1/N = 0\.25.*picked at random") as caught:
        People.from_budgets([1.0] * 4, delta=0.25)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with pytest.warns(DeltaWarning, match="N = 2 people"):
        People.from_budgets([1.0] * 8, delta=0.5, person_id=list("aabbaabb"))
    with pytest.warns(DeltaWarning, match="'eps=2_delta=0.6'"):
        People.from_budgets([1.0, 2.0], delta=[1e-9, 0.6])
    People.from_budgets([1.0] * 4, delta=0.2499)


def test_million_people_are_grouped_correctly():
    n, random = 1_000_000, np.random.default_rng(1)
    epsilon = random.choice([1.0, 2.0, 3.0], n)
    people = People.from_budgets(epsilon, delta=TINY, person_id=np.arange(n)[::-1] // 2)
    assert people.n_people == n // 2
    assert people.rows_of(0).tolist() == [n - 2, n - 1]
    assert (np.array([g.epsilon for g in people.groups])[people.group_of_person][people.person_of_row] <= epsilon).all()
    merged = People.from_budgets(random.uniform(0.5, 3, n), delta=TINY, merge_within=0.1)
    assert len(merged.groups) == 19


def test_people_are_immutable_and_can_be_pickled():
    people = People.from_budgets([1.0, 2.0], delta=TINY)
    with pytest.raises(FrozenInstanceError):
        people.groups = ()
    with pytest.raises(ValueError, match="read-only"):
        people.group_of_person[0] = 1
    assert people.by_id["eps=1"] == people.group_of("0")
    assert contents(pickle.loads(pickle.dumps(people))) == contents(people)
    policy = Policy.from_mapping({"low": 3.0, "high": 1.0, "max_epsilon": 3.0, "delta": 1e-6})
    assert pickle.loads(pickle.dumps(policy)) == policy


def test_later_changes_of_input_have_no_effect():
    epsilon, person = np.array([1.0, 2.0]), np.array([3, 4])
    people = People.from_budgets(epsilon, delta=epsilon / 1e9, person_id=person)
    epsilon[0], person[0] = 5.0, 9
    assert people.group_of(3).epsilon == 1.0


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"epsilon": [1.0, 0.0]}, ["row 1", "epsilon is 0.0", "above 0"]),
        ({"epsilon": [1, -2]}, ["row 1", "epsilon is -2:", "above 0"]),
        ({"epsilon": [np.nan]}, ["row 0", "epsilon is nan", "finite"]),
        ({"epsilon": [np.inf]}, ["row 0", "epsilon is inf", "finite"]),
        ({"epsilon": []}, ["epsilon", "(0,)", "at least one"]),
        ({"epsilon": 1.0}, ["epsilon", "()", "one per row"]),
        ({"epsilon": [[1.0]]}, ["(1, 1)", "one per row"]),
        ({"epsilon": [[1.0], [1.0, 2.0]]}, ["epsilon", "list of numbers"]),
        ({"epsilon": ["1"]}, ["epsilon", "list of numbers"]),
        ({"epsilon": [True]}, ["bool", "list of numbers"]),
        ({"epsilon": [1.0, None]}, ["object", "list of numbers"]),
        ({"delta": 0.0}, ["delta is 0.0", "between 0 and 1"]),
        ({"delta": 1}, ["delta is 1:", "between 0 and 1"]),
        ({"delta": np.nan}, ["delta is nan", "between 0 and 1"]),
        ({"delta": "x"}, ["delta is 'x'", "between 0 and 1"]),
        ({"delta": None}, ["row 0", "delta", "missing"]),
        ({"delta": [1e-9, 2.0]}, ["row 1", "delta is 2.0", "between 0 and 1"]),
        ({"delta": [1e-9]}, ["delta has 1 entries", "2"]),
        ({"delta": {1.0: 1e-9}}, ["row 1 (person '1')", "delta for 2.0 is missing"]),
        ({"delta": {1.0: 1e-9, 2.0: 1.5}}, ["delta of 2.0 is 1.5", "between 0 and 1"]),
        ({"person_id": ["a"]}, ["person_id has 1 entries", "2"]),
        ({"person_id": ["a", " "]}, ["row 1", "person is ' '", "text"]),
        ({"person_id": ["a", None]}, ["row 1", "person is None"]),
        ({"person_id": ["a", np.nan]}, ["row 1", "person is nan"]),
        ({"person_id": [1.5, 2.0]}, ["row 0", "person is 1.5", "whole number"]),
        ({"person_id": np.array([1.5, 2.0])}, ["row 0", "person is 1.5", "whole number"]),
        ({"person_id": ["a", "a\0"]}, ["row 1", r"'a\x00'"]),
        ({"person_id": ["a", "b" * 201]}, ["row 1", "200 characters"]),
        ({"person_id": np.array([["a"], ["b"]])}, ["person_id", "one per row"]),
        ({"merge_within": -0.1}, ["merge_within is -0.1", "0 to 1"]),
        ({"merge_within": np.nan}, ["merge_within is nan", "0 to 1"]),
        ({"merge_within": 5}, ["merge_within is 5", "0 to 1"]),
        ({"merge_within": "a"}, ["merge_within is 'a'", "0 to 1"]),
    ],
)
def test_from_budgets_refuses_invalid_input_by_name(options, parts):
    message = refusal(lambda: People.from_budgets(**{"epsilon": [1.0, 2.0], "delta": TINY, **options}))
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("levels", "options", "parts"),
    [
        (["low", "High"], {}, ["row 1 (person '1')", "'High'", "nearest is 'high'", "low, average, high"]),
        (["low", "avrage"], {"person_id": ["a", "b"]}, ["person 'b'", "'avrage'", "nearest is 'average'"]),
        (["low", ""], {}, ["row 1", "level is ''", "allowed are"]),
        (["low", None], {}, ["row 1", "level is None", "allowed are"]),
        (np.array([["low"], ["low"]]), {}, ["row 0", "level is", "allowed are"]),
        (["zzz"], {}, ["'zzz'", "nearest is"]),
        ([], {}, ["no rows"]),
        (["low"], {"delta": {"lwo": 1e-9}}, ["delta", "'lwo'", "nearest is 'low'"]),
        (["low", "high"], {"delta": {"low": 1e-9}}, ["row 1", "delta for high is missing"]),
        (["low"], {"delta": None}, ["row 0", "delta for low is missing"]),
    ],
)
def test_from_levels_refuses_invalid_input_by_name(levels, options, parts):
    message = refusal(lambda: People.from_levels(levels, **{"policy": POLICY, "delta": TINY, **options}))
    for part in parts:
        assert part in message


def test_policy_delta_is_default_and_upper_limit():
    policy = Policy.from_mapping({"low": 3.0, "delta": 1e-6})
    assert People.from_levels(["low"], policy=policy).groups[0].delta == 1e-6
    assert People.from_levels(["low"], policy=policy, delta=1e-7).groups[0].delta == 1e-7
    message = refusal(lambda: People.from_levels(["low"], policy=policy, delta=1e-5))
    assert "delta is 1e-05: at most the policy's 1e-06" in message


def test_policy_file_is_read_from_toml(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text("low = 3\naverage = 2.0\nhigh = 1.0\nmax_epsilon = 3.0\ndelta = 1e-6\n")
    policy = Policy.from_file(path)
    assert dict(policy.levels) == {"low": 3.0, "average": 2.0, "high": 1.0}
    assert (policy.max_epsilon, policy.delta) == (3.0, 1e-6)
    with pytest.raises(TypeError):
        policy.levels["low"] = 9.0


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("low = 3.0\nmax_epsilon = 2.5", ["'low'", "3.0", "max_epsilon = 2.5"]),
        ("max_epsilon = 2.5", ["no levels", "at least one"]),
        ("", ["no levels"]),
        ("low = 0", ["'low'", "is 0", "above 0"]),
        ("low = -1.0", ["-1.0", "above 0"]),
        ("low = nan", ["nan", "finite"]),
        ("low = inf", ["inf", "finite"]),
        ('low = "3"', ["'3'", "number"]),
        ("low = true", ["True", "number"]),
        ("[levels]\nlow = 3.0", ["'levels'", "{'low': 3.0}", "number"]),
        ("low = 3.0\nmax_epsilon = 0", ["max_epsilon is 0", "above 0"]),
        ("low = 3.0\ndelta = 1.0", ["delta", "1.0", "between 0 and 1"]),
        ('"a+b" = 3.0', ["'a+b'", "must not contain"]),
        ('"" = 3.0', ["level is ''", "printable"]),
        ("low = \n", ["not valid TOML", "line 1"]),
        ("low = 1\nlow = 2\nhigh = 1", ["not valid TOML", "line 2"]),
    ],
)
def test_invalid_policy_file_is_refused_by_name(tmp_path, text, parts):
    path = tmp_path / "policy.toml"
    path.write_text(text)
    message = refusal(lambda: Policy.from_file(path))
    for part in ["policy.toml", *parts]:
        assert part in message


def test_unreadable_policy_file_is_refused_by_name(tmp_path):
    assert "cannot be read" in refusal(lambda: Policy.from_file(tmp_path / "none.toml"))
    (tmp_path / "latin.toml").write_bytes(b"l\xf6w = 1")
    assert "not valid TOML" in refusal(lambda: Policy.from_file(tmp_path / "latin.toml"))


def test_policy_with_high_above_low_warns():
    with pytest.warns(PolicyWarning, match=r"'high' epsilon = 3.0 and 'low' 1.0"):
        Policy.from_mapping({"low": 1.0, "high": 3.0})
    for fine in ({"low": 3.0, "high": 3.0}, {"high": 3.0}, {"low": 0.1}):
        Policy.from_mapping(fine)


def test_level_named_like_a_setting_is_refused():
    assert "'delta'" in refusal(lambda: Policy(levels={"low": 3.0, "delta": 0.5}))


def group_of(*, epsilon=1.0, delta=1e-5, **fields):
    return Group(**{"id": "a", "people": 1, **fields}, budget=Budget(epsilon, delta))


@pytest.mark.parametrize(
    "fields", [{"id": ""}, {"epsilon": 0}, {"epsilon": np.inf}, {"delta": 1}, {"people": 0}, {"people": 1.0}]
)
def test_group_with_invalid_fields_is_refused(fields):
    assert "must" in refusal(lambda: group_of(**fields))


@pytest.fixture
def people_csv(tmp_path):
    path = tmp_path / "people.csv"
    path.write_bytes(
        b"\xef\xbb\xbfid,epsilon,consent,delta,age\r\n01,1.5,high,,30\r\n1, 2.5 ,low,1e-9,40\r\n01,0.5,low,1e-8,31\r\n"
    )
    return path


def test_from_csv_groups_people_by_epsilon_column(people_csv):
    people = People.from_csv(people_csv, delta=TINY)
    assert people.group_sizes == {"eps=1.5": 1, "eps=2.5": 1, "eps=0.5": 1}
    people = People.from_csv(people_csv, person_column="id", delta_column="delta", delta=1e-7)
    assert contents(people) == {
        "eps=0.5_delta=1e-08": (0.5, 1e-8, ["01"]),
        "eps=2.5_delta=1e-09": (2.5, 1e-9, ["1"]),
    }
    assert len(people.notes) == 2
    merged = People.from_csv(people_csv, epsilon_column="age", delta=TINY, merge_within=0.05)
    assert merged.group_sizes == {"eps=30": 2, "eps=40": 1}


def test_from_csv_groups_people_by_level_column(people_csv):
    people = People.from_csv(people_csv, level_column="consent", person_column="id", policy=POLICY, delta=TINY)
    assert contents(people) == {"high": (1.0, TINY, ["01"]), "low": (3.0, TINY, ["1"])}
    assert people.rows_of("01").tolist() == [0, 2]


@pytest.mark.parametrize(
    ("content", "options", "parts"),
    [
        ("epsilon\n1\n0\n", {}, ["people.csv, line 3", "epsilon is '0'", "above 0"]),
        ("epsilon\n1\nx\n", {}, ["people.csv, line 3", "epsilon is 'x'"]),
        ("e\n1\n", {}, ["people.csv", "no column 'epsilon'", "first line"]),
        ("epsilon,id\n1,a\n1,\n", {"person_column": "id"}, ["line 3", "id is missing"]),
        ("epsilon,d\n1,2\n", {"delta_column": "d"}, ["line 2", "d is '2'", "between 0 and 1"]),
        ("epsilon,d\n1,1e-9\n2,\n", {"delta_column": "d", "delta": None}, ["line 3", "delta", "missing"]),
        ("c\nlow\nlo\n", {"level_column": "c", "policy": POLICY}, ["line 3", "person '1'", "'lo'", "'low'"]),
        ("c\nlow\n", {"level_column": "c"}, ["'c'", "policy"]),
        ("epsilon\n1\n", {"policy": POLICY}, ["policy", "level_column"]),
        ("c\nlow\n", {"level_column": "c", "epsilon_column": "c", "policy": POLICY}, ["epsilon_column"]),
        ("c\nlow\n", {"level_column": "c", "policy": POLICY, "merge_within": 0.1}, ["merge_within"]),
    ],
)
def test_from_csv_refuses_invalid_file_by_line(tmp_path, content, options, parts):
    path = tmp_path / "people.csv"
    path.write_text(content)
    message = refusal(lambda: People.from_csv(path, **{"delta": TINY, **options}))
    for part in parts:
        assert part in message


def test_examples_on_the_budgets_page_run(tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "budgets.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, flags=re.M | re.S)
    assert len(blocks) == page.count("```python") >= 8
    monkeypatch.chdir(tmp_path)
    scope = {}
    with warnings.catch_warnings():
        for block in blocks:
            exec(compile(block, "docs/budgets.md", "exec"), scope)


def test_importing_people_loads_neither_scipy_nor_pandas():
    code = "import sys, ipate.people.people; sys.exit('scipy' in sys.modules or 'pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"budgets": [1.0, 2.0], "levels": ["low", "low"]}, "both given"),
        ({"budgets": [1.0, 2.0], "epsilon": 3.0}, "epsilon is 3: the file already has budgets or consent levels"),
        ({"levels": ["low", "low"], "policy": POLICY, "epsilon": 3.0}, "epsilon is 3"),
        ({"levels": ["low", "low"]}, "without a policy"),
        ({"epsilon": 1.0, "policy": POLICY}, "the file has no consent levels"),
        ({}, "no budgets"),
        ({"levels": ["low", "low"], "policy": POLICY, "merge_within": 0.1}, "merge_within is 0.1"),
        ({"budgets": [1.0, 2.0, 3.0]}, "3 entries for 2 rows"),
        ({"epsilon": 1.0, "person_id": [1]}, "person_id has 1 entries"),
        ({"epsilon": -1.0}, "epsilon is -1"),
    ],
)
def test_make_people_refuses_conflicting_input(given, words):
    with pytest.raises(InputError, match=words):
        make_people(2, source="the file", **given)


def test_make_people_accepts_budgets_levels_and_epsilon():
    assert make_people(2, budgets=[1.0, 2.0], delta=TINY).group_sizes == {"eps=1": 1, "eps=2": 1}
    assert make_people(2, epsilon=3.0, delta=TINY).group_sizes == {"eps=3": 2}
    people = make_people(2, levels=["low", "high"], policy={"low": 3.0, "high": 1.0}, delta=TINY)
    assert [(group.id, group.epsilon) for group in people.groups] == [("low", 3.0), ("high", 1.0)]


def test_auto_delta_uses_policy_or_number_of_people():
    rows = 50_000
    assert make_people(rows, epsilon=1.0).groups[0].delta == 0.1 / rows
    assert make_people(rows, epsilon=1.0, person_id=np.arange(rows) // 25).groups[0].delta == 1e-5
    for policy, delta in (({"low": 3.0}, 2e-6), ({"low": 3.0, "delta": 1e-6}, 1e-6)):
        assert make_people(rows, levels=["low"] * rows, policy=policy).groups[0].delta == delta


def test_argument_of_wrong_length_is_named():
    with pytest.raises(InputError, match="levels has 2 entries for 3 rows"):
        make_people(3, levels=["high", "low"], policy={"high": 1.0, "low": 2.0}, person_id=[1, 2, 3])
    with pytest.raises(InputError, match="person_id has 2 entries for 3 rows"):
        make_people(3, epsilon=1.0, person_id=[1, 2])
