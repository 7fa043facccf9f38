"""The command `python -m ipate.torch.train`, and the modules that the torch package imports."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch.nn", reason="needs torch: pip install 'ipate[torch]'")

from ipate.torch.train import main

ROOT = Path(__file__).parents[2]


@pytest.fixture
def files(world, tmp_path):
    X, y = world
    np.savez(tmp_path / "x.npz", X=X, y=y, public=X[:25], labels=y[:25])
    np.savez(tmp_path / "m.npz", offsets=[0, 30, 60], indices=np.arange(60), groups=["a", "b"], weights=[1.0, 2.0])
    return tmp_path


def command(files, *more):
    given = ["--data", files / "x.npz", "--members", files / "m.npz", "--out", files / "v.npz", "--device", "cpu"]
    return main([*map(str, given), "--steps", "5", "--jobs", "1", *more])


def test_command_writes_votes(files, capsys):
    assert command(files, "--classes", "4", "--chunk", "10") == 0
    with np.load(files / "v.npz", allow_pickle=False) as read:
        assert read["votes"].shape == (2, 25)
        assert int(read["classes"]) == 4
        assert read["groups"].tolist() == ["a", "b"]
        assert read["weights"].tolist() == [1, 2]
        assert read["labels"].shape == (25,)
    assert "trained 2 teachers" in capsys.readouterr().err


def test_command_reports_invalid_files(files, capsys):
    assert command(files, "--data", str(files / "m.npz")) == 2
    assert "holds no 'X'" in capsys.readouterr().err
    assert command(files, "--members", str(files / "x.npz")) == 2
    assert "'offsets' and 'indices'" in capsys.readouterr().err
    (files / "bad.npz").write_bytes(b"nothing")
    assert command(files, "--data", str(files / "bad.npz")) == 2
    assert "not a readable npz" in capsys.readouterr().err
    assert command(files, "--classes", "2") == 1
    assert "2 of 2 teachers failed" in capsys.readouterr().err


_BARE = """
import sys
ABSENT = {"scipy", "sklearn", "skorch", "dp_accounting", "randomgen", "rich", "typer", "joblib"}
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Nothing())
import ipate.torch, ipate.torch.train
allowed = ("ipate.torch", "ipate.errors", "ipate._types", "ipate._version")
ours = {name for name in sys.modules if name.startswith("ipate.") and not name.startswith(allowed)}
assert not ours, ours
for name in ("TorchClassifier", "module_classifier"):
    try:
        getattr(ipate.torch, name)
    except ModuleNotFoundError as error:
        assert "pip install 'ipate[torch]'" in str(error)
    else:
        raise AssertionError(name)
"""


def test_package_imports_with_numpy_and_torch_alone():
    subprocess.run([sys.executable, "-c", _BARE], check=True, env={"PYTHONPATH": str(ROOT / "src"), "PATH": ""})
