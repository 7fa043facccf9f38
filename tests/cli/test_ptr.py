"""The bound ptr as a user meets it: designs, labels, runs, plans and reports, and what must never be seen."""

import csv
import json
import sys

import numpy as np
import pytest

from blocks import flat
from ipate import PATEClassifier
from ipate.allocation.allocation import Allocation
from ipate.cli.app import _run
from ipate.engines.teachers import tested
from ipate.errors import InputError, IpateError
from ipate.ledger.sqlite import SqliteLedger
from ipate.release.noise import SecureNoise

statistic = sys.modules["ipate.accounting.ladder"]  # the package has a function of that name
K, POOL, CLASSES = 60, 90, 3
NOISE = ["--sigma", "8", "--check-sigma", "20", "--threshold", "40"]


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Votes of 60 teachers that agree, in two groups."""
    monkeypatch.chdir(tmp_path)
    truth = np.random.default_rng(1).integers(CLASSES, size=POOL)
    votes = np.broadcast_to(truth, (K, POOL)).copy()
    votes[0] = (truth + 1) % CLASSES
    np.savez("votes.npz", votes=votes, groups=np.repeat(["strict", "lax"], K // 2), labels=truth, classes=CLASSES)
    (tmp_path / "groups.csv").write_text("group,epsilon,delta\nstrict,2,1e-3\nlax,3,1e-3\n")
    return tmp_path


@pytest.fixture
def says(monkeypatch):
    """Let the test say yes or no, however the votes are."""

    def answer(passed):
        drawn = 0.0 if passed else 1 - 2**-53
        monkeypatch.setattr(SecureNoise, "uniform", lambda self, what, ids, width: np.full((len(ids), width), drawn))

    return answer


def label(*extra):
    return ["label", "votes.npz", "--groups", "groups.csv", *NOISE, "--bound", "ptr", "--out", "labels.csv", *extra]


def rows(path="labels.csv"):
    with open(path, newline="") as stream:
        return list(csv.DictReader(stream))


def test_design_is_written_verified_and_used_for_labels(files, run, says):
    says(True)
    made = run(
        "design", "votes.npz", "--groups", "groups.csv", *NOISE, "--accuracy", "0.95", "--out", "d.json", "--json"
    )
    facts = json.loads(made.out)
    assert made.code == 0
    assert 0 < facts["queries"] <= POOL
    assert [g["group"] for g in facts["groups"]] == ["strict", "lax"]
    assert "every condition holds" in run("design", "--check", "d.json").out
    told = flat(json.loads(run(*label("--design", "d.json", "--json")).out))
    assert told["passed"] is True
    assert told["queries"] == facts["queries"] == len(rows())
    assert told["guarantee"] == "releasable"
    assert [g["epsilon"] for g in told["groups"]] == [2.0, 3.0]
    assert (files / "labels.csv.design.json").read_text() == (files / "d.json").read_text()
    again = flat(json.loads(run(*label("--design", "d.json", "--json")).out))  # the same command finds what was paid
    assert again == told
    other = run(*label("--accuracy", "0.9"))
    assert other.code == 1
    assert "takes a whole budget" in other.err
    assert (files / "labels.csv.design.json").read_text() == (files / "d.json").read_text()


def test_failed_test_releases_only_the_bit(files, run, says):
    says(False)
    ran = run(*label("--accuracy", "0.95"))
    assert ran.code == 0
    assert "The test was not passed: nothing but this answer was released" in ran.out
    assert rows() == []
    told = flat(json.loads(run(*label("--accuracy", "0.95", "--json")).out))
    assert told["passed"] is False
    assert told["labels"] == 0
    assert told["stopped_by"] == "failed"
    assert [g["epsilon"] for g in told["groups"]] == [2.0, 3.0]


def test_fallback_labels_with_the_reserved_budget(files, run, says):
    says(False)
    (files / "groups.csv").write_text("group,epsilon,delta\nstrict,8,1e-2\nlax,9,1e-2\n")
    ran = run(*label("--accuracy", "0.95", "--fallback"))
    assert ran.code == 0
    assert "the part of the budget that was kept for this" in ran.out
    assert 0 < len(rows()) < POOL


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ([], "say with --accuracy how often"),
        (["--accuracy", "1.5"], "accuracy is 1.5"),
        (["--accuracy", "0.9", "--reference", "votes.npz"], "those are for a simulator"),
        (["--reference", "votes.npz"], "these very votes"),
        (["--design", "none.json"], "make one with ipate design"),
        (["--accuracy", "0.9", "--max-labels", "5"], "a design asks a fixed list"),
        (["--accuracy", "0.9", "--stop", "drop"], "a design asks a fixed list"),
        (["--accuracy", "0.9", "--variant", "vanishing"], "take turns"),
        (["--accuracy", "0.9", "--bound", "gdp"], "accuracy is 0.9: it is for the bound ptr"),
        (["--design", "groups.csv"], "not a design file"),
    ],
    ids=[
        "nothing",
        "impossible",
        "both",
        "own-votes",
        "no-file",
        "max-labels",
        "drop",
        "vanishing",
        "gdp",
        "no-design",
    ],
)
def test_invalid_options_are_refused_in_one_line(files, run, extra, words):
    ran = run(*label(*extra))
    assert ran.code == 2
    assert words in ran.err
    assert len(ran.err.strip().splitlines()) == 1
    assert not (files / "labels.csv").exists()


RUN = """
[data]
name = "digits"
public = 300
test = 200
[budgets]
policy = { high = 6.0, low = 12.0 }
shares = { high = 0.6, low = 0.4 }
delta = 7e-4
[teachers]
model = "bayes"
number = 40
n_jobs = 1
[labelling]
bound = "ptr"
sigma = 6.0
check_sigma = 12.0
threshold = 20.0
[reference]
accuracy = 0.8
"""


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(RUN)
    return tmp_path


def test_run_stores_design_bit_and_guarantee(config, run, says):
    says(True)
    told = flat(json.loads(run("run", "run.toml", "--out", "r", "--json").out))
    assert told["bound"] == "ptr"
    assert told["guarantee"] == "releasable"
    design = json.loads((config / "r/public/design.json").read_text())
    assert told["queries"] == design["n_queries"]
    assert json.loads((config / "r/public/guarantee.json").read_text())["passed"] is True
    (config / "r/private/labelling.json").unlink()  # as if it had been stopped before the record
    says(False)
    again = flat(json.loads(run("run", "--resume", "r", "--json").out))
    assert again["labels"] == told["labels"]
    assert run("report", "r").code == 0
    page = (config / "r/public/report.html").read_text()
    assert "one yes/no question was put to the private votes" in page
    assert "The answer was yes" in page
    twin = flat(json.loads((config / "r/public/report.json").read_text()))
    assert [group["cost"] for group in twin["groups"]] == [group["budget"] for group in twin["groups"]]
    assert [group["promised_epsilon"] for group in twin["groups"]] == [group["budget"] for group in twin["groups"]]
    person = people(config)[0]
    said = json.loads(run("statement", "r", person, "--json").out)
    assert (said["labels"], said["checks"], said["left"]) == (told["labels"], told["queries"], 0.0)
    assert f"released the answer of a private test, {told['labels']} labels and" in said["sentences"][1]


def test_nothing_is_published_after_private_run_on_ledger(config, run, says, monkeypatch):
    """Answers of that run may be among the labels; the report must say the same as the run."""
    monkeypatch.setattr(SqliteLedger, "private_history", property(lambda self: ("an exact run",)))
    says(True)
    told = flat(json.loads(run("run", "run.toml", "--out", "r", "--json").out))
    assert told["guarantee"] == "private"
    assert not (config / "r/public/labels.csv").exists()
    assert run("report", "r").code == 0
    page = (config / "r/public/report.html").read_text()
    assert "its answers may be among these labels" in page
    assert "The answer was yes" not in page
    assert run("report", "r", "--private").code == 0


def people(config):
    return Allocation.load(config / "r/private/allocation.npz").people.ids.tolist()


def test_statement_mentions_test_even_without_labels(config, run, says):
    """The answer was a release, and the budget is spent."""
    says(False)
    assert run("run", "run.toml", "--out", "r").code == 1
    person = people(config)[0]
    said = json.loads(run("statement", "r", person, "--json").out)
    assert (said["labels"], said["checks"], said["left"], said["spent"]) == (0, 0, 0.0, said["budget"])
    assert "the answer of a private test, 0 labels that their data could have changed" in said["sentences"][1]
    (config / "r/private/labelling.json").unlink()
    left = json.loads(run("withdraw", "r", person, "--yes", "--json").out)
    assert left["labelling"] == "begun"
    assert "the answer of a private test, 0 labels had been released" in left["sentences"][-2]
    assert run("run", "--resume", "r").code == 1  # no second test without them


def test_run_with_failed_test_can_be_reported(config, run, says):
    says(False)
    ran = run("run", "run.toml", "--out", "r")
    assert ran.code == 1
    assert "the private test was not passed" in ran.err
    assert rows("r/public/labels.csv") == []
    assert not (config / "r/public/student").exists()
    assert run("report", "r").code == 0
    page = (config / "r/public/report.html").read_text()
    assert "The answer was no" in page
    assert "nothing but its answer was released" in page
    assert "no point was labelled, and there is no student" in page
    assert "a student learnt from those labels" not in page
    says(True)
    assert run("run", "--resume", "r").code == 1  # no second test


def test_statement_includes_cost_of_failed_test(config, run, says):
    says(False)
    assert run("run", "run.toml", "--out", "r").code == 1
    person = Allocation.load(config / "r/private/allocation.npz").people.ids[0]
    said = run("statement", "r", person).out
    assert "This run released the answer of a private test, 0 labels" in said
    assert "Of their latest budget" in said
    assert "nothing is left" in said
    assert "the answer of a private test, 0 labels had been released" in run("withdraw", "r", person, "--yes").out


def test_unwritable_design_path_is_refused_first(files, run):
    (files / "folder").mkdir()
    for out, words in (("folder", "is a folder"), ("nowhere/d.json", "no such folder")):
        ran = run("design", "votes.npz", "--groups", "groups.csv", *NOISE, "--accuracy", "0.95", "--out", out)
        assert ran.code == 2
        assert words in ran.err


def test_statistic_and_private_costs_are_never_written(config, run, says, monkeypatch):
    """Every number that the test computes is marked; none may stand in what a run says or writes in public."""
    says(True)
    marks = []

    def watched(made):
        def call(*arguments, **options):
            found = made(*arguments, **options)
            marks.extend(np.ravel(found).tolist())
            return found

        return call

    monkeypatch.setattr(tested, "pass_probability", watched(lambda design, counts: 0.98712398712))
    real = statistic.total_costs
    monkeypatch.setattr(statistic, "total_costs", watched(real))
    ran = run("run", "run.toml", "--out", "r")
    reported = run("report", "r")
    statistic.pass_probability(
        *_design_and_counts(config)
    )  # what the test would have computed, so that its costs are known
    assert ran.code == reported.code == 0
    assert len(marks) > 20
    seen = ran.out + ran.err + reported.out + reported.err
    for path in (config / "r").rglob("*"):
        if path.is_file() and "private" not in path.parts and path.suffix != ".skops":
            seen += path.read_text(encoding="utf-8", errors="replace")
    digits = {f"{mark:.6g}" for mark in marks if len(f"{mark:.6g}".strip("0.")) >= 5}
    assert len(digits) > 10
    assert not [mark for mark in digits if mark in seen]
    private = (config / "r/private/labelling.json").read_text()
    assert not [mark for mark in digits if mark in private]


def _design_and_counts(config):
    from ipate.allocation.allocation import Allocation
    from ipate.engines.teachers.reference import read_design
    from ipate.engines.teachers.votes import count_votes

    design = read_design(config / "r/public/design.json")
    allocation = Allocation.load(config / "r/private/allocation.npz")
    votes = np.load(config / "r/private/votes/votes.npy")[:, : design.n_queries]
    weights = np.floor(allocation.weights / design.setting.lattice) * design.setting.lattice
    counts = sum(weight * count_votes(votes[[index]], design.setting.classes) for index, weight in enumerate(weights))
    return design, counts


def test_plan_compares_ptr_with_gdp_and_sup(run, tmp_path):
    (tmp_path / "g.csv").write_text("group,epsilon,people\nhigh,1,3000\nlow,2,3000\n")
    arguments = [
        "plan",
        "--groups",
        tmp_path / "g.csv",
        "--teachers",
        "60",
        "--classes",
        "3",
        "--accuracy",
        "0.95",
        "--delta",
        "1e-4",
        "--sigma",
        "9.6",
        "--check-sigma",
        "36",
        "--threshold",
        "48",
        "--json",
    ]
    expected = json.loads(run(*arguments).out)["expected"]
    assert [row["variant"] for row in expected] == ["standard", "upsampling", "weighting"]
    for row in expected:
        assert row["labels"]["gdp"] <= row["labels"]["sup"] < row["labels"]["ptr"]
    ran = run("plan", "--groups", tmp_path / "g.csv", "--teachers", "60", "--reserve", "0.2")
    assert ran.code == 2
    assert "give --accuracy or --reference too" in ran.err


def test_classifier_accepts_an_expected_accuracy(says):
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    X, pool = rng.normal(size=(3000, 2)), rng.normal(size=(200, 2))
    y = (X[:, 0] > 0).astype(int)
    model = PATEClassifier(
        teacher=LogisticRegression(),
        classes=[0, 1],
        verbose=0,
        random_state=0,
        bound="ptr",
        reference=0.95,
        n_teachers=60,
        sigma=8.0,
        check_sigma=20.0,
        threshold=40.0,
        delta=1e-4,
    )
    says(True)
    model.fit(X, y, budgets=rng.choice([2.0, 4.0], size=3000), X_public=pool)
    assert model.labelling_.passed
    assert model.labelling_.n_queries == model.choice_.design.n_queries
    assert {g.budget.epsilon: g.cost for g in model.guarantees_} == {2.0: 2.0, 4.0: 4.0}
    assert model.score(pool, (pool[:, 0] > 0).astype(int)) > 0.85
    says(False)
    with pytest.raises(IpateError, match="the private test was not passed"):
        model.fit(X, y, budgets=rng.choice([2.0, 4.0], size=3000), X_public=pool)
    with pytest.raises(InputError, match="without a reference"):
        model.set_params(reference=None).fit(X, y, budgets=np.full(3000, 2.0), X_public=pool)
    with pytest.raises(InputError, match="is for the bound ptr"):
        model.set_params(reference=0.9, bound="gdp").fit(X, y, budgets=np.full(3000, 2.0), X_public=pool)


def test_design_command_runs_as_a_process(files, process):
    ran = process(*label("--accuracy", "0.95", "--json"))
    assert ran.code == 0
    assert flat(json.loads(ran.out))["passed"] in (True, False)


def test_design_without_file_names_required_options():
    assert _run(["design"]) == 2
