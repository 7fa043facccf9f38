"""A cell of one person changes nobody else's: arrays and lists in memory are read cell by cell, and never refused.

numpy turns a list of class ids into text if one of them is text. Then no label was a class any more, of anybody.
"""

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from ipate import PATEClassifier
from ipate.data.sources import read_data

ROWS, PERSON = 120, 5


def world():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=ROWS)
    return rng.normal(size=(ROWS, 2)) + 3 * y[:, None], y, rng.normal(size=(40, 2)) + 1.5


def fitted(X, y):
    _, _, pool = world()
    model = PATEClassifier(
        GaussianNB(),
        classes=[0, 1],
        epsilon=40.0,
        n_teachers=6,
        variant="standard",
        aggregator="gnmax",
        sigma=1.0,
        random_state=1,
        noise_seed=2,
        verbose=0,
    )
    return model.fit(X, y, X_public=pool)


@pytest.mark.parametrize("odd", ["martian", [1, 2], ([1], 2), None, float("nan"), 10**30, 1j], ids=str)
def test_odd_label_in_list_is_one_row_without_class(odd):
    X, y, _ = world()
    changed = y.tolist()
    changed[PERSON] = odd
    assert fitted(X, changed).private_notes_["rows_without_class"] == 1


@pytest.mark.parametrize("form", [lambda X: X.astype(object), lambda X: X.tolist()], ids=["objects", "lists"])
@pytest.mark.parametrize("odd", ["martian", "", None, 10**400, 1j], ids=lambda odd: str(odd)[:9])
def test_odd_feature_in_memory_is_one_unusable_row(form, odd):
    X, y, _ = world()
    changed = form(X)
    changed[PERSON][0] = odd
    gone = X.copy()
    gone[PERSON, 0] = np.nan
    one, other = fitted(changed, y), fitted(gone, y)
    assert not one.private_notes_["teachers"]
    np.testing.assert_array_equal(one.labels_, other.labels_)


def test_odd_cell_in_column_leaves_others_as_they_were():
    columns = {"a": [True, False] * 3, "ill": [True, False] * 3}
    before = read_data(columns, label="ill", classes=[True, False], numbers=["a"])
    after = read_data(
        {name: [*cells[:5], "martian"] for name, cells in columns.items()},
        label="ill",
        classes=[True, False],
        numbers=["a"],
    )
    np.testing.assert_array_equal(after.y, [*before.y[:5], -1])
    np.testing.assert_array_equal(after.X[:5], before.X[:5])
