"""Balances follow people: through other groupings, other budgets and other units."""

import numpy as np
import pytest

from ipate.accounting.bounds import Meter
from ipate.engines.teachers.account import account_for
from ipate.engines.teachers.aggregators import GNMax, LNMax, Mechanism
from ipate.engines.teachers.loop import account_terms, label
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.variants import allocate
from ipate.errors import BudgetExceededError, InputError, IpateError
from ipate.ledger.admission import Roster
from ipate.ledger.records import PolicyTerms
from ipate.ledger.sqlite import SqliteLedger
from ipate.people.people import People
from ipate.release.answers import paid_answers
from ipate.release.noise import SeededNoise
from ledger.making import BUDGETS, CONFIDENT, DELTA, LIMITS, all_terms, begin, charge, larger, opened, terms, voting

PEOPLE = {"ada": "strict", "bob": "strict", "cem": "lax", "dia": "middle"}


def labels_charge(name_to_delta, count, *, start=0, bound="gdp", sigma=40.0, meter=None):
    """A charge for `count` labels, by Δ."""
    unit = meter or Meter()
    queries = tuple(f"q{start + index}" for index in range(count))
    cost = {name: count * unit.worst_label(sensitivity=moved, sigma=sigma) for name, moved in name_to_delta.items()}
    made = charge(cost, queries=queries, labels=[0] * count, sigma=sigma, bound=bound)
    made.sensitivity.update({name: np.asarray(moved) for name, moved in name_to_delta.items()})
    return made


def mu2(*pairs):
    return sum(2 * count * moved**2 / 40.0**2 for count, moved in pairs)


@pytest.fixture
def path(tmp_path):
    """A first run in which strict people moved 1, lax people 3 and middle ones 2, ten times."""
    file = tmp_path / "ledger.sqlite"
    with begin(file, all_terms(), people=PEOPLE, pool="images") as book:
        book.charge(labels_charge({"strict": 1.0, "lax": 3.0, "middle": 2.0}, 10))
    return file


def test_new_account_starts_from_its_worst_member(path):
    mixed = [terms("one", 3.0), terms("two", 3.0), terms("new", 3.0)]
    people = {"ada": "one", "cem": "one", "bob": "two", "eve": "new", "dia": "two"}
    with begin(path, mixed, run="second", people=larger(people)) as book:
        assert book.spent("one")[0] == pytest.approx(mu2((10, 3.0)))
        assert book.spent("two")[0] == pytest.approx(mu2((10, 2.0)))
        assert book.spent("new").tolist() == [0.0]
        book.charge(labels_charge({"one": 1.0, "two": 2.0, "new": 1.0}, 5))
        assert book.verify() == book.head
    third = [terms(name, 3.0) for name in ("a", "b", "c")]
    with begin(path, third, run="third", people={"ada": "a", "cem": "b", "bob": "c", "eve": "c"}) as book:
        assert book.spent("a")[0] == pytest.approx(mu2((10, 1.0), (5, 1.0)))  # her own history, not her group's worst
        assert book.spent("b")[0] == pytest.approx(mu2((10, 3.0), (5, 1.0)))
        assert book.spent("c")[0] == pytest.approx(mu2((10, 1.0), (5, 2.0)))
        np.testing.assert_allclose(book.cost_of("cem", Meter()), [mu2((10, 3.0), (5, 1.0))])


def test_worst_member_limits_a_new_account(path):
    small = terms("one", 1.0)
    with begin(path, [small], run="second", people={"ada": "one", "dia": "one"}) as book:
        left = book.limit("one")[0] - book.spent("one")[0]
        assert left == pytest.approx(LIMITS["strict"] - mu2((10, 2.0)))
        with pytest.raises(BudgetExceededError):
            book.charge(charge({"one": 1.001 * left}))
        book.charge(charge({"one": 0.999 * left}))


def test_run_without_remaining_budget_names_the_group(path):
    with pytest.raises(BudgetExceededError, match=r"group 'careful' has nothing left.*of the budget 0\.2"):
        begin(path, [terms("careful", 0.2)], run="second", people={"cem": "careful"})
    with SqliteLedger.open(path) as book:  # nothing was written
        assert (book.run, book.head.entries) == ("run", 2)


def test_changed_consent_applies_from_the_next_run(path):
    before = mu2((10, 3.0))
    with begin(path, [terms("lax", 1.5)], run="stricter", people={"cem": "lax"}) as book:
        assert book.limit("lax") == Meter().limit(1.5, DELTA)
        assert book.spent("lax")[0] == pytest.approx(before)
    with begin(path, [terms("lax", 9.0)], run="laxer", people=larger({"cem": "lax"})) as book:
        book.charge(labels_charge({"lax": 3.0}, 5))
        assert book.spent("lax")[0] == pytest.approx(before + mu2((5, 3.0)))
        records = book.person("cem")
        assert [(entry.run, entry.budget, entry.labels) for entry in records] == [
            ("run", 3.0, 10),
            ("stricter", 1.5, 0),
            ("laxer", 9.0, 5),
        ]
        assert records[0].epsilon == pytest.approx(float(Meter().epsilon([before], DELTA)[0]))
        with pytest.raises(InputError, match="'zoe'"):
            book.person("zoe")


def test_earlier_run_can_no_longer_be_charged(path):
    people = larger({"ada": "strict", "cem": "strict"})
    begin(path, [terms("strict", 3.0)], run="second", people=people).close()
    with begin(path, all_terms(), run="run") as book:
        assert len(paid_answers(book).answers) == 10
        with pytest.raises(IpateError, match=r"run 'run' has ended.*nothing was charged"):
            book.charge(labels_charge({"lax": 1.0}, 1, start=50))


def test_only_runs_on_the_same_pool_share_answers(path):
    people = larger({"ada": "strict"})
    with begin(path, [terms("strict", 3.0)], run="second", people=people, pool="images") as book:
        assert len(paid_answers(book).answers) == 10
    with begin(path, [terms("strict", 3.0)], run="third", people=people) as book:
        assert len(paid_answers(book).answers) == 0


def test_accounts_with_unknown_people_are_refused(path, tmp_path):
    with pytest.raises(InputError, match="names its people"):
        begin(path, all_terms(), run="second")
    with pytest.raises(InputError, match="account 'nowhere' is unknown"):
        begin(path, all_terms(), run="second", people={"ada": "nowhere"})
    nameless = tmp_path / "nameless.sqlite"
    with begin(nameless, all_terms()) as book:
        book.charge(labels_charge({"strict": 1.0, "lax": 3.0}, 10))
    with pytest.raises(InputError, match="'one' is new and this ledger names no people"):
        begin(nameless, [terms("one", 3.0)], run="second")
    with pytest.raises(InputError, match="names no people"):
        begin(nameless, all_terms(), run="second", people=PEOPLE)
    entries = [terms("lax", 4.0), terms("strict", 1.0)]
    with begin(nameless, entries, run="second", people=larger()) as book:
        assert book.spent("lax")[0] == pytest.approx(mu2((10, 3.0)))
        assert book.spent("strict")[0] == pytest.approx(mu2((10, 1.0)))


@pytest.mark.parametrize("old", ["exact", "tight", "loose", "gdp", "sup"])
@pytest.mark.parametrize("new", ["gdp", "loose", "sup"])
@pytest.mark.parametrize("aggregator", [CONFIDENT, GNMax(mechanism=Mechanism(sigma=20.0))], ids=["checks", "labels"])
def test_carried_costs_equal_those_of_account_for(tmp_path, old, new, aggregator):
    votes, panel = voting(40)
    with opened(tmp_path / "ledger.sqlite", panel, Meter(old), aggregator) as book:
        run = label(votes, panel, aggregator, Meter(old), noise=SeededNoise(9), ledger=book, batch=7, max_queries=30)
        assert book.private_history == (("run",) if old in ("exact", "tight") else ())
    asked = np.full(40, -1, dtype=np.int8)
    asked[run.queries] = run.answered
    generous = dict.fromkeys(BUDGETS, 1000.0)
    _, wide = voting(40, budgets=generous)
    entries = account_terms(wide, Meter(new), aggregator)
    if old != new and "gdp" in (old, new) and old not in ("exact", "tight"):
        with pytest.raises(BudgetExceededError, match=f"charged under {old}, .* stays with the one that it began with"):
            begin(tmp_path / "ledger.sqlite", entries, run="now", noise="seeded", people=larger())
        with SqliteLedger.read(tmp_path / "ledger.sqlite") as book:
            for name in BUDGETS:
                account = account_for(votes, wide, aggregator.mechanism, Meter(new), answered=asked)
                cost = next(group.cost for group in account.groups if group.id == name)
                assert float(Meter(new).epsilon(book.cost_of(name, Meter(new)), DELTA)[0]) == pytest.approx(cost)
        return
    with begin(tmp_path / "ledger.sqlite", entries, run="now", noise="seeded", people=larger()) as book:
        for name, held in book.terms.items():  # every group at the order that it keeps
            unit = Meter(new, orders=held.meter.orders)
            account = account_for(votes, wide, aggregator.mechanism, unit, answered=asked)
            cost = next(group.cost for group in account.groups if group.id == name)
            assert cost > 0
            assert book.epsilon(name) == pytest.approx(cost, rel=1e-9)


@pytest.mark.parametrize(("old", "new"), [("gdp", "sup"), ("sup", "gdp"), ("gdp", "loose"), ("loose", "gdp")])
def test_people_stay_with_their_first_privacy_filter(tmp_path, old, new):
    path, first, later = tmp_path / "l.sqlite", Meter(old), Meter(new)
    own, other = (meter.at_order(8.0) if meter.fixes_order else meter for meter in (first, later))
    people = {"ada": "one", "bob": "two"}
    with begin(path, [terms("one", 3.0, meter=own), terms("two", 3.0, meter=own)], people=people) as book:
        book.charge(labels_charge({"one": 1.0, "two": 0.0}, 10, bound=old, meter=own))
    with pytest.raises(BudgetExceededError, match=f"group 'one' has people who were charged under {old}"):
        begin(path, [terms("one", 3.0, meter=other)], run="next", people={"ada": "one"})
    with begin(path, [terms("two", 3.0, meter=other)], run="free", people={"bob": "two"}) as book:
        assert book.spent("two").tolist() == [0.0]  # nothing of theirs was released
    with begin(path, [terms("one", 3.0, meter=own)], run="same", people={"ada": "one"}) as book:
        assert book.spent("one")[0] > 0


def test_recorded_costs_carry_only_under_the_same_bound(tmp_path):
    votes, panel = voting(30)
    path = tmp_path / "ledger.sqlite"
    aggregator = GNMax(mechanism=Mechanism(sigma=20.0))
    with opened(path, panel, Meter("exact"), aggregator) as book:
        label(votes, panel, aggregator, Meter("exact"), noise=SeededNoise(9), ledger=book, max_queries=20)
        spent = {name: book.spent(name) for name in BUDGETS}
    with opened(path, panel, Meter("exact"), aggregator, run="same") as book:
        for name in BUDGETS:
            np.testing.assert_array_equal(book.spent(name), spent[name])
        loose = 20 * Meter("loose").worst_label(sensitivity=1.5, sigma=20.0)
        np.testing.assert_allclose(book.cost_of("lax", Meter("tight")), loose)
        assert np.all(book.cost_of("lax", Meter("exact")) < loose)


def test_laplace_labels_are_carried_at_laplace_costs(tmp_path):
    votes, panel = voting(20, budgets=dict.fromkeys(BUDGETS, 50.0))
    aggregator = LNMax(mechanism=Mechanism(sigma=20.0, noise="laplace"))
    with opened(tmp_path / "ledger.sqlite", panel, Meter("tight"), aggregator) as book:
        label(votes, panel, aggregator, Meter("tight"), noise=SeededNoise(1), ledger=book)
    for bound in ("gdp", "loose"):
        account = account_for(votes, panel, aggregator.mechanism, Meter(bound))
        with SqliteLedger.read(tmp_path / "ledger.sqlite") as book:
            for group in account.groups:
                cost = book.cost_of(group.id, Meter(bound))
                assert float(Meter(bound).epsilon(cost, DELTA)[0]) == pytest.approx(group.cost, rel=1e-9)


@pytest.mark.parametrize("variant", ["weighting", "upsampling", "vanishing"])
def test_allocation_maps_each_person_to_an_account(variant):
    people = People.from_budgets([1.0] * 30 + [3.0] * 30, delta=DELTA)
    made = allocate(variant, people=people, n_teachers=10, seed=0)
    found = made.members()
    panel = Panel.of(made.layout)
    assert len(found) == 60
    assert set(found.values()) <= set(panel.account_ids)
    for person, account in found.items():
        group = panel.groups[int(panel.account_group[panel.account_ids.index(account)])]
        assert group.epsilon <= people.group_of(person).epsilon
        if variant == "vanishing":
            assert made.teachers_of(people.index_of(person)) == (int(account.split()[1]),)


@pytest.mark.parametrize(
    ("version", "levels", "delta", "said"),
    [
        ("2", {"high": 1.5, "low": 3.0}, 1e-5, r"ε = 1 at level 'high' and now is 1\.5 \(run 'one'"),
        ("2", {"high": 0.5, "low": 3.0}, None, r"ε = 1 at level 'high' and now is 0\.5"),
        ("2", {"high": 1.0, "low": 3.0}, 1e-6, "δ = 1e-05 and now is 1e-06"),
        ("2", {"high": 1.0, "none": 9.0}, None, None),
        ("3", {"high": 1.5, "low": 3.0}, 1e-6, None),
    ],
)
def test_version_of_a_policy_keeps_its_meaning(tmp_path, version, levels, delta, said):
    def roster(*terms):
        return Roster(people={"ada": "strict"}, policy=PolicyTerms(*terms), accept_larger_budgets=True)

    path = tmp_path / "ledger.sqlite"
    begin(path, all_terms(), run="one", people=roster("2", (("high", 1.0), ("low", 3.0)), 1e-5)).close()
    again = roster(version, tuple(levels.items()), delta)
    if said is None:
        begin(path, all_terms(), run="two", people=again).close()
        return
    with pytest.raises(InputError, match=f"version '2' of the policy was {said}.*new version and date"):
        begin(path, all_terms(), run="two", people=again)
