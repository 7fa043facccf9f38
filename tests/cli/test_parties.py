"""Three sites as processes in separate folders, end to end, and errors of one line for bad input."""

import csv
import json
import math
import shutil

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from blocks import flat
from parties.making import queries, read_file, send, write_file, write_pool, write_site

SITES = ("north", "south", "west")
BUDGETS = {  # the ε and δ of each site's policy, and each group's share of the 10, 5 and 10 teachers
    "north/high": (1.0, 1e-5, 6),
    "north/low": (3.0, 1e-5, 4),
    "south/high": (0.5, 1e-6, 3),
    "south/low": (2.0, 1e-6, 2),
    "west/high": (2.0, 1e-5, 2),
    "west/low": (8.0, 1e-5, 8),
}
NOISE = {"--sigma": 15.0, "--check-sigma": 25.0, "--threshold": 20.0}


def gdp_delta(epsilon, mu):
    return norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2)


def mu_of(epsilon, delta):
    return brentq(lambda mu: gdp_delta(epsilon, mu) - delta, 1e-3, 50, xtol=1e-13)


def epsilon_of(mu, delta):
    return brentq(lambda epsilon: gdp_delta(epsilon, mu) - delta, 0, 100, xtol=1e-12)


def weights_of():
    """Compute every group's weight from the budgets and numbers of teachers above alone."""
    mu = {name: mu_of(epsilon, delta) for name, (epsilon, delta, _) in BUDGETS.items()}
    teachers = sum(many for *_, many in BUDGETS.values())
    total = sum(mu[name] * many for name, (*_, many) in BUDGETS.items())
    return {name: value * teachers / total for name, value in mu.items()}


def flags(options):
    return [part for pair in options.items() for part in pair]


def party(process, folder, site):
    """Fit a site in a folder with its rows and the public queries, then vote without the rows."""
    ran = process(
        "party",
        "fit",
        "rows.csv",
        "--queries",
        "queries.npz",
        "--site",
        site,
        "--label",
        "diagnosis",
        "--level",
        "consent",
        "--person",
        "patient",
        "--policy",
        "policy.toml",
        "--teacher",
        "bayes",
        "--points-per-teacher",
        "20",
        "--out",
        "site",
        cwd=folder,
    )
    assert ran.code == 0, ran.err
    (folder / "rows.csv").unlink()
    ran = process("party", "vote", "site", "queries.npz", "--out", f"{site}.npz", "--json", cwd=folder)
    assert ran.code == 0, ran.err
    return json.loads(ran.out)["fingerprint"]


def test_three_parties_label_and_account_end_to_end(tmp_path, process, run, monkeypatch):
    aggregator = tmp_path / "aggregator"
    aggregator.mkdir()
    monkeypatch.chdir(aggregator)
    write_pool(aggregator, n=150)
    made = run(
        "parties", "queries", "pool.csv", "--classes", "well,ill", "--bounds", "bounds.csv", "--out", "queries.npz"
    )
    assert made.code == 0, made.err
    expect = []
    for seed, site in enumerate(SITES):
        folder = tmp_path / site
        folder.mkdir()
        write_site(folder, site, seed=seed)
        shutil.copy("queries.npz", folder)
        expect += ["--expect", f"{site}={party(process, folder, site)}"]
        shutil.copy(folder / f"{site}.npz", aggregator)  # the only file that leaves a site
    files = [f"{site}.npz" for site in reversed(SITES)]
    merged = run("parties", "merge", *files, "--queries", "queries.npz", *expect, "--out", "merged", "--json")
    assert merged.code == 0, merged.err
    weights = weights_of()
    found = {group["id"]: group for group in json.loads(merged.out)["groups"]}
    assert {name: (g["epsilon"], g["delta"], g["teachers"]) for name, g in found.items()} == BUDGETS
    assert {name: g["weight"] for name, g in found.items()} == pytest.approx(weights, rel=1e-6)

    both = ["merged/votes.npz", "--groups", "merged/groups.csv", *flags(NOISE), "--json"]
    labelled = run("label", *both, "--weights", "file", "--out", "labels.csv")
    assert labelled.code == 0, labelled.err
    report = flat(json.loads(labelled.out))
    assert report["guarantee"] == "releasable"
    assert 5 < report["labels"] < report["queries"]
    with open("labels.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    answered = np.full(150, -1)
    for row in rows:
        answered[int(row["query"])] = int(row["answered"])
    np.save("answered.npy", answered)
    accounted = run("account", *both, "--answered", "answered.npy", "--stopped-by", "account")
    assert accounted.code == 0, accounted.err

    asked, given = len(rows), sum(row["answered"] == "1" for row in rows)
    per_weight = asked / NOISE["--check-sigma"] ** 2 + 2 * given / NOISE["--sigma"] ** 2
    for groups in (report["groups"], flat(json.loads(accounted.out))["groups"]):
        assert {group["group"] for group in groups} == set(BUDGETS)
        for group in groups:
            epsilon, delta, _ = BUDGETS[group["group"]]
            assert (group["budget"], group["delta"]) == (epsilon, delta)
            assert group["epsilon"] <= epsilon
            own = epsilon_of(weights[group["group"]] * math.sqrt(per_weight), delta)
            assert group["epsilon"] == pytest.approx(own, rel=1e-5)
            assert group["epsilon"] > 0.8 * epsilon  # weights match the budgets, so no budget is left unused


@pytest.fixture
def files(folder):
    asked = queries(folder)
    asked.write(folder / "queries.npz")
    for seed, site in enumerate(SITES):
        send(folder, site, {"high": (1.0 + seed, 1e-5, 4), "low": (5.0, 1e-5, 2)}, asked, seed=seed)
    return [f"{site}.npz" for site in SITES]


def test_merge_states_trust_and_limits_of_hashes(files, run):
    told = " ".join(run("parties", "merge", *files, "--out", "merged").out.split())
    assert "You see every teacher's raw vote" in told
    assert "Whoever is at two sites moves votes at both, and their budgets add up" in told
    assert "No fingerprint was compared" in told
    for command in (("parties", "merge"), ("party", "vote")):
        told = " ".join(run(*command, "--help").out.split())
        assert "trusted" in told
        assert "separate channel" in told


@pytest.mark.parametrize("command", ["party", "parties"])
def test_help_of_command_group_has_example(run, command):
    told = run(command, "--help")
    assert told.code == 0
    assert f"Example: ipate {command} " in told.out


def test_label_computes_weights_of_merged_votes(files, run):
    assert run("parties", "merge", *files, "--out", "merged").code == 0
    both = ["label", "merged/votes.npz", "--groups", "merged/groups.csv", "--sigma", "9", "--seed", "1", "--json"]
    one = flat(json.loads(run(*both, "--out", "a.csv", "--weights", "file").out))
    other = flat(json.loads(run(*both, "--out", "b.csv").out))
    assert one == other


def test_aggregator_can_label_merged_votes_by_vanishing(files, run):
    assert run("parties", "merge", *files, "--out", "merged").code == 0
    ran = run(
        "label",
        "merged/votes.npz",
        "--groups",
        "merged/groups.csv",
        "--variant",
        "vanishing",
        "--sigma",
        "40",
        "--out",
        "labels.csv",
        "--json",
    )
    report = flat(json.loads(ran.out))
    assert report["labels"] > 5
    assert all(group["epsilon"] <= group["budget"] for group in report["groups"])


def test_labels_file_carries_the_query_ids(folder, run):
    (folder / "pool.csv").write_text("name,age,bmi\n" + "".join(f"q{i},{i + 20},{i / 9 + 20}\n" for i in range(40)))
    made = [
        "parties",
        "queries",
        "pool.csv",
        "--classes",
        "well,ill",
        "--id-column",
        "name",
        "--out",
        "q.npz",
        "--json",
    ]
    assert json.loads(run(*made).out)["encoding"]["features"] == ["age", "bmi"]
    from ipate.parties.queries import read_queries

    send(folder, "north", {"all": (9.0, 1e-5, 8)}, read_queries(folder / "q.npz"))
    assert run("parties", "merge", "north.npz", "--queries", "q.npz", "--out", "merged").code == 0
    ran = run(
        "label",
        "merged/votes.npz",
        "--groups",
        "merged/groups.csv",
        "--sigma",
        "4",
        "--out",
        "l.csv",
        "--weights",
        "file",
    )
    assert ran.code == 0, ran.err
    assert (folder / "l.csv").read_text().splitlines()[1].startswith("q0,")


def flip(path):
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 3] ^= 4
    path.write_bytes(raw)


def declare_more(path):
    votes, manifest, sha = read_file(path)
    manifest["groups"][0]["epsilon"] = 50.0
    write_file(path, manifest, votes, sha=sha)


def swap(path):
    votes, _, _ = read_file(path)
    _, manifest, sha = read_file(path.with_name("north.npz"))
    write_file(path, manifest, votes, sha=sha)


def other_queries(path):
    (path.parent / "elsewhere").mkdir()
    send(path.parent, "south", {"all": (1.0, 1e-5, 6)}, queries(path.parent / "elsewhere", seed=77))


TAMPERED = {
    "a byte flipped": (flip, "send the file again"),
    "a declared ε edited": (declare_more, "so the file was altered"),
    "another site's manifest": (swap, "so the file was altered"),
    "votes on other queries": (other_queries, "let it vote again"),
    "an empty file": (lambda path: path.write_bytes(b""), "send the file again"),
}


@pytest.mark.parametrize("case", TAMPERED)
def test_altered_file_is_refused_in_one_line(files, folder, run, case):
    change, words = TAMPERED[case]
    change(folder / "south.npz")
    ran = run("parties", "merge", *files, "--out", "merged")
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert "south.npz" in ran.err
    assert words in ran.err
    assert not (folder / "merged").exists()


BAD = {
    "no such site": (["party", "vote", "nowhere", "queries.npz", "--out", "v.npz"], "holds no fitted site"),
    "no queries": (
        ["party", "fit", "r.csv", "--queries", "no.npz", "--site", "a", "--out", "a"],
        "no.npz: no such file",
    ),
    "a name with a slash": (
        ["party", "fit", "r.csv", "--queries", "queries.npz", "--site", "a/b", "--out", "a"],
        "'a/b'",
    ),
    "an ε of 0": (
        ["party", "fit", "r.csv", "--queries", "queries.npz", "--site", "a", "--out", "a", "--epsilon", "0"],
        "epsilon is 0.0",
    ),
    "an unsupported variant": (
        ["party", "fit", "r.csv", "--queries", "queries.npz", "--site", "a", "--out", "a", "--variant", "upsampling"],
        "use weighting",
    ),
    "a duplicate file": (["parties", "merge", "north.npz", "north.npz", "--out", "m"], "duplicate site 'north'"),
    "not a vote file": (["parties", "merge", "queries.npz", "--out", "m"], "queries.npz: holds"),
    "not a fingerprint": (["parties", "merge", "north.npz", "--expect", "x", "--out", "m"], "64 hex digits"),
    "an existing folder": (["parties", "merge", "north.npz", "--out", "."], "already exists"),
    "a missing folder": (["parties", "merge", "north.npz", "--out", "no/m"], "no folder no"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_exits_2_with_one_line(files, run, case):
    arguments, words = BAD[case]
    ran = run(*arguments)
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert words in ran.err
