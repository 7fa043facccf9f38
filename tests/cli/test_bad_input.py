"""Bad input to every command: one line that names the offending value, exit code 2, and nothing left on disk."""

import csv
import json
import os

import numpy as np
import pytest

TOML = """
[data]
file = "people.csv"
public_file = "pool.csv"
person = "patient"
level = "consent"
label = "outcome"
classes = ["home", "back"]

[budgets]
policy = { strict = 1.0, open = 4.0 }
"""


@pytest.fixture
def ward(folder):
    """A folder with good files, each of which a case spoils."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(400, 2)).round(3).tolist()
    outcome = ["home" if row[0] > 0 else "back" for row in features]
    level = rng.choice(["strict", "open"], size=400).tolist()
    _csv(
        "people.csv",
        "patient,consent,age,dose,outcome",
        [[f"p{i}", level[i], *features[i], outcome[i]] for i in range(400)],
    )
    _csv("pool.csv", "age,dose", rng.normal(size=(60, 2)).round(3).tolist())
    _text("run.toml", TOML)
    _text("policy.toml", "strict = 1.0\nopen = 4.0\nmax_epsilon = 5.0\ndelta = 1e-5\n")
    _csv("groups.csv", "group,epsilon,people", [["a", 1.0, 50], ["b", 3.0, 50]])
    np.savez("votes.npz", votes=rng.integers(0, 3, size=(20, 30)), groups=np.array(["a"] * 10 + ["b"] * 10), classes=3)
    np.save("array.npy", np.zeros(3))
    _text("text.npz", "no archive")
    _text("broken.toml", "[data\n")
    _text("empty.csv", "")
    return folder


def _text(name, text):
    with open(name, "w", encoding="utf-8") as stream:
        stream.write(text)


def _csv(name, header, rows):
    with open(name, "w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, lineterminator="\n").writerows([header.split(","), *rows])


def _changed(old, new):
    """Return a spoiler that changes the TOML file."""
    return lambda: _text("run.toml", TOML.replace(old, new))


def _header(name, old, new):
    """Return a spoiler that changes the header of a file."""

    def spoil():
        with open(name, encoding="utf-8") as stream:
            text = stream.read()
        _text(name, text.replace(old, new, 1))

    return spoil


def nothing():
    """The files stay as they are."""


CASES = {  # name: (spoil the files, command line, what the message must name)
    "run: no such config": (nothing, "run none.toml", "none.toml"),
    "run: TOML that cannot be read": (nothing, "run broken.toml", "broken.toml"),
    "run: a folder as config": (lambda: os.mkdir("d"), "run d", "d"),
    "run: unknown key": (_changed("level =", "levle ="), "run run.toml", "levle"),
    "run: unknown section": (_changed("[budgets]", "[budget]"), "run run.toml", "budget"),
    "run: no classes": (_changed('classes = ["home", "back"]\n', ""), "run run.toml", "classes"),
    "run: one class": (_changed('["home", "back"]', '["home"]'), "run run.toml", "classes"),
    "run: a class twice": (_changed('["home", "back"]', '["home", "home"]'), "run run.toml", "classes"),
    "run: no public rows": (_changed('public_file = "pool.csv"\n', ""), "run run.toml", "public_file"),
    "run: public rows without leave": (_changed('public_file = "pool.csv"', "public = 50"), "run run.toml", "public"),
    "run: no such data file": (_changed("people.csv", "poeple.csv"), "run run.toml", "poeple.csv"),
    "run: no such public file": (_changed("pool.csv", "pol.csv"), "run run.toml", "pol.csv"),
    "run: no such label column": (_changed('label = "outcome"', 'label = "outcoem"'), "run run.toml", "outcoem"),
    "run: no such person column": (_changed('person = "patient"', 'person = "ptient"'), "run run.toml", "ptient"),
    "run: a column with two roles": (_changed('label = "outcome"', 'label = "patient"'), "run run.toml", "patient"),
    "run: pool lacks a column": (_header("pool.csv", "dose", "does"), "run run.toml", "dose"),
    "run: duplicate column": (_header("people.csv", "dose", "age"), "run run.toml", "age"),
    "run: empty data file": (_changed("people.csv", "empty.csv"), "run run.toml", "empty.csv"),
    "run: level that the policy lacks": (_changed("strict = 1.0", "stict = 1.0"), "run run.toml", "strict"),
    "run: level that the policy lacks, by its line": (
        _header("people.csv", "p4,strict", "p4,stict"),
        "run run.toml",
        "people.csv, line 6 (person 'p4'): level is 'stict': allowed are strict, open; nearest is 'strict'",
    ),
    "run: levels without a policy": (
        _changed("policy = { strict = 1.0, open = 4.0 }", ""),
        "run run.toml",
        "as policy = { open = 1.0, strict = 1.0 } in [budgets] of a TOML file, with --policy FILE",
    ),
    "run: a section is missing": (lambda: _text("run.toml", ""), "run run.toml", "there is no section [data]: add it"),
    "run: a data set and a file": (nothing, "run run.toml --dataset digits", "name and file are both given"),
    "run: key that is no option": (
        nothing,
        "run run.toml --bound tight",
        "--bound is not an option: set bound in [labelling] of a TOML file",
    ),
    "run: key of two sections": (nothing, "run run.toml --options a", "set options in [teachers] or [student]"),
    "plan: key that is no option": (nothing, "plan run.toml --embedding given", "set embedding in [labelling]"),
    "run: negative budget": (_changed("strict = 1.0", "strict = -1.0"), "run run.toml", "strict"),
    "run: huge budget": (_changed("strict = 1.0", "strict = 1e308"), "run run.toml", "1e+308"),
    "run: delta of one": (_changed("[budgets]", "[budgets]\ndelta = 1.0"), "run run.toml", "delta"),
    "run: unknown variant": (nothing, "run run.toml --variant waiting", "waiting"),
    "run: unknown teacher": (
        nothing,
        "run run.toml --teacher forrest",
        "the teachers ([teachers] model, or --teacher): model is 'forrest'",
    ),
    "run: teacher module missing": (nothing, "run run.toml --teacher nowhere:Model", "nowhere"),
    "run: unknown student": (
        nothing,
        "run run.toml --student forrest",
        "the student ([student] model, or --student): model is 'forrest'",
    ),
    "run: unknown backend": (nothing, "run run.toml --backend lokky", "lokky"),
    "run: zero jobs": (nothing, "run run.toml --jobs 0", "0"),
    "run: no teachers": (nothing, "run run.toml --teachers 0", "teachers"),
    "run: more teachers than people": (nothing, "run run.toml --teachers 5000", "5000"),
    "run: unknown data set": (nothing, "run --dataset mnits", "mnits"),
    "run: nothing to run": (nothing, "run", "TOML file"),
    "run: folder holds a file": (lambda: _text("out", "x"), "run run.toml --out out", "out"),
    "run: resume of nothing": (nothing, "run --resume nowhere", "nowhere"),
    "run: compare on people": (nothing, "run run.toml --compare", "benchmark"),
    "run: ledger is a folder": (lambda: os.mkdir("l"), "run run.toml --ledger l", "l"),
    "run: ledger is no ledger": (nothing, "run run.toml --ledger policy.toml", "policy.toml"),
    "plan: no such groups": (nothing, "plan --groups none.csv --people 100 --teachers 10", "none.csv"),
    "plan: groups without epsilon": (_header("groups.csv", "epsilon", "eps"), "plan --groups groups.csv", "epsilon"),
    "plan: no such config": (nothing, "plan none.toml", "none.toml"),
    "schema: no such file": (nothing, "schema none.csv", "none.csv"),
    "schema: no such public file": (nothing, "schema people.csv --public none.csv", "none.csv"),
    "consent: no policy": (nothing, "consent people.csv --policy none.toml", "none.toml"),
    "consent: no such column": (nothing, "consent people.csv --policy policy.toml --level consnet", "consnet"),
    "consent: unknown person column": (
        nothing,
        "consent people.csv --policy policy.toml --level consent --person who",
        "who",
    ),
    "label: no such votes": (nothing, "label none.npz --groups groups.csv --sigma 9 --out l.csv", "none.npz"),
    "label: votes are no archive": (nothing, "label text.npz --groups groups.csv --sigma 9 --out l.csv", "text.npz"),
    "label: no sigma": (nothing, "label votes.npz --groups groups.csv --out l.csv", "sigma"),
    "label: sigma of zero": (nothing, "label votes.npz --groups groups.csv --sigma 0 --out l.csv", "sigma"),
    "label: unknown bound": (nothing, "label votes.npz --groups groups.csv --sigma 9 --bound gpd --out l.csv", "gpd"),
    "label: a group is missing": (
        _header("groups.csv", "b,3.0", "c,3.0"),
        "label votes.npz --groups groups.csv --sigma 9 --out l.csv",
        "b",
    ),
    "label: out in no folder": (
        nothing,
        "label votes.npz --groups groups.csv --sigma 9 --out none/labels.csv",
        "none",
    ),
    "account: no such votes": (nothing, "account none.npz --groups groups.csv --sigma 9", "none.npz"),
    "account: unknown bound": (nothing, "account votes.npz --groups groups.csv --sigma 9 --bound gpd", "gpd"),
    "account: bad orders": (
        nothing,
        "account votes.npz --groups groups.csv --sigma 9 --bound loose --orders x",
        "x",
    ),
    "design: no reference": (nothing, "design --groups groups.csv", "--"),
    "predict: no such run": (nothing, "predict nowhere pool.csv --out p.csv", "nowhere"),
    "report: no such run": (nothing, "report nowhere", "nowhere"),
    "statement: no such run": (nothing, "statement nowhere p1", "nowhere"),
    "withdraw: no such run": (nothing, "withdraw nowhere p1 --yes", "nowhere"),
    "runs: no such folder": (nothing, "runs nowhere", "nowhere"),
    "parties merge: nothing to merge": (nothing, "parties merge none.npz --out votes", "none.npz"),
    "any: unknown command": (nothing, "rnu run.toml", "rnu"),
    "any: unknown option": (nothing, "run run.toml --sigm 3", "--sigm"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_gives_one_line_and_leaves_nothing(ward, run, case):
    spoil, line, named = CASES[case]
    spoil()
    before = sorted(ward.rglob("*"))
    found = run(*line.split())
    assert found.code == 2, found.err
    assert found.out == ""
    message = [text for text in found.err.strip().splitlines() if text]
    assert len(message) == 1 or message[0].startswith("Usage:"), found.err
    assert named in found.err
    assert "Traceback" not in found.err
    assert sorted(ward.rglob("*")) == before


def test_bad_input_with_json_prints_no_json(ward, run):
    found = run("run", "none.toml", "--json")
    assert found.code == 2
    with pytest.raises(json.JSONDecodeError):
        json.loads(found.out)
