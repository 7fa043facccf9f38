"""Exports for others: the deployments registry, the model card, and events of dp_accounting."""

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import yaml

from ipate.cli.app import _run
from ipate.errors import InputError
from ipate.report.exports import group_events
from ipate.report.facts import Identity, for_audience
from ipate.report.registry import MISSING, as_yaml, missing_fields, model_card, registry_record
from ipate.runs.reporting import write_exports, write_report
from report.examples import facts
from runs import making

SCHEMA = json.loads((Path(__file__).parent / "registry_schema.json").read_text())
BALLOTS = {"voting": "ballots"}
GAUSSIAN = [
    {},
    BALLOTS,
    {"bound": "loose"},
    {"bound": "loose", "stop": "drop", "rule": "uniform"},
    {"variant": "vanishing"},
    {"variant": "upsampling", "bound": "loose"},
    {"stop": "count", "max_labels": 7},
]


def name(options):
    return "-".join(str(value) for value in options.values()) or "plain"


@pytest.mark.parametrize("options", [{}, BALLOTS, {"bound": "loose"}], ids=name)
def test_registry_record_fits_the_registrys_schema(reported, options):
    found = reported(**options).facts
    record = yaml.safe_load(as_yaml(registry_record(found)))
    assert record == registry_record(found)
    jsonschema.Draft7Validator(SCHEMA, format_checker=jsonschema.Draft7Validator.FORMAT_CHECKER).validate(record)
    loss = record["deployment"]["privacy_loss"]
    assert loss["privacy_parameters"]["epsilon"] == max(group.budget.epsilon for group in found.groups)
    for group in found.groups:
        assert f"group {group.id}" in loss["privacy_parameters_details"]


def test_schema_of_the_test_refuses_wrong_records(reported):
    record = registry_record(reported().facts)
    check = jsonschema.Draft7Validator(SCHEMA, format_checker=jsonschema.Draft7Validator.FORMAT_CHECKER)
    for wrong in ({**record, "extra": 1}, {**record, "status": "Done"}, {"status": "Draft"}):
        assert not check.is_valid(wrong)


def test_registry_record_states_what_the_run_states():
    about = Identity(run="march-1f", begun="2026-03-01", controller="H", purpose="P", region="R", sector="Healthcare")
    basic = registry_record(replace(facts(), identity=about))["deployment"]["basic"]
    assert (basic["data_curators"], basic["intended_use"], basic["data_product_region"]) == (["H"], "P", "R")
    assert basic["data_product_sector"] == "Healthcare"
    assert registry_record(facts())["deployment"]["basic"]["intended_use"] == MISSING
    assert missing_fields(facts()) == ("controller", "purpose", "region")
    with pytest.raises(InputError, match="sector is 'Toys'"):
        registry_record(replace(facts(), identity=replace(about, sector="Toys")))


@pytest.mark.parametrize("options", [{"bound": "exact"}, {"seeded": True}, {"stopped_by": "other"}], ids=name)
def test_run_without_guarantee_has_no_exports(options):
    found = facts(**options)
    with pytest.raises(InputError, match="no guarantee"):
        registry_record(found)
    with pytest.raises(InputError, match="no guarantee"):
        model_card(found, {})
    assert group_events(found) == ()


@pytest.mark.parametrize("options", GAUSSIAN, ids=name)
def test_dp_accounting_finds_the_same_epsilon(reported, options):
    report = reported(**options)
    found = group_events(report.facts)
    assert [entry.group for entry in found] == [group.id for group in report.facts.groups]
    for entry, spent in zip(found, report.facts.outcome.groups, strict=True):
        assert entry.epsilon == spent.cost > 0
        assert entry.recomputed() == pytest.approx(spent.cost, abs=1e-6)
        assert report.events()[entry.group] == entry.event()


def test_events_include_earlier_runs_on_the_ledger(tmp_path):
    ledger = tmp_path / "ledger.sqlite"
    for number in (1, 2):
        making.run(tmp_path / f"run{number}", ledger=ledger, labelling={"max_labels": 6})
    found = write_report(tmp_path / "run2").facts
    assert found.outcome.carried
    for entry, spent in zip(group_events(found), found.outcome.groups, strict=True):
        assert entry.recomputed() == pytest.approx(spent.cost, abs=1e-6)


def test_bounds_without_gaussian_costs_have_no_events(made, tmp_path):
    run = made(bound="sup")
    found = write_report(run).facts
    assert group_events(found) == ()
    with pytest.raises(InputError, match="not those of Gaussian or Laplace releases"):
        write_exports(run, found, events=tmp_path / "events.json", registry=tmp_path / "r.yaml")
    assert list(tmp_path.iterdir()) == []


def test_report_command_writes_all_exports(made, tmp_path, capsys):
    files = {name: tmp_path / name for name in ("d.yaml", "README.md", "e.json")}
    options = ["--registry", files["d.yaml"], "--model-card", files["README.md"], "--events", files["e.json"]]
    assert _run(["report", str(made()), "--out", str(tmp_path / "r.html"), *map(str, options)]) == 0
    assert "Complete controller" in capsys.readouterr().out
    jsonschema.Draft7Validator(SCHEMA).validate(yaml.safe_load(files["d.yaml"].read_text()))
    _, front, card = files["README.md"].read_text().split("---\n", 2)
    assert yaml.safe_load(front)["privacy"]["largest_epsilon"] == 20.0
    assert "## What it is" in card
    assert "## Who is responsible" in card
    events = json.loads(files["e.json"].read_text())
    assert [entry["group"] for entry in events["groups"]] == ["high", "low"]
    twin = json.loads((tmp_path / "r.json").read_text())
    assert twin["publishable"]["events"] == events["groups"]


def test_exports_of_a_private_report_are_public(reported, made, tmp_path):
    run = made()
    write_exports(run, reported("private").facts, registry=tmp_path / "own.yaml")
    write_exports(run, for_audience(reported().facts, "public"), registry=tmp_path / "all.yaml")
    assert (tmp_path / "own.yaml").read_text() == (tmp_path / "all.yaml").read_text()
