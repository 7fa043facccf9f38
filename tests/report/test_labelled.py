"""The report of labels whose teachers were trained, or whose ballots were summed, elsewhere."""

import json

import numpy as np
import pytest

from ipate.cli.app import _run
from ipate.ledger.sqlite import SqliteLedger
from report.test_page import check

NOISE = ["--sigma", "9", "--check-sigma", "15", "--threshold", "8"]


@pytest.fixture
def votes(tmp_path):
    """Return a folder that has votes and groups; ledgers are searched in the folders beside it."""
    tmp_path = tmp_path / "merged"
    tmp_path.mkdir()
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, size=50)
    cast = np.where(rng.random((20, 50)) < 0.9, truth, rng.integers(0, 3, size=(20, 50)))
    names = np.array([f"q{index}" for index in range(50)])
    np.savez(tmp_path / "votes.npz", votes=cast, groups=np.repeat(["a", "b"], 10), classes=3, queries=names)
    (tmp_path / "groups.csv").write_text("group,epsilon\nb,9\na,5\n")
    return tmp_path


def labelled(folder, *more):
    given = ["label", "votes.npz", "--groups", "groups.csv", "--out", "labels.csv", "--report", "report.html"]
    paths = [str(folder / part) if "." in part else part for part in given]
    return _run([*paths, *NOISE, *more])


@pytest.mark.parametrize("bound", ["gdp", "loose", "sup"])
def test_labelling_of_votes_has_a_public_report(votes, bound, capsys):
    assert labelled(votes, "--bound", bound, "--controller", "Three", "--contact", "dpo@three.example") == 0
    html = (votes / "report.html").read_text()
    check(html)
    twin = json.loads((votes / "report.json").read_text())
    assert [group["group"] for group in twin["publishable"]["groups"]] == ["a", "b"]
    assert twin["publishable"]["data"]["people"] is None
    assert "Three; contact: dpo@three.example." in html
    for group in twin["publishable"]["groups"]:
        assert 0 < group["cost"] <= group["budget"] == group["promised_epsilon"]


def test_report_of_laplace_labels_states_their_scale(votes, capsys):
    files = [str(votes / name) for name in ("votes.npz", "groups.csv", "labels.csv", "report.html")]
    given = ["label", files[0], "--groups", files[1], "--out", files[2], "--report", files[3], "--scale", "9"]
    assert _run(given) == 0
    stated = json.loads((votes / "report.json").read_text())["publishable"]["parameters"]
    assert (stated["laplace_scale"], stated["sigma"]) == (9.0, None)
    assert "Laplace noise with scale b = 9" in (votes / "report.html").read_text()


def test_report_of_labels_has_no_hash_of_votes(votes, capsys):
    assert labelled(votes) == 0
    text = (votes / "report.html").read_text() + (votes / "report.json").read_text()
    with SqliteLedger.read(votes / "votes.ledger.sqlite") as ledger:
        hashes = [ledger.head.hash, ledger.run.removeprefix("label ")]
    assert [len(value) for value in hashes] == [64, 16]
    assert not [value for value in hashes if value in text]
    assert "whose head is stated" not in text
    assert "moves more than the table of influence says is taken on trust" in text


def test_unreadable_sites_are_refused_before_charging(votes, capsys):
    (votes / "sites.json").write_text("[]")
    assert labelled(votes) == 2
    assert "does not state the sites" in capsys.readouterr().err
    assert not list(votes.glob("*.sqlite"))


def test_report_of_sites_says_that_rows_stay(votes, capsys):
    (votes / "sites.json").write_text(json.dumps({"sites": [{"site": "north"}, {"site": "south"}]}))
    (votes / "groups.csv").write_text("group,epsilon,people\nb,9,80\na,5,40\n")
    assert labelled(votes) == 0
    html = (votes / "report.html").read_text()
    assert "Rows stay at the sites (north, south)." in html
    assert "each site has the consent of its own people" in html
    assert "(120 people)" in html


@pytest.mark.parametrize(
    ("more", "says"), [(["--bound", "exact"], "bound exact"), (["--seed", "3"], "seeded")], ids=["exact", "seeded"]
)
def test_report_of_private_labelling_is_refused_beforehand(votes, more, says, capsys):
    assert labelled(votes, *more) == 2
    assert says in capsys.readouterr().err
    assert not (votes / "labels.csv").exists()


def test_ballots_from_elsewhere_have_a_report(tmp_path, capsys):
    rng = np.random.default_rng(1)
    cells = rng.integers(0, 4, size=(30, 1))
    np.savez(tmp_path / "votes.npz", ballots=np.full((1, 4, 2), 2**20, dtype=np.int64), cells=cells)
    (tmp_path / "groups.csv").write_text("group,epsilon,people\na,2,400\nb,5,500\n")
    out = ["--out", str(tmp_path / "labels.csv"), "--report", str(tmp_path / "report.html")]
    assert _run(["label", str(tmp_path / "votes.npz"), "--groups", str(tmp_path / "groups.csv"), *out]) == 0
    html = (tmp_path / "report.html").read_text()
    check(html)
    assert "cast the ballots (900 people)" in html
    assert len(json.loads((tmp_path / "report.json").read_text())["publishable"]["events"]) == 2
