"""What may be said of costs: releasable only where no private vote decided anything."""

import itertools

import pytest

from ipate.accounting.bounds import BOUNDS, Meter
from ipate.errors import InputError
from ipate.labelling.results import SEEDED, state_guarantee

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
def test_seeded_statement_starts_with_not_private(bound, way):
    seeded = state_guarantee(Meter(bound), stopped_by=way, seeded=True)
    secret = state_guarantee(Meter(bound), stopped_by=way)
    assert seeded.statement.startswith(SEEDED)
    assert seeded.statement.endswith(secret.statement)
    assert "not private" in SEEDED
    assert SEEDED not in secret.statement


def test_unknown_stopped_by_value_is_refused():
    with pytest.raises(InputError, match="stopped_by is 'luck': it must be fixed, account or other"):
        state_guarantee(Meter(), stopped_by="luck")
