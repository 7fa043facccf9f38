"""Extensions from outside the package: an object of one's own and one line that registers it are enough."""

import json

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from imaginary import synthetic_votes
from ipate import Confident, Mechanism, Meter, Panel, PATEClassifier, account_for, label
from ipate.accounting.bounds import BOUNDS, find_bound, register
from ipate.accounting.gdp import Gdp
from ipate.cli.app import _run
from ipate.errors import InputError
from ipate.labelling.noise import make_noise
from ipate.people.budgets import Budget, Group
from ipate.planning.plan import make_plan
from ipate.report.recipe import recipe
from ipate.report.write import write_report
from ipate.runs.folder import RunFolder
from ipate.runs.ledgers import reading


class Dearer(Gdp):
    """Charges every release 1.1 times what gdp does."""

    name = "dearer"
    summary = "dearer: gdp with a surcharge of a tenth"
    recipe = ("1.1 * 2 * labels / sigma**2", "1.1 * queries / check_sigma**2")

    def worst_check(self, orders, **releases):
        return 1.1 * super().worst_check(orders, **releases)

    def worst_label(self, orders, **releases):
        return 1.1 * super().worst_label(orders, **releases)


@pytest.fixture
def dearer():
    register(Dearer())
    yield Meter("dearer")
    del BOUNDS["dearer"]


def test_registered_bound_prices_labels_and_audits(dearer):
    votes = synthetic_votes(n_teachers=40, n_queries=2000, n_classes=5)
    panel = Panel.from_votes(votes, [(group, 8.0, 1e-5, None) for group in sorted(set(votes.groups))])
    aggregator = Confident(mechanism=Mechanism(sigma=8.0, check_sigma=16.0, threshold=24.0))
    plain, found = (label(votes, panel, aggregator, meter, noise=make_noise(1)) for meter in (Meter("gdp"), dearer))
    assert found.guarantee.kind == "releasable"
    assert found.n_labels < plain.n_labels
    assert np.array_equal(found.labels, plain.labels[: len(found.labels)])  # the same noise, fewer queries
    unit = dearer.worst_label(sensitivity=1.0, sigma=8.0)
    assert unit == pytest.approx(1.1 * Meter("gdp").worst_label(sensitivity=1.0, sigma=8.0))
    audits = [account_for(votes, panel, aggregator.mechanism, meter) for meter in (Meter("gdp"), dearer)]
    assert all(dear.cost > cheap.cost for cheap, dear in zip(*(audit.groups for audit in audits), strict=True))
    assert audits[1].guarantee.kind == "releasable"


def test_registered_bound_plans_fewer_labels(dearer, tmp_path, capsys):
    groups = [Group(id="all", budget=Budget(1.0, 1e-5), people=60_000)]
    plans = [make_plan(groups=groups, n_teachers=250, meter=meter) for meter in (Meter("gdp"), dearer)]
    cheap, dear = (plan.variants[0].guaranteed[-1].labels for plan in plans)
    assert 0 < dear < cheap
    (tmp_path / "groups.csv").write_text("group,epsilon,people\nall,1.0,60000\n")
    asked = ["--groups", str(tmp_path / "groups.csv"), "--teachers", "250", "--bound", "dearer"]
    assert _run(["plan", *asked, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bound"] == "dearer"


def test_registered_bound_runs_to_report(dearer, tmp_path, capsys):
    config = tmp_path / "run.toml"
    config.write_text(
        '[data]\nname = "synthetic"\n[labelling]\nbound = "dearer"\n[teachers]\nnumber = 100\nn_jobs = 1\n'
    )
    run = tmp_path / "run"
    assert _run(["run", str(config), "--out", str(run), "--json"]) == 0
    payload = json.loads(capsys.readouterr().out)
    assert payload["bound"] == "dearer"
    assert payload["guarantee"] == "releasable"
    with reading(RunFolder.open(run)) as ledger:
        assert {terms.meter for terms in ledger.terms.values()} == {dearer}
    written = write_report(run, audience="public")
    assert Dearer.summary in written.html.read_text(encoding="utf-8")
    space = {}
    exec(recipe(written.facts), space)
    spent = {paid.group: paid.cost for paid in written.facts.outcome.spent}
    assert space["costs"] == pytest.approx(spent)


def test_registered_bound_fits_the_classifier(dearer):
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=2000)
    X = rng.normal(size=(2000, 4)) + 3 * np.eye(3, 4)[y]
    model = PATEClassifier(
        teacher=LogisticRegression(), student=LogisticRegression(), classes=[0, 1, 2], bound="dearer", random_state=0,
        n_jobs=1, verbose=0,
    )  # fmt: skip
    model.fit(X[:1500], y[:1500], budgets=np.full(1500, 4.0), X_public=X[1500:])
    assert model.labelling_.meter == dearer
    assert model.guarantee_.kind == "releasable"


def test_bound_names_are_unique_and_misspellings_corrected(dearer):
    with pytest.raises(InputError, match="bound 'dearer' exists already"):
        register(Dearer())
    with pytest.raises(InputError, match=r"bound is 'deerer': allowed are .*dearer; nearest is 'dearer'"):
        find_bound("deerer")
