"""Figures from raw votes or true labels must not stand where a result is called releasable."""

import json

import numpy as np
import pytest

from blocks import private_below_releasable
from ipate.cli.app import _run
from ipate.options import DataConfig

CONFIG = """
split_seed = 1
[data]
{data}
[budgets]
policy = {{ high = 20.0, low = 40.0 }}
{shares}
[teachers]
model = "bayes"
number = 30
n_jobs = 1
[student]
model = "bayes"
[labelling]
sigma = 4.0
check_sigma = 5.0
threshold = 15.0
bound = "{bound}"
"""
DIGITS, SHARES = 'name = "digits"', "shares = { high = 0.5, low = 0.5 }"


def printed(capsys, *arguments):
    assert _run([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("more", [["--compare"], [], ["--seed", "1"]], ids=["compared", "plain", "seeded"])
@pytest.mark.parametrize("bound", ["gdp", "exact"])
def test_no_object_called_releasable_holds_raw_figures(tmp_path, capsys, bound, more):
    (tmp_path / "run.toml").write_text(CONFIG.format(data=DIGITS, shares=SHARES, bound=bound))
    made = printed(capsys, "run", tmp_path / "run.toml", "--out", tmp_path / "out", *more)
    assert "accuracy" in json.dumps(made)
    assert list(private_below_releasable(made)) == []
    for audience in ("--public", "--private"):
        told = printed(capsys, "report", tmp_path / "out", audience, "--out", tmp_path / "report.html")
        assert list(private_below_releasable(told)) == []


@pytest.mark.parametrize("bound", ["gdp", "loose", "sup", "tight", "exact"])
def test_accuracy_of_labels_is_not_called_releasable(tmp_path, capsys, bound):
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=60)
    votes = np.where(rng.random((20, 60)) < 0.9, truth, rng.integers(3, size=(20, 60)))
    np.savez(tmp_path / "votes.npz", votes=votes, groups=np.repeat(["a", "b"], 10), classes=3, labels=truth)
    (tmp_path / "groups.csv").write_text("group,epsilon\na,5\nb,9\n")
    given = [tmp_path / "votes.npz", "--groups", tmp_path / "groups.csv", "--sigma", "9", "--bound", bound]
    labelled = printed(capsys, "label", *given, "--out", tmp_path / "labels.csv")
    assert "accuracy" in json.dumps(labelled)
    for made in (labelled, printed(capsys, "account", *given)):
        assert list(private_below_releasable(made)) == []


def test_comparison_on_people_needs_the_benchmark_flag(tmp_path, capsys):
    rng = np.random.default_rng(0)
    rows = "".join(f"p{i},{rng.normal():.3f},{i % 2},{('high', 'low')[i % 3 == 0]}\n" for i in range(400))
    (tmp_path / "people.csv").write_text(f"person,a,sick,consent\n{rows}")
    data = f'file = "{tmp_path / "people.csv"}"\nlabel = "sick"\nlevel = "consent"\nperson = "person"\n'
    data += 'classes = ["0", "1"]\npublic = 60\ntest = 40\n'
    if "public_without_protection" in DataConfig.model_fields:
        data += "public_without_protection = true\n"
    (tmp_path / "run.toml").write_text(CONFIG.format(data=data, shares="", bound="gdp"))
    command = ["run", str(tmp_path / "run.toml"), "--out", str(tmp_path / "out"), "--compare"]
    assert _run(command) == 2
    assert "benchmark" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert _run([*command, "--benchmark"]) == 0
