"""Ballots of several sites: public cells, exact sums, and everything that is checked of a site's file."""

import json
import zipfile

import numpy as np
import pytest

from ipate.engines.ballots.design import GRID
from ipate.errors import InputError
from ipate.parties.sums import (
    cast_ballots,
    make_site_cells,
    merge_ballots,
    read_cells,
    read_declaration,
    read_site_ballots,
)
from parties.casting import SITES, declared, rewrite, three_sites
from parties.making import queries


@pytest.fixture(scope="module")
def sent(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sites")
    asked = queries(folder, n=100)
    cells, files = three_sites(folder, asked)
    return folder, asked, cells, files


@pytest.fixture
def copies(sent, tmp_path):
    """Copies of the ballot files, to be changed."""
    for path in sent[3]:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return [tmp_path / path.name for path in sent[3]]


def merged(sent, files, **more):
    return merge_ballots([read_site_ballots(path) for path in files], sent[2], **more)


def test_sites_together_equal_one_site_to_the_last_bit(sent, tmp_path):
    _, asked, cells, files = sent
    whole = declared(tmp_path / "all", "north", asked, people=range(800))
    one, _ = make_site_cells(asked, [whole], tmp_path / "cells.npz", partitions=4)
    np.testing.assert_array_equal(one.maps.cells.centres, cells.maps.cells.centres)
    cast_ballots(tmp_path / "all" / "site", one, tmp_path / "all.npz")
    total = merged(sent, files).total
    np.testing.assert_array_equal(total, read_site_ballots(tmp_path / "all.npz").ballots)
    units = {name.partition("/")[2]: number for name, number in one.manifest.units.items()}
    assert {name.partition("/")[2]: number for name, number in cells.manifest.units.items()} == units
    for table in total:  # everybody adds about their units; 3 of 100 have labels that are no class
        assert 0.9 < table.sum() / sum(group.people * units[group.id[6:]] for group in whole.groups) < 1


def test_cells_file_holds_public_facts_alone(sent, tmp_path):
    """Other rows of the same people, unreadable ones among them, change no byte of declarations and cells."""
    folder, asked, cells, _ = sent

    def spoil(lines):
        return [line.replace("well", "?").replace("ill", "?") for line in lines]

    other = [declared(tmp_path / site, site, asked, change=spoil) for site in SITES]
    for site in SITES:
        public = (tmp_path / site / "site" / "declaration.json").read_bytes()
        assert public == (folder / site / "site" / "declaration.json").read_bytes()
    make_site_cells(asked, other, tmp_path / "cells.npz", partitions=4)
    assert (tmp_path / "cells.npz").read_bytes() == (folder / "cells.npz").read_bytes()
    found = read_cells(tmp_path / "cells.npz")
    assert found.fingerprint == cells.fingerprint
    for site in SITES:
        cast_ballots(tmp_path / site / "site", found, tmp_path / f"{site}.npz")
    empty = merged(sent, [tmp_path / f"{site}.npz" for site in SITES])
    assert not empty.total.any()
    notes = json.loads((tmp_path / "north" / "site" / "private" / "notes.json").read_text())
    assert notes["data"]


def test_order_of_declarations_and_files_changes_nothing(sent, tmp_path):
    folder, asked, _, files = sent
    found = [read_declaration(folder / site / "site" / "declaration.json") for site in reversed(SITES)]
    make_site_cells(asked, found, tmp_path / "cells.npz", partitions=4)
    assert (tmp_path / "cells.npz").read_bytes() == (folder / "cells.npz").read_bytes()
    for number, order in enumerate((files, files[::-1])):
        merged(sent, order).write(tmp_path / str(number))
    for name in ("ballots.npz", "groups.csv", "sites.json"):
        assert (tmp_path / "0" / name).read_bytes() == (tmp_path / "1" / name).read_bytes()


def test_weights_use_up_each_budget_by_id(sent):
    """w = μ/√2 of the group's own budget, in multiples of the grid over √r."""
    from ipate.accounting import gdp

    manifest = sent[2].manifest
    for site in manifest.sites:
        for group in site.groups:
            exact = gdp.mu_of(group.epsilon, group.delta) / np.sqrt(2) / np.sqrt(4) / GRID
            assert manifest.units[group.id] == pytest.approx(exact * share(sent), abs=1.5)


def share(sent):
    """The share of the weight that is used: all of it, up to 10 per cell."""
    from ipate.accounting import gdp

    manifest = sent[2].manifest
    groups = [group for site in manifest.sites for group in site.groups]
    total = sum(group.people * gdp.mu_of(group.epsilon, group.delta) / np.sqrt(2) for group in groups)
    return min(1.0, 10 * manifest.shape[1] / total)


def most_of(sent, site):
    manifest = sent[2].manifest
    return sum(g.people * manifest.units[g.id] for s in manifest.sites if s.site == site for g in s.groups)


def test_sum_above_the_declaration_of_a_site_is_refused(sent, copies):
    """The other sites' declarations leave room for it: only its own counts."""

    def raised(table):
        table = np.zeros_like(table)
        table[:, 0, 0] = most_of(sent, "south")
        table[2, 1, 1] = 1
        return table

    rewrite(copies[1], ballots=raised)
    with pytest.raises(InputError, match=r"south\.npz: ballots of partition 2 sum to"):
        merged(sent, copies)

    def reached(table):
        table = np.zeros_like(table)
        table[:, 0, 0] = most_of(sent, "south")
        return table

    rewrite(copies[1], ballots=reached)
    merged(sent, copies)


def test_same_site_twice_is_refused(sent, copies, tmp_path):
    with pytest.raises(InputError, match="duplicate site 'north'"):
        merged(sent, [*copies, copies[0]])
    other = tmp_path / "other.npz"
    other.write_bytes(copies[0].read_bytes())
    renamed = [{**g.model_dump(), "id": g.id.replace("north", "south")} for g in sent[2].manifest.sites[0].groups]
    rewrite(other, site="south", groups=renamed)
    with pytest.raises(InputError, match="its groups are not those that"):
        merged(sent, [copies[0], other, copies[2]])
    found = read_declaration(sent[0] / "north" / "site" / "declaration.json")
    with pytest.raises(InputError, match="duplicate site 'north'"):
        make_site_cells(sent[1], [found, found], tmp_path / "cells.npz")


BAD = {
    "another shape": ({"ballots": lambda table: table[:, :-1]}, "has the shape"),
    "a transposed shape": ({"ballots": lambda table: table.transpose(1, 0, 2).copy()}, "has the shape"),
    "fractions": ({"ballots": lambda table: table / 2}, "whole multiples of the grid"),
    "a negative entry": (
        {"ballots": lambda table: table - (table == table.min()) * (table.min() + 1)},
        "negative number",
    ),
    "other cells": ({"cells": "0" * 64}, "is for the cells 0000"),
    "a site that is not counted in": (
        {"site": "east", "groups": [{"id": "east/high", "epsilon": 1.0, "delta": 1e-5, "people": 9}]},
        "does not count in site 'east'",
    ),
    "more people": (
        {"groups": [{"id": "south/high", "epsilon": 1.0, "delta": 1e-5, "people": 9000}]},
        "not those that",
    ),
    "an unknown format": ({"format": "ipate site ballots 2"}, "this ipate reads"),
    "a group of another site": (
        {"groups": [{"id": "north/high", "epsilon": 1.0, "delta": 1e-5, "people": 9}]},
        "does not belong to site 'south'",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_file_that_cannot_be_a_site_sum_is_refused(sent, copies, case):
    changes, words = BAD[case]
    rewrite(copies[1], **changes)
    with pytest.raises(InputError) as error:
        merged(sent, copies)
    assert words in str(error.value)
    assert "south.npz" in str(error.value) or "east" in str(error.value)


def test_missing_site_and_other_queries_are_refused(sent, copies, tmp_path):
    with pytest.raises(InputError, match="counts in site 'west'"):
        merged(sent, copies[:2])
    (tmp_path / "other").mkdir()
    with pytest.raises(InputError, match="is for other queries"):
        merged(sent, copies, queries=queries(tmp_path / "other", seed=77))


def test_altered_ballots_are_detected(sent, copies):
    with np.load(copies[0]) as held:
        members = dict(held)
    members["ballots"] = members["ballots"] + 1
    with copies[0].open("wb") as stream:
        np.savez(stream, **members)
    with pytest.raises(InputError, match="its ballots do not match its manifest"):
        read_site_ballots(copies[0])


def test_expected_fingerprints_are_compared(sent, copies):
    expect = [f"{path.stem}={read_site_ballots(path).fingerprint}" for path in copies]
    assert merged(sent, copies, expect=expect).checked
    with pytest.raises(InputError, match="not the one expected of site 'north'"):
        merged(sent, copies, expect=[f"north={'0' * 64}", *expect[1:]])


def test_site_refuses_units_that_its_budgets_do_not_afford(sent, tmp_path):
    folder, _, cells, _ = sent
    units = {name: 40 * number for name, number in cells.manifest.units.items()}
    greedy = type(cells)(
        path=cells.path,
        manifest=cells.manifest.model_copy(update={"units": units}),
        fingerprint="0" * 64,
        maps=cells.maps,
    )
    with pytest.raises(InputError, match="its budget affords whole numbers up to"):
        cast_ballots(folder / "north" / "site", greedy, tmp_path / "north.npz")
    assert not (tmp_path / "north.npz").exists()


def test_site_refuses_cells_of_another_declaration(sent, tmp_path):
    _, asked, cells, _ = sent
    declared(tmp_path / "north", "north", asked, people=range(10, 300))
    with pytest.raises(InputError, match="counts in another declaration"):
        cast_ballots(tmp_path / "north" / "site", cells, tmp_path / "north.npz")


def test_ballots_for_other_cells_need_again(sent, tmp_path):
    folder, asked, cells, _ = sent
    found = [read_declaration(folder / site / "site" / "declaration.json") for site in SITES]
    other, _ = make_site_cells(asked, found, tmp_path / "cells.npz", partitions=2)
    site = folder / "north" / "site"
    with pytest.raises(InputError, match="has already sent votes or ballots"):
        cast_ballots(site, other, tmp_path / "two.npz")
    assert not (tmp_path / "two.npz").exists()
    cast_ballots(site, cells, tmp_path / "one.npz")  # the same cells again: the same file
    assert (tmp_path / "one.npz").read_bytes() == (folder / "north.npz").read_bytes()
    cast_ballots(site, other, tmp_path / "two.npz", again=True)


def test_ballots_of_changed_rows_need_again(tmp_path, pool):
    own = declared(tmp_path / "north", "north", pool)
    cells, _ = make_site_cells(pool, [own], tmp_path / "cells.npz", partitions=2)
    cast_ballots(tmp_path / "north" / "site", cells, tmp_path / "one.npz")
    swap = {"ill": "well", "well": "ill"}

    def changed(lines):
        first = lines[0].split(",")
        return [",".join([*first[:2], swap[first[2]], *first[3:]]), *lines[1:]]

    assert declared(tmp_path / "north", "north", pool, change=changed) == own
    with pytest.raises(InputError, match="has already sent votes or ballots"):
        cast_ballots(tmp_path / "north" / "site", cells, tmp_path / "two.npz")
    assert not (tmp_path / "two.npz").exists()


def test_ballots_after_votes_need_again(tmp_path, pool):
    from parties.making import fitted

    fitted(tmp_path / "north", encoding=pool.encoding).vote(pool, tmp_path / "votes.npz")
    own = declared(tmp_path / "north", "north", pool)
    cells, _ = make_site_cells(pool, [own], tmp_path / "cells.npz", partitions=2)
    with pytest.raises(InputError, match="has already sent votes or ballots"):
        cast_ballots(tmp_path / "north" / "site", cells, tmp_path / "ballots.npz")


def test_rows_stay_private_and_out_of_sent_files(sent):
    folder = sent[0]
    private = folder / "north" / "site" / "private"
    assert private.stat().st_mode & 0o077 == 0
    assert (private / "declared.npz").stat().st_mode & 0o077 == 0
    with zipfile.ZipFile(folder / "north.npz") as archive:
        assert sorted(archive.namelist()) == ["ballots.npy", "manifest.npy", "sha256.npy"]
    shown = json.loads((folder / "north" / "site" / "declaration.json").read_text())
    assert set(shown) == {"format", "ipate", "site", "queries", "groups"}
    assert [set(group) for group in shown["groups"]] == [{"id", "epsilon", "delta", "people"}] * 2


@pytest.mark.parametrize("member", ["centres", "pool", "gain"])
def test_altered_cells_are_detected(sent, tmp_path, member):
    with np.load(sent[0] / "cells.npz") as held:
        members = dict(held)
    members[member] = members[member] + 1
    np.savez(tmp_path / "cells.npz", **members)
    with pytest.raises(InputError, match="do not match its manifest"):
        read_cells(tmp_path / "cells.npz")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "its format is None"),
        (json.dumps({"format": "ipate site declaration 1", "site": "a"}), "cannot be used"),
    ],
)
def test_unusable_declaration_is_refused_by_name(tmp_path, text, words):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(InputError, match=words) as error:
        read_declaration(tmp_path / "a.json")
    assert "a.json" in str(error.value)
