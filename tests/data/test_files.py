import builtins
import warnings

import numpy as np
import pytest

from ipate.data.files import read_data
from ipate.errors import ClassesWarning, InputError

TABLE = "age,bmi,sick,consent,who\n61,27.5,yes,high,p1\n48,22,no,low,p2\n50,30,yes,low,p1\n"
NAMED = {"label": "sick", "level": "consent", "person": "who", "classes": ("no", "yes")}


def csv(tmp_path, text=TABLE, name="people.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def parquet(tmp_path, columns):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet as files

    path = tmp_path / "people.parquet"
    files.write_table(pa.table(columns), path)
    return path


def npz(tmp_path, **arrays):
    path = tmp_path / "people.npz"
    np.savez(path, **arrays)
    return path


def test_csv_columns_are_read_by_role(tmp_path):
    data = read_data(csv(tmp_path), **NAMED)
    assert data.X.tolist() == [[61, 27.5], [48, 22], [50, 30]]
    assert data.y.tolist() == [1, 0, 1]
    assert data.levels.tolist() == ["high", "low", "low"]
    assert data.person_id.tolist() == ["p1", "p2", "p1"]
    assert data.feature_names == ("age", "bmi")
    assert (data.name, data.notes) == ("people", ())


def test_csv_with_epsilon_and_chosen_features(tmp_path):
    path = csv(tmp_path, "\ufeffa,b,c,y,e\r\n1,x,2,0,0.5\r\n3,,4,1,2\r\n")
    data = read_data(path, label="y", epsilon="e", features=["c", "a"], classes=[0, 1])
    assert data.X.tolist() == [[2, 1], [4, 3]]
    assert data.epsilon.tolist() == [0.5, 2.0]
    assert data.feature_names == ("c", "a")


def test_missing_class_set_is_read_with_a_warning(tmp_path):
    with pytest.warns(ClassesWarning, match=r"the 2 that occur are taken as public \('no, yes'\)"):
        data = read_data(csv(tmp_path), label="sick", features=["age"])
    assert data.classes == ("no", "yes")
    assert "declared public" in data.notes[0]
    numbers = csv(tmp_path, "x,y\n" + "".join(f"{i},{i}\n" for i in (10, 9, 2)))
    with pytest.warns(ClassesWarning):
        assert read_data(numbers, label="y").classes == ("2", "9", "10")


def test_class_without_rows_stays_in_the_set(tmp_path):
    data = read_data(csv(tmp_path), label="sick", features=["age"], classes=["yes", "perhaps", "no"])
    assert data.y.tolist() == [0, 2, 0]
    assert data.n_classes == 3


@pytest.mark.parametrize(
    ("text", "changes", "words"),
    [
        ("", {}, "people.csv is empty or starts with a blank line"),
        ("age,bmi,sick,consent,who\n", {}, "has a header and no rows"),
        (TABLE, {"label": "sik"}, r"has no column 'sik' \(label\): nearest is 'sick'"),
        (TABLE, {"level": "Consnt"}, r"has no column 'Consnt' \(level\): nearest is 'consent'"),
        (TABLE, {"features": ["age", "bim"]}, r"has no column 'bim' \(feature\): nearest is 'bmi'"),
        (TABLE, {"features": []}, "features are empty"),
        (TABLE, {"features": "age"}, "features is 'age': it must be a list"),
        (TABLE, {"classes": "yes"}, "classes is 'yes': it must be a list"),
        (TABLE, {"label": None}, "label is not given"),
        (TABLE, {"epsilon": "age"}, "level and epsilon are both named"),
        (TABLE, {"features": ["age", "sick"]}, "'sick' is named as label and as feature"),
        (TABLE, {"level": None}, "line 2: feature 'consent' is 'high': features must be numeric; encode"),
        (TABLE, {"classes": ["yes", "noo"]}, "line 3: label 'sick' is 'no': allowed are 'yes, noo'; nearest is 'noo'"),
        (TABLE, {"classes": ["yes"]}, "at least two"),
        (TABLE.replace("48,22,no", "48,22,"), {}, "line 3: label 'sick' is missing"),
        (TABLE.replace("low,p2", ",p2"), {}, "line 3: level 'consent' is missing"),
        (TABLE.replace("low,p2", "low,"), {}, "line 3: person 'who' is missing"),
        (TABLE.replace("22", ""), {}, "line 3: feature 'bmi' is missing, the first of 1 such values in 1 of 3 rows"),
        (TABLE.replace("22", "nan").replace("30", "?"), {}, "line 3: feature 'bmi' is missing, the first of 2"),
        (TABLE.replace("22", "inf"), {}, "line 3: feature 'bmi' is infinite"),
        (TABLE.replace("22", "2_2"), {}, "line 3: feature 'bmi' is '2_2'"),
        (TABLE.replace("22", "٢٢"), {}, "line 3: feature 'bmi' is '٢٢'"),
        (TABLE.replace("22", "22,1"), {}, "line 3 has 6 cells: it must have 5"),
        (TABLE.replace("48,", "\n48,"), {}, "line 3 is blank"),
        (TABLE.replace("48", '"48'), {}, "is not valid CSV"),
        (TABLE.replace("bmi", "age"), {}, "duplicate column 'age'"),
        ("sick,consent,who\nyes,high,p1\n", {}, "has no column other than consent, sick, who"),
        ("a,sick,consent,who\n1,yes,high,p1\n", {"classes": None}, "has only the class 'yes'"),
    ],
)
def test_invalid_csv_is_refused_with_its_place(tmp_path, text, changes, words):
    with pytest.raises(InputError, match=words) as caught:
        read_data(csv(tmp_path, text), **{**NAMED, **changes})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("cell", "words"), [("0", "is '0'"), ("-1", "is '-1'"), ("", "is missing"), ("x", "is 'x'")])
def test_csv_epsilon_must_be_above_0(tmp_path, cell, words):
    path = csv(tmp_path, f"a,y,e\n1,0,1\n2,1,{cell}\n")
    with pytest.raises(InputError, match=f"line 3: epsilon 'e' {words}: it must be a finite number above 0"):
        read_data(path, label="y", epsilon="e", classes=[0, 1])


def test_line_numbers_count_multiline_cells(tmp_path):
    path = csv(tmp_path, 'a,y,note\n1,0,"two\nlines"\n2,,x\n')
    with pytest.raises(InputError, match="line 4: label 'y' is missing"):
        read_data(path, label="y", features=["a"], classes=[0, 1])


def test_constant_and_duplicate_columns_are_accepted(tmp_path):
    data = read_data(csv(tmp_path, "a,b,c,y\n1,2,2,0\n1,3,3,1\n"), label="y", classes=[0, 1])
    assert data.X.tolist() == [[1, 2, 2], [1, 3, 3]]


def test_long_csv_is_read_in_blocks(tmp_path):
    n = 40_000
    path = csv(tmp_path, "a,b,y\n" + "".join(f"{i},{i / 2},{i % 3}\n" for i in range(n)))
    data = read_data(path, label="y", classes=[0, 1, 2])
    assert np.array_equal(data.X[:, 0], np.arange(n))
    assert np.array_equal(data.y, np.arange(n) % 3)
    path.write_text(path.read_text().replace("\n39999,", "\nx,"))
    with pytest.raises(InputError, match="line 40001: feature 'a' is 'x'"):
        read_data(path, label="y", classes=[0, 1, 2])


def test_unreadable_files_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.csv cannot be read: No such file"):
        read_data(tmp_path / "nowhere.csv", label="y")
    with pytest.raises(InputError, match=r"the suffix '\.xls' is unknown: it must be \.csv, \.parquet or \.npz"):
        read_data(tmp_path / "a.xls", label="y")
    (tmp_path / "a.csv").write_bytes(b"a,y\n\xff,1\n")
    with pytest.raises(InputError, match="must be text in UTF-8"):
        read_data(tmp_path / "a.csv", label="y")
    (tmp_path / "a.npz").write_bytes(b"no zip")
    with pytest.raises(InputError, match="not a readable npz file"):
        read_data(tmp_path / "a.npz")
    with pytest.raises(InputError, match="cannot be read"):
        read_data(tmp_path / "b.npz")


def test_parquet_columns_are_read_by_role(tmp_path):
    columns = {
        "age": [61, 48],
        "smokes": [True, False],
        "sick": ["yes", "no"],
        "consent": ["high", "low"],
        "who": [7, 8],
    }
    data = read_data(parquet(tmp_path, columns), **NAMED)
    assert data.X.tolist() == [[61, 1], [48, 0]]
    assert data.y.tolist() == [1, 0]
    assert data.person_id.tolist() == ["7", "8"]
    assert data.levels.tolist() == ["high", "low"]


def test_parquet_dictionaries_numbers_and_epsilon_are_read(tmp_path):
    pa = pytest.importorskip("pyarrow")
    columns = {"a": pa.array([1.5, 2.5], pa.float32()), "y": pa.array(["u", "v"]).dictionary_encode(), "e": [1, 2]}
    data = read_data(parquet(tmp_path, columns), label="y", epsilon="e", classes=["v", "u"])
    assert data.y.tolist() == [1, 0]
    assert data.epsilon.tolist() == [1.0, 2.0]
    data = read_data(parquet(tmp_path, {"a": [1, 2], "y": [5, 3]}), label="y", classes=[3, 5])
    assert data.y.tolist() == [1, 0]
    data = read_data(parquet(tmp_path, {"a": [1, 2], "y": [5.0, 3.0]}), label="y", classes=[3, 5])
    assert data.y.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"a": [1.0, None, None], "y": [0, 1, 0]}, "row 1: feature 'a' is missing, the first of 2"),
        ({"a": [1.0, 2.0], "y": [0, None]}, "row 1: label 'y' is missing"),
        ({"a": [1.0, 2.0], "y": ["u", " "]}, "row 1: label 'y' is missing"),
        ({"a": ["x", "z"], "y": [0, 1]}, "column 'a' is of type string: features must be numeric; encode it"),
        ({"a": [1.0], "z": [0]}, r"has no column 'y' \(label\): nearest is"),
        ({"y": [0, 1]}, "has no column other than y"),
        ({"a": [1, 2], "y": [0.5, 1]}, "row 0: label 'y' is 0.5"),
    ],
)
def test_invalid_parquet_is_refused_with_its_place(tmp_path, columns, words):
    with pytest.raises(InputError, match=words):
        read_data(parquet(tmp_path, columns), label="y", classes=[0, 1])


def test_broken_or_empty_parquet_is_refused(tmp_path):
    pa = pytest.importorskip("pyarrow")
    path = parquet(tmp_path, {"a": pa.array([], pa.float64()), "y": pa.array([], pa.int64())})
    with pytest.raises(InputError, match="has no rows"):
        read_data(path, label="y", classes=[0, 1])
    path.write_bytes(b"PAR1 nothing")
    with pytest.raises(InputError, match=r"parquet file|cannot be read"):
        read_data(path, label="y", classes=[0, 1])


def test_missing_pyarrow_is_reported_with_install_hint(tmp_path, monkeypatch):
    usual = builtins.__import__

    def without(name, *rest):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return usual(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=r"pip install 'ipate\[parquet\]'"):
        read_data(tmp_path / "a.parquet", label="y")


def test_npz_arrays_are_read_by_name(tmp_path):
    arrays = {"X": np.eye(3, dtype=np.float32), "y": [2, 0, 1], "levels": ["a", "b", "a"], "person": [1, 1, 2]}
    data = read_data(npz(tmp_path, **arrays), classes=("r", "g", "b"))
    assert data.y.tolist() == [2, 0, 1]
    assert data.X.dtype == np.float32
    assert data.levels.tolist() == ["a", "b", "a"]
    assert data.person_id.tolist() == ["1", "1", "2"]
    named = npz(tmp_path, X=np.eye(2), truth=["g", "r"], classes=["r", "g"], feature_names=["u", "v"], epsilon=[1, 2])
    data = read_data(named, label="truth", features=["v"])
    assert data.y.tolist() == [1, 0]
    assert data.X.tolist() == [[0], [1]]
    assert data.epsilon.tolist() == [1.0, 2.0]


def test_npz_images_are_read_unchanged(tmp_path):
    data = read_data(npz(tmp_path, X=np.zeros((2, 4, 4), np.uint8), y=[0, 1]), classes=[0, 1])
    assert (data.kind, data.X.dtype, data.features().shape) == ("image", np.uint8, (2, 16))


def test_npz_with_levels_and_epsilon_needs_a_choice(tmp_path):
    path = npz(tmp_path, X=np.eye(2), y=[0, 1], levels=["a", "b"], epsilon=[1.0, 2.0])
    assert read_data(path, epsilon="epsilon", classes=[0, 1]).levels is None
    assert read_data(path, level="levels", classes=[0, 1]).epsilon is None
    with pytest.raises(InputError, match="has levels and epsilon"):
        read_data(path, classes=[0, 1])


BAD = np.eye(2)
BAD[1, 0] = np.nan


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"y": [0, 1]}, "has no array 'X'"),
        ({"X": np.eye(2), "Y": [0, 1]}, r"has no array 'y' \(label\): nearest is 'Y'"),
        ({"X": np.eye(2), "y": [0, 1, 1]}, r"'y' has the shape \(3,\): X has 2 rows"),
        ({"X": np.eye(2), "y": [0.0, np.nan]}, "row 1: y is missing"),
        ({"X": np.eye(2), "y": [0, 7]}, "row 1: label 'y' is '7'"),
        ({"X": BAD, "y": [0, 1]}, r"row 1: feature \(0\) is missing, the first of 1"),
        ({"X": BAD, "y": [0, 1], "feature_names": ["u", "v"]}, "row 1: feature 'u' is missing"),
        ({"X": np.array([["a"]]), "y": [0]}, "features must be numeric"),
        ({"X": np.zeros(3), "y": [0, 1, 1]}, r"'X' has the shape \(3,\)"),
        ({"X": np.zeros((0, 2)), "y": np.zeros(0)}, "not empty"),
        ({"X": np.eye(2), "y": [0, 1], "epsilon": [1, 0]}, "row 1: epsilon is 0:"),
        ({"X": np.eye(2), "y": [0, 1], "epsilon": ["a", "b"]}, "'epsilon' is of type"),
        ({"X": np.eye(2), "y": [0, 1], "levels": ["a", ""]}, "row 1: levels is missing"),
        ({"X": np.eye(2), "y": [0, 1], "feature_names": ["u"]}, "'feature_names' has 1 names"),
        ({"X": np.eye(2), "y": np.array([0, None], dtype=object)}, "would need pickle"),
        ({"X": np.eye(2), "y": [0j, 1j]}, "y is of type complex128"),
    ],
)
def test_invalid_npz_is_refused_with_its_place(tmp_path, arrays, words):
    with pytest.raises(InputError, match=words):
        read_data(npz(tmp_path, **arrays), classes=[0, 1])


def test_npz_label_index_outside_classes_is_refused(tmp_path):
    with pytest.raises(InputError, match="row 1: y is 2: indices into the class set go from 0 to 1"):
        read_data(npz(tmp_path, X=np.eye(2), y=[0, 2]), classes=["no", "yes"])
    with pytest.raises(InputError, match="has no 'feature_names'"):
        read_data(npz(tmp_path, X=np.eye(2), y=[0, 1]), classes=[0, 1], features=["a"])


def test_csv_parquet_and_npz_give_equal_data(tmp_path):
    text = "a,b,y\n1,2.5,no\n3,4.5,yes\n"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one = read_data(csv(tmp_path, text), label="y", classes=["no", "yes"])
        two = read_data(
            parquet(tmp_path, {"a": [1, 3], "b": [2.5, 4.5], "y": ["no", "yes"]}), label="y", classes=["no", "yes"]
        )
        three = read_data(npz(tmp_path, X=[[1, 2.5], [3, 4.5]], y=["no", "yes"]), classes=["no", "yes"])
    for other in (two, three):
        assert np.array_equal(one.X, other.X)
        assert np.array_equal(one.y, other.y)
