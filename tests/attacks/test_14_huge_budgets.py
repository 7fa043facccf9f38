"""Budgets so large that arithmetic overflows: they are refused with the reason, and nothing is written."""

import numpy as np
import pytest

from ipate.cli.app import _run


@pytest.mark.parametrize("epsilon", ["1e308", "1e5", "10001"])
def test_huge_budget_is_refused_with_the_reason(tmp_path, capsys, epsilon):
    votes = np.random.default_rng(0).integers(0, 3, size=(20, 30))
    np.savez(tmp_path / "votes.npz", votes=votes, groups=np.repeat(["a", "b"], 10), classes=3)
    (tmp_path / "groups.csv").write_text(f"group,epsilon\na,1\nb,{epsilon}\n")
    given = [str(tmp_path / "votes.npz"), "--groups", str(tmp_path / "groups.csv"), "--sigma", "9"]
    for command in (["account", *given], ["label", *given, "--out", str(tmp_path / "labels.csv")]):
        assert _run(command) == 2
        told = capsys.readouterr().err
        assert "protects nobody" in told
        assert "nan" not in told
    assert {path.name for path in tmp_path.iterdir()} == {"votes.npz", "groups.csv"}


@pytest.mark.parametrize("epsilon", ["1e308", "20000", "1e-13"])
def test_run_refuses_huge_budget_before_it_begins(tmp_path, capsys, epsilon):
    config = tmp_path / "run.toml"
    config.write_text(
        f'[data]\nname = "synthetic"\n[budgets]\npolicy = {{ high = 1.0, average = 2.0, low = {epsilon} }}\n'
    )
    assert _run(["run", str(config), "--out", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert "from 1e-12" in told
    assert told.count("\n") == 1
    assert not (tmp_path / "out").exists()
