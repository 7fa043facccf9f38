"""One person, whose id is written in two ways, must not get two budgets on the same ledger."""

import numpy as np
import pytest

from attacks.making import NAMES, people_of, run, table, write_csv

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of libraries; those of ipate go to stderr
ACCENTS = [f"{name}é" for name in NAMES]


def write_parquet(path, names, kind):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {name: np.broadcast_to(np.asarray(values), len(names)) for name, values in table(names).items()}
    columns["id"] = np.asarray(names).astype(kind)
    parquet.write_table(pyarrow.table(columns), path)
    return path


def write_npz(path, names, kind):
    columns = table(names)
    np.savez(
        path,
        X=np.stack([columns["a"], columns["b"]], axis=1),
        feature_names=["a", "b"],
        ill=columns["ill"],
        eps=np.full(len(names), 8.0),
        id=np.asarray(names).astype(kind),
    )
    return path


SECOND = {
    "text of floats in csv": lambda folder: write_csv(folder / "b.csv", [f"{name}.0" for name in NAMES]),
    "blanks in csv": lambda folder: write_csv(folder / "b.csv", [f" {name}\u00a0" for name in NAMES]),
    "floats in parquet": lambda folder: write_parquet(folder / "b.parquet", NAMES, np.float64),
    "floats in npz": lambda folder: write_npz(folder / "b.npz", NAMES, np.float64),
}


@pytest.mark.parametrize("write", SECOND.values(), ids=SECOND)
def test_ids_in_another_form_have_no_second_budget(tmp_path, write):
    shared = tmp_path / "people.sqlite"
    assert run(write_csv(tmp_path / "a.csv"), "first", "--ledger", shared).code == 0
    known = people_of(shared)
    again = run(write(tmp_path), "second", "--ledger", shared)
    assert again.code == 1, again.err
    assert "cannot pay for one more query" in again.err
    assert people_of(shared) == known


def test_both_forms_of_an_accent_are_one_person(tmp_path):
    shared = tmp_path / "people.sqlite"
    assert run(write_csv(tmp_path / "a.csv", ACCENTS), "first", "--ledger", shared).code == 0
    apart = [name.replace("é", "e\u0301") for name in ACCENTS]
    again = run(write_csv(tmp_path / "b.csv", apart), "second", "--ledger", shared)
    assert again.code == 1, again.err


def test_mostly_unknown_people_need_an_answer(tmp_path):
    shared, few = tmp_path / "people.sqlite", "max_labels = 1"
    assert run(write_csv(tmp_path / "a.csv"), "first", "--ledger", shared, labelling=few).code == 0
    others = write_csv(tmp_path / "b.csv", [f"0{name}" for name in NAMES])
    refused = run(others, "second", "--ledger", shared, labelling=few)
    assert refused.code == 2
    assert "160 of 160 people, such as '01', are unknown to this ledger" in refused.err
    assert not (tmp_path / "second").exists()
    taken = run(others, "third", "--ledger", shared, "--new-people", labelling=few)
    assert taken.code == 0
    assert "people.sqlite: 160 ids differ from another only in case or leading zeros ('1' and '01'" in taken.err


def test_ids_that_look_alike_are_warned_about(tmp_path):
    names = [*(f"P{number}" for number in range(158)), "p7", "P0011"]
    found = run(write_csv(tmp_path / "a.csv", names), "first", labelling="max_labels = 1")
    assert found.code == 0
    assert "2 ids differ from another only in case or leading zeros" in found.err


def test_new_ledger_is_refused_for_ids_like_those_of_another(tmp_path):
    """Without --ledger other ids find no ledger, so that a new one would give these people a second budget."""
    few = "max_labels = 1"
    assert run(write_csv(tmp_path / "a.csv"), "first", labelling=few).code == 0
    others = write_csv(tmp_path / "b.csv", [f"0{name}" for name in NAMES])
    refused = run(others, "second", labelling=few)
    assert refused.code == 2
    assert "a.ledger.sqlite: 160 ids differ from another only in case or leading zeros ('1' and '01'" in refused.err
    assert run(others, "third", "--fresh-ledger", labelling=few).code == 0
    assert run(others, "fourth", labelling=few).code == 0  # their own ledger knows them now
