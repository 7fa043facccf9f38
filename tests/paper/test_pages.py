"""Pages of results: verdicts and files; the paper's figures; the pages that docs/results holds."""

import json
import re
from pathlib import Path

import pytest

from paper import EXPERIMENTS, OWN_RUNS
from paper import experiments as ex
from paper.pages import Cell, Page, Spread, Table, spread

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
SUMMARY = (RESULTS / "README.md").read_text()


@pytest.mark.parametrize(
    ("mean", "sd", "theirs", "percent", "expected"),
    [
        (100, 5, 109, False, "within the spread"),
        (100, 1, 109, False, "close"),
        (100, 1, 130, False, "differs"),
        (90.0, 0.1, 90.9, True, "close"),
        (90.0, 0.1, 92.0, True, "differs"),
        (100, 1, None, False, "no counterpart"),
    ],
)
def test_verdict_compares_ours_with_theirs(mean, sd, theirs, percent, expected):
    cell = Cell(ours=Spread(mean=mean, sd=sd, n=15), theirs=theirs, percent=percent)
    assert cell.verdict == expected


def test_printed_spread_widens_the_verdict():
    cell = Cell(ours=Spread(mean=100, sd=0.0, n=1), theirs=110, theirs_sd=6)
    assert cell.verdict == "within the spread"


def test_spread_leaves_out_missing_values():
    found = spread([1.0, float("nan"), 3.0])
    assert (found.mean, found.sd, found.n) == (2.0, pytest.approx(2**0.5), 2)
    assert spread([]).n == 0


def test_page_shows_ours_theirs_and_reason(tmp_path):
    cell = Cell(ours=Spread(mean=1234.4, sd=3.2, n=15), theirs=2000, note="a")
    assert cell.text() == "1,234 ± 3 / 2,000 ≠a"
    table = Table(title="Labels", columns=["25%"], rows=[("ln 4", [cell])], notes=["a: other teachers."])
    page = Page(name="x", title="X", about="About.", tables=[table], findings=["Found."], figures={"x.svg": "<svg/>"})
    paths = page.write(tmp_path, command="python -m paper x")
    assert {path.name for path in paths} == {"x.json", "x.md", "x.svg"}
    text = (tmp_path / "x.md").read_text()
    assert "a: other teachers." in text
    assert "`python -m paper x`" in text
    found = json.loads((tmp_path / "x.json").read_text())
    assert found["tables"][0]["rows"]["ln 4"]["25%"]["verdict"] == "differs"


def test_paper_tables_have_all_cells():
    for table, variants in (
        (ex.MNIST_LABELS, 9),
        (ex.MNIST_EARLY_LABELS, 9),
        (ex.MNIST_STUDENTS, 6),
        (ex.ADULT_LABELS, 6),
        (ex.ADULT_STUDENTS, 9),
        (ex.SKEW_LABELS, 4),
        (ex.SKEW_STUDENTS, 8),
        (ex.SKEW_TEACHERS, 8),
        (ex.SKEW_VOTINGS, 8),
    ):
        assert len(table.cells) == 3 * variants
    assert ex.MNIST_LABELS.cells["ln 8", 0.5, "W"] == 890
    assert ex.SKEW_STUDENTS.cells["ln 16", 1.0, "h"] == 83.59
    assert len(EXPERIMENTS) == 12


def verdicts(name: str) -> list[str]:
    tables = json.loads((RESULTS / f"{name}.json").read_text())["tables"]
    cells = [cell for table in tables for row in table["rows"].values() for cell in row.values()]
    return [cell["verdict"] for cell in cells if isinstance(cell, dict) and cell["verdict"]]


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_every_page_exists_and_is_small(name):
    page = (RESULTS / f"{name}.md").read_text()
    found = json.loads((RESULTS / f"{name}.json").read_text())
    assert found["command"] == f"python -m paper {name}" + ("" if name in OWN_RUNS else " --ensembles 3 --votings 5")
    assert f"`{found['command']}`" in page
    for figure in re.findall(r"\]\((.*?\.svg)\)", page):
        assert (RESULTS / figure).stat().st_size < 300_000
    for finding in found["findings"]:
        assert finding in page


def test_summary_counts_match_the_pages():
    counted = re.findall(r"\| \[([\w-]+)\].*?\| (\d+) / (\d+) / (\d+) \|", SUMMARY)
    assert len(counted) == 6
    for name, within, close, different in counted:
        found = verdicts(name)
        expected = [found.count(word) for word in ("within the spread", "close", "differs")]
        assert expected == [int(within), int(close), int(different)], name


def test_every_difference_has_a_reason():
    for name in EXPERIMENTS:
        for table in json.loads((RESULTS / f"{name}.json").read_text())["tables"]:
            cells = [cell for row in table["rows"].values() for cell in row.values() if isinstance(cell, dict)]
            letters = {cell["note"] for cell in cells if cell["verdict"] == "differs"}
            for letter in letters:
                assert any(note.startswith(f"{letter}:") for note in table["notes"]), (name, table["title"], letter)


def test_every_letter_in_table_has_a_note():
    """A quick run has one voting per cell, so that cells differ which have no explanation."""
    quick = Cell(ours=spread([5.0]), theirs=50.0, note="a")
    known = Cell(ours=spread([5.0]), theirs=50.0, note="b")
    table = Table(title="Labels", columns=["50%", "75%"], rows=[("ln 4", [quick, known])], notes=["b: other nets."])
    assert "≠a" in table.markdown()
    assert "- b: other nets.\n- a: outside the spread" in table.markdown()
    assert len(table.json()["notes"]) == 2
