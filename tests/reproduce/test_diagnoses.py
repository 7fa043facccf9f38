"""What explains the paper's figures: agreement and noise on SVHN, and whose cost ends a voting of vanishing."""

import math

import numpy as np
import pytest

from ipate.reproduce.agreement import SIGMAS, agreement, following
from ipate.reproduce.grid import Options
from ipate.reproduce.schemes import two, vanishing
from ipate.reproduce.turning import whose_cost
from ipate.reproduce.voting import PAPER, turns_of

STRICT = two(math.log(2), math.log(8), 0.25)


def _plurality(votes):
    return np.stack([(votes == one).sum(axis=0) for one in range(10)]).argmax(axis=0)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_dissent_joins_the_plurality_and_leaves_it_what_it_is(common, share):
    made = following(common, share)
    top = _plurality(common.votes)
    assert np.array_equal(_plurality(made.votes), top)
    assert np.array_equal(made.votes[common.votes == top], common.votes[common.votes == top])
    against = common.votes != top
    assert np.mean((made.votes == top)[against]) == pytest.approx(share, abs=0.02)


def test_ratios_are_compared_at_the_papers_number_of_labels(weak):
    table = agreement([weak], Options(ensembles=1, votings=2))
    assert [name for name, _ in table.rows] == [f"σ = {sigma:g}" for sigma in SIGMAS]
    for _, cells in table.rows:
        assert cells[1].theirs == 93
        assert cells[1].ours.mean == pytest.approx(93, rel=0.35)
        assert cells[2].theirs == pytest.approx(394 / 90)
    ratios = [cells[2].ours.mean for _, cells in table.rows]
    assert ratios[-1] > 1.15 * ratios[0]  # less noise, larger ratios


def test_a_mean_hides_who_has_overspent(common):
    turns = turns_of(common, vanishing(common, STRICT, power=2), voting=0)
    strictly, loosely = turns.affordable(), turns.affordable_on_average()
    assert loosely > strictly
    budget, delta = turns.panel.budgets
    worst, _ = PAPER.epsilon(turns.spent(loosely), delta)
    assert (worst > budget).any()
    means = {}
    for queries in (loosely, loosely + 1):
        epsilon, _ = PAPER.epsilon(turns.spent(queries), delta)
        groups = range(len(turns.panel.groups))
        means[queries] = [
            epsilon[turns.panel.account_group == g].mean() / budget[turns.panel.account_group == g][0] for g in groups
        ]
    assert max(means[loosely]) <= 1 < max(means[loosely + 1])


def test_the_mean_gives_more_labels_than_the_worst_off_teacher(common):
    table = whose_cost([common], Options(ensembles=1, votings=2))
    for _, (early, final, worst, coins, mean) in table.rows:
        assert early in ("25", "0")
        assert float(final) >= float(early)
        assert coins.ours.mean <= worst.ours.mean < mean.ours.mean
