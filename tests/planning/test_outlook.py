"""What a student can expect is foreseen by the chooser's own profiles, before any training."""

import re

import numpy as np
import pytest

from choosing import choose_settings, foresee, prospect, teachers
from ipate.accounting.bounds import Meter
from ipate.engines.ballots.engine import Ballots
from ipate.engines.choose import Request
from ipate.engines.context import Facts
from ipate.engines.teachers.aggregators import Mechanism
from ipate.engines.teachers.outlook import more_consent
from ipate.engines.teachers.plan import afforded
from ipate.errors import InputError
from ipate.ledger.standing import Left, Standing
from ipate.people.budgets import Account, Budget, Group
from ipate.people.people import People

GROUPS = tuple(
    Group(id=name, budget=Budget(epsilon, 1e-6), people=people)
    for name, epsilon, people in (("high", 1.0, 3000), ("average", 2.0, 2000), ("low", 3.0, 1000))
)
SIZES = {"n_public": 2000, "n_classes": 4}


@pytest.mark.parametrize("variant", ["weighting", "upsampling", "standard"])
def test_outlook_states_what_the_chooser_states(variant):
    settings = choose_settings(groups=GROUPS, variant=variant, **SIZES)
    found = foresee(settings, GROUPS, **SIZES)
    stated = re.search(r"about (\d+) labels, (\d+%) of them right", settings.reason)
    assert found.labels == pytest.approx(int(stated[1]), abs=2)  # queries are whole numbers here
    assert f"{found.right:.0%}" == stated[2]
    assert found.fewest <= found.labels <= found.most
    assert 0 < found.clean < found.labels


def stated(bound, **more):
    settings = choose_settings(groups=GROUPS, bound=bound, **SIZES, **more)
    return settings, int(re.search(r"about ([\d,]+) labels", settings.reason)[1].replace(",", ""))


def test_reason_counts_labels_by_the_runs_own_bound():
    found = {bound: stated(bound) for bound in ("gdp", "loose", "tight")}
    assert found["loose"][1] < found["gdp"][1]
    for bound, planned in (("gdp", "gdp"), ("loose", "loose"), ("tight", "loose")):
        settings, labels = found[bound]
        assert labels == foresee(settings, GROUPS, **SIZES).labels
        assert f"and the bound {planned} this affords" in settings.reason
    assert found["tight"][1] == found["loose"][1]
    assert found["tight"][0].reason.endswith("; tight affords no fewer, and the votes decide how many more")
    assert "no fewer" not in found["loose"][0].reason


@pytest.mark.parametrize("variant", ["weighting", "standard", "upsampling", "vanishing"])
def test_spent_half_of_budgets_halves_expected_labels(variant):
    """Under gdp labels are paid in μ²; the larger spending of merged groups counts."""
    meter = Meter("gdp")
    left = {g.id: Left(meter=meter, spent=meter.limit(g.epsilon, g.delta) / 2, fixed=False) for g in GROUPS}
    if variant == "standard":  # all have the strictest budget, and the loosest people have spent more than that
        left = dict.fromkeys(left, left["high"])
    standing = Standing(ledger="a.ledger.sqlite", groups=left)
    settings = choose_settings(groups=GROUPS, variant=variant, n_teachers=100, sigma=60.0, check_sigma=None, **SIZES)
    whole = foresee(settings, GROUPS, **SIZES)
    half = foresee(settings, GROUPS, **SIZES, standing=standing)
    assert half.labels == pytest.approx(whole.labels / 2, rel=0.15, abs=2)
    assert standing.joined("high", "low", GROUPS[2].budget).groups["low"].spent == left["low"].spent


def test_reason_of_laplace_noise_counts_by_its_law():
    settings, labels = stated("gdp", aggregator="lnmax")
    found = foresee(settings, GROUPS, **SIZES)
    assert labels == found.labels
    assert "Laplace noise with b = " in settings.reason
    assert f"{found.right:.0%} of them right" in settings.reason
    gaussian = choose_settings(
        groups=GROUPS, n_teachers=settings.n_teachers, sigma=settings.scale, check_sigma=None, **SIZES
    )
    assert foresee(gaussian, GROUPS, **SIZES).right > found.right  # a scale of b has a deviation of 1.41 b


def test_first_round_of_interactive_counts_what_is_left():
    meter = Meter("gdp")
    left = {g.id: Left(meter=meter, spent=meter.limit(g.epsilon, g.delta) / 2, fixed=False) for g in GROUPS}
    standing = Standing(ledger="a.ledger.sqlite", groups=left)
    given = {"aggregator": "interactive", "n_teachers": 100, "sigma": 60.0, "check_sigma": 60.0, "threshold": 50.0}
    whole = choose_settings(groups=GROUPS, **SIZES, **given)
    half = choose_settings(groups=GROUPS, **SIZES, **given, standing=standing)
    assert half.n_first == pytest.approx(whole.n_first / 2, abs=1)
    tight = choose_settings(groups=GROUPS, **SIZES, **given, bound="tight")
    assert tight.n_first == choose_settings(groups=GROUPS, **SIZES, **given, bound="loose").n_first


def test_left_budget_under_loose_pays_at_every_settled_order():
    meter = Meter("loose", "improved", (20.0, 40.0))
    group = GROUPS[0]
    spent = np.array([0.0, meter.limit(group.epsilon, group.delta)[1]])  # nothing is left at the second order
    fixed, free = (Left(meter=meter, spent=spent, fixed=kind) for kind in (True, False))
    assert (fixed.share(group.budget), free.share(group.budget)) == (0.0, 1.0)
    account = Account(group=group, sensitivity=1.0)
    noise = Mechanism(sigma=40.0)
    assert afforded(account, noise, meter, 1.0, left=fixed) == 0
    assert afforded(account, noise, meter, 1.0, left=free) > 0


FEW = [Group(id=str(e), budget=Budget(e, 1e-5), people=400) for e in (0.5, 1.0, 3.0)]


def settled(*, engine="teachers", groups=FEW, n_pool=300, n_classes=2, needed="auto", **options):
    """Return the settings of a run with these people and options."""
    facts = Facts(people=People.of_groups(groups), n_pool=n_pool, n_classes=n_classes)
    shared = {name: value for name, value in options.items() if name in ("variant", "bound")}
    request = Request(engine=engine, teachers=teachers(**options), ballots=Ballots(**shared), needed=needed)
    return request.settle(facts, lambda _people, _meter: None)


def test_few_expected_labels_are_refused_with_what_ballots_give():
    with pytest.raises(InputError) as told:
        settled()
    assert re.search(
        r"afford about \d labels? for 2 classes .*needs 6 \(3 per class; set min_labels to accept", str(told.value)
    )
    assert "Ballots (voting = 'ballots') would label all 300 points at once" in str(told.value)
    assert "which is reliable" in str(told.value)
    settled(needed=2)
    for wrong in ("many", -1, 2.5):
        with pytest.raises(InputError, match=r"min_labels is .*: it must be a whole number, 0 or above"):
            settled(needed=wrong)


def test_auto_takes_ballots_where_teachers_would_be_refused():
    """136 points for 19 classes are too few for reliable cells, and teachers would give no label."""
    people = [Group(id="a", budget=Budget(0.5, 1e-5), people=3000)]
    found = settled(engine="auto", groups=people, n_pool=136, n_classes=19)
    assert found.engine == "ballots"
    assert found.reason.startswith("auto chose ballots, because teachers would give too few labels; ballots with")
    with pytest.raises(InputError, match=r"Ballots \(voting = 'ballots'\) would label all 136 points at once"):
        settled(engine="teachers", groups=people, n_pool=136, n_classes=19)


def test_auto_keeps_teachers_whose_parameters_are_given():
    people = [Group(id="a", budget=Budget(0.5, 1e-5), people=3000)]
    with pytest.raises(InputError, match="afford about 1 label for 19 classes"):
        settled(engine="auto", groups=people, n_pool=136, n_classes=19, number=50)
    rich = [Group(id="a", budget=Budget(8.0, 1e-5), people=3000)]
    assert settled(engine="auto", groups=rich, n_pool=136, n_classes=2, number=50).engine == "teachers"


def test_auto_refuses_useless_budgets_without_recommending_an_engine():
    """Ballots would be noise, so that neither engine helps."""
    tiny = [Group(id="a", budget=Budget(0.001, 1e-5), people=100)]
    for engine in ("auto", "teachers"):
        with pytest.raises(InputError, match="a student needs 6") as told:
            settled(engine=engine, groups=tiny)
        assert "Ballots" not in str(told.value)


@pytest.mark.parametrize("options", [{"variant": "upsampling"}, {"bound": "tight"}, {"rule": "uniform"}])
def test_auto_takes_teachers_for_what_ballots_lack(options):
    rich = [Group(id="a", budget=Budget(8.0, 1e-5), people=3000)]
    found = settled(engine="auto", groups=rich, n_pool=400, **options)
    assert found.engine == "teachers"
    assert found.reason.startswith("auto chose teachers, because parameters of teachers are given; ")
    with pytest.raises(InputError):
        settled(engine="ballots", groups=rich, n_pool=400, **options)


def test_expected_labels_stay_within_pool_and_request():
    settings = choose_settings(groups=GROUPS, max_labels=5, **SIZES)
    assert foresee(settings, GROUPS, **SIZES).labels == 5
    assert foresee(settings, GROUPS, **SIZES).useful  # no more was asked for
    few = foresee(choose_settings(groups=GROUPS, n_public=3, n_classes=4), GROUPS, n_public=3, n_classes=4)
    assert few.most <= 3
    assert not few.useful


def test_dropping_groups_affords_no_fewer_labels():
    kept = foresee(choose_settings(groups=GROUPS, **SIZES), GROUPS, **SIZES)
    dropped = foresee(choose_settings(groups=GROUPS, stop="drop", **SIZES), GROUPS, **SIZES)
    assert dropped.labels >= kept.labels


def test_more_consent_moves_people_one_level_up():
    steps = list(more_consent(GROUPS))
    assert [(group.id, epsilon) for group, epsilon, _ in steps] == [("high", 2.0), ("average", 3.0)]
    assert {g.id: g.people for g in steps[0][2]} == {"average": 5000, "low": 1000}
    ((only, epsilon, (moved,)),) = more_consent(GROUPS[:1])
    assert (only.id, epsilon, moved.epsilon, moved.people) == ("high", 2.0, 2.0, 3000)


def test_prospect_compares_variants_and_steps_of_consent():
    found = prospect(GROUPS, **SIZES)
    assert [found.outlook.variant, *(row.variant for row in found.others)] == [
        "weighting",
        "standard",
        "upsampling",
        "vanishing",
    ]
    assert all(step.labels > found.outlook.labels for step in found.steps)
    facts = found.facts()
    assert facts["outlook"][0]["labels"] == found.outlook.labels
    assert np.isfinite([step["labels"] for step in facts["more_consent"]]).all()
