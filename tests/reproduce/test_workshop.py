"""Jobs and the cache: what is missing is written down, a result is taken for its own job and no other."""

from dataclasses import replace

import numpy as np
import pytest

from ipate.cli.app import _run
from ipate.errors import InputError, PendingError
from ipate.reproduce.ensembles import Spec, groups_of
from ipate.reproduce.jobs import Job, Result, read_job, read_result, run_forests, write_job, write_result
from ipate.reproduce.settings import SETUPS, split
from ipate.reproduce.workshop import Pupil, Workshop


def make_job(**changes) -> Job:
    rng = np.random.default_rng(0)
    made = Job(
        name="one", kind="teachers", dataset="digits", preset="forest", n_classes=10, seed=3,
        offsets=np.array([0, 40, 90]), indices=rng.permutation(1700)[:90], asked=np.arange(1700, 1797),
    )  # fmt: skip
    return replace(made, **changes)


def test_jobs_come_back_as_they_were(tmp_path):
    job = make_job()
    path = write_job(job, tmp_path, order=7)
    assert path.name == "007-one.job.npz"
    back = read_job(path)
    assert back.name == "one"
    assert back.digest() == job.digest()
    assert np.array_equal(back.indices, job.indices)


@pytest.mark.parametrize(
    "change", [{"seed": 4}, {"preset": "small"}, {"asked": np.arange(1600, 1697)}, {"epochs": 2.0}], ids=str
)
def test_a_result_is_taken_for_its_own_job_alone(tmp_path, change):
    job = make_job()
    result = Result(predicted=np.zeros((2, 97)), truth=np.zeros(97), digest=job.digest(), meta={})
    write_result(job, result, tmp_path)
    assert read_result(job, tmp_path) is not None
    assert read_result(replace(job, **change), tmp_path) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "pupils"}, "teachers or students"),
        ({"offsets": np.array([0, 40])}, "offsets"),
        ({"labels": np.zeros(90, int)}, "students, and they alone"),
        ({"asked": np.zeros((2, 3), int)}, "shape"),
    ],
    ids=["kind", "offsets", "labels", "asked"],
)
def test_jobs_that_cannot_be_are_refused(change, words):
    with pytest.raises(InputError, match=words):
        make_job(**change)


def test_files_that_are_no_jobs_are_refused(tmp_path):
    np.savez(tmp_path / "x.job.npz", about=np.array("{}"), indices=np.arange(3))
    with pytest.raises(InputError, match="not a job file"):
        read_job(tmp_path / "x.job.npz")
    with pytest.raises(InputError, match="no such file"):
        read_job(tmp_path / "y.job.npz")


def test_forests_learn_and_students_learn_what_they_are_told():
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    found = run_forests(make_job(), (X, y), n_jobs=1)
    assert found.predicted.shape == (2, 97)
    assert np.mean(found.predicted == found.truth) > 0.4
    job = make_job()
    told = Job(
        name="s", kind="students", dataset="digits", preset="forest", n_classes=10, seed=0, offsets=job.offsets,
        indices=job.indices, labels=np.where(np.arange(90) < 40, 7, y[job.indices]), pool=np.array([0, 1]),
        asked=np.stack([np.arange(1700, 1790), np.arange(1600, 1690)]),
    )  # fmt: skip
    said = run_forests(told, (X, y), n_jobs=1)
    assert np.all(said.predicted[0] == 7)
    assert np.mean(said.predicted[1] == said.truth[1]) > 0.5


def test_budgets_go_to_the_given_shares():
    y = np.arange(1000) % 4 == 0
    spec = Spec(setup="adult", replicate=0, shares=(0.5, 0.5), copies=(1, 3), skew=True)
    place = groups_of(spec, y.astype(np.int64), seed=0)
    assert place[~y].sum() == 0
    assert place.sum() == 125
    even = groups_of(replace(spec, skew=False), y.astype(np.int64), seed=0)
    assert even.sum() == 500
    assert spec.name == "adult-skew3x50-e0"


class Small(Workshop):
    """A workshop of the digits that come with scikit-learn, under Adult's name."""

    def partition(self, setup, replicate):
        return split(replace(setup, public=300, test=100), self.dataset("adult"), seed=replicate)

    def dataset(self, name):
        return super().dataset("digits")


def test_what_is_missing_becomes_jobs_then_results(tmp_path):
    jobs = tmp_path / "jobs"
    spec = Spec(setup="adult", replicate=0, shares=(0.5, 0.5), copies=(1, 2))
    writing = Small(cache=tmp_path / "cache", jobs=jobs)
    with pytest.raises(PendingError, match="1 jobs"):
        writing.need([spec, spec])
    with pytest.raises(PendingError):
        writing.need([spec, replace(spec, replicate=1)])
    assert [path.name for path in sorted(jobs.iterdir())] == [  # once each, though both were asked for twice
        "000-adult-up2x50-e0.job.npz", "001-adult-up2x50-e1.job.npz",
    ]  # fmt: skip
    job = read_job(min(jobs.glob("*.job.npz")))
    dataset = writing.dataset("adult")
    assert job.n_models == 375
    rows, counts = np.unique(job.indices, return_counts=True)
    assert len(rows) == dataset.n_rows - 400
    assert sorted(set(counts)) == [1, 2]
    assert not set(rows) & set(job.asked)
    votes = np.tile(dataset.y[job.asked], (375, 1))
    write_result(
        job, Result(predicted=votes, truth=dataset.y[job.asked], digest=job.digest(), meta={}), tmp_path / "cache"
    )
    ensemble = Small(cache=tmp_path / "cache").ensemble(spec)
    assert ensemble.teacher_accuracy == 1.0
    pupils = [
        Pupil(key=("a", n), replicate=0, rows=ensemble.public[:size], labels=dataset.y[ensemble.public[:size]])
        for n, size in enumerate((0, 60, 250))
    ]
    said = Small(cache=tmp_path / "cache").students(SETUPS["adult"], {"t": pupils})
    assert set(said) == {("a", 1), ("a", 2)}  # nobody learns from nothing
    right = {key: np.mean(predicted == truth) for key, (predicted, truth) in said.items()}
    assert right["a", 2] > right["a", 1] > 0.3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tabel1"], "nearest is 'table1'"),
        (["table1", "--ensembles", "0"], "--ensembles is 0"),
        (["table1", "--device", "gpu"], "--device is 'gpu'"),
        (["table1", "--data-dir", "/nowhere"], "there is no such folder"),
    ],
)
def test_bad_input_is_one_line(arguments, words, capsys, tmp_path):
    assert _run(["reproduce", *arguments, "--cache", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1
