"""`ipate plan` and `ipate run --dry-run` show both engines, from public figures alone."""

import json

import pytest

from runs import hospital

PEOPLE = ("plan", "--people", "2000", "--epsilon", "1", "--classes", "3", "--pool", "400")


def test_plan_states_what_ballots_weigh(run):
    ran = run(*PEOPLE, "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)["ballots"]
    assert found["weighting"] == found["standard"]
    own = found["weighting"]
    assert own["partitions"] == 16
    assert own["cells"] == 63  # W/6
    assert own["affordable_weight"] == pytest.approx(2000 * 0.1895407669, rel=1e-6)
    assert own["weight_per_class"] == pytest.approx(own["affordable_weight"] / 3)
    assert own["notes"] == []


def test_plan_warns_where_ballots_are_too_light(run):
    ran = run("plan", "--people", "100", "--epsilon", "0.5", "--classes", "3", "--pool", "400")
    assert ran.code == 0, ran.err
    text = " ".join(ran.out.split())
    assert "Ballots: one release that labels all 400 points of the pool" in text
    assert "below 12 per class many labels will be wrong" in text


def test_dry_run_of_ballots_writes_nothing(folder, run):
    hospital.files(folder)
    rest = hospital.REST.split("[teachers]", maxsplit=1)[0] + '[labelling]\nvoting = "ballots"\n'
    (folder / "run.toml").write_text(hospital.DATA + rest)
    before = sorted(path.name for path in folder.iterdir())
    ran = run("run", "run.toml", "--dry-run")
    assert ran.code == 0, ran.err
    assert "The run asks for ballots." in " ".join(ran.out.split())
    assert sorted(path.name for path in folder.iterdir()) == before


def test_listing_names_the_engine_of_runs(folder, run):
    hospital.files(folder)
    rest = hospital.REST.split("[teachers]", maxsplit=1)[0] + '[labelling]\nvoting = "ballots"\n'
    (folder / "run.toml").write_text(hospital.DATA + rest)
    ran = run("run", "run.toml", "--out", "runs/one")
    assert ran.code == 0, ran.err
    listed = json.loads(run("runs", "runs", "--json").out)["runs"]
    assert [(entry["engine"], entry["state"]) for entry in listed] == [("ballots", "complete")]
