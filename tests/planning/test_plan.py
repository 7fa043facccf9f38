"""Plans: guaranteed queries are affordable, one more is not, and costs are matched by id."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import typer
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

from allocation.cases import many_groups
from choosing import chosen_by_run
from ipate.accounting.bounds import Meter
from ipate.cli import plan as command
from ipate.cli.app import _run
from ipate.config import RunConfig
from ipate.engines.teachers import plan as planning
from ipate.engines.teachers.aggregators import Mechanism
from ipate.engines.teachers.plan import RATES, labels_in, plan_variant
from ipate.engines.teachers.variants import lay_out
from ipate.errors import InputError, ReproductionWarning
from ipate.parties.site import SiteOptions, _allocate_people
from ipate.people.budgets import Budget, Group, sizes_of
from ipate.people.policy import Policy
from ipate.runs.task import DEFAULT_POLICY

PAPER = [
    Group(id=name, budget=Budget(epsilon, 1e-5), people=people)
    for name, epsilon, people in (("low", 3.0, 5400), ("high", 1.0, 32400), ("mid", 2.0, 22200))
]


def paper_noise(k, *, check=True):
    """Return the noise of the paper's MNIST experiments, scaled from σ 40, σ_T 150, T 200 at 250 teachers."""
    return Mechanism(sigma=0.16 * k, **({"check_sigma": 0.6 * k, "threshold": 0.8 * k} if check else {}))


def make_plan(*, n_teachers, mechanism=None, **options):
    noise = mechanism or paper_noise(max(1, n_teachers))
    return planning.make_plan(n_teachers=n_teachers, mechanism=noise, **options)


def affordable(mu2, epsilon, delta):
    """Return whether a composed μ² is within (ε, δ), by the textbook formula instead of the library."""
    mu = math.sqrt(mu2)
    return ndtr(-epsilon / mu + mu / 2) - math.exp(epsilon) * ndtr(-epsilon / mu - mu / 2) <= delta


def spent(group, noise, queries, labels):
    check = 0 if noise.check_sigma is None else (group.account.sensitivity / noise.check_sigma) ** 2
    return queries * check + labels * 2 * (group.account.sensitivity / noise.sigma) ** 2


def test_plans_price_laplace_labels_by_their_scale():
    made = make_plan(groups=PAPER, n_teachers=250, mechanism=Mechanism(sigma=40.0, noise="laplace"), n_classes=10)
    for variant in made.variants:
        assert (variant.mechanism.noise, variant.facts()["sigma"]) == ("laplace", None)
        assert variant.facts()["laplace_scale"] == 40.0 * variant.layout.scale
        for group in variant.groups if variant.variant != "vanishing" else ():
            account, n = group.account, group.queries[-1]
            pure = 2 * account.sensitivity / variant.mechanism.sigma
            mu2 = (2 * ndtri(math.exp(pure) / (1 + math.exp(pure)))) ** 2
            assert affordable(n * mu2, account.epsilon, account.delta)
            assert not affordable((n + 1) * mu2, account.epsilon, account.delta)
    rng = np.random.default_rng(0)
    votes = np.array([200.0, *[50 / 9] * 9]) + 40 * rng.laplace(size=(40_000, 10))
    assert made.chances.label_right == pytest.approx(np.mean(votes.argmax(axis=1) == 0), abs=0.01)


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("rate", RATES)
def test_guaranteed_queries_are_the_largest_affordable_number(rate, check):
    made = make_plan(groups=PAPER, n_teachers=250, mechanism=paper_noise(250, check=check))
    for variant in made.variants[:3]:
        given_ = next(g for g in variant.guaranteed if g.rate == rate)
        n = given_.queries
        fine = [
            affordable(spent(g, variant.mechanism, n, given_.labels), g.account.epsilon, g.account.delta)
            for g in variant.groups
        ]
        assert all(fine)
        beyond = n + (1 if rate == 1 else 3)  # below 1, a label may fall between queries
        more = {
            g.account.id: affordable(
                spent(g, variant.mechanism, beyond, labels_in(beyond, rate)), g.account.epsilon, g.account.delta
            )
            for g in variant.groups
        }
        assert not all(more.values())
        assert not more[given_.binding]


@settings(deadline=None, max_examples=30)
@given(groups=many_groups(largest=4000), n_teachers=st.integers(5, 200))
def test_each_group_is_planned_with_own_sensitivity(groups, n_teachers):
    """Pairing sorted sensitivities with sorted budgets would afford other numbers here."""
    assume(n_teachers <= sum(g.people for g in groups))
    for variant in ("standard", "weighting"):
        made = next(v for v in _variants(groups, n_teachers, (variant,)))
        for group in made.groups:
            for rate, n in zip(RATES, group.queries, strict=True):
                if n:
                    cost = spent(group, made.mechanism, n, labels_in(n, rate))
                    assert affordable(cost * (1 - 1e-9), group.account.epsilon, group.account.delta)
                more = n + (1 if rate == 1 else 3)
                beyond = spent(group, made.mechanism, more, labels_in(more, rate))
                assert not affordable(beyond * (1 + 1e-9), group.account.epsilon, group.account.delta)


def _variants(groups, n_teachers, names):
    for name in names:
        layout = lay_out(name, groups=groups, n_teachers=n_teachers)
        yield plan_variant(layout, paper_noise(n_teachers), Meter(), RATES)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("power", [None, 1, 4])
def test_vanishing_plan_counts_turns_of_every_teacher(power, seed):
    made = make_plan(groups=PAPER, n_teachers=400, seed=seed, options={"vanishing": {"power": power}})
    variant = made.variants[3]
    n = variant.guaranteed[-1].queries
    schedule = lay_out("vanishing", groups=PAPER, n_teachers=400, seed=seed, power=power).participation
    present = schedule.participants(np.arange(n + 1))
    noise = variant.mechanism
    cost = present * (400 / present.sum(axis=0)) ** 2 * (1 / noise.check_sigma**2 + 2 / noise.sigma**2)
    budget = {g.id: g for g in PAPER}

    def within(queries):
        total = cost[:, :queries].sum(axis=1)
        return all(
            mu2 == 0 or affordable(mu2, budget[name].epsilon, budget[name].delta)
            for mu2, name in zip(total, schedule.teacher_groups, strict=True)
        )

    assert n > 0
    assert within(n)
    assert not within(n + 1)


def test_long_rotations_get_a_lower_bound():
    groups = [Group(id="a", budget=Budget(1.0, 1e-5), people=500), Group(id="b", budget=Budget(1.2, 1e-5), people=500)]
    far = make_plan(groups=groups, n_teachers=50, mechanism=Mechanism(sigma=20_000.0)).variants[3]
    near = make_plan(groups=groups, n_teachers=50, mechanism=Mechanism(sigma=500.0)).variants[3]
    assert far.guaranteed[-1].queries > 50_000
    assert 0.9 < far.guaranteed[-1].queries / (1600 * near.guaranteed[-1].queries) <= 1


def test_labels_grow_with_square_of_teachers():
    made = make_plan(groups=PAPER, n_teachers=500)
    assert [row.n_teachers for row in made.more] == [250, 500, 1000, 2000, 4000]
    for before, after in zip(made.more, made.more[1:], strict=False):
        assert after.people_per_teacher == before.people_per_teacher / 2
        for variant, labels in after.labels.items():
            assert labels == pytest.approx(4 * before.labels[variant], rel=0.04)
    now = {variant.variant: variant.guaranteed[-1].labels for variant in made.variants}
    assert made.more[1].labels == {name: now[name] for name in ("standard", "upsampling", "weighting")}


def test_more_teachers_table_stops_at_number_of_people():
    groups = [Group(id="a", budget=Budget(1.0, 1e-5), people=30), Group(id="b", budget=Budget(3.0, 1e-5), people=10)]
    made = make_plan(groups=groups, n_teachers=20)
    assert [row.n_teachers for row in made.more] == [10, 20, 40]
    assert made.more[-1].people_per_teacher == 1


def test_equal_budgets_afford_equal_labels_under_all_variants():
    for n_teachers in (1, 7, 250):
        made = make_plan(groups=[Group(id="g", budget=Budget(1.0, 1e-5), people=6000)], n_teachers=n_teachers)
        assert len({tuple((g.queries, g.labels) for g in v.guaranteed) for v in made.variants}) == 1
        assert {v.layout.scale for v in made.variants} == {1.0}
        assert made.suits == "standard"


@pytest.mark.parametrize("bound", ["gdp", "loose"])
def test_weighting_and_upsampling_afford_twice_the_labels(bound):
    made = {v.variant: v for v in make_plan(groups=PAPER, n_teachers=250, meter=Meter(bound)).variants}
    assert made["weighting"].guaranteed[-1].ratio > 2
    assert made["upsampling"].guaranteed[-1].ratio > 2
    assert made["standard"].guaranteed[-1].ratio == 1
    queries = [group.queries[-1] for group in made["weighting"].groups]
    assert max(queries) - min(queries) <= 2  # groups exhaust together


def test_sup_affords_no_fewer_than_loose():
    two = [Group(id="a", budget=Budget(1.0, 1e-5), people=60), Group(id="b", budget=Budget(2.0, 1e-5), people=60)]
    made = {
        bound: make_plan(groups=two, n_teachers=100, meter=Meter(bound, orders=[8.0, 16.0]))
        for bound in ("sup", "loose")
    }
    for sup, loose in zip(made["sup"].variants, made["loose"].variants, strict=True):
        assert sup.guaranteed[-1].labels >= loose.guaranteed[-1].labels


def test_algorithm2_binds_its_strictest_group_and_warns():
    options = {"weighting": {"rule": "algorithm2"}}
    with pytest.warns(ReproductionWarning):
        made = make_plan(groups=PAPER, n_teachers=250, options=options).variants[2]
    queries = {group.account.id: group.queries[-1] for group in made.groups}
    assert made.guaranteed[-1].binding == "high"
    assert queries["high"] < queries["mid"] < queries["low"]


def test_recommended_variant_depends_on_sharing_data():
    assert make_plan(groups=PAPER, n_teachers=50).suits == "upsampling"
    assert make_plan(groups=PAPER, n_teachers=50, parties=True).suits == "weighting"


def test_chances_match_the_normal_distribution():
    chances = make_plan(groups=PAPER, n_teachers=250, n_classes=2).chances
    assert chances.unanimous_passes == pytest.approx(float(ndtr(50 / 150)))
    assert chances.label_right == pytest.approx(float(ndtr(150 / 40 / math.sqrt(2))), abs=1e-9)


def test_shares_are_turned_into_numbers_of_people():
    assert sizes_of("abc", shares={"c": 1 / 3, "a": 1 / 3, "b": 1 / 3}, n_people=100) == {"a": 34, "b": 33, "c": 33}
    sizes = sizes_of("abc", shares={"c": 0.09, "b": 0.37, "a": 0.54}, n_people=60000)
    assert sizes == {"a": 32400, "b": 22200, "c": 5400}
    for shares, part in [
        ({"a": 0.5, "b": 0.5}, "'c'"),
        ({"a": 0.5, "b": 0.4, "c": 0.4}, "sum to 1.3"),
        ({"a": 0.5, "b": 0.5, "c": 0.0}, "share of 'c' is 0.0"),
        ({"a": 0.5, "b": 0.4, "c": 0.05, "d": 0.05}, "'d'"),
        ({"a": 0.5, "b": 0.4999999, "c": 1e-7}, "leaves no person"),
    ]:
        with pytest.raises(InputError, match=part):
            sizes_of("abc", shares=shares, n_people=1000)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"n_teachers": 0}, ["n_teachers is 0"]),
        ({"n_teachers": 2}, ["3 groups", "2 teachers"]),
        ({"n_classes": 1}, ["classes is 1"]),
        ({"meter": Meter("tight")}, ["bound is 'tight'", "gdp"]),
        ({"options": {"weighting": {"rule": "propotional"}}}, ["'propotional'", "'proportional'"]),
        ({"groups": [Group(id="a", budget=Budget(1.0, 1e-5))]}, ["'a'", "number of people"]),
    ],
)
def test_invalid_plan_input_is_refused_by_name(options, parts):
    with pytest.raises(InputError) as caught:
        make_plan(**{"groups": PAPER, "n_teachers": 250, **options})
    for part in parts:
        assert part in str(caught.value)


CONFIG = """
[data]
name = "synthetic"
[teachers]
model = "bayes"
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "groups.csv").write_text("group,epsilon,delta\nlow,3,\nhigh,1,1e-6\nmid,2,\n")
    (tmp_path / "shares.csv").write_text("group,epsilon,share\nlow,3,.1\nhigh,1,.9\n")
    (tmp_path / "counts.csv").write_text("group,epsilon,people,weight\nlow,3,100,7\nhigh,1,900,1\n")
    (tmp_path / "people.csv").write_text(
        "id,consent\n" + "".join(f"{i},{'low' if i % 3 else 'high'}\n" for i in range(999))
    )
    (tmp_path / "policy.toml").write_text("low = 3.0\nhigh = 1.0\ndelta = 1e-6\n")
    (tmp_path / "run.toml").write_text(CONFIG)
    app = typer.Typer()
    app.command("plan", epilog=command.EXAMPLE)(command.command)

    def call(text):
        app(args=text.split(), standalone_mode=False)
        return capsys.readouterr().out

    return call


SHARES = "--groups groups.csv --people 60000 --share high=.54 --share mid=.37 --share low=.09"


def test_plan_command_prints_complete_json(run):
    out = json.loads(run(f"{SHARES} --teachers 250 --sigma 40 --check-sigma 150 --threshold 200 --json"))
    assert {"groups", "n_people", "n_teachers", "classes", "bound", "variants", "more_teachers", "suits"} <= set(out)
    assert [group["delta"] for group in out["groups"]] == [0.1 / 60000, 1e-6, 0.1 / 60000]
    assert [group["people"] for group in out["groups"]] == [5400, 32400, 22200]
    made = {variant["variant"]: variant for variant in out["variants"]}
    assert list(made) == ["standard", "upsampling", "weighting", "vanishing"]
    assert (made["weighting"]["sigma"], made["weighting"]["check_sigma"], made["weighting"]["threshold"]) == (
        40,
        150,
        200,
    )
    up = made["upsampling"]
    assert up["sigma"] == pytest.approx(40 * up["scale"])
    assert up["threshold"] == pytest.approx(200 * up["scale"])
    assert [given_["rate"] for given_ in up["guaranteed"]] == [0.5, 0.75, 1.0]
    assert all("copies" in group for group in up["groups"])
    assert all("fraction" in group for group in made["vanishing"]["groups"])


def test_plan_command_reads_every_source_of_groups(run):
    text = run(f"{SHARES} --teachers 250 --classes 10")
    for part in ("upsampling", "copies", "against standard", "people each", "Suits: upsampling", "From budgets"):
        assert part in text
    assert json.loads(run("--groups shares.csv --people 1000 --teachers 20 --json"))["groups"][0]["people"] == 100
    assert json.loads(run("--groups counts.csv --teachers 20 --json --parties"))["suits"] == "weighting"
    out = json.loads(run("--people people.csv --level consent --policy policy.toml --json --aggregator gnmax"))
    assert out["n_teachers"] == 25  # fewer people each than 50, so that there are 25 teachers
    assert out["classes"] == 10
    assert "10 classes are assumed" in " ".join(out["notes"])
    assert {group["id"]: group["people"] for group in out["groups"]} == {"high": 333, "low": 666}
    assert {group["delta"] for group in out["groups"]} == {1e-6}
    assert out["variants"][0]["check_sigma"] is None
    out = json.loads(run("--people 5000 --epsilon 2 --classes 2 --json"))
    assert (out["n_teachers"], out["groups"][0]["people"], out["groups"][0]["delta"]) == (100, 5000, 1e-5)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["groups are not given"]),
        ("--groups groups.csv", ["people is not given"]),
        ("--groups groups.csv --people 60000", ["'low'", "no share"]),
        (f"{SHARES} --teachers many", ["teachers is 'many'", "auto"]),
        (f"{SHARES} --teachers 0", ["number is 0"]),
        (f"{SHARES} --teachers -3", ["number is -3"]),
        (f"{SHARES} --teachers 2 --max-groups 3", ["3 groups", "2 teachers"]),
        (f"{SHARES} --rule gdpp", ["rule is 'gdpp'", "nearest is 'gdp'"]),
        (f"{SHARES} --bound exakt", ["bound is 'exakt'", "'exact'"]),
        (f"{SHARES} --delta 2", ["delta is 2"]),
        (f"{SHARES} --sigma -1", ["sigma is -1"]),
        (f"{SHARES} --aggregator confidant", ["'confidant'", "'confident'"]),
        (f"{SHARES} --aggregator gnmax --threshold 3", ["gnmax has no check"]),
        (f"{SHARES} --share high=x", ["share of 'high' is 'x'"]),
        (f"{SHARES} --points-per-teacher 0", ["points is 0"]),
        (f"{SHARES} --policy policy.toml", ["policy", "--groups"]),
        ("--groups counts.csv --people 7", ["people is 7", "1000"]),
        ("--groups groups.csv --people people.csv", ["people.csv", "whole number"]),
        ("--people people.csv --share a=1", ["share"]),
        ("--people people.csv --epsilon 1", ["--epsilon-column"]),
        (f"{SHARES} --epsilon 1", ["epsilon", "--people"]),
        (f"{SHARES} --classes 1", ["classes is 1"]),
        ("--people 0 --epsilon 1", ["people is 0"]),
        ("run.toml --classes 3", ["classes is 3", "run.toml"]),
        ("run.toml --people 100", ["people is 100", "run.toml"]),
        ("none.toml", ["no such file"]),
    ],
)
def test_plan_command_refuses_in_one_line(run, text, parts):
    with pytest.raises(InputError) as caught:
        run(text)
    assert "\n" not in str(caught.value)
    for part in parts:
        assert part in str(caught.value)


def test_plan_shows_points_of_first_round(run, tmp_path):
    (tmp_path / "run.toml").write_text(f'{CONFIG}[labelling]\naggregator = "interactive"\n')
    first = json.loads(run("run.toml --json"))["settings"]["n_first"]
    assert first == chosen_by_run(RunConfig.from_file(tmp_path / "run.toml"))[1].n_first > 1
    told = "points; then a student of their labels is compared with the votes."
    assert f"Rounds: {first:,} {told}" in " ".join(run("run.toml").split())
    assert told not in " ".join(run("run.toml --aggregator confident").split())


@pytest.mark.parametrize("variant", ["weighting", "upsampling", "standard"])
def test_plan_of_configuration_states_settings_of_run(run, tmp_path, variant):
    (tmp_path / "run.toml").write_text(f'{CONFIG}[labelling]\nvariant = "{variant}"\n')
    out = json.loads(run("run.toml --json"))
    task, ran = chosen_by_run(RunConfig.from_file(tmp_path / "run.toml"))
    assert (out["n_teachers"], out["reason"], out["variant"]) == (ran.n_teachers, ran.reason, variant)
    assert out["settings"] == json.loads(ran.to_json())
    planned = next(entry for entry in out["variants"] if entry["variant"] == variant)
    noise = ran.aggregator(planned["scale"]).mechanism
    stated = (planned["sigma"], planned["check_sigma"], planned["threshold"])
    assert stated == pytest.approx((noise.sigma, noise.check_sigma, noise.threshold))
    assert [group["delta"] for group in out["groups"]] == [group.delta for group in task.people.groups]
    assert (out["pool"], out["classes"]) == (len(task.parts.public), task.n_classes)


def test_every_entry_point_chooses_equal_settings(run, tmp_path):
    """A run, a plan and one site are compared on the people of the demo."""
    config = RunConfig.from_mapping({"data": {"name": "synthetic"}})
    task, ran = chosen_by_run(config)
    private = task.parts.private
    (tmp_path / "all.csv").write_text("\n".join(["consent", *task.data.levels[private]]) + "\n")
    (tmp_path / "levels.toml").write_text("".join(f"{name} = {value}\n" for name, value in DEFAULT_POLICY.items()))
    text = "--people all.csv --level consent --policy levels.toml --classes 6 --json --pool"
    out = json.loads(run(f"{text} {len(task.parts.public)}"))
    planned = next(entry for entry in out["variants"] if entry["variant"] == "weighting")
    assert (out["n_teachers"], planned["sigma"], planned["check_sigma"]) == (ran.n_teachers, ran.sigma, ran.check_sigma)
    names = {"levels": task.data.levels[private], "person_id": None}
    rows = replace(task.data, X=task.data.X[private], y=task.data.y[private], **names)
    site = _allocate_people(rows, SiteOptions(policy=Policy.from_mapping(DEFAULT_POLICY)), tmp_path / "rows.csv")
    assert site.n_teachers == ran.n_teachers


def test_explicit_options_override_the_configuration(run, tmp_path):
    (tmp_path / "run.toml").write_text(CONFIG + 'number = 40\n[labelling]\nsigma = 9.0\nbound = "tight"\n')
    out = json.loads(run("run.toml --json --teachers 50"))
    assert (out["n_teachers"], out["bound"], out["variants"][0]["sigma"]) == (50, "loose", 9.0)
    assert "counts by loose" in " ".join(out["notes"])


def test_plan_of_laplace_noise_speaks_of_its_scale(capsys):
    given = ["plan", "--people", "3000", "--epsilon", "8", "--classes", "3", "--teachers", "60", "--pool", "200"]
    assert _run([*given, "--scale", "12"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Laplace noise with b = 12" in text
    assert "at equal b/k" in text
    assert "σ" not in text.split("Ballots: one release")[0]
    assert _run([*given, "--scale", "12", "--threshold", "30"]) == 2
    assert "scale is 12.0 and threshold is 30.0" in capsys.readouterr().err
    assert _run([*given, "--scale", "12", "--accuracy", "0.9"]) == 2
    assert "does not cover laplace noise" in capsys.readouterr().err
