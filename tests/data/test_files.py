import builtins
import warnings

import numpy as np
import pytest

from ipate.data.sources import read_data
from ipate.errors import InputError

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


def test_undeclared_class_set_is_refused(tmp_path):
    with pytest.raises(InputError, match=r'classes are not declared: .* classes = \["no", "yes"\].*--classes no,yes'):
        read_data(csv(tmp_path), label="sick", features=["age"])


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
        (TABLE, {"features": ["age", "sick"]}, "'sick' is declared as a feature, and has another role"),
        (TABLE, {"classes": ["yes"]}, "at least two"),
        (TABLE.replace("low,p2", ",p2"), {}, "line 3: level 'consent' is missing"),
        (TABLE.replace("low,p2", "low,"), {}, "line 3: person 'who' is missing"),
        (TABLE.replace("22", "22,1"), {}, "line 3 has 6 cells: it must have 5"),
        (TABLE.replace("48,", "\n48,"), {}, "line 3 is blank"),
        (TABLE.replace("48", '"48'), {}, "line 3 has a quote that is never closed"),
        (TABLE.replace("bmi", "age"), {}, "duplicate column 'age'"),
        ("sick,consent,who\nyes,high,p1\n", {}, "has no column left that is a feature"),
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


@pytest.mark.parametrize("cell", ["", "nan", "?", "inf", "-1e400", "2_2", "٢٢", "x", "5 kg", "1e300", "\udc80"])
def test_unreadable_private_feature_is_missing(tmp_path, cell):
    path = tmp_path / "people.csv"
    path.write_bytes(TABLE.replace("22", cell).encode("utf-8", "surrogateescape"))
    data = read_data(path, **NAMED, public={"age": [20, 30, 100], "bmi": [20.0, 25.0, 33.0]})
    assert data.X[1, 1] * np.std([20, 25, 33]) + 26 == pytest.approx(25)
    usual = read_data(csv(tmp_path), **NAMED, public={"age": [20, 30, 100], "bmi": [20.0, 25.0, 33.0]})
    assert np.array_equal(np.delete(data.X, 1, axis=0), np.delete(usual.X, 1, axis=0))
    assert data.private_notes == ("Column 'bmi': 1 cells are missing, unreadable or no declared value.",)
    assert data.notes == usual.notes == ()


@pytest.mark.parametrize("cell", ["", "nan", "Yes", "perhaps", "1"])
def test_label_that_is_no_class_has_no_vote(tmp_path, cell):
    data = read_data(csv(tmp_path, TABLE.replace("22,no", f"22,{cell}")), **NAMED)
    assert data.y.tolist() == [1, -1, 1]
    assert "1 rows have no label or one that is no class" in data.private_notes[0]


@pytest.mark.parametrize("row", ["p2,low,48", "p2,low,48,22,1,no", "p2,low", 'p2,low,"4"8,"2\n2",no,,'])
def test_malformed_row_keeps_its_person(tmp_path, row):
    header, *rows = TABLE.splitlines()
    order = [4, 3, 0, 1, 2]
    lines = [",".join(np.array(line.split(","))[order]) for line in (header, *rows)]
    lines[2] = row
    data = read_data(csv(tmp_path, "\n".join(lines) + "\n"), **NAMED)
    assert data.person_id.tolist() == ["p1", "p2", "p1"]
    assert data.levels.tolist() == ["high", "low", "low"]
    assert data.y.tolist() == [1, -1, 1]
    assert data.X.tolist() == [[61, 27.5], [0, 0], [50, 30]]


def test_line_numbers_count_multiline_cells(tmp_path):
    path = csv(tmp_path, 'a,y,note,who\n1,0,"two\nlines",p\n2,1,x,\n')
    with pytest.raises(InputError, match="line 4: person 'who' is missing"):
        read_data(path, label="y", features=["a"], person="who", classes=[0, 1])


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
    again = read_data(path, label="y", classes=[0, 1, 2])
    assert np.array_equal(again.X[:-1], data.X[:-1])
    assert again.X[-1].tolist() == [0, 39999 / 2]


def test_unreadable_files_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.csv cannot be read: No such file"):
        read_data(tmp_path / "nowhere.csv", label="y")
    with pytest.raises(InputError, match=r"the suffix '\.xls' is unknown: it must be \.csv, \.parquet or \.npz"):
        read_data(tmp_path / "a.xls", label="y")
    (tmp_path / "a.npz").write_bytes(b"no zip")
    with pytest.raises(InputError, match="not a readable npz file"):
        read_data(tmp_path / "a.npz")
    with pytest.raises(InputError, match="cannot be read"):
        read_data(tmp_path / "b.npz", label="y")


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
        ({"a": ["x", "z"], "y": [0, 1]}, "column 'a' holds text: declare its values in categories"),
        ({"a": [1.0], "z": [0]}, r"has no column 'y' \(label\): nearest is"),
        ({"y": [0, 1]}, "has no column left that is a feature"),
    ],
)
def test_invalid_parquet_is_refused_with_its_place(tmp_path, columns, words):
    with pytest.raises(InputError, match=words):
        read_data(parquet(tmp_path, columns), label="y", classes=[0, 1])


def test_private_cells_of_parquet_refuse_nothing(tmp_path):
    columns = {"a": [1.0, None, np.inf, 4.0], "c": ["u", None, "w", "v"], "y": [0.0, None, 0.5, 1.0]}
    public = {"a": [0.0, 2.0], "c": ["u", "v"]}
    data = read_data(parquet(tmp_path, columns), label="y", classes=[0, 1], public=public)
    assert data.y.tolist() == [0, -1, -1, 1]
    assert data.X.tolist() == [[0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 0, 1], [3, 0, 1, 0]]


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

    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=r"pip install 'ipate\[parquet\]'"):
        read_data(tmp_path / "a.parquet", label="y")


def test_npz_arrays_are_read_by_name(tmp_path):
    arrays = {"X": np.eye(3, dtype=np.float32), "y": [2, 0, 1], "levels": ["a", "b", "a"], "person": [1, 1, 2]}
    data = read_data(npz(tmp_path, **arrays), classes=("r", "g", "b"))
    assert data.y.tolist() == [2, 0, 1]
    assert data.feature_names == ("x0", "x1", "x2")
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


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"y": [0, 1]}, "has no array 'X'"),
        ({"X": np.eye(2), "Y": [0, 1]}, r"has no column 'y' \(label\): nearest is 'Y'"),
        ({"X": np.eye(2), "y": [0, 1, 1]}, r"'y' has the shape \(3,\): X has 2 rows"),
        ({"X": np.array([["a"]]), "y": [0]}, "features must be numeric"),
        ({"X": np.zeros(3), "y": [0, 1, 1]}, r"'X' has the shape \(3,\)"),
        ({"X": np.zeros((0, 2)), "y": np.zeros(0)}, "not empty"),
        ({"X": np.eye(2), "y": [0, 1], "epsilon": [1, 0]}, "row 1: epsilon 'epsilon' is '0':"),
        ({"X": np.eye(2), "y": [0, 1], "epsilon": ["a", "b"]}, "row 0: epsilon 'epsilon' is 'a'"),
        ({"X": np.eye(2), "y": [0, 1], "levels": ["a", ""]}, "row 1: level 'levels' is missing"),
        ({"X": np.eye(2), "y": [0, 1], "feature_names": ["u"]}, "'feature_names' has 1 names"),
        ({"X": np.eye(2), "y": np.array([0, None], dtype=object)}, "would need pickle"),
    ],
)
def test_invalid_npz_is_refused_with_its_place(tmp_path, arrays, words):
    with pytest.raises(InputError, match=words):
        read_data(npz(tmp_path, **arrays), classes=[0, 1])


def test_private_cells_of_npz_refuse_nothing(tmp_path):
    bad = np.eye(2)
    bad[1, 0] = np.nan
    data = read_data(npz(tmp_path, X=bad, y=[0, 2]), classes=["no", "yes"])
    assert data.y.tolist() == [0, -1]
    assert data.X.tolist() == [[1, 0], [0, 1]]
    assert read_data(npz(tmp_path, X=bad, y=[np.nan, 1.0]), classes=[0, 1]).y.tolist() == [-1, 1]
    pixels = np.array([[[0.5, np.nan]], [[7.0, -1.0]]])
    data = read_data(npz(tmp_path, X=pixels, y=[0, 1]), classes=[0, 1])
    assert data.X.tolist() == [[[0.5, 0]], [[1, 0]]]


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
