"""What may be said of costs: releasable only where no private vote decided anything."""

import itertools

import pytest

from ipate.accounting.bounds import BOUNDS, Meter
from ipate.errors import InputError
from ipate.release.results import OVERLAP, SEEDED, state_guarantee

WAYS = ("fixed", "account", "other")
RELEASABLE = {(bound, way) for bound in ("loose", "gdp", "sup", "ptr") for way in ("fixed", "account")}


@pytest.mark.parametrize(("bound", "way"), list(itertools.product(BOUNDS, WAYS)))
def test_guarantee_kind_follows_bound_and_stopping_rule(bound, way):
    guarantee = state_guarantee(Meter(bound), stopped_by=way)
    assert guarantee.kind == ("releasable" if (bound, way) in RELEASABLE else "private")


@pytest.mark.parametrize("bound", BOUNDS)
def test_stopped_by_defaults_to_fixed_queries(bound):
    assert state_guarantee(Meter(bound)) == state_guarantee(Meter(bound), stopped_by="fixed")


@pytest.mark.parametrize(("bound", "way"), list(itertools.product(BOUNDS, WAYS)))
def test_statement_says_whether_figures_may_be_published(bound, way):
    guarantee = state_guarantee(Meter(bound), stopped_by=way)
    text = guarantee.statement
    assert ("may be published" in text) == (guarantee.kind == "releasable")
    assert ("do not publish" in text or "treat these figures as private" in text) == (guarantee.kind == "private")
    assert "\n" not in text
    assert text.endswith(".")


@pytest.mark.parametrize("bound", ["tight", "exact"])
@pytest.mark.parametrize("way", WAYS)
def test_data_dependent_costs_are_never_called_a_guarantee(bound, way):
    assert "not a differential privacy guarantee" in state_guarantee(Meter(bound), stopped_by=way).statement


@pytest.mark.parametrize("bound", ["loose", "gdp", "sup"])
def test_account_stopped_run_guarantees_budget_not_cost(bound):
    assert "the cost ε shown for their group" in state_guarantee(Meter(bound), stopped_by="fixed").statement
    assert "the budget ε of their group" in state_guarantee(Meter(bound), stopped_by="account").statement


@pytest.mark.parametrize(("bound", "way"), list(itertools.product(BOUNDS, WAYS)))
@pytest.mark.parametrize(("seeded", "overlap"), [(True, False), (False, True), (True, True)])
def test_seed_or_overlap_leaves_no_guarantee(bound, way, seeded, overlap):
    made = state_guarantee(Meter(bound), stopped_by=way, seeded=seeded, overlap=overlap)
    assert (made.kind, made.publishable) == ("none", False)
    assert made.statement.startswith("Nothing is promised")
    assert "may be published" not in made.statement
    assert made.reasons == (SEEDED,) * seeded + (OVERLAP,) * overlap
    assert all(reason in made.statement for reason in made.reasons)
    assert made.headline.startswith("NO GUARANTEE (")
    assert "releasable" not in f"{made.headline} {made.statement}".lower()


def test_unknown_stopped_by_value_is_refused():
    with pytest.raises(InputError, match="stopped_by is 'luck': it must be fixed, account or other"):
        state_guarantee(Meter(), stopped_by="luck")
