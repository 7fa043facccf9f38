"""Under loose and sup the Rényi order of an account is fixed once; a later run cannot choose another one."""

import pytest

from attacks.making import label, run, write_csv, write_votes
from ipate.ledger.sqlite import SqliteLedger


def orders(ledger):
    """Return the orders of the last run's accounts, by account id."""
    with SqliteLedger.read(ledger) as book:
        return {account: set(terms.meter.orders) for account, terms in book.terms.items()}


@pytest.mark.parametrize(
    "later",
    [
        ["--bound", "loose", "--orders", "45,50"],
        ["--bound", "loose", "--conversion", "classic"],
        ["--bound", "sup", "--check-sigma", "30", "--threshold", "20"],
    ],
    ids=["other orders", "other conversion", "other bound"],
)
def test_later_labelling_keeps_the_first_order(tmp_path, later):
    write_votes(tmp_path)
    shared = tmp_path / "l.sqlite"
    assert label(tmp_path, "one.csv", "--ledger", shared, "--bound", "loose", "--max-labels", "1").code == 0
    first = orders(shared)
    assert all(len(own) == 1 for own in first.values())
    found = label(tmp_path, "two.csv", "--ledger", shared, "--max-labels", "2", *later)
    assert found.code == 0, found.err
    assert orders(shared) == first
    with SqliteLedger.read(shared) as book:
        assert len(book.runs) == 2
        for account, terms in book.terms.items():
            (order,) = first[account]
            at_first = terms.meter.at_order(order)
            assert book.limit(account)[0] == at_first.limit(terms.account.epsilon, terms.account.delta)[0]
            assert book.epsilon(account) == pytest.approx(at_first.epsilon(book.spent(account)[:1], 1e-5)[0])


def test_person_keeps_the_order_under_a_smaller_budget(tmp_path):
    """Half of the people reduce their budget, for which another order would be better."""
    names = [f"p{number}" for number in range(100, 260)]
    file = write_csv(tmp_path / "people.csv", names, epsilon=[10.0] * 160)
    loose, shared = 'bound = "loose"\nmax_labels = {}', tmp_path / "l.sqlite"
    assert run(file, "first", "--ledger", shared, labelling=loose.format(1)).code == 0
    ((first,),) = orders(shared).values()
    write_csv(file, names, epsilon=[10.0, 7.0] * 80)
    assert run(file, "second", "--ledger", shared, labelling=loose.format(2)).code == 0
    assert set(map(frozenset, orders(shared).values())) == {frozenset({first})}
