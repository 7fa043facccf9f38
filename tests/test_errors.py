"""Checks of single values, and the name that a message proposes."""

import pytest

from ipate.errors import InputError, nearest, refuse_name


@pytest.mark.parametrize(("name", "found"), [("MINST", "Mnist"), ("svhn ", "SVHN"), ("Mnist", "Mnist")])
def test_nearest_name_ignores_case(name, found):
    assert nearest(name, ["Mnist", "SVHN"]) == found


@pytest.mark.parametrize("name", ["", 7, None, "§"])
def test_some_name_is_nearest_to_anything(name):
    assert nearest(name, ["Mnist", "SVHN"]) in ("Mnist", "SVHN")


def test_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"^rule is 'GPD': allowed are gdp, classic; nearest is 'gdp'$"):
        refuse_name("rule", "GPD", ("gdp", "classic"))
