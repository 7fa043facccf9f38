"""The sum of ballots: exact in any order, one bounded ballot per person, and nothing visible about missing ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipate.engines.ballots.counting import STEP, add_noise, decode, sum_ballots, units_by_person, without
from ipate.engines.ballots.design import ballot_terms, make_design
from ipate.errors import InputError
from ipate.people.people import People
from ipate.release.noise import SecureNoise, SeededNoise

SHAPE = (3, 4, 2)
ROW = st.tuples(st.tuples(*[st.integers(0, 3)] * 3), st.integers(-1, 1))
RECORD = st.lists(ROW, max_size=6)


def total(records, units):
    """The sum of the ballots of people with these rows."""
    rows = [(person, *row) for person, record in enumerate(records) for row in record]
    cells = np.array([row[1] for row in rows], dtype=np.int32).reshape(-1, 3)
    return sum_ballots(
        cells,
        np.array([row[2] for row in rows], dtype=np.int64),
        units=np.asarray(units, dtype=np.int64),
        person_of_row=np.array([row[0] for row in rows], dtype=np.int64),
        shape=SHAPE,
    )


def norm2(histogram, units):
    """‖b‖² of the difference of two ballots of weight √r·u."""
    return float((histogram.astype(float) ** 2).sum() / (SHAPE[0] * units**2))


@given(st.lists(st.tuples(RECORD, st.integers(0, 99_991)), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_order_of_people_and_rows_does_not_matter(people, chance):
    mixed = [(chance.sample(record, len(record)), units) for record, units in people]
    chance.shuffle(mixed)
    first, second = (total(*zip(*group, strict=True)) for group in (people, mixed))
    np.testing.assert_array_equal(first, second)


@given(RECORD, RECORD, st.integers(1, 99_991))
def test_two_ballots_differ_by_at_most_two(record, other, units):
    one, two = total([record], [units]), total([other], [units])
    assert one.min() >= 0
    assert norm2(one, units) <= 1
    assert norm2(one - two, units) <= 2
    assert norm2(one - total([[]], [units]), units) <= 1


@given(RECORD, st.integers(0, 99_991))
def test_every_entry_is_rounded_down(record, units):
    kept = [row for row in record if row[1] >= 0]
    exact = np.zeros(SHAPE)
    for cells, label in kept:
        for k, cell in enumerate(cells):
            exact[k, cell, label] += units / len(kept)
    found = total([record], [units])
    assert np.all(found <= exact + 1e-6)
    assert np.all(found > exact - 1 - 1e-6)


def test_distances_of_ballots_match_the_vectors():
    a, b, c = ((0, 0, 0), 0), ((1, 1, 1), 0), ((2, 2, 2), 0)
    units = 2**20
    assert norm2(total([[a]], [units]) - total([[((0, 0, 0), 1)]], [units]), units) == 2
    assert norm2(total([[a]], [units]) - total([[]], [units]), units) == 1
    assert norm2(total([[a, b]], [units]) - total([[a, c]], [units]), units) == 0.5


def test_unreadable_rows_cast_no_vote_but_others_of_the_person_do():
    row = ((0, 1, 2), 1)
    np.testing.assert_array_equal(total([[row, ((3, 3, 3), -1)]], [10]), total([[row]], [10]))
    cells = np.zeros((2, 3), dtype=np.int32)
    known = {"units": np.array([10, 10]), "person_of_row": np.array([0, 1]), "shape": SHAPE}
    found = sum_ballots(cells, np.array([1, 1]), readable=np.array([True, False]), **known)
    np.testing.assert_array_equal(found, sum_ballots(cells, np.array([1, -1]), **known))
    assert not total([[((0, 0, 0), -1)], []], [10, 10]).any()


def test_many_people_are_summed_exactly():
    rng = np.random.default_rng(0)
    units = rng.integers(1, 2**19, 5000)
    cells, y = rng.integers(0, 4, (5000, 3)), rng.integers(0, 2, 5000)
    found = sum_ballots(cells, y, units=units, person_of_row=np.arange(5000), shape=SHAPE)
    assert found.sum() == 3 * units.sum()
    assert found[2, 1, 1] == units[(cells[:, 2] == 1) & (y == 1)].sum()


def test_weights_follow_people_by_group_id():
    people = People.from_budgets([3.0, 1.0, 1.0, 2.0], delta=1e-5, person_id=["z", "a", "m", "b"])
    design = make_design(ballot_terms(people.groups[::-1]), n_classes=2, n_pool=100)
    units = units_by_person(design, people)
    assert [units[people.index_of(name)] for name in "amzb"] == [
        design.units[people.group_of(name).id] for name in "amzb"
    ]
    assert units[people.index_of("z")] > units[people.index_of("b")] > units[people.index_of("a")]


def test_withdrawn_people_leave_an_empty_slot():
    people = People.from_budgets([1.0] * 4, delta=1e-5, person_id=["a", "b", "a", "c"])
    np.testing.assert_array_equal(without(people, np.array([0, 1, 1, 0]), ["a"]), [-1, 1, -1, 0])
    np.testing.assert_array_equal(without(people, np.array([0, 1, 1, 0]), []), [0, 1, 1, 0])


def test_weights_beyond_exact_sums_are_refused():
    with pytest.raises(InputError, match="too large"):
        total([[], []], [2**52, 2**52])


def test_noise_is_independent_and_has_the_stated_deviation():
    drawn = add_noise(np.zeros((4, 60, 10), dtype=np.int64), SecureNoise()) * STEP
    assert drawn.std() == pytest.approx(1.0, abs=0.08)
    flat = drawn.reshape(4 * 60, 10)
    assert np.abs(np.corrcoef(flat.T) - np.eye(10)).max() < 0.35
    again = [add_noise(np.zeros((2, 3, 4), dtype=np.int64), SeededNoise(s)) for s in (1, 1, 2)]
    np.testing.assert_array_equal(again[0], again[1])
    assert np.any(again[0] != again[2])


def test_seeded_noise_is_added_to_the_exact_sum():
    base = add_noise(np.zeros((2, 3, 4), dtype=np.int64), SeededNoise(1))
    moved = add_noise(np.full((2, 3, 4), 3 * 2**20), SeededNoise(1))
    np.testing.assert_array_equal(moved - base, np.full((2, 3, 4), 24))


def test_labels_and_bins_come_from_margins():
    histogram = np.array([[[8, 8, 0], [2, 0, 0], [0, 0, 128], [16, 0, 15]]])
    found = decode(histogram, np.array([[0], [1], [2], [3]]))
    np.testing.assert_array_equal(found.labels, [0, 0, 2, 0])
    np.testing.assert_array_equal(found.margins, [0, 0.25, 16, 0.125])
    np.testing.assert_array_equal(found.confidence, [0, 1, 7, 0])
    np.testing.assert_array_equal(found.sample_weight, [0.05, 0.25, 16, 0.05])


def test_review_tells_points_of_one_cell_apart():
    """Half the weight of the only cell is for either class; only the student can say which point is which."""
    found = decode(np.array([[[800, 800]]]), np.zeros((4, 1), dtype=np.int64))
    shares = found.review(np.array([[0.95, 0.05], [0.9, 0.1], [0.1, 0.9], [0.05, 0.95]]))
    np.testing.assert_array_equal(np.argmax(shares, axis=1), [0, 0, 1, 1])
    assert shares.sum(axis=1).min() > found.sample_weight.max()


def test_review_corrects_a_guess_that_contradicts_its_cell():
    """The cell's weight is for class 1, so a guess that sees no class at all must not be kept."""
    found = decode(np.array([[[0, 1600, 0]], [[0, 1600, 0]]]), np.zeros((5, 2), dtype=np.int64))
    assert found.weight == pytest.approx(2 * 1600 / 8 / np.sqrt(2))
    shares = found.review(np.tile([0.4, 0.3, 0.3], (5, 1)))
    assert np.all(np.argmax(shares, axis=1) == 1)
    np.testing.assert_allclose(shares.sum(axis=1), 16.0)
    share = np.array([0.4 - 0.75 * 0.4, 0.3 + 0.75 * 0.7, 0.3 - 0.75 * 0.3]) ** 2
    np.testing.assert_allclose(shares[0], 16 * np.array([share[0], share[1], 0]) / share[:2].sum(), rtol=1e-9)


def test_review_of_pure_noise_gives_finite_weights():
    found = decode(np.full((2, 3, 3), -40), np.zeros((6, 2), dtype=np.int64))
    shares = found.review(np.full((6, 3), 1 / 3))
    assert np.isfinite(shares).all()
    assert (shares.sum(axis=1) > 0).all()


def test_probability_of_a_label_matches_the_vector():
    from scipy.stats import norm

    assert norm.cdf((3 - 1) / np.sqrt(2)) == pytest.approx(0.9213503965, abs=5e-11)
    assert norm.sf(1, loc=2, scale=np.sqrt(2)) == pytest.approx(0.7602499389, abs=5e-11)
    histogram = np.tile(np.array([3, 1]) * 2**20, (1, 4000, 1))
    found = decode(add_noise(histogram, SeededNoise(0)), np.arange(4000)[:, None])
    assert np.mean(found.labels == 0) == pytest.approx(0.9213, abs=0.02)
    assert np.mean((found.labels == 0) & (found.margins >= 1)) == pytest.approx(0.7602 + 0.0127, abs=0.03)
