import json
from pathlib import Path

import numpy as np
import pytest

from ipate.errors import InputError
from paper.compare import dpsgd, runs
from paper.compare.kept import Kept, cell_key
from paper.compare.methods import METHODS
from paper.compare.outcome import Outcome, scored
from paper.compare.runs import Options, missing_tasks, run_missing
from paper.compare.worlds import BUDGETS, SPECS, delta_for, make_world


def run_quick(**options):
    kept, lines = Kept(), []
    wanted = Options(quick=True, only=("digits",), **options)
    problems = run_missing(kept, wanted, folder=Path("unused"), save=lambda found: None, log=lines.append)
    return kept, problems


def test_kept_results_survive_their_file(tmp_path):
    kept = Kept(
        runs={cell_key("ballots", "digits", "1"): {"0": Outcome(accuracy=80.5, groups=(1.0, 2.0)).json()}},
        tuning={"x": {"one": [1.0]}},
    )
    kept.write(tmp_path / "kept.json")
    again = Kept.read(tmp_path / "kept.json")
    assert again == kept
    assert again.outcomes("ballots", "digits", "1")[0].groups == (1.0, 2.0)


def test_file_of_something_else_is_refused(tmp_path):
    (tmp_path / "kept.json").write_text(json.dumps({"runs": 3}))
    with pytest.raises(InputError, match="no kept results"):
        Kept.read(tmp_path / "kept.json")


def test_kept_cells_are_not_run_again():
    every = missing_tasks(Kept(), Options(methods=("ballots",), only=("digits",)))
    assert {task.seeds for task in every} == {(seed,) for seed in range(5)}
    full = {str(seed): Outcome(accuracy=1.0).json() for seed in range(5)}
    kept = Kept(
        runs={cell_key("ballots", "digits", budget): full for budget in SPECS["digits"].budgets if budget != "1"}
    )
    rest = missing_tasks(kept, Options(methods=("ballots",), only=("digits",)))
    assert {task.budgets for task in rest} == {("1",)}


def test_images_on_a_gpu_are_left_out_without_one():
    tasks = missing_tasks(Kept(), Options(places=("cpu",)))
    assert {task.method for task in tasks if task.data == "mnist"} == {"pool-truth-cpu", "teachers-cpu", "ballots-cpu"}


def test_without_opacus_its_rows_are_skipped_and_named(monkeypatch):
    monkeypatch.setattr(dpsgd, "available", lambda: False)
    kept, problems = run_quick(methods=("dpsgd", "idpsgd", "descent"))
    assert len(problems) == 1
    assert "ipate[bench]" in problems[0]
    assert {key.split("|")[0] for key in kept.runs} == {"descent"}


def test_best_setting_is_chosen_on_test_rows():
    kept, problems = run_quick(methods=("descent",))
    assert not problems
    key = cell_key("descent", "digits", "1")
    best = max(kept.tuning[key], key=lambda name: kept.tuning[key][name])
    assert kept.runs[key]["0"]["note"] == best


def test_failed_task_is_named_and_others_go_on(monkeypatch):
    def fail(*given):
        raise ValueError("broken")

    broken = {**METHODS, "ceiling": METHODS["ceiling"].__class__(**{**vars(METHODS["ceiling"]), "table": fail})}
    monkeypatch.setattr(runs, "METHODS", broken)
    kept, problems = run_quick(methods=("ceiling", "pool-truth"))
    assert problems == ["ceiling on digits, no budget, run 0 failed: ValueError: broken"]
    assert set(kept.runs) == {cell_key("pool-truth", "digits", "")}


def test_rows_of_a_run_do_not_overlap():
    world = make_world("synthetic-1000", 3, shrink=4)
    sizes = [len(part[1]) for part in (world.private, world.pool, world.test)]
    rows = np.concatenate([world.private[0], world.pool[0], world.test[0]])
    assert sizes == [250, 1250, 1250]
    assert len(np.unique(rows, axis=0)) == sum(sizes)
    assert world.delta == delta_for(250) == 1e-5


def test_budgets_are_dealt_in_their_shares():
    mix = BUDGETS["54/37/9% at .1/.5/2"]
    assert np.bincount(mix.groups(1000, 0)).tolist() == [540, 370, 90]
    assert mix.strictest == ".1"
    assert not np.array_equal(mix.groups(1000, 0), mix.groups(1000, 1))


def test_scores_by_group_use_peoples_own_rows():
    world, mix = make_world("digits", 0, shrink=2), BUDGETS["34/43/23% at 1/2/3"]
    group = mix.groups(world.people, world.seed)

    def predict(X):
        return np.where(group == 0, world.private[1], -1) if len(X) == world.people else np.full(len(X), -1)

    found = scored(predict, world, mix)
    assert found.groups == (100.0, 0.0, 0.0)
    assert found.accuracy == 0.0


def test_results_of_two_machines_are_merged(tmp_path):
    for number, method in enumerate(("ballots", "teachers")):
        own = {"0": Outcome(accuracy=float(number)).json()}
        Kept(runs={cell_key(method, "digits", "1"): own}).write(tmp_path / f"{number}.json")
    code = runs.main(["--kept", str(tmp_path / "0.json"), "--merge", str(tmp_path / "1.json")])
    assert code == 0
    assert len(Kept.read(tmp_path / "0.json").runs) == 2
