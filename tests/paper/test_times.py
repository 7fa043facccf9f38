"""Estimates of how long a page or a training takes."""

import numpy as np
import pytest

from paper import times
from paper.jobs import Job
from paper.times import announce, page_seconds, training_seconds


def forests(models):
    rows = np.arange(models)
    return Job(
        name="x",
        kind="teachers",
        dataset="adult",
        preset="forest",
        n_classes=2,
        seed=0,
        offsets=np.arange(models + 1),
        indices=rows,
        asked=rows,
    )


@pytest.mark.parametrize(
    ("seconds", "told"), [(59, []), (90, ["x: about 2 minutes"]), (4 * 3600, ["x: about 4 hours"])]
)
def test_more_than_a_minute_is_announced(seconds, told):
    lines = []
    announce(lines.append, "x", seconds)
    assert lines == told


def test_estimates_grow_with_the_work(monkeypatch):
    monkeypatch.setattr(times, "cores", lambda: 2)
    assert training_seconds([forests(250)], gpu=False) == pytest.approx(250 * 0.25 / 2)
    assert page_seconds("errata", ensembles=10, votings=5) > page_seconds("errata", ensembles=3, votings=5)
    assert page_seconds("compare", ensembles=3, votings=5) == 0
