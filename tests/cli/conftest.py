"""Running `ipate` in tests: in this process for speed, as a process where that is the point."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from ipate.cli.app import _run

CONSOLE = Path(sys.executable).with_name("ipate")


@dataclass(frozen=True)
class Ran:
    """What a command answered."""

    code: int
    out: str
    err: str


@pytest.fixture
def run(capsys):
    """Run the command line in this process."""

    def call(*arguments):
        capsys.readouterr()
        code = _run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return call


@pytest.fixture
def process():
    """Run the console script as a process of its own."""

    def call(*arguments, **options):
        ran = subprocess.run(
            [str(CONSOLE), *(str(argument) for argument in arguments)],
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=60,
            check=False,
            **options,
        )
        return Ran(ran.returncode, ran.stdout, ran.stderr)

    return call


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working folder, so that file names in messages are short."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
