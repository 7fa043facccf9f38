"""Runs on files of people: what comes in, what is refused, and that bad input leaves nothing behind."""

import json
from pathlib import Path

import pytest

from blocks import flat
from runs import hospital

FLAGS = [
    "--file",
    "private.csv",
    "--public-file",
    "public.csv",
    "--person",
    "patient",
    "--label",
    "outcome",
    "--classes",
    "home,readmitted",
    "--drop",
    "note,consent",
    "--epsilon",
    "20",
    "--teacher",
    "bayes",
    "--teachers",
    "12",
    "--jobs",
    "1",
    "--student",
    "bayes",
]


@pytest.fixture
def ward(folder):
    hospital.files(folder)
    return folder


def listing(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_run_with_public_and_test_file_protects_everybody(ward, run):
    ran = run("run", hospital.config(ward), "--out", "out", "--json")
    assert ran.code == 0, ran.err
    found = flat(json.loads(ran.out))
    assert found["people"] == len({row["patient"] for row in hospital.rows(600, seed=1)})
    assert found["student_accuracy"] > 0.7
    schema = json.loads(Path("out/schema.json").read_text())
    assert [column["kind"] for column in schema["columns"]] == ["number", "number", "category", "category", "date"]
    queries = [int(line.split(",")[0]) for line in Path("out/public/labels.csv").read_text().splitlines()[1:]]
    assert 0 <= min(queries) <= max(queries) < 120
    notes = json.loads(Path("out/private/notes.json").read_text())
    assert any("Column 'bmi': 55 cells are missing" in line for line in notes["data"])
    assert "bmi" not in ran.err
    resumed = run("run", "--resume", "out", "--json")
    assert resumed.code == 0, resumed.err


def test_options_do_what_the_file_does(ward, run):
    ran = run("run", *FLAGS, "--out", "out")
    assert ran.code == 0, ran.err
    stated = json.loads(Path("out/config.json").read_text())["data"]
    assert stated["public_file"] == str(ward / "public.csv")
    assert stated["classes"] == ["home", "readmitted"]


def test_column_says_who_is_public(ward, run):
    rows = hospital.rows(600, seed=1)
    for row in rows:
        number = int(row["patient"][1:])
        row["agreed"] = {0: "public", 1: "test"}.get(number % 5, "")
    hospital.write(ward / "private.csv", rows)
    data = hospital.DATA.replace('public_file = "public.csv"', 'public_column = "agreed"')
    ran = run("run", hospital.config(ward, data.replace('test_file = "test.csv"\n', "")), "--out", "out", "--json")
    assert ran.code == 0, ran.err
    protected = {row["patient"] for row in rows if not row["agreed"]}
    assert flat(json.loads(ran.out))["people"] == len(protected)
    labelled = [int(line.split(",")[0]) for line in Path("out/public/labels.csv").read_text().splitlines()[1:]]
    assert {rows[row]["agreed"] for row in labelled} == {"public"}


def test_labels_of_public_files_are_optional(ward, run):
    for name in ("public", "test"):
        rows = hospital.rows(120, seed=5, private=False)
        hospital.write(ward / f"{name}.csv", [{k: v for k, v in row.items() if k != "outcome"} for row in rows])
    ran = run("run", hospital.config(ward), "--out", "out", "--json")
    assert ran.code == 0, ran.err
    found = flat(json.loads(ran.out))
    assert (found["student_accuracy"], found["voting_accuracy"]) == (None, None)


def changed(old, new):
    return lambda text: text.replace(old, new)


BAD = {
    "an unknown file": (changed("private.csv", "privat.csv"), "privat.csv cannot be read: No such file"),
    "an unknown public file": (changed("public.csv", "pool.csv"), "pool.csv cannot be read: No such file"),
    "no classes": (changed('classes = ["home", "readmitted"]', ""), "--classes no,yes"),
    "an unknown column": (changed('"outcome"', '"outcom"'), "nearest is 'outcome'"),
    "an unknown key": (changed("drop", "dropp"), "nearest is 'drop'"),
    "an unknown dropped column": (changed('["note"]', '["nota"]'), "nearest is 'note'"),
    "a text column as number": (changed("drop =", 'numbers = ["ward"]\ndrop ='), "'ward' has no numbers"),
    "public rows without a word": (changed('public_file = "public.csv"', "public = 50"), "public_without_protection"),
    "two sources of public rows": (changed("drop =", "public = 50\ndrop ="), "from one place"),
    "an unknown level": (changed("low = 40.0", "lax = 40.0"), "level is 'low'"),
    "an unknown variant": (changed("[labelling]", '[labelling]\nvariant = "waiting"'), "'weighting'"),
    "a ledger in no folder": (lambda text: 'ledger = "no/where.sqlite"\n' + text, "does not exist"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_leaves_nothing_and_correction_works(ward, run, case):
    change, words = BAD[case]
    good = hospital.DATA + hospital.REST
    config = hospital.config(ward, change(good), "")
    before = listing(ward)
    ran = run("run", config, "--out", "out")
    assert ran.code == 2, ran.err
    assert words in ran.err.splitlines()[-1]
    assert listing(ward) == before
    if case in ("an unknown file", "an unknown variant", "a ledger in no folder"):
        hospital.config(ward)
        assert run("run", config, "--out", "out").code == 0


@pytest.mark.parametrize("options", [["--dataset", "mnits"], ["--dataset", "digits", "--variant", "waiting"]])
def test_bad_options_leave_no_default_folder(folder, run, options):
    assert run("run", *options).code == 2
    assert listing(folder) in ([], ["runs"])


def test_cells_of_one_person_change_nothing_visible(tmp_path, monkeypatch, run):
    """Neighbouring files, one with cells that cannot be read: all that is not a released label is the same."""
    seen = []
    for name, cells in (("first", {}), ("second", {"age": "1e999", "sex": 'a "b", c', "outcome": "neither"})):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        hospital.files(folder)
        rows = hospital.rows(600, seed=1)
        rows[7] |= cells
        hospital.write(folder / "private.csv", rows)
        ran = run("run", hospital.config(folder), "--out", "out")
        assert ran.code == 0, ran.err
        kept = [Path("out", file).read_text() for file in ("schema.json", "settings.json", "data.json")]
        public = sorted(path.name for path in Path("out/public").iterdir())
        seen.append((ran.err.replace(name, ""), public, kept))
    assert seen[0] == seen[1]
    assert "no label or one that is no class" in Path("out/private/notes.json").read_text()


def test_output_names_private_notes_whatever_data_is(tmp_path, monkeypatch, run):
    """Misspelt classes make labels of noise, and neighbouring data must look the same: the notes are always named."""
    said = []
    for name, outcome in (("right", "{}"), ("misspelt", "{}?")):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        hospital.files(folder)
        rows = [row | {"outcome": outcome.format(row["outcome"])} for row in hospital.rows(600, seed=1)]
        hospital.write(folder / "private.csv", rows)
        ran = run("run", hospital.config(folder), "--out", "out")
        assert ran.code == 0, ran.err
        said.append([line for line in ran.out.splitlines() if "private/notes.json" in line])
        assert Path("out/private/notes.json").is_file()
    assert said[0] == said[1]
    assert "read them before the student is used" in said[0][0]
    assert "no label or one that is no class" in Path("out/private/notes.json").read_text()
