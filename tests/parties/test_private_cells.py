"""A site's cells refuse nothing, and its rows are not accepted as public queries."""

import json
from dataclasses import replace

import numpy as np
import pytest

from ipate.errors import InputError
from ipate.models.named import make_model
from ipate.parties.queries import Queries
from ipate.parties.site import fit_site
from parties.making import fitted, options_of, queries, write_site


def own_rows(folder, asked):
    table = np.genfromtxt(folder / "rows.csv", delimiter=",", names=True, dtype=None, encoding="utf-8")
    return replace(asked, X=np.column_stack([table["age"], table["bmi"]]), ids=None)


def test_own_rows_are_refused_as_queries(tmp_path):
    asked = queries(tmp_path)
    site = fitted(tmp_path / "north", encoding=asked.encoding)
    copied = own_rows(tmp_path / "north", asked)
    assert isinstance(copied, Queries)
    with pytest.raises(InputError, match="most rows of the queries file are copies of private rows"):
        site.vote(copied, tmp_path / "votes.npz")
    assert not (tmp_path / "votes.npz").exists()
    rows, estimator = tmp_path / "north" / "rows.csv", make_model("bayes", {})
    with pytest.raises(InputError, match="copies of private rows"):
        fit_site(
            rows,
            tmp_path / "again",
            name="north",
            encoding=asked.encoding,
            options=options_of("north"),
            estimator=estimator,
            points=copied.X,
        )
    assert not (tmp_path / "again").exists()
    site.vote(asked, tmp_path / "votes.npz")


def test_unreadable_cells_of_a_site_refuse_nothing(tmp_path):
    asked = queries(tmp_path)
    folder = tmp_path / "north"
    folder.mkdir()
    rows = write_site(folder, "north", seed=3)
    lines = rows.read_text().splitlines()
    person, _, _, _, level = lines[1].split(",")
    lines[1] = f"{person},unknown,neither,1e999,{level}"
    rows.write_text("\n".join(lines) + "\n")
    site = fit_site(
        rows,
        folder / "site",
        name="north",
        encoding=asked.encoding,
        options=options_of("north"),
        estimator=make_model("bayes", {}),
    )
    site.vote(asked, tmp_path / "votes.npz")
    notes = json.loads((folder / "site" / "private" / "notes.json").read_text())["data"]
    assert any("'bmi': 1 cells" in line for line in notes)
    assert any("1 rows have no label" in line for line in notes)
