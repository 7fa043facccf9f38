"""Every person keeps one Rényi order: members of one account with several are limited at each of them."""

import numpy as np
import pytest

from ipate.accounting.bounds import Meter
from ipate.errors import BudgetExceededError, InputError
from ipate.ledger.admission import Roster
from ipate.ledger.carry import first_orders, keep_orders, usual_order
from ledger.making import DELTA, begin, charge, larger, terms

LOOSE = Meter("loose")


def entry(name, epsilon, order):
    return terms(name, epsilon, meter=LOOSE.at_order(order))


@pytest.fixture
def path(tmp_path):
    """A first run in which Ada fixed the order 20 and Bob the order 9."""
    file = tmp_path / "ledger.sqlite"
    accounts = [entry("strict", 1.0, 20.0), entry("lax", 3.0, 9.0)]
    with begin(file, accounts, people={"ada": "strict", "bob": "lax"}) as book:
        book.charge(charge({"strict": 20 / 40.0**2, "lax": 9 / 40.0**2}, labels=[0], bound="loose"))
    return file


def test_account_is_limited_at_every_members_order(path):
    people = larger({"ada": "all", "bob": "all", "eve": "all"})
    with begin(path, [entry("all", 3.0, 5.0)], run="second", people=people) as book:
        held = book.terms["all"]
        assert held.meter.orders == (20.0, 9.0)  # the order 5 that the run has chosen is nobody's
        np.testing.assert_allclose(book.spent("all"), np.array([20.0, 9.0]) / 40.0**2)
        np.testing.assert_array_equal(
            book.limit("all"), [LOOSE.at_order(order).limit(3.0, DELTA)[0] for order in (20.0, 9.0)]
        )
        left = book.limit("all") - book.spent("all")
        assert left[0] > left[1]
        with pytest.raises(BudgetExceededError):  # the order 20 alone could pay this
            book.charge(charge({"all": [0.5 * left[0], 1.01 * left[1]]}, queries=("r",), labels=[0], bound="loose"))
        book.charge(charge({"all": [0.5 * left[0], 0.99 * left[1]]}, queries=("r",), labels=[0], bound="loose"))
        single = [LOOSE.at_order(o).epsilon(book.spent("all")[[i]], DELTA)[0] for i, o in enumerate((20.0, 9.0))]
        assert book.epsilon("all") == pytest.approx(max(single))
        assert book.verify() == book.head
        assert first_orders(book._runs) == {"ada": 20.0, "bob": 9.0, "eve": 20.0}


def test_all_accounts_of_a_run_have_one_width(path):
    people = larger({"ada": "mixed", "bob": "mixed", "eve": "new"}, new_people=True)
    with begin(path, [entry("mixed", 3.0, 5.0), entry("new", 3.0, 7.0)], run="second", people=people) as book:
        assert book.terms["new"].meter.orders == (7.0, 7.0)
        spent, limit = book.balances(["mixed", "new"])
        assert spent.shape == limit.shape == (2, 2)


def test_people_of_other_bounds_get_the_usual_order(tmp_path):
    with begin(tmp_path / "l.sqlite", [terms("all", 2.0)], people={"ada": "all"}) as book:
        runs = dict(book._runs)
    for chosen in (3.0, 40.0):
        (kept,) = keep_orders([entry("all", 1.0, chosen)], {"ada": "all"}, runs)
        assert kept.meter.orders == (usual_order(2.0, DELTA),)  # by the first budget
    assert keep_orders([terms("all", 1.0)], {"ada": "all"}, runs) == (terms("all", 1.0),)  # gdp has no order


def test_roster_brings_ids_into_one_form(tmp_path):
    made = Roster(people={" 1.0": "all", "é": "all"}, unprotected=["2.0"])
    assert made.people == {"1": "all", "é": "all"}
    assert made.everybody == {"1", "2", "é"}
    with pytest.raises(InputError, match="duplicate id '1', written in two ways"):
        Roster(people={"1": "all", "1.0": "all"})
    with pytest.raises(InputError, match="person '1' is private and also pool or test data"):
        Roster(people={"1": "all"}, unprotected=["1.0"])
    with pytest.raises(InputError, match=r"person is '  ': it must be a whole number or text"):
        Roster(people={"  ": "all"})
    with begin(tmp_path / "l.sqlite", [terms("all", 2.0)], people=made) as book:
        assert book.person("1.0")[0].account == "all"
        assert book.unprotected == {"2"}
