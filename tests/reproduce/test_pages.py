"""The pages of docs/results: all there, small, made by their commands, and summed up truly."""

import json
import re
from pathlib import Path

import pytest

from ipate.reproduce import EXPERIMENTS

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
SUMMARY = (RESULTS / "README.md").read_text()


def verdicts(name: str) -> list[str]:
    tables = json.loads((RESULTS / f"{name}.json").read_text())["tables"]
    cells = [cell for table in tables for row in table["rows"].values() for cell in row.values()]
    return [cell["verdict"] for cell in cells if isinstance(cell, dict) and cell["verdict"]]


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_every_page_is_there_and_small(name):
    page = (RESULTS / f"{name}.md").read_text()
    found = json.loads((RESULTS / f"{name}.json").read_text())
    assert found["command"] == f"ipate reproduce {name} --ensembles 3 --votings 5"
    assert f"`{found['command']}`" in page
    for figure in re.findall(r"\]\((.*?\.svg)\)", page):
        assert (RESULTS / figure).stat().st_size < 300_000
    for finding in found["findings"]:
        assert finding in page


def test_the_summary_counts_what_the_pages_say():
    counted = re.findall(r"\| \[([\w-]+)\].*?\| (\d+) / (\d+) / (\d+) \|", SUMMARY)
    assert len(counted) == 6
    for name, within, close, different in counted:
        found = verdicts(name)
        expected = [found.count(word) for word in ("within the spread", "close", "differs")]
        assert expected == [int(within), int(close), int(different)], name


def test_what_differs_has_a_reason_on_its_page():
    for name in EXPERIMENTS:
        for table in json.loads((RESULTS / f"{name}.json").read_text())["tables"]:
            cells = [cell for row in table["rows"].values() for cell in row.values() if isinstance(cell, dict)]
            letters = {cell["note"] for cell in cells if cell["verdict"] == "differs"}
            for letter in letters:
                assert any(note.startswith(f"{letter}:") for note in table["notes"]), (name, table["title"], letter)
