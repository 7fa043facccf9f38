"""A deployed student takes raw tables in any order of columns, and is read without running code of its file."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
import skops.io
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

from ipate import InputError, load_student
from ipate.students.deployed import DeployedStudent, describe, find_folder
from students.making import CLASSES, deployed, raw


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return deployed().save(tmp_path_factory.mktemp("student") / "student")


def test_raw_tables_of_all_kinds_are_predicted_alike(folder, tmp_path):
    student, (columns, y) = load_student(folder), raw(seed=1)
    turned = {name: columns[name] for name in reversed(columns)}
    expected = student.predict(columns)
    assert np.mean(expected == np.array(CLASSES)[y]) > 0.8
    pd.DataFrame(turned).assign(age=lambda frame: frame.age.astype(float)).to_csv(tmp_path / "rows.csv", index=False)
    tables = [
        turned,
        pd.DataFrame(turned),
        pl.DataFrame(turned),
        {**columns, "note": ["x"] * 150},
        tmp_path / "rows.csv",
    ]
    for table in tables:
        np.testing.assert_array_equal(student.predict(table), expected)


def test_student_says_what_it_needs(folder):
    student = load_student(folder)
    assert student.feature_names_in_.tolist() == ["age", "sex", "ward", "admitted"]
    assert student.classes_.tolist() == list(CLASSES)
    assert student.model.feature_names_in_.tolist() == list(student.schema.encoded_names)
    assert set(student.model.classes_) == set(CLASSES)
    with pytest.raises(InputError, match="no column 'sex'"):
        student.predict({"age": ["4"], "ward": ["A"], "admitted": [""]})


ALONE = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "ipate":
            raise ImportError("ipate is not installed here")
sys.meta_path.insert(0, Blocker())
import json
import numpy as np
import skops.io
facts = json.load(open("student.json"))
model = skops.io.load("model.skops", trusted=facts["model"]["trusted"])
rows = np.load(sys.argv[1])
import pandas as pd
print(json.dumps(model.predict(pd.DataFrame(rows, columns=facts["encoded"])).tolist()))
assert not any(name.partition(".")[0] == "ipate" for name in sys.modules)
"""


@pytest.mark.parametrize(
    "model", ["logistic", HistGradientBoostingClassifier(max_iter=4)], ids=["logistic", "boosting"]
)
def test_model_is_read_without_ipate(model, tmp_path):
    folder = deployed(model).save(tmp_path / "student")
    student, (columns, _) = load_student(folder), raw(seed=2)
    np.save(tmp_path / "rows.npy", student.encode(columns))
    told = subprocess.run(
        [sys.executable, "-I", "-c", ALONE, str(tmp_path / "rows.npy")],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert json.loads(told.stdout) == student.predict(columns).tolist()


def lightgbm():
    return pytest.importorskip("lightgbm").LGBMClassifier(n_estimators=5, min_child_samples=5, verbose=-1)


MODELS = {
    "boosting": lambda: HistGradientBoostingClassifier(max_iter=4),
    "forest": lambda: "forest",
    "pipeline": lambda: make_pipeline(
        make_column_transformer((StandardScaler(), [0]), (SimpleImputer(), slice(1, 5)), remainder="passthrough"),
        LogisticRegression(),
    ),
    "lightgbm": lightgbm,
    "margins": LinearSVC,
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_students_are_saved_and_loaded_as_skops(name, tmp_path):
    made = deployed(MODELS[name]())
    again = load_student(made.save(tmp_path / "student"))
    columns, _ = raw(seed=1)
    assert (tmp_path / "student" / "model.skops").is_file()
    np.testing.assert_array_equal(again.predict(columns), made.predict(columns))
    for method in ("predict_proba", "decision_function"):
        assert hasattr(again, method) == hasattr(made.model, method)
        if hasattr(again, method):
            np.testing.assert_array_equal(getattr(again, method)(columns), getattr(made, method)(columns))


def test_model_of_dataframes_takes_frames_and_files(tmp_path):
    columns, y = raw()
    pool = pd.DataFrame(columns).assign(age=lambda frame: frame.age.astype(float)).drop(columns="admitted")
    pool["ward"] = pool.ward.astype("category")
    model = make_pipeline(
        make_column_transformer((StandardScaler(), ["age"]), (OneHotEncoder(handle_unknown="ignore"), ["sex", "ward"])),
        LogisticRegression(),
    ).fit(pool, np.array(CLASSES)[y])
    made = DeployedStudent(model=model, classes_=np.array(CLASSES), frame=describe(pool))
    student = load_student(made.save(tmp_path / "student"))
    expected = model.predict(pool)
    turned = pool[["ward", "sex", "age"]].assign(other=1)
    np.testing.assert_array_equal(student.predict(turned), expected)
    turned.to_csv(tmp_path / "rows.csv", index=False)
    np.testing.assert_array_equal(student.predict(tmp_path / "rows.csv"), expected)
    np.testing.assert_array_equal(student.predict({name: list(pool[name]) for name in pool}), expected)
    with pytest.raises(InputError, match="no column 'sex'"):
        student.predict(pool.drop(columns="sex"))


def test_boosting_on_categories_of_frames_is_read_from_files(tmp_path):
    columns, y = raw()
    pool = pd.DataFrame({"ward": pd.Categorical(columns["ward"]), "age": np.array(columns["age"], dtype=float)})
    model = HistGradientBoostingClassifier(max_iter=4).fit(pool, np.array(CLASSES)[y])
    made = DeployedStudent(model=model, classes_=np.array(CLASSES), frame=describe(pool))
    student = load_student(made.save(tmp_path / "student"))
    assert (tmp_path / "student" / "model.skops").is_file()
    pool[["age", "ward"]].to_csv(tmp_path / "rows.csv", index=False)
    np.testing.assert_array_equal(student.predict(tmp_path / "rows.csv"), model.predict(pool))


class Custom(RidgeClassifier):
    """A type that nobody else knows."""


def test_custom_type_is_a_pickle_that_needs_a_flag(tmp_path):
    made = deployed(Custom())
    folder = made.save(tmp_path / "student")
    assert (folder / "model.pickle.joblib").is_file()
    assert not (folder / "model.skops").exists()
    assert "is a pickle: reading it runs the code in it" in (folder / "README.md").read_text()
    with pytest.raises(InputError, match="is a pickle, and reading one runs whatever code is in it"):
        load_student(folder)
    columns, _ = raw(seed=1)
    np.testing.assert_array_equal(load_student(folder, allow_pickle=True).predict(columns), made.predict(columns))


def test_skops_file_with_unknown_type_is_refused(folder, tmp_path):
    """A file that was replaced by one that names another type is refused before it is read."""
    from hashlib import sha256

    from ipate.students.deployed import read_model

    path = tmp_path / "model.skops"
    skops.io.dump(Custom().fit([[0], [1]], [0, 1]), path)
    with pytest.raises(InputError, match=r"holds the type .*Custom, which is not trusted"):
        read_model(path, "skops", sha256=sha256(path.read_bytes()).hexdigest(), allow_pickle=True)


def test_damaged_folders_are_refused_in_one_line(tmp_path):
    folder = deployed().save(tmp_path / "student")
    model, stated = folder / "model.skops", folder / "student.json"
    whole = stated.read_text()
    model.write_bytes(model.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"is not the file that student\.json describes"):
        load_student(folder)
    model.unlink()
    with pytest.raises(InputError, match="cannot be read"):
        load_student(folder)
    for text in (
        "{",
        "{}",
        whole.replace("ipate student 1", "ipate student 9"),
        whole.replace('"classes"', '"clases"'),
    ):
        stated.write_text(text)
        with pytest.raises(InputError, match=r"student\.json: "):
            load_student(folder)
    stated.unlink()
    with pytest.raises(InputError, match=r"there is no student\.json in it"):
        load_student(folder)
    with pytest.raises(InputError, match="no such file or folder"):
        load_student(tmp_path / "nowhere")


def test_student_is_found_from_run_folder_and_file(tmp_path):
    folder = deployed().save(tmp_path / "run" / "public" / "student")
    for path in (tmp_path / "run", folder, folder / "student.json", folder / "model.skops"):
        assert find_folder(path) == folder


def test_class_without_labels_has_probability_zero(tmp_path):
    _, y = raw()
    student = load_student(deployed(labels=np.where(y == 1, -1, y)).save(tmp_path / "student"))
    columns, _ = raw(seed=1)
    found = student.predict_proba(columns)
    assert found.shape == (150, 3)
    assert (found[:, 1] == 0).all()
    assert np.isneginf(student.decision_function(columns)[:, 1]).all()


def test_numbers_as_class_names_keep_their_type(tmp_path):
    student = load_student(deployed(classes=(3, 5, 9)).save(tmp_path / "student"))
    columns, _ = raw(seed=1)
    assert set(student.predict(columns).tolist()) <= {3, 5, 9}


def test_example_runs_on_made_up_rows(folder):
    header, *rows = (folder / "example.csv").read_text().splitlines()
    assert header == "age,sex,ward,admitted"
    assert len(rows) == 2
    told = subprocess.run(
        [sys.executable, "example.py"], cwd=folder, check=True, capture_output=True, text=True, timeout=100
    )
    assert told.stdout.splitlines()[0].strip("[]").replace("'", "").split()[0] in CLASSES


def test_images_are_predicted_in_either_shape(tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    images = np.clip(rng.random((60, 4, 4)) * 0.5 + 0.4 * y[:, None, None], 0, 1)
    model = LogisticRegression().fit(images.reshape(60, -1), np.array(["dark", "bright"])[y])
    made = DeployedStudent(model=model, classes_=np.array(["dark", "bright"]), image=(4, 4))
    student = load_student(made.save(tmp_path / "student"))
    np.testing.assert_array_equal(student.predict(images), student.predict(images.reshape(60, 16)))
    with pytest.raises(InputError, match=r"it must be \(rows, 4, 4\)"):
        student.predict(np.zeros((2, 5, 5)))


def test_net_is_stored_without_pickle(tmp_path):
    pytest.importorskip("torch.nn")
    from ipate.torch import TorchClassifier

    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    images = np.clip(rng.random((60, 8, 8), dtype=np.float32) * 0.3 + 0.3 * y[:, None, None], 0, 1).astype(np.float32)
    model = TorchClassifier("small", steps=10, device="cpu").fit(images, np.array(["a", "c", "d"])[y])
    made = DeployedStudent(model=model, classes_=np.array(["a", "b", "c", "d"]), image=(8, 8), channels_first=True)
    folder = made.save(tmp_path / "student")
    assert (folder / "model.npz").is_file()
    with np.load(folder / "model.npz", allow_pickle=False) as kept:
        assert all(kept[name].dtype.kind in "fiU" for name in kept.files)
    student = load_student(folder)
    np.testing.assert_array_equal(student.predict(images), made.predict(images))
    np.testing.assert_allclose(student.predict_proba(images), made.predict_proba(images), atol=1e-6)
    assert (student.predict_proba(images)[:, 1] == 0).all()


def test_skorch_net_learns_names_through_ids(tmp_path):
    pytest.importorskip("skorch")
    from torch import nn

    from ipate.torch import module_classifier

    columns, y = raw()
    width = len(deployed().schema.encoded_names)
    net = module_classifier(nn.Linear, module__in_features=width, module__out_features=3, max_epochs=30, lr=0.05)
    made = deployed(net)
    folder = made.save(tmp_path / "student")
    assert json.loads((folder / "student.json").read_text())["model"]["predicts"] == "indices"
    student = load_student(folder, allow_pickle=True)
    np.testing.assert_array_equal(student.predict(columns), made.predict(columns))
    assert np.mean(student.predict(columns) == np.array(CLASSES)[y]) > 0.7
    assert student.predict_proba(columns).shape == (150, 3)
