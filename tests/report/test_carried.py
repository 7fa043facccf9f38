"""The report of a run on a shared ledger starts from opening balances and shows earlier costs."""

import json

import pytest

from blocks import flat
from ipate.errors import InputError, IpateError
from ipate.report.exports import recipe
from ipate.runs.reporting import write_report
from runs.making import labels, run


@pytest.fixture(scope="module", params=["gdp", "loose"])
def two(request, tmp_path_factory):
    """Make two runs on one ledger; the second reuses the answers of the first and asks more queries."""
    top = tmp_path_factory.mktemp(request.param)
    made = [
        run(top / name, ledger=top / "shared.sqlite", labelling=labels(number, bound=request.param))
        for name, number in (("a", 3), ("b", 6))
    ]
    return top, made


def test_report_adds_costs_of_both_runs(two):
    top, (first, second) = two
    report = write_report(top / "b")
    found = flat(json.loads(report.json.read_text()))
    assert found["ledger_head"] == second.record.ledger_head
    assert found["labelling"]["reused"] == {"labels": 3, "queries": first.record.n_queries}
    points = found["labelling"]["history"]["points"]
    assert [points[0][1], points[-1][1]] == [0, second.record.n_labels - 3]
    for place, entry in enumerate(found["groups"]):
        assert entry["spent_before"] == pytest.approx(first.record.groups[place].cost, rel=1e-9)
        assert points[0][2 + place] == pytest.approx(entry["spent_before"])
        assert points[-1][2 + place] == pytest.approx(entry["cost"], rel=1e-6)
        assert 0 < entry["this_run_alone"] < entry["cost"] <= entry["budget"]
    text = report.html.read_text()
    assert "before ε" in text
    assert "Everything was charged to one ledger" in text
    assert "3 of the labels were paid by earlier runs" in text
    before = flat(json.loads(write_report(top / "a").json.read_text()))
    assert [entry["spent_before"] for entry in before["groups"]] == [0, 0]
    assert "before ε" not in (top / "a" / "public" / "report.html").read_text()


def test_report_program_includes_earlier_cost(two):
    top, _ = two
    facts = write_report(top / "b").facts
    space = {"print": lambda *_: None}
    exec(recipe(facts), space)
    for spent in facts.outcome.groups:
        assert space["costs"][spent.id] == pytest.approx(spent.cost, rel=1e-6)
        assert spent.before > 0


def test_report_quotes_guarantee_of_the_record(tmp_path):
    made = run(tmp_path / "a", labelling=labels(3, stop="count"))
    found = flat(json.loads(write_report(tmp_path / "a").json.read_text()))
    assert found["guarantee"]["statement"] == made.record.statement
    assert found["guarantee"]["stopped_by"] == "fixed"


def test_rolled_back_ledger_and_edited_answer_are_refused(tmp_path):
    ledger = tmp_path / "shared.sqlite"
    run(tmp_path / "a", ledger=ledger, labelling=labels(2))
    old = ledger.read_bytes()
    run(tmp_path / "b", ledger=ledger, labelling=labels(4))
    newest = ledger.read_bytes()
    ledger.write_bytes(old)
    with pytest.raises(IpateError, match="older copy of the ledger"):
        write_report(tmp_path / "b")
    ledger.write_bytes(newest)
    path = tmp_path / "b" / "private" / "labelling.json"
    record = json.loads(path.read_text())
    answered = next(query for query in record["queries"] if record["labels"][query] >= 0)
    record["labels"][answered] = (record["labels"][answered] + 1) % 10
    path.write_text(json.dumps(record))
    with pytest.raises(InputError, match="another answer"):
        write_report(tmp_path / "b")


def test_public_report_after_private_run_shows_no_cost(tmp_path):
    ledger = tmp_path / "shared.sqlite"
    run(tmp_path / "a", ledger=ledger, labelling=labels(2, bound="exact"))
    run(tmp_path / "b", ledger=ledger, labelling=labels(4))
    report = write_report(tmp_path / "b")
    found = flat(json.loads(report.json.read_text()))
    assert (found["labelling"], found["ledger_head"]) == (None, None)
    assert "cost" not in found["groups"][0]
    assert "spent_before" not in found["groups"][0]
    assert (
        "an earlier run on the same ledger was charged by costs computed from private votes"
        in found["guarantee"]["summary"][0]
    )
    owner = flat(json.loads(write_report(tmp_path / "b", audience="private").json.read_text()))
    assert owner["groups"][0]["spent_before"] > 0
    assert owner["ledger_head"] is not None


def test_ledger_head_of_private_run_stays_private(made):
    """The number of charges in the head would reveal the length of the run."""
    run_folder = made(bound="exact", seed=3)
    head = json.loads((run_folder / "private" / "labelling.json").read_text())["ledger_head"]
    public = write_report(run_folder)
    assert head not in public.html.read_text() + public.json.read_text()
    assert head in write_report(run_folder, audience="private").json.read_text()


def test_report_shows_versions_and_classes_of_run(copied):
    run_folder = copied()
    path = run_folder / "run.json"
    facts = json.loads(path.read_text())
    facts["versions"]["numpy"] = "0.0.then"
    facts["resumed_with"] = [{**facts["versions"], "numpy": "0.1.later"}]
    path.write_text(json.dumps(facts))
    data = json.loads((run_folder / "data.json").read_text())
    data["notes"] = ["A note of that day."]
    (run_folder / "data.json").write_text(json.dumps(data))
    report = write_report(run_folder)
    found = flat(json.loads(report.json.read_text()))
    assert found["versions"]["numpy"] == "0.0.then"
    assert found["later_versions"][0]["numpy"] == "0.1.later"
    assert found["data"]["notes"][0] == "A note of that day."
    assert (found["data"]["test"], found["data"]["n_classes"]) == (300, 10)
    assert "0.1.later" in report.html.read_text()
