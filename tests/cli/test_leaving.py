"""`ipate withdraw` and `ipate statement` as they are typed."""

import json

import pytest

from ipate.allocation.allocation import Allocation
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
    told = process("withdraw", folder.path, person)
    assert told.code == 0, told.err
    assert f"Person {person} has withdrawn" in told.out
    assert "Labelling was complete: nothing more is drawn" in told.out
    again = run("withdraw", folder.path, person)
    assert (again.code, again.out) == (2, "")
    assert "has withdrawn already on" in again.err
    assert run("run", "--resume", folder.path).code == 0
    said = run("statement", folder.path, person)
    assert said.code == 0
    assert "They withdrew on" in said.out
    assert said.err == ""


def test_json_is_the_only_stdout_output(march, run):
    folder, person = march()
    found = json.loads(run("statement", folder.path, person, "--json").out)
    assert found["guaranteed"]
    assert found["spent"] > 0
    left = json.loads(run("withdraw", folder.path, person, "--json").out)
    assert left["labels"] == found["labels"]
    assert left["person"] == person


def test_private_figures_are_printed_only_on_request(march, run):
    folder, person = march(bound="exact")
    owner = json.loads(run("statement", folder.path, person, "--private", "--json").out)
    figures = [f"{owner['spent']:.8g}"[:8], f"{owner['labels']} labels", f"{owner['checks']} checks"]
    for told in (run("statement", folder.path, person), run("withdraw", folder.path, person)):
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
