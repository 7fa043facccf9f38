"""A changed, damaged or older file is noticed, and the error says what is wrong and what to do."""

import shutil
import sqlite3
import struct

import pytest

from ipate.accounting.bounds import Meter
from ipate.errors import IpateError
from ipate.ledger.sqlite import SqliteLedger
from ledger.making import all_terms, begin, bit, charge, terms, whole


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "ledger.sqlite"
    with begin(file, all_terms(), people={"ada": "strict", "bob": "lax"}) as book:
        for number in range(4):
            queries = (f"a{number}", f"b{number}")
            book.charge(charge({"strict": 0.001, "lax": 0.01}, queries=queries, labels=[1, number]))
    return file


@pytest.fixture
def tested(tmp_path):
    """A run that continues another one, with the charge and the bit of a test."""
    file = tmp_path / "tested.sqlite"
    begin(file, all_terms(), run="one").close()
    with begin(file, all_terms(), run="two", parent="one", reason="withdrawal") as book:
        book.charge(whole({"lax": 0.01}))
        book.charge(bit({"lax": 0.01}))
    return file


def edit(path, *statements):
    """Change the file as somebody with an SQLite tool would, who puts the triggers back afterwards."""
    file = sqlite3.connect(path, isolation_level=None)
    triggers = file.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        file.execute(f"DROP TRIGGER {name}")
    for statement in statements:
        file.execute(statement)
    for _, sql in triggers:
        file.execute(sql)
    file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    file.close()


EDITS = {
    "a payload": ["UPDATE batches SET payload = (SELECT payload FROM batches WHERE entry = 2) WHERE entry = 3"],
    "a payload as text": ["UPDATE batches SET payload = payload || '' WHERE entry = 3"],
    "a codec": ["UPDATE batches SET codec = 'other' WHERE entry = 3"],
    "an answered": ["UPDATE keys SET drawn = 0 WHERE batch = 3 AND position = 0"],
    "a query": ["UPDATE keys SET key = 'z' WHERE batch = 2 AND position = 1"],
    "a cost": ["UPDATE charges SET cost = zeroblob(8) WHERE batch = 2 AND account = 'lax'"],
    "a sensitivity": ["UPDATE charges SET sensitivity = 0.5 WHERE batch = 2"],
    "a sigma": ["UPDATE draws SET sigma = 80 WHERE batch = 4"],
    "a bound": ["UPDATE batches SET bound = 'exact'"],
    "a time": ["UPDATE entries SET time = '2001-01-01' WHERE entry = 3"],
    "a budget": ["UPDATE accounts SET epsilon = 30 WHERE account = 'strict'"],
    "an opening": ["UPDATE accounts SET opening = x'0000000000000000' || x'00' WHERE account = 'strict'"],
    "a person's account": ["UPDATE members SET account = 'lax' WHERE person = 'ada'"],
    "a dropped release": ["DELETE FROM keys WHERE batch = 3 AND position = 1"],
    "a dropped charge": ["DELETE FROM charges WHERE batch = 3 AND account = 'lax'"],
    "a dropped person": ["DELETE FROM members WHERE person = 'ada'"],
    "a dropped batch": [
        f"DELETE FROM {t} WHERE {c} = 3" for t, c in (("keys", "batch"), ("draws", "batch"), ("charges", "batch"))
    ]
    + ["DELETE FROM batches WHERE entry = 3", "DELETE FROM entries WHERE entry = 3"],
    "a batch without its entry": ["DELETE FROM entries WHERE entry = 5"],
    "an added release": ["INSERT INTO keys VALUES (3, 2, 'new', 1)"],
    "a stray release": ["INSERT INTO keys VALUES (99, 0, 'new', 1)"],
    "an added batch": ["INSERT INTO batches VALUES (9, 1, 'gdp', 'pool', '', x'', NULL)"],
    "two batches that change places": [
        "UPDATE keys SET batch = 77 WHERE batch = 2",
        "UPDATE keys SET batch = 2 WHERE batch = 3",
        "UPDATE keys SET batch = 3 WHERE batch = 77",
    ],
    "the start": ["UPDATE entries SET hash = zeroblob(32) WHERE entry = 0"],
    "a draw": ["UPDATE draws SET mechanism = 'check' WHERE batch = 3"],
    "a dropped draw": ["DELETE FROM draws WHERE batch = 3"],
}


TESTED_EDITS = {
    "a scope": ["UPDATE batches SET scope = 'pool' WHERE entry = 3"],
    "a mechanism": ["UPDATE draws SET mechanism = 'check' WHERE batch = 3"],
    "a payment": ["UPDATE batches SET paid_by = NULL WHERE entry = 4"],
    "a kind of noise": ["UPDATE runs SET noise = 'seeded'"],
    "no parent": ["UPDATE runs SET parent = NULL WHERE name = 'two'"],
    "another parent": ["UPDATE runs SET parent = 'two' WHERE name = 'two'"],
    "a parent": ["UPDATE runs SET parent = 'two' WHERE name = 'one'"],
    "a reason": ["UPDATE runs SET reason = NULL WHERE name = 'two'"],
    "tested votes": ["UPDATE batches SET payload = x'00' WHERE entry = 3"],
    "a bit": ["UPDATE batches SET payload = x'00' WHERE entry = 4"],
    "a test of its own": ["UPDATE keys SET key = 'other' WHERE batch = 3"],
}


@pytest.mark.parametrize("what", TESTED_EDITS)
def test_edited_typed_field_is_refused_on_opening(tested, what):
    SqliteLedger.open(tested).close()
    edit(tested, *TESTED_EDITS[what])
    with pytest.raises(IpateError, match="does not verify"):
        SqliteLedger.open(tested)


@pytest.mark.parametrize("what", EDITS)
def test_edited_ledger_is_refused_with_advice_on_opening(path, what):
    edit(path, *EDITS[what])
    for use in (SqliteLedger.open, SqliteLedger.read):
        with pytest.raises(IpateError) as caught:
            use(path)
        for words in ("does not verify", "restore a copy", "do not start a new ledger"):
            assert words in str(caught.value)
        assert "\n" not in str(caught.value)


def test_unchanged_ledger_file_opens_without_error(path):
    edit(path, "UPDATE charges SET cost = cost")
    SqliteLedger.open(path).close()


def test_verify_detects_edits_of_an_open_ledger(path):
    with SqliteLedger.open(path) as book:
        assert book.verify() == book.head
        edit(path, *EDITS["a payload"])
        with pytest.raises(IpateError, match=r"entry 3 \(a batch of .*does not match its hash"):
            book.verify()


def test_missing_trigger_is_refused_on_opening(path):
    file = sqlite3.connect(path)
    file.execute("DROP TRIGGER keys_no_update")
    file.close()
    with pytest.raises(IpateError, match="'keys_no_update' was changed or removed"):
        SqliteLedger.open(path)


def test_balance_over_its_budget_is_refused_on_opening(tmp_path, monkeypatch):
    file = tmp_path / "over.sqlite"
    with begin(file, all_terms()) as book:
        monkeypatch.setattr(book, "require", lambda entry: None)
        book.charge(charge({"strict": 5.0}))
    with pytest.raises(IpateError, match="'strict' is over its budget"):
        SqliteLedger.open(file)


@pytest.mark.parametrize("part", [0.3, 0.6, 0.95])
def test_truncated_ledger_file_is_refused_on_opening(path, part):
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(int(size * part))
    with pytest.raises(IpateError, match="does not verify"):
        SqliteLedger.open(path)


def test_overwritten_database_pages_are_refused_on_opening(path):
    raw = bytearray(path.read_bytes())
    for offset in range(4096, len(raw), 4096):
        raw[offset : offset + 64] = b"\xff" * 64
    path.write_bytes(raw)
    with pytest.raises(IpateError, match="does not verify"):
        SqliteLedger.open(path)


def test_older_copy_is_refused_by_expected_head(path, tmp_path):
    with SqliteLedger.open(path) as book:
        early = book.head
    shutil.copy(path, tmp_path / "copy")
    with SqliteLedger.open(path, head=early) as book:
        book.charge(charge({"lax": 0.01}, queries=("later",), labels=[1]))
        late = book.head
    SqliteLedger.open(path, head=early).close()  # an earlier head of the same chain is fine
    SqliteLedger.open(path, head=str(late)).close()
    shutil.copy(tmp_path / "copy", path)
    for seen in (early, str(late), None):  # the newest head is recorded beside the ledger
        with pytest.raises(IpateError, match=r"an older copy of the ledger: it ends at entry 5 and entry 6 was seen"):
            SqliteLedger.open(path, head=seen)
    path.with_name(f"{path.name}.head").unlink()
    SqliteLedger.open(path, head=early).close()
    with pytest.raises(IpateError, match="an older copy of the ledger"):
        SqliteLedger.open(path, head=str(late))
    with SqliteLedger.open(path) as book:  # who goes on with the copy makes another history
        book.charge(charge({"lax": 0.01}, queries=("later",), labels=[1]))
    with pytest.raises(IpateError, match="has another history"):
        SqliteLedger.open(path, head=late)


def test_older_copy_states_no_number_of_private_charges(tmp_path):
    file, copy = tmp_path / "tight.sqlite", tmp_path / "copy"
    with begin(file, [terms("strict", 1.0, meter=Meter("tight", "improved", (20.0,)))]) as book:
        book.charge(charge({"strict": [0.01]}, bound="tight"))
    shutil.copy(file, copy)
    with SqliteLedger.open(file) as book:
        book.charge(charge({"strict": [0.01]}, queries=("later",), bound="tight"))
    shutil.copy(copy, file)
    with pytest.raises(IpateError, match="it ends at an earlier entry and a later one was seen before") as caught:
        SqliteLedger.open(file)
    assert not any(letter.isdigit() for letter in str(caught.value).replace(str(file), ""))


def test_lost_ledger_file_is_not_silently_replaced(path):
    with SqliteLedger.open(path) as book:
        head = book.head
    path.unlink()
    for use in (lambda: begin(path, all_terms(), head=head), lambda: SqliteLedger.read(path)):
        with pytest.raises(IpateError, match="there is no ledger here"):
            use()
    path.touch()
    with pytest.raises(IpateError, match="not a ledger"):
        begin(path, all_terms(), head=head)


@pytest.mark.parametrize("version", [99, 1])
def test_other_schema_version_is_refused_with_advice(path, version):
    file = sqlite3.connect(path)
    file.execute(f"PRAGMA user_version = {version}")
    file.close()
    with pytest.raises(IpateError, match=rf"the schema {version}\b.*use the ipate that wrote the ledger"):
        SqliteLedger.open(path)


def test_other_files_are_refused_and_left_unchanged(tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("not a ledger at all, " * 100)
    with pytest.raises(IpateError, match="not an SQLite file"):
        begin(text, all_terms())
    assert text.read_text().startswith("not a ledger")
    other = tmp_path / "other.sqlite"
    file = sqlite3.connect(other)
    file.execute("CREATE TABLE mine (x)")
    file.commit()
    file.close()
    with pytest.raises(IpateError, match="not a ledger of ipate"):
        begin(other, all_terms())
    assert struct.unpack(">I", other.read_bytes()[68:72]) == (0,)
