"""What all commands share: help, version, completion, whole summaries, and one name for one option."""

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import typer

from ipate import __version__
from ipate.cli.app import _run, app
from ipate.cli.output import StoppedError

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = typer.main.get_command(app)


def leaves(command, name="ipate"):
    if hasattr(command, "commands"):
        for own, child in command.commands.items():
            yield from leaves(child, f"{name} {own}")
    else:
        yield name, command


def test_short_flags_print_version_and_help(run):
    assert run("-V").out == f"ipate {__version__}\n"
    assert run("-h").out == run("--help").out
    assert run("party", "fit", "-h").out == run("party", "fit", "--help").out


def test_help_states_whole_summaries(run):
    text = " ".join(run("--help").out.split())
    assert "..." not in text.replace("[ARGS]...", "")
    for name, command in COMMANDS.commands.items():
        assert f"{name} {command.short_help}" in text


def test_shell_completion_can_be_installed(process):
    told = process("--show-completion", "bash")
    assert told.code == 0, told.err
    assert "_IPATE_COMPLETE" in told.out


def test_end_of_a_file_is_no_interrupt(monkeypatch, tmp_path, capsys):
    def cut(_):
        raise EOFError("No data left in file")

    monkeypatch.setattr("ipate.runs.listing.list_runs", cut)
    assert _run(["runs", str(tmp_path)]) == 1
    assert capsys.readouterr().err.strip() == "ipate: a file ended before it was complete: No data left in file"


def test_module_runs_like_the_program(process):
    assert process("--version").out == f"ipate {__version__}\n"
    ran = subprocess.run([sys.executable, "-m", "ipate", "--version"], capture_output=True, text=True, check=False)
    assert ran.stdout == f"ipate {__version__}\n"


def test_options_of_one_concept_have_one_name():
    names = {option for _, command in leaves(COMMANDS) for made in command.params for option in made.opts}
    assert names.isdisjoint(
        {"--level-column", "--person-column", "--person-id", "--points", "--n-teachers", "--workers"}
    )
    texts = ("level", "person", "epsilon_column", "teacher", "student")
    kinds = {"jobs": {int}, "epsilon": {float}, **{name: {str} for name in texts}}
    for name, command in leaves(COMMANDS):
        hints = get_type_hints(command.callback)
        for concept in (made.name for made in command.params if made.opts[0].startswith("--") and made.name in kinds):
            own = {part for part in (get_args(hints[concept]) or (hints[concept],)) if part is not type(None)}
            assert own == kinds[concept], (name, concept)


def test_interrupted_run_names_its_folder(tmp_path, run, monkeypatch):
    def interrupt(folder, **_):
        raise KeyboardInterrupt

    monkeypatch.setattr("ipate.runs.stages.execute", interrupt)
    out = tmp_path / "march"
    told = run("run", "--dataset", "digits", "--epsilon", "9", "--min-labels", "0", "--out", out)
    assert told.code == 130
    assert told.err.splitlines()[-1] == f"ipate: interrupted; continue with `ipate run --resume {out}`"


def test_message_of_stopped_command_is_one_line(capsys, monkeypatch):
    monkeypatch.setattr("ipate.cli.app.app", lambda **_: (_ for _ in ()).throw(StoppedError("go on")))
    assert _run([]) == 130
    assert capsys.readouterr().err == "ipate: interrupted; go on\n"


@pytest.mark.parametrize(
    "page",
    [*sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "src").rglob("*.py")), ROOT / "README.md"],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_documented_flags_exist(page):
    """Every `ipate COMMAND … --flag` in documentation and messages names a flag of that command."""
    known = {name: {opt for made in command.params for opt in made.opts} for name, command in leaves(COMMANDS)}
    text = page.read_text(encoding="utf-8")
    lines = re.findall(r"^(?:\$ )?(ipate [^#\n]*)", text, re.MULTILINE) if page.suffix == ".md" else []
    for line in lines + re.findall(r"`(ipate [^`\n]*)`", text):
        words = line.split()
        name = " ".join(words[:3]) if " ".join(words[:3]) in known else " ".join(words[:2])
        for flag in (word.split("=")[0] for word in words if word.startswith("--")):
            assert name in known, line
            assert flag in known[name] | {"--help", "--version"}, line
