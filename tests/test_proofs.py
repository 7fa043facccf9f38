"""The proofs in docs/proofs follow the code: every function and test that they name exists."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs" / "proofs").glob("*.md"))
PROOFS = [page for page in PAGES if page.name != "README.md"]
NAME = re.compile(r"`([\w/]+\.py)(?:::([\w.]+))?`")
ROW = re.compile(r"^\| .* \|$", re.MULTILINE)


@cache
def defined(file):
    """The functions and classes of a file, and the methods of its classes as Class.method."""
    found = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found.update(f"{node.name}.{part.name}" for part in node.body if isinstance(part, ast.FunctionDef))
    return found


def missing(text):
    """The files and functions that a text names and that do not exist."""
    found = []
    for path, name in NAME.findall(text):
        file = ROOT / path if path.startswith(("tests/", "benchmarks/")) else ROOT / "src" / "ipate" / path
        if not file.is_file() or (name and name not in defined(file)):
            found.append(f"{path}::{name}")
    return found


def steps(page):
    """The rows of the table 'Where each step is used', as cells."""
    table = page.read_text().split("## Where each step is used")[1].split("\n## ")[0]
    return [row.strip("| ").split(" | ") for row in ROW.findall(table)[2:]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_function_and_test_in_a_proof_exists(page):
    assert missing(page.read_text()) == []


def test_names_that_do_not_exist_are_noticed():
    good = "`ledger/carry.py::recharge` `tests/oracles.py` `ledger/base.py::Ledger.require`"
    assert missing(good) == []
    bad = ["ledger/carry.py::recharged", "ledger/nowhere.py::recharge", "ledger/base.py::Ledger.nothing"]
    assert missing(" ".join(f"`{name}`" for name in bad)) == bad


@pytest.mark.parametrize("page", PROOFS, ids=lambda page: page.stem)
def test_every_step_names_code_and_a_test(page):
    rows = steps(page)
    assert len(rows) > 8
    for step, code, tests in rows:
        assert NAME.search(code) or code == "nothing relies on it", step
        names = NAME.findall(tests)
        assert names, step
        assert all(path.startswith("tests/") and name.startswith("test_") for path, name in names), step


@pytest.mark.parametrize("page", PROOFS, ids=lambda page: page.stem)
def test_every_proof_names_assumptions_and_machine_checks(page):
    text = page.read_text()
    for heading in (
        "### Assumptions",
        "## Theorem",
        "## Lemma 1",
        "## Where each step is used",
        "## Checked by machine",
    ):
        assert heading in text, heading


def test_index_links_to_every_proof():
    links = set(re.findall(r"\]\(([\w.]+\.md)", (ROOT / "docs" / "proofs" / "README.md").read_text()))
    assert links == {page.name for page in PROOFS}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_of_proofs_point_to_pages_and_headings(page):
    for target, heading in re.findall(r"\]\(([\w./-]+\.md)(?:#([\w-]+))?\)", page.read_text()):
        other = page.parent / target
        assert other.is_file(), target
        titles = re.findall(r"^#+ (.*)$", other.read_text(), re.MULTILINE)
        anchors = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
        assert not heading or heading in anchors, f"{target}#{heading}"
