"""`ipate consent` as it is typed: what it prints, what it writes, how it ends."""

import json

import pytest

POLICY = "high = 1.0\naverage = 2.0\nlow = 3.0\nmax_epsilon = 3.0\ndelta = 1e-5\n"


@pytest.fixture
def files(folder):
    (folder / "policy.toml").write_text(POLICY)
    (folder / "good.csv").write_text("patient,consent\np1,high\np2,low\np1,average\np3,low\np3,low\n")
    (folder / "bad.csv").write_text("patient,consent\np1,high\np2,hihg\n,low\n")
    return folder


def test_valid_file_is_summarised_and_groups_written(files, process):
    told = process(
        "consent",
        "good.csv",
        "--policy",
        "policy.toml",
        "--person",
        "patient",
        "--level",
        "consent",
        "--out",
        "groups.csv",
        cwd=files,
    )
    assert told.code == 0, told.err
    assert "good.csv: 3 people in 5 rows" in told.out
    assert "A person at level average: whatever anyone learns" in told.out
    assert "'p1' says high and average (line 2 on): high binds" in told.out
    assert "Written: groups.csv, 2 groups." in told.out
    assert (files / "groups.csv").read_text() == "group,epsilon,delta,people\nhigh,1.0,1e-05,1\nlow,3.0,1e-05,2\n"
    planned = process("plan", "--groups", "groups.csv", "--people", "3", "--teachers", "1", "--json", cwd=files)
    assert planned.code == 0, planned.err
    assert told.err == ""


def test_invalid_file_lists_problems_and_writes_nothing(files, run):
    told = run(
        "consent",
        "bad.csv",
        "--policy",
        "policy.toml",
        "--person",
        "patient",
        "--level",
        "consent",
        "--out",
        "groups.csv",
    )
    assert told.code == 2
    assert "Cannot be used: 1 row (line 3): level is 'hihg'" in told.out
    assert told.err == "ipate: bad.csv: 2 rows cannot be used; groups.csv was not written\n"
    assert not (files / "groups.csv").exists()


def test_json_is_only_output_for_any_result(files, run):
    for name, code in (("good.csv", 0), ("bad.csv", 2)):
        told = run("consent", name, "--policy", "policy.toml", "--person", "patient", "--level", "consent", "--json")
        assert told.code == code
        found = json.loads(told.out)
        assert found["ok"] == (code == 0)
        assert [entry["level"] for entry in found["levels"]] == ["high", "average", "low"]
        assert found["levels"][0]["meaning"].startswith("A person at level high: whatever anyone learns")
    assert found["problems"][1]["nearest"] == "high"
    assert found["groups"] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.csv", "--policy", "policy.toml"], "none.csv cannot be read"),
        (["good.csv", "--policy", "none.toml"], "none.toml cannot be read"),
        (["good.csv", "--policy", "policy.toml"], "has no column 'level'"),
        (["good.csv", "--policy", "policy.toml", "--level", "consent", "--delta", "0.1"], "at most the policy's"),
        (["good.csv", "--policy", "policy.toml", "--level", "consent", "--out", "no/g.csv"], "no such folder"),
        (["good.csv", "--policy", "policy.toml", "--level", "consent", "--epsilon-column", "consent"], "give only one"),
    ],
)
def test_unusable_input_is_refused_in_one_line(files, run, arguments, said):
    told = run("consent", *arguments)
    assert told.code == 2
    assert told.out == ""
    assert said in told.err
    assert told.err.count("\n") == 1
