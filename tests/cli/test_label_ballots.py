"""`ipate label` on ballots that were cast elsewhere: one draw, one charge, labels for every point."""

import csv
import json
import os

import numpy as np
import pytest

from ballots.making import PEOPLE, POOL_Y
from ballots.test_given import GIVEN, IDS
from blocks import flat
from ipate.cli.app import _run
from ipate.engines.ballots.counting import Histogram, decode
from ipate.ledger.sqlite import SqliteLedger


@pytest.fixture
def files(folder):
    np.savez("ballots.npz", **GIVEN, labels=POOL_Y)
    write_groups()
    return folder


def write_groups(**changes):
    rows = [
        {"group": g.id, "epsilon": g.epsilon, "delta": g.delta, "people": g.people} | changes for g in PEOPLE.groups
    ]
    with open("groups.csv", "w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def label(*extra):
    return ["label", "ballots.npz", "--groups", "groups.csv", "--out", "labels.csv", *extra]


def labelled(run, *extra):
    ran = run(*label(*extra, "--json"))
    assert ran.code == 0, ran.err
    with open("labels.csv", newline="") as stream:
        return flat(json.loads(ran.out)), list(csv.DictReader(stream))


def test_delta_of_one_over_the_people_is_refused(files, run):
    write_groups(delta=1 / PEOPLE.n_people)
    ran = run(*label())
    assert ran.code == 2
    assert f"with N = {PEOPLE.n_people} people" in ran.err
    assert not (files / "labels.csv").exists()


def test_every_point_gets_a_label_within_all_budgets(files, run):
    found, rows = labelled(run)
    assert [row["query"] for row in rows] == [str(point) for point in range(120)]
    assert {row["answered"] for row in rows} == {"1"}
    assert (found["labels"], found["queries"], found["engine"], found["variant"]) == (120, 120, "ballots", None)
    assert found["guarantee"] == "releasable"
    assert found["accuracy"] == np.mean([int(row["label"]) == own for row, own in zip(rows, POOL_Y, strict=True)]) > 0.9
    for group in found["groups"]:
        assert 0 < group["epsilon"] <= group["budget"]
        assert group["people"] == 300
    assert found["ledger"] == str(files / "ballots.ledger.sqlite")
    with np.load(found["confidence"]) as held:
        assert held["labels"].tolist() == [int(row["label"]) for row in rows]
        assert set(held["confidence"].tolist()) <= set(range(8))
        assert held["sample_weight"].max() > 1


def test_accuracy_never_stands_in_the_public_block(files, run):
    found = json.loads(run(*label("--json")).out)
    assert "accuracy" not in found["publishable"]
    assert found["private"]["accuracy"] > 0.9


def test_labelling_again_uses_the_stored_draw(files, run):
    first, labels = labelled(run)
    held = (files / first["confidence"]).read_bytes()
    (files / "labels.csv").unlink()
    again, rows = labelled(run)
    assert again == first
    assert rows == labels
    np.savez("moved.npz", **{**GIVEN, "cells": GIVEN["cells"][::-1]})  # other points in the same cells
    ran = run("label", "moved.npz", "--groups", "groups.csv", "--out", "other.csv", "--json")
    assert ran.code == 0, ran.err
    with open("other.csv", newline="") as stream:
        assert [row["label"] for row in csv.DictReader(stream)] == [row["label"] for row in labels[::-1]]
    assert (files / first["confidence"]).read_bytes() == held
    assert [file.name for file in files.glob("*.sqlite")] == ["ballots.ledger.sqlite"]
    with SqliteLedger.read("ballots.ledger.sqlite") as book:
        assert len(book.charges) == 1
        drawn = Histogram.of(book)
    assert decode(drawn.counts, GIVEN["cells"]).labels.tolist() == [int(row["label"]) for row in labels]


def die_at(name, monkeypatch):
    """Label in a child process that dies when it calls the function `name`."""
    with monkeypatch.context() as patch:
        patch.setattr(name, lambda *_, **__: os._exit(9))
        child = os.fork()
        if child == 0:
            _run(label())
            os._exit(0)
        assert os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 9


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_death_after_the_charge_keeps_the_draw(files, run, monkeypatch):
    die_at("ipate.cli.label._finish", monkeypatch)
    assert not (files / "labels.csv").exists()
    with SqliteLedger.read("ballots.ledger.sqlite") as book:
        drawn = Histogram.of(book)
        spent = [book.epsilon(name) for name in IDS]
    found, rows = labelled(run)
    assert [int(row["label"]) for row in rows] == decode(drawn.counts, GIVEN["cells"]).labels.tolist()
    assert [group["epsilon"] for group in found["groups"]] == spent
    with SqliteLedger.read("ballots.ledger.sqlite") as book:
        assert len(book.charges) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_death_before_the_charge_leaves_no_label(files, run, monkeypatch):
    die_at("ipate.engines.ballots.given.charge_ballots", monkeypatch)
    assert not (files / "labels.csv").exists()
    assert not (files / "labels.csv.confidence.npz").exists()
    found, _ = labelled(run)
    assert all(group["spent_before"] == 0 for group in found["groups"])


def test_other_ballots_of_the_same_people_find_spent_budgets(files, run):
    np.savez("ballots.npz", **{name: GIVEN[name] for name in ("ballots", "cells")})  # whole budgets
    labelled(run)
    (files / "labels.csv").unlink()
    np.savez("ballots.npz", **{**GIVEN, "ballots": np.roll(GIVEN["ballots"], 1, axis=2)})
    ran = run(*label())
    assert ran.code == 1
    assert "cannot pay" in ran.err
    assert not (files / "labels.csv").exists()


def test_seeded_labels_repeat_and_have_no_guarantee(files, run):
    one, rows = labelled(run, "--seed", "3")
    assert (labelled(run, "--seed", "3")) == (one, rows)
    assert (one["guarantee"], one["seeded"], one["ledger"]) == ("none", True, None)
    assert not list(files.glob("*.sqlite"))


@pytest.mark.parametrize("bound", ["loose", "sup"])
def test_renyi_bounds_keep_the_draw_and_their_order(files, run, bound):
    np.savez("ballots.npz", ballots=GIVEN["ballots"] // 2, cells=GIVEN["cells"])
    first, rows = labelled(run, "--bound", bound)
    assert (first["guarantee"], first["bound"]) == ("releasable", bound)
    assert all(0.99 * g["budget"] < g["epsilon"] <= g["budget"] and g["order"] > 1 for g in first["groups"])
    assert labelled(run, "--bound", bound) == (first, rows)


def test_table_shows_people_and_what_may_be_published(files, run):
    ran = run(*label())
    assert "MAY BE PUBLISHED (RELEASABLE): ballots, gdp bound; 120 labels from 120 queries" in ran.out
    assert "people" in ran.out
    write_groups(people=3)
    np.savez("ballots.npz", **{**GIVEN, "ballots": GIVEN["ballots"] // 200})
    ran = run(*label("--ledger", "few.sqlite", "--fresh-ledger"))
    assert ran.code == 0, ran.err
    assert "under 5" in ran.out
    assert "below 12 per class many labels will be wrong" in ran.err


def too_much():
    np.savez("ballots.npz", **{**GIVEN, "ballots": GIVEN["ballots"] * 3})


BAD = {
    "a sum above the declared weights": (too_much, [], "more than the declared units"),
    "a group without people": (lambda: write_groups(people="x"), [], "people of group"),
    "a bound of single labels": (None, ["--bound", "tight"], "ballots have a cost for all data"),
    "noise of teachers": (None, ["--sigma", "40"], "sigma is 40.0: the file holds ballots"),
    "a variant": (None, ["--variant", "weighting"], "variant is weighting"),
    "an order": (None, ["--order-seed", "0"], "order_seed is 0"),
    "a folder as output": (None, ["--out", "."], "is a folder"),
    "a negative seed": (None, ["--seed", "-1"], "seed is -1"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_exits_2_and_leaves_nothing(files, run, case):
    spoil, extra, words = BAD[case]
    if spoil is not None:
        spoil()
    ran = run(*label(*extra))
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert words in ran.err
    assert sorted(file.name for file in files.iterdir()) == ["ballots.npz", "groups.csv"]
