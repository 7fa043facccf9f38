"""The example of docs/parties.md runs; only the teacher is replaced by one that trains faster."""

import csv
import json
import re
import shlex
from pathlib import Path

from blocks import flat
from ipate.cli.app import _run

PAGE = Path(__file__).parents[2] / "docs" / "parties.md"


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_example_of_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    data, student = blocks("python")
    scope = {}
    exec(compile(data, PAGE.name, "exec"), scope)
    commands, ballots = blocks("bash")
    lines = [shlex.split(line)[1:] for line in commands.splitlines() if line.startswith("ipate ")]
    assert [line[1] for line in lines].count("fit") == 3
    for line in lines:
        faster = ["--teacher", "bayes"] if line[1] == "fit" else []
        assert _run([*line, *faster, "--json"]) == 0, capsys.readouterr().err
        result = flat(json.loads(capsys.readouterr().out))
    assert all(group["epsilon"] <= group["budget"] for group in result["groups"])
    assert all(group["epsilon"] > 0.95 * group["budget"] for group in result["groups"])
    exec(compile(student, PAGE.name, "exec"), scope)
    assert scope["student"].score(scope["data"].X[:1000], scope["data"].y[:1000]) > 0.5
    for line in (shlex.split(line)[1:] for line in ballots.splitlines() if line.startswith("ipate ")):
        assert _run([*line, "--json"]) == 0, capsys.readouterr().err
        result = flat(json.loads(capsys.readouterr().out))
    assert result["labels"] == 1000
    assert all(0 < group["epsilon"] <= group["budget"] for group in result["groups"])
    with open("pool-labels.csv", newline="") as file:
        found = [int(row["label"]) for row in csv.DictReader(file)]
    assert sum(label == own for label, own in zip(found, scope["data"].y[9000:], strict=True)) > 700
