"""Values that belong to rows are matched by label, column or person id, and frames keep their type."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.sparse import csr_matrix

from ipate.data.frames import is_frame, matched, n_rows, parts, stacked, take, without
from ipate.errors import InputError
from ipate.files import fingerprint

COLUMNS = {"age": [30, 40, 50], "ward": ["a", "b", "a"], "patient": ["x", "y", "z"]}
KINDS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_taken_and_stacked_as_same_type(kind):
    frame = KINDS[kind](COLUMNS)
    both = stacked(take(frame, [2, 0]), take(frame, np.array([1])))
    assert type(both) is type(frame)
    assert is_frame(both)
    assert n_rows(both) == 3
    assert np.asarray(both["age"]).tolist() == [50, 30, 40]


def test_sparse_rows_are_taken_and_stacked():
    matrix = csr_matrix(np.eye(4))
    both = stacked(take(matrix, [3, 1]), take(matrix, [0]))
    np.testing.assert_array_equal(both.toarray(), np.eye(4)[[3, 1, 0]])


@pytest.mark.parametrize("kind", KINDS)
def test_named_columns_are_values_and_no_features(kind):
    frame = KINDS[kind]({**COLUMNS, "epsilon": [1.0, 2.0, 1.0]})
    X, names, found = matched(frame, {"budgets": "epsilon", "person_id": "patient", "levels": None})
    assert names == ("epsilon", "patient")
    assert list(without(frame, names).columns if kind != "pyarrow" else without(frame, names).column_names)
    assert n_rows(X) == 3
    assert X.shape[1] == 2
    assert found["budgets"].tolist() == [1.0, 2.0, 1.0]
    assert found["person_id"].tolist() == ["x", "y", "z"]
    assert found["levels"] is None


@pytest.mark.parametrize("kind", KINDS)
def test_table_of_budgets_is_looked_up_by_person(kind):
    frame = KINDS[kind](COLUMNS)
    consent = KINDS[kind]({"patient": ["z", "w", "y", "x"], "epsilon": [3.0, 9.0, 2.0, 1.0]})
    _, _, found = matched(frame, {"budgets": consent, "person_id": "patient"})
    assert found["budgets"].tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("consent", "words"),
    [
        ({"patient": ["x", "y"], "epsilon": [1.0, 2.0]}, "no row of person 'z'"),
        ({"patient": ["x", "y", "z", "z"], "epsilon": [1.0] * 4}, "several rows of one person"),
        ({"id": ["x", "y", "z"], "epsilon": [1.0] * 3}, "must have two"),
        ({"patient": ["x", "y", "z"], "epsilon": [1.0] * 3, "delta": [0.1] * 3}, "must have two"),
    ],
)
def test_incomplete_tables_of_budgets_are_refused(consent, words):
    with pytest.raises(InputError, match=words):
        matched(pl.DataFrame(COLUMNS), {"budgets": pl.DataFrame(consent), "person_id": "patient"})


def test_values_without_labels_are_taken_by_position():
    X = pd.DataFrame(COLUMNS, index=["p", "q", "r"])
    _, _, found = matched(X, {"budgets": [1.0, 2.0, 3.0], "person_id": pl.Series(["a", "b", "c"])})
    assert found["budgets"].tolist() == [1.0, 2.0, 3.0]
    assert found["person_id"].tolist() == ["a", "b", "c"]


def test_shared_index_is_taken_by_position_beside_array():
    index = [7, 3, 5]
    given = {"y": pd.Series([0, 1, 0], index=index), "budgets": pd.Series([1.0, 2.0, 3.0], index=index)}
    assert matched(np.eye(3), given)[2]["budgets"].tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("X", "given", "words"),
    [
        (np.eye(3), {"y": pd.Series([0, 1, 0]), "budgets": pd.Series([1.0] * 3, index=[2, 1, 0])}, "X has none"),
        (np.eye(3), {"budgets": pd.Series([1.0] * 3, index=[2, 1, 0])}, "in another order"),
        (pd.DataFrame(np.eye(3)), {"budgets": pd.Series([1.0] * 3, index=[0, 1, 4])}, "X has 2 and budgets does not"),
        (pd.DataFrame(np.eye(2)), {"budgets": pd.Series([1.0] * 3)}, "budgets has 2 and X does not"),
        (np.eye(3), {"budgets": "epsilon"}, "X has none"),
        (
            pd.DataFrame(COLUMNS),
            {"budgets": "epsilon", "person_id": "patient"},
            "no such column; its columns are age, ward, patient",
        ),
    ],
)
def test_values_of_unclear_rows_are_refused(X, given, words):
    with pytest.raises(InputError, match=words):
        matched(X, given)


def test_fingerprint_of_frame_follows_its_content():
    def of(values):
        return fingerprint(*parts(values))

    frame = pd.DataFrame(COLUMNS)
    assert of(frame) == of(frame.copy())
    changed = frame.assign(age=[30, 40, 51])
    assert len({of(frame), of(changed), of(frame.rename(columns={"age": "years"})), of(frame.iloc[::-1])}) == 4
    assert of(csr_matrix(np.eye(3))) != of(csr_matrix(np.eye(3)[::-1]))
