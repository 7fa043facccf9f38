import json

import numpy as np
import pytest

from ipate.data.schema import Declared, Schema, make_schema, schema_from
from ipate.errors import InputError

PUBLIC = {
    "age": ["20", "40", "60", ""],
    "sex": ["F", "M", "F", "M"],
    "admitted": ["2024-01-01", "2024-01-03", "2024-01-02", "2024-01-03"],
}


def frame(columns, kind, tmp_path):
    if kind == "dict":
        return columns
    if kind in ("csv", "parquet"):
        pandas = pytest.importorskip("pandas")
        path = tmp_path / f"raw.{kind}"
        made = pandas.DataFrame(columns)
        made.to_csv(path, index=False) if kind == "csv" else made.to_parquet(path)
        return str(path)
    if kind == "pyarrow":
        return pytest.importorskip("pyarrow").table(columns)
    return pytest.importorskip(kind).DataFrame(columns)


@pytest.mark.parametrize("kind", ["dict", "csv", "parquet", "pandas", "polars", "pyarrow"])
def test_encoding_is_equal_for_every_table(tmp_path, kind):
    schema = schema_from(PUBLIC)
    raw = {
        "extra": ["a", "b", "c", "d"],
        "admitted": ["2024-01-03T12:00:00", "soon", "2024-01-02", ""],
        "sex": ["M", "X", "F", ""],
        "age": ["40", "unknown", "1e30", "60"],
    }
    found = schema.encode(frame(raw, kind, tmp_path))
    assert schema.encoded_names == ("age", "age missing", "sex=F", "sex=M", "sex=(other)", "admitted")
    sd = np.std([20, 40, 60])
    assert found[:, 0] * sd + 40 == pytest.approx([40, 40, 40, 60])
    assert found[:, 1].tolist() == [0, 1, 1, 0]
    assert found[:, 2:5].tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0], [0, 0, 1]]
    day = np.array([19723.0, 19725.0, 19724.0, 19725.0])
    assert found[:, 5] * day.std() + day.mean() == pytest.approx([19725.5, 19724.5, 19724, 19724.5])


def test_types_of_a_frame_decide_kinds():
    pandas = pytest.importorskip("pandas")
    public = pandas.DataFrame(
        {
            "n": [1, 2, 3],
            "b": [True, False, True],
            "d": pandas.to_datetime(["2024-01-01", None, "2024-01-05"]),
            "c": pandas.Categorical(["x", "y", "x"]),
            "f": [1.5, None, 2.5],
        }
    )
    schema = schema_from(public)
    assert [feature.kind for feature in schema.features] == ["number", "number", "date", "category", "number"]
    assert [feature.indicator for feature in schema.features] == [False, False, True, False, True]
    assert np.isfinite(schema.encode(public)).all()


def test_written_schema_encodes_alike(tmp_path):
    schema = schema_from(PUBLIC, missing=["admitted"], origin="2000-01-01")
    schema.write(tmp_path / "schema.json")
    again = Schema.from_file(tmp_path / "schema.json")
    assert again == schema
    assert np.array_equal(again.encode(PUBLIC), schema.encode(PUBLIC))
    stated = json.loads((tmp_path / "schema.json").read_text())
    assert stated["columns"][1] == {"name": "sex", "kind": "category", "values": ["F", "M"]}
    assert stated["encoded"][-1] == "admitted missing"


def test_values_far_outside_the_public_range_are_clipped():
    schema = schema_from({"age": [20.0, 40.0, 60.0]})
    far = schema.encode({"age": [-20.0, 100.0, 1e14, -1e14, np.inf, np.nan, 1e300]})[:, 0]
    sd = np.std([20, 40, 60])
    assert far * sd + 40 == pytest.approx([-20, 100, 100, -20, 40, 40, 40])


def test_declared_values_need_no_public_rows():
    declared = Declared.of(
        categories={"sex": ["F", "M"]}, numbers={"age": [0, 100]}, dates={"seen": "%d.%m.%Y"}, missing=["age"]
    )
    schema = make_schema(None, ["age", "sex", "seen", "plain"], declared)
    found = schema.encode({"plain": [7], "seen": ["02.01.1970"], "sex": ["M"], "age": [75]})
    assert found.tolist() == [[0.5, 0, 0, 1, 0, 1, 7]]


@pytest.mark.parametrize(
    ("public", "declared", "words"),
    [
        ({"note": [f"text {i}" for i in range(60)]}, {}, "looks like free text, with 60 different values in 60 rows"),
        ({"note": [f"text {i % 150}" for i in range(900)]}, {}, "looks like free text, with 150 different values"),
        ({"a": ["", "NA"]}, {}, "column 'a' has no values: declare it"),
        ({"a": [1, 2]}, {"categories": ["b"]}, r"has no column 'b' \(feature\): nearest is 'a'"),
        ({"a": [1, 2]}, {"categories": ["a"], "dates": ["a"]}, "declared as two kinds"),
        ({"a": [1, 2]}, {"categories": ["a"], "drop": ["a"]}, "declared and dropped"),
        ({"a": [1, 2]}, {"drop": ["a"]}, "no column left that is a feature"),
        ({"a": [1, 2]}, {"features": "a"}, "must be a list of names"),
        ({"a": [1, 2]}, {"numbers": {"a": [2, 1]}}, "low below high"),
        ({"a": [1, 2]}, {"categories": {"a": ["x", "x"]}}, "each once"),
        ({"a": [1, 2]}, {"origin": "yesterday"}, "must be a date"),
        ({"a": ["x", "y"]}, {"numbers": ["a"]}, "has no numbers in the public rows"),
    ],
)
def test_unusable_public_columns_are_refused(public, declared, words):
    with pytest.raises(InputError, match=words) as caught:
        schema_from(public, **declared)
    assert "\n" not in str(caught.value)


def test_category_without_public_rows_must_be_declared():
    with pytest.raises(InputError, match=r"categories = \{ sex = "):
        make_schema(None, ["sex"], Declared.of(categories=["sex"]))


def test_missing_column_is_refused_by_name():
    with pytest.raises(InputError, match=r"has no column 'sex' \(feature\): nearest is 'sexx'"):
        schema_from(PUBLIC).encode({"age": [1], "sexx": ["F"], "admitted": ["2024-01-01"]})
