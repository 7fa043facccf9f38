import json

import pytest

from paper import __main__ as command
from paper.compare import dpsgd, page

NAMES = {"compare.json", "compare.md", "fig-compare.svg"}


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Return a function that runs `python -m paper` and returns its exit code, stdout and stderr."""
    monkeypatch.setenv("IPATE_DATA", str(tmp_path / "data"))

    def run(*arguments):
        code = command.main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return run


def test_quick_comparison_runs_without_opacus(run, tmp_path, monkeypatch):
    monkeypatch.setattr(dpsgd, "available", lambda: False)
    code, out, _ = run("compare", "--quick", "--cache", tmp_path / "cache", "--out", tmp_path / "out", "--json")
    assert code == 0
    made = json.loads(out)["results"]["compare"]
    assert made["command"] == "python -m paper compare --quick"
    assert {path.name for path in (tmp_path / "out").iterdir()} == NAMES
    assert any("pip install 'ipate[bench]'" in line for line in made["findings"])
    (table,) = (t for t in made["tables"] if t["title"] == "Digits, 1,100 people: one ε for everybody")
    assert {"ipate ballots", "ipate teachers", "standard PATE of the paper"} <= set(table["rows"])
    assert not any("DP-SGD" in row for row in table["rows"])
    assert not (tmp_path / "cache").exists()  # a quick try is stored nowhere, neither its runs nor prepared models


def test_stored_runs_give_the_stored_page(run, tmp_path):
    code, _, _ = run("compare", "--device", "cpu", "--out", tmp_path)
    assert code == 0
    for name in NAMES:
        assert (tmp_path / name).read_bytes() == page.STORED.with_name(name).read_bytes(), name


def test_stored_results_of_something_else_are_refused(run, tmp_path):
    (tmp_path / "compare-runs.json").write_text("[]")
    code, _, err = run("compare", "--cache", tmp_path, "--out", tmp_path / "out")
    assert code == 2
    assert "compare-runs.json" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tabel1"], "nearest is 'table1'"),
        (["errata", "--votings", "0"], "--votings is 0"),
        (["errata", "--device", "tpu"], "--device is 'tpu'"),
        (["errata", "--only", "mnist"], "--only is for table1, beyond"),
        (["table1", "--only", "adult"], "--only is 'adult'"),
        (["beyond", "--row", "54/37/9%"], "--row is for table1"),
        (["table1", "--row", "1/2/3%"], "--row is '1/2/3%'"),
        (["errata", "--data-dir", "nowhere"], "nowhere"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_input_is_refused_in_one_line(run, arguments, words):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
