"""Trained models: missing ones become jobs, results come from the cache, and bad command lines are refused."""

from dataclasses import replace

import numpy as np
import pytest

from ipate.data import load
from paper.experiments import SETUPS
from paper.jobs import PendingError, Result, read_job, write_result
from paper.models import EnsembleSpec, Student, TrainedModels, copies_group, split, teacher_accuracy


def test_copies_go_to_the_given_shares():
    y = np.arange(1000) % 4 == 0
    spec = EnsembleSpec(setup="adult", replicate=0, shares=(0.5, 0.5), copies=(1, 3), skew=True)
    place = copies_group(spec, y.astype(np.int64), seed=0)
    assert place[~y].sum() == 0
    assert place.sum() == 125
    even = copies_group(replace(spec, skew=False), y.astype(np.int64), seed=0)
    assert even.sum() == 500
    assert spec.name == "adult-skew3x50-e0"


class Small(TrainedModels):
    """Models of the digits that come with scikit-learn, under Adult's name."""

    def partition(self, setup, replicate):
        return split(replace(setup, public=300, test=100), self.dataset("adult"), seed=replicate)

    def dataset(self, name):
        return self._data.setdefault("digits", load("digits"))


def test_missing_models_become_jobs_then_results(tmp_path):
    jobs = tmp_path / "jobs"
    spec = EnsembleSpec(setup="adult", replicate=0, shares=(0.5, 0.5), copies=(1, 2))
    writing = Small(cache=tmp_path / "cache", jobs=jobs)
    with pytest.raises(PendingError, match="1 jobs"):
        writing.require([spec, spec])
    with pytest.raises(PendingError):
        writing.require([spec, replace(spec, replicate=1)])
    assert [path.name for path in sorted(jobs.iterdir())] == [  # once each, although both were required twice
        "000-adult-up2x50-e0.job.npz",
        "001-adult-up2x50-e1.job.npz",
    ]
    job = read_job(min(jobs.glob("*.job.npz")))
    dataset = writing.dataset("adult")
    assert job.n_models == 375
    rows, counts = np.unique(job.indices, return_counts=True)
    assert len(rows) == dataset.n_rows - 400
    assert sorted(set(counts)) == [1, 2]
    assert not set(rows) & set(job.asked)
    votes = np.tile(dataset.y[job.asked], (375, 1))
    write_result(job, Result(predicted=votes, truth=dataset.y[job.asked], meta={}), tmp_path / "cache")
    (ensemble,) = Small(cache=tmp_path / "cache").ensembles([spec])
    assert teacher_accuracy([ensemble]) == 100
    students = [
        Student(key=("a", n), replicate=0, rows=ensemble.public[:size], labels=dataset.y[ensemble.public[:size]])
        for n, size in enumerate((0, 60, 250))
    ]
    found = Small(cache=tmp_path / "cache").student_predictions(SETUPS["adult"], {"t": students})
    assert set(found) == {("a", 1), ("a", 2)}  # the student without labels is left out
    right = {key: np.mean(predicted == truth) for key, (predicted, truth) in found.items()}
    assert right["a", 2] > right["a", 1] > 0.3
