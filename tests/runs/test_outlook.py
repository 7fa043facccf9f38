"""Reasons, refusals and plans count what earlier runs left of the budgets, unless that is private."""

import json
import re
from pathlib import Path

import pytest

from choosing import chosen_by_run
from ipate.accounting.bounds import Meter
from ipate.cli.app import _run
from ipate.config import RunConfig
from ipate.engines.ballots.design import about
from ipate.errors import InputError
from ipate.runs.folder import RunFolder
from ipate.runs.ledgers import standing_of
from ipate.runs.stages import execute
from runs.leaving import people_file
from runs.making import quiet

TOML = """
[data]
file = "people.csv"
label = "sick"
level = "consent"
person = "person"
classes = ["0", "1"]
public = 60
test = 20
public_without_protection = true
[budgets]
policy = {{ high = {high}, low = {low} }}
delta = 1e-4
[teachers]
model = "bayes"
backend = "sequential"
[labelling]
{labelling}
[student]
model = "bayes"
"""
EXACT = 'bound = "exact"\naggregator = "gnmax"\nsigma = 30.0\nstop = "count"\nmax_labels = {}'


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write people and a configuration into a folder, and return the configuration's path."""

    def made(labelling, folder=".", high=6.0):
        (tmp_path / folder).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / folder)
        if not (tmp_path / folder / "people.csv").is_file():
            people_file(tmp_path / folder / "people.csv")
        (tmp_path / folder / "run.toml").write_text(TOML.format(labelling=labelling, high=high, low=2 * high))
        return tmp_path / folder / "run.toml"

    return made


def run(out):
    return execute(RunFolder.create(out, RunConfig.from_file(Path("run.toml"))), bar=quiet)


def plan(capsys, *more):
    assert _run(["plan", "run.toml", "--json", *more]) == 0
    return json.loads(capsys.readouterr().out)


def test_reason_of_ballots_states_what_was_released(write, tmp_path):
    """The budgets are so small that all that is left is used."""
    write('voting = "teachers"\nmax_labels = 2', high=2.0)
    run(tmp_path / "first")
    write('voting = "ballots"', high=2.0)
    found = run(tmp_path / "second")
    facts = found.record.ballots
    wanted = (
        f"ballots with a total weight of {about(facts.weight)} noise deviations from what earlier runs left of the "
        f"budgets, {about(facts.per_class)} per class, in 16 partitions of {facts.cells} cells"
    )
    assert found.settings.reason == wanted
    assert wanted in (tmp_path / "second" / "public" / "report.json").read_text()
    assert wanted in json.loads((tmp_path / "second" / "settings.json").read_text())["reason"]


def test_plan_after_a_run_counts_what_is_left(write, tmp_path, capsys):
    write('voting = "teachers"')
    before = plan(capsys)
    write('voting = "teachers"\nmax_labels = 6')
    run(tmp_path / "first")
    write('voting = "teachers"')
    after = plan(capsys)
    (told,) = [note for note in after["notes"] if "Earlier runs on people.ledger.sqlite" in note]
    assert re.search(r"have spent at most .*high ε = [\d.]+ of 6.*these figures are for what is left", told)
    assert after["outlook"][0]["labels"] < before["outlook"][0]["labels"]
    assert after["ballots"]["weighting"]["affordable_weight"] < before["ballots"]["weighting"]["affordable_weight"]
    found = run(tmp_path / "second")
    assert found.settings.reason == after["reason"]
    planned = next(entry for entry in after["variants"] if entry["variant"] == "weighting")
    rates = {entry["rate"]: entry["queries"] for entry in planned["guaranteed"]}
    asked = found.record.n_queries - 6  # the first run's answers are given again
    assert rates[1.0] <= asked <= max(rates[0.5], 60)
    assert "what earlier runs left of the budgets affords about" in found.settings.reason


def test_plan_of_a_refused_run_says_so(write, tmp_path, capsys):
    write('voting = "teachers"\nmax_labels = 6')
    run(tmp_path / "first")
    write('voting = "teachers"\nbound = "loose"')
    (told,) = [note for note in plan(capsys)["notes"] if note.startswith("The run would be refused")]
    assert "charged under gdp, and this run charges loose" in told
    assert "for whole budgets" in told


def test_private_history_is_told_by_no_figure(write, tmp_path, capsys):
    """Two ledgers with other private charges: plans, settings and their reasons are the same."""
    seen = []
    for number in (1, 5):
        write(EXACT.format(number), str(number))
        run(tmp_path / str(number) / "first")
        write('voting = "teachers"', str(number))
        made = plan(capsys)
        assert any("These figures are for whole budgets" in note for note in made["notes"])
        assert "is not stated" in made["reason"]
        assert re.search(r"about [\d,]+ labels", made["reason"]) is None
        seen.append(made)
        config = RunConfig.from_file(write('voting = "ballots"', str(number)))
        task, settings = chosen_by_run(config)
        standing = standing_of(task, task.people, Meter())
        assert standing.private
        assert not standing.groups
        seen[-1]["ballots"] = settings.reason
        assert "weight is not stated" in seen[-1]["ballots"]
    assert seen[0] == seen[1]


def test_private_history_is_told_by_no_refusal(write, tmp_path, capsys):
    """Whether a budget is spent must not show for any ε: whoever tries several would find the private cost."""
    write(EXACT.format(5))
    run(tmp_path / "first")
    for high in (1e-3, 0.1, 6.0):
        write('voting = "teachers"', high=high)
        notes = plan(capsys)["notes"]
        counted = "these budgets, counted whole, and this pool afford"
        assert all(counted in note for note in notes if "refused" in note)
        assert any("These figures are for whole budgets" in note for note in notes)
        config = RunConfig.from_file(write('voting = "teachers"\nmin_labels = 1000', high=high))
        with pytest.raises(InputError, match="these budgets, counted whole, and this pool afford about"):
            chosen_by_run(config)


def test_plan_under_another_bound_reads_the_ledger_by_it(write, tmp_path, capsys):
    write('voting = "teachers"\nmax_labels = 6')
    run(tmp_path / "first")
    (told,) = [note for note in plan(capsys, "--bound", "loose")["notes"] if "would be refused" in note]
    assert "charged under gdp, and this run charges loose" in told
    assert not any("would be refused" in note for note in plan(capsys)["notes"])


def test_rotating_teachers_without_any_label_left_are_refused(write, tmp_path):
    """The ledger does not know who will take part, so it cannot refuse them by itself."""
    config = RunConfig.from_file(write('voting = "teachers"\nvariant = "vanishing"'))
    run(tmp_path / "first")
    with pytest.raises(InputError, match=r"^what earlier runs left of these budgets and this pool afford about"):
        chosen_by_run(config)


def test_refusal_counts_what_earlier_runs_left(write, tmp_path):
    write('voting = "teachers"\nmax_labels = 6')
    run(tmp_path / "first")
    config = RunConfig.from_file(write('voting = "teachers"\nmin_labels = 100'))
    with pytest.raises(InputError, match=r"^what earlier runs left of these budgets and this pool afford about"):
        chosen_by_run(config)
