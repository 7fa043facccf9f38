"""The examples in the README and in the documentation run unchanged."""

import re
import tomllib
import warnings
from pathlib import Path

import pytest
from typer.main import get_command

from ipate.cli.app import app
from ipate.config import RunConfig

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page, language):
    return [text for kind, text in BLOCK.findall((ROOT / page).read_text()) if kind == language]


@pytest.mark.parametrize(
    "page",
    [
        "docs/index.md",
        "docs/ballots.md",
        "docs/classifier.md",
        "docs/consent.md",
        "docs/deploy.md",
        "docs/guarantees.md",
        "docs/ptr.md",
        "docs/students.md",
    ],
)
def test_python_examples_in_the_documentation_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = blocks(page, "python")
    assert found
    names = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for code in found:
            exec(compile(code, page, "exec"), names)


def test_configuration_in_classifier_page_is_valid():
    (text,) = blocks("docs/classifier.md", "toml")
    config = RunConfig.from_mapping(tomllib.loads(text))
    assert config.budgets.delta == 1e-6


def test_links_between_pages_point_to_files():
    generated = {ROOT / "docs" / "reference" / name for name in ("commands.md", "toml.md")}
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            found = (page.parent / target).resolve()
            assert found.exists() or found in generated, f"{page.name} links to {target}"


def test_pages_say_that_scores_of_test_files_are_published():
    (option,) = [found for found in get_command(app).commands["run"].params if found.name == "test_file"]
    lines = [line for page in ("data", "classifier") for line in (ROOT / f"docs/{page}.md").read_text().splitlines()]
    said = [option.help, *(line for line in lines if line.startswith("test_file ="))]
    assert len(said) == 3
    for text in said:
        assert re.search(r"\bpublic\b.* published", text)
