"""The page on JSON keys lists the keys that the commands print."""

import json
import re
from pathlib import Path

import numpy as np

from ipate.cli.app import _run
from ipate.people.budgets import Budget, Group
from ipate.release.results import GroupResult

PAGE = (Path(__file__).parents[2] / "docs" / "json.md").read_text(encoding="utf-8")
CONFIG = """
split_seed = 1
[data]
name = "digits"
[budgets]
policy = { high = 20.0, low = 40.0 }
shares = { high = 0.5, low = 0.5 }
[teachers]
model = "bayes"
number = 30
n_jobs = 1
[labelling]
sigma = 4.0
check_sigma = 5.0
threshold = 15.0
"""


HEAD = {"guarantee", "statement", "seeded", "overlap", "groups"}


def documented(command):
    commands = PAGE[PAGE.index("## Commands") : PAGE.index("## The report")]
    (line,) = re.findall(rf"^\| `{command}` \| (.*) \|$", commands, flags=re.MULTILINE)
    return set(re.findall(r"`(\w+)`", line))


def documented_blocks(command):
    """The documented keys of what may be published and of what may not, of a releasable result."""
    (cells,) = re.findall(rf"^\| `{command}` \| (.*) \| (.*)\|$", PAGE, flags=re.MULTILINE)
    public, private = (set(re.findall(r"`(\w+)`", cell)) for cell in cells)
    return public | HEAD, private | {"guarantee"}


def printed(capsys, *arguments):
    assert _run([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_page_lists_keys_of_group_results():
    result = GroupResult(group=Group(id="a", budget=Budget(1.0, 1e-5)), sensitivity=1.0, cost=0.5)
    table = PAGE[PAGE.index("## A group") : PAGE.index("## Commands")]
    listed = [name for cell in re.findall(r"^\| (`.*?) \|", table, flags=re.MULTILINE) for name in cell.split(", ")]
    assert [name.strip("`") for name in listed] == list(result.as_json())


def test_page_lists_keys_of_run_commands(tmp_path, capsys):
    (tmp_path / "run.toml").write_text(CONFIG)
    run = tmp_path / "runs" / "first"
    made = printed(capsys, "run", tmp_path / "run.toml", "--out", run)
    scores = {"by_level", "by_class", "student_accuracy", "balanced_accuracy", "majority_accuracy"}  # with test rows
    public, private = documented_blocks("run")
    assert set(made["publishable"]) == public
    assert set(made["private"]) - scores == private - scores
    assert set(made["files"]) == {"run", "ledger", "report", "student", "notes"}
    audit = printed(capsys, "audit", run, "--draws", "1000")
    (group, *_), (measured, *_) = audit["groups"], audit["noise"]
    assert set(audit) | set(group) | set(measured) | set(group["attacks"][0]) == documented("audit")
    person = 0
    while _run(["statement", str(run), str(person), "--json"]):
        capsys.readouterr()
        person += 1
    assert set(json.loads(capsys.readouterr().out)) == documented("statement")
    report = printed(capsys, "report", run, "--private")
    for block in ("publishable", "private"):
        table = PAGE[PAGE.index(f"| key of `{block}` |") :].split("\n\n")[0]
        listed = {key for cell in re.findall(r"^\| (`.*?) \|", table, flags=re.MULTILINE) for key in cell.split(", ")}
        assert {key.strip("`") for key in listed} == set(report[block])
    letters = printed(capsys, "statement", run, "--all", tmp_path / "letters")
    assert set(letters) == {"folder", "letters"}
    assert set(printed(capsys, "runs", run.parent)["runs"][0]) | {"folder", "runs"} == documented("runs")
    assert set(printed(capsys, "withdraw", run, person, "--yes")) == documented("withdraw")


def test_page_lists_keys_of_vote_commands(tmp_path, capsys):
    votes = np.random.default_rng(0).integers(0, 3, size=(20, 50))
    np.savez(tmp_path / "votes.npz", votes=votes, groups=np.repeat(["a", "b"], 10), classes=3)
    (tmp_path / "groups.csv").write_text("group,epsilon\na,5\nb,9\n")
    given = [tmp_path / "votes.npz", "--groups", tmp_path / "groups.csv", "--sigma", "9"]
    for command, more in (("account", []), ("label", ["--out", tmp_path / "labels.csv"])):
        made = printed(capsys, command, *given, *more)
        assert (set(made["publishable"]), set(made["private"])) == documented_blocks(command)
    assert set(made["files"]) == {"labels", "ledger", "counts"}
    (tmp_path / "policy.toml").write_text("high = 1.0\nlow = 3.0\n")
    (tmp_path / "people.csv").write_text("level\n" + "high\nlow\n" * 60_000)
    found = printed(capsys, "consent", tmp_path / "people.csv", "--policy", tmp_path / "policy.toml")
    assert set(found) == documented("consent") | {"groups"}
    assert set(printed(capsys, "schema", tmp_path / "people.csv")) == documented("schema")
