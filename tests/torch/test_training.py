"""Training an ensemble: isolation of teachers, seeds, chunks, worker processes and failures."""

import signal
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch.nn", reason="needs torch: pip install 'ipate[torch]'")

import torch

from ipate.errors import InputError, TrainingError
from ipate.torch import training
from ipate.torch.ensemble import Members, as_members
from ipate.torch.loop import Compute, visits
from ipate.torch.nets import PRESETS
from ipate.torch.training import WorkerDiedError, run_tasks, train_ensemble

SMALL = replace(PRESETS["small"], batch_size=8, steps=6)
PAPER = replace(PRESETS["paper-mnist"], batch_size=8, epochs=None, steps=6)
GENTLE = replace(SMALL.optimiser, eps=1e-2)  # plain Adam's first steps are signs, which amplify rounding near 0
MEMBERS = [list(range(20)), list(range(20, 50)), list(range(50, 53)), list(range(53, 90))]


def train(world, members=MEMBERS, **settings):
    X, y = world
    settings = {"preset": SMALL, "n_classes": 3, "device": "cpu", "teachers_per_batch": 4, **settings}
    return train_ensemble(X, y, members, **settings)


def same(one, other, teachers=None):
    """Return whether parameters are equal to the last bit."""
    chosen = slice(None) if teachers is None else list(teachers)
    return all(torch.equal(one.state[name][chosen], other.state[name][chosen]) for name in one.state)


def close(one, other):
    return all(torch.allclose(one.state[name], other.state[name], rtol=1e-3, atol=1e-4) for name in one.state)


# Privacy: a teacher's data changes only that teacher


@pytest.mark.parametrize("preset", [SMALL, PAPER], ids=lambda preset: preset.name)
@pytest.mark.parametrize("conv", ["grouped", "matmul", "first"])
def test_data_of_one_teacher_changes_no_other(world, preset, conv):
    X, y = world
    settings = {"preset": preset, "compute": Compute(conv=conv)}
    before = train(world, **settings)
    changed, flipped = X.copy(), y.copy()
    changed[20:50] = 5 - 3 * changed[20:50]
    flipped[20:50] = 2 - flipped[20:50]
    after = train((changed, flipped), **settings)
    assert same(before, after, [0, 2, 3])
    assert not same(before, after, [1])


@pytest.mark.parametrize("epochs", [None, 1.79])  # counting only the people present would give one step fewer
def test_empty_slot_changes_no_other_teacher(world, epochs):
    before = train(world, epochs=epochs)
    slots = [*MEMBERS]
    slots[1] = [-1 if row == 33 else row for row in MEMBERS[1]]
    after = train(world, slots, epochs=epochs)
    assert same(before, after, [0, 2, 3])
    assert not same(before, after, [1])


def test_teacher_whose_slots_are_all_empty_is_silent(world):
    before = train(world)
    after = train(world, [MEMBERS[0], MEMBERS[1], [-1, -1, -1], MEMBERS[3]])
    assert same(before, after, [0, 1, 3])
    assert after.silent == (2,)


def test_rows_of_no_teacher_change_nothing(world):
    X, y = world
    before = train(world, [MEMBERS[0], MEMBERS[2]])
    changed = X.copy()
    changed[20:50] = 9
    changed[53:] = np.nan
    assert same(before, train((changed, y), [MEMBERS[0], MEMBERS[2]]))


@pytest.mark.parametrize("row", [0, 19, 20, 49, 50, 52, 53, 89])
def test_every_row_reaches_only_its_teacher(world, row):
    X, y = world
    before = train(world, steps=12)
    changed = X.copy()
    changed[row] += 3
    after = train((changed, y), steps=12)
    owner = next(t for t, rows in enumerate(MEMBERS) if row in rows)
    assert [t for t in range(4) if not same(before, after, [t])] == [owner]


def test_nan_of_one_teacher_reaches_no_other(world):
    X, y = world
    broken = X.copy()
    broken[20:50] = np.nan
    after = train((broken, y), on_failure="fixed")
    assert same(train(world), after, [0, 2, 3])


def test_teacher_visits_its_points_equally_often():
    order = visits(7, seed=1, teacher=4, length=7 * 5 + 3)
    assert (np.bincount(order[:35], minlength=7) == 5).all()
    assert sorted(order[:7]) == list(range(7))
    assert not np.array_equal(order[:7], order[7:14])
    assert np.array_equal(visits(7, seed=1, teacher=4, length=10), order[:10])


# Seeds, chunks, processes


def test_same_seed_gives_same_parameters(world):
    assert same(train(world, seed=3), train(world, seed=3))
    one, other = train(world, seed=3), train(world, seed=4)
    assert not any(same(one, other, [t]) for t in range(4))


def test_teachers_with_equal_data_differ(world):
    twins = train(world, [MEMBERS[0], MEMBERS[0]])
    assert not torch.equal(twins.state["0.weight"][0], twins.state["0.weight"][1])


@pytest.mark.parametrize("preset", [SMALL, PAPER], ids=lambda preset: preset.name)
@pytest.mark.parametrize("together", [1, 2, 3])
def test_chunk_size_changes_at_most_rounding(world, preset, together):
    gentle = replace(preset, optimiser=GENTLE)
    assert close(train(world, preset=gentle), train(world, preset=gentle, teachers_per_batch=together))


@pytest.mark.parametrize("compute", [Compute(channels_last=True), Compute(fused=False)])
def test_other_kernels_change_at_most_rounding(world, compute):
    gentle = replace(SMALL, optimiser=GENTLE)
    assert close(train(world, preset=gentle), train(world, preset=gentle, compute=compute))


def test_bfloat16_training_reaches_good_accuracy(world):
    ensemble = train(world, MEMBERS[:2], steps=60, compute=Compute(amp=True, conv="first"))
    votes = np.concatenate([v for _, v in ensemble.vote(world[0], compute=Compute(amp=True))], axis=1)
    assert (votes == world[1]).mean() > 0.9


def test_worker_processes_give_same_results_and_failures(world):
    X, y = world
    broken = X.copy()
    broken[51] = np.inf
    seen = []
    alone = train((broken, y), teachers_per_batch=1, on_failure="fixed")
    spread = train(
        (broken, y), teachers_per_batch=1, n_jobs=2, on_failure="fixed", progress=lambda done, total: seen.append(done)
    )
    assert same(alone, spread)
    assert alone.silent == spread.silent == (2,)
    assert alone.failures == spread.failures
    assert spread.failures[0].points == (50, 51, 52)
    assert seen[-1] == 4 * 6


def test_dead_worker_loses_only_its_task():
    outcomes = dict(run_tasks(signal.raise_signal, [0, signal.SIGKILL, 0, 0], n_jobs=2))
    assert isinstance(outcomes.pop(1), WorkerDiedError)
    assert outcomes == {0: None, 2: None, 3: None}


def test_lost_task_of_several_teachers_keeps_the_others(world, monkeypatch):
    def losing(function, tasks, *, n_jobs, folder):
        monkeypatch.setattr(training, "_data", [])
        training._prepare(folder)
        yield 1, function(tasks[1])
        yield 0, MemoryError("no room")

    monkeypatch.setattr(training, "run_tasks", losing)
    ensemble = train(world, teachers_per_batch=2, n_jobs=2, on_failure="fixed")
    assert [(failure.teacher, failure.reason) for failure in ensemble.failures] == [
        (0, "MemoryError: no room"),
        (1, "MemoryError: no room"),
    ]
    assert (ensemble.n_teachers, ensemble.silent) == (4, (0, 1))
    assert same(ensemble, train(world, teachers_per_batch=2), [2, 3])


# Teachers that fail, have no data, or miss classes


def test_failed_teacher_is_named_and_others_kept(world):
    X, y = world
    wrong = y.copy()
    wrong[60] = 3
    with pytest.raises(
        TrainingError, match=r"1 of 4 teachers failed: teacher 3 \(37 points: 53, 54.*from 0 to 2"
    ) as caught:
        train((X, wrong))
    ensemble = caught.value.ensemble
    assert same(ensemble, train(world), [0, 1, 2])
    assert ensemble.silent == (3,)
    assert caught.value.failures[0].points == tuple(range(53, 90))


def test_raising_teacher_is_found_and_others_trained(world, monkeypatch):
    true = training.train_chunk

    def raising(task, *more):
        if 2 in task.teachers:
            raise MemoryError("no room")
        return true(task, *more)

    monkeypatch.setattr(training, "train_chunk", raising)
    with pytest.raises(TrainingError, match=r"teacher 2 \(3 points: 50, 51, 52\): MemoryError: no room") as caught:
        train(world)
    monkeypatch.undo()
    assert caught.value.ensemble.silent == (2,)
    assert close(
        replace(caught.value.ensemble, state=_without(caught.value.ensemble, 2)),
        replace(caught.value.ensemble, state=_without(train(world), 2)),
    )


def _without(ensemble, teacher):
    keep = [t for t in range(ensemble.n_teachers) if t != teacher]
    return {name: value[keep] for name, value in ensemble.state.items()}


def test_diverged_training_is_reported(world):
    wild = replace(SMALL, optimiser=replace(SMALL.optimiser, rate=float("inf")))
    with pytest.raises(TrainingError, match="diverged"):
        train(world, preset=wild)


def test_teacher_fails_for_one_reason_only(world):
    X, y = world
    broken = X.copy()
    broken[20:50] = np.nan
    wild = replace(SMALL, optimiser=replace(SMALL.optimiser, rate=float("inf")))
    ensemble = train((broken, y), [*MEMBERS[:3], []], preset=wild, on_failure="fixed")
    reasons = [(failure.teacher, failure.reason) for failure in ensemble.failures]
    diverged = "its training diverged"
    assert reasons == [(0, diverged), (1, "its features hold NaN or infinity"), (2, diverged)]
    assert ensemble.silent == (0, 1, 2, 3)  # a teacher without data has not failed


def test_teacher_without_data_votes_fixed_class(world):
    ensemble = train(world, [MEMBERS[0], [], MEMBERS[2]], fixed_class=2)
    ((_, votes),) = ensemble.vote(world[0])
    assert (votes[1] == 2).all()
    assert ensemble.silent == (1,)
    assert ensemble.failures == ()


def test_teacher_of_one_class_votes_among_all(world):
    X, y = world
    ensemble = train(world, [np.flatnonzero(y == 1), [0]], n_classes=5, steps=40)
    assert ensemble.member(0)(torch.rand(2, 1, 8, 8)).shape == (2, 5)
    ((_, votes),) = ensemble.vote(X)
    assert (votes[0] == 1).mean() > 0.9
    assert votes.max() < 5


def test_teachers_reach_high_accuracy(world):
    X, y = world
    ensemble = train(world, [range(45), range(45, 90)], steps=60)
    votes = np.concatenate([v for _, v in ensemble.vote(X)], axis=1)
    assert (votes == y).mean() > 0.95


# Input


def test_bytes_are_scaled_to_0_to_1(world):
    X, y = world
    pixels = np.clip(X * 100, 0, 255).astype(np.uint8)
    assert same(train((pixels, y)), train((pixels / np.float32(255), y)))


def test_flat_rows_and_channels_give_same_results(world):
    X, y = world
    assert same(train(world), train((X.reshape(90, 64), y)))
    assert same(train(world), train((X[:, None].astype(np.float64), y)))


def test_all_forms_of_members_give_same_results(world):
    offsets = np.cumsum([0, *(len(rows) for rows in MEMBERS)])
    compact = Members(offsets=offsets, indices=np.concatenate(MEMBERS))
    assert same(train(world), train(world, compact))
    matrix = np.arange(90).reshape(3, 30)
    assert same(train(world, matrix), train(world, list(matrix)))
    assert as_members(compact, n_rows=90).rows(2).tolist() == [50, 51, 52]


def test_epochs_count_passes_over_mean_slots(world):
    seen = []
    train(world, epochs=2, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (4 * 6, 4 * 6)  # 2 · 22.5 / 8 → 6 steps


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"members": [[0, 90]]}, "members of teacher 0 hold 90: rows go from 0 to 89"),
        ({"members": [[0], [-2]]}, "members of teacher 1 hold -2"),
        ({"members": []}, "members name no teacher"),
        ({"members": [[0.5]]}, "members of teacher 0 are float64"),
        ({"preset": "resnet"}, "the presets are paper-mnist, small, vgg, vgg-plain"),
        ({"epochs": 1, "steps": 2}, "give one of them"),
        ({"steps": 0}, "steps is 0"),
        ({"epochs": -1.0}, "epochs is -1.0"),
        ({"n_classes": 1}, "n_classes is 1"),
        ({"fixed_class": 3}, "fixed_class is 3"),
        ({"seed": -1}, "seed is -1"),
        ({"n_jobs": 0}, "n_jobs is 0"),
        ({"compute": Compute(cuda_graph=True)}, "cuda_graph needs a GPU"),
    ],
)
def test_invalid_settings_are_refused(world, change, message):
    with pytest.raises(InputError, match=message):
        train(world, **change)


def test_arrays_that_are_not_images_are_refused(world):
    X, y = world
    for wrong, message in [
        (X.reshape(90, 8, 1, 8), "at most 4 channels"),
        (X.reshape(90, 64)[:, :63], "63 features per row"),
        (X[:, :1, :1], "too small"),
        (X.astype(str), "images must be numbers"),
    ]:
        with pytest.raises(InputError, match=message):
            train((wrong, y))
    with pytest.raises(InputError, match="one integer class per row"):
        train((X, y[:-1]))
