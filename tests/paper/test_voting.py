"""Votings: the shortcuts give the results of the labelling loop, and every group is charged its own cost."""

import math
from dataclasses import replace

import numpy as np
import pytest

from ipate.accounting import gdp
from ipate.accounting.bounds import Meter
from ipate.engines.teachers.aggregators import Confident
from ipate.engines.teachers.loop import label
from ipate.engines.teachers.votes import Votes
from paper.experiments import THREE_GROUPS, two_groups
from paper.grid import PrecomputedVotings
from paper.voting import (
    IMPROVED,
    PAPER,
    as_published,
    charge_again,
    published,
    query_order,
    run_voting,
    standard,
    upsampling,
    vanishing,
    voting_noise,
    weighting,
)

PAIR = two_groups(math.log(2), math.log(8), 0.5)
MAJORITY = THREE_GROUPS["54/37/9%"]


@pytest.mark.parametrize(
    "meter",
    [PAPER, IMPROVED, Meter("gdp"), Meter("exact", "improved")],
    ids=["paper", "improved", "gdp", "exact"],
)
@pytest.mark.parametrize("variant", ["standard", "weighting", "upsampling"])
def test_precomputed_votings_equal_the_loop(meter, variant, common, copied):
    made = {
        "standard": (common, standard(common, PAIR)),
        "weighting": (common, weighting(common, MAJORITY)),
        "upsampling": (copied, upsampling(copied, PAIR)),
    }
    ensemble, scheme = made[variant]
    fast = PrecomputedVotings(ensemble, scheme, meter).run(2)
    slow = run_voting(ensemble, scheme, meter, number=2)
    assert fast.n_labels > 5
    assert np.array_equal(fast.asked, slow.asked)
    assert np.array_equal(fast.labels, slow.labels)
    assert fast.spent == pytest.approx(slow.spent)
    for group in scheme.panel.groups:
        assert fast.spent[group.id] <= group.epsilon


def test_rotation_costs_agree_with_the_loop(common):
    scheme = vanishing(common, PAIR, power=2)
    fast = run_voting(common, scheme, number=0)
    order = query_order(common, 0)
    present = scheme.schedule.participants(np.arange(len(order)))
    votes = Votes(
        votes=common.votes[:, order], n_classes=10, participation=present, queries=tuple(map(str, order.tolist()))
    )
    slow = label(votes, scheme.panel, Confident(mechanism=scheme.mechanism), PAPER, noise=voting_noise(common, 0))
    # the loop stops before a query that could overspend, the paper once one has
    assert 0 <= len(fast.asked) - slow.n_queries <= 3
    assert np.array_equal(fast.labels[: slow.n_queries], slow.labels)
    for group in scheme.panel.groups:
        assert fast.spent[group.id] <= group.epsilon


def test_published_pairing_overspends_strict_budgets(common):
    true = weighting(common, MAJORITY, rule="algorithm2")
    paired = published(common, MAJORITY)
    weight = {group.id: group.sensitivity for group in true.panel.groups}
    assert weight["1"] > weight["3"]  # the strict majority weighs more than the lax few
    charged = {group.id: group.epsilon for group in paired.panel.groups}
    assert charged == {"3": 1.0, "1": 2.0, "2": 3.0}
    voting = run_voting(common, paired, number=0)
    spent, exhausted, _ = charge_again(voting, true)
    assert spent["1"] > 1.5  # the strictest budget is 1
    assert exhausted["1"] is not None
    assert exhausted["1"] < voting.n_labels
    correct = run_voting(common, true, number=0)
    assert correct.spent["1"] <= 1.0
    assert correct.n_labels < voting.n_labels


def test_upsampling_charges_every_copy(copied):
    """A person in three teachers changes three votes and is charged for them, by the Gaussian mechanism's formula."""
    scheme = upsampling(copied, PAIR)
    voting = run_voting(copied, scheme, Meter("gdp"), number=0)
    noise = scheme.mechanism
    per_check, per_label = 1 / noise.check_sigma**2, 2 / noise.sigma**2
    for name, copies in (("low", 1), ("high", 3)):
        mu2 = copies**2 * (len(voting.asked) * per_check + voting.n_labels * per_label)
        assert voting.spent[name] == pytest.approx(float(gdp.epsilon_of(mu2**0.5, 1e-5)))


def test_equal_budgets_make_weighting_standard(common):
    equal = two_groups(1.0, 1.0, 0.25)
    one = run_voting(common, standard(common, equal), number=0)
    other = run_voting(common, weighting(common, equal), number=0)
    assert np.array_equal(one.labels, other.labels)


def test_group_order_does_not_change_charges(common):
    turned = dict(reversed(MAJORITY.items()))
    forth, back = (as_published(weighting(common, given, rule="algorithm2")) for given in (MAJORITY, turned))
    assert {g.id: (g.epsilon, round(g.sensitivity, 12)) for g in forth.panel.groups} == {
        g.id: (g.epsilon, round(g.sensitivity, 12)) for g in back.panel.groups
    }


def test_accuracy_counts_released_labels_only(common):
    voting = run_voting(common, weighting(common, PAIR), number=0)
    answered = voting.labels >= 0
    assert voting.accuracy == np.mean(voting.labels[answered] == common.truth[voting.asked[answered]])
    classes = [voting.accuracy_of(c) for c in range(10)]
    assert min(classes) <= voting.accuracy <= max(classes)
    nothing = replace(voting, labels=np.full(len(voting.labels), -1))
    assert math.isnan(nothing.accuracy)
