"""What decides Table 1 on SVHN: how far teachers agree, and the noise."""

import math

import numpy as np
import pytest

from paper.experiments import two_groups
from paper.grid import Options, Votings, run_votings
from paper.models import TrainedModels
from paper.pages import spread
from paper.table1 import SIGMAS, WAYS, agreement, table1, with_more_agreement
from paper.voting import standard, weighting


def _plurality(votes):
    return np.stack([(votes == one).sum(axis=0) for one in range(10)]).argmax(axis=0)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_more_agreement_keeps_the_plurality(common, share, way):
    made = with_more_agreement(common, share, way=way)
    top = _plurality(common.votes)
    assert np.array_equal(_plurality(made.votes), top)
    assert np.array_equal(made.votes[common.votes == top], common.votes[common.votes == top])
    against = common.votes != top
    assert np.mean((made.votes == top)[against]) == pytest.approx(share, abs=0.06)
    unanimous = np.mean((made.votes == top).all(axis=0))
    assert unanimous >= share - 0.06 if way == "points" else unanimous < 0.1 or share == 1


def test_ratios_are_compared_at_paper_label_count(weak):
    table = agreement([weak], Options(ensembles=1, votings=2))
    assert [name for name, _ in table.rows] == [f"{way}, σ = {sigma:g}" for way in WAYS for sigma in SIGMAS]
    for _, cells in table.rows:
        assert cells[1].ours.mean == pytest.approx(93, rel=0.35)
        assert cells[2].theirs == pytest.approx(394 / 90)
        assert cells[5].theirs == pytest.approx(558 / 96)
    ratios = {name: cells[2].ours.mean for name, cells in table.rows}
    assert ratios["votes, σ = 20"] > 1.15 * ratios["votes, σ = 40"]  # less noise, larger ratios


def test_ratios_compare_labels_of_same_voting(common):
    given = two_groups(math.log(2), math.log(8), 0.5)
    options = Options(ensembles=1, votings=3)
    base = run_votings([common], standard, given, options)
    more = run_votings([common], weighting, given, options)
    expected = [a.n_labels / b.n_labels for a, b in zip(more, base, strict=True)]
    assert Votings(more[::-1]).over(base) == spread(expected[::-1])
    assert base.over(base).sd == 0


class MadeUp(TrainedModels):
    """Made-up votes on few points; it records which setups are asked for."""

    def __init__(self, make):
        self.asked, self.make = set(), make

    def require(self, specs):
        self.asked |= {spec.setup for spec in specs}

    def ensembles(self, specs):
        return [self.make(spec, points=300) for spec in specs]


@pytest.mark.parametrize(
    ("options", "setups", "tables"),
    [
        ({"only": ("mnist",)}, {"mnist-official", "mnist-strong"}, 4),
        ({"row": "54/37/9%"}, {"mnist-official", "svhn"}, 3),
    ],
)
def test_part_of_table1_asks_for_its_setups_alone(options, setups, tables, make):
    models = MadeUp(make)
    page = table1(models, Options(ensembles=1, votings=1, **options))
    assert models.asked == setups
    assert len(page.tables) == tables
    rows = [name for name, _ in page.tables[0].rows]
    assert all(name.startswith("MNIST") if "only" in options else name.endswith("54/37/9%") for name in rows)
    assert len(rows) == 2
