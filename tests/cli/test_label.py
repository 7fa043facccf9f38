"""`ipate label` as a user runs it."""

import csv
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from blocks import flat
from imaginary import GROUPS, synthetic_votes
from ipate.cli.app import _run
from ipate.ledger.sqlite import SqliteLedger
from ipate.release.answers import paid_answers

CHECKED = ["--sigma", "10", "--check-sigma", "30", "--threshold", "30"]


@pytest.fixture
def files(tmp_path):
    """A votes file of 40 teachers on 300 queries, and a group file, in a folder of their own."""
    votes = synthetic_votes(n_teachers=40, n_queries=300, n_classes=5)
    np.savez(tmp_path / "votes.npz", votes=votes.votes, groups=np.array(votes.groups), labels=votes.labels, classes=5)
    write_groups(tmp_path, [(name, epsilon) for name, epsilon, _ in GROUPS])
    return tmp_path


def write_groups(folder, rows, header="group,epsilon"):
    lines = [header, *(",".join(str(cell) for cell in row) for row in rows)]
    (folder / "groups.csv").write_text("\n".join(lines) + "\n")


def arguments(folder, *extra, checked=True):
    return [
        "label",
        str(folder / "votes.npz"),
        "--groups",
        str(folder / "groups.csv"),
        "--out",
        str(folder / "labels.csv"),
        *(CHECKED if checked else []),
        *extra,
    ]


def run_json(folder, capsys, *extra, checked=True):
    assert _run(arguments(folder, *extra, "--json", checked=checked)) == 0
    return flat(json.loads(capsys.readouterr().out))


def refusal(folder, capsys, *extra, checked=True):
    """The single line that a bad input gets, with exit code 2 and no labels on disk."""
    assert _run(arguments(folder, *extra, checked=checked)) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert not (folder / "labels.csv").exists()
    return lines[0]


def read_labels(folder):
    with (folder / "labels.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_process_prints_costs_and_writes_labels_file(files):
    program = Path(sys.executable).with_name("ipate")
    done = subprocess.run(
        [program, *arguments(files, "--json")], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    report = flat(json.loads(done.stdout))
    assert {"labels", "queries", "accuracy", "guarantee", "seeded", "groups"} <= set(report)
    assert report["guarantee"] == "releasable"
    assert report["seeded"] is False
    assert report["labels"] > 0
    for group in report["groups"]:
        assert {
            "group",
            "teachers",
            "weight",
            "sensitivity",
            "budget",
            "epsilon",
            "labels_until_exhausted",
        } <= set(group)
        assert group["epsilon"] <= group["budget"]
        assert group["sensitivity"] == group["weight"]
    rows = read_labels(files)
    assert list(rows[0]) == ["query", "answered", "label"]
    assert [row["query"] for row in rows] == [str(i) for i in range(report["queries"])]
    assert sum(row["answered"] == "1" for row in rows) == report["labels"]
    assert all((row["label"] == "") == (row["answered"] == "0") for row in rows)


def test_table_states_what_may_be_published(files, capsys):
    assert _run(arguments(files)) == 0
    out = capsys.readouterr().out
    assert "RELEASABLE" in out
    assert "may be published" in out
    for name, _, _ in GROUPS:
        assert name in out


@pytest.mark.parametrize("bound", ["tight", "exact"])
def test_data_dependent_costs_are_never_called_releasable(files, capsys, bound):
    assert _run(arguments(files, "--bound", bound)) == 0
    out = capsys.readouterr().out
    assert "PRIVATE" in out
    assert "RELEASABLE" not in out
    assert "not a differential privacy guarantee" in " ".join(out.split())
    assert run_json(files, capsys, "--bound", bound)["guarantee"] == "private"


def test_seed_repeats_labels_and_warns_not_private(files, capsys):
    one = run_json(files, capsys, "--seed", "3")
    first = read_labels(files)
    two = run_json(files, capsys, "--seed", "3")
    assert one == two
    assert read_labels(files) == first
    assert one["seeded"] is True
    assert "seeded: reproducible, not private" in one["statement"]
    assert _run(arguments(files, "--seed", "3")) == 0
    assert "seeded: reproducible, not private" in " ".join(capsys.readouterr().out.split())


def test_unseeded_runs_draw_different_noise(files, capsys):
    runs = []
    for number in range(3):
        run_json(files, capsys, "--ledger", str(files / f"{number}.sqlite"), "--fresh-ledger")
        runs.append(read_labels(files))
    assert runs[0] != runs[1] or runs[1] != runs[2]


def test_repeated_command_returns_stored_labels_without_charge(files, capsys):
    first = run_json(files, capsys)
    labels = read_labels(files)
    assert first["ledger"] == str(files / "votes.ledger.sqlite")
    assert (files / "votes.ledger.sqlite").stat().st_mode & 0o077 == 0
    (files / "labels.csv").unlink()
    assert run_json(files, capsys) == first
    assert read_labels(files) == labels
    with SqliteLedger.read(first["ledger"]) as book:
        assert str(book.verify()) == first["ledger_head"]
        answers = paid_answers(book).answers
    assert {row["query"]: row["label"] for row in labels} == {
        query: str(label) if label >= 0 else "" for query, (label, _, _) in answers.items()
    }


def test_second_request_starts_from_remaining_budget(files, capsys):
    first = run_json(files, capsys, "--max-labels", "2")
    kept = read_labels(files)
    second = run_json(files, capsys, "--max-labels", "4")
    assert (first["labels"], second["labels"]) == (2, 4)
    assert read_labels(files)[: len(kept)] == kept
    for before, after in zip(first["groups"], second["groups"], strict=True):
        assert before["epsilon"] < after["epsilon"] <= after["budget"]
    whole = run_json(files, capsys)
    again = run_json(files, capsys, "--stop", "count", "--max-queries", str(whole["queries"] + 50))
    assert again["queries"] == whole["queries"]  # what was paid is given again; nobody can pay for more
    assert [g["epsilon"] for g in again["groups"]] == pytest.approx([g["epsilon"] for g in whole["groups"]])


def test_stored_answers_name_their_run_and_noise(files, capsys):
    plain = ["--sigma", "20", "--max-queries", "20"]
    assert run_json(files, capsys, *plain, checked=False)["stored"] == []
    with SqliteLedger.read(files / "votes.ledger.sqlite") as ledger:
        (first,) = ledger.runs
    other = [*plain[2:], "--sigma", "9", "--out", str(files / "again.csv")]
    assert run_json(files, capsys, *other, checked=False)["stored"] == [
        {"run": first, "noise": "gaussian", "sigma": 20.0, "queries": 20, "labels": 20}
    ]
    assert _run(arguments(files, *other, checked=False)) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"20 labels from 20 queries: 20 stored answers of run '{first}' at σ = 20, 0 new" in shown
    more = run_json(files, capsys, "--sigma", "30", "--max-queries", "24", checked=False)
    assert [(entry["sigma"], entry["labels"]) for entry in more["stored"]] == [(20.0, 20)]
    assert more["labels"] == 24


def test_labels_after_private_release_are_not_releasable(files, capsys):
    run_json(files, capsys, "--bound", "tight", "--max-labels", "3")
    second = run_json(files, capsys, "--max-labels", "5")
    assert second["guarantee"] == "private"
    assert "something other than this account" in second["statement"]


def test_second_labelling_states_earlier_spending(files, capsys):
    shared = ["--ledger", str(files / "shared.sqlite")]
    first = run_json(files, capsys, *shared, "--max-labels", "3", "--out", str(files / "first.csv"))
    assert all(group["spent_before"] == 0 for group in first["groups"])
    second = run_json(files, capsys, *shared, "--max-labels", "5", "--out", str(files / "second.csv"))
    for before, after in zip(first["groups"], second["groups"], strict=True):
        assert after["spent_before"] == pytest.approx(before["epsilon"])
        assert after["epsilon"] > after["spent_before"]


def test_name_of_a_run_is_the_same_in_every_version(tmp_path, capsys):
    """A labelling is continued by its name, a hash of its inputs, so an update must not change the name."""
    np.savez(tmp_path / "votes.npz", votes=np.arange(60).reshape(6, 10) % 3, groups=np.array(list("aabbcc")), classes=3)
    write_groups(tmp_path, [("a", 1.0), ("b", 2.0), ("c", 4.0)])
    found = run_json(tmp_path, capsys, "--max-labels", "1")
    with SqliteLedger.read(found["ledger"]) as book:
        assert book.runs == ("label eea2b5995b633b76",)


def test_missing_or_rolled_back_ledger_is_refused(files, capsys):
    run_json(files, capsys, "--max-labels", "5")
    ledger = files / "votes.ledger.sqlite"
    old = ledger.read_bytes()
    run_json(files, capsys, "--max-labels", "9")
    ledger.write_bytes(old)
    assert _run(arguments(files, "--max-labels", "9")) == 1
    assert "older copy of the ledger" in capsys.readouterr().err
    ledger.unlink()
    assert _run(arguments(files, "--max-labels", "9")) == 1
    assert "restore it, do not start anew" in capsys.readouterr().err


def test_ledger_missing_after_interruption_is_refused(files, capsys, monkeypatch):
    """Labels were drawn and charged, and none was written: whoever begins anew would draw them again."""
    monkeypatch.setattr("ipate.cli.label._write_labels", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    assert _run(arguments(files, "--max-labels", "5")) == 130
    monkeypatch.undo()
    (files / "votes.ledger.sqlite").rename(files / "aside")
    (files / "votes.ledger.sqlite.head").unlink()  # the labels' own head says it too
    assert _run(arguments(files, "--max-labels", "5")) == 1
    assert "restore it, do not start anew" in capsys.readouterr().err
    (files / "aside").rename(files / "votes.ledger.sqlite")
    assert run_json(files, capsys, "--max-labels", "5")["labels"] == 5


def test_missing_output_folder_is_refused_before_charging(files, capsys):
    assert "does not exist; create it first" in refusal(files, capsys, "--ledger", str(files / "nowhere" / "x.sqlite"))
    assert "no such folder" in refusal(files, capsys, "--out", str(files / "nowhere" / "labels.csv"))
    (files / "folder").mkdir()
    assert "is a folder" in refusal(files, capsys, "--ledger", str(files / "folder"))
    assert "is a folder" in refusal(files, capsys, "--out", str(files / "folder"))
    assert "is a folder" in refusal(files, capsys, "--out", str(files / "folder"), "--seed", "3")
    assert not list(files.glob("*.sqlite"))  # nothing was charged


@pytest.mark.parametrize("option", ["--order-seed", "--split-seed"])
def test_negative_seed_is_refused_with_clear_message(files, capsys, option):
    assert option in refusal(files, capsys, option, "-1", "--variant", "vanishing")
    assert not (files / "votes.ledger.sqlite").exists()


def test_seeded_and_private_labels_cannot_share_ledger(files, capsys):
    assert run_json(files, capsys, "--seed", "3")["ledger"] is None
    shared = str(files / "shared.sqlite")
    run_json(files, capsys, "--seed", "3", "--ledger", shared)
    (files / "labels.csv").unlink()
    assert "must not share" in refusal(files, capsys, "--ledger", shared)
    assert run_json(files, capsys)["ledger"] == str(files / "votes.ledger.sqlite")  # a seeded one is nobody's ledger


def test_order_seed_shuffles_queries_and_output_rows(files, capsys):
    run_json(files, capsys, "--order-seed", "5", "--seed", "1")
    expected = np.random.default_rng(5).permutation(300)
    asked = [int(row["query"]) for row in read_labels(files)]
    assert asked == expected[: len(asked)].tolist()


@pytest.mark.parametrize("variant", ["standard", "weighting", "vanishing"])
def test_every_variant_stays_within_the_budgets(files, capsys, variant):
    report = run_json(files, capsys, "--variant", variant, "--seed", "1")
    assert report["variant"] == variant
    assert all(group["epsilon"] <= group["budget"] for group in report["groups"])
    if variant == "standard":
        assert {group["budget"] for group in report["groups"]} == {1.0}


def test_upsampling_reads_sensitivities_from_group_file(files, capsys):
    votes = synthetic_votes(n_teachers=40, n_queries=300, n_classes=5)
    np.savez(files / "votes.npz", votes=votes.votes, classes=5)
    write_groups(files, [("strict", 1, 1), ("lax", 3, 3)], header="group,epsilon,sensitivity")
    report = run_json(files, capsys, "--seed", "1")
    assert report["variant"] == "upsampling"
    assert [group["sensitivity"] for group in report["groups"]] == [1, 3]
    write_groups(files, [("strict", 1), ("lax", 3)])
    (files / "labels.csv").unlink()
    assert "'strict' has no sensitivity" in refusal(files, capsys)


def test_costs_are_matched_by_group_id(files, capsys):
    rows = [(name, epsilon) for name, epsilon, _ in GROUPS]
    one = run_json(files, capsys, "--seed", "2")
    write_groups(files, rows[::-1])
    other = run_json(files, capsys, "--seed", "2")
    assert {g["group"]: g["epsilon"] for g in one["groups"]} == {g["group"]: g["epsilon"] for g in other["groups"]}
    assert one["labels"] == other["labels"]


def test_weights_in_files_are_used_unchanged(files, capsys):
    rows = [(name, epsilon, weight) for (name, epsilon, _), weight in zip(GROUPS, (0.5, 1, 2), strict=True)]
    write_groups(files, rows, header="group,epsilon,weight")
    report = run_json(files, capsys, "--weights", "file", "--seed", "1")
    assert {g["group"]: g["weight"] for g in report["groups"]} == {"high": 0.5, "average": 1.0, "low": 2.0}


def test_weight_rule_overrides_file_weights_with_note(files, capsys):
    write_groups(files, [(n, e, 1) for n, e, _ in GROUPS], header="group,epsilon,weight")
    assert _run(arguments(files, "--weights", "gdp", "--json")) == 0
    captured = capsys.readouterr()
    assert "replaces" in captured.err
    flat(json.loads(captured.out))


def test_algorithm2_warns_and_lists_exhausted_groups(files, capsys):
    assert _run(arguments(files, "--weights", "algorithm2", "--seed", "1")) == 0
    captured = capsys.readouterr()
    assert "reproduce" in captured.err
    assert "the weights do not match the budgets" in " ".join(captured.out.split())


def test_unreachable_threshold_warns_with_pass_probability(files, capsys):
    assert _run([*arguments(files, checked=False), "--sigma", "10", "--check-sigma", "30", "--threshold", "60"]) == 0
    err = capsys.readouterr().err
    assert "warning" in err
    assert "0.252" in err  # Φ((40 − 60)/30)


def test_interactive_and_lnmax_aggregators_produce_labels(files, capsys):
    probs = np.full((300, 5), 0.02)
    probs[np.arange(300), np.load(files / "votes.npz")["labels"]] = 0.92
    np.save(files / "probs.npy", probs)
    report = run_json(files, capsys, "--student-probs", str(files / "probs.npy"), "--gamma", "0.9", "--seed", "1")
    assert report["reinforced"] > 0
    assert report["accuracy"] > 0.8
    lnmax = run_json(files, capsys, "--aggregator", "lnmax", "--scale", "20", "--seed", "1", checked=False)
    assert lnmax["labels"] > 0


def test_stopping_rules_end_labelling_as_requested(files, capsys):
    counted = run_json(files, capsys, "--stop", "count", "--max-labels", "3", "--seed", "1")
    assert (counted["labels"], counted["stopped_by"]) == (3, "count")
    stopped = run_json(files, capsys, "--weights", "uniform", "--seed", "1")
    dropped = run_json(files, capsys, "--weights", "uniform", "--stop", "drop", "--seed", "1")
    assert dropped["labels"] > stopped["labels"]


def test_repeated_query_ids_reuse_stored_answers(files, capsys):
    votes = synthetic_votes(n_teachers=40, n_queries=300, n_classes=5)
    ids = np.array([f"point-{i % 100}" for i in range(300)])
    np.savez(files / "votes.npz", votes=votes.votes, groups=np.array(votes.groups), classes=5, queries=ids)
    write_groups(files, [(name, 50 * epsilon) for name, epsilon, _ in GROUPS])
    report = run_json(files, capsys)
    rows = read_labels(files)
    assert report["queries"] == 100
    assert len(rows) == 300
    assert rows[:100] == rows[100:200] == rows[200:]


def two_teachers(folder):
    np.savez(folder / "votes.npz", votes=np.zeros((2, 5), int), groups=["high", "low"], classes=5)


def negative_weights(folder):
    write_groups(folder, [(name, epsilon, -1) for name, epsilon, _ in GROUPS], "group,epsilon,weight")


def probabilities(values, rows=300):
    return lambda folder: np.save(folder / "p.npy", np.tile(values, (rows, 1)))


WITH_STUDENT = ["--student-probs", "P"]
BAD = {
    "more groups than teachers": (two_teachers, [], "3 groups and 2 teachers"),
    "an unknown variant": (None, ["--variant", "voting"], "'voting'"),
    "an unknown weight rule": (None, ["--weights", "gpd"], "'gdp'"),
    "an unknown aggregator": (None, ["--aggregator", "max"], "'max'"),
    "an unknown stop rule": (None, ["--stop", "never"], "'never'"),
    "count without a number": (None, ["--stop", "count"], "fixed beforehand"),
    "a count of nothing": (None, ["--max-labels", "0"], "max_labels is 0"),
    "a negative seed": (None, ["--seed", "-1"], "seed is -1"),
    "weights from files that have none": (None, ["--weights", "file"], "neither"),
    "a power without vanishing": (None, ["--power", "2"], "power is 2"),
    "gamma without a student": (None, ["--gamma", "0.5"], "gamma"),
    "a sigma of zero": (None, ["--sigma", "0"], "sigma is 0"),
    "a delta of one": (None, ["--delta", "1"], "delta is 1"),
    "orders at one": (None, ["--bound", "loose", "--orders", "1:5"], "orders hold 1"),
    "negative weights": (negative_weights, [], "weight"),
    "probabilities of the wrong sum": (probabilities([0.3] * 5), WITH_STUDENT, "sum to 1.5"),
    "probabilities of the wrong shape": (probabilities([0.2] * 5, rows=3), WITH_STUDENT, "(300, 5)"),
    "negative probabilities": (probabilities([1.5, -0.5, 0, 0, 0]), WITH_STUDENT, "1.5"),
}


def write_sized_groups(folder, delta):
    """Give the groups 50 people in all, and the first group its own δ unless that is empty."""
    own = [(10, delta), (20, "1e-5"), (20, "1e-5")]
    rows = [(name, epsilon, *more) for (name, epsilon, _), more in zip(GROUPS, own, strict=True)]
    write_groups(folder, rows, "group,epsilon,people,delta")


@pytest.mark.parametrize(("own", "given"), [("0.02", "1e-5"), ("", "0.02")])
def test_delta_of_one_over_the_people_is_refused(files, capsys, own, given):
    write_sized_groups(files, own)
    words = f"delta is 0.02 (group {GROUPS[0][0]!r}) with N = 50 people, and 1/N = 0.02"
    assert words in refusal(files, capsys, "--delta", given)
    assert not list(files.glob("*ledger*"))


def test_delta_below_one_over_the_people_is_accepted(files, capsys):
    write_sized_groups(files, "0.019")
    assert run_json(files, capsys, "--max-queries", "1")["queries"] == 1


@pytest.mark.parametrize("case", BAD)
def test_bad_input_message_names_it_in_one_line(files, capsys, case):
    spoil, extra, words = BAD[case]
    if spoil is not None:
        spoil(files)
    extra = [str(files / "p.npy") if part == "P" else part for part in extra]
    assert words in refusal(files, capsys, *extra)


def test_write_failure_is_reported_in_one_line(files, capsys):
    args = arguments(files)
    args[args.index("--out") + 1] = str(files / "nowhere" / "labels.csv")
    assert _run(args) in (1, 2)
    assert "nowhere" in capsys.readouterr().err


def test_interruption_message_says_how_to_continue(files, capsys, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("ipate.engines.teachers.given.label", stopped)
    assert _run(arguments(files)) == 130
    charged, told = capsys.readouterr().err.splitlines()
    assert charged == "ipate: charging votes.ledger.sqlite: new"
    assert told == "ipate: interrupted; run the same command again to continue or repeat it"


def test_interrupt_while_a_module_loads_ends_like_any_other(files, capsys, monkeypatch):
    def load(*_, **__):
        raise ImportError("initialization failed") from KeyboardInterrupt()

    monkeypatch.setattr("ipate.engines.teachers.given.label", load)
    assert _run(arguments(files)) == 130
    assert "ipate: interrupted; run the same command again" in capsys.readouterr().err


def counts_of(folder):
    with np.load(folder / "labels.csv.counts.npz", allow_pickle=False) as file:
        return dict(file)


def test_counts_are_written_beside_the_labels(files, capsys):
    plain = run_json(files, capsys, "--seed", "3", "--sigma", "40", checked=False)
    before = read_labels(files)
    assert not (files / "labels.csv.counts.npz").exists()
    assert plain["counts"] is None
    found = run_json(files, capsys, "--seed", "3", "--sigma", "40", "--counts", checked=False)
    assert (found["labels"], found["groups"]) == (plain["labels"], plain["groups"])
    rows, arrays = read_labels(files), counts_of(files)
    assert list(rows[0]) == list(before[0]) == ["query", "answered", "label"]
    assert {name: (array.dtype.kind, array.shape) for name, array in arrays.items()} == {
        "queries": ("i", (found["labels"],)),
        "counts": ("i", (found["labels"], 5)),
        "step": ("f", (found["labels"],)),
        "labels": ("i", (found["labels"],)),
    }
    assert set(arrays["step"]) == {5.0}
    assert [row["query"] for row in rows] == [str(query) for query in arrays["queries"]]
    assert [row["label"] for row in rows] == [str(label) for label in arrays["labels"]]
    np.testing.assert_array_equal(arrays["counts"].argmax(axis=1), arrays["labels"])
    assert found["counts"] == found["labels"]


def test_counts_name_their_file_and_queries(files, capsys):
    with np.load(files / "votes.npz") as votes:
        np.savez(files / "votes.npz", **votes, queries=np.array([f"point {i}" for i in range(300)]))
    assert _run(arguments(files, "--counts", "--json")) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["files"]["counts"] == str(files / "labels.csv.counts.npz")
    assert "their noisy counts" in told["publishable"]["statement"]
    answered = [row["query"] for row in read_labels(files) if row["answered"] == "1"]
    assert counts_of(files)["queries"].tolist() == answered
    assert 0 < len(answered) < told["publishable"]["queries"]


def test_repeated_command_writes_the_same_counts(files, capsys):
    assert _run(arguments(files, "--counts")) == 0
    assert "Noisy counts:" in capsys.readouterr().out
    first = counts_of(files)
    (files / "labels.csv.counts.npz").unlink()
    assert _run(arguments(files, "--counts")) == 0
    again = counts_of(files)
    assert all(np.array_equal(first[name], again[name]) for name in first)


def test_labels_of_an_earlier_command_stay_without_counts(files, capsys):
    some = run_json(files, capsys, "--max-queries", "10")
    found = run_json(files, capsys, "--max-queries", "20", "--counts")
    assert found["counts"] == found["labels"] - some["labels"] == len(counts_of(files)["labels"])
    assert _run(arguments(files, "--max-queries", "20", "--counts")) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert f"{some['labels']} labels were paid for earlier without their counts" in told


@pytest.mark.parametrize("bound", ["loose", "sup", "tight", "exact", "ptr"])
def test_counts_under_other_bounds_are_refused(files, capsys, bound):
    told = refusal(files, capsys, "--counts", "--bound", bound)
    assert f"bound is '{bound}': noisy counts are released under gdp alone" in told
    assert sorted(path.name for path in files.iterdir()) == ["groups.csv", "votes.npz"]


def test_counts_of_lnmax_are_refused(files, capsys):
    told = refusal(files, capsys, "--aggregator", "lnmax", "--scale", "20", "--counts", checked=False)
    assert "counts is True: lnmax has no vector of counts with Gaussian noise" in told


def test_example_of_the_page_on_counts_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "counts.md").read_text(encoding="utf-8")
    names = {}
    for language, text in re.findall(r"^```(\w*)\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL):
        if language == "python":
            exec(compile(text, "counts.md", "exec"), names)
        else:
            assert _run(shlex.split(text)[1:]) == 0
    assert names["sure"].shape == (60, 5)
    assert capsys.readouterr().out.splitlines()[-1].startswith("[0 1 2]")
