"""Runs and fits with Laplace noise (lnmax): what is charged, what is stated, and what is refused."""

import json
import re
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.dp_event import RandomizedResponseDpEvent, SelfComposedDpEvent
from dp_accounting.rdp import RdpAccountant
from scipy.optimize import brentq
from scipy.stats import norm
from sklearn.naive_bayes import GaussianNB

from ipate import PATEClassifier
from ipate.allocation.allocation import Allocation
from ipate.audit.auditing import audit
from ipate.config import RunConfig
from ipate.engines.teachers.aggregators import LNMax
from ipate.errors import InputError
from ipate.report.exports import group_events
from ipate.report.registry import as_yaml, model_card, registry_record
from ipate.runs.folder import RunFolder
from ipate.runs.ledgers import reading
from ipate.runs.reporting import write_report
from ipate.runs.statements import state
from ipate.runs.task import request_of
from ipate.runs.withdrawal import withdraw
from runs import making

SCALE = 8.0
LAPLACE = {"sigma": "auto", "check_sigma": "auto", "threshold": "auto", "aggregator": "lnmax", "scale": SCALE}
BOUNDS = ("gdp", "loose", "tight")
FALSE = re.compile(r"Gaussian noise|GaussianDpEvent|Gaussian mechanism|N\(0|σ\s*=|σ_T|noise of labels σ")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run under every bound that prices Laplace noise, each with its summary."""
    home = tmp_path_factory.mktemp("laplace")
    return {bound: (home / bound, making.run(home / bound, labelling={**LAPLACE, "bound": bound})) for bound in BOUNDS}


def priced(bound, *, labels, moved, scale, delta, order=None):
    """ε of labels with Laplace noise, without ipate: each is pure DP with ε₀ = 2Δ/b and costs what the worst does."""
    pure = 2 * moved / scale
    if bound == "loose":  # randomised response, by dp_accounting
        found = RdpAccountant([order], NeighboringRelation.REPLACE_ONE)
        found.compose(SelfComposedDpEvent(RandomizedResponseDpEvent(2 / (1 + np.exp(pure)), 2), labels))
        return found.get_epsilon(delta)
    mu = np.sqrt(labels) * 2 * norm.ppf(np.exp(pure) / (1 + np.exp(pure)))
    return brentq(lambda e: norm.cdf(mu / 2 - e / mu) - np.exp(e) * norm.cdf(-mu / 2 - e / mu) - delta, 0, 100)


@pytest.mark.parametrize("bound", ["gdp", "loose"])
def test_charges_are_those_of_laplace_noise(runs, bound):
    path, summary = runs[bound]
    facts = write_report(path).facts
    assert summary.record.kind == "releasable"
    assert summary.record.n_labels == summary.record.n_queries > 10
    for group in summary.record.groups:
        order = facts.parameters.orders.get(group.id)
        expected = priced(
            bound,
            labels=summary.record.n_labels,
            moved=group.sensitivity,
            scale=SCALE,
            delta=group.budget.delta,
            order=order,
        )
        assert group.cost == pytest.approx(expected, rel=1e-6)
        assert 0 < group.cost <= group.budget.epsilon
    assert max(group.used for group in summary.record.groups) > 0.8  # and the run stops for want of budget
    charged = {(draw.noise, draw.sigma) for charge in _charges(path) for draw in charge.draws}
    assert charged == {("laplace", SCALE)}


def test_tight_costs_of_laplace_noise_stay_private(runs):
    path, summary = runs["tight"]
    assert summary.record.kind == "private"
    assert all(group.cost <= group.budget.epsilon for group in summary.record.groups)
    assert not (path / "public" / "labels.csv").exists()
    assert write_report(path).facts.released is None


@pytest.mark.parametrize("bound", BOUNDS)
def test_documents_state_laplace_noise_and_no_gaussian(runs, bound):
    path, summary = runs[bound]
    report = write_report(path, audience="public" if summary.record.publishable else "private")
    shown = path / ("public" if summary.record.publishable else "private")
    texts = {name: (shown / "student" / name).read_text() for name in ("student.json", "README.md")}
    texts |= {"html": report.html.read_text(), "json": report.json.read_text()}
    if summary.record.publishable:
        record = registry_record(report.facts)
        texts["registry"] = as_yaml(record)
        texts["card"] = model_card(report.facts, json.loads(texts["student.json"]))
        assert "Laplace noise with scale 8 " in record["deployment"]["implementation"]["mechanisms"]
    for name, text in texts.items():
        assert "aplace" in text, name
        assert FALSE.search(text) is None, (name, FALSE.search(text))
    stated = json.loads(texts["json"])["publishable"]["parameters"]
    assert (stated["laplace_scale"], stated["sigma"], stated["check_sigma"]) == (SCALE, None, None)
    made = json.loads(texts["student.json"])["made"]
    assert (made["laplace_scale"], made["sigma"]) == (SCALE, None)
    assert "Laplace noise with scale b = 8" in texts["html"]


@pytest.mark.parametrize("bound", ["gdp", "loose"])
def test_program_and_events_agree_with_laplace_costs(runs, bound):
    path, summary = runs[bound]
    report, known = write_report(path), {}
    with redirect_stdout(StringIO()):
        exec(json.loads(report.json.read_text())["publishable"]["guarantee"]["program"], known)
    events = {entry.group: entry for entry in group_events(report.facts)}
    for group in summary.record.groups:
        assert known["costs"][group.id] == pytest.approx(group.cost, rel=1e-9)
        ((noise, multiplier, number),) = events[group.id].releases
        assert (noise, number) == ("laplace", summary.record.n_labels)
        assert multiplier == pytest.approx(SCALE / (2 * group.sensitivity))
        assert 0.4 * group.cost < events[group.id].recomputed() <= group.cost
    assert "LaplaceDpEvent" in str(report.events())


def test_audit_measures_the_scale_of_laplace_noise(runs, monkeypatch):
    path, _ = runs["loose"]
    found = audit(path, draws=20_000)
    assert not found.found
    (measured,) = found.noise
    assert (measured.noise, measured.stated) == ("laplace", SCALE)
    assert SCALE < measured.most < 1.1 * SCALE
    assert all(0.3 * attack.charged < attack.reached for group in found.groups for attack in group.attacks)
    drawn = LNMax.label_noise
    for part, seen in ((2, False), (3, True)):
        monkeypatch.setattr(LNMax, "label_noise", lambda self, *args, part=part: drawn(self, *args) / part)
        assert audit(path, draws=20_000).found == seen


def test_withdrawal_and_resume_keep_the_laplace_noise(tmp_path):
    making.run(tmp_path / "run", labelling={**LAPLACE, "max_labels": 5, "stop": "count"})
    folder = RunFolder.open(tmp_path / "run")
    allocation = Allocation.load(folder.private / "allocation.npz")
    person = str(allocation.people.ids[0])
    statement = state(folder, person)
    assert (statement.labels, statement.checks) == (5, 0)
    withdraw(folder, allocation, person)
    summary = making.resumed(tmp_path / "run")
    assert summary.settings.aggregator().mechanism.noise == "laplace"
    assert write_report(tmp_path / "run").facts.withdrawn == 1


def test_gaussian_and_laplace_runs_add_up_on_a_ledger(tmp_path):
    count = {"stop": "count", "max_labels": 5}
    gaussian = {"aggregator": "gnmax", "sigma": 20.0, "check_sigma": "auto", "threshold": "auto"}
    making.run(tmp_path / "first", ledger=tmp_path / "ledger.sqlite", labelling={**gaussian, **count})
    laplace = {**LAPLACE, **count, "max_labels": 10, "scale": 30.0}
    summary = making.run(tmp_path / "second", ledger=tmp_path / "ledger.sqlite", labelling=laplace)
    report, known = write_report(tmp_path / "second"), {}
    with redirect_stdout(StringIO()):
        exec(json.loads(report.json.read_text())["publishable"]["guarantee"]["program"], known)
    fresh = sum(1 for charge in _charges(tmp_path / "second") for _ in charge.keys)
    assert 0 < fresh <= 10  # answers of the first run are free
    for group in summary.record.groups:
        worst = norm.ppf(1 / (1 + np.exp(-2 * group.sensitivity / 30)))
        mu = np.sqrt(5 * 2 * (group.sensitivity / 20) ** 2 + fresh * 4 * worst**2)
        found = norm.cdf(mu / 2 - group.cost / mu) - np.exp(group.cost) * norm.cdf(-mu / 2 - group.cost / mu)
        assert found == pytest.approx(group.budget.delta, rel=1e-6)
        assert known["costs"][group.id] == pytest.approx(group.cost, rel=1e-9)
        (entry,) = (entry for entry in group_events(report.facts) if entry.group == group.id)
        assert [noise for noise, _, _ in entry.releases] == ["gaussian", "laplace"]
        assert entry.recomputed() <= group.cost


def _charges(path):
    folder = RunFolder.open(path)
    with reading(folder) as ledger:
        return ledger.charges


def task(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    return rng.normal(size=(n, 2)) + 3 * y[:, None], y


def fitted(**options):
    X, y = task(1500, 0)
    budgets = np.where(np.arange(1500) % 3, 5.0, 12.0)
    model = PATEClassifier(
        GaussianNB(), GaussianNB(), classes=[0, 1], random_state=0, noise_seed=1, verbose=0, **options
    )
    return model.fit(X, y, budgets=budgets, X_public=task(300, 1)[0])


@pytest.mark.parametrize("options", [{"aggregator": "lnmax"}, {"scale": 12.0, "bound": "loose"}])
@pytest.mark.parametrize("variant", ["weighting", "upsampling", "vanishing"])
def test_classifier_with_laplace_noise_keeps_budgets(options, variant):
    model = fitted(variant=variant, **options)
    mechanism = model.choice_.aggregator(model.allocation_.scale).mechanism
    assert (mechanism.noise, model.choice_.sigma) == ("laplace", None)
    assert (model.labels_ >= 0).sum() > 2
    assert all(0 < group.cost <= group.budget.epsilon for group in model.guarantees_)
    if variant == "vanishing":  # every teacher has its own account
        return
    for group in model.guarantees_:
        (order,) = model.ledger_.terms[group.id].meter.orders if "bound" in options else (None,)
        expected = priced(
            options.get("bound", "gdp"),
            labels=model.labelling_.n_labels,
            moved=group.sensitivity,
            scale=mechanism.sigma,
            delta=group.budget.delta,
            order=order,
        )
        assert group.cost == pytest.approx(expected, rel=1e-6)


REFUSED = [
    ({"scale": 8.0, "sigma": 3.0}, "scale is 8.0 and sigma is 3.0: a scale is for Laplace noise"),
    ({"scale": 8.0, "check_sigma": 3.0}, "scale is 8.0 and check_sigma is 3.0"),
    ({"aggregator": "lnmax", "scale": 8.0, "threshold": 9.0}, "scale is 8.0 and threshold is 9.0"),
    ({"aggregator": "lnmax", "sigma": 3.0}, "sigma is 3.0: lnmax has no Gaussian noise; give scale"),
    ({"aggregator": "lnmax", "threshold": 9.0}, "threshold is 9.0: lnmax has no check"),
    ({"aggregator": "confident", "scale": 8.0}, "scale is 8.0: confident has no Laplace noise; give sigma"),
    ({"scale": 8.0, "counts": True}, "counts is True: lnmax has no vector of counts"),
    ({"scale": 8.0, "bound": "sup"}, "bound is 'sup': laplace noise .* is accounted by loose, gdp, tight"),
    ({"scale": 8.0, "bound": "exact"}, "bound is 'exact': laplace noise"),
    (
        {"scale": 8.0, "bound": "ptr", "reference": 0.9},
        "bound is 'ptr': .* and confident, not lnmax",
    ),
    ({"scale": 8.0, "voting": "ballots"}, "scale is 8.0: it is for teachers"),
    ({"scale": -1.0}, "scale is -1.0: it must be a finite number above 0"),
    ({"scale": "wide"}, "scale is 'wide': it must be a number or 'auto'"),
    ({"aggregator": "lnmax", "scale": None}, "scale is None: it must be a number or 'auto'"),
]


@pytest.mark.parametrize(("options", "words"), REFUSED, ids=[words[:40] for _, words in REFUSED])
def test_options_that_laplace_noise_lacks_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        fitted(**options)


def test_configuration_takes_the_scale_of_laplace_noise():
    read = RunConfig.from_mapping({**making.SMALL, "labelling": {"scale": 5.0}})
    assert request_of(read).teachers.scale == 5.0
    for wrong in (0.0, "wide"):
        with pytest.raises(InputError, match="scale"):
            RunConfig.from_mapping({**making.SMALL, "labelling": {"scale": wrong}})


def test_command_runs_with_laplace_noise(tmp_path):
    (tmp_path / "run.toml").write_text(
        '[data]\nname = "digits"\npublic = 500\ntest = 300\n[budgets]\nepsilon = 8.0\n'
        '[teachers]\nmodel = "bayes"\nnumber = 30\nbackend = "sequential"\n'
        '[labelling]\naggregator = "lnmax"\nbound = "loose"\n[student]\nmodel = "bayes"\n'
    )
    command = [sys.executable, "-m", "ipate", "run", "run.toml", "--out", "made", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    public = json.loads(done.stdout)["publishable"]
    assert "Laplace noise with b = " in public["reason"]
    assert (public["guarantee"], public["sigma"], public["bound"]) == ("releasable", None, "loose")
    (group,) = public["groups"]
    assert public["laplace_scale"] > 0
    assert 0 < group["epsilon"] <= group["budget"]
    (tmp_path / "run.toml").write_text((tmp_path / "run.toml").read_text().replace('"loose"', '"sup"'))
    command[-2] = "other"
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, (tmp_path / "other").exists()) == (2, False)
    assert "bound is 'sup': laplace noise (LNMax) is accounted by loose, gdp, tight" in done.stderr
