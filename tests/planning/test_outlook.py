"""What a student can expect is foreseen by the chooser's own profiles, before any training."""

import re

import numpy as np
import pytest

from ipate.people.budgets import Budget, Group
from ipate.planning.outlook import foresee, more_consent, prospect
from ipate.planning.settings import choose_settings

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
    found = prospect(GROUPS, **SIZES, request={}, options={"vanishing": {"power": 1.0}})
    assert [found.outlook.variant, *(row.variant for row in found.others)] == [
        "weighting", "standard", "upsampling", "vanishing"
    ]  # fmt: skip
    assert all(step.labels > found.outlook.labels for step in found.steps)
    facts = found.facts()
    assert facts["outlook"][0]["labels"] == found.outlook.labels
    assert np.isfinite([step["labels"] for step in facts["more_consent"]]).all()
