"""Every fault of the benchmark still patches the source."""

import ast
import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def load():
    spec = importlib.util.spec_from_file_location("audit_faults", ROOT / "benchmarks" / "audit.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_every_fault_changes_the_source_and_still_parses():
    faults = load()
    assert {kind for fault in faults.FAULTS for kind in fault.kinds} <= set(faults.KINDS)
    for fault in faults.FAULTS:
        before = (ROOT / "src" / "ipate" / fault.file).read_text(encoding="utf-8")
        assert ast.dump(ast.parse(faults.patched(fault))) != ast.dump(ast.parse(before)), fault.name
