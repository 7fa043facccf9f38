"""People who withdraw from a ledger are in no later run of it, and their leaving does not show."""

import shutil

import pytest

from ipate.errors import InputError, IpateError
from ipate.ledger.admission import Roster
from ipate.ledger.sqlite import SqliteLedger, record_withdrawals, withdrawals_on
from ledger.making import all_terms, charge
from ledger.test_tampering import edit

PEOPLE = {"ada": "strict", "bob": "lax", "eve": "lax"}


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "ledger.sqlite"
    with SqliteLedger.open(file, all_terms(), run="one", people=PEOPLE) as book:
        book.charge(charge({"strict": 0.001, "lax": 0.01}))
    return file


def without(*gone, **more):
    people = {person: account for person, account in PEOPLE.items() if person not in gone}
    return Roster(people=people, withdrawn={person: PEOPLE[person] for person in gone}, **more)


def test_withdrawal_is_recorded_once_and_can_be_taken_back(path):
    record_withdrawals(path, ["bob", "bob"])
    found = withdrawals_on(path)
    assert set(found.withdrawn) == {"bob"}
    with SqliteLedger.open(path, readonly=True) as book:
        assert book.withdrawn == found.withdrawn
        assert len(book._contents.withdrawals) == 1
    record_withdrawals(path, ["bob"], returned=True)
    again = withdrawals_on(path)
    assert again.withdrawn == {}
    assert again.latest == found.latest


@pytest.mark.parametrize("run", ["one", "two"])
def test_run_with_somebody_who_withdrew_is_refused(path, run):
    record_withdrawals(path, ["bob"])
    with pytest.raises(IpateError, match="has withdrawn; nothing was charged"):
        SqliteLedger.open(path, all_terms(), run=run, people=PEOPLE)
    with SqliteLedger.open(path, readonly=True) as book:
        assert book.runs == ("one",)
    with SqliteLedger.open(path, all_terms(), run="two", people=without("bob")) as book:
        book.charge(charge({"lax": 0.01}, queries=("r",)))
        assert [record.run for record in book.person("bob")] == ["one"]


def test_number_of_published_head_counts_no_withdrawal(path, tmp_path):
    shutil.copy(path, tmp_path / "other.sqlite")
    record_withdrawals(path, ["bob"])
    heads = []
    for file, people in ((path, without("bob")), (tmp_path / "other.sqlite", PEOPLE)):
        with SqliteLedger.open(file, all_terms(), run="two", people=people) as book:
            book.charge(charge({"lax": 0.01}, queries=("r",)))
            heads.append((book.head.entries, book.head.charges))
    assert heads[0] == heads[1]


def test_opening_balance_does_not_show_that_somebody_left(path, tmp_path):
    """Bob alone was charged in the second run, so that a balance without him would be smaller."""
    with SqliteLedger.open(path, all_terms(), run="two", people={"bob": "lax"}) as book:
        book.charge(charge({"lax": 0.02}, queries=("r",)))
    shutil.copy(path, tmp_path / "other.sqlite")
    with SqliteLedger.open(tmp_path / "other.sqlite", all_terms(), run="three", people=PEOPLE) as book:
        spent = book.spent("lax")
    record_withdrawals(path, ["bob"])
    with SqliteLedger.open(path, all_terms(), run="three", people=without("bob")) as book:
        assert book.spent("lax") == spent > book.cost_of("eve", book.terms["lax"].meter)


def test_copy_from_before_a_withdrawal_is_refused(path, tmp_path):
    with SqliteLedger.open(path, readonly=True) as book:
        seen = book.head
    shutil.copy(path, tmp_path / "copy")
    record_withdrawals(path, ["bob"])
    with SqliteLedger.open(path, readonly=True) as book:
        book.check_head(seen)  # an older head of the same ledger
    shutil.copy(tmp_path / "copy", path)
    for use in (lambda: SqliteLedger.open(path, readonly=True), lambda: withdrawals_on(path)):
        with pytest.raises(IpateError, match="lacks its last record"):
            use()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE withdrawals SET person = 'eve'",
        "UPDATE withdrawals SET returned = 1",
        "DELETE FROM withdrawals",
        "INSERT INTO withdrawals VALUES (1, 'eve', 0)",
    ],
)
def test_edited_withdrawal_is_refused_on_opening(path, statement):
    record_withdrawals(path, ["bob"])
    edit(path, statement)
    with pytest.raises(IpateError, match="does not verify"):
        SqliteLedger.open(path, readonly=True)


def test_whoever_withdrew_cannot_become_public_data(tmp_path):
    """Also where they withdrew before the first run, when the ledger knows nobody else."""
    file = tmp_path / "ledger.sqlite"
    record_withdrawals(file, ["bob"])
    with pytest.raises(InputError, match="such as 'bob', are pool or test data here"):
        SqliteLedger.open(file, all_terms(), people=Roster(people={"ada": "strict"}, unprotected=["bob"]))
    with SqliteLedger.open(file, all_terms(), people=without("bob")) as book:
        assert book.withdrawn.keys() == {"bob"}


def test_rows_without_ids_are_the_same_after_a_withdrawal(tmp_path):
    file = tmp_path / "ledger.sqlite"
    with SqliteLedger.open(file, all_terms(), run="one", people=Roster(people=PEOPLE, rows=True)) as book:
        book.charge(charge({"lax": 0.01}))
    record_withdrawals(file, ["bob"])
    SqliteLedger.open(file, all_terms(), run="two", people=without("bob", rows=True)).close()


def test_account_without_members_keeps_its_last_cost(path):
    with SqliteLedger.open(path, all_terms(), run="two", people={"ada": "strict"}) as book:
        assert book.spent("lax") == book.cost_of("bob", book.terms["lax"].meter) > 0
