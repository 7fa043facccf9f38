import json

import pytest

from ipate.reproduce.compare import dpsgd

NAMES = {"compare.json", "compare.md", "fig-compare.svg"}


@pytest.fixture
def without_opacus(monkeypatch):
    monkeypatch.setattr(dpsgd, "available", lambda: False)


@pytest.mark.usefixtures("without_opacus")
def test_quick_comparison_runs_without_opacus(run, tmp_path):
    done = run("reproduce", "compare", "--quick", "--cache", tmp_path / "cache", "--out", tmp_path / "out", "--json")
    assert done.code == 0
    page = json.loads(done.out)["results"]["compare"]
    assert page["command"] == "ipate reproduce compare --quick"
    assert {path.name for path in (tmp_path / "out").iterdir()} == NAMES
    assert any("pip install 'ipate[bench]'" in line for line in page["findings"])
    (table,) = (t for t in page["tables"] if t["title"] == "Digits, 1,100 people: one ε for everybody")
    assert {"ipate ballots", "ipate teachers", "standard PATE of the paper"} <= set(table["rows"])
    assert not any("DP-SGD" in row for row in table["rows"])
    assert not (tmp_path / "cache" / "compare-runs.json").exists()  # a quick try is kept nowhere


def test_kept_results_of_something_else_are_refused(run, tmp_path):
    (tmp_path / "compare-runs.json").write_text("[]")
    done = run("reproduce", "compare", "--cache", tmp_path, "--out", tmp_path / "out")
    assert done.code == 2
    assert "compare-runs.json" in done.err
