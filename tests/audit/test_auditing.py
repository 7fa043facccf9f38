"""An audit finds faults in the code that it runs, and nothing in sound code; it is not told where to look."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from ipate.allocation import allocation as allocating
from ipate.allocation.allocation import Allocation
from ipate.audit.auditing import FOUND, PASSED, audit
from ipate.cli.app import _run
from ipate.engines.ballots import counting, design, release
from ipate.engines.ballots.design import GRID, SIGMA, Design
from ipate.engines.teachers import engine as teaching
from ipate.engines.teachers.aggregators import NamedAggregator
from ipate.engines.teachers.loop import LabellingState
from ipate.errors import InputError
from ipate.pipeline import Pupil
from ipate.release.noise import SecureNoise, SeededNoise
from ipate.runs.folder import RunFolder
from runs import hospital, making

DRAWS = 20_000
SYNTHETIC = {
    "data": {"name": "synthetic", "public": 100, "test": 49_000},
    "budgets": {"policy": {"high": 3.0, "average": 6.0, "low": 9.0}, "shares": None},
    "teachers": {"number": "auto"},
    "labelling": {"voting": "ballots", "sigma": "auto", "check_sigma": "auto", "threshold": "auto"},
}
VARIANTS = {
    "upsampling": {"variant": "upsampling"},
    "vanishing": {"variant": "vanishing"},
    "drop": {"stop": "drop", "rule": "proportional"},
    "without a check": {"aggregator": "gnmax", "check_sigma": "auto", "threshold": "auto"},
    "sup": {"bound": "sup"},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Sound runs, made once."""
    home = tmp_path_factory.mktemp("runs")
    making.run(home / "labels")
    making.run(home / "counts", labelling={"counts": True})
    making.run(home / "ballots", **SYNTHETIC)
    return home


def shown(found, attack):
    """The bounds of an attack beside the smaller of promise and charge, by group."""
    return {
        group.group: (own.reached, min(group.promised, own.charged))
        for group in found.groups
        for own in group.attacks
        if own.name == attack
    }


@pytest.mark.parametrize(
    ("kind", "attack", "share"),
    [("labels", "labels", 0.5), ("labels", "checks", 0.6), ("counts", "counts", 0.9), ("ballots", "ballots", 0.9)],
)
def test_attack_comes_near_but_stays_below_charge(runs, kind, attack, share):
    found = audit(runs / kind, draws=DRAWS)
    assert (found.found, found.verdict) == (False, PASSED)
    for reached, least in shown(found, attack).values():
        assert share * least < reached <= least


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_nothing_is_found_in_sound_variants(tmp_path, options):
    making.run(tmp_path / "run", labelling=options)
    found = audit(tmp_path / "run", draws=2000)
    assert not found.found
    assert all(group.reached > 0 for group in found.groups)


def test_halved_noise_of_labels_is_found(runs, monkeypatch):
    sound = NamedAggregator.label_noise
    monkeypatch.setattr(NamedAggregator, "label_noise", lambda *given: 0.5 * sound(*given))
    for kind, attack in (("labels", "labels"), ("counts", "counts")):
        found = audit(runs / kind, draws=DRAWS)
        assert found.verdict == FOUND
        assert all(reached > least for reached, least in shown(found, attack).values())


def test_halved_noise_of_checks_is_found(runs, monkeypatch):
    sound = SecureNoise.normal
    half = lambda self, purpose, *rest: sound(self, purpose, *rest) * (0.5 if purpose == "check" else 1.0)  # noqa: E731
    monkeypatch.setattr(SecureNoise, "normal", half)
    assert audit(runs / "labels", draws=DRAWS).found


def test_one_draw_for_all_classes_is_found(runs, monkeypatch):
    sound = NamedAggregator.label_noise
    same = lambda self, queries, width, noise: sound(self, queries, 1, noise) * np.ones(width)  # noqa: E731
    monkeypatch.setattr(NamedAggregator, "label_noise", same)
    assert audit(runs / "labels", draws=DRAWS).found
    counts = audit(runs / "counts", draws=DRAWS)
    assert counts.found
    assert not counts.noise[0].fresh


def test_noise_that_repeats_in_every_run_is_found(runs, monkeypatch):
    monkeypatch.setattr(teaching, "make_noise", _secret)
    found = audit(runs / "labels", draws=DRAWS)
    assert found.found
    assert not any(measured.fresh for measured in found.noise)


def _secret(seed):
    """Noise that is called secure and comes from a fixed seed."""
    made = SeededNoise(0 if seed is None else seed)
    made.seeded = False
    return made


def test_uncharged_checks_are_found(runs, monkeypatch):
    sound = LabellingState._costs

    def free(self, tally, probs):
        checks, labels = sound(self, tally, probs)
        return 0 * checks, labels

    monkeypatch.setattr(LabellingState, "_costs", free)
    for kind in ("labels", "counts"):
        found = audit(runs / kind, draws=DRAWS)
        assert found.found
        assert all(least == 0 < reached for reached, least in shown(found, "checks").values())


def test_two_teachers_with_one_person_are_found(runs, monkeypatch):
    def wide(self, teacher):
        slots = self.persons[self.offsets[teacher] : self.offsets[teacher + 1] + 1]
        return slots[slots >= 0]

    monkeypatch.setattr(Allocation, "people_of_teacher", wide)
    found = audit(runs / "labels", draws=DRAWS)
    assert found.found
    assert {group.teachers for group in found.groups} == {2}


def test_budgets_of_teachers_swapped_are_found(tmp_path, monkeypatch):
    def swapped(people, layout):
        position = {group.id: place for place, group in enumerate(layout.groups)}
        return np.array([position[layout.home[g.id]] for g in reversed(people.groups)])[people.group_of_person]

    monkeypatch.setattr(allocating, "_home_of", swapped)
    making.run(tmp_path / "run")
    found = audit(tmp_path / "run", draws=DRAWS)
    high = next(group for group in found.groups if group.group == "high")
    assert high.reached > high.promised == 6.0


def test_budget_above_the_policy_is_found(runs):
    folder = RunFolder.open(runs / "labels")
    stated = folder.read(folder.path / "config.json")
    try:
        folder.write(folder.path / "config.json", {**stated, "budgets": {**stated["budgets"], "policy": {"high": 1.0}}})
        found = audit(folder.path, draws=DRAWS)
    finally:
        folder.write(folder.path / "config.json", stated)
    assert [group.group for group in found.groups if group.found] == ["high"]


def test_halved_noise_of_ballots_is_found(runs, monkeypatch):
    monkeypatch.setattr(counting, "SIGMA", 0.5 * SIGMA)
    monkeypatch.setattr(counting, "in_steps", lambda noisy, sigma: np.rint(noisy * 8 / SIGMA).astype(np.int64))
    assert audit(runs / "ballots", draws=DRAWS).found


def test_forgotten_root_two_of_ballots_is_found(runs, monkeypatch):
    sound = design._price
    monkeypatch.setattr(design, "_price", lambda terms, weight: sound(terms, weight / math.sqrt(2)))
    found = audit(runs / "ballots", draws=DRAWS)
    assert all(reached > 1.2 * least for reached, least in shown(found, "ballots").values())


def test_forgotten_root_of_partitions_is_found(runs, monkeypatch):
    forgotten = property(lambda self: {account: units * GRID for account, units in self.units.items()})
    monkeypatch.setattr(Design, "weights", forgotten)
    found = audit(runs / "ballots", draws=DRAWS)
    assert found.found
    assert all(reached > 2 * least for reached, least in shown(found, "ballots").values())


def test_rows_that_add_up_in_a_ballot_are_found(runs, monkeypatch):
    def added(cells, y, *, units, person_of_row, shape, readable=None):
        """Every row has the whole weight of its person."""
        found = np.zeros(shape, dtype=np.int64)
        for k in range(shape[0]):
            np.add.at(found[k], (cells[:, k], np.asarray(y)), units[person_of_row])
        return found

    monkeypatch.setattr(release, "sum_ballots", added)
    assert audit(runs / "ballots", draws=DRAWS).found


def test_budgets_of_ballots_swapped_are_found(runs, monkeypatch):
    def swapped(made, people):
        return np.array([made.units[group.id] for group in reversed(people.groups)])[people.group_of_person]

    monkeypatch.setattr(release, "units_by_person", swapped)
    found = audit(runs / "ballots", draws=DRAWS)
    assert any(group.found for group in found.groups)


def test_student_that_sees_private_rows_is_found(runs, monkeypatch):
    sound = Pupil.taught

    def leaky(self, task, lesson):
        own = np.full(len(lesson.record.labels), task.codes[0])
        own[0] = 1 - own[0]
        return sound(self, task, replace(lesson, record=replace(lesson.record, labels=own)))

    monkeypatch.setattr(Pupil, "taught", leaky)
    found = audit(runs / "labels", draws=2000, student_runs=30, confidence=0.9)
    student = [attack for group in found.groups for attack in group.attacks if attack.name == "student"]
    assert all(attack.reached > 1 for attack in student)


def test_sound_student_shows_nothing_above_promise(runs):
    found = audit(runs / "ballots", draws=2000, student_runs=10)
    student = [attack for group in found.groups for attack in group.attacks if attack.name == "student"]
    assert [attack.charged for attack in student] == [None, None, None]
    assert not found.found


def test_run_of_people_is_audited_without_their_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hospital.files(tmp_path)
    run = tmp_path / "run"
    assert _run(["run", str(hospital.config(tmp_path)), "--out", str(run), "--json"]) == 0
    whole = audit(run, draws=2000, on_real_people=True)
    assert whole.private
    for name in ("allocation.npz", "labelling.json"):
        (run / "private" / name).unlink()
    (run / "private" / "votes").rename(tmp_path / "gone")
    (tmp_path / "private.csv").unlink()
    found = audit(run, draws=2000)
    assert (found.found, found.private, found.people) == (False, False, "made-up people")
    assert {group.group for group in found.groups} == {"high", "low"}


def test_audit_of_run_without_guarantee_is_private(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hospital.files(tmp_path)
    made = ["run", str(hospital.config(tmp_path)), "--out", str(tmp_path / "run"), "--seed", "3", "--json"]
    assert _run(made) == 0
    found = audit(tmp_path / "run", draws=2000)
    assert (found.guarantee, found.private, found.people) == ("none", True, "made-up people")
    assert found.verdict.startswith("the run promises nothing")


def test_audit_leaves_run_and_folder_as_they_were(runs):
    before = {path: path.stat().st_mtime_ns for path in sorted((runs / "labels").rglob("*"))}
    audit(runs / "labels", draws=2000)
    assert {path: path.stat().st_mtime_ns for path in sorted((runs / "labels").rglob("*"))} == before


def test_command_states_verdict_by_exit_code(runs, monkeypatch, capsys):
    assert _run(["audit", str(runs / "labels"), "--draws", "2000"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Nothing above the promise" in shown
    assert "those of a copy with made-up data and whole budgets, not of the run" in shown
    assert "verdict" in shown
    sound = NamedAggregator.label_noise
    monkeypatch.setattr(NamedAggregator, "label_noise", lambda *given: 0.1 * sound(*given))
    assert _run(["audit", str(runs / "labels"), "--draws", "2000"]) == 1
    assert "ABOVE" in capsys.readouterr().out
    assert _run(["audit", str(runs / "labels"), "--draws", "2000", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["found"]


def test_run_without_a_guarantee_is_refused(tmp_path):
    making.run(tmp_path / "tight", labelling={"bound": "tight"})
    with pytest.raises(InputError, match="'tight', which ipate audit does not cover"):
        audit(tmp_path / "tight")


def test_engine_without_attacks_is_refused(runs, monkeypatch):
    monkeypatch.setattr(teaching.Teachers, "attacks", None)
    with pytest.raises(InputError, match="engine is 'teachers', which ipate audit does not cover"):
        audit(runs / "labels")


def test_real_people_are_refused_where_engine_deals_none(runs):
    with pytest.raises(InputError, match="ballots are audited on made-up people"):
        audit(runs / "ballots", on_real_people=True)


def test_unfinished_run_is_refused(tmp_path):
    RunFolder.create(tmp_path / "new", making.config())
    with pytest.raises(InputError, match="has released no labels yet"):
        audit(tmp_path / "new")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"confidence": 1.0}, "confidence is 1: it must be"),
        ({"draws": 10}, "draws is 10: at least 1000"),
        ({"student_runs": 3}, "student_runs is 3: it must be 0 or at least 10"),
    ],
)
def test_options_out_of_range_are_refused(runs, options, message):
    with pytest.raises(InputError, match=message):
        audit(runs / "labels", **options)
