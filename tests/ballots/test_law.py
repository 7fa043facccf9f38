"""The exact law of released ballots, on tiny cases: nobody's (ε, δ) is exceeded, and each known mistake exceeds it."""

import numpy as np
import pytest

from ballots.law import BINS, LABEL, adversarial, worst
from ipate.engines.ballots.counting import decode, sum_ballots
from ipate.engines.ballots.design import GRID, ballot_terms, make_design
from ipate.people.budgets import Budget, Group

CASES = [(0.5, 1e-2), (1.0, 1e-3), (3.0, 1e-3)]
ONE_ROW = [(cell, label) for cell in (0, 1) for label in (0, 1)]
RECORDS = [[], *[[row] for row in ONE_ROW], [(0, 0), (0, 1)], [(0, 0), (1, 1)], [(0, 0), (0, 0), (1, 1)]]


def designed(epsilon, delta, *, partitions=1, more=()):
    """A design of two cells for one person and, optionally, for others with other budgets."""
    groups = [Group(id="own", budget=Budget(epsilon, delta), people=1)]
    groups += [Group(id=f"other{i}", budget=Budget(*budget), people=1) for i, budget in enumerate(more)]
    return make_design(ballot_terms(groups), n_classes=2, n_pool=10, partitions=partitions, cells=2)


def ballot(design, *, factor=1.0, summed=False):
    """The person's part of the score of a point in each cell, by the code under test."""

    def histogram(record):
        cells = np.array([[cell] * design.partitions for cell, _ in record], dtype=np.int32)
        cells = cells.reshape(-1, design.partitions)
        labels = np.array([label for _, label in record], dtype=np.int64)
        owner = np.arange(len(record)) if summed else np.zeros(len(record), dtype=np.int64)
        units = np.full(max(1, len(record)), round(design.units["own"] * factor))
        total = sum_ballots(cells, labels, units=units, person_of_row=owner, shape=design.shape)
        return total.sum(axis=0) * GRID / np.sqrt(design.partitions)

    return histogram


@pytest.mark.parametrize(("epsilon", "delta"), CASES)
@pytest.mark.parametrize("edges", [LABEL, BINS], ids=["labels", "labels and confidence"])
@pytest.mark.parametrize("partitions", [1, 2, 16])
def test_exact_law_reaches_but_never_passes_delta(epsilon, delta, edges, partitions):
    design = designed(epsilon, delta, partitions=partitions)
    backgrounds = adversarial(epsilon, Budget(epsilon, delta).mu)
    found = worst(RECORDS, ballot(design), epsilon, backgrounds=backgrounds, edges=edges)
    assert 0.99 < found / delta <= 1.0


@pytest.mark.parametrize(
    ("epsilon", "delta", "ratio"), [(0.5, 1e-2, 3.8), (1.0, 1e-3, 11.9), (3.0, 1e-3, 24.7)], ids=str
)
def test_oracle_sees_a_forgotten_root_of_two(epsilon, delta, ratio):
    mu = np.sqrt(2) * Budget(epsilon, delta).mu
    found = worst(
        RECORDS, ballot(designed(epsilon, delta), factor=np.sqrt(2)), epsilon, backgrounds=adversarial(epsilon, mu)
    )
    assert found / delta == pytest.approx(ratio, abs=0.06)


def test_oracle_sees_a_forgotten_root_of_partitions():
    design = designed(1.0, 1e-2, partitions=2)
    backgrounds = adversarial(1.0, np.sqrt(2) * Budget(1.0, 1e-2).mu)
    assert worst(RECORDS, ballot(design, factor=np.sqrt(2)), 1.0, backgrounds=backgrounds) > 4 * 1e-2


@pytest.mark.parametrize(("epsilon", "delta"), CASES[:2])
def test_oracle_sees_mean_weights_for_everybody(epsilon, delta):
    design = designed(epsilon, delta, more=[(3.0, 1e-3)])
    factor = np.mean(list(design.units.values())) / design.units["own"]
    backgrounds = adversarial(epsilon, factor * Budget(epsilon, delta).mu)
    assert worst(RECORDS, ballot(design, factor=factor), epsilon, backgrounds=backgrounds) > 1.5 * delta


def test_oracle_sees_rows_that_are_summed():
    backgrounds = adversarial(1.0, 3 * Budget(1.0, 1e-3).mu)
    rows = [[(0, 0)] * 3, [(0, 1)] * 3]
    assert worst(rows, ballot(designed(1.0, 1e-3), summed=True), 1.0, backgrounds=backgrounds) > 20 * 1e-3


def test_oracle_sees_an_uncharged_second_draw():
    backgrounds = adversarial(1.0, np.sqrt(2) * Budget(1.0, 1e-2).mu)
    found = worst(RECORDS, ballot(designed(1.0, 1e-2)), 1.0, backgrounds=backgrounds, edges=BINS, draws=2)
    assert found > 1.5 * 1e-2


def test_scores_of_partitions_are_their_sum_over_the_root():
    histogram = np.array([[[8, 0], [0, 0]], [[8, 0], [0, 4]], [[8, 0], [0, 4]], [[8, 0], [0, 0]]])
    cells = np.array([[0, 0, 0, 0], [0, 1, 1, 0]])
    np.testing.assert_allclose(decode(histogram, cells).margins, [2.0, 0.5])
