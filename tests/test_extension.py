"""Extensions from outside the package: an object of one's own and one line that registers it are enough."""

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.semi_supervised import SelfTrainingClassifier

from blocks import flat
from imaginary import synthetic_votes
from ipate import Confident, Mechanism, Meter, Panel, PATEClassifier, account_for, label
from ipate.accounting.bounds import BOUNDS, find_bound, register
from ipate.accounting.gdp import Gdp
from ipate.allocation.layout import Layout
from ipate.cli.app import _run
from ipate.engines.teachers.aggregators import AGGREGATORS, NamedAggregator
from ipate.engines.teachers.influence import Variant
from ipate.engines.teachers.plan import make_plan
from ipate.engines.teachers.variants import VARIANTS, blocs_of
from ipate.errors import InputError
from ipate.people.budgets import Budget, Group
from ipate.release.noise import make_noise
from ipate.report.exports import recipe
from ipate.runs.folder import RunFolder
from ipate.runs.ledgers import reading
from ipate.runs.reporting import write_report
from ipate.students.deployed import load_student
from ipate.students.student import STUDENTS, Student


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
    assert found.guarantee.kind == "none"  # seeded
    assert found.n_labels < plain.n_labels
    assert np.array_equal(found.labels, plain.labels[: len(found.labels)])  # the same noise, fewer queries
    unit = dearer.worst_label(sensitivity=1.0, sigma=8.0)
    assert unit == pytest.approx(1.1 * Meter("gdp").worst_label(sensitivity=1.0, sigma=8.0))
    audits = [account_for(votes, panel, aggregator.mechanism, meter) for meter in (Meter("gdp"), dearer)]
    assert all(dear.cost > cheap.cost for cheap, dear in zip(*(audit.groups for audit in audits), strict=True))
    assert audits[1].guarantee.kind == "releasable"


@pytest.mark.parametrize("own", ["check_cost", "label_cost"])
def test_bound_with_own_price_of_a_query_is_charged_by_it(own):
    """A data-independent bound may price single queries above its worst case; labelling and audit follow it."""
    double = type(
        "Double", (Gdp,), {"name": "double", own: lambda *given, **more: 2 * getattr(Gdp, own)(*given, **more)}
    )
    register(double())
    try:
        votes = synthetic_votes(n_teachers=40, n_queries=20, n_classes=5)
        panel = Panel.from_votes(votes, [(group, 8.0, 1e-5, None) for group in sorted(set(votes.groups))])
        sure = Confident(mechanism=Mechanism(sigma=80.0, check_sigma=90.0, threshold=-1e6))
        for costs in (
            [label(votes, panel, sure, Meter(bound), noise=make_noise(1)).groups for bound in ("gdp", "double")],
            [account_for(votes, panel, sure.mechanism, Meter(bound)).groups for bound in ("gdp", "double")],
        ):
            assert all(dear.cost > 1.1 * plain.cost for plain, dear in zip(*costs, strict=True))
    finally:
        del BOUNDS["double"]


def test_registered_bound_plans_fewer_labels(dearer, tmp_path, capsys):
    groups = [Group(id="all", budget=Budget(1.0, 1e-5), people=60_000)]
    plans = [
        make_plan(groups=groups, n_teachers=250, mechanism=Mechanism(sigma=40.0), meter=meter)
        for meter in (Meter("gdp"), dearer)
    ]
    cheap, dear = (plan.variants[0].guaranteed[-1].labels for plan in plans)
    assert 0 < dear < cheap
    (tmp_path / "groups.csv").write_text("group,epsilon,people\nall,1.0,60000\n")
    asked = ["--groups", str(tmp_path / "groups.csv"), "--teachers", "250", "--bound", "dearer"]
    assert _run(["plan", *asked, "--json"]) == 0
    assert flat(json.loads(capsys.readouterr().out))["bound"] == "dearer"


def test_registered_bound_runs_to_report(dearer, tmp_path, capsys):
    config = tmp_path / "run.toml"
    config.write_text(
        '[data]\nname = "synthetic"\n[labelling]\nbound = "dearer"\n[teachers]\nnumber = 100\nn_jobs = 1\n'
    )
    run = tmp_path / "run"
    assert _run(["run", str(config), "--out", str(run), "--json"]) == 0
    payload = flat(json.loads(capsys.readouterr().out))
    assert payload["bound"] == "dearer"
    assert payload["guarantee"] == "releasable"
    with reading(RunFolder.open(run)) as ledger:
        assert {terms.meter for terms in ledger.terms.values()} == {dearer}
    written = write_report(run, audience="public")
    assert Dearer.summary in written.html.read_text(encoding="utf-8")
    space = {}
    exec(recipe(written.facts), space)
    spent = {paid.id: paid.cost for paid in written.facts.outcome.groups}
    assert space["costs"] == pytest.approx(spent)


def test_registered_bound_fits_the_classifier(dearer):
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=2000)
    X = rng.normal(size=(2000, 4)) + 3 * np.eye(3, 4)[y]
    model = PATEClassifier(
        teacher=LogisticRegression(),
        student=LogisticRegression(),
        classes=[0, 1, 2],
        bound="dearer",
        random_state=0,
        n_jobs=1,
        verbose=0,
    )
    model.fit(X[:1500], y[:1500], budgets=np.full(1500, 4.0), X_public=X[1500:])
    assert model.labelling_.meter == dearer
    assert model.guarantee_.kind == "releasable"


def test_bound_names_are_unique_and_misspellings_corrected(dearer):
    with pytest.raises(InputError, match="bound 'dearer' exists already"):
        register(Dearer())
    with pytest.raises(
        InputError, match=r"bound is 'deerer': allowed are .*dearer, module:attribute; nearest is 'dearer'"
    ):
        find_bound("deerer")


CONFIG = """
seed = 1
[data]
name = "digits"
public = 500
test = 300
[budgets]
policy = { high = 40.0, low = 80.0 }
shares = { high = 0.6, low = 0.4 }
[teachers]
model = "bayes"
number = 30
n_jobs = 1
[labelling]
sigma = 3.0
check_sigma = 6.0
threshold = 3.0
"""


class Apart(Variant):
    """Groups are kept apart and every vote counts 1, so that the strictest group ends the run."""

    name = "apart"
    summary = "groups apart, all votes alike"
    groups_can_leave = False
    influence = "share"
    influence_title = "share of the teachers"
    show_influence = "participation"
    report_note = "Groups are kept apart, and all votes count alike."

    def layout(self, *, groups, n_teachers, seed=0, label="equal"):
        """Lay out teachers of one group each, with equal weights."""
        blocs = blocs_of(groups=groups, n_teachers=n_teachers)
        return Layout(
            variant=self.name,
            rule=label,
            groups=blocs.groups,
            teachers=blocs.teachers,
            home=blocs.home,
            weights=np.ones(n_teachers),
            teacher_groups=blocs.teacher_groups,
            copies=blocs.copies,
        )

    def group_influence(self, layout):
        """Each group's share of the teachers."""
        return {name: number / layout.n_teachers for name, number in layout.teachers.items()}


class Majority(NamedAggregator):
    """A noisy label where the largest count is by T above half of all votes."""

    name = "majority"
    summary = "a label where a noisy check finds a majority"
    needs = ("sigma", "check_sigma", "threshold")

    def maxima(self, counts, *, total_weight, probs=None):
        """The votes above one half; the total weight is public."""
        return counts.max(axis=1) - total_weight / 2


class SelfTrained(Student):
    """A semi-supervised student: it labels further points of the pool by itself."""

    name = "self-trained"

    def make(self, options, *, seed=None, n_jobs=None):
        """Self-training around naive Bayes."""
        return SelfTrainingClassifier(GaussianNB(var_smoothing=1e-2), **options)

    def fit(self, model, pool, labels, *, n_classes, sample_weight=None, labelled=None):
        """Train on all points of the pool; −1 means 'no label' to scikit-learn too."""
        return model.fit(pool, labels)


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setitem(VARIANTS, Apart.name, Apart())
    monkeypatch.setitem(AGGREGATORS, Majority.name, Majority)
    monkeypatch.setitem(STUDENTS, SelfTrained.name, SelfTrained())


def configuration(tmp_path, **keys):
    path = tmp_path / "run.toml"
    own = {"variant": '"apart"', "aggregator": '"majority"', **keys}
    lines = "".join(f"{key} = {value}\n" for key, value in own.items())
    path.write_text(f'{CONFIG}{lines}[student]\nmodel = "self-trained"\n')
    return path


def task(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    return rng.normal(size=(n, 5)) + 2.5 * np.eye(3, 5)[y], y


def test_run_uses_registered_variant_aggregator_and_student(registered, tmp_path, capsys):
    assert _run(["run", str(configuration(tmp_path)), "--out", str(tmp_path / "out"), "--json"]) == 0
    summary = flat(json.loads(capsys.readouterr().out))
    assert summary["variant"] == "apart"
    assert summary["labels"] > 50
    assert summary["student_accuracy"] > 0.5
    assert all(group["epsilon"] <= group["budget"] for group in summary["groups"])
    student = load_student(tmp_path / "out")
    assert set(student.predict(np.zeros((2, 8, 8)))) <= set(student.classes_)
    kept = student.model.model  # it learnt class ids
    assert isinstance(kept, SelfTrainingClassifier)
    assert np.count_nonzero(kept.transduction_ >= 0) > summary["labels"]  # points without a label were used
    assert _run(["run", "--resume", str(tmp_path / "out"), "--json"]) == 0
    assert flat(json.loads(capsys.readouterr().out))["labels"] == summary["labels"]


def test_report_shows_registered_variant(registered, tmp_path, capsys):
    assert _run(["run", str(configuration(tmp_path)), "--out", str(tmp_path / "out")]) == 0
    for audience in ([], ["--private"]):
        page = tmp_path / "report.html"
        assert _run(["report", str(tmp_path / "out"), "--out", str(page), *audience]) == 0
        text = page.read_text()
        for part in ("apart, equal", 'data-label="share of the teachers">100.0%', Apart.report_note, "self-trained"):
            assert part in text
    capsys.readouterr()


def test_aggregator_decides_which_queries_are_answered(registered, tmp_path, capsys):
    labels = {}
    for name in ("majority", "confident", "gnmax"):
        out = tmp_path / name
        path = configuration(tmp_path, aggregator=f'"{name}"')
        check = "" if name == "gnmax" else "check_sigma = 6.0\nthreshold = 10.0\n"
        path.write_text(path.read_text().replace("check_sigma = 6.0\nthreshold = 3.0\n", check))
        assert _run(["run", str(path), "--out", str(out), "--json"]) == 0
        summary = flat(json.loads(capsys.readouterr().out))
        labels[name] = summary["labels"] / summary["queries"]
    assert labels["majority"] < labels["confident"] < labels["gnmax"] == 1.0


def test_classifier_uses_registered_variant_aggregator_and_student(registered):
    X, y = task(1500, 0)
    pool, _ = task(400, 1)
    model = PATEClassifier(
        LogisticRegression(),
        "self-trained",
        variant="apart",
        aggregator="majority",
        classes=[0, 1, 2],
        n_teachers=30,
        sigma=3.0,
        check_sigma=6.0,
        threshold=3.0,
        random_state=0,
        noise_seed=0,
        verbose=0,
    )
    model.fit(X, y, budgets=np.where(np.arange(1500) % 3, 40.0, 80.0), X_public=pool)
    assert isinstance(model.student_, SelfTrainingClassifier)
    assert model.allocation_.variant == "apart"
    assert isinstance(model.choice_.aggregator(), Majority)
    assert model.score(*task(500, 2)) > 0.6
    assert all(group.cost <= group.budget.epsilon for group in model.guarantees_)
    assert model.predict_proba(pool).shape == (400, 3)


def test_plan_lists_registered_variant_and_aggregator(registered, tmp_path, capsys):
    groups = [Group(id=n, budget=Budget(e, 1e-5), people=p) for n, e, p in (("a", 1.0, 3000), ("b", 3.0, 2000))]
    plan = make_plan(groups=groups, n_teachers=50, n_classes=10, mechanism=Mechanism(sigma=8.0))
    mine = next(variant for variant in plan.variants if variant.variant == "apart")
    assert {group.account.id: group.influence for group in mine.groups} == {"a": 0.6, "b": 0.4}
    assert {"apart", "standard"} <= set(plan.more[0].labels)
    path = tmp_path / "groups.csv"
    path.write_text("group,epsilon,people\na,1,3000\nb,3,2000\n")
    command = ["plan", "--groups", str(path), "--teachers", "50", "--aggregator", "majority", "--threshold", "5"]
    assert _run([*command, "--json"]) == 0
    found = {variant["variant"]: variant for variant in json.loads(capsys.readouterr().out)["variants"]}
    assert found["apart"]["threshold"] == 5
    assert found["apart"]["sigma"] == found["standard"]["sigma"] > 0
    assert found["apart"]["groups"][0]["share"] == 0.6


def test_label_command_uses_registered_aggregator(registered, tmp_path, capsys):
    rng = np.random.default_rng(0)
    votes = np.where(rng.random((40, 80)) < 0.9, rng.integers(3, size=80), rng.integers(3, size=(40, 80)))
    np.savez(tmp_path / "votes.npz", votes=votes, groups=np.repeat(["a", "b"], 20), classes=3)
    (tmp_path / "groups.csv").write_text("group,epsilon\na,5\nb,9\n")
    noise = ["--sigma", "4", "--check-sigma", "6", "--threshold", "3", "--aggregator", "majority"]
    given = [str(tmp_path / "votes.npz"), "--groups", str(tmp_path / "groups.csv"), *noise, "--json"]
    assert _run(["label", *given, "--out", str(tmp_path / "labels.csv"), "--seed", "1"]) == 0
    assert flat(json.loads(capsys.readouterr().out))["labels"] > 0
    assert _run(["account", *given]) == 0
    capsys.readouterr()
    assert _run(["label", *given, "--out", str(tmp_path / "more.csv"), "--variant", "apart"]) == 2
    assert "no rule for votes of teachers trained elsewhere" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "keys", "part"),
    [
        ("groups_can_leave", {"stop": '"drop"'}, "stop is 'drop' under apart"),
        ("takes_turns", {"bound": '"ptr"'}, "bound is 'ptr' with variant 'apart'"),
    ],
)
def test_flags_of_a_variant_are_respected(registered, monkeypatch, tmp_path, capsys, flag, keys, part):
    monkeypatch.setattr(Apart, flag, flag == "takes_turns")
    path = configuration(tmp_path, **keys)
    path.write_text(path.read_text() + ("[reference]\naccuracy = 0.8\n" if "bound" in keys else ""))
    assert _run(["run", str(path), "--out", str(tmp_path / "out")]) == 2
    assert part in capsys.readouterr().err


def test_untested_aggregator_is_refused_under_ptr(registered):
    X, y = task(600, 0)
    model = PATEClassifier(
        LogisticRegression(),
        aggregator="majority",
        variant="weighting",
        bound="ptr",
        reference=0.9,
        epsilon=8.0,
        classes=[0, 1, 2],
        n_teachers=20,
        sigma=3.0,
        check_sigma=6.0,
        threshold=3.0,
        random_state=0,
        verbose=0,
    )
    with pytest.raises(InputError, match="the test covers gnmax and confident, not majority"):
        model.fit(X, y, X_public=task(60, 1)[0])


def test_unknown_aggregator_is_refused():
    X, y = task(600, 0)
    with pytest.raises(InputError, match=r"aggregator is 'mean'.*allowed are auto, gnmax"):
        PATEClassifier(aggregator="mean", epsilon=1.0, classes=[0, 1, 2], verbose=0).fit(X, y, X_public=task(50, 1)[0])


def test_unregistered_names_are_refused_with_what_exists(tmp_path, capsys):
    for section, name in (("variant", "apart"), ("aggregator", "majority"), ("model", "self-trained")):
        text = configuration(tmp_path).read_text()
        for other, usual in (("apart", "weighting"), ("majority", "auto"), ("self-trained", "bayes")):
            text = text if other == name else text.replace(f'"{other}"', f'"{usual}"')
        (tmp_path / "run.toml").write_text(text)
        assert _run(["run", str(tmp_path / "run.toml"), "--out", str(tmp_path / section)]) == 2
        assert f"{section} is '{name}': allowed are" in capsys.readouterr().err


def test_scaled_aggregator_keeps_its_kind(registered):
    made = AGGREGATORS["majority"].build(sigma=3.0, check_sigma=6.0, threshold=3.0)
    assert made.scaled(2.0) == Majority(mechanism=replace(made.mechanism, sigma=6.0, check_sigma=12.0, threshold=6.0))


COUNTS = """
[data]
name = "synthetic"
[budgets]
policy = { high = 1.0, average = 2.0, low = 3.0 }
[labelling]
voting = "counting:Counts"
[student]
model = "bayes"
"""


def test_engine_from_outside_runs_plans_and_reports(tmp_path, capsys):
    config, out = tmp_path / "run.toml", tmp_path / "out"
    config.write_text(COUNTS)
    assert _run(["plan", str(config)]) == 0
    assert "plans do not cover this engine" in " ".join(capsys.readouterr().out.split())
    assert _run(["run", str(config), "--out", str(out), "--json"]) == 0
    summary = flat(json.loads(capsys.readouterr().out))
    assert (summary["engine"], summary["guarantee"], summary["labels"]) == ("counting:Counts", "releasable", 5000)
    assert all(0.99 < group["epsilon"] / group["budget"] <= 1 for group in summary["groups"])
    text = (out / "public" / "report.html").read_text()
    assert "From outside, not proven: engine counting:Counts" in text
    with reading(RunFolder.open(out)) as ledger:
        assert [charge.codec for charge in ledger.charges] == ["counts"]
        ledger.verify()
    assert _run(["run", "--resume", str(out), "--json"]) == 0
    assert flat(json.loads(capsys.readouterr().out))["groups"] == summary["groups"]
    assert _run(["audit", str(out)]) == 2
    assert "does not cover" in capsys.readouterr().err


def test_run_of_engine_from_outside_resumes_without_second_draw(tmp_path, capsys):
    config, out = tmp_path / "run.toml", tmp_path / "out"
    config.write_text(COUNTS)
    assert _run(["run", str(config), "--out", str(out), "--json"]) == 0
    before = (out / "public" / "labels.csv").read_text()
    (out / "private" / "labelling.json").unlink()
    (out / "private" / "metrics.json").unlink()
    assert _run(["run", "--resume", str(out), "--json"]) == 0
    assert (out / "public" / "labels.csv").read_text() == before
    with reading(RunFolder.open(out)) as ledger:
        assert len(ledger.charges) == 1


def test_classifier_uses_engine_from_outside():
    X, y = task(1500, 0)
    pool, _ = task(400, 1)
    model = PATEClassifier(student="bayes", voting="counting:Counts", classes=[0, 1, 2], verbose=0)
    model.fit(X, np.where(y == 2, 2, y % 2), budgets=np.where(np.arange(1500) % 3, 1.0, 2.0), X_public=pool)
    assert (model.labels_ == model.labels_[0]).all()
    assert model.guarantee_.kind == "releasable"
    assert all(0.99 < group.cost / group.budget.epsilon <= 1 for group in model.guarantees_)
