"""A plan says what a run would do, or why it would be refused, for any engine."""

import json
from dataclasses import replace

import pytest

from choosing import teachers
from ipate.accounting.bounds import Meter
from ipate.engines.ballots.engine import Ballots
from ipate.engines.choose import Request
from ipate.engines.context import Facts
from ipate.errors import BudgetExceededError, InputError
from ipate.ledger.standing import Left, Standing
from ipate.people.budgets import Budget, Group
from ipate.people.people import People
from ipate.planning.plan import make_plan

GROUPS = [Group(id=n, budget=Budget(e, 1e-5), people=p) for n, e, p in (("a", 2.0, 3000), ("b", 4.0, 2000))]


def facts(groups=GROUPS, **sizes):
    return Facts(people=People.of_groups(groups), **{"n_pool": 400, "n_classes": 3, **sizes})


def request(engine="teachers", **options):
    return Request(engine=engine, teachers=teachers(**options), ballots=Ballots())


def whole(_people, _meter):
    return None


@pytest.mark.parametrize("engine", ["teachers", "ballots", "auto"])
def test_plan_has_the_settings_of_a_run(engine):
    asked = request(engine)
    found = make_plan(asked, facts(), whole)
    assert found.settings == asked.settle(facts(), whole)
    assert found.refusal is None
    assert set(found.forecasts) == {"teachers", "ballots"}
    stated = found.facts()
    assert stated["settings"] == json.loads(found.settings.to_json())
    assert (stated["engine"], stated["reason"]) == (found.settings.engine, found.settings.reason)
    assert stated["ballots"]["weighting"]["weight_per_class"] > stated["ballots"]["standard"]["weight_per_class"]
    assert stated["n_teachers"] == 100


@pytest.mark.parametrize("engine", ["teachers", "ballots"])
def test_plan_of_useless_budgets_states_the_refusal_of_a_run(engine):
    tiny = facts([Group(id="a", budget=Budget(0.001, 1e-5), people=100)])
    with pytest.raises(InputError) as told:
        request(engine).settle(tiny, whole)
    found = make_plan(request(engine), tiny, whole)
    assert found.settings is None
    assert str(found.refusal) == str(told.value) == found.facts()["refusal"]
    assert f"The run would be refused: {told.value}." in found.notes
    assert found.forecasts["teachers"].facts["outlook"][0]["labels"] == 0


def test_ledger_that_refuses_the_run_is_told_and_whole_budgets_planned():
    def refusing(_people, _meter):
        raise BudgetExceededError("the ledger has another bound")

    found = make_plan(request(), facts(), refusing)
    assert found.settings == request().settle(facts(), whole)
    assert str(found.refusal) == "the ledger has another bound"
    told = "The run would be refused: the ledger has another bound. These figures are for whole budgets."
    assert found.notes[0] == told


def test_ledger_is_read_once_per_bound_and_groups():
    asked = []

    def counting(people, meter):
        asked.append((people.groups, meter))
        spent = meter.limit(2.0, 1e-5) / 2
        return Standing(ledger="a.sqlite", groups={"a": Left(meter=meter, spent=spent, fixed=False)})

    found = make_plan(request("auto"), facts(), counting)
    assert len(asked) == len(set(asked)) == 1
    assert asked[0][1] == Meter("gdp")
    assert found.notes[0].startswith("Earlier runs on a.sqlite have spent at most a ε = 1.")


def test_small_groups_are_counted_nowhere_in_facts():
    small = facts([*GROUPS, Group(id="c", budget=Budget(1.0, 1e-5), people=3)])
    found = make_plan(request(), small, whole)
    assert "ballots" not in {name for name in found.facts() if found.facts()[name]}
    assert [group["people"] for group in found.facts()["groups"]] == ["5 or more", "5 or more", "under 5"]
    rows = [row for table in found.forecasts["teachers"].tables for row in table.rows if row[0] == "c"]
    assert rows
    assert all("3" not in row[:4] for row in rows)


def test_engine_without_forecast_is_named_in_a_note():
    class Toy(Ballots):
        name = "toy"
        title = "toys"

        def forecast(self, means, *, bar=None):
            return None

    asked = replace(request("toy"), other=Toy())
    found = make_plan(asked, facts(), whole, engines=[Toy()])
    assert found.forecasts == {"toy": None}
    assert "No figures for toys: plans do not cover this engine." in found.notes


def test_invalid_options_are_refused_and_those_of_another_engine_told():
    with pytest.raises(InputError, match="sigma is -1"):
        make_plan(request(sigma=-1.0), facts(), whole)
    found = make_plan(request(), facts(n_pool=12), whole)
    assert any(note.startswith("No figures for ballots: the pool has 12 points") for note in found.notes)
    for sizes in ({"n_pool": 0}, {"n_classes": 1}):
        with pytest.raises(InputError, match=r"(pool is 0|classes is 1): it must be a whole number"):
            make_plan(request(), facts(**sizes), whole)
