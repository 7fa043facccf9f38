"""The student's accuracy on rows of people is private: it must not be printed where figures may be published."""

import json
import re

import pytest

from ipate.cli.app import _run

CONFIG = """
[data]
name = "digits"
[budgets]
policy = { high = 20.0, low = 40.0 }
shares = { high = 0.5, low = 0.5 }
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
"""


def accuracies(found):
    """Every accuracy among the private metrics, as a table prints it."""
    for value in found.values():
        if isinstance(value, dict):
            yield from accuracies(value)
        elif isinstance(value, float) and 0 < value < 1:
            yield f"{value:.1%}"


@pytest.mark.parametrize("more", [[], ["--compare"]], ids=["plain", "compared"])
def test_publishable_block_holds_no_accuracy(tmp_path, capsys, more):
    (tmp_path / "run.toml").write_text(CONFIG)
    assert _run(["run", str(tmp_path / "run.toml"), "--out", str(tmp_path / "out"), *more]) == 0
    told = capsys.readouterr().out
    assert "RELEASABLE" in told
    published, _, private = told.partition("NOT TO BE PUBLISHED")
    shown = set(accuracies(json.loads((tmp_path / "out" / "private" / "metrics.json").read_text()))) - {"100.0%"}
    assert len(shown) > 3
    assert not shown & set(re.findall(r"[\d.]+%", published))  # whole figures: 7.8% is not a part of 97.8%
    assert "student right" not in published
    assert "may be published" not in private
    for path in (tmp_path / "out" / "public").rglob("*.json"):
        assert "student_accuracy" not in path.read_text()
