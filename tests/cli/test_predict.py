"""`ipate predict`: rows in the given order, ids passed through, one line for what cannot be used."""

import csv
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import RidgeClassifier

from ipate import load_student
from ipate.students.deployed import DeployedStudent
from students.making import deployed, raw

PAGE = (Path(__file__).parents[2] / "docs" / "json.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def student(tmp_path_factory):
    return deployed().save(tmp_path_factory.mktemp("out") / "student")


@pytest.fixture
def data(tmp_path):
    columns, _ = raw(40, seed=3)
    frame = pd.DataFrame({"patient": [f"p{i:03d}" for i in range(40)], **columns})[::-1]
    frame[["ward", "patient", "admitted", "age", "sex"]].to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet", index=False)
    return tmp_path


def read(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_predictions_follow_rows_and_carry_ids(student, data, run, suffix, monkeypatch):
    monkeypatch.setattr("ipate.cli.predict._BLOCK", 7)
    file, out = data / f"rows.{suffix}", data / "predictions.csv"
    ran = run("predict", student, file, "--out", out, "--id", "patient", "--proba")
    assert ran.code == 0, ran.err
    found, loaded = read(out), load_student(student)
    assert [row["patient"] for row in found] == [f"p{i:03d}" for i in reversed(range(40))]
    assert [row["prediction"] for row in found] == loaded.predict(file).tolist()
    shares = np.array([[float(row[f"p({name})"]) for name in loaded.classes_] for row in found])
    np.testing.assert_allclose(shares, loaded.predict_proba(file), atol=1e-5)


def test_rows_are_numbered_without_ids(student, data, run):
    assert run("predict", student, data / "rows.csv", "--out", data / "p.csv").code == 0
    assert [row["row"] for row in read(data / "p.csv")] == [str(i) for i in range(40)]


def test_json_has_the_documented_keys(student, data, run):
    columns, _ = raw(3)
    columns["age"][1] = "unknown"
    pd.DataFrame({**columns, "note": "x"}).to_csv(data / "odd.csv", index=False)
    ran = run("predict", student, data / "odd.csv", "--out", data / "p.csv", "--json")
    found = json.loads(ran.out)
    (line,) = re.findall(r"^\| `predict` \| (.*) \|$", PAGE, flags=re.MULTILINE)
    assert set(found) == set(re.findall(r"`(\w+)`", line))
    assert found["rows"] == 3
    assert found["ignored_columns"] == ["note"]
    assert found["missing_cells"] == {"age": 1}


def test_images_come_from_npz_files(tmp_path, run):
    from sklearn.linear_model import LogisticRegression

    images = np.random.default_rng(0).random((20, 3, 3))
    model = LogisticRegression().fit(images.reshape(20, -1), np.where(images[:, 0, 0] > 0.5, "on", "off"))
    made = DeployedStudent(model=model, classes_=np.array(["off", "on"]), image=(3, 3))
    folder = made.save(tmp_path / "student")
    np.savez(tmp_path / "rows.npz", X=images, who=np.arange(20))
    ran = run("predict", folder, tmp_path / "rows.npz", "--out", tmp_path / "p.csv", "--id", "who")
    assert ran.code == 0, ran.err
    assert [row["prediction"] for row in read(tmp_path / "p.csv")] == made.predict(images).tolist()
    ran = run("predict", folder, tmp_path / "rows.npz", "--out", tmp_path / "q.csv", "--id", "whom")
    assert (ran.code, "no array 'whom'" in ran.err) == (2, True)


def test_pickle_is_read_with_flag_only(data, run, tmp_path):
    folder = deployed(Own()).save(tmp_path / "student")
    ran = run("predict", folder, data / "rows.csv", "--out", data / "p.csv")
    assert (ran.code, "--allow-pickle" in ran.err) == (2, True)
    assert run("predict", folder, data / "rows.csv", "--out", data / "p.csv", "--allow-pickle").code == 0
    ran = run("predict", folder, data / "rows.csv", "--out", data / "q.csv", "--allow-pickle", "--proba")
    assert (ran.code, "has no probabilities" in ran.err) == (2, True)


class Own(RidgeClassifier):
    """A type that skops does not know."""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"data": "no.csv"}, "no.csv"),
        ({"data": "rows.txt"}, "suffix"),
        ({"data": "short.csv"}, "has no column 'sex', which the student needs"),
        ({"student": "nowhere"}, "no such file or folder"),
        ({"student": "."}, "there is no student.json in it"),
        ({"out": "none/p.csv"}, "no such folder"),
        ({"out": "rows.csv"}, "it is the data itself"),
        ({"more": ["--id", "whom"]}, "no column 'whom'"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(student, data, run, monkeypatch, change, words):
    monkeypatch.chdir(data)
    (data / "rows.txt").write_text("age\n1\n")
    (data / "short.csv").write_text("age,ward,admitted\n1,A,2025-01-01\n")
    before = {path.name: path.read_bytes() for path in data.iterdir()}
    given = {"student": student, "data": "rows.csv", "out": "p.csv", "more": [], **change}
    ran = run("predict", given["student"], given["data"], "--out", given["out"], *given["more"])
    assert ran.code == 2
    assert words in ran.err
    assert ran.err.count("\n") == 1
    assert {path.name: path.read_bytes() for path in data.iterdir()} == before


def test_predictions_are_refused_in_public_folders(student, data, run):
    for name in ("march", "april"):
        (data / name / "public").mkdir(parents=True)
        (data / name / "run.json").write_text("{}")
    shutil.copytree(student, data / "march" / "public" / "student")
    linked = data / "linked"
    linked.symlink_to(data / "april" / "public")
    for out in (data / "march" / "public" / "p.csv", data / "april" / "public" / "p.csv", linked / "p.csv"):
        ran = run("predict", data / "march", data / "rows.csv", "--out", out)
        assert ran.code == 2
        assert "a prediction depends on its row" in ran.err
        assert not out.exists()
    assert run("predict", data / "march", data / "rows.csv", "--out", data / "march" / "p.csv").code == 0
