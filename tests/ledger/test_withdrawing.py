"""People who withdraw from a ledger are in no later run of it, and their leaving does not show."""

import shutil

import pytest

from ipate.errors import InputError, IpateError
from ipate.ledger.admission import Roster
from ipate.ledger.sqlite import SqliteLedger
from ledger.making import all_terms, begin, charge
from ledger.test_tampering import edit

PEOPLE = {"ada": "strict", "bob": "lax", "eve": "lax"}


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "ledger.sqlite"
    with begin(file, all_terms(), run="one", people=PEOPLE) as book:
        book.charge(charge({"strict": 0.001, "lax": 0.01}))
    return file


def without(*gone, **more):
    people = {person: account for person, account in PEOPLE.items() if person not in gone}
    return Roster(people=people, withdrawn={person: PEOPLE[person] for person in gone}, **more)


def test_withdrawal_is_recorded_once_and_can_be_taken_back(path):
    SqliteLedger.withdraw(path, ["bob", "bob"])
    found = SqliteLedger.withdrawals(path)
    assert set(found.withdrawn) == {"bob"}
    with SqliteLedger.read(path) as book:
        assert book.withdrawn == found.withdrawn
        assert len(book._contents.withdrawals) == 1
    SqliteLedger.withdraw(path, ["bob"], returned=True)
    again = SqliteLedger.withdrawals(path)
    assert again.withdrawn == {}
    assert again.latest == found.latest


@pytest.mark.parametrize("run", ["one", "two"])
def test_run_with_somebody_who_withdrew_is_refused(path, run):
    SqliteLedger.withdraw(path, ["bob"])
    with pytest.raises(IpateError, match="has withdrawn; nothing was charged"):
        begin(path, all_terms(), run=run, people=PEOPLE)
    with SqliteLedger.read(path) as book:
        assert book.runs == ("one",)
    with begin(path, all_terms(), run="two", people=without("bob")) as book:
        book.charge(charge({"lax": 0.01}, queries=("r",)))
        assert [record.run for record in book.person("bob")] == ["one"]


def test_number_of_published_head_counts_no_withdrawal(path, tmp_path):
    shutil.copy(path, tmp_path / "other.sqlite")
    SqliteLedger.withdraw(path, ["bob"])
    heads = []
    for file, people in ((path, without("bob")), (tmp_path / "other.sqlite", PEOPLE)):
        with begin(file, all_terms(), run="two", people=people) as book:
            book.charge(charge({"lax": 0.01}, queries=("r",)))
            heads.append((book.head.entries, book.head.charges))
    assert heads[0] == heads[1]


def test_opening_balance_does_not_show_that_somebody_left(path, tmp_path):
    """Bob alone was charged in the second run, so that a balance without him would be smaller."""
    with begin(path, all_terms(), run="two", people={"bob": "lax"}) as book:
        book.charge(charge({"lax": 0.02}, queries=("r",)))
    shutil.copy(path, tmp_path / "other.sqlite")
    with begin(tmp_path / "other.sqlite", all_terms(), run="three", people=PEOPLE) as book:
        spent = book.spent("lax")
    SqliteLedger.withdraw(path, ["bob"])
    with begin(path, all_terms(), run="three", people=without("bob")) as book:
        assert book.spent("lax") == spent > book.cost_of("eve", book.terms["lax"].meter)


def test_copy_from_before_a_withdrawal_is_refused(path, tmp_path):
    with SqliteLedger.read(path) as book:
        seen = book.head
    shutil.copy(path, tmp_path / "copy")
    SqliteLedger.withdraw(path, ["bob"])
    with SqliteLedger.read(path) as book:
        book.check_head(seen)  # an older head of the same ledger
    shutil.copy(tmp_path / "copy", path)
    for use in (lambda: SqliteLedger.read(path), lambda: SqliteLedger.withdrawals(path)):
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
    SqliteLedger.withdraw(path, ["bob"])
    edit(path, statement)
    with pytest.raises(IpateError, match="does not verify"):
        SqliteLedger.read(path)


def test_whoever_withdrew_cannot_become_public_data(tmp_path):
    """Also where they withdrew before the first run, when the ledger knows nobody else."""
    file = tmp_path / "ledger.sqlite"
    SqliteLedger.withdraw(file, ["bob"])
    with pytest.raises(InputError, match="such as 'bob', are pool or test data here"):
        begin(file, all_terms(), people=Roster(people={"ada": "strict"}, unprotected=["bob"]))
    with begin(file, all_terms(), people=without("bob")) as book:
        assert book.withdrawn.keys() == {"bob"}


def test_rows_without_ids_are_the_same_after_a_withdrawal(tmp_path):
    file = tmp_path / "ledger.sqlite"
    with begin(file, all_terms(), run="one", people=Roster(people=PEOPLE, rows=True)) as book:
        book.charge(charge({"lax": 0.01}))
    SqliteLedger.withdraw(file, ["bob"])
    begin(file, all_terms(), run="two", people=without("bob", rows=True)).close()


def test_account_without_members_keeps_its_last_cost(path):
    with begin(path, all_terms(), run="two", people={"ada": "strict"}) as book:
        assert book.spent("lax") == book.cost_of("bob", book.terms["lax"].meter) > 0
