"""Budgets that grew since the last run on a ledger are counted and listed, and need an explicit answer."""

from attacks.making import label, run, write_csv, write_votes

FEW = "max_labels = 1"


def test_tenfold_budgets_are_refused_without_an_answer(tmp_path):
    file, shared = write_csv(tmp_path / "people.csv"), tmp_path / "people.sqlite"
    assert run(file, "first", "--ledger", shared).code == 0
    write_csv(file, epsilon=80.0)
    refused = run(file, "second", "--ledger", shared)
    assert refused.code == 2, refused.err
    assert "the budgets of 100 people are larger than in their last run on this ledger" in refused.err
    assert "100 people from (ε, δ) = (8, 1e-05) to (80, 1e-05) in group 'eps=80', such as '" in refused.err
    assert not (tmp_path / "second").exists()
    assert run(file, "third", "--ledger", shared, "--accept-larger-budgets", labelling=FEW).code == 0


def test_smaller_budgets_are_respected_silently(tmp_path):
    file, shared = write_csv(tmp_path / "people.csv"), tmp_path / "people.sqlite"
    assert run(file, "first", "--ledger", shared, labelling=FEW).code == 0
    write_csv(file, epsilon=7.0)
    assert run(file, "second", "--ledger", shared, labelling="max_labels = 2").code == 0


def test_larger_budgets_of_groups_are_refused_too(tmp_path):
    write_votes(tmp_path)
    assert label(tmp_path, "one.csv", "--ledger", tmp_path / "l.sqlite").code == 0
    write_votes(tmp_path, epsilon=10.0)
    refused = label(tmp_path, "two.csv", "--ledger", tmp_path / "l.sqlite")
    assert refused.code == 2, refused.err
    assert "the budgets of 2 accounts are larger" in refused.err
    assert label(tmp_path, "two.csv", "--ledger", tmp_path / "l.sqlite", "--accept-larger-budgets").code == 0
