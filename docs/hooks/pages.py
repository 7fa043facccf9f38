"""Hooks of the site: the reference of the command line and of the TOML keys, and inline figures.

The two reference pages are generated from the commands and from the configuration class at every build, so that they
cannot differ from the program. A comment `<!-- figure: NAME -->` in a page becomes the figure of that name.
"""

import ast
import logging
import posixpath
import re
import sys
from datetime import date
from html import escape
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pydantic import BaseModel

sys.path.insert(0, str(Path(__file__).parent))
from figures import FIGURES

COMMANDS = (
    "This page is generated from the commands themselves. Every command prints the same with `--help`, prints JSON "
    "with `--json` ([keys](../json.md)), and exits with 0 (done), 1 (failed) or 2 (bad input, with one line that "
    "says what is wrong). Progress and messages are on stderr."
)
KEYS = (
    "This page is generated from the class that reads the configuration of `ipate run CONFIG.toml` and of "
    "`ipate plan CONFIG.toml`. An unknown key is refused with the nearest known one. Paths are relative to the "
    "folder in which the command is run. [From private data to a student](../classifier.md#on-the-command-line) "
    "has an example, and [data](../data.md) describes the section `[data]`."
)
LOG = logging.getLogger("mkdocs.hooks.pages")  # a warning fails the strict build
ATTACKS = Path(__file__).parents[2] / "tests" / "attacks"
_FIGURE = re.compile(r"^<!-- figure: ([\w-]+) -->$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for path, text in (("reference/commands.md", commands_page()), ("reference/toml.md", toml_page())):
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the comment of a figure by the figure."""
    return _FIGURE.sub(lambda found: figure(found[1]), markdown)


def on_page_content(html: str, *, page: Page, files: Files, **_: Any) -> str:
    """Let links of a notebook point to pages of the site, as MkDocs does for links of Markdown."""
    if not page.file.src_uri.endswith(".ipynb"):
        return html

    def resolved(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), found[1]))
        file = files.get_file_from_path(target)
        if file is None:
            LOG.warning("Notebook '%s' links to '%s', which is not a page", page.file.src_uri, found[1])
            return found[0]
        return f'href="{file.url_relative_to(page.file)}{found[2] or ""}"'

    html = re.sub(r'<script type="module">(?:(?!</script>).)*mermaid.*?</script>', "", html, flags=re.DOTALL)  # fetched
    return re.sub(r'href="([^":#]+\.(?:md|ipynb))(#[^"]*)?"', resolved, html)


def figure(name: str) -> str:
    """Return a figure as HTML, or a computed table as Markdown."""
    if name == "attacks":
        return attacks_table()
    if name not in FIGURES:
        raise PluginError(f"there is no figure {name!r}: figures are {', '.join(sorted(FIGURES))}")
    return FIGURES[name]()


def attacks_table() -> str:
    """Return the attacks of the test suite with what each of them tries, from the docstrings of the tests."""
    rows = ["| attack | tests |", "| --- | --- |"]
    for path in sorted(ATTACKS.glob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        summary = " ".join(str(ast.get_docstring(tree)).partition("\n\n")[0].split())
        count = sum(isinstance(node, ast.FunctionDef) and node.name.startswith("test_") for node in tree.body)
        rows.append(f"| {_cell(summary)} | {count} in `{path.stem.removeprefix('test_')}` |")
    return "\n".join(rows)


def commands_page() -> str:
    """Return the reference of the command line."""
    import typer.main

    from ipate.cli.app import app

    lines = [
        "# Command line",
        "",
        COMMANDS,
        "",
    ]
    for path, command in walk(typer.main.get_command(app), "ipate"):
        lines += command_section(path, command)
    return "\n".join(lines)


def walk(command: Any, path: str) -> list[tuple[str, Any]]:
    """Return every command below a group with its full name."""
    if not hasattr(command, "commands"):
        return [(path, command)]
    return [found for name, inner in command.commands.items() for found in walk(inner, f"{path} {name}")]


def command_section(path: str, command: Any) -> list[str]:
    """Return the section of one command: what its help says, as tables."""
    import typer

    context = typer.Context(command, info_name=path)
    lines = [f"## {path} {{ #{path.replace(' ', '-')} }}", "", " ".join(str(command.help).split()), ""]
    lines += ["```", " ".join([path, *command.collect_usage_pieces(context)]), "```", ""]
    for title in ("argument", "option"):
        records = [param.get_help_record(context) for param in command.params if param.param_type_name == title]
        rows = [f"| `{record[0].strip()}` | {_cell(record[1])} |" for record in records if record]
        if rows:
            lines += [f"| {title} | meaning |", "| --- | --- |", *rows, ""]
    if command.epilog:
        lines += [" ".join(command.epilog.split()), ""]
    return lines


def _cell(text: str | None) -> str:
    return escape(" ".join((text or "").split()), quote=False).replace("|", "\\|")


def toml_page() -> str:
    """Return the reference of the TOML keys of a run."""
    from ipate.config import RunConfig

    lines = [
        "# TOML keys",
        "",
        KEYS,
        "",
        "## At the top of the file { #top }",
        "",
        *_prose(RunConfig),
    ]
    sections = {name: field for name, field in RunConfig.model_fields.items() if _model(field.annotation)}
    lines += _keys({name: field for name, field in RunConfig.model_fields.items() if name not in sections})
    for name, field in sections.items():
        model = _model(field.annotation)
        lines += [f"## [{name}] {{ #{name} }}", "", *_prose(model), *_keys(model.model_fields)]
    return "\n".join(lines)


def _model(annotation: Any) -> Any:
    """Return the section that an annotation names, or None."""
    return next(
        (
            part
            for part in (annotation, *get_args(annotation))
            if isinstance(part, type) and issubclass(part, BaseModel)
        ),
        None,
    )


def _prose(model: type[BaseModel]) -> list[str]:
    return [*(" ".join(part.split()) + "\n" for part in str(model.__doc__).split("\n\n")), ""]


def _keys(fields: dict[str, Any]) -> list[str]:
    rows = [
        f"| `{name}` | {_cell(field.description)} | {_cell(kind(field.annotation))} | {_value(field)} |"
        for name, field in fields.items()
    ]
    return ["| key | meaning | type | default |", "| --- | --- | --- | --- |", *rows, ""]


def kind(annotation: Any) -> str:
    """Return the type of a key in TOML's words."""
    if get_origin(annotation) is Annotated:
        return kind(get_args(annotation)[0])
    if get_origin(annotation) is Literal:
        return " or ".join(f'"{value}"' for value in get_args(annotation))
    if get_origin(annotation) in (Union, UnionType):
        return " or ".join(dict.fromkeys(kind(part) for part in get_args(annotation) if part is not NoneType))
    if get_origin(annotation) is tuple:
        return f"list of {kind(get_args(annotation)[0])}"
    if get_origin(annotation) is dict:
        return f"table of {kind(get_args(annotation)[1])}"
    return {
        str: "text",
        int: "whole number",
        float: "number",
        bool: "true or false",
        Path: "path",
        Any: "any",
        date: "date",
    }[annotation]


def _value(field: Any) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if value is None or value in ((), {}):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
