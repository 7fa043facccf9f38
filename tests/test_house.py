"""The ratchet: figures of the package that may fall and may not rise.

A commit that needs a larger figure raises the limit here and says why in its message.
"""

import ast
import re
from collections import Counter
from pathlib import Path

import ipate

ROOT = Path(ipate.__file__).parent
REPOSITORY = Path(__file__).resolve().parents[1]
ENGINES = ("teachers", "ballots")
ROOT_MODULES = {
    *("__init__", "__main__", "_types", "_version", "classifier", "config", "errors", "files", "options", "pipeline"),
}

MODULES = 187
LINES = 42_118
STATEMENTS = 21_746
LONGEST_MODULE = 600
PARAMETERS = 40  # functions with more than eight
REPEATED_NAMES = 3  # module names that occur twice, outside cli and engines
ENGINE_NAMES = 7  # comparisons with the name of an engine, outside engines
WORDS_BEFORE_CODE = 403  # in README.md
STATEMENTS_PER_ROOM = 4_100


def parsed():
    """Every module of the package, by its path relative to the package."""
    return {path.relative_to(ROOT): ast.parse(path.read_text(encoding="utf-8")) for path in ROOT.rglob("*.py")}


def statements(tree):
    """The number of statements without docstrings."""
    bare = [node for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    return sum(isinstance(node, ast.stmt) for node in ast.walk(tree)) - len(bare)


def repeated(paths):
    """Module names that occur more than once; commands and sibling engines may share names."""
    counted = [path for path in paths if path.parts[0] != "cli" and path.parts[0] != "engines"]
    names = Counter(path.stem for path in counted if path.stem not in ("__init__", "base"))
    return sorted(name for name, times in names.items() if times > 1)


def named_engines(tree):
    """Comparisons with the name of an engine."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            found += [side.value for side in sides if isinstance(side, ast.Constant) and side.value in ENGINES]
            found += [side.id for side in sides if isinstance(side, ast.Name) and side.id == "BALLOTS"]
        elif isinstance(node, ast.Attribute) and node.attr == "ballots":
            owner = node.value
            if isinstance(owner, ast.Name) and owner.id in ("settings", "facts", "parameters", "record", "self"):
                found.append(node.attr)
    return found


def test_package_has_few_modules_and_lines():
    paths = list(ROOT.rglob("*.py"))
    assert len(paths) <= MODULES
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths) <= LINES


def test_package_has_few_statements():
    by_room = Counter()
    for path, tree in parsed().items():
        by_room[path.parts[0]] += statements(tree)
    assert by_room.total() <= STATEMENTS
    assert max(by_room.values()) <= STATEMENTS_PER_ROOM


def test_modules_are_documented_and_of_readable_size():
    for path, tree in parsed().items():
        assert ast.get_docstring(tree), path
        assert len((ROOT / path).read_text(encoding="utf-8").splitlines()) <= LONGEST_MODULE, path


def test_root_holds_rooms_and_documented_modules():
    assert {path.stem for path in ROOT.glob("*.py")} <= ROOT_MODULES


def test_module_names_rarely_repeat():
    assert len(repeated(parsed())) <= REPEATED_NAMES


def test_formatter_decides_the_layout():
    for path in ROOT.rglob("*.py"):
        assert not re.search(r"# fmt: (skip|off)", path.read_text(encoding="utf-8")), path


def test_functions_with_many_parameters_are_few():
    functions = (node for tree in parsed().values() for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    many = [node for node in functions if len([*node.args.args, *node.args.kwonlyargs]) > 8]
    assert len(many) <= PARAMETERS


def test_rooms_ask_an_engine_and_not_its_name():
    found = [name for path, tree in parsed().items() if path.parts[0] != "engines" for name in named_engines(tree)]
    assert len(found) <= ENGINE_NAMES


def test_readme_shows_code_early():
    words = (REPOSITORY / "README.md").read_text(encoding="utf-8").partition("```")[0].split()
    assert len(words) <= WORDS_BEFORE_CODE
