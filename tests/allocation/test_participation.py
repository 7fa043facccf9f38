"""The schedule of vanishing: stable numbers, equal turns, fresh shuffles, the same from any chunk."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipate.allocation.participation import Participation, separate
from ipate.errors import InputError

fractions = st.sampled_from([0.0, 1e-3, 0.13, 0.25, 1 / 3, 0.5, 0.5000001, 0.6, 0.77, 0.999, 1.0]) | st.floats(0, 1)


def schedule(parts, seed=0):
    return Participation(
        seed=seed,
        fractions={name: fraction for name, (_, fraction) in parts.items()},
        teacher_groups=tuple(name for name, (teachers, _) in parts.items() for _ in range(teachers)),
    )


@settings(deadline=None)
@given(teachers=st.integers(1, 40), fraction=fractions, seed=st.integers(0, 99), votings=st.integers(1, 300))
def test_attendance_and_turns_differ_by_at_most_one(teachers, fraction, seed, votings):
    """Mutants: shuffles that are not kept apart lower a number; turns by chance break the ±1."""
    made = schedule({"g": (teachers, fraction)}, seed)
    present = made.participants(np.arange(votings))
    numbers = present.sum(axis=0)
    assert numbers.max() - numbers.min() <= 1
    assert set(numbers) <= {int(np.floor(teachers * fraction + 1e-7)), int(np.ceil(teachers * fraction - 1e-7))}
    assert made.sensitivity(np.arange(votings)).tolist() == [teachers / number if number else 0 for number in numbers]
    assert abs(numbers.sum() - votings * teachers * fraction) <= 1 + 1e-4
    turns = np.cumsum(present, axis=1)
    assert (turns.max(axis=0) - turns.min(axis=0)).max() <= 1
    assert turns[:, -1].max() == made.most_turns(votings)["g"]


@settings(deadline=None)
@given(data=st.data(), seed=st.integers(0, 99))
def test_schedule_does_not_depend_on_chunks(data, seed):
    made = schedule({"a": (7, 0.4), "b": (11, 0.8), "c": (3, 1.0)}, seed)
    whole = made.participants(np.arange(500))
    votings = np.array(data.draw(st.lists(st.integers(0, 499), min_size=1, max_size=30)))
    again = schedule({"a": (7, 0.4), "b": (11, 0.8), "c": (3, 1.0)}, seed)
    assert np.array_equal(again.participants(votings), whole[:, votings])


def test_every_cycle_and_group_has_its_own_shuffle():
    """Mutant: one shuffle for all cycles repeats with the period of the cycle."""
    present = schedule({"a": (20, 0.25), "b": (20, 0.25)}).participants(np.arange(400))
    cycles = present[:20].reshape(20, 100, 4)
    assert len({cycles[:, cycle].tobytes() for cycle in range(100)}) == 100
    assert not np.array_equal(present[:20], present[20:])
    other = schedule({"a": (20, 0.25), "b": (20, 0.25)}, seed=1).participants(np.arange(400))
    assert not np.array_equal(present, other)
    together = present[:20].astype(float) @ present[:20].T
    assert together[~np.eye(20, dtype=bool)].min() > 0  # everybody meets everybody


def test_schedule_depends_on_group_ids_not_order():
    one = schedule({"a": (5, 0.3), "b": (9, 0.7)}).participants(np.arange(50))
    turned = schedule({"b": (9, 0.7), "a": (5, 0.3)}).participants(np.arange(50))
    assert np.array_equal(one[:5], turned[9:])
    assert np.array_equal(one[5:], turned[:9])


def test_votes_weigh_k_over_participants():
    made = schedule({"a": (30, 0.31), "b": (10, 1.0)})
    votings = np.arange(200)
    expected = 40 / made.participants(votings).sum(axis=0)
    assert made.sensitivity(votings) == pytest.approx(expected)
    assert made.sensitivity(votings).max() == made.worst_sensitivity == 40 / 19


def test_late_queries_need_little_memory():
    made = schedule({"a": (500, 0.2), "b": (100, 1.0)})
    tracemalloc.start()
    far = made.participants(np.arange(10**9, 10**9 + 200))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert far.sum(axis=0).tolist() == [200] * 200
    assert peak < 30_000_000


@settings(deadline=None)
@given(t=st.integers(2, 30), data=st.data())
def test_separate_keeps_lead_and_trail_disjoint(t, data):
    trail = data.draw(st.integers(0, t // 2))
    lead = data.draw(st.integers(0, t // 2 - trail)) if trail else 0
    fixed = data.draw(st.integers(0, t - trail - lead))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    before, order = (rng.permuted(np.tile(np.arange(t), (6, 1)), axis=1) for _ in range(2))
    result = separate(
        order, before, **{n: np.full(6, v) for n, v in (("trail", trail), ("lead", lead), ("fixed", fixed))}
    )
    assert np.array_equal(np.sort(result, axis=1), np.sort(order, axis=1))
    assert np.array_equal(result[:, t - fixed :], order[:, t - fixed :])
    for row, previous in zip(result, before, strict=True):
        assert not set(row[:lead]) & set(previous[t - trail :])


@pytest.mark.parametrize("votings", [[-1], [0.5], [[1, 2]]])
def test_negative_or_fractional_query_numbers_are_refused(votings):
    with pytest.raises(InputError, match="votings"):
        schedule({"a": (3, 0.5)}).participants(votings)


def test_bad_or_missing_fractions_are_refused():
    with pytest.raises(InputError, match=r"fraction of 'a' is 1\.5"):
        schedule({"a": (3, 1.5)})
    with pytest.raises(InputError, match="'b'"):
        Participation(seed=0, fractions={"a": 0.5}, teacher_groups=("a", "b"))


def test_some_queries_of_a_file_get_the_first_votings():
    made, order = schedule({"a": (12, 0.5), "b": (6, 1.0)}), np.array([7, 2, 9])
    present = made.in_order(10, order)
    np.testing.assert_array_equal(present[:, order], made.participants(np.arange(3)))
    assert not np.delete(present, order, axis=1).any()
