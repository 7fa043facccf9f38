"""`ipate runs` lists runs in every state, as a table and as JSON."""

import json
import shutil

import pytest

from ipate.cli.app import _run
from ipate.errors import InputError
from ipate.runs.folder import RunFolder
from ipate.runs.listing import list_runs
from runs.making import config, labels, run


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A folder with one complete run."""
    top = tmp_path_factory.mktemp("runs")
    run(top / "done", labelling=labels(5))
    return top


def test_complete_and_interrupted_runs_are_listed(done, tmp_path, capsys):
    RunFolder.create(done / "begun", config(compare=True))
    states = {state.path.name: state for state in list_runs(done)}
    assert {name: state.state for name, state in states.items()} == {"done": "complete", "begun": "interrupted"}
    assert states["done"].done == ("data", "allocation", "teachers", "labels", "student", "scores", "report")
    assert (states["done"].labels, states["done"].teachers, states["done"].guarantee) == (5, (30, 30), "releasable")
    assert not states["done"].labels_private
    assert (states["begun"].done, states["begun"].labels, states["begun"].teachers) == ((), None, None)
    assert _run(["runs", str(done), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [entry["state"] for entry in found["runs"]] == ["complete", "interrupted"]
    assert found["runs"][0]["teachers"] == {"voted": 30, "all": 30}
    assert _run(["runs", str(done)]) == 0
    assert "interrupted" in capsys.readouterr().out


def test_label_count_of_private_run_is_marked(tmp_path, capsys):
    run(tmp_path / "own", labelling={**labels(5), "bound": "tight"})
    (state,) = list_runs(tmp_path)
    assert (state.labels, state.labels_private) == (5, True)
    assert _run(["runs", str(tmp_path)]) == 0
    assert "5 (private)" in " ".join(capsys.readouterr().out.split())
    assert _run(["runs", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["labels_private"]


def test_run_folder_itself_can_be_listed(done):
    (state,) = list_runs(done / "done")
    assert state.state == "complete"


def test_locked_run_is_listed_as_running(done):
    with RunFolder.open(done / "done").locked():
        assert list_runs(done / "done")[0].state == "running"
    assert list_runs(done / "done")[0].state == "complete"


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("config.json", "{", "not readable"),
        ("config.json", '{"data": {"name": "digits"}, "ledgr": 1}', "unknown key 'ledgr'"),
        ("config.json", None, "no config.json"),
        ("run.json", None, "run.json"),
        ("private/labelling.json", '{"labels": [], "queries": [], "groups": []}', "another version of ipate"),
        ("private/ledger.json", "{", "not readable"),
        ("private/ledger.sqlite", "", "not a ledger"),
    ],
    ids=["no json", "unknown key", "no config", "no id", "an old record", "no head", "an empty ledger"],
)
def test_broken_run_is_listed_with_its_reason(done, tmp_path, name, text, why):
    shutil.copytree(done / "done", tmp_path / "copy")
    path = tmp_path / "copy" / name
    path.unlink() if text is None else path.write_text(text)
    (state,) = list_runs(tmp_path)
    assert state.state == "broken"
    assert why in state.why
    assert "\n" not in state.why


def test_missing_folder_is_refused_and_empty_reported(tmp_path, capsys):
    with pytest.raises(InputError, match="no such folder"):
        list_runs(tmp_path / "nowhere")
    assert list_runs(tmp_path) == ()
    assert _run(["runs", str(tmp_path)]) == 0
    assert "no runs" in capsys.readouterr().out
    assert _run(["runs", str(tmp_path / "nowhere")]) == 2
