"""Fixtures of the tests of several sites: queries, and a site that was fitted for them."""

import pytest

from parties.making import fitted, queries


@pytest.fixture
def pool(tmp_path):
    return queries(tmp_path)


@pytest.fixture
def site(tmp_path, pool):
    return fitted(tmp_path / "north", encoding=pool.encoding)
