"""The strong teachers of `beyond`: the paper's student, and ipate's two, in one table from kept results."""

import math
from dataclasses import replace

import numpy as np
import pytest

from ipate.accounting.gdp import mu_of
from ipate.data import load
from ipate.engines.teachers.loop import label
from ipate.engines.teachers.votes import Votes
from paper.accounts import beyond
from paper.experiments import DELTA, SETUPS
from paper.grid import Options
from paper.jobs import PendingError, Result, read_job, read_result, write_result
from paper.models import Ensemble, EnsembleSpec, TrainedModels, split
from paper.strong import PAIRS, STRONG, own_students, strong_teachers
from paper.voting import by_rule, voting_noise

ONCE = Options(ensembles=1, votings=1)


class Tiny(TrainedModels):
    """The digits that come with scikit-learn, with made-up votes of as many teachers as a setup has."""

    def dataset(self, name):
        return self._data.setdefault("digits", load("digits"))

    def partition(self, setup, replicate):
        public = 270 if setup.name in STRONG or setup.name == "mnist" else 40
        return split(replace(setup, public=public, test=100), self.dataset("mnist"), seed=replicate)

    def require(self, specs):
        pass

    def ensembles(self, specs):
        return [self.ensemble(spec) for spec in specs]

    def ensemble(self, spec):
        setup, rng = SETUPS[spec.setup], np.random.default_rng(spec.replicate)
        public = self.partition(setup, spec.replicate).public
        truth = self.dataset("mnist").y[public]
        wrong = rng.random((setup.n_teachers, len(truth))) < 0.2
        votes = np.where(wrong, rng.integers(0, 10, wrong.shape), truth).astype(np.uint8)
        return Ensemble(spec=spec, votes=votes, truth=truth, public=public)


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    """Do as if this machine had no GPU."""
    monkeypatch.setattr("paper.models.has_gpu", lambda: False)


@pytest.fixture(scope="module")
def pending(tmp_path_factory):
    """The job files that a first call writes."""
    folder = tmp_path_factory.mktemp("jobs")
    with pytest.raises(PendingError):
        strong_teachers(Tiny(cache=folder / "none", jobs=folder), ONCE)
    return [read_job(path) for path in sorted(folder.glob("*.job.npz"))]


def keep(jobs, cache, *, wrong):
    """Store made-up predictions of students: the first ones of the test points are wrong."""
    truth = Tiny(cache=cache).dataset("mnist").y
    for job in jobs:
        own = truth[job.asked]
        predicted = own[job.pool].copy()
        predicted[:, :wrong] = (predicted[:, :wrong] + 1) % 10
        write_result(job, Result(predicted=predicted, truth=own, meta={}), cache)


def column(table, name):
    place = list(table.columns).index(name)
    return {row: cells[place] for row, cells in table.rows}


def means(table, name):
    return [cell.ours.mean for cell in column(table, name).values()]


def kept_graph(cache, setup):
    """Return the accuracies of a setup's graph students in the cache, in the order of the settings."""
    models = Tiny(cache=cache)
    own = own_students(models, models.ensembles([EnsembleSpec(setup=setup, replicate=0)]), ONCE)
    results = {s.setting: read_result(s.job, cache) for s in own if s.job.preset == "graph"}
    return [100 * float(np.mean(results[name].predicted == results[name].truth)) for name in PAIRS]


def of(jobs, preset, setup=""):
    return [job for job in jobs if job.preset == preset and job.name.startswith(setup)]


def test_semi_students_become_job_files(pending):
    names = [job.name for job in of(pending, "semi")]
    assert len(names) == len(set(names)) == len(STRONG) * len(PAIRS)
    assert "mnist-1000-semi-e0-v0-50atln8" in names
    assert of(pending, "paper-mnist")  # the paper's students are written by the same call
    assert not of(pending, "graph")  # they are trained here


def test_one_setup_alone_writes_its_jobs_only(tmp_path):
    with pytest.raises(PendingError) as error:
        strong_teachers(Tiny(cache=tmp_path, jobs=tmp_path / "jobs"), ONCE, setups=STRONG[:1])
    own = [name for name in error.value.jobs if "-semi-" in name]
    assert len(own) == len(PAIRS)
    assert all(name.startswith("mnist-1000-") for name in own)


def test_page_is_complete_from_kept_results(pending, tmp_path):
    keep(of(pending, "paper-mnist"), tmp_path, wrong=40)
    for setup, wrong in zip(STRONG, (10, 25), strict=True):
        keep(of(pending, "semi", setup), tmp_path, wrong=wrong)
    page = beyond(Tiny(cache=tmp_path), ONCE)
    tables = {table.title.split(" ")[0]: table for table in page.tables[-2:]}
    for thousands, semi in (("1,000", 90), ("2,000", 75)):
        table = tables[thousands]
        assert list(column(table, "student semi, %")) == list(PAIRS)
        assert means(table, "student, %") == pytest.approx([60] * 10)
        assert means(table, "student semi, %") == pytest.approx([semi] * 10)
        assert means(table, "student graph, %") == kept_graph(tmp_path, f"mnist-{thousands.replace(',', '')}")
        assert min(means(table, "student graph, %")) > 75  # really trained, on digits
        assert not any("are trained" in note for note in table.all_notes)
    asked = {job.name: job.asking.queries for job in of(pending, "semi", "mnist-1000")}
    shown = column(tables["1,000"], "labels of semi")
    assert shown["25% at ln 4"] == str(asked["mnist-1000-semi-e0-v0-25atln4"])
    assert any("student semi: 90.00 to 90.00%" in finding for finding in page.findings)
    assert any("student graph:" in finding for finding in page.findings)


def test_missing_semi_students_leave_dashes(pending, tmp_path):
    keep(of(pending, "paper-mnist"), tmp_path, wrong=40)
    keep(of(pending, "semi", "mnist-1000")[:3], tmp_path, wrong=10)
    (some, none), findings = strong_teachers(Tiny(cache=tmp_path), ONCE)
    assert sum(not math.isnan(mean) for mean in means(some, "student semi, %")) == 3
    assert all(cell.text() == "–" for cell in column(none, "student semi, %").values())
    assert "semi: 3 of 10 students are trained" in some.all_notes[-1]
    assert "semi: 0 of 10 students are trained" in none.all_notes[-1]
    assert not any("student semi" in finding for finding in findings)
    assert min(means(none, "student graph, %")) > 75


def test_graph_results_are_kept_by_their_counts(tmp_path):
    spec = EnsembleSpec(setup="mnist-1000", replicate=0)
    models = Tiny(cache=tmp_path)
    own = [student.job for student in own_students(models, models.ensembles([spec]), ONCE)]
    job = of(own, "graph")[0]
    (first,) = models.accuracies([job])
    keep([job], tmp_path, wrong=50)
    assert models.accuracies([job]) == [50]  # from the cache
    assert models.accuracies([replace(job, counts=-job.counts)]) != [50]  # of other counts it is none
    assert models.accuracies([job]) == [first]  # and has been replaced


def test_own_students_spend_no_more_than_budgets(tmp_path):
    models = Tiny(cache=tmp_path)
    (ensemble,) = models.ensembles([EnsembleSpec(setup="mnist-1000", replicate=1)])
    for student in own_students(models, [ensemble], ONCE):
        job, given = student.job, PAIRS[student.setting]
        panel = by_rule(ensemble, given, rule="gdp").panel
        sigma = panel.total_weight / job.asking.signal
        spent = [2 * student.queries * group.sensitivity**2 / sigma**2 for group in panel.groups]
        allowed = [mu_of(group.epsilon, DELTA) ** 2 for group in panel.groups]
        ratios = np.divide(spent, allowed)
        assert max(ratios) <= 1
        assert max(ratios) > 0.999  # the whole budget, for the strictest ratio
        noise = job.counts / 8 - panel.tally(ensemble.votes, 10).counts / sigma
        assert noise.std() == pytest.approx(1, abs=0.05)
        assert noise.mean() == pytest.approx(0, abs=0.1)


def test_counts_are_those_of_the_labelling_loop(tmp_path):
    from ipate.engines.teachers.aggregators import build_aggregator
    from paper.strong import GDP

    models = Tiny(cache=tmp_path)
    (ensemble,) = models.ensembles([EnsembleSpec(setup="mnist-1000", replicate=0)])
    student = next(s for s in own_students(models, [ensemble], ONCE) if s.setting == "50% at ln 8")
    panel = by_rule(ensemble, PAIRS[student.setting], rule="gdp").panel
    aggregator = build_aggregator("gnmax", sigma=panel.total_weight / student.job.asking.signal, counts=True)
    votes = Votes(votes=ensemble.votes, n_classes=10, queries=tuple(map(str, range(len(ensemble.truth)))))
    order = np.random.default_rng(0).permutation(len(ensemble.truth))
    done = label(votes, panel, aggregator, GDP, order=order, noise=voting_noise(ensemble, 0))
    assert len(done.queries) == student.queries  # the budgets end after as many
    np.testing.assert_array_equal(done.noisy_votes, student.job.counts[done.queries])
