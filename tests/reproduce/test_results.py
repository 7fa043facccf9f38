"""Pages of results: verdicts, marks, and the paper's figures as printed."""

import json

import pytest

from ipate.reproduce import EXPERIMENTS, paper, write_sheet
from ipate.reproduce.results import Cell, Sheet, Table, verdict
from ipate.reproduce.voting import Spread


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
def test_verdicts(mean, sd, theirs, percent, expected):
    assert verdict(Spread(mean=mean, sd=sd, n=15), theirs, percent=percent) == expected


def test_a_printed_spread_counts():
    ours = Spread(mean=100, sd=0.0, n=1)
    assert verdict(ours, 110, theirs_sd=6) == "within the spread"


def test_pages_say_ours_theirs_and_why(tmp_path):
    cell = Cell(ours=Spread(mean=1234.4, sd=3.2, n=15), theirs=2000, note="a")
    assert cell.text() == "1,234 ± 3 / 2,000 ≠a"
    table = Table(title="Labels", columns=["25%"], rows=[("ln 4", [cell])], notes=["a: other teachers."])
    sheet = Sheet(name="x", title="X", about="About.", tables=[table], findings=["Found."], figures={"x.svg": "<svg/>"})
    paths = write_sheet(sheet, tmp_path, command="ipate reproduce x")
    assert {path.name for path in paths} == {"x.json", "x.md", "x.svg"}
    text = (tmp_path / "x.md").read_text()
    assert "a: other teachers." in text
    assert "`ipate reproduce x`" in text
    found = json.loads((tmp_path / "x.json").read_text())
    assert found["tables"][0]["rows"]["ln 4"]["25%"]["verdict"] == "differs"
    assert sheet.counts() == {"differs": 1}


def test_the_papers_tables_are_whole():
    for table, variants in (
        (paper.MNIST_LABELS, 9), (paper.MNIST_EARLY_LABELS, 9), (paper.MNIST_STUDENTS, 6), (paper.ADULT_LABELS, 6),
        (paper.ADULT_STUDENTS, 9), (paper.SKEW_LABELS, 4), (paper.SKEW_STUDENTS, 8), (paper.SKEW_TEACHERS, 8),
        (paper.SKEW_VOTINGS, 8),
    ):  # fmt: skip
        assert len(table.cells) == 3 * variants
    assert paper.MNIST_LABELS.cells["ln 8", 0.5, "W"] == 890
    assert paper.SKEW_STUDENTS.cells["ln 16", 1.0, "h"] == 83.59
    assert len(EXPERIMENTS) == 11
