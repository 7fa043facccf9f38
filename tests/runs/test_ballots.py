"""Runs with ballots: one charged release, used again after a crash, and no one's leaving can be seen."""

import json

import numpy as np
import pytest

from choosing import chosen_by_run
from ipate.cli.run import _payload
from ipate.config import RunConfig
from ipate.engines.ballots.counting import CODEC
from ipate.errors import BudgetExceededError, InputError
from ipate.files import unpack_arrays
from ipate.ledger.sqlite import SqliteLedger
from ipate.runs.folder import RunFolder
from ipate.runs.ledgers import ledger_path, read_record
from ipate.runs.reporting import write_report
from ipate.runs.stages import allocated, execute
from ipate.runs.statements import state
from ipate.runs.store import FolderStore
from ipate.runs.withdrawal import withdraw
from runs.leaving import N_ROWS, people_file
from runs.making import quiet


def settings(file, *, policy=(2.0, 6.0), **more):
    labelling = {"voting": "ballots", **more.pop("labelling", {})}
    return RunConfig.from_mapping(
        {
            "data": {
                "file": file,
                "label": "sick",
                "level": "consent",
                "person": "person",
                "classes": ["0", "1"],
                "public": 60,
                "test": 20,
                "public_without_protection": True,
            },
            "budgets": {"policy": dict(zip(("high", "low"), policy, strict=True)), "delta": 1e-4},
            "labelling": labelling,
            **more,
        }
    )


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "people.csv"
    people_file(path)
    return path


def run(path, file, **more):
    return execute(RunFolder.create(path, settings(file, **more)), bar=quiet)


def stored(folder):
    """Return the histogram and the number of charges for ballots in the run's ledger."""
    with SqliteLedger.read(ledger_path(folder), folder.id) as ledger:
        charges = [charge for _, charge in ledger._charged() if charge.codec == CODEC]
        return unpack_arrays(charges[0].payload)["counts"], len(charges)


def test_run_labels_whole_pool_within_everybodys_budget(tmp_path, file):
    found = run(tmp_path / "out", file)
    record = found.record
    assert record.kind == "releasable"
    assert (record.labels >= 0).all()
    assert found.metrics["student_accuracy"] > 0.85
    for group in record.groups:
        assert 0.9 * group.budget.epsilon < group.cost <= group.budget.epsilon
        assert group.weight == group.sensitivity
    assert record.ballots.classes == 2
    assert record.ballots.weight == pytest.approx(
        sum(group.group.people * group.weight for group in record.groups), rel=1e-12
    )
    public = tmp_path / "out" / "public"
    assert {path.name for path in public.iterdir()} == {
        "ballots.npz",
        "guarantee.json",
        "labels.csv",
        "report.html",
        "report.json",
        "student",
    }
    assert len((public / "labels.csv").read_text().splitlines()) == 1 + len(record.labels)


def test_release_is_not_drawn_again_after_a_crash(tmp_path, file, monkeypatch):
    folder = RunFolder.create(tmp_path / "out", settings(file))

    def crash(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(FolderStore, "keep_record", crash)
    with pytest.raises(KeyboardInterrupt):
        execute(folder, bar=quiet)
    monkeypatch.undo()
    assert read_record(folder) is None
    before, charges = stored(folder)
    assert charges == 1
    found = execute(RunFolder.open(folder.path), bar=quiet)
    after, charges = stored(folder)
    assert charges == 1
    np.testing.assert_array_equal(before, after)
    with np.load(folder.public / "ballots.npz") as archive:
        np.testing.assert_array_equal(archive["histogram"], before)
    again = execute(RunFolder.open(folder.path), bar=quiet)
    np.testing.assert_array_equal(found.record.labels, again.record.labels)


def test_edited_labels_of_ballots_are_refused(tmp_path, file):
    run(tmp_path / "out", file)
    path = tmp_path / "out" / "private" / "labelling.json"
    record = json.loads(path.read_text())
    record["labels"][0] = 1 - record["labels"][0]
    path.write_text(json.dumps(record))
    with pytest.raises(InputError, match="other labels than the ledger's histogram"):
        execute(RunFolder.open(tmp_path / "out"), bar=quiet)


def test_withdrawal_empties_ballot_and_changes_no_public_figure(tmp_path, file):
    seeded = {"seed": 3}
    whole = run(tmp_path / "whole", file, **seeded)
    folder = RunFolder.create(tmp_path / "left", settings(file, **seeded))
    people = allocated(folder).people
    person = people.ids[0]
    with folder.locked():
        entry = withdraw(folder, allocated(folder), str(person))
    assert (entry.labelling, entry.teachers, entry.ballots) == ("not begun", (), 0)
    left = execute(RunFolder.open(folder.path), bar=quiet)
    assert left.record.ballots == whole.record.ballots
    assert [group.cost for group in left.record.groups] == [group.cost for group in whole.record.groups]
    first, second = (np.load(tmp_path / name / "private" / "ballots.npz")["histogram"] for name in ("whole", "left"))
    weight = next(g.weight for g in whole.record.groups if g.id == people.group_of(person).id)
    moved = (first - second) / 8
    assert 0 < np.linalg.norm(moved) <= weight + np.sqrt(np.count_nonzero(moved)) / 8
    statement = state(RunFolder.open(folder.path), str(person), private=True)
    assert statement.withdrawn is not None
    assert statement.ballots == 0


def test_withdrawal_after_release_keeps_labels_and_charge(tmp_path, file):
    found = run(tmp_path / "out", file)
    folder = RunFolder.open(tmp_path / "out")
    person = str(allocated(folder).people.ids[1])
    with folder.locked():
        entry = withdraw(folder, allocated(folder), person)
    assert (entry.labelling, entry.ballots) == ("complete", 1)
    assert entry.epsilon > 0
    again = execute(RunFolder.open(folder.path), bar=quiet)
    np.testing.assert_array_equal(found.record.labels, again.record.labels)
    assert stored(folder)[1] == 1
    statement = state(folder, person)
    assert statement.ballots == 1
    assert any("one histogram of everybody's ballots" in line for line in _sentences(statement))


def _sentences(statement):
    from ipate.report.statement import sentences

    return sentences(statement)


@pytest.mark.parametrize("changed", range(6))
def test_one_person_moves_histogram_by_at_most_root_two_weights(tmp_path, file, changed):
    """The same seed on neighbouring files leaves the difference of the exact histograms, in steps of σ/8."""
    before = run(tmp_path / "before", file, seed=changed)
    lines = file.read_text().splitlines()
    person = before.allocation.people.ids[13 * changed]
    for place, line in enumerate(lines):
        cells = line.split(",")
        if cells[-1] == person:
            other = {0: "x", 1: "9", 2: cells[2], 3: "0" if cells[2] == "1" else "1"}[changed % 4]
            lines[place] = ",".join([f"{7 - 3 * (changed % 3)}", "nan" if changed == 5 else "-2", other, *cells[3:]])
    file.write_text("\n".join(lines) + "\n")
    after = run(tmp_path / "after", file, seed=changed)
    assert before.record.ballots == after.record.ballots
    weights = [group.weight for group in before.record.groups]
    first, second = (np.load(tmp_path / name / "private" / "ballots.npz")["histogram"] for name in ("before", "after"))
    moved = (first - second) / 8
    rounding = np.sqrt(np.count_nonzero(moved)) / 8
    assert np.linalg.norm(moved) <= np.sqrt(2) * max(weights) + rounding
    names = [
        sorted(str(path.relative_to(tmp_path / name)) for path in (tmp_path / name / "public").rglob("*"))
        for name in ("before", "after")
    ]
    assert names[0] == names[1]


def test_later_run_with_teachers_pays_with_what_ballots_left(tmp_path, file):
    many = {"policy": (1.0, 3.0)}
    first = run(tmp_path / "one", file, **many)
    with pytest.raises(BudgetExceededError, match="left of the budgets"):
        run(tmp_path / "two", file, **many)
    larger = {"policy": (20.0, 60.0), "accept_larger_budgets": True}
    second = execute(
        RunFolder.create(
            tmp_path / "three",
            settings(
                file,
                **larger,
                labelling={"voting": "teachers", "sigma": 2.0, "max_labels": 5},
                teachers={"model": "bayes", "number": 12, "backend": "sequential"},
            ),
        ),
        bar=quiet,
    )
    for before, now in zip(first.record.groups, second.record.groups, strict=True):
        assert now.before == pytest.approx(before.cost, rel=1e-6)
        assert now.before < now.cost <= now.budget.epsilon
    assert second.record.n_queries <= N_ROWS
    assert second.record.ballots is None


@pytest.mark.parametrize("policy", [(0.6, 1.5), (2.0, 6.0)], ids=["spent", "left over"])
def test_private_history_hides_weights_of_ballots(tmp_path, file, caplog, policy):
    teachers = {"model": "bayes", "number": 20, "backend": "sequential"}
    exact = {"voting": "teachers", "bound": "exact", "aggregator": "gnmax", "sigma": 30.0, "min_labels": 0}
    shown, earlier = [], []
    for number in (1, 4):
        folder = tmp_path / str(number)
        folder.mkdir()
        own = folder / "people.csv"
        own.write_text(file.read_text())
        counted = {**exact, "stop": "count", "max_labels": number}
        run(folder / "exact", own, teachers=teachers, labelling=counted, policy=policy)
        caplog.clear()
        with caplog.at_level("WARNING", logger="ipate"):
            found = run(folder / "ballots", own, policy=policy)
        assert found.record.kind == "private"
        payload = _payload(found, tmp_path)
        assert [group["weight"] for group in payload["private"]["groups"]] == [g.weight for g in found.record.groups]
        shown.append((payload["publishable"], [line.getMessage() for line in caplog.records]))
        earlier.append([group.before for group in found.record.groups])
    assert earlier[0] != earlier[1]
    assert shown[0] == shown[1]


def test_standard_ballots_use_the_strictest_budget(tmp_path, file):
    found = run(tmp_path / "out", file, labelling={"variant": "standard"})
    (group,) = found.record.groups
    assert group.budget.epsilon == 2.0
    assert found.record.kind == "releasable"


def test_parameters_of_teachers_are_refused_with_ballots(file):
    for wrong, message in (
        ({"labelling": {"sigma": 4.0}}, "sigma is 4.0: it is for teachers"),
        ({"labelling": {"variant": "upsampling"}}, "use weighting or standard"),
        ({"labelling": {"bound": "tight"}}, "ballots have a cost for all data"),
        ({"teachers": {"number": 7}}, "number is 7: it is for teachers"),
    ):
        config = settings(file, **wrong)
        with pytest.raises(InputError, match=message):
            chosen_by_run(config)


def test_auto_takes_ballots_only_where_they_are_reliable(file):
    def chosen(**more):
        config = settings(file, **{**more, "labelling": {"voting": "auto", **more.get("labelling", {})}})
        return chosen_by_run(config)[1]

    small = chosen(policy=(20.0, 50.0))
    assert small.engine == "teachers"
    assert "the pool has 79 points for 2 classes" in small.reason
    by_hand = chosen(labelling={"sigma": 3.0, "min_labels": 0})
    assert "parameters of teachers are given" in by_hand.reason


def test_refusal_of_teachers_names_what_ballots_afford(file):
    config = settings(file, policy=(0.2, 0.3), labelling={"voting": "teachers"})
    with pytest.raises(InputError, match=r"Ballots \(voting = 'ballots'\) would label all 79 points at once"):
        chosen_by_run(config)


def test_budgets_too_small_for_ballots_are_refused(tmp_path, file):
    config = settings(file, policy=(0.001, 0.002))
    with pytest.raises(InputError, match="labels are noise"):
        chosen_by_run(config)


def test_report_explains_ballots_and_its_program_recomputes_costs(tmp_path, file):
    found = run(tmp_path / "out", file)
    text = (tmp_path / "out" / "public" / "report.html").read_text()
    for part in ("cast one ballot each", "whether they cast a ballot or not", "histogram of all ballots"):
        assert part in " ".join(text.split())
    assert "teachers k" not in text
    report = json.loads((tmp_path / "out" / "public" / "report.json").read_text())["publishable"]
    space = {}
    exec(report["guarantee"]["program"].replace("print(costs)", ""), space)  # the program of the page
    for group in found.record.groups:
        assert space["costs"][group.id] == pytest.approx(group.cost, rel=1e-6)
    private = write_report(tmp_path / "out", audience="private")
    assert "queries asked" not in private.html.read_text()
