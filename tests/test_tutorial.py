"""The tutorial is run as a user runs it: its files are written and its commands executed, in order, in one folder."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

TUTORIAL = Path(__file__).parent.parent / "docs" / "tutorial"
_BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def execute(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command line of the tutorial; `# exit code N` states another exit code than 0."""
    command, _, note = line.partition("  #")
    words = shlex.split(command)
    start = {"ipate": [sys.executable, "-m", "ipate"], "python": [sys.executable]}[words[0]]
    found = subprocess.run(
        [*start, *words[1:]], cwd=folder, capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "COLUMNS": "120"},
    )  # fmt: skip
    expected = int(note.split()[-1]) if note else 0
    assert found.returncode == expected, f"{line}: {found.stdout}{found.stderr}"
    assert "Traceback" not in found.stderr
    return found


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[str]]]:
    """Run the whole tutorial; return its folder and what each command printed."""
    folder = tmp_path_factory.mktemp("hospital")
    (folder / "make_files.py").write_text((TUTORIAL / "make_files.py").read_text(encoding="utf-8"), encoding="utf-8")
    printed: dict[str, list[str]] = {}
    for language, options, text in _BLOCK.findall((TUTORIAL / "README.md").read_text(encoding="utf-8")):
        if language == "toml":
            (folder / options.strip().removeprefix("file=")).write_text(text, encoding="utf-8")
        elif language == "python":
            done = subprocess.run(
                [sys.executable, "-c", text], cwd=folder, capture_output=True, text=True, timeout=120, check=False
            )
            assert done.returncode == 0, done.stderr
            printed.setdefault("python", []).append(done.stdout)
        else:
            for line in text.splitlines():
                found = execute(line.removeprefix("$ "), folder)
                printed.setdefault(line.split()[2], []).append(found.stdout + found.stderr)
    return folder, printed


def test_every_command_of_the_tutorial_is_covered(story: tuple[Path, dict[str, list[str]]]) -> None:
    assert set(story[1]) == {
        "make_files.py", "consent", "schema", "plan", "run", "predict", "python", "statement", "withdraw"
    }  # fmt: skip


def test_run_writes_what_the_tutorial_names(story: tuple[Path, dict[str, list[str]]]) -> None:
    folder, _ = story
    public = {path.name for path in (folder / "first" / "public").iterdir()}
    assert public == {"guarantee.json", "labels.csv", "report.html", "report.json", "student"}
    assert (folder / "private.ledger.sqlite").is_file()


def test_second_run_is_refused_and_leaves_no_folder(story: tuple[Path, dict[str, list[str]]]) -> None:
    folder, printed = story
    assert "cannot pay for one more query" in printed["run"][1]
    assert not (folder / "second").exists()


def test_predictions_have_ids_classes_and_probabilities(story: tuple[Path, dict[str, list[str]]]) -> None:
    folder, printed = story
    lines = (folder / "predictions.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "bed,prediction,p(home),p(readmitted)"
    assert len(lines) == 21
    assert {line.split(",")[1] for line in lines[1:]} <= {"home", "readmitted"}
    assert "home" in printed["python"][0]


def test_statements_before_and_after_the_withdrawal_agree(story: tuple[Path, dict[str, list[str]]]) -> None:
    before, after = story[1]["statement"]
    assert "was spent" in before
    spent = re.findall(r"ε = ([\d.]+)", before)
    assert set(re.findall(r"ε = ([\d.]+) at", after)) <= set(spent) | set(re.findall(r"ε = ([\d.]+)", after))
    assert "withdr" in after
