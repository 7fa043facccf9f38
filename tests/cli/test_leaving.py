"""`ipate withdraw` and `ipate statement` as they are typed."""

import io
import json

import pytest

from ipate.allocation.allocation import Allocation
from ipate.runs.stages import allocated
from runs.leaving import begin, go_on


@pytest.fixture
def march(tmp_path):
    def make(**options):
        made = begin(tmp_path, "march", **options)
        go_on(made)
        people = Allocation.load(made.private / "allocation.npz").people
        return made, people.ids[0]

    return make


def test_person_withdraws_once_and_statement_records_it(march, run, process):
    folder, person = march()
    told = process("withdraw", folder.path, person, "--yes")
    assert told.code == 0, told.err
    assert f"Person {person} has withdrawn" in told.out
    assert "Labelling was complete: nothing more is drawn" in told.out
    again = run("withdraw", folder.path, person, "--yes")
    assert (again.code, again.out) == (2, "")
    assert "has withdrawn already on" in again.err
    assert run("run", "--resume", folder.path).code == 0
    said = run("statement", folder.path, person)
    assert said.code == 0
    assert "They withdrew on" in said.out
    assert said.err == ""


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_withdrawal_without_terminal_needs_yes(march, run, process):
    folder, person = march()
    before = contents(folder.path)
    told = process("withdraw", folder.path, person)
    assert (told.code, told.out) == (2, "")
    assert "add --yes to withdraw, or --dry-run" in told.err
    shown = run("withdraw", folder.path, person, "--dry-run")
    assert shown.code == 0
    teachers = ", ".join(map(str, allocated(folder).teachers_of(allocated(folder).people.index_of(person))))
    assert f"their place in teacher {teachers} stays empty" in shown.out
    assert "would be erased" in shown.out
    assert "stays charged" in shown.out
    told = json.loads(run("withdraw", folder.path, person, "--dry-run", "--json").out)
    assert (told["done"], told["trained"], told["labelling"]) == (False, True, "complete")
    assert contents(folder.path) == before


@pytest.mark.parametrize("answer", [False, True], ids=["no", "yes"])
def test_terminal_is_asked_before_a_withdrawal(march, run, monkeypatch, answer):
    folder, person = march()
    before = contents(folder.path)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" if answer else "n\n"))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    told = run("withdraw", folder.path, person)
    assert "Withdraw this person?" in told.err
    assert "This cannot be undone." in told.err
    assert told.code == (0 if answer else 1)
    assert (contents(folder.path) == before) is not answer
    assert ("has withdrawn" in told.out) is answer


def test_json_is_the_only_stdout_output(march, run):
    folder, person = march()
    found = json.loads(run("statement", folder.path, person, "--json").out)
    assert found["guaranteed"]
    assert found["spent"] > 0
    left = json.loads(run("withdraw", folder.path, person, "--yes", "--json").out)
    assert left["labels"] == found["labels"]
    assert left["person"] == person


def test_private_figures_are_printed_only_on_request(march, run):
    folder, person = march(bound="exact")
    owner = json.loads(run("statement", folder.path, person, "--private", "--json").out)
    figures = [f"{owner['spent']:.8g}"[:8], f"{owner['labels']} labels", f"{owner['checks']} checks"]
    for told in (run("statement", folder.path, person), run("withdraw", folder.path, person, "--yes")):
        assert told.code == 0
        for figure in figures:
            assert figure not in told.out
    said = run("statement", folder.path, person, "--private")
    assert said.out.splitlines()[1].startswith("PRIVATE: FOR THE DATA OWNER ONLY")
    assert f" {owner['labels']} labels" in said.out
    told = json.loads(run("statement", folder.path, person, "--json").out)
    assert told["spent"] is told["labels"] is told["left"] is None


@pytest.mark.parametrize("command", ["withdraw", "statement"])
def test_missing_run_or_person_is_refused_in_one_line(march, run, tmp_path, command):
    folder, _ = march()
    for arguments, said in (((folder.path, "ada"), "nobody has this id"), ((tmp_path, "ada"), "holds no run")):
        told = run(command, *arguments)
        assert (told.code, told.out) == (2, "")
        assert said in told.err
        assert told.err.count("\n") == 1


def test_command_records_that_somebody_consented_again(march, run):
    folder, person = march()
    for wrong, said in (
        (("--consented-again",), "has not withdrawn"),
        (("--consented-again", "--dry-run"), "combined"),
    ):
        told = run("withdraw", folder.path, person, *wrong)
        assert (told.code, told.out) == (2, "")
        assert said in told.err
    assert run("withdraw", folder.path, person, "--yes").code == 0
    told = run("withdraw", folder.path, person, "--consented-again")
    assert told.code == 0
    assert told.out.startswith(f"Person {person} has consented again: runs on the ledger of")
    assert "has withdrawn already" in run("withdraw", folder.path, person, "--yes").err  # this run stays as it is
