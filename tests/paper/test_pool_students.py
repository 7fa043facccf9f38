"""Students that choose their own queries: as in a run, with features, graph and first queries made once per pool."""

from dataclasses import replace

import numpy as np
import pytest

from choosing import choose_settings
from ipate.engines.teachers.asking import plan_queries
from ipate.errors import InputError
from ipate.public import queries
from ipate.students.student import STUDENTS
from paper import pool_students
from paper.jobs import Counts, Job
from paper.pool_students import ask_points, run_pool_student


def pictures(n=400, *, size=16, seed=0):
    """Return images of four classes: a bar that lies in another corner, with noise."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 4
    X = rng.integers(0, 60, (n, size, size))
    for c in range(4):
        rows = slice(2, 6) if c % 2 else slice(size - 6, size - 2)
        columns = slice(2, 10) if c < 2 else slice(size - 10, size - 2)
        X[y == c, rows, columns] += 150
    return X.astype(np.uint8), y


X, Y = pictures()
POOL, TEST = np.arange(300), np.arange(300, 400)


def job_for(preset="graph", *, m=24, seed=0, noise=0.5, **changes):
    counts = 8 * (6 * np.eye(4)[Y[POOL]] + np.random.default_rng(seed).normal(0, noise, (300, 4)))
    made = Job(
        name=f"one-{preset}",
        kind="students",
        dataset="pictures",
        preset=preset,
        n_classes=4,
        seed=seed,
        offsets=np.array([0, 300]),
        indices=POOL,
        asked=TEST[None],
        pool=np.array([0]),
        counts=np.rint(counts).astype(int),
        asking=Counts(queries=m, seed=0, signal=6.0),
    )
    return replace(made, **changes)


def test_graph_job_equals_the_student_of_a_run():
    job = job_for(noise=2.0)
    found = run_pool_student(job, (X, Y))
    student = STUDENTS["graph"]
    settings = replace(
        choose_settings(groups=_groups(), n_public=300, n_classes=4, n_teachers=40, student=student), n_queries=24
    )
    asking = plan_queries(X[POOL], settings, n_classes=4, seed=0, kind=student.embedding(X.shape[1:]))
    known = pool_students.posterior(job.counts, step=1 / 8, total_weight=6.0)
    targets = np.zeros((300, 4))
    targets[asking.first] = known[asking.first]
    later = queries.next_queries(asking.points, asking.graph, targets, asking.later, seed=0, asked=asking.first)
    targets[later] = known[later]
    model = student.fit(student.make({}, seed=0), X[POOL], np.full(300, -1), n_classes=4, targets=targets)
    np.testing.assert_array_equal(found.predicted[0], model.predict(X[TEST]))
    assert found.meta["labels"] == len(asking.first) + len(later) == 24
    np.testing.assert_array_equal(found.truth, Y[TEST][None])
    assert np.mean(found.predicted == found.truth) > 0.9


def _groups():
    from paper.experiments import two_groups
    from paper.voting import groups_of

    return groups_of(two_groups(1.0, 2.0, 0.5))


def test_pool_is_prepared_once_for_many_votings(monkeypatch):
    calls = {"pool_graph": 0, "choose_queries": 0}

    def counted(name):
        real = getattr(pool_students, name)

        def call(*args, **options):
            calls[name] += 1
            return real(*args, **options)

        monkeypatch.setattr(pool_students, name, call)

    for name in calls:
        counted(name)
    monkeypatch.setattr(pool_students, "_POOLS", {})
    said = [run_pool_student(job_for(seed=seed, noise=6.0), (X, Y)).predicted for seed in range(3)]
    assert calls == {"pool_graph": 1, "choose_queries": 1}
    assert any(not np.array_equal(said[0], other) for other in said[1:])
    run_pool_student(job_for(indices=POOL[::-1]), (X, Y))
    assert calls["pool_graph"] == 2  # another pool


def test_only_counts_of_asked_points_matter():
    job = job_for()
    own = pool_students._pool(job, X[POOL], "cpu")
    known = pool_students.posterior(job.counts, step=1 / 8, total_weight=6.0)
    asked, targets = ask_points(own.points, own.graph, known, 24, seed=0)
    assert len(set(asked)) == 24
    assert np.flatnonzero(targets.any(axis=1)).tolist() == sorted(asked)
    other = job.counts.copy()
    other[np.setdiff1d(np.arange(300), asked)] *= -1
    before, after = (run_pool_student(replace(job, counts=c), (X, Y)) for c in (job.counts, other))
    np.testing.assert_array_equal(before.predicted, after.predicted)


def test_pool_student_without_counts_is_refused():
    plain = job_for(counts=None, asking=None, labels=Y[POOL])
    with pytest.raises(InputError, match="'graph' needs counts"):
        run_pool_student(plain, (X, Y))
