"""Ids of people have one form, whatever they come from, and ids that look alike are reported."""

import numpy as np
import pytest

from ipate.errors import SimilarIdsWarning
from ipate.people.ids import alike, plain_id, plain_ids, warn_alike
from ipate.people.people import People

SEVEN = (
    7,
    7.0,
    "7",
    "7.0",
    "7.000",
    " 7 ",
    "\t7.0\n",
    "\u00a07",
    "\ufeff7",
    np.int64(7),
    np.float32(7),
    np.str_("7.0"),
)


@pytest.mark.parametrize("value", SEVEN, ids=repr)
def test_all_forms_of_seven_are_one_id(value):
    assert plain_id(value) == "7"


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("José", "José"),
        ("Jose\u0301", "José"),
        ("A.0", "A.0"),
        ("1.5", "1.5"),
        ("1.0.0", "1.0.0"),
        ("007", "007"),
        ("007.0", "007"),
        (-3.0, "-3"),
        ("-0.0", "0"),
        (-0.0, "0"),
        ("1e5", "1e5"),
        ("  two words ", "two words"),
    ],
)
def test_text_keeps_all_that_identifies(value, wanted):
    assert plain_id(value) == wanted


@pytest.mark.parametrize(
    "value",
    ["", "  ", "\u200b", "x" * 201, "a\0b", None, True, np.True_, 1.5, float("nan"), float("inf"), 2.0**53, b"7"],
)
def test_values_that_identify_nobody_are_invalid(value):
    assert plain_id(value) == ""


def test_people_are_found_by_any_form_of_their_id():
    people = People.from_budgets([1.0, 2.0, 3.0, 1.0], delta=1e-5, person_id=["7.0", "Jose\u0301", 7, " José"])
    assert people.ids.tolist() == ["7", "José"]
    assert people.index_of(7.0) == people.index_of(" 7") == 0
    assert people.index_of("Jose\u0301") == 1
    assert plain_ids(np.array([1.0, 2.0])) == ["1", "2"]


def test_ids_that_look_alike_are_paired():
    assert alike(["Ann", "ann", "bob", "P007", "P7", "10", "1"]) == [("Ann", "ann"), ("P007", "P7")]
    assert alike(["01", "ann"], ["1", "ann", "x"]) == [("1", "01")]
    assert alike(["1", "2", "100", "0", "00x"]) == []
    with pytest.warns(SimilarIdsWarning, match=r"people.csv: 1 id differs from another .* \('1' and '01'\)"):
        warn_alike(["01"], ["1"], where="people.csv")
    warn_alike(["1", "2"], where="people.csv")
