"""Consent checks of a file of people: the counts match a plain loop, and problems name their lines."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipate.errors import DeltaWarning, InputError
from ipate.people.budgets import GroupRow, read_groups, write_groups
from ipate.people.consent import check_consent
from ipate.people.people import People
from ipate.people.policy import Policy

POLICY = Policy(levels={"high": 1.0, "average": 2.0, "low": 3.0}, max_epsilon=3.0, delta=1e-5)


def people_file(tmp_path, rows, header="patient,consent,age"):
    path = tmp_path / "people.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def check(tmp_path, rows, **options):
    path = people_file(tmp_path, rows)
    return check_consent(path, **{"policy": POLICY, "level": "consent", "person": "patient", **options})


def counts(found):
    return {entry.level: (entry.rows, entry.people) for entry in found.levels}


def test_levels_are_counted_and_group_file_is_readable(tmp_path):
    found = check(tmp_path, ["p1,high,3", "p2,low,4", "p3,high,3", "p3,high,9"])
    assert counts(found) == {"high": (3, 2), "average": (0, 0), "low": (1, 1)}
    assert (found.people, found.rows, found.repeated, found.conflicts, found.problems) == (3, 4, 1, 0, ())
    write_groups(tmp_path / "groups.csv", found.groups)
    assert {row.group: (row.epsilon, row.delta) for row in read_groups(tmp_path / "groups.csv")} == {
        "high": (1.0, 1e-5),
        "low": (3.0, 1e-5),
    }


def test_strictest_of_conflicting_levels_binds_and_is_noted(tmp_path):
    found = check(tmp_path, ["p1,low,3", "p2,low,4", "p1,high,3", "p1,average,3"])
    assert counts(found) == {"high": (1, 1), "average": (1, 0), "low": (2, 1)}
    assert (found.repeated, found.conflicts) == (0, 1)
    (note,) = found.notes
    assert note.startswith("1 of 2 people have rows that disagree; the strictest binds all their rows: 'p1' says low")
    assert "high binds" in note
    assert [row.group for row in found.groups] == ["high", "low"]


def test_all_problems_are_reported_with_line_numbers(tmp_path):
    found = check(tmp_path, ["p1,high,3", "p2,hihg,4", ",low,3", "p3,,3", "p4,hihg,1", "p5,LOW,2"])
    assert [(problem.kind, problem.rows, problem.lines, problem.nearest) for problem in found.problems] == [
        ("missing", 1, (4,), None),
        ("unknown level", 2, (3, 6), "high"),
        ("missing", 1, (5,), None),
        ("unknown level", 1, (7,), "low"),
    ]
    assert "level is 'hihg': allowed are high, average, low; nearest is 'high'" in found.problems[1].text
    assert found.groups == ()
    assert (found.rows, found.unusable, found.people) == (1, 5, 1)


def test_row_with_two_problems_counts_once(tmp_path):
    found = check(tmp_path, [",nothing,3", "p1,low,3"])
    assert found.unusable == 1
    assert len(found.problems) == 2


def test_numbers_above_max_epsilon_are_refused(tmp_path):
    rows = ["p1,1,3", "p2,3.0,4", "p3,3.01,3", "p4,nan,3", "p5,-1,1", "p6,much,2", "p7,inf,2"]
    found = check(tmp_path, rows, level=None, epsilon_column="consent")
    assert counts(found) == {"eps=1": (1, 1), "eps=3": (1, 1)}
    assert [(problem.kind, problem.lines) for problem in found.problems] == [
        ("above the most allowed", (4,)),
        ("no number", (5,)),
        ("no number", (6,)),
        ("no number", (7,)),
        ("no number", (8,)),
    ]
    assert "at most max_epsilon = 3.0 is allowed" in found.problems[0].text
    free = check(tmp_path, rows[:3], level=None, epsilon_column="consent", policy=replace(POLICY, max_epsilon=None))
    assert free.problems == ()
    assert [row.epsilon for row in free.groups] == [1.0, 3.0, 3.01]


def test_level_above_max_epsilon_is_refused(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text("high = 1.0\nlow = 5.0\nmax_epsilon = 3.0\n")
    with pytest.raises(InputError, match=r"level 'low' is 5\.0: at most max_epsilon = 3\.0"):
        Policy.from_file(path)


def test_wrong_column_summarises_the_remaining_problems(tmp_path):
    rows = [f"p{i},x{i},3" for i in range(300)] + ["p,low,3", "q,high,3"]
    found = check(tmp_path, rows)
    assert len(found.problems) == 101
    assert found.problems[-1].rows == 200
    assert "check that this is the right column" in found.problems[-1].text
    assert (found.unusable, found.people) == (300, 2)
    assert found.problems[99].lines == (101,)


def test_file_without_usable_rows_has_no_counts(tmp_path):
    found = check(tmp_path, ["p1,x,3"])
    assert (found.people, found.levels, found.unusable) == (0, (), 1)


def test_ids_differing_only_in_case_are_noted(tmp_path):
    found = check(tmp_path, ["Ann,low,3", "ann,low,4", "bob,high,1"])
    assert found.people == 3
    assert "1 id differs from another only in case or leading zeros ('Ann' and 'ann')" in found.notes[0]


def test_delta_defaults_to_policy_or_number_of_people(tmp_path):
    rows = [f"p{i},low,3" for i in range(30)]
    assert check(tmp_path, rows).levels[0].delta == 1e-5
    assert check(tmp_path, rows, delta=1e-6).groups[0].delta == 1e-6
    with pytest.raises(InputError, match=r"delta is 0\.001: at most the policy's 1e-05"):
        check(tmp_path, rows, delta=1e-3)
    silent = check(tmp_path, rows, policy=replace(POLICY, delta=None))
    assert silent.groups[0].delta == 1e-5
    assert "δ = 1e-05 is used, for 30 people" in silent.notes[-1]
    with pytest.warns(DeltaWarning):
        check(tmp_path, rows, policy=replace(POLICY, delta=None), delta=0.2)
    with pytest.raises(InputError, match="give only one of them"):
        check(tmp_path, rows, epsilon_column="age")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 6), st.sampled_from(["high", "average", "low", "", "odd"])), min_size=1))
def test_consent_counts_match_a_plain_loop(tmp_path, rows):
    found = check(tmp_path, [f"p{who},{said},1" for who, said in rows])
    good = [(f"p{who}", said) for who, said in rows if said in POLICY.levels]
    said = Counter(level for _, level in good)
    strictest = {}
    for who, level in good:
        strictest[who] = min(strictest.get(who, level), level, key=lambda name: POLICY.levels[name])
    binds = Counter(strictest.values())
    if good:
        assert counts(found) == {level: (said[level], binds[level]) for level in POLICY.levels}
    assert found.unusable == len(rows) - len(good)
    assert found.people == len(strictest)
    assert found.conflicts == sum(len({level for who, level in good if who == name}) > 1 for name in strictest)
    if not found.problems:
        people = People.from_levels([level for _, level in good], policy=POLICY, person_id=[who for who, _ in good])
        assert [(row.group, row.epsilon) for row in found.groups] == [(g.id, g.epsilon) for g in people.groups]


def test_other_columns_refuse_nothing(tmp_path):
    path = tmp_path / "people.csv"
    rows = [b"p1,high,\xff\xfe", b"p2,low,a,b,c", b"p3,low", b'p4,high,"two\nlines"', b"p5,high," + b"x" * 200_000]
    path.write_bytes(b"who,level,note\n" + b"\n".join(rows) + b"\n")
    found = check_consent(path, policy=Policy(levels={"high": 1.0, "low": 2.0}), person="who", delta=1e-5)
    assert (found.people, found.problems) == (5, ())
    path.write_bytes(b"who,note,level\np1,a,high\np2,a,b,low\n")
    with pytest.raises(InputError, match="line 3 has 4 cells"):
        check_consent(path, policy=Policy(levels={"high": 1.0, "low": 2.0}), person="who", delta=1e-5)


def test_group_file_lists_the_strictest_first(tmp_path):
    rows = [GroupRow(group=name, epsilon=epsilon) for name, epsilon in (("low", 3.0), ("b", 1.0), ("a", 1.0))]
    write_groups(tmp_path / "groups.csv", rows)
    assert [row.group for row in read_groups(tmp_path / "groups.csv")] == ["a", "b", "low"]
