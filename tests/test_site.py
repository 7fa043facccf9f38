"""The site: it builds strictly, documents every public name, command and key, and needs nothing from elsewhere."""

import ast
import inspect
import json
import os
import re
import subprocess
import sys
import zlib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

import ipate
from ipate.errors import IpateError
from ipate.files import FileLock

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Page(HTMLParser):
    """The ids of a page, what it links to, and what a browser fetches to show it."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.fetched = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag in ("script", "img", "iframe") and given.get("src"):
            self.fetched.append(given["src"])
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload", "preconnect"):
            self.fetched.append(given["href"])


def commands():
    """Every command's full name."""
    import typer.main

    from ipate.cli.app import app

    def walk(command, path):
        if not hasattr(command, "commands"):
            return [(path, command)]
        return [found for name, inner in command.commands.items() for found in walk(inner, f"{path} {name}")]

    return walk(typer.main.get_command(app), "ipate")


def test_commands_and_first_example_fit_their_column():
    lines = [
        line
        for block in PYTHON_BLOCK.findall((DOCS / "index.md").read_text(encoding="utf-8"))
        for line in block.splitlines()
    ]
    for path in sorted((DOCS / "tutorial").glob("*.ipynb")):
        cells = ["".join(cell["source"]) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]]
        lines += [line for cell in cells if cell.startswith("%%bash") for line in cell.splitlines() if "ipate " in line]
    assert len(lines) > 40
    assert [line for line in lines if len(line) > 78] == []


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site strictly, once for all workers: a broken link, a broken anchor or a page outside nav fails."""
    pytest.importorskip("mkdocs")
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = base / "site"
    with FileLock(base / "site.lock", refusal=IpateError("another worker builds the site"), timeout=300):
        if not folder.exists():
            build(folder)
    return folder


def build(folder):
    made = folder.with_name("site.part")
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(made)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")},
    )
    assert ran.returncode == 0, f"a new page belongs into nav of mkdocs.yml; mkdocs says:\n{ran.stdout}{ran.stderr}"
    made.rename(folder)


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html") if path.name != "404.html"}


@pytest.fixture(scope="module")
def documented(site):
    """The names in the inventory of the Python reference."""
    text = zlib.decompress((site / "objects.inv").read_bytes().split(b"\n", 4)[4]).decode()
    return {line.split(" ", 1)[0] for line in text.splitlines()}


def test_every_public_name_is_in_the_reference(documented):
    assert [name for name in ipate.__all__ if f"ipate.{name}" not in documented] == []


def test_first_choice_in_docstrings_is_the_default():
    """The reference shows the first of several choices as the default, as numpydoc does."""
    for name in ipate.__all__:
        made = getattr(ipate, name)
        choices = re.findall(r'^\s+(\w+) : \{"(\w+)"', str(made.__doc__), flags=re.MULTILINE)
        defaults = {key: param.default for key, param in inspect.signature(made).parameters.items()} if choices else {}
        for key, first in choices:
            assert defaults.get(key, inspect.Parameter.empty) in (first, inspect.Parameter.empty), (name, key)


def examples():
    """The Python of every page and of every notebook, with the name of its file."""
    for page in DOCS.rglob("*.md"):
        yield from ((page.name, block) for block in PYTHON_BLOCK.findall(page.read_text(encoding="utf-8")))
    for book in DOCS.rglob("*.ipynb"):
        for cell in json.loads(book.read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"])
            if cell["cell_type"] == "code" and not source.startswith("%%"):
                yield book.name, source


def test_names_that_examples_import_are_in_reference(documented):
    for where, source in examples():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("ipate"):
                for alias in node.names:
                    name = f"{node.module}.{alias.name}"
                    assert alias.name in ipate.__all__ or name in documented, f"{where} imports {name}"


def test_every_command_and_option_is_in_the_reference(site, pages):
    page = site / "reference" / "commands.html"
    text = page.read_text(encoding="utf-8")
    for path, command in commands():
        assert path.replace(" ", "-") in pages[page].ids, path
        section = text[text.index(f'id="{path.replace(" ", "-")}"') :]
        section = section[: section.find("<h2", 1)]
        for param in command.params:
            assert all(name in section for name in param.opts if name.startswith("--")), (path, param.opts)


def test_every_toml_key_is_described_in_the_reference(site):
    from pydantic import BaseModel

    from ipate.config import RunConfig

    text = (site / "reference" / "toml.html").read_text(encoding="utf-8")
    for section, field in RunConfig.model_fields.items():
        model = field.annotation
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            assert f"<code>{section}</code>" in text
            assert field.description, f"{section} needs a line of description in runs/sections.py"
            continue
        assert f'id="{section}"' in text
        for key, own in model.model_fields.items():
            assert f"<code>{key}</code>" in text
            assert own.description, f"{section}.{key} needs a line of description in runs/sections.py"


def test_json_page_names_every_command_with_json():
    text = (DOCS / "json.md").read_text(encoding="utf-8")
    several = {"plan", "report", "party", "parties"}  # described on pages of their own
    for path, command in commands():
        name = path.split()[1]
        if name not in several and any("--json" in param.opts for param in command.params):
            assert f"`{name}`" in text, f"docs/json.md does not list the keys of {path}"


def test_links_and_anchors_of_every_page_exist(pages):
    for path, page in pages.items():
        for link in page.links:
            target, _, anchor = unquote(link).partition("#")
            if re.match(r"\w+:", target):
                continue
            found = (path.parent / target).resolve() if target else path
            found = found / "index.html" if found.is_dir() else found
            assert found.is_file(), f"{path.name} links to {link}"
            if anchor and found in pages and anchor != "__toc":
                assert anchor in pages[found].ids, f"{path.name} links to {link}"


def test_pages_fetch_nothing_from_elsewhere(pages):
    assert len(pages) > 60
    for path, page in pages.items():
        assert [source for source in page.fetched if source.startswith(("http", "//"))] == [], path.name


def test_search_works_without_a_server(site, pages):
    index = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    assert index.startswith("var __index = ")
    assert "glossary" in index
    assert "assets/iframe-worker.js" in pages[site / "index.html"].fetched


def test_figures_have_text_alternatives_and_both_widths(site):
    text = (site / "concepts" / "epsilon.html").read_text(encoding="utf-8")
    for width in ("wide", "narrow"):
        assert len(re.findall(rf'class="ipate-{width}" role="img" aria-label="[^"]{{20,}}"', text)) == 3
    assert "var(--fig-ink)" in text
    assert "mathdefault" not in (site / "concepts" / "budget.html").read_text(encoding="utf-8")
    assert "<!-- figure:" not in "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.html"))


def test_readme_has_install_line_commands_and_picture():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 20
    for part in ("pip install .", "make demo", "make test", "make docs"):
        assert part in text
    (picture,) = re.findall(r"!\[[^]]{30,}\]\(([^)]+)\)", text)
    assert (ROOT / picture).is_file()
