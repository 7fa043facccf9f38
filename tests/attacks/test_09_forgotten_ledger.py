"""Nobody has to ask for a ledger: the same people are charged on one, whatever folders and files are called."""

import json
import os
import shutil

import numpy as np
import pytest

from attacks.making import label, run, write_csv, write_votes
from ipate.ledger.sqlite import SqliteLedger

FEW = "max_labels = 1"


def test_labelling_to_other_file_names_spends_nothing_more(tmp_path):
    write_votes(tmp_path)
    for name in ("one.csv", "two.csv", "three.csv"):
        assert label(tmp_path, name).code == 0
    texts = {(tmp_path / name).read_text() for name in ("one.csv", "two.csv", "three.csv")}
    assert len(texts) == 1  # the stored answers, not other noise
    (ledger,) = tmp_path.glob("*.ledger.sqlite")
    assert ledger.name == "votes.ledger.sqlite"
    shutil.copy(tmp_path / "votes.npz", tmp_path / "copy.npz")
    found = label(tmp_path, "four.csv", "--stop", "drop", votes="copy.npz")
    assert "charging votes.ledger.sqlite: 1 earlier run" in found.err
    with SqliteLedger.read(ledger) as book:
        for account, terms in book.terms.items():
            assert book.epsilon(account) <= terms.account.epsilon


def test_second_run_in_another_folder_is_refused(tmp_path):
    file = write_csv(tmp_path / "people.csv")
    first = run(file, "first")
    assert first.code == 0
    again = run(file, "second")
    assert again.code == 1, again.err
    assert "cannot pay for one more query" in again.err
    assert "charging people.ledger.sqlite: new, 160 people" in first.err
    assert "charging people.ledger.sqlite: 1 earlier run, 160 of 160 people known" in again.err


def test_renamed_and_corrected_data_finds_its_ledger(tmp_path):
    file = write_csv(tmp_path / "people.csv")
    assert run(file, "first", labelling=FEW).code == 0
    renamed = file.rename(tmp_path / "patients.csv")
    renamed.write_text(renamed.read_text().replace("yes", "no", 1))
    assert run(renamed, "second").code == 0
    assert run(renamed, "third").code == 1
    assert [path.name for path in tmp_path.glob("*.ledger.sqlite")] == ["people.ledger.sqlite"]


def test_data_without_ids_is_known_by_its_path(tmp_path):
    file = write_csv(tmp_path / "people.csv")
    assert run(file, "first", person=None).code == 0
    report = (tmp_path / "first" / "public" / "report.html").read_text()
    assert "every row was counted as a person of its own" in report
    assert "All rows of one person count together" not in report
    file.write_text(file.read_text().replace("yes", "no", 1))
    assert run(file, "second", person=None).code == 1
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    shorter = run(file, "third", person=None)
    assert shorter.code == 2
    assert "its rows are not those of earlier runs on this ledger (159 rows now, 160 before)" in shorter.err


def test_second_test_of_ptr_is_refused_anywhere(tmp_path, monkeypatch):
    file = write_csv(tmp_path / "people.csv", epsilon=20.0)
    reference = 'bound = "ptr"\n[reference]\naccuracy = 0.9'
    found = run(file, "first", labelling=reference)
    assert found.code in (0, 1), found.err  # the test may fail
    for name in ("second", "third"):
        again = run(file, name, labelling=reference)
        assert again.code == 1
        assert "takes a whole budget" in again.err
        assert not (tmp_path / name / "private" / "votes").exists()


def test_mistyped_ledger_name_begins_no_ledger(tmp_path):
    file, shared = write_csv(tmp_path / "people.csv"), tmp_path / "shared.sqlite"
    assert run(file, "first", "--ledger", shared).code == 0
    mistyped = run(file, "second", "--ledger", tmp_path / "sharde.sqlite")
    assert mistyped.code == 2, mistyped.err
    assert "does not know 160 of these people" in mistyped.err
    assert not (tmp_path / "sharde.sqlite").exists()


def test_older_copy_is_noticed_by_a_new_run(tmp_path):
    file, shared = write_csv(tmp_path / "people.csv"), tmp_path / "shared.sqlite"
    assert run(file, "first", "--ledger", shared, labelling=FEW).code == 0
    old = shared.read_bytes()
    assert run(file, "second", "--ledger", shared).code == 0
    shared.write_bytes(old)
    rolled_back = run(file, "third", "--ledger", shared)
    assert rolled_back.code == 1, rolled_back.err
    assert "older copy of the ledger" in rolled_back.err
    shared.unlink()
    lost = run(file, "fourth", "--ledger", shared)
    assert lost.code == 1
    assert "restore it, do not start anew" in lost.err


def test_fresh_ledger_is_stated_in_the_report(tmp_path):
    file = write_csv(tmp_path / "people.csv")
    assert run(file, "first").code == 0
    fresh = run(file, "second", "--fresh-ledger")
    assert fresh.code == 0
    assert "charging people-2.ledger.sqlite: new, 160 people; charges of people.ledger.sqlite are not" in fresh.err
    page = (tmp_path / "second" / "public" / "report.html").read_text(encoding="utf-8")
    assert "What was charged to another ledger" in page
    assert "people.ledger.sqlite" in page
    several = run(file, "third")
    assert several.code == 2
    assert "(people-2.ledger.sqlite, people.ledger.sqlite): name the one to charge" in several.err
    assert run(file, "fourth", "--ledger", tmp_path / "people.ledger.sqlite").code == 1


def test_benchmark_beside_earlier_charges_is_stated(tmp_path):
    """--benchmark keeps a ledger of its own; on real people that would be a second budget in silence."""
    file = write_csv(tmp_path / "people.csv")
    assert run(file, "first").code == 0
    apart = run(file, "second", "--benchmark")
    assert apart.code == 0
    assert "new, 160 people; charges of people.ledger.sqlite are not counted" in apart.err
    assert "people.ledger.sqlite" in (tmp_path / "second" / "public" / "report.html").read_text(encoding="utf-8")


def test_seeded_runs_spend_nobodys_budget(tmp_path):
    file = write_csv(tmp_path / "people.csv")
    for name in ("first", "second"):
        assert run(file, name, "--seed", 3).code == 0
    assert not list(tmp_path.glob("*.sqlite"))
    write_votes(tmp_path)
    assert label(tmp_path, "labels.csv", "--seed", 3).code == 0
    assert not list(tmp_path.glob("*.sqlite"))


def test_folder_that_cannot_be_written_asks_for_ledger(tmp_path, monkeypatch):
    file = write_csv(tmp_path / "people.csv")
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and allowed(path, mode))
    refused = run(file, "first")
    assert refused.code == 2
    assert "its folder cannot be written" in refused.err
    assert "--ledger" in refused.err


def test_classifier_without_a_ledger_says_so():
    from ipate import PATEClassifier, errors

    rng = np.random.default_rng(0)
    y = rng.integers(2, size=120)
    model = PATEClassifier(
        epsilon=8.0,
        delta=1e-5,
        n_teachers=8,
        sigma=2.0,
        aggregator="gnmax",
        classes=[0, 1],
        max_labels=1,
        verbose=0,
    )
    with pytest.warns(errors.LedgerWarning, match="counted for this fit alone"):
        model.fit(rng.normal(3.0 * y)[:, None], y, X_public=rng.normal(size=(20, 1)))


def test_walk_of_four_runs_adds_up(tmp_path):
    """A new user runs the same file four times: budgets continue, then are refused, and statements agree."""
    from attacks.making import ipate

    file = write_csv(tmp_path / "people.csv")
    codes = [run(file, name, labelling=more).code for name, more in (("a", FEW), ("b", "max_labels = 2"), ("c", ""))]
    assert codes == [0, 0, 0]
    assert run(file, "d").code == 1
    with SqliteLedger.read(tmp_path / "people.ledger.sqlite") as book:
        person = next(person for person, _ in book._run.members)
        assert [record.labels for record in book.person(person)][:2] == [1, 1]  # the stored label is paid once
        total = book.epsilon(book.person(person)[-1].account)
    assert total <= 8.0
    for name in "abc":
        found = json.loads(ipate("statement", tmp_path / name, person, "--json").out)
        assert found["spent"] == pytest.approx(total)
        assert found["left"] == pytest.approx(8.0 - total)
        assert [entry["labels"] for entry in found["entries"]][:2] == [1, 1]
        assert sum(entry["labels"] for entry in found["entries"]) == 5


def test_statement_of_repeated_run_tells_what_was_spent(tmp_path):
    """A second run gets the labels of the first for nothing; they are still labels that people paid for."""
    from attacks.making import ipate, people_of

    file = write_csv(tmp_path / "people.csv")
    for name in ("first", "second"):
        assert run(file, name, labelling="max_labels = 3").code == 0
    person = min(people_of(tmp_path / "people.ledger.sqlite"))
    said = " ".join(ipate("statement", tmp_path / "second", person).out.split())
    assert "released nothing new that their data could have changed" in said
    assert "In all, ε = 5.545 was spent, over the 2 runs that the ledger knows of with their data: first-" in said
    asked = ipate("withdraw", tmp_path / "second", person, "--yes")
    assert "earlier runs had spent ε = 5.545" in " ".join(asked.out.split())
