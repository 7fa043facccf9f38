"""`ipate schema` proposes a section that `ipate run` accepts, without reading private cells."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

from runs import hospital


@pytest.fixture
def ward(folder):
    hospital.files(folder)
    return folder


def proposed(ran):
    assert ran.code == 0, ran.err
    return tomllib.loads(ran.out)["data"]


def test_proposal_with_public_file_runs_as_it_is(ward, run):
    rows = hospital.rows(120, seed=2, private=False)
    for index, row in enumerate(rows):
        row["note"] = f"seen by doctor {index}"
    hospital.write(ward / "public.csv", rows)
    found = proposed(run("schema", "private.csv", "--public", "public.csv"))
    assert found == {
        "file": "private.csv",
        "public_file": "public.csv",
        "person": "patient",
        "level": "consent",
        "label": "outcome",
        "classes": ["home", "readmitted"],
        "numbers": ["age", "bmi"],
        "categories": ["sex", "ward"],
        "dates": ["admitted"],
        "drop": ["note"],
    }
    assert run("schema", "private.csv", "--public", "public.csv", "--out", "hospital.toml").code == 0
    text = Path("hospital.toml").read_text()
    assert "note: looks like free text (120 values)" in text
    Path("hospital.toml").write_text(text + hospital.REST)
    ran = run("run", "hospital.toml", "--out", "out")
    assert ran.code == 0, ran.err


def test_proposal_depends_on_no_private_cell(ward, run):
    before = run("schema", "private.csv", "--public", "public.csv").out
    header = (ward / "private.csv").read_text().splitlines()[0]
    (ward / "private.csv").write_text(header + "\n" + ',"\n\udcff;;"\n'.encode("utf-8", "replace").decode() * 3)
    assert run("schema", "private.csv", "--public", "public.csv").out == before


def test_header_alone_leaves_decisions_to_the_user(ward, run):
    ran = run("schema", "private.csv", "--label", "outcome", "--classes", "home,readmitted")
    found = proposed(ran)
    assert found["public_file"] == "?"
    assert found["numbers"] == ["age", "bmi", "sex", "ward", "admitted", "note"]
    assert '"note"] # decide: columns that are no numbers' in ran.out
    found["public_file"], found["drop"] = "public.csv", ["note"]
    found["numbers"], found["categories"], found["dates"] = ["age", "bmi"], ["sex", "ward"], ["admitted"]
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in found.items())
    assert run("run", hospital.config(ward, "[data]\n" + lines), "--out", "out").code == 0


def test_missing_column_of_ids_is_pointed_out(ward, run):
    (ward / "cases.csv").write_text("case,consent,age,outcome\n1,high,50,home\n")
    told = run("schema", "cases.csv")
    assert "person" not in proposed(told)
    assert "# No column of ids was found: name it as person" in told.out
    assert "No column of ids" not in run("schema", "cases.csv", "--person", "case").out


def test_columns_of_consent_records_are_proposed_by_name(ward, run):
    rows = [{"agreed_on": "2026-01-31", "policy": "v2", **row} for row in hospital.rows(600, seed=1)]
    hospital.write(ward / "private.csv", rows)
    ran = run("schema", "private.csv", "--public", "public.csv")
    found = proposed(ran)
    assert (found["consent_date"], found["consent_version"]) == ("agreed_on", "policy")
    assert not {"agreed_on", "policy"} & {*found["drop"], *found["dates"], *found["categories"]}
    assert "by its name the day of each person's consent" in ran.out
    (ward / "public.csv").write_text("policy,age\nhome,50\nfleet,60\n")  # a feature, since it is public
    assert "consent_version" not in proposed(run("schema", "private.csv", "--public", "public.csv"))


def test_types_of_parquet_decide_without_a_public_file(ward, run):
    pandas = pytest.importorskip("pandas")
    dates = pandas.to_datetime(["2024-01-01", "2024-01-02"])
    pandas.DataFrame({"id": [1, 2], "n": [1.0, 2.0], "c": ["x", "y"], "d": dates, "y": [0, 1]}).to_parquet("a.parquet")
    found = proposed(run("schema", "a.parquet"))
    kinds = {key: found[key] for key in ("person", "label", "numbers", "dates", "drop", "categories")}
    assert kinds == {"person": "id", "label": "y", "numbers": ["n"], "dates": ["d"], "drop": ["c"], "categories": []}


def test_strange_names_give_valid_toml(ward, run):
    (ward / "odd.csv").write_text('"a ""b""\\",ε = #1,"x\ty",label\n1,2,3,4\n')
    found = proposed(run("schema", "odd.csv", "--public", "odd.csv"))
    assert found["numbers"] == ['a "b"\\', "ε = #1", "x\ty"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.csv"], "nowhere.csv cannot be read"),
        (["private.xls"], "cannot be read|suffix"),
        (["private.csv", "--public", "nowhere.csv"], "nowhere.csv cannot be read"),
        (["private.csv", "--label", "outcom"], "has no column 'outcom'"),
        (["private.csv", "--out", "no/where.toml"], "no such folder"),
    ],
)
def test_bad_input_is_refused_in_one_line(ward, run, arguments, words):
    import re

    ran = run("schema", *arguments)
    assert ran.code == 2
    assert len(ran.err.strip().splitlines()) == 1
    assert re.search(words, ran.err)


def test_arrays_are_proposed_by_their_names(ward, run):
    np.savez("rows.npz", X=np.eye(3), y=[0, 1, 0], levels=["a", "b", "a"], person=[1, 2, 3])
    found = proposed(run("schema", "rows.npz", "--classes", "0,1"))
    assert (found["person"], found["level"], found["label"]) == ("person", "levels", "y")
    assert found["numbers"] == ["x0", "x1", "x2"]
