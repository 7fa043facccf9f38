"""An error about private rows quotes no cell of them: neither scikit-learn's words, nor a first line without names.

Finding of a user: features in one dimension were printed, and so was the first patient's label where a header lacked.
"""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from attacks.making import ipate
from ipate import PATEClassifier
from ipate.data.sources import read_data
from ipate.errors import InputError

CELL, ROWS = 777.125, 60
X, Y, POOL = np.full((ROWS, 2), CELL), np.arange(ROWS) % 2, np.zeros((30, 2))
MARTIAN = X.astype(object)
MARTIAN[3, 0] = f"martian {CELL}"
ROW = "p1,strict,41.0,777.125,readmitted"
TOML = """
[data]
file = "people.csv"
public_file = "pool.csv"
person = "patient"
level = "consent"
label = "outcome"
classes = ["home", "readmitted"]
[budgets]
policy = { strict = 1.0, open = 4.0 }
"""


def complaint(X, y, **how):
    """Return the error of a fit, and the text of it and of all errors in whose handling it was raised."""
    model = PATEClassifier(LogisticRegression(), epsilon=3.0, verbose=0, noise_seed=1, **how)
    with pytest.raises((TypeError, ValueError)) as caught:
        model.fit(X, y, X_public=POOL)
    error, text = caught.value, ""
    while error is not None:
        text, error = f"{text} {error}", error.__context__
    return caught.value, text


@pytest.mark.filterwarnings("ignore::ipate.errors.ClassesWarning")
@pytest.mark.parametrize("classes", [None, [0, 1]], ids=["found", "declared"])
@pytest.mark.parametrize("voting", ["ballots", "teachers"])
@pytest.mark.parametrize(
    ("features", "labels", "words"),
    [
        (X[:, 0], Y, "X has the shape (60,)"),
        (X[:, 0].tolist(), Y, "X has the shape (60,)"),
        (pd.Series(X[:, 0]), Y, "X has the shape (60,)"),
        ({"a": X[:, 0]}, Y, "X has the shape ()"),
        ([*X.tolist()[1:], [CELL]], Y, "equally long"),
        (X + 0j, Y, "complex"),
        (X, X, "y has the shape (60, 2)"),
        (X, Y[:5], "y has the shape (5,)"),
        (pd.DataFrame(X, columns=["a", "b"]), X, "y has the shape (60, 2)"),
        (X.reshape(ROWS, 1, 2), X[:, :, None], "y has the shape (60, 2, 1)"),
    ],
    ids=["array", "list", "series", "mapping", "ragged", "complex", "y", "short y", "frame", "images"],
)
def test_features_and_labels_of_wrong_form_are_refused_without_cells(features, labels, words, voting, classes):
    error, text = complaint(features, labels, voting=voting, classes=classes)
    assert isinstance(error, InputError)
    assert words in str(error)
    assert str(CELL) not in text


@pytest.mark.filterwarnings("ignore::ipate.errors.ClassesWarning")
@pytest.mark.parametrize(
    ("features", "labels", "words"),
    [
        (MARTIAN, Y, "not shown"),
        (np.where(X == CELL, np.nan, X), Y, "Input X contains NaN"),
        (X, Y + CELL, "y is continuous"),
        (X, np.array([CELL, "no"] * (ROWS // 2), dtype=object), "mixed"),
        (X, [[CELL, 1], [CELL]] * (ROWS // 2), "y has entries of different lengths"),
    ],
    ids=["text", "nan", "continuous", "mixed", "ragged"],
)
def test_cells_that_scikit_learn_refuses_are_not_quoted(features, labels, words):
    error, text = complaint(features, labels)
    assert isinstance(error, InputError)
    assert words in str(error)
    assert str(CELL) not in text


def test_frame_without_header_shows_no_name():
    headless = pd.DataFrame([[CELL, CELL + 1]] * ROWS, columns=[f"{CELL}", f"{CELL + 1}"])
    error, text = complaint(headless, "outcome", classes=[0, 1])
    assert "X has no such column" in str(error)
    assert str(CELL) not in text
    model = PATEClassifier(epsilon=3.0, classes=[0, 1], verbose=0, noise_seed=1)
    with pytest.raises(InputError, match="X_public shares no column with X") as caught:
        model.fit(headless, Y, X_public=pd.DataFrame(POOL, columns=["age", "dose"]))
    assert str(CELL) not in str(caught.value)


def test_prediction_with_wrong_columns_is_an_input_error():
    model = PATEClassifier(
        LogisticRegression(), epsilon=40.0, classes=[0, 1], verbose=0, noise_seed=1, random_state=1, voting="ballots"
    )
    model.fit(X + Y[:, None], Y, X_public=np.random.default_rng(0).normal(size=(30, 2)))
    with pytest.raises(InputError, match="X has 1 features, but PATEClassifier is expecting 2"):
        model.predict(X[:, :1])
    with pytest.raises(InputError, match="it must be \\(rows, features\\)"):
        model.predict(X[:, 0])


@pytest.fixture
def ward(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(TOML)
    (tmp_path / "policy.toml").write_text("strict = 1.0\nopen = 4.0\n")
    (tmp_path / "pool.csv").write_text("age,dose\n" + "40.5,1\n50.5,2\n" * 30)
    return tmp_path


HEADER = "patient,consent,age,dose,outcome"
FILES = {  # name: (the bytes of a private file, what the message must say)
    "no header": ("\n".join([ROW] * 50).encode(), "does not look like a header"),
    "semicolons": ("\n".join([HEADER, *[ROW] * 50]).replace(",", ";").encode(), "is its separator ';'?"),
    "semicolons without header": ("\n".join([ROW] * 50).replace(",", ";").encode(), "is its separator ';'?"),
    "UTF-16": ("\n".join([HEADER, *[ROW] * 50]).encode("utf-16"), "is it UTF-16"),
    "UTF-16 without mark or header": ("\n".join([ROW] * 50).encode("utf-16-le"), "is it UTF-16"),
    "workbook": (b"PK\x03\x04\x14\x00\x06\x00" + ROW.encode() + b"\n" * 9, "a workbook"),
    "no text": (b"\xff\xd8" + ROW.encode() + b"\n\xff\xd8\n", "does not look like a header"),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "line",
    [
        "run run.toml",
        "plan run.toml",
        "consent people.csv --policy policy.toml --level consent --person patient",
        "consent people.csv --policy policy.toml --level consent",
        "schema people.csv",
        "schema people.csv --public pool.csv",
        "schema people.csv --label outcome",
        "plan --people people.csv --classes 2",
    ],
)
def test_first_line_that_is_no_header_is_not_shown(ward, name, line):
    content, words = FILES[name]
    (ward / "people.csv").write_bytes(content)
    ran = ipate(*line.split())
    assert ran.code == 2, ran.err
    assert words in ran.err
    for cell in ROW.split(","):
        assert cell not in ran.err + ran.out


def test_misspelt_column_is_compared_with_names_of_true_header(ward):
    (ward / "people.csv").write_text("\n".join([HEADER, *[ROW] * 50]))
    (ward / "run.toml").write_text(TOML.replace('"outcome"', '"outcoem"'))
    assert "has no column 'outcoem' (label): nearest is 'outcome'" in ipate("run", "run.toml").err


def test_misspelt_feature_of_file_without_roles_is_not_compared(ward):
    (ward / "people.csv").write_text("\n".join([ROW] * 50))
    with pytest.raises(InputError, match="does not look like a header") as caught:
        read_data(ward / "people.csv", label="outcome", classes=["home", "readmitted"], numbers=["age", "dose"])
    assert "readmitted" not in str(caught.value)
