"""Copies of votes are recognised query by query; votes of other teachers are not mistaken for copies."""

import numpy as np
import pytest

from ipate.engines.teachers.votes import Votes, is_copy, sketch


def panel(seed, *, teachers=250, classes=2, queries=600):
    """Votes of teachers on the same queries; the difficulty of a query is the same for every seed."""
    fixed, rng = np.random.default_rng(0), np.random.default_rng(seed)
    truth, right = fixed.integers(classes, size=queries), 1 / (1 + np.exp(-2.5 - 2 * fixed.normal(size=queries)))
    drawn = np.where(rng.random((teachers, queries)) < right, truth, rng.integers(classes, size=(teachers, queries)))
    return Votes(votes=drawn, n_classes=classes)


@pytest.mark.parametrize(("teachers", "classes"), [(20, 2), (250, 2), (60, 10), (250, 10)])
def test_votes_of_other_teachers_are_no_copy(teachers, classes):
    one, other = (panel(seed, teachers=teachers, classes=classes) for seed in (1, 2))
    assert not is_copy(sketch(one), other)
    assert is_copy(sketch(one), one)


@pytest.mark.parametrize("kept", [0.6, 0.3, 0.1])
def test_part_under_the_same_ids_is_a_copy(kept):
    votes, rng = panel(1), np.random.default_rng(5)
    chosen = rng.permutation(600)[: int(600 * kept)]
    part = Votes(votes=votes.votes[:, chosen], n_classes=2, queries=tuple(map(str, chosen)))
    assert is_copy(sketch(part), votes)
    assert is_copy(sketch(votes), part)


def test_other_ids_and_order_hide_no_copy():
    votes, rng = panel(1, classes=10), np.random.default_rng(5)
    mixed = votes.votes[rng.permutation(250)][:, rng.permutation(600)[:500]]
    assert is_copy(sketch(Votes(votes=mixed, n_classes=10)), votes)


def test_unanimous_queries_prove_nothing():
    same = Votes(votes=np.ones((50, 100), dtype=np.int64), n_classes=2)
    assert sketch(same) == ""
    assert not is_copy(sketch(same), same)
