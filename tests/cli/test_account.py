"""`ipate account` as a user meets it: files in, a table or JSON out, one clear line for bad input."""

import csv
import io
import json
import math
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from blocks import flat
from ipate.accounting.bounds import Meter
from ipate.cli.options import parse_orders
from ipate.engines.teachers.account import account_for
from ipate.engines.teachers.aggregators import Mechanism
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.votes import Votes
from ipate.errors import InputError

GROUPS = ("strict", "lax", "strict", "lax", "strict", "strict")
BALLOT = np.minimum(np.random.default_rng(4).integers(0, 3, (6, 30)), np.random.default_rng(5).integers(0, 3, (6, 30)))
WEIGHTS = np.array([0.8, 1.4, 0.8, 1.4, 0.8, 0.8])
CSV = "group,epsilon\nlax,40\nstrict,0.9\n"
CHECKED = ("--sigma", "4", "--check-sigma", "6", "--threshold", "3")


def write(folder, *, text=CSV, **arrays):
    """Write votes.npz and groups.csv; arrays given as None are left out."""
    arrays = {"votes": BALLOT, "groups": np.array(GROUPS), "weights": WEIGHTS, "classes": 3, **arrays}
    np.savez(folder / "votes.npz", **{name: value for name, value in arrays.items() if value is not None})
    (folder / "groups.csv").write_text(text, encoding="utf-8")


def account(*extra, checked=True):
    return ("account", "votes.npz", "--groups", "groups.csv", *(CHECKED if checked else ("--sigma", "4")), *extra)


def expected(bound="gdp", conversion="improved", *, delta=1e-5, orders=tuple(range(2, 51)), mask=None):
    """The same account through the library."""
    votes = Votes(votes=BALLOT, n_classes=3, groups=GROUPS)
    rows = [("lax", 40.0, delta, None), ("strict", 0.9, delta, None)]
    panel = Panel.from_votes(votes, rows, weights=WEIGHTS)
    mechanism = Mechanism(sigma=4.0, check_sigma=6.0, threshold=3.0)
    return account_for(votes, panel, mechanism, Meter(bound, conversion, orders), answered=mask)


# The answer


@pytest.mark.parametrize("bound", ["loose", "gdp", "sup", "tight", "exact"])
def test_json_has_documented_keys_and_types(folder, run, bound):
    write(folder)
    ran = run(*account("--bound", bound, "--conversion", "classic", "--delta", "1e-6", "--json"))
    assert (ran.code, ran.err) == (0, "")
    told = flat(json.loads(ran.out))
    head = {"guarantee", "statement", "seeded", "overlap"}
    assert set(told) == {"bound", "conversion", "delta", "queries", "answered", "groups"} | head
    assert told["bound"] == bound
    assert told["conversion"] == ("gdp" if bound == "gdp" else "classic")
    assert told["guarantee"] == ("private" if bound in ("tight", "exact") else "releasable")
    assert told["delta"] == 1e-6
    assert (told["queries"], told["answered"]) == (30, 30)
    assert isinstance(told["statement"], str)
    assert [group["group"] for group in told["groups"]] == ["lax", "strict"]
    library = expected(bound, "classic", delta=1e-6)
    for group, truth in zip(told["groups"], library.groups, strict=True):
        assert group == truth.as_json()
        for name in ("sensitivity", "budget", "delta", "epsilon"):
            assert isinstance(group[name], float)
        assert (group["order"] is None) == (bound == "gdp")
    lax, strict = told["groups"]
    assert (lax["sensitivity"], lax["budget"], strict["sensitivity"], strict["budget"]) == (1.4, 40.0, 0.8, 0.9)
    assert lax["exhausted_at"] is None
    assert type(strict["exhausted_at"]) is int


def test_process_prints_only_json_on_stdout(folder, process):
    write(folder, classes=None)
    ran = process(*account("--json"))
    assert ran.code == 0
    assert flat(json.loads(ran.out))["groups"][0]["group"] == "lax"
    assert ran.err.startswith("ipate: warning: the classes 0 to 2 are inferred")
    assert ran.err.count("\n") == 1


def test_process_prints_a_readable_table(folder, process):
    write(folder)
    ran = process(*account())
    assert (ran.code, ran.err) == (0, "")
    first, *lines = ran.out.splitlines()
    assert first.startswith("MAY BE PUBLISHED (RELEASABLE): costs by the gdp bound; 30 queries, 30 of them answered")
    header = next(line for line in lines if "group" in line)
    for column in ("group", "sensitivity", "budget ε", "cost ε", "δ", "used", "exhausted at query"):
        assert column in header
    cells = {
        row[0]: row[1:] for row in ([c.strip() for c in line.strip("│").split("│")] for line in lines if "│" in line)
    }
    library = {group.id: group for group in expected().groups}
    for name, group in library.items():
        shown = cells[name]
        assert shown[:4] == [f"{group.budget.epsilon:g}", "1e-05", f"{group.sensitivity:g}", f"{group.cost:.4f}"]
        assert shown[5] == ("—" if group.exhausted_at is None else str(group.exhausted_at))
    sentence = " ".join(lines)
    assert "each person's own data changes its probability by at most a factor e^ε" in " ".join(sentence.split())
    assert max(len(line) for line in lines) <= 110


@pytest.mark.parametrize("bound", ["tight", "exact"])
def test_data_dependent_costs_are_always_marked_private(folder, run, bound):
    write(folder)
    table = run(*account("--bound", bound, "--conversion", "improved"))
    public, private = table.out.split("NOT TO BE PUBLISHED (PRIVATE): 30 queries, 30 of them answered")
    assert public.startswith(f"MAY BE PUBLISHED: costs by the {bound} bound")
    assert "cost ε" not in public
    assert "cost ε" in private
    assert "These costs are computed from the private votes" in private
    assert "RELEASABLE" not in table.out
    told = flat(json.loads(run(*account("--bound", bound, "--json")).out))
    assert told["guarantee"] == "private"
    assert "do not publish" in told["statement"]
    for way in ("fixed", "account", "other"):
        ran = run(*account("--bound", bound, "--orders", "8", "--json", "--stopped-by", way))
        assert flat(json.loads(ran.out))["guarantee"] == "private"


@pytest.mark.parametrize(("way", "kind"), [("fixed", "releasable"), ("account", "releasable"), ("other", "private")])
def test_stopping_rule_determines_kind_of_guarantee(folder, run, way, kind):
    write(folder, text="group,epsilon\nlax,90\nstrict,90\n")
    assert flat(json.loads(run(*account("--stopped-by", way, "--json")).out))["guarantee"] == kind


def test_defaults_are_gdp_bound_and_improved_conversion(folder, run):
    write(folder)
    assert flat(json.loads(run(*account("--json")).out))["bound"] == "gdp"
    loose = [
        flat(json.loads(run(*account("--bound", "loose", "--json", *c)).out))
        for c in ((), ("--conversion", "improved"))
    ]
    assert loose[0] == loose[1]
    classic = flat(json.loads(run(*account("--bound", "loose", "--conversion", "classic", "--json")).out))
    assert classic["groups"][0]["epsilon"] > loose[0]["groups"][0]["epsilon"]


def test_gdp_bound_ignores_the_conversion_option(folder, run):
    write(folder)
    outs = {run(*account("--conversion", name, "--json")).out for name in ("classic", "improved")}
    assert len(outs) == 1


def test_group_row_order_changes_only_output_order(folder, run):
    write(folder)
    first = flat(json.loads(run(*account("--json")).out))["groups"]
    write(folder, text="group,epsilon\nstrict,0.9\nlax,40\n")
    assert flat(json.loads(run(*account("--json")).out))["groups"] == first[::-1]


def test_delta_in_group_file_overrides_the_option(folder, run):
    write(folder, text="group,epsilon,delta\nlax,40,\nstrict,0.9,1e-7\n")
    told = flat(json.loads(run(*account("--delta", "1e-3", "--json")).out))
    lax, strict = told["groups"]
    assert (told["delta"], lax["delta"], strict["delta"]) == (1e-3, 1e-3, 1e-7)
    assert lax["epsilon"] == expected(delta=1e-3).groups[0].cost
    assert strict["epsilon"] == expected(delta=1e-7).groups[1].cost


def test_answered_mask_determines_which_queries_are_charged(folder, run):
    write(folder)
    mask = np.array([1, 0, -1] * 10, dtype=np.int8)
    np.save(folder / "mask.npy", mask)
    told = flat(json.loads(run(*account("--answered", "mask.npy", "--json")).out))
    assert (told["queries"], told["answered"]) == (20, 10)
    for group, truth in zip(told["groups"], expected(mask=mask).groups, strict=True):
        assert group["epsilon"] == truth.cost
    np.save(folder / "mask.npy", mask == 1)
    told = flat(json.loads(run(*account("--answered", "mask.npy", "--json")).out))
    assert (told["queries"], told["answered"]) == (30, 10)


@pytest.mark.parametrize(
    ("text", "orders"),
    [
        ("2:5", [2, 3, 4, 5]),
        ("2:3:0.25", [2, 2.25, 2.5, 2.75, 3]),
        ("1.5:4", [1.5, 2.5, 3.5]),
        ("7", [7]),
        ("2,4,8.5", [2, 4, 8.5]),
        ("1.1:1.3:0.1", [1.1, 1.2, 1.3]),
        ("2:50", list(range(2, 51))),
    ],
)
def test_orders_accept_inclusive_range_or_list(text, orders):
    assert parse_orders(text) == pytest.approx(orders)


@pytest.mark.parametrize(
    "text", ["", "a", "2:", ":5", "5:2", "2:5:0", "2:5:-1", "1:2:3:4", "2;3", "2:inf", "2:nan", "2:1e9", "2:3:1e-9"]
)
def test_malformed_renyi_orders_are_refused(text):
    with pytest.raises(InputError, match="write FIRST:LAST, FIRST:LAST:STEP or a list"):
        parse_orders(text)


def test_requested_orders_are_used_for_costs(folder, run):
    write(folder)
    told = flat(json.loads(run(*account("--bound", "loose", "--orders", "3,5", "--json")).out))
    assert [group["order"] for group in told["groups"]] == [3.0, 3.0]
    assert told["groups"][0]["epsilon"] == expected("loose", orders=(3.0, 5.0)).groups[0].cost


def test_history_has_one_row_per_query_and_group(folder, run):
    write(folder)
    told = flat(json.loads(run(*account("--history", "history.csv", "--json")).out))
    with (folder / "history.csv").open(newline="", encoding="utf-8") as stream:
        header, *rows = csv.reader(stream)
    assert header == ["query", "group", "epsilon"]
    assert [row[:2] for row in rows] == [[str(query), name] for query in range(30) for name in ("lax", "strict")]
    for group in told["groups"]:
        values = [float(row[2]) for row in rows if row[1] == group["group"]]
        assert values == sorted(values)
        assert values[-1] == group["epsilon"]
        above = [query for query, value in enumerate(values) if value > group["budget"]]
        assert group["exhausted_at"] == (above[0] if above else None)


def test_history_uses_query_ids_of_votes_file(folder, run):
    write(folder, queries=np.array([f"img-{29 - index}" for index in range(30)]))
    assert run(*account("--history", "history.csv")).code == 0
    rows = list(csv.DictReader(io.StringIO((folder / "history.csv").read_text(encoding="utf-8"))))
    assert [row["query"] for row in rows[::2]] == [f"img-{29 - index}" for index in range(30)]


@pytest.mark.parametrize(
    "extra", [("--stopped-by", "luck"), ("--answered", "none.npy"), ("--bound", "loosest"), ("--classes", "1")]
)
def test_bad_input_does_not_overwrite_existing_history(folder, run, extra):
    write(folder)
    (folder / "history.csv").write_text("old\n")
    assert run(*account("--history", "history.csv", *extra)).code == 2
    assert (folder / "history.csv").read_text() == "old\n"


# Weights and variants


def test_weights_are_read_from_either_file(folder, run):
    write(folder)
    stored = run(*account("--json")).out
    write(folder, weights=None, text="group,epsilon,weight\nlax,40,1.4\nstrict,0.9,0.8\n")
    assert run(*account("--json")).out == stored
    write(folder, text="group,epsilon,weight\nlax,40,1.4\nstrict,0.9,0.8\n")
    assert run(*account("--json")).out == stored
    write(folder, weights=None)
    assert run(*account("--json")).out != stored


def test_sensitivity_in_group_file_determines_the_cost(folder, run):
    write(folder, text="group,epsilon,sensitivity\nlax,40,2.8\nstrict,0.9,\n")
    lax, strict = flat(json.loads(run(*account("--json")).out))["groups"]
    assert (lax["sensitivity"], strict["sensitivity"]) == (2.8, 0.8)


def test_upsampling_needs_no_groups_in_votes_file(folder, run):
    write(folder, groups=None, weights=None, text="group,epsilon,sensitivity\na,1,1\nb,2,3\n")
    for bound in ("gdp", "exact"):
        told = flat(json.loads(run(*account("--bound", bound, "--json", "--orders", "2,8")).out))
        assert [group["sensitivity"] for group in told["groups"]] == [1.0, 3.0]
        assert told["groups"][0]["epsilon"] < told["groups"][1]["epsilon"]


def test_vanishing_is_detected_from_participation_array(folder, run):
    present = np.tile([[True], [False], [True], [False], [True], [True]], (1, 30))
    present[:, 10:] = True
    write(folder, weights=None, participation=present)
    told = flat(json.loads(run(*account("--json")).out))
    assert [group["sensitivity"] for group in told["groups"]] == [1.0, 1.5]


def test_lnmax_cost_depends_on_the_scale(folder, run):
    write(folder)
    told = run("account", "votes.npz", "--groups", "groups.csv", "--scale", "20", "--bound", "loose", "--json")
    assert told.code == 0
    costs = [group["epsilon"] for group in flat(json.loads(told.out))["groups"]]
    assert 0 < costs[1] < costs[0]


def test_student_probabilities_change_cost_under_exact_bound(folder, run):
    write(folder)
    np.save(folder / "probs.npy", np.full((30, 3), 1 / 3))
    exact = account("--bound", "exact", "--orders", "8", "--json")
    confident, interactive = run(*exact), run(*exact, "--student-probs", "probs.npy", "--gamma", "0.9")
    assert (confident.code, interactive.code) == (0, 0)
    assert confident.out != interactive.out


# Bad input


def zip_without_votes(folder):
    write(folder, votes=None)


def pickled(folder):
    write(folder, votes=np.array([[None, {}]], dtype=object))


def truncated(folder):
    write(folder)
    (folder / "votes.npz").write_bytes((folder / "votes.npz").read_bytes()[:200])


def empty_votes(folder):
    write(folder)
    (folder / "votes.npz").write_bytes(b"")


def empty_groups(folder):
    write(folder, text="")


def header_only(folder):
    write(folder, text="group,epsilon\n")


def binary_groups(folder):
    write(folder)
    (folder / "groups.csv").write_bytes(b"group,epsilon\n\xff\xfe,1\n")


def corrupt_deflate(folder):
    write(folder)
    with zipfile.ZipFile(folder / "votes.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        buffer = io.BytesIO()
        np.save(buffer, np.random.default_rng(0).integers(0, 3, (20, 200)))
        archive.writestr("votes.npy", buffer.getvalue())
    raw = bytearray((folder / "votes.npz").read_bytes())
    raw[150:200] = bytes(255 - byte for byte in raw[150:200])
    (folder / "votes.npz").write_bytes(raw)


def mask(values):
    def prepare(folder):
        write(folder)
        np.save(folder / "mask.npy", values, allow_pickle=True)

    return prepare


def broken_zip_as_mask(folder):
    write(folder)
    (folder / "mask.npy").write_bytes(b"PK\x03\x04 no zip")


def probs(values):
    def prepare(folder):
        write(folder)
        np.save(folder / "probs.npy", values)

    return prepare


def files(**changes):
    return lambda folder: write(folder, **changes)


MASKED = ("--answered", "mask.npy")
STUDENT = ("--student-probs", "probs.npy")
BAD = [
    # votes
    ("votes above the classes", files(votes=BALLOT + 2), (), ("votes contain 4", "0 to 2")),
    ("votes below −1", files(votes=BALLOT - 2), (), ("votes contain -2", "−1 abstains")),
    ("votes beyond --classes", files(), ("--classes", "2"), ("votes contain 2", "0 to 1")),
    ("one class", files(), ("--classes", "1"), ("classes is 1", "at least 2")),
    ("votes of fractions", files(votes=BALLOT / 2), (), ("votes are float64", "integers")),
    ("no votes", zip_without_votes, (), ("it must contain 'votes'", "votes.npz")),
    ("votes that need pickle", pickled, (), ("'votes' holds Python objects", "pickle", "refused")),
    ("a truncated votes file", truncated, (), ("votes.npz: not a readable npz file",)),
    ("corrupt compressed votes", corrupt_deflate, (), ("votes.npz: not a readable npz file",)),
    ("an empty votes file", empty_votes, (), ("votes.npz: not a readable npz file",)),
    # weights
    (
        "a weight that is NaN",
        files(weights=WEIGHTS * [1, 1, 1, 1, 1, np.nan]),
        (),
        ("weights contain nan", "0 or above"),
    ),
    ("a negative weight", files(weights=-WEIGHTS), (), ("weights contain -0.8", "0 or above")),
    ("a weight too few", files(weights=WEIGHTS[:5]), (), ("(5,)", "(6,)", "one per teacher")),
    (
        "a negative weight in the csv",
        files(weights=None, text="group,epsilon,weight\nlax,1,-2\nstrict,1,1\n"),
        (),
        ("line 2", "weight is '-2'", "0 or above"),
    ),
    (
        "weights that disagree",
        files(text="group,epsilon,weight\nlax,1,1.5\nstrict,1,0.8\n"),
        (),
        ("group 'lax'", "1.5 in the csv", "1.4 in the npz", "must agree"),
    ),
    (
        "a weight without groups",
        files(groups=None, weights=None, text="group,epsilon,sensitivity,weight\na,1,1,1\n"),
        (),
        ("group 'a' has a weight", "put weights in the npz"),
    ),
    # budgets
    ("ε of 0", files(text="group,epsilon\nlax,0\nstrict,1\n"), (), ("line 2", "epsilon is '0'", "above 0")),
    ("ε below 0", files(text="group,epsilon\nlax,1\nstrict,-3\n"), (), ("line 3", "epsilon is '-3'", "above 0")),
    ("ε that is NaN", files(text="group,epsilon\nlax,nan\nstrict,1\n"), (), ("epsilon is 'nan'", "above 0")),
    ("ε without end", files(text="group,epsilon\nlax,inf\nstrict,1\n"), (), ("epsilon is 'inf'", "finite")),
    ("ε in words", files(text="group,epsilon\nlax,low\nstrict,1\n"), (), ("epsilon is 'low'", "number")),
    ("δ of 0", files(), ("--delta", "0"), ("delta is 0.0", "between 0 and 1")),
    ("δ of 1", files(), ("--delta", "1"), ("delta is 1.0", "between 0 and 1")),
    ("δ below 0", files(), ("--delta", "-1e-5"), ("delta is -1e-05", "between 0 and 1")),
    ("δ that is NaN", files(), ("--delta", "nan"), ("delta is nan", "between 0 and 1")),
    (
        "δ of 1 in the csv",
        files(text="group,epsilon,delta\nlax,1,1\nstrict,1,\n"),
        (),
        ("line 2", "delta is '1'", "between 0 and 1"),
    ),
    # noise
    ("σ of 0", files(), ("--sigma", "0"), ("sigma is 0.0", "above 0")),
    ("σ below 0", files(), ("--sigma", "-4"), ("sigma is -4.0", "above 0")),
    ("σ that is NaN", files(), ("--sigma", "nan"), ("sigma is nan", "above 0")),
    ("σ in words", files(), ("--sigma", "much"), ("--sigma", "number")),
    ("σ_T of 0", files(), ("--check-sigma", "0"), ("check_sigma is 0.0", "above 0")),
    ("T without end", files(), ("--threshold", "inf"), ("threshold is inf", "finite")),
    ("a Laplace scale with σ", files(), ("--scale", "3"), ("is 6.0: lnmax has no check",)),
    # options
    ("an order of 1", files(), ("--bound", "loose", "--orders", "1:5"), ("orders hold 1", "above 1")),
    ("an order below 1", files(), ("--bound", "loose", "--orders", "2,0.5"), ("orders hold 0.5", "above 1")),
    ("orders under gdp as well", files(), ("--orders", "-3"), ("orders hold -3", "above 1")),
    ("orders in words", files(), ("--orders", "many"), ("orders are 'many'", "FIRST:LAST")),
    ("orders without end", files(), ("--orders", "2:inf"), ("orders are '2:inf'", "FIRST:LAST")),
    ("an unknown bound", files(), ("--bound", "tigth"), ("bound is 'tigth'", "loose, gdp, sup, tight, exact")),
    (
        "an unknown conversion",
        files(),
        ("--bound", "loose", "--conversion", "best"),
        ("conversion is 'best'", "classic, improved"),
    ),
    (
        "gdp's conversion elsewhere",
        files(),
        ("--bound", "sup", "--conversion", "gdp"),
        ("conversion is 'gdp'", "classic, improved"),
    ),
    ("an unknown way to stop", files(), ("--stopped-by", "luck"), ("stopped_by is 'luck'", "fixed, account or other")),
    ("an unknown aggregator", files(), ("--aggregator", "max"), ("aggregator is 'max'", "gnmax, confident")),
    ("a check under gnmax", files(), ("--aggregator", "gnmax"), ("check_sigma is 6.0", "gnmax has no check")),
    ("an unknown option", files(), ("--sgima", "3"), ("--sgima", "--sigma")),
    ("an option without its value", files(), ("--delta",), ("--delta",)),
    ("a file too many", files(), ("more.npz",), ("more.npz",)),
    ("γ without a student", files(), ("--gamma", "0.5"), ("gamma is 0.5", "use interactive")),
    # groups
    (
        "a group without a budget",
        files(text="group,epsilon\nlax,1\n"),
        (),
        ("group 'strict' has teachers but no budget",),
    ),
    ("a group without teachers", files(text=f"{CSV}idle,1\n"), (), ("group 'idle' has a budget but no teachers",)),
    ("a group twice", files(text=f"{CSV}lax,1\n"), (), ("line 4", "duplicate group id 'lax'", "line 2")),
    (
        "a sensitivity below the weight",
        files(text="group,epsilon,sensitivity\nlax,1,1\nstrict,1,1\n"),
        (),
        ("group 'lax'", "sensitivity 1,", "weight 1.4"),
    ),
    (
        "no sensitivity under upsampling",
        files(groups=None, weights=None),
        (),
        ("group 'lax' has no sensitivity", "the votes name no groups"),
    ),
    ("an empty group file", empty_groups, (), ("groups.csv is empty", "group, epsilon")),
    ("a group file without rows", header_only, (), ("groups.csv has a header and no rows", "at least one row")),
    ("a group file without ε", files(text="group,eps\nlax,1\n"), (), ("'eps'", "epsilon")),
    ("a ragged group file", files(text="group,epsilon\nlax\n"), (), ("line 2 has 1 cells", "must have 2")),
    ("a group file that is no text", binary_groups, (), ("groups.csv holds the byte", "UTF-8")),
    # masks
    ("a mask too short", mask(np.ones(29, int)), MASKED, ("(29,)", "30 queries")),
    ("a mask with a 2", mask(np.full(30, 2)), MASKED, ("answered holds 2", "−1 (not asked)")),
    ("a mask of fractions", mask(np.ones(30)), MASKED, ("answered is float64", "bool")),
    ("a mask that needs pickle", mask(np.array([None] * 30)), MASKED, ("mask.npy", "pickle is refused")),
    ("a mask that is a broken zip", broken_zip_as_mask, MASKED, ("mask.npy: not a readable npy file",)),
    ("a mask that is an npz", files(), ("--answered", "votes.npz"), ("holds several arrays", "one array")),
    ("a mask that is not there", files(), MASKED, ("mask.npy: no such file", "npy")),
    # students
    ("probabilities of another shape", probs(np.ones((30, 2)) / 2), STUDENT, ("(30, 2)", "(30, 3)")),
    ("probabilities that do not sum to 1", probs(np.ones((30, 3)) / 2), STUDENT, ("sum to 1.5 in row 0", "sum to 1")),
    ("a probability below 0", probs(np.tile([-1.0, 1, 1], (30, 1))), STUDENT, ("hold -1 in row 0", "[0, 1]")),
    ("γ above 1", probs(np.ones((30, 3)) / 3), (*STUDENT, "--gamma", "2"), ("gamma is 2", "between 0 and 1")),
    # output
    ("a history nowhere", files(), ("--history", "no/where.csv"), ("no/where.csv", "cannot be written")),
]


@pytest.mark.parametrize(("prepare", "extra", "words"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_input_message_names_value_and_allowed_values(folder, run, prepare, extra, words):
    prepare(folder)
    ran = run(*account(*extra, "--json"))
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.count("\n") == 1, ran.err
    assert ran.err.startswith("ipate")
    assert "Traceback" not in ran.err
    for word in words:
        assert word in ran.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("account", "none.npz", "--groups", "groups.csv", *CHECKED), ("none.npz: no such file",)),
        (("account", "votes.npz", "--groups", "none.csv", *CHECKED), ("none.csv cannot be read", "No such file")),
        (("account", "votes.npz", *CHECKED), ("--groups",)),
        (("account", "--groups", "groups.csv", *CHECKED), ("VOTES",)),
        (("account", "votes.npz", "--groups", "groups.csv"), ("sigma is not given", "--sigma")),
        (
            ("account", "votes.npz", "--groups", "groups.csv", "--sigma", "4", "--check-sigma", "6"),
            ("threshold is not given", "--threshold"),
        ),
        (
            ("account", "votes.npz", "--groups", "groups.csv", "--sigma", "4", "--threshold", "6"),
            ("check_sigma is not given", "--check-sigma"),
        ),
        (
            ("account", "votes.npz", "--groups", "groups.csv", "--scale", "20", "--bound", "exact"),
            ("bound is 'exact'", "loose, gdp, tight"),
        ),
        (
            ("account", "votes.npz", "--groups", "groups.csv", "--scale", "20", "--check-sigma", "4"),
            ("check_sigma is 4.0: lnmax has no check",),
        ),
        (("acount", "votes.npz"), ("acount",)),
        (("--verbose",), ("--verbose",)),
    ],
)
def test_missing_or_misspelt_option_is_named(folder, run, arguments, words):
    write(folder)
    ran = run(*arguments)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    for word in words:
        assert word in ran.err


def test_class_warning_is_not_printed_before_error(folder, process):
    write(folder, classes=None, text="group,epsilon\nlax,1\n")
    ran = process(*account())
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines() == [ran.err.strip()]
    assert "group 'strict' has teachers but no budget" in ran.err


@pytest.mark.parametrize("extra", [("--bound", "tigth"), ("--bogus", "1"), ("--sigma", "many"), ("--delta", "2")])
def test_process_exits_with_2_on_bad_input(folder, process, extra):
    write(folder)
    ran = process(*account(*extra))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1
    assert "Traceback" not in ran.err


def test_full_disk_exits_with_failure_code_1(folder, run):
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    write(folder)
    ran = run(*account("--history", "/dev/full"))
    assert (ran.code, ran.out) == (1, "")
    assert "No space left" in ran.err
    assert ran.err.count("\n") == 1


# Odds and ends


def test_no_arguments_prints_help_and_exits_2(run):
    ran = run()
    assert (ran.code, ran.out) == (2, "")
    assert "Usage: ipate" in ran.err
    assert "account" in ran.err


def test_help_shows_an_example_and_all_options(run):
    ran = run("account", "--help")
    assert (ran.code, ran.err) == (0, "")
    text = " ".join(ran.out.split())
    assert "Example: ipate account votes.npz --groups groups.csv --sigma 40" in text
    options = (
        "--sigma",
        "--check-sigma",
        "--threshold",
        "--answered",
        "--bound",
        "--conversion",
        "--delta",
        "--orders",
    )
    for option in (*options, "--history", "--json", "--classes", "--stopped-by", "--student-probs", "--scale"):
        assert option in text


def test_ascii_terminal_still_gets_the_output(folder, process):
    write(folder, text="group,epsilon\nlax,1\nstrict,1\n", queries=None)
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    table, told = process(*account(), env=environment), process(*account("--json"), env=environment)
    assert (table.code, table.err, told.code, told.err) == (0, "", 0, "")
    assert "strict" in table.out
    assert "ε" in flat(json.loads(told.out))["statement"]


def test_unicode_group_ids_are_kept_unchanged(folder, run):
    write(folder, groups=np.array(["ä", 'b,"c', "ä", 'b,"c', "ä", "ä"]), text='group,epsilon\nä,1\n"b,""c",2\n')
    told = flat(json.loads(run(*account("--json", "--history", "history.csv")).out))
    assert [group["group"] for group in told["groups"]] == ["ä", 'b,"c']
    with (folder / "history.csv").open(newline="", encoding="utf-8") as stream:
        assert {row["group"] for row in csv.DictReader(stream)} == {"ä", 'b,"c'}


def test_markup_in_group_id_is_printed_literally(folder, run):
    write(folder, groups=np.array(["[red]x[/red]"] * 6), weights=None, text="group,epsilon\n[red]x[/red],1\n")
    assert "[red]x[/red]" in run(*account()).out


def test_infinite_cost_is_null_in_json(folder, process):
    write(folder)
    ran = process("account", "votes.npz", "--groups", "groups.csv", "--sigma", "1e-200", "--bound", "loose", "--json")
    assert ran.code == 0
    groups = flat(json.loads(ran.out))["groups"]
    assert [group["epsilon"] for group in groups] == [None, None]
    assert math.isfinite(groups[0]["budget"])


def test_broken_pipe_prints_no_traceback(folder):
    write(folder)
    console = Path(sys.executable).with_name("ipate")
    with subprocess.Popen([str(console), *account()], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        told = running.stderr.read()
    assert b"Traceback" not in told
    assert b"Exception" not in told


def test_counts_are_priced_under_gdp_and_refused_elsewhere(folder, run):
    write(folder)
    plain, counted = (flat(json.loads(run(*account(*more, "--json")).out)) for more in ((), ("--counts",)))
    assert plain["groups"] == counted["groups"]
    assert "their noisy counts" in counted["statement"]
    assert "noisy counts" not in plain["statement"]
    ran = run(*account("--counts", "--bound", "sup"))
    assert ran.code == 2
    assert "bound is 'sup': noisy counts are released under gdp alone" in ran.err


# All bounds


def test_all_bounds_are_split_by_their_guarantee(folder, run):
    write(folder)
    ran = run(*account("--bound", "all", "--json"))
    assert (ran.code, ran.err) == (0, "")
    told = json.loads(ran.out)
    for bound in ("loose", "gdp", "sup", "tight", "exact"):
        public, private = told["publishable"]["bounds"][bound], told["private"]["bounds"][bound]
        costly = private if bound in ("tight", "exact") else public
        costs = [group.cost for group in expected(bound).groups]
        assert [group["epsilon"] for group in costly["groups"]] == pytest.approx(costs)
        assert ("epsilon" in json.dumps(public)) == (bound not in ("tight", "exact"))


def test_table_of_all_bounds_has_two_blocks(folder, run):
    write(folder)
    public, _, private = run(*account("--bound", "all")).out.partition("NOT TO BE PUBLISHED")
    for bound in ("loose", "gdp", "sup"):
        assert f" {bound} " in public
        assert f" {bound} " not in private
    for bound in ("tight", "exact"):
        assert f" {bound} " in private
        assert f" {bound} " not in public


def test_private_history_closes_a_file_that_was_open(folder, run):
    write(folder)
    (folder / "history.csv").touch(0o644)
    assert run(*account("--bound", "tight", "--history", "history.csv")).code == 0
    assert (folder / "history.csv").stat().st_mode & 0o777 == 0o600


def test_history_of_all_bounds_names_them_and_is_closed(folder, run):
    write(folder)
    ran = run(*account("--bound", "all", "--history", "history.csv", "--plot", "costs.svg"))
    assert ran.code == 0
    assert "Written: history.csv, costs.svg" in ran.out
    with (folder / "history.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 5 * 30 * 2
    assert float(rows[59]["epsilon"]) == pytest.approx(expected(rows[59]["bound"]).groups[1].cost)
    assert [(folder / name).stat().st_mode & 0o077 for name in ("history.csv", "costs.svg")] == [0, 0]


def test_plot_of_one_bound_changes_no_figure(folder, run):
    write(folder)
    plain = run(*account("--json", "--history", "plain.csv"))
    drawn = run(*account("--json", "--history", "drawn.csv", "--plot", "costs.png"))
    assert plain.out == drawn.out
    assert (folder / "plain.csv").read_text() == (folder / "drawn.csv").read_text()
    assert (folder / "costs.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("path", "words"), [("costs.doc", ("costs.doc", ".svg, .png, .pdf")), ("no/costs.svg", ("no such folder",))]
)
def test_plot_that_cannot_be_written_is_refused(folder, run, path, words):
    write(folder)
    ran = run(*account("--plot", path))
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert all(word in ran.err for word in words)
