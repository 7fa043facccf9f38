"""The aggregator interactive in a run: two rounds, a student between them, and every release charged."""

import csv
import json
from collections import Counter

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from ipate import pipeline
from ipate.accounting.bounds import Meter
from ipate.cli.app import _run
from ipate.engines.teachers.engine import Teachers
from ipate.errors import InputError
from ipate.files import unpack_arrays, write_npz
from ipate.ledger.sqlite import SqliteLedger
from ipate.runs.folder import RunFolder
from ipate.runs.ledgers import ledger_path
from ipate.runs.reporting import write_report
from ipate.runs.stages import execute
from runs.making import config, quiet, resumed, run

PROBS = "private/student-probs.npz"
SIGMA, CHECK_SIGMA = 3.0, 6.0  # of `runs.making`
FEW = {"policy": {"high": 3.0, "low": 4.0}, "shares": {"high": 0.6, "low": 0.4}}
CONFIG = """
[data]
name = "digits"
public = 500
test = 300
[budgets]
policy = {high = 6.0, low = 20.0}
shares = {high = 0.6, low = 0.4}
[teachers]
model = "bayes"
number = 30
backend = "sequential"
[labelling]
aggregator = "interactive"
sigma = 3.0
check_sigma = 6.0
threshold = 12.0
min_labels = 10
[student]
model = "MODEL"
"""


def asked(**more):
    return {"labelling": {"aggregator": "interactive", **more}}


def charges(path):
    folder = RunFolder.open(path)
    with SqliteLedger.read(ledger_path(folder), folder.id) as ledger:
        return ledger.charges


def epsilon_of(mu2, delta):
    """ε of the Gaussian trade-off μ, from its definition."""
    mu = np.sqrt(mu2)

    def excess(epsilon):
        inside = norm.cdf(-epsilon / mu + mu / 2) - np.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2)
        return inside - delta

    return brentq(excess, 0, 100)


@pytest.fixture(scope="module")
def seeded(tmp_path_factory):
    path = tmp_path_factory.mktemp("interactive") / "out"
    return run(path, seed=3, **asked()), path


def test_every_check_and_every_vote_label_is_charged(seeded):
    found, path = seeded
    record, entries = found.record, charges(path)
    answered = np.concatenate([entry.answered for entry in entries])
    queries = [query for entry in entries for query in entry.keys]
    assert len(queries) == len(set(queries)) == record.n_queries > record.n_labels + len(record.reinforced)
    assert int(answered.sum()) == record.n_labels
    assert record.n_labels + len(record.reinforced) == np.count_nonzero(record.labels >= 0)
    for group in record.groups:
        spent = record.n_queries / CHECK_SIGMA**2 + 2 * record.n_labels / SIGMA**2
        assert group.cost == pytest.approx(epsilon_of(group.weight**2 * spent, group.budget.delta), rel=1e-6)
        assert group.cost <= group.budget.epsilon


def test_reinforced_points_have_the_students_own_class(seeded):
    found, path = seeded
    record, first = found.record, found.settings.n_first
    with np.load(path / PROBS) as archive:
        probs = archive["probs"]
    assert probs.shape == (500, 10)
    assert len(record.reinforced) > 3
    assert not set(record.reinforced) & set(record.queries[:first])
    own = list(record.reinforced)
    assert np.all(probs[own].max(axis=1) > 0.9)
    np.testing.assert_array_equal(record.labels[own], probs[own].argmax(axis=1))
    flags = {
        query: flag
        for entry in charges(path)
        for query, flag in zip(entry.keys, unpack_arrays(entry.payload)["reinforced"], strict=True)
    }
    assert {int(query) for query, flag in flags.items() if flag} == set(own)
    stored = json.loads((path / "private" / "labelling.json").read_text())
    assert stored["reinforced"] == own


def test_files_tell_teachers_labels_from_own_classes(seeded):
    found, path = seeded
    record = found.record
    with (path / "private" / "labels.csv").open() as file:
        rows = list(csv.DictReader(file))
    kinds = Counter((row["answered"], row["reinforced"]) for row in rows)
    own = len(record.reinforced)
    assert (kinds["1", "0"], kinds["1", "1"], sum(kinds.values())) == (record.n_labels, own, record.n_queries)
    assert found.metrics["reinforced"] == own
    report = write_report(RunFolder.open(path), audience="private")
    text = " ".join(report.html.read_text().split())
    assert f"{own} more kept the class of a student that had learnt from released labels" in text
    assert f"{found.settings.n_first} points; then a student of their labels is compared with the votes" in text
    assert report.facts.outcome.reinforced == own
    assert sum(report.facts.outcome.by_class.values()) == record.n_labels
    card = " ".join((path / "private" / "student" / "README.md").read_text().split())
    assert f"{own} further points kept the class of a first student" in card
    assert not list((path / "public").iterdir())


def test_seeded_runs_of_interactive_are_equal(seeded, tmp_path):
    found, again = seeded[0].record, run(tmp_path / "out", seed=3, **asked()).record
    np.testing.assert_array_equal(found.labels, again.labels)
    assert (found.queries, found.reinforced) == (again.queries, again.reinforced)


@pytest.mark.parametrize("batch", [0, 5])
def test_interrupted_second_round_keeps_its_student(seeded, tmp_path, monkeypatch, batch):
    whole = seeded[0].record
    labelled = Teachers._label
    given = []

    def crash(self, run, votes, ledger, order, *, probs, **more):
        if probs is None:
            return labelled(self, run, votes, ledger, order, probs=None, **more)
        assert (tmp_path / "out" / PROBS).is_file()  # stored before anything is asked with them
        given.append(probs)
        if batch:
            labelled(self, run, votes, ledger, order[:batch], probs=probs, **more)
        raise KeyboardInterrupt

    monkeypatch.setattr(Teachers, "_label", crash)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out", seed=3, **asked())
    monkeypatch.undo()
    first = seeded[0].settings.n_first
    assert sum(len(entry.keys) for entry in charges(tmp_path / "out")) == first + batch
    monkeypatch.setattr(pipeline, "guess", None)  # no second student
    found = resumed(tmp_path / "out").record
    with np.load(tmp_path / "out" / PROBS) as archive:
        np.testing.assert_array_equal(archive["probs"], given[0])
    assert (found.queries, found.reinforced) == (whole.queries, whole.reinforced)
    np.testing.assert_array_equal(found.labels, whole.labels)
    asked_once = [query for entry in charges(tmp_path / "out") for query in entry.keys]
    assert len(asked_once) == len(set(asked_once)) == whole.n_queries


def test_resumed_run_reads_stored_probabilities(seeded, tmp_path, monkeypatch):
    guessed = pipeline.guess

    def crash(*args, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "guess", crash)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out", seed=3, **asked())
    monkeypatch.setattr(pipeline, "guess", guessed)
    write_npz(tmp_path / "out" / PROBS, {"probs": np.eye(10)[np.full(500, 7)]})
    found = resumed(tmp_path / "out").record
    assert found.reinforced
    assert set(found.labels[list(found.reinforced)]) == {7}
    np.testing.assert_array_equal(
        found.labels[list(found.queries[:6])], seeded[0].record.labels[list(found.queries[:6])]
    )


def test_single_class_continues_without_a_student(tmp_path):
    found = run(tmp_path / "out", seed=1, budgets=FEW, **asked())
    assert found.settings.n_first == 1
    with np.load(tmp_path / "out" / PROBS) as archive:
        assert archive["probs"].shape == (0, 10)
    assert found.record.n_queries > 1
    assert not found.record.reinforced
    plain = run(tmp_path / "plain", seed=1, budgets=FEW, labelling={"aggregator": "confident"}).record
    np.testing.assert_array_equal(found.record.labels, plain.labels)


def test_student_without_probabilities_is_refused_uncharged(tmp_path, capsys):
    folder = RunFolder.create(tmp_path / "out", config(student={"model": "sklearn.svm:LinearSVC"}, **asked()))
    with pytest.raises(InputError, match=r"student is 'sklearn.svm:LinearSVC': it has no probabilities.*logistic"):
        execute(folder, bar=quiet)
    assert not (folder.private / "votes").exists()
    assert not (folder.private / "ledger.sqlite").exists()
    (tmp_path / "run.toml").write_text(CONFIG.replace("MODEL", "sklearn.svm:LinearSVC"))
    assert _run(["run", str(tmp_path / "run.toml"), "--out", str(tmp_path / "cli")]) == 2
    assert "the aggregator confident" in capsys.readouterr().err
    assert not (tmp_path / "cli").exists()


@pytest.mark.parametrize(("model", "code"), [("sklearn.svm:LinearSVC", 2), ("bayes", 0)])
def test_dry_run_refuses_student_without_probabilities(tmp_path, capsys, model, code):
    (tmp_path / "run.toml").write_text(CONFIG.replace("MODEL", model))
    assert _run(["run", str(tmp_path / "run.toml"), "--out", str(tmp_path / "out"), "--dry-run"]) == code
    assert (f"student is '{model}': it has no probabilities (predict_proba)" in capsys.readouterr().err) == (code == 2)


def test_releasable_run_publishes_what_checks_its_costs(tmp_path, capsys):
    (tmp_path / "run.toml").write_text(CONFIG.replace("MODEL", "bayes"))
    assert _run(["run", str(tmp_path / "run.toml"), "--out", str(tmp_path / "out"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["publishable"]
    with (tmp_path / "out" / "public" / "labels.csv").open() as file:
        rows = list(csv.DictReader(file))
    own = sum(row.get("reinforced") == "1" for row in rows)
    paid = sum(row["answered"] == "1" for row in rows) - own
    assert (shown["queries"], shown["labels"], shown["reinforced"]) == (len(rows), paid, own)
    meter = Meter("gdp")
    for group in shown["groups"]:
        spent = group["weight"] ** 2 * (len(rows) / CHECK_SIGMA**2 + 2 * paid / SIGMA**2)
        assert group["epsilon"] == pytest.approx(meter.epsilon(np.array([spent]), group["delta"])[0], rel=1e-6)
    assert not list((tmp_path / "out" / "public").rglob("student-probs*"))
    assert _run(["audit", str(tmp_path / "out"), "--draws", "20000", "--confidence", "0.999999"]) == 0
    assert "compares the votes with a student in the run" in " ".join(capsys.readouterr().out.split())
    assert _run(["plan", str(tmp_path / "run.toml"), "--json"]) == 0


def test_interactive_is_refused_under_ptr(tmp_path):
    with pytest.raises(InputError, match="the test covers gnmax and confident, not interactive"):
        run(tmp_path / "out", reference={"accuracy": 0.8}, **asked(bound="ptr"))
