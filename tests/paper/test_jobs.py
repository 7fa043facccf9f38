"""Job files: they are read back unchanged, and a result is accepted for its own job only."""

from dataclasses import replace

import numpy as np
import pytest

from ipate.errors import InputError
from paper.jobs import Counts, Job, Result, read_job, read_result, run_forests, write_job, write_result


def make_job(**changes) -> Job:
    rng = np.random.default_rng(0)
    made = Job(
        name="one",
        kind="teachers",
        dataset="digits",
        preset="forest",
        n_classes=10,
        seed=3,
        offsets=np.array([0, 40, 90]),
        indices=rng.permutation(1700)[:90],
        asked=np.arange(1700, 1797),
    )
    return replace(made, **changes)


ASKING = Counts(queries=5, seed=0, signal=2.5)
ONE_STUDENT = {
    "kind": "students",
    "offsets": np.array([0, 90]),
    "asked": np.arange(5)[None],
    "pool": np.array([0]),
    "asking": ASKING,
}


def test_job_is_read_back_unchanged(tmp_path):
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
def test_result_of_another_job_is_ignored(tmp_path, change):
    job = make_job()
    result = Result(predicted=np.zeros((2, 97)), truth=np.zeros(97), meta={})
    write_result(job, result, tmp_path)
    assert read_result(job, tmp_path) is not None
    assert read_result(replace(job, **change), tmp_path) is None


def test_digest_of_kept_results_stays():  # results of jobs without counts were kept under it
    assert make_job().digest() == "0411a1da1abed5f9ed6524067fa605734dc7c729290305b3aa139dd246e6af34"


@pytest.mark.parametrize(
    "change",
    [
        {"counts": np.ones((90, 3), int)},
        {"asking": replace(ASKING, queries=6)},
        {"asking": replace(ASKING, seed=1)},
        {"asking": replace(ASKING, signal=2.6)},
        {"preset": "semi"},
    ],
    ids=str,
)
def test_counts_and_their_use_decide_the_digest(tmp_path, change):
    job = make_job(counts=-np.arange(270).reshape(90, 3), preset="graph", **ONE_STUDENT)
    assert replace(job, **change).digest() != job.digest()
    back = read_job(write_job(job, tmp_path))
    assert back.digest() == job.digest()
    assert back.asking == ASKING
    np.testing.assert_array_equal(back.counts, job.counts)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "pupils"}, "teachers or students"),
        ({"offsets": np.array([0, 40])}, "offsets"),
        ({"labels": np.zeros(90, int)}, "teachers have neither"),
        ({"asked": np.zeros((2, 3), int)}, "shape"),
        ({"counts": np.zeros((90, 3), int)}, "teachers have neither"),
        ({"asking": ASKING}, "without saying how"),
        ({"counts": np.zeros((80, 3), int), **ONE_STUDENT}, "all points of one student"),
    ],
    ids=["kind", "offsets", "labels", "asked", "counts", "asking", "points"],
)
def test_inconsistent_job_is_refused(change, words):
    with pytest.raises(InputError, match=words):
        make_job(**change)


def test_file_without_a_job_is_refused(tmp_path):
    np.savez(tmp_path / "x.job.npz", about=np.array("{}"), indices=np.arange(3))
    with pytest.raises(InputError, match="not a job file"):
        read_job(tmp_path / "x.job.npz")
    with pytest.raises(InputError, match="no such file"):
        read_job(tmp_path / "y.job.npz")


def test_forest_students_learn_their_given_labels():
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    found = run_forests(make_job(), (X, y), n_jobs=1)
    assert found.predicted.shape == (2, 97)
    assert np.mean(found.predicted == found.truth) > 0.4
    job = make_job()
    told = Job(
        name="s",
        kind="students",
        dataset="digits",
        preset="forest",
        n_classes=10,
        seed=0,
        offsets=job.offsets,
        indices=job.indices,
        labels=np.where(np.arange(90) < 40, 7, y[job.indices]),
        pool=np.array([0, 1]),
        asked=np.stack([np.arange(1700, 1790), np.arange(1600, 1690)]),
    )
    said = run_forests(told, (X, y), n_jobs=1)
    assert np.all(said.predicted[0] == 7)
    assert np.mean(said.predicted[1] == said.truth[1]) > 0.5
