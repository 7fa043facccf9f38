import ast
import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def load():
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "benchmarks" / "mutants.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


mutants = load()


def test_every_mutant_changes_the_source_and_still_parses():
    for mutant in mutants.MUTANTS:
        before = mutants.place(mutant, ROOT).read_text(encoding="utf-8")
        after = mutants.mutate(mutant, ROOT)
        assert ast.dump(ast.parse(after)) != ast.dump(ast.parse(before)), mutant.name


def test_tests_named_by_mutants_exist():
    for mutant in mutants.MUTANTS:
        for target in mutant.tests:
            file, _, name = target.partition("::")
            tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
            functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
            assert functions, target
            assert name in functions | {""}, target


def test_names_of_mutants_differ():
    assert len({mutant.name for mutant in mutants.MUTANTS}) == len(mutants.MUTANTS)


def test_a_pattern_that_is_gone_is_refused(tmp_path):
    (tmp_path / "src" / "ipate").mkdir(parents=True)
    mutant = mutants.MUTANTS[0]
    target = tmp_path / "src" / "ipate" / "gdp.py"
    gone = mutants.Mutant(mutant.name, "gdp.py", "here", "there", ())
    for text in ("nothing", "here and here"):
        target.write_text(text)
        with pytest.raises(ValueError, match="not once"):
            mutants.mutate(gone, tmp_path)
