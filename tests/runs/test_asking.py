"""Which points are asked: a few for students that spread labels, in two rounds, charged like all others."""

import numpy as np
import pytest

from choosing import choose_settings
from ipate import PATEClassifier
from ipate.config import RunConfig
from ipate.engines.teachers import asking
from ipate.errors import InputError
from ipate.ledger.sqlite import SqliteLedger
from ipate.people.budgets import Budget, Group
from ipate.release.answers import paid_answers
from ipate.runs.folder import RunFolder
from ipate.runs.ledgers import ledger_path
from ipate.runs.stages import execute
from ipate.runs.store import FolderStore
from ipate.students.student import find_student
from runs.making import quiet

GRAPH = {
    "data": {"name": "digits", "public": 600, "test": 300},
    "budgets": {"policy": {"high": 4.0, "low": 8.0}, "shares": {"high": 0.6, "low": 0.4}},
    "teachers": {"model": "bayes", "number": 30, "backend": "sequential"},
    "student": {"model": "graph"},
}


def config(**more):
    return RunConfig.from_mapping({**GRAPH, **more})


def run(path, **more):
    return execute(RunFolder.create(path, config(**more)), bar=quiet)


def test_graph_student_gets_few_labels_with_counts(tmp_path):
    found = run(tmp_path / "out")
    settings, record = found.settings, found.record
    assert (settings.queries, settings.counts, settings.check_sigma) == ("coverage", True, None)
    assert record.n_queries == record.n_labels == settings.n_queries == 60  # six per class
    for group in record.groups:
        assert 0.95 * group.budget.epsilon < group.cost <= group.budget.epsilon
    public = tmp_path / "out" / "public"
    with np.load(public / "counts.npz") as archive:
        assert archive["counts"].shape == (60, 10)
        np.testing.assert_array_equal(archive["counts"].argmax(axis=1), archive["labels"])
    with np.load(tmp_path / "out" / "queries.npz") as archive:
        stored = archive["queries"].tolist()
    assert list(record.queries[: len(stored)]) == stored
    assert len(stored) == 45  # three quarters
    text = " ".join((public / "report.html").read_text().split())
    assert "the labels and their noisy counts" in text
    assert "coverage, 60 at most" in text


def test_second_round_of_seeded_run_stays_private(tmp_path):
    found = run(tmp_path / "out", seed=3)
    with np.load(tmp_path / "out" / "private" / "queries-later.npz") as archive:
        assert list(found.record.queries[45:]) == archive["queries"].tolist()
    names = {path.name for path in (tmp_path / "out").iterdir()} - {"private", "public"}
    assert names == {".lock", "config.json", "data.json", "queries.npz", "run.json", "settings.json"}
    assert not list((tmp_path / "out" / "public").iterdir())


def test_interrupted_second_round_is_charged_once(tmp_path, monkeypatch):
    whole = run(tmp_path / "whole", seed=3)
    folder = RunFolder.create(tmp_path / "out", config(seed=3))

    def crash(store, name, make, **public):
        if name == "queries-later":
            raise KeyboardInterrupt
        return kept(store, name, make, **public)

    kept = FolderStore.once
    monkeypatch.setattr(FolderStore, "once", crash)
    with pytest.raises(KeyboardInterrupt):
        execute(folder, bar=quiet)
    monkeypatch.undo()
    with SqliteLedger.read(ledger_path(folder), folder.id) as ledger:
        assert len(paid_answers(ledger).answers) == 45
    found = execute(RunFolder.open(folder.path), bar=quiet)
    assert found.record.queries == whole.record.queries
    np.testing.assert_array_equal(found.record.labels, whole.record.labels)
    np.testing.assert_array_equal(found.record.noisy_votes, whole.record.noisy_votes)
    with SqliteLedger.read(ledger_path(folder), folder.id) as ledger:
        charged = [query for charge in ledger.charges for query in charge.keys]
    assert len(charged) == len(set(charged)) == 60


def test_second_round_depends_on_released_labels_only():
    rng = np.random.default_rng(0)
    pool = rng.standard_normal((300, 4))
    settings = choose_settings(
        groups=[Group(id="a", budget=Budget(4.0, 1e-5), people=2000)],
        n_public=300,
        n_classes=3,
        student=find_student("graph"),
    )
    plan = asking.plan_queries(pool, settings, n_classes=3, seed=1)
    again = asking.plan_queries(pool, settings, n_classes=3, seed=1)
    np.testing.assert_array_equal(plan.first, again.first)
    assert plan.later == (len(plan.first) + plan.later) // 4
    asked = []

    def label(order, answers):
        asked.append(order)
        return made_labelling(order, answers[order])

    for answers in (np.zeros(300, dtype=int), np.arange(300) % 3, np.zeros(300, dtype=int)):
        asking.ask(plan, lambda order, after=None, own=answers: label(order, own), n_classes=3, total_weight=10.0)
    np.testing.assert_array_equal(asked[1], asked[5])
    assert not set(asked[1].tolist()) & set(plan.first.tolist())


def made_labelling(order, labels):
    from ipate.accounting.bounds import Meter
    from ipate.release.results import Labelling, state_guarantee

    n = len(order)
    return Labelling(
        queries=np.asarray(order),
        labels=labels,
        answered=np.ones(n, bool),
        reinforced=np.zeros(n, bool),
        repeated=np.zeros(n, bool),
        stopped_by="pool",
        guarantee=state_guarantee(Meter("gdp")),
        seeded=True,
        meter=Meter("gdp"),
        groups=(),
    )


@pytest.mark.parametrize(("n_public", "n_classes", "epsilon"), [(90, 2, 0.1), (900, 10, 1.0), (9000, 10, 3.0)])
def test_few_labels_spend_the_budget_within_limits(n_public, n_classes, epsilon):
    groups = [
        Group(id="a", budget=Budget(epsilon, 1e-6), people=30_000),
        Group(id="b", budget=Budget(2 * epsilon, 1e-6), people=9000),
    ]
    found = choose_settings(groups=groups, n_public=n_public, n_classes=n_classes, student=find_student("graph"))
    assert n_classes <= found.n_queries <= max(n_classes, n_public // 9)
    for variant in ("weighting", "standard", "upsampling", "vanishing"):
        own = choose_settings(
            groups=groups, n_public=n_public, n_classes=n_classes, variant=variant, student=find_student("graph")
        )
        assert own.counts
        assert own.check_sigma is None


def test_other_students_keep_their_settings():
    facts = {"groups": [Group(id="a", budget=Budget(1.0, 1e-5), people=6000)], "n_public": 500, "n_classes": 3}
    found = choose_settings(**facts, student=find_student("logistic"))
    assert found == choose_settings(**facts)
    assert (found.queries, found.counts, found.n_queries) == ("random", False, None)


def test_counts_are_refused_under_other_bounds(tmp_path):
    with pytest.raises(InputError, match="counts"):
        run(tmp_path / "out", labelling={"bound": "sup", "counts": True})
    found = choose_settings(
        groups=[Group(id="a", budget=Budget(1.0, 1e-5), people=6000)],
        n_public=500,
        n_classes=3,
        bound="sup",
        student=find_student("graph"),
    )
    assert not found.counts
    with pytest.raises(InputError, match="nearest is 'coverage'"):
        choose_settings(
            groups=[Group(id="a", budget=Budget(1.0, 1e-5), people=6000)], n_public=500, n_classes=3, queries="cover"
        )


def test_classifier_with_graph_student_has_noisy_votes():
    rng = np.random.default_rng(1)
    y, y_pool = rng.integers(0, 3, 3000), rng.integers(0, 3, 500)
    centres = 5 * np.eye(3, 4)
    X, pool = (centres[own] + rng.standard_normal((len(own), 4)) for own in (y, y_pool))
    options = {"classes": [0, 1, 2], "epsilon": 2.0, "random_state": 0, "verbose": 0}
    model = PATEClassifier(student="graph", **options).fit(X, y, X_public=pool, y_public=y_pool)
    labelled = model.labels_ >= 0
    assert labelled.sum() == model.choice_.n_queries
    assert model.noisy_votes_.shape == (500, 3)
    np.testing.assert_array_equal(model.noisy_votes_[labelled].argmax(axis=1), model.labels_[labelled])
    assert not model.noisy_votes_[~labelled].any()
    assert model.score(X, y) > 0.95
    assert all(group.cost <= group.budget.epsilon for group in model.guarantees_)
    weighted = PATEClassifier(counts=True, **options).fit(X, y, X_public=pool)
    assert weighted.noisy_votes_ is not None
    assert weighted.score(X, y) > 0.8
