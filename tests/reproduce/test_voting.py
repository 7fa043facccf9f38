"""Votings of the reproduction: the shortcuts give what the product's own loop gives, and costs follow people."""

import math
from dataclasses import replace

import numpy as np
import pytest

from ipate.accounting import gdp
from ipate.accounting.bounds import Meter
from ipate.labelling.aggregators import Confident
from ipate.labelling.loop import label
from ipate.labelling.noise import SeededNoise
from ipate.reproduce.schemes import as_published, budgets, published, standard, two, upsampling, vanishing, weighting
from ipate.reproduce.voting import IMPROVED, PAPER, Booth, hold, order_of, replay, seed_of, spread
from ipate.votes import Votes

PAIR = two(math.log(2), math.log(8), 0.5)
MAJORITY = budgets((1.0, 2.0, 3.0), (0.54, 0.37, 0.09))


@pytest.mark.parametrize(
    "meter",
    [PAPER, IMPROVED, Meter("gdp"), Meter("exact", "improved")],
    ids=["paper", "improved", "gdp", "exact"],
)
@pytest.mark.parametrize("variant", ["standard", "weighting", "upsampling"])
def test_a_booth_gives_what_the_loop_gives(meter, variant, common, copied):
    made = {
        "standard": (common, standard(common, PAIR)),
        "weighting": (common, weighting(common, MAJORITY)),
        "upsampling": (copied, upsampling(copied, PAIR)),
    }
    ensemble, scheme = made[variant]
    fast, slow = Booth(ensemble, scheme, meter).hold(2), hold(ensemble, scheme, meter, voting=2)
    assert fast.n_labels > 5
    assert np.array_equal(fast.asked, slow.asked)
    assert np.array_equal(fast.labels, slow.labels)
    assert fast.spent == pytest.approx(slow.spent)
    for group in scheme.panel.groups:
        assert fast.spent[group.id] <= group.epsilon


def test_vanishing_by_matrices_gives_what_the_loop_gives(common):
    scheme = vanishing(common, PAIR, power=2)
    fast = hold(common, scheme, voting=0)
    order = order_of(common, 0)
    present = scheme.schedule.participants(np.arange(len(order)))
    votes = Votes(
        votes=common.votes[:, order], n_classes=10, participation=present, queries=tuple(map(str, order.tolist()))
    )
    slow = label(
        votes, scheme.panel, Confident(mechanism=scheme.mechanism), PAPER, noise=SeededNoise(seed_of(common, 0))
    )
    # the loop stops before a query that could overspend, the paper once one has
    assert 0 <= len(fast.asked) - slow.n_queries <= 3
    assert np.array_equal(fast.labels[: slow.n_queries], slow.labels)
    for group in scheme.panel.groups:
        assert fast.spent[group.id] <= group.epsilon


def test_as_published_pairs_by_rank_and_the_true_account_shows_it(common):
    true = weighting(common, MAJORITY, rule="algorithm2")
    paired = published(common, MAJORITY)
    weight = {group.id: group.sensitivity for group in true.panel.groups}
    assert weight["1"] > weight["3"]  # the strict majority weighs more than the lax few
    charged = {group.id: group.epsilon for group in paired.panel.groups}
    assert charged == {"3": 1.0, "1": 2.0, "2": 3.0}
    held = hold(common, paired, voting=0)
    spent, ended, _ = replay(common, true, held)
    assert spent["1"] > 1.5  # the strictest budget is 1
    assert ended["1"] is not None
    assert ended["1"] < held.n_labels
    honest = hold(common, true, voting=0)
    assert honest.spent["1"] <= 1.0
    assert honest.n_labels < held.n_labels


def test_copies_are_charged(copied):
    """Whoever is in three teachers moves three votes and pays for them, by the Gaussian's formula."""
    scheme = upsampling(copied, PAIR)
    held = hold(copied, scheme, Meter("gdp"), voting=0)
    noise = scheme.mechanism
    per_check, per_label = 1 / noise.check_sigma**2, 2 / noise.sigma**2
    for name, copies in (("low", 1), ("high", 3)):
        mu2 = copies**2 * (len(held.asked) * per_check + held.n_labels * per_label)
        assert held.spent[name] == pytest.approx(float(gdp.epsilon_of(mu2**0.5, 1e-5)))


def test_equal_budgets_make_weighting_the_standard(common):
    equal = two(1.0, 1.0, 0.25)
    one = Booth(common, standard(common, equal), PAPER).hold(0)
    other = Booth(common, weighting(common, equal), PAPER).hold(0)
    assert np.array_equal(one.labels, other.labels)


def test_the_order_of_groups_changes_nothing(common):
    turned = dict(reversed(MAJORITY.items()))
    forth, back = (as_published(weighting(common, given, rule="algorithm2")) for given in (MAJORITY, turned))
    assert {g.id: (g.epsilon, round(g.sensitivity, 12)) for g in forth.panel.groups} == {
        g.id: (g.epsilon, round(g.sensitivity, 12)) for g in back.panel.groups
    }


def test_scores_are_those_of_the_labels_given(common):
    held = hold(common, weighting(common, PAIR), voting=0)
    given = held.labels >= 0
    assert held.accuracy == np.mean(held.labels[given] == common.truth[held.asked[given]])
    classes = [held.accuracy_of(c) for c in range(10)]
    assert min(classes) <= held.accuracy <= max(classes)
    nothing = replace(held, labels=np.full(len(held.labels), -1))
    assert math.isnan(nothing.accuracy)


def test_spread_leaves_out_what_is_missing():
    found = spread([1.0, float("nan"), 3.0])
    assert (found.mean, found.sd, found.n) == (2.0, pytest.approx(2**0.5), 2)
    assert spread([]).n == 0
