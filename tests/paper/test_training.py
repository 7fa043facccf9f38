"""Training jobs on a machine with numpy, torch and scikit-learn only; interrupted runs continue."""

import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paper.jobs import Counts, Job, read_result, write_job

pytest.importorskip("torch.nn", reason="needs torch: pip install 'ipate[torch]'")


@pytest.fixture
def folder(tmp_path):
    """A folder with 90 images of three classes that are easy to tell apart."""
    y = np.arange(90) % 3
    X = np.random.default_rng(0).normal(0, 0.2, (90, 8, 8)).astype(np.float32)
    for c in range(3):
        X[y == c, 2 * c : 2 * c + 3, 2:6] += 1
    data = tmp_path / "data"
    data.mkdir()
    np.savez(data / "digits.npz", X=X, y=y)
    return tmp_path


@pytest.fixture(autouse=True)
def one_thread():
    """Use one torch thread, so that tests in other processes keep their cores."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def teachers(name: str = "one", **changes) -> Job:
    made = Job(
        name=name,
        kind="teachers",
        dataset="digits",
        preset="small",
        n_classes=3,
        seed=0,
        steps=40,
        offsets=np.array([0, 30, 60]),
        indices=np.arange(60),
        asked=np.arange(60, 90),
    )
    return replace(made, **changes)


def run(folder: Path, *more: str) -> int:
    from paper.training import main

    return main(
        [
            str(folder / "jobs"),
            "--data-dir",
            str(folder / "data"),
            "--out",
            str(folder / "out"),
            "--device",
            "cpu",
            "--n-jobs",
            "1",
            *more,
        ]
    )


def test_teachers_vote_and_students_predict_their_own_pool(folder, capsys):
    first = teachers()
    second = teachers(
        "two",
        kind="students",
        labels=np.concatenate([np.arange(30) % 3, np.full(30, 2)]),
        pool=np.array([1, 0]),
        asked=np.stack([np.arange(60, 75), np.arange(75, 90)]),
    )
    for order, job in enumerate((first, second)):
        write_job(job, folder / "jobs", order=order)
    assert run(folder) == 0
    votes = read_result(first, folder / "out")
    assert votes.predicted.shape == (2, 30)
    assert np.mean(votes.predicted == votes.truth) > 0.8
    said = read_result(second, folder / "out")
    assert np.array_equal(said.truth, np.stack([np.arange(60, 75), np.arange(75, 90)]) % 3)
    assert np.mean(said.predicted[0] == said.truth[1]) > 0.8  # the first had true labels and has the second pool
    assert np.all(said.predicted[1] == 2)  # the second had one class only
    capsys.readouterr()
    assert run(folder) == 0
    assert capsys.readouterr().err == ""  # no job runs twice


def test_results_are_packed_into_tar_files(folder):
    for order in range(2):
        write_job(teachers(f"job{order}", seed=order, steps=2), folder / "jobs", order=order)
    assert run(folder, "--tar", "1000") == 0
    parts = sorted((folder / "out").glob("*.tar"))
    assert [path.name for path in parts] == ["part-1.tar", "part-2.tar"]
    with tarfile.open(parts[0]) as archive:
        assert archive.getnames() == ["job0.votes.npz"]
    assert not list((folder / "out").glob("*.npz"))


def test_job_beyond_time_limit_is_not_started(folder, capsys):
    write_job(teachers(), folder / "jobs")
    assert run(folder, "--seconds", "0") == 0
    assert "no time for 1 jobs: one" in capsys.readouterr().err
    assert not list((folder / "out").glob("*.npz"))


def test_failed_job_does_not_stop_others(folder, capsys):
    write_job(teachers("bad", n_classes=2), folder / "jobs", order=0)
    write_job(teachers("good", steps=2), folder / "jobs", order=1)
    assert run(folder) == 1
    assert "bad failed" in capsys.readouterr().err
    assert [path.name for path in (folder / "out").glob("*.npz")] == ["good.votes.npz"]


def test_empty_job_folder_is_refused(folder, capsys):
    (folder / "jobs").mkdir()
    assert run(folder) == 2
    assert "holds no *.job.npz file" in capsys.readouterr().err


def test_training_needs_only_numpy_torch_and_sklearn(folder):
    write_job(teachers(steps=2), folder / "jobs", order=0)
    write_job(teachers("forests", preset="forest", dataset="table"), folder / "jobs", order=1)
    own = teachers(
        kind="students",
        steps=1,
        offsets=np.array([0, 60]),
        asked=np.arange(60, 90)[None],
        pool=np.array([0]),
        counts=np.eye(3, dtype=int)[np.arange(60) % 3],
        asking=Counts(queries=9, seed=0, signal=9.0),
    )
    for order, preset in enumerate(("graph", "semi"), start=2):
        write_job(replace(own, name=preset, preset=preset), folder / "jobs", order=order)
    with np.load(folder / "data" / "digits.npz") as arrays:
        np.savez(folder / "data" / "table.npz", X=arrays["X"].reshape(90, -1), y=arrays["y"])
    blocked = {"pydantic", "typer", "rich", "dp_accounting", "randomgen", "matplotlib", "skops"}
    bare = (
        "import sys\n"
        "class Bare:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.split('.')[0] in {blocked}:\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Bare())\n"
        "from paper.training import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    arguments = [str(folder / "jobs"), "--data-dir", str(folder / "data"), "--out", str(folder / "out")]
    command = [sys.executable, "-c", bare, *arguments, "--device", "cpu", "--n-jobs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (folder / "out").iterdir()) == [
        "forests.votes.npz",
        "graph.students.npz",
        "one.votes.npz",
        "semi.students.npz",
    ]
    semi = replace(own, name="semi", preset="semi")
    found = read_result(semi, folder / "out")
    assert found.predicted.shape == found.truth.shape == (1, 30)
    assert found.meta["labels"] == 9
    assert read_result(replace(semi, steps=2), folder / "out") is None
