"""Parts from outside are found by module:attribute, and planned by the rules that a run follows."""

import json

import numpy as np
import pytest

import outside
from ipate.accounting.bounds import Meter, find_bound
from ipate.cli.app import _run
from ipate.engines.teachers.aggregators import Mechanism, find_aggregator
from ipate.engines.teachers.plan import make_plan
from ipate.engines.teachers.variants import allocate, find_variant
from ipate.errors import InputError
from ipate.people.budgets import Budget, Group
from ipate.people.people import People
from ipate.students.student import Supervised, find_student

GROUPS = [Group(id=n, budget=Budget(e, 1e-5), people=p) for n, e, p in (("a", 1.0, 3000), ("b", 3.0, 2000))]


def planned(variant):
    noise = Mechanism(sigma=8.0)
    return make_plan(groups=GROUPS, n_teachers=50, n_classes=10, mechanism=noise, options={variant: {}})


@pytest.mark.parametrize("name", ["Cheap", "Twice"])
def test_plan_refuses_layout_that_charges_too_little(name):
    """Whoever planned such a variant without a word would be refused by its run, after all the work."""
    people = People.from_budgets(np.repeat([1.0, 3.0], [3000, 2000]), delta=1e-5)
    moved = "2.78" if name == "Cheap" else "2"
    message = rf"can move the weight {moved} and is charged for 1; a sensitivity must cover all teachers"
    for attempt in (
        planned,
        lambda variant: allocate(variant, people=people, n_teachers=50, seed=0),
    ):
        with pytest.raises(InputError, match=message):
            attempt(f"outside:{name}")


def test_layout_that_charges_all_copies_is_planned():
    people = People.from_budgets(np.repeat([1.0, 3.0], [3000, 2000]), delta=1e-5)
    assert planned("outside:Covered").variants[-1].groups[0].account.sensitivity == 2.0
    assert allocate("outside:Covered", people=people, n_teachers=50, seed=0).variant == "outside:Covered"


def test_parts_from_outside_are_objects_of_their_kind():
    assert isinstance(find_variant("outside:Apart"), outside.Apart)
    assert find_aggregator("outside:Majority") is outside.Majority
    assert isinstance(find_bound("outside:Dear"), outside.Dear)
    assert Meter("outside:Dear").data_independent
    assert isinstance(find_student("outside:Plain"), outside.Plain)
    assert isinstance(find_student("sklearn.naive_bayes:GaussianNB"), Supervised)


@pytest.mark.parametrize("find", [find_variant, find_aggregator, find_bound])
def test_wrong_parts_from_outside_are_refused_by_name(find):
    what = find.__name__.removeprefix("find_")
    with pytest.raises(InputError, match=f"{what} is 'outside:Plain': it must be a "):
        find("outside:Plain")
    with pytest.raises(InputError, match=f"{what} is 'outside:Missing': it cannot be imported"):
        find("outside:Missing")
    with pytest.raises(InputError, match=f"{what} is 'none': allowed are .*module:attribute"):
        find("none")


def test_plan_of_configuration_names_its_parts_from_outside(tmp_path, capsys):
    path = tmp_path / "run.toml"
    own = 'variant = "outside:Apart"\naggregator = "outside:Majority"\nbound = "outside:Dear"\n'
    path.write_text(f'[data]\nname = "synthetic"\n[labelling]\n{own}[student]\nmodel = "outside:Plain"\n')
    assert _run(["plan", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["settings"]["variant"] == found["variant"] == "outside:Apart"
    assert (found["settings"]["aggregator_name"], found["bound"]) == ("outside:Majority", "outside:Dear")
    assert "outside:Apart" in [variant["variant"] for variant in found["variants"]]
    assert "outside:Apart" in found["more_teachers"][0]["labels"]
    assert found["outlook"][0]["variant"] == "outside:Apart"
    path.write_text(path.read_text().replace("outside:Apart", "outside:Cheap"))
    assert _run(["plan", str(path)]) == 2
    assert "can move the weight 2.78" in capsys.readouterr().err
