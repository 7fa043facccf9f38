"""What a labelling charges to its ledger, and when it stops."""

import numpy as np
import pytest

from ipate.accounting.bounds import Meter
from ipate.engines.teachers.aggregators import Confident, GNMax, Mechanism
from ipate.engines.teachers.loop import LabellingState, label, open_ledger
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.votes import Votes
from ipate.errors import BudgetExceededError
from ipate.ledger.base import MemoryLedger
from ipate.people.budgets import Account, Budget, Group
from ipate.release.noise import SeededNoise
from ledger.making import BUDGETS, CONFIDENT, DELTA, GROUPS, WEIGHTS, charge, voting

GNMAX = GNMax(mechanism=Mechanism(sigma=20.0))


@pytest.mark.parametrize("bound", ["loose", "sup"])
@pytest.mark.parametrize("conversion", ["classic", "improved"])
def test_filter_fixes_one_renyi_order_per_account(bound, conversion):
    _, panel = voting(1)
    meter = Meter(bound, conversion)
    book = open_ledger(panel, meter, CONFIDENT)
    assert tuple(book.terms) == ("middle", "strict", "lax")
    for group in panel.groups:
        own = book.terms[group.id]
        (order,) = own.meter.orders
        assert (own.account.epsilon, own.account.delta, own.meter.bound) == (BUDGETS[group.id], DELTA, bound)
        cost = meter.worst_label(sensitivity=group.sensitivity, sigma=20.0)
        cost = cost + meter.worst_check(sensitivity=group.sensitivity, check_sigma=30.0)
        afforded = meter.limit(group.epsilon, DELTA) / cost
        assert order == meter.orders[int(np.argmax(afforded))]
        assert book.limit(group.id)[0] == meter.limit(group.epsilon, DELTA)[meter.orders.index(order)]
    assert len({entry.meter.orders for entry in book.terms.values()}) > 1


@pytest.mark.parametrize("bound", ["gdp", "tight", "exact"])
def test_accounts_without_a_filter_keep_all_orders(bound):
    _, panel = voting(1)
    meter = Meter(bound)
    book = open_ledger(panel, meter, GNMAX)
    for name, epsilon in BUDGETS.items():
        assert book.terms[name].meter == meter
        np.testing.assert_array_equal(book.limit(name), meter.limit(epsilon, DELTA))


def test_rotating_teachers_have_own_accounts_with_group_budget():
    _, panel = voting(2, participation=np.ones((5, 2), dtype=bool))
    book = open_ledger(panel, Meter(), GNMAX)
    assert [(entry.account.id, entry.account.group.id, entry.account.epsilon) for entry in book.terms.values()] == [
        (f"teacher {index}", name, BUDGETS[name]) for index, name in enumerate(GROUPS)
    ]


def mu2(weight, *, checks=0, labels=0):
    return checks * (weight / 30) ** 2 + labels * 2 * (weight / 20) ** 2


@pytest.mark.parametrize("batch", [1, 7, 100])
def test_all_checks_and_released_labels_are_charged(batch):
    votes, panel = voting(60)
    book = open_ledger(panel, Meter(), CONFIDENT)
    run = label(votes, panel, CONFIDENT, Meter(), noise=SeededNoise(1), ledger=book, batch=batch, max_queries=40)
    labels = int(run.answered.sum())
    assert 0 < labels < run.n_queries == 40
    for name, weight in {"strict": 0.5, "lax": 1.5, "middle": 1.0}.items():
        assert book.spent(name)[0] == pytest.approx(mu2(weight, checks=40, labels=labels), rel=1e-9)
    assert [query for entry in book.charges for query in entry.keys] == [str(i) for i in range(40)]
    np.testing.assert_array_equal(np.concatenate([entry.answered for entry in book.charges]), run.answered)


@pytest.mark.parametrize("bound", ["gdp", "loose", "sup", "tight", "exact"])
@pytest.mark.parametrize("batch", [1, 50, None])
def test_labelling_stops_before_the_ledger_would_refuse(bound, batch):
    votes, panel = voting(3000)
    noisy = Confident(mechanism=Mechanism(sigma=6.0, check_sigma=8.0, threshold=2.0))
    book = open_ledger(panel, Meter(bound), noisy)
    queries = 40 if bound == "exact" else None
    run = label(votes, panel, noisy, Meter(bound), noise=SeededNoise(2), ledger=book, batch=batch, max_queries=queries)
    assert run.stopped_by == ("count" if bound == "exact" and run.n_queries == 40 else "budget")
    assert run.n_labels > 0
    for name, epsilon in BUDGETS.items():
        assert np.any(book.spent(name) <= book.limit(name))
        assert 0 < book.epsilon(name) <= epsilon


class Refusing(MemoryLedger):
    """Says that everything is affordable, and then refuses."""

    def charge(self, charge):
        raise BudgetExceededError("refused")


def test_refused_charge_releases_no_label():
    votes, panel = voting(4, queries=("a", "b", "a", "c"))
    book = Refusing(list(open_ledger(panel, Meter(), GNMAX).terms.values()))
    run = LabellingState(
        votes=votes,
        panel=panel,
        aggregator=GNMAX,
        meter=Meter(),
        ledger=book,
        noise=SeededNoise(3),
        probs=None,
        may_repeat=True,
    )
    with pytest.raises(BudgetExceededError, match="refused"):
        run.ask(np.arange(4), np.inf, np.inf)
    assert (run.parts, run.store, run.n_labels, run.n_asked) == ([], {}, 0, 0)


def test_repeated_query_is_charged_only_once():
    votes, panel = voting(6, queries=("a", "b", "a", "a", "c", "b"))
    book = open_ledger(panel, Meter(), CONFIDENT)
    run = label(votes, panel, CONFIDENT, Meter(), noise=SeededNoise(4), ledger=book, batch=2)
    assert [query for entry in book.charges for query in entry.keys] == ["a", "b", "c"]
    labels = int(run.answered[[0, 1, 4]].sum())
    assert book.spent("lax")[0] == pytest.approx(mu2(1.5, checks=3, labels=labels), rel=1e-9)


def test_teacher_pays_only_for_queries_it_voted_on():
    present = np.array([[1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]], dtype=bool)
    votes, panel = voting(4, participation=present)
    sure = Confident(mechanism=Mechanism(sigma=80.0, check_sigma=120.0, threshold=-1e6))
    book = open_ledger(panel, Meter(), sure)
    run = label(votes, panel, sure, Meter(), noise=SeededNoise(5), ledger=book)
    assert run.n_labels == 4
    weight = 5 / present.sum(axis=0)
    for teacher in range(5):
        own = sum(mu2(weight[query] / 4, checks=1, labels=1) for query in range(4) if present[teacher, query])
        assert book.spent(f"teacher {teacher}")[0] == pytest.approx(own, rel=1e-9, abs=0)
    assert {group.id: group.cost > 0 for group in run.groups} == {
        "middle": False,
        "strict": True,
        "lax": True,
    }


def test_remaining_groups_are_charged_for_their_scaled_weight():
    votes, panel = voting(400)
    costly = GNMax(mechanism=Mechanism(sigma=25.0))
    book = open_ledger(panel, Meter(), costly)
    label(votes, panel, costly, Meter(), noise=SeededNoise(6), ledger=book, stop="drop", batch=50)
    stages = {tuple(float(entry.sensitivity[name]) for name in BUDGETS): entry for entry in book.charges}
    assert len(stages) > 1
    for sensitivities in stages:
        weights = dict(zip(BUDGETS, sensitivities, strict=True))
        assert sum(weights[name] for name in GROUPS) == pytest.approx(WEIGHTS.sum())
    total = dict.fromkeys(BUDGETS, 0.0)
    for entry in book.charges:
        for name in BUDGETS:
            total[name] += len(entry.keys) * 2 * (float(entry.sensitivity[name]) / 25) ** 2
    assert {name: book.spent(name)[0] for name in BUDGETS} == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_weights_and_budgets_are_matched_by_group_id(names):
    budgets, weight = {"a": 3.0, "b": 1.0}, {"a": 1.0, "b": 2.0}
    votes = Votes(votes=np.zeros((3, 5), dtype=int), n_classes=2, groups=("b", "a", "a"))
    panel = Panel.from_votes(
        votes, [(name, budgets[name], DELTA, None) for name in names], weights=np.array([2.0, 1.0, 1.0])
    )
    assert {group.id: group.sensitivity for group in panel.groups} == weight
    book = open_ledger(panel, Meter(), GNMAX)
    label(votes, panel, GNMAX, Meter(), noise=SeededNoise(7), ledger=book, max_queries=2)
    for name in names:
        assert book.terms[name].account.epsilon == budgets[name]
        assert book.spent(name)[0] == pytest.approx(mu2(weight[name], labels=2))
    np.testing.assert_array_equal(panel.budgets[0], [budgets[name] for name in names])


def test_group_moving_several_teachers_pays_full_sensitivity():
    votes = Votes(votes=np.zeros((4, 3), dtype=int), n_classes=2)
    groups = (
        Account(group=Group(id="one", budget=Budget(3.0, DELTA)), sensitivity=1.0),
        Account(group=Group(id="three", budget=Budget(9.0, DELTA)), sensitivity=3.0),
    )
    panel = Panel(groups=groups, weights=np.ones(4))
    book = open_ledger(panel, Meter(), GNMAX)
    label(votes, panel, GNMAX, Meter(), noise=SeededNoise(8), ledger=book)
    assert book.spent("one")[0] == pytest.approx(mu2(1, labels=3))
    assert book.spent("three")[0] == pytest.approx(9 * mu2(1, labels=3))


def test_account_id_may_differ_from_the_group_id():
    """The result of a labelling finds the earlier spending of a group whatever its account is called."""
    group = Group(id="g", budget=Budget(3.0, DELTA))
    panel = Panel(groups=(Account(id="acc", group=group, sensitivity=1.0),), weights=np.ones(5))
    votes, _ = voting(4)
    found = label(Votes(votes=votes.votes, n_classes=3), panel, GNMAX, Meter(), noise=SeededNoise(1))
    assert [(entry.id, entry.before) for entry in found.groups] == [("g", 0.0)]
    assert found.groups[0].cost > 0


def test_charges_of_others_between_batches_end_a_run():
    """Balances are read again for every batch, so a run stops before a charge that the ledger would refuse."""
    votes, panel = voting(400)
    book = open_ledger(panel, Meter(), GNMAX)
    alone = label(votes, panel, GNMAX, Meter(), noise=SeededNoise(1), batch=5)

    def spend(_):
        half = {name: 0.5 * (book.limit(name) - book.spent(name)) for name in BUDGETS}
        book.charge(charge(half, seeded=True))

    found = label(votes, panel, GNMAX, Meter(), noise=SeededNoise(1), ledger=book, batch=5, progress=spend)
    assert found.stopped_by == "budget"
    assert 0 < found.n_labels < alone.n_labels
