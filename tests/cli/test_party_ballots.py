"""Sites that cast ballots as processes in separate folders, end to end, and errors of one line for bad input."""

import csv
import json
import shutil

import numpy as np
import pytest

from blocks import flat
from ipate.engines.ballots.counting import add_noise, decode
from ipate.ledger.sqlite import SqliteLedger
from ipate.release.noise import SeededNoise
from parties.casting import SITES, rewrite, write_rows
from parties.making import write_pool

COLUMNS = ["--label", "diagnosis", "--level", "consent", "--person", "patient", "--policy", "policy.toml"]


def ok(ran):
    assert ran.code == 0, ran.err
    return ran


def exchange(call, folder, sites):
    """Let sites and an aggregator, each in a folder of its own, exchange public files and ballots; returns the folder.

    `call` runs a command in a folder. Nothing but the named files is copied between folders.
    """
    aggregator = folder / "aggregator"
    aggregator.mkdir(parents=True)
    write_pool(aggregator, n=150)
    ok(
        call(
            aggregator,
            "parties",
            "queries",
            "pool.csv",
            "--classes",
            "well,ill",
            "--bounds",
            "bounds.csv",
            "--out",
            "queries.npz",
        )
    )
    for site, people in sites.items():
        home = folder / site
        home.mkdir()
        write_rows(home, range(*people))
        shutil.copy(aggregator / "queries.npz", home)
        ok(
            call(
                home, "party", "declare", "rows.csv", "--queries", "queries.npz", "--site", site, *COLUMNS, "--out", "."
            )
        )
        (home / "rows.csv").unlink()
        shutil.copy(home / "declaration.json", aggregator / f"{site}.json")
    ok(call(aggregator, "parties", "cells", "queries.npz", *(f"{site}.json" for site in sites), "--out", "cells.npz"))
    expect = []
    for site in sites:
        shutil.copy(aggregator / "cells.npz", folder / site)
        ran = ok(call(folder / site, "party", "ballots", ".", "cells.npz", "--out", f"{site}.npz", "--json"))
        expect += ["--expect", f"{site}={json.loads(ran.out)['fingerprint']}"]
        shutil.copy(folder / site / f"{site}.npz", aggregator)
    ok(
        call(
            aggregator,
            "parties",
            "merge",
            *(f"{site}.npz" for site in sites),
            "--cells",
            "cells.npz",
            "--queries",
            "queries.npz",
            *expect,
            "--out",
            "merged",
        )
    )
    return aggregator


LABEL = ["label", "merged/ballots.npz", "--groups", "merged/groups.csv", "--out", "labels.csv", "--json"]


def test_three_sites_equal_one_site_to_the_last_bit(tmp_path, process):
    def call(folder, *arguments):
        return process(*arguments, cwd=folder)

    three = exchange(call, tmp_path / "three", SITES)
    one = exchange(call, tmp_path / "one", {"all": (0, 800)})
    found = [flat(json.loads(ok(call(place, *LABEL, "--seed", "7")).out)) for place in (three, one)]
    assert (three / "labels.csv").read_bytes() == (one / "labels.csv").read_bytes()
    held = [np.load(place / "labels.csv.confidence.npz") for place in (three, one)]
    for name in ("labels", "confidence", "sample_weight"):
        np.testing.assert_array_equal(held[0][name], held[1][name])
    sums = [np.load(place / "merged" / "ballots.npz") for place in (three, one)]
    np.testing.assert_array_equal(sums[0]["ballots"], sums[1]["ballots"])
    np.testing.assert_array_equal(sums[0]["cells"], sums[1]["cells"])
    drawn = add_noise(sums[0]["ballots"], SeededNoise(7))  # one draw on the sum, and nothing else
    np.testing.assert_array_equal(decode(drawn, sums[0]["cells"]).labels, held[0]["labels"])
    costs = [{(g["budget"], g["epsilon"]) for g in report["groups"]} for report in found]
    assert costs[0] == costs[1]
    assert {g["group"] for g in found[0]["groups"]} == {
        f"{site}/{level}" for site in SITES for level in ("high", "low")
    }
    assert all(0 < g["epsilon"] <= g["budget"] for g in found[0]["groups"])
    assert [report["guarantee"] for report in found] == ["none", "none"]

    real = flat(json.loads(ok(call(three, *LABEL)).out))  # with secure noise
    assert real["guarantee"] == "releasable"
    assert real["labels"] == 150
    with (three / "labels.csv").open(newline="") as stream:
        labels = [row["label"] for row in csv.DictReader(stream)]
    again = flat(json.loads(ok(call(three, *LABEL)).out))
    assert again == real
    with (three / "labels.csv").open(newline="") as stream:
        assert [row["label"] for row in csv.DictReader(stream)] == labels


@pytest.fixture
def merged(tmp_path, run, monkeypatch):
    """The aggregator's folder after an exchange of three sites, as the working folder."""

    def call(folder, *arguments):
        monkeypatch.chdir(folder)
        return run(*arguments)

    place = exchange(call, tmp_path, SITES)
    monkeypatch.chdir(place)
    return place


def test_other_merge_of_the_same_cells_finds_its_ledger(merged, run):
    """Whoever merges changed files into another folder draws no noise that the first ledger does not count."""
    ok(run(*LABEL))
    rewrite(merged / "south.npz", ballots=lambda table: table // 2)
    ok(run("parties", "merge", *(f"{site}.npz" for site in SITES), "--cells", "cells.npz", "--out", "second"))
    again = ["second/ballots.npz" if part == "merged/ballots.npz" else part for part in LABEL]
    ran = run(*again)
    with SqliteLedger.read("merged/ballots.ledger.sqlite") as book:
        assert len(book.runs) == 2
    assert not list((merged / "second").glob("*.sqlite"))
    assert ran.code == 1
    assert "cannot pay" in ran.err


def test_trust_and_limits_are_stated(merged, run):
    told = " ".join(
        ok(run("parties", "merge", *(f"{s}.npz" for s in SITES), "--cells", "cells.npz", "--out", "m")).out.split()
    )
    assert "You see every site's exact sums" in told
    assert "Whoever is at two sites moves votes at both, and their budgets add up" in told
    assert "No fingerprint was compared" in told
    assert "Next: ipate label m/ballots.npz --groups m/groups.csv --out labels.csv" in told
    for command in (("party", "declare"), ("party", "ballots"), ("parties", "cells")):
        assert f"Example: ipate {' '.join(command)} " in " ".join(ok(run(*command, "--help")).out.split())


def test_output_of_a_site_tells_nothing_of_its_rows(merged, tmp_path, run, monkeypatch):
    """Sites whose rows cannot be read print what sites with readable rows print."""
    shown = []
    for name, change in (("good", None), ("bad", lambda lines: [line.replace("ill", "?") for line in lines])):
        home = tmp_path / name
        home.mkdir()
        monkeypatch.chdir(home)
        write_rows(home, range(*SITES["north"]), change=change)
        options = ["--queries", str(merged / "queries.npz"), "--site", "north", *COLUMNS, "--out", "site"]
        first = ok(run("party", "declare", "rows.csv", *options))
        second = ok(run("party", "ballots", "site", str(merged / "cells.npz"), "--out", "north.npz"))
        fingerprint = second.out.split()[-1]
        shown.append((first.out, first.err, second.out.replace(fingerprint, ""), second.err))
    assert shown[0] == shown[1]


def twice(folder):
    rewrite(folder / "south.npz", ballots=lambda table: table * 3)


FILES = ["north.npz", "south.npz", "west.npz"]
MERGE = ["parties", "merge", *FILES, "--cells", "cells.npz", "--out", "m"]
BAD = {
    "a sum above its declaration": (twice, MERGE, "more than the declared units"),
    "the same site twice": (None, ["parties", "merge", "north.npz", *MERGE[2:]], "duplicate site 'north'"),
    "a missing site": (None, [part for part in MERGE if part != "west.npz"], "counts in site 'west'"),
    "ballots without cells": (None, ["parties", "merge", *FILES, "--out", "m"], "name the cells"),
    "no such cells": (None, ["parties", "merge", *FILES, "--cells", "no.npz", "--out", "m"], "no.npz: no such file"),
    "queries as cells": (None, ["parties", "merge", *FILES, "--cells", "queries.npz", "--out", "m"], "queries.npz: "),
    "a rule of weights": (None, [*MERGE, "--weights", "uniform"], "weights is uniform"),
    "merged accounts": (None, [*MERGE, "--merge-equal"], "merge_equal is True"),
    "another fingerprint": (None, [*MERGE, "--expect", "0" * 64], "not the one expected"),
    "an existing folder": (None, [*MERGE[:-1], "merged"], "already exists"),
    "no declaration": (None, ["parties", "cells", "queries.npz", "no.json", "--out", "c.npz"], "no.json: no such file"),
    "a site twice in the cells": (
        None,
        ["parties", "cells", "queries.npz", "north.json", "north.json", "--out", "c.npz"],
        "duplicate site 'north'",
    ),
    "cells over cells": (None, ["parties", "cells", "queries.npz", "north.json", "--out", "cells.npz"], "exists"),
    "no such site": (None, ["party", "ballots", "nowhere", "cells.npz", "--out", "b.npz"], "holds no declared site"),
    "a site without budgets": (
        None,
        ["party", "declare", "pool.csv", "--queries", "queries.npz", "--site", "a", "--out", "a"],
        "pool.csv",
    ),
}


def test_bad_input_exits_2_with_one_line(merged, run):
    """One exchange serves all cases; each restores what it spoils."""
    for case, (spoil, arguments, words) in BAD.items():
        kept = (merged / "south.npz").read_bytes()
        before = sorted(merged.iterdir())
        if spoil is not None:
            spoil(merged)
        ran = run(*arguments)
        assert (ran.code, ran.err.count("\n")) == (2, 1), (case, ran.err)
        assert words in ran.err, case
        (merged / "south.npz").write_bytes(kept)
        assert sorted(merged.iterdir()) == before, case
