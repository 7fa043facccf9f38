"""Cells: nearest centres exactly, from the pool and public seeds alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ipate.errors import InputError
from ipate.public import cells as module
from ipate.public.cells import LARGEST, Cells, make_cells, usual_cells

POOL = np.rint(np.random.default_rng(0).standard_normal((300, 3)) * 500)
COORDINATES = st.integers(-LARGEST, LARGEST).map(float)


@given(
    arrays.arrays(np.float64, (2, 5, 3), elements=COORDINATES), arrays.arrays(np.float64, (4, 3), elements=COORDINATES)
)
def test_assignment_is_the_exactly_nearest_centre(centres, points):
    found = Cells(centres).assign(points)
    for point, own in zip(points, found, strict=True):
        for k in range(2):
            distances = [
                sum((int(a) - int(b)) ** 2 for a, b in zip(point, centre, strict=True)) for centre in centres[k]
            ]
            assert own[k] == distances.index(min(distances))


def test_blocks_do_not_change_the_assignment(monkeypatch):
    cells = make_cells(POOL, cells=7, partitions=3)
    whole = cells.assign(POOL)
    monkeypatch.setattr(module, "_BLOCK", 7 * 11)
    np.testing.assert_array_equal(cells.assign(POOL), whole)


def test_same_pool_gives_the_same_cells_and_fingerprint():
    one, two = (make_cells(POOL, cells=6, partitions=2, n_jobs=jobs) for jobs in (1, 2))
    assert one.fingerprint == two.fingerprint == Cells.from_arrays(one.arrays()).fingerprint
    assert make_cells(POOL[1:], cells=6, partitions=2).fingerprint != one.fingerprint


def test_partitions_differ_from_each_other():
    found = make_cells(POOL, cells=6, partitions=2)
    assert (found.partitions, found.cells) == (2, 6)
    assert np.any(found.centres[0] != found.centres[1])


def test_pools_with_few_points_get_few_cells():
    same = np.tile(POOL[:2], (10, 1))
    assert make_cells(same, cells=8, partitions=1).assign(same).max() < 8
    assert make_cells(POOL[:3], cells=8, partitions=1).cells == 3


def test_points_off_the_grid_are_refused():
    with pytest.raises(InputError, match="grid"):
        make_cells(POOL + 0.5, cells=3)
    with pytest.raises(InputError, match="grid"):
        make_cells(POOL, cells=3, partitions=1).assign(POOL * 1e4)
    with pytest.raises(InputError, match="dimensions"):
        make_cells(POOL, cells=3, partitions=1).assign(POOL[:, :2])


def test_number_of_cells_follows_the_rule():
    assert usual_cells(242, n_classes=10, n_pool=400) == 40
    assert usual_cells(31, n_classes=10, n_pool=400) == 10
    assert usual_cells(1e5, n_classes=10, n_pool=400) == 80
    assert usual_cells(1e5, n_classes=10, n_pool=40_000) == 500
    assert usual_cells(1.0, n_classes=10, n_pool=4) == 1
