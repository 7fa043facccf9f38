"""The student of a run is deployed with the run's schema, and its folder holds nothing private."""

import json

import numpy as np
import pandas as pd
import pytest

import ipate
from ipate.config import RunConfig
from ipate.errors import InputError
from ipate.runs.folder import RunFolder
from ipate.runs.listing import state_of
from ipate.runs.stages import execute
from runs.making import quiet, resumed, run

NAMES = np.array(["home", "ward"])


def table(n, seed, *, share=0.5):
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < share).astype(int)
    return pd.DataFrame(
        {
            "age": np.where(rng.random(n) < 0.1, np.nan, rng.normal(45, 6, n) + 20 * y),
            "sex": rng.choice(["F", "M"], n),
            "unit": np.where(y, rng.choice(["A", "B"], n), rng.choice(["B", "C"], n)),
            "outcome": NAMES[y],
        }
    )


@pytest.fixture
def made(tmp_path):
    """Return a function that runs the whole way on files of a made-up hospital."""

    def make(name="run", *, share=0.5, seed=None, **labelling):
        files = {}
        for number, part in enumerate(("private", "public", "test")):
            own = table({"private": 1500, "public": 200, "test": 150}[part], number, share=share)
            if part == "private":
                own.insert(0, "patient", [f"patient-{i:04d}" for i in range(len(own))])
            files[part] = tmp_path / f"{part}.csv"
            own.to_csv(files[part], index=False)
        config = RunConfig.from_mapping(
            {
                "data": {
                    "file": files["private"],
                    "public_file": files["public"],
                    "test_file": files["test"],
                    "label": "outcome",
                    "person": "patient",
                    "classes": NAMES.tolist(),
                    "categories": ["sex", "unit"],
                },
                "budgets": {"epsilon": 60.0},
                "teachers": {"model": "bayes", "number": 30, "n_jobs": 1},
                "labelling": {"sigma": 2.0, "check_sigma": 4.0, "threshold": 15.0, **labelling},
                "seed": seed,
            }
        )
        return execute(RunFolder.create(tmp_path / name, config), bar=quiet)

    return make


def test_student_predicts_the_users_own_table(made, tmp_path):
    summary = made()
    assert summary.student == tmp_path / "run" / "public" / "student"
    student = ipate.load_student(tmp_path / "run")
    assert student.feature_names_in_.tolist() == ["age", "sex", "unit"]
    assert set(student.model.classes_) == set(NAMES)
    new = table(400, 9)
    assert np.mean(student.predict(new[["unit", "outcome", "sex", "age"]]) == new.outcome) > 0.8


def texts_of(folder):
    return {path.name: path.read_text() for path in folder.iterdir() if path.suffix != ".skops"}


def test_student_folder_holds_nothing_private(tmp_path):
    """Test rows and pool are rows of people here, so scores are private."""
    summary = run(tmp_path / "run")
    found = texts_of(summary.student)
    assert set(found) == {"README.md", "example.py", "student.json"}
    private = {f"{value:.4f}" for value in summary.metrics.values() if isinstance(value, float) and value < 1}
    assert private
    for text in found.values():
        assert "accuracy" not in text
        assert not any(value in text for value in private)
    facts = json.loads(found["student.json"])
    counts = facts["made"]["labels_by_class"]
    released = summary.record.labels[summary.record.labels >= 0]
    assert list(counts.values()) == np.bincount(released, minlength=10).tolist()
    assert facts["scores"] is None


def test_scores_on_public_files_are_in_the_card(made):
    summary = made()
    found = texts_of(summary.student)
    assert set(found) == {"README.md", "example.csv", "example.py", "schema.json", "student.json"}
    assert not any("patient-" in text for text in found.values())
    scores = json.loads(found["student.json"])["scores"]
    assert scores["balanced_accuracy"] == summary.metrics["balanced_accuracy"]
    assert f"balanced accuracy: {scores['balanced_accuracy']:.1%}" in found["README.md"]


def test_report_names_student_and_labels_by_class(made, tmp_path):
    summary = made()
    page = summary.report.read_text()
    assert "is in public/student of the run&#x27;s folder" in page or "is in public/student of the run's folder" in page
    assert "Labels given, by class" in page
    assert "right if the class of most labels is always said" in page
    told = json.loads(summary.report.with_suffix(".json").read_text())
    counts = np.bincount(summary.record.labels[summary.record.labels >= 0], minlength=2).tolist()
    assert f'"by_class": {json.dumps(dict(zip(NAMES.tolist(), counts, strict=True)))}' in json.dumps(told)


def test_seeded_run_deploys_into_private_folder(made, tmp_path, caplog):
    summary = made(seed=1, share=0.02)
    assert summary.student == tmp_path / "run" / "private" / "student"
    assert not (tmp_path / "run" / "public" / "student").exists()
    assert "Do not publish this folder" in (summary.student / "README.md").read_text()
    assert summary.metrics["label_notes"]
    assert not any(note in caplog.text for note in summary.metrics["label_notes"])


def test_resume_deploys_a_student_that_is_missing(made, tmp_path):
    summary = made()
    before = (summary.student / "student.json").read_text()
    (summary.student / "student.json").unlink()  # it is written last: the folder is incomplete without it
    assert state_of(tmp_path / "run").state == "interrupted"
    again = resumed(tmp_path / "run")
    assert again.record.queries == summary.record.queries
    kept, made_again = json.loads(before), json.loads((again.student / "student.json").read_text())
    assert kept["made"] == made_again["made"]
    assert state_of(tmp_path / "run").state == "complete"


def test_dominant_class_is_logged_after_labelling(made, caplog):
    summary = made(share=0.02)
    assert any("labels" in note and "home" in note for note in summary.metrics["label_notes"])
    assert all(note in caplog.text for note in summary.metrics["label_notes"])
    assert summary.metrics["majority_accuracy"] > 0.9
    assert summary.metrics["balanced_accuracy"] <= 1


@pytest.mark.parametrize(
    ("student", "reason"),
    [
        ({"model": "graph", "options": {"alpha": 5.0}}, "student is graph: .*alpha is 5.0"),
        ({"model": "graph", "options": {"image_shape": [3, 3]}}, "student is graph: .*a row of the pool has 64 values"),
        ({"model": "semi", "options": {"steps": -3}}, "student is semi: .*steps is -3"),
        ({"model": "small", "options": {"epochs": -1}}, "student is small: .*epochs is -1"),
    ],
    ids=["graph", "shape", "semi", "net"],
)
def test_student_that_cannot_learn_costs_nobody(tmp_path, student, reason):
    if student["model"] != "graph":
        pytest.importorskip("skorch")
    with pytest.raises(InputError, match=reason):
        run(tmp_path / "run", student={**student})
    assert not list(tmp_path.rglob("*.sqlite"))
    assert not (tmp_path / "run" / "private" / "labelling.json").exists()
