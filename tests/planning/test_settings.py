"""Settings are chosen from public information and stored exactly."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choosing import choose_settings, read_back
from ipate.accounting.bounds import Meter
from ipate.engines.choose import read_settings
from ipate.engines.teachers.aggregators import Confident, GNMax, LNMax
from ipate.engines.teachers.reference import Reference, Simulator
from ipate.engines.teachers.settings import TeacherSettings, designed
from ipate.engines.teachers.tuning import PRICES
from ipate.engines.teachers.variants import allocate
from ipate.errors import InputError
from ipate.people.budgets import Budget, Group
from ipate.people.people import People

GROUPS = [Group(id="a", budget=Budget(1.0, 1e-5), people=900), Group(id="b", budget=Budget(3.0, 1e-5), people=600)]
positive = st.floats(min_value=1e-300, max_value=1e300)


def chosen(**options):
    return choose_settings(groups=GROUPS, n_public=1000, n_classes=3, **options)


@given(
    sigma=positive,
    check=st.none() | st.tuples(positive, st.floats(allow_nan=False, allow_infinity=False)),
    orders=st.lists(st.floats(1.0625, 1e6), min_size=1, max_size=5),
    reason=st.text(),
)
def test_settings_are_read_back_exactly(sigma, check, orders, reason):
    check_sigma, threshold = check or (None, None)
    made = TeacherSettings(
        variant="vanishing",
        options={"power": sigma},
        n_teachers=7,
        sigma=sigma,
        check_sigma=check_sigma,
        threshold=threshold,
        meter=Meter("sup", "classic", orders),
        stop="count",
        max_labels=3,
        reason=reason,
    )
    assert read_back(made.to_json()) == made


def test_design_and_simulator_are_read_back():
    reference = Reference(simulator=Simulator(accuracy=0.97, spread=1.0, queries=60), reserve=0.2, fallback=True)
    made = chosen(bound="ptr", reference=reference, n_teachers=100, sigma=15.0, check_sigma=40.0, threshold=50.0)
    people = People.from_budgets([1.0] * 900 + [3.0] * 600, delta=1e-5)
    allocation = allocate("weighting", people=people, n_teachers=100, seed=0)
    made = designed(made, allocation, n_classes=3, queries=[str(i) for i in range(50)])
    again = read_back(made.to_json())
    assert again == made
    assert again.design.digest == made.design.digest
    assert again.reference == reference


@pytest.mark.parametrize("spoil", [lambda v: v.pop("sigma"), lambda v: v.update(sgima=1), lambda v: v.update(sigma=-1)])
def test_corrupt_settings_are_refused_when_read(spoil, tmp_path):
    values = json.loads(chosen().to_json())
    (tmp_path / "settings.json").write_text(json.dumps(values))
    assert read_settings(tmp_path / "settings.json") == chosen()
    spoil(values)
    (tmp_path / "settings.json").write_text(json.dumps(values))
    with pytest.raises(InputError, match="cannot be read"):
        read_settings(tmp_path / "settings.json")


def test_auto_aggregator_is_confident_with_check():
    assert isinstance(chosen().aggregator(), Confident)
    made = chosen(check_sigma=None, threshold=None)
    assert isinstance(made.aggregator(2.0), GNMax)
    assert made.aggregator(2.0).mechanism.sigma == 2 * made.sigma
    assert isinstance(chosen(aggregator="gnmax").aggregator(), GNMax)
    with pytest.raises(InputError, match="check_sigma is not given"):
        replace(made, aggregator_name="confident").aggregator()


def test_gnmax_settings_have_no_check():
    """Without a check every query is answered, and the whole budget pays for labels."""
    made = chosen(aggregator="gnmax", n_teachers=50)
    assert (made.check_sigma, made.threshold) == (None, None)
    assert made.sigma in [50 * ratio for ratio in (0.04, 0.06, 0.08, 0.12, 0.16, 0.2, 0.25, 0.3)]
    assert "σ_T" not in made.reason


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sigma": "much"}, "sigma is 'much'"),
        ({"n_teachers": 2000}, "n_teachers is 2000"),
        ({"aggregator": "confidant"}, "'confident'"),
        ({"aggregator": "gnmax", "threshold": 3}, "gnmax has no check"),
        ({"aggregator": "gnmax", "check_sigma": 3}, "gnmax has no check"),
        ({"points_per_teacher": 0}, "points is 0"),
        ({"stop": "count"}, "max_labels"),
        ({"bound": "ptr"}, "reference"),
    ],
)
def test_impossible_settings_are_refused_by_name(options, words):
    with pytest.raises(InputError, match=words):
        chosen(**options)


def test_scale_of_laplace_noise_is_chosen_from_public_figures():
    made = chosen(aggregator="lnmax")
    assert (made.sigma, made.check_sigma, made.threshold) == (None, None, None)
    assert made.aggregator().mechanism.noise == "laplace"
    assert "Laplace noise with b = " in made.reason
    assert "σ" not in made.reason
    assert made.scale == pytest.approx(0.3 * made.n_teachers)
    assert read_back(made.to_json()) == made
    rich = [replace(group, budget=Budget(200.0, 1e-5)) for group in GROUPS]
    less = choose_settings(groups=rich, n_public=100, n_classes=3, aggregator="lnmax")
    assert less.scale < made.scale  # budgets that pay for the whole pool buy better labels


def test_auto_aggregator_is_lnmax_with_a_scale():
    made = chosen(scale=9.0)
    assert isinstance(made.aggregator(), LNMax)
    assert (made.aggregator_name, made.scale, made.sigma) == ("lnmax", 9.0, None)
    assert made.reason.endswith("the scale of Laplace noise as given")
    assert made.aggregator(2.0).mechanism.sigma == 18.0


def test_chooser_never_expects_laplace_labels_too_cheap():
    for pure in np.logspace(-4, 2, 50).tolist():
        (mu2,) = Meter().worst_label(sensitivity=1.0, sigma=2 / pure, noise="laplace")
        assert mu2 <= PRICES["laplace"] * (pure / 2) ** 2 * (1 + 1e-9)
