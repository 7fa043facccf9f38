"""Allocations: everybody where they belong, nobody charged below what they move, nobody moved by others."""

import re
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from allocation.cases import DELTA, holdings, many_groups, people_of
from ipate.allocation.allocation import Allocation
from ipate.engines.teachers.influence import single_class_groups
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.variants import VARIANTS, allocate, copies_for
from ipate.errors import InputError
from ipate.people.budgets import Budget, Group
from ipate.people.people import People

variants = st.sampled_from(sorted(VARIANTS))
seeds = st.integers(0, 2**40)


def made(variant, groups, n_teachers, seed, **options):
    """The allocation, or a skipped case where the variant refuses so few teachers."""
    people = people_of(groups)
    assume(n_teachers <= people.n_people)
    if variant in ("weighting", "vanishing"):
        assume(len(groups) <= n_teachers)
    if variant == "upsampling":
        copies = copies_for(groups=groups).by_id
        assume(max(copies.values()) * people.n_people <= n_teachers * sum(copies[g.id] * g.people for g in groups))
    return allocate(variant, people=people, n_teachers=n_teachers, seed=seed, **options)


@settings(deadline=None)
@given(variant=variants, groups=many_groups(), n_teachers=st.integers(1, 60), seed=seeds)
def test_copies_of_a_person_are_in_different_teachers(variant, groups, n_teachers, seed):
    allocation = made(variant, groups, n_teachers, seed)
    held = holdings(allocation)
    assert held.max() == 1
    copies = [allocation.layout.copies[allocation.groups[g].id] for g in allocation.group_of_person]
    assert held.sum(axis=0).tolist() == copies


@settings(deadline=None)
@given(variant=variants, groups=many_groups(), n_teachers=st.integers(1, 60), seed=seeds)
def test_teacher_sizes_differ_by_at_most_one(variant, groups, n_teachers, seed):
    allocation = made(variant, groups, n_teachers, seed)
    sizes = allocation.teacher_sizes
    blocs = allocation.teacher_groups or ("",) * allocation.n_teachers
    for bloc in set(blocs):
        own = sizes[[name == bloc for name in blocs]]
        assert own.max() - own.min() <= 1
        assert own.min() >= 1
    for group in allocation.groups:
        assert group.people == (allocation.group_of_person == allocation.groups.index(group)).sum()
        if allocation.teacher_groups is not None:
            assert allocation.layout.teachers[group.id] == blocs.count(group.id)


@settings(deadline=None)
@given(variant=variants, groups=many_groups(), n_teachers=st.integers(1, 60), seed=seeds)
def test_sensitivity_covers_movement_and_budget_is_never_raised(variant, groups, n_teachers, seed):
    allocation = made(variant, groups, n_teachers, seed)
    held = holdings(allocation)
    moved = allocation.weights @ held
    if allocation.participation is not None:
        moved = moved * allocation.participation.sensitivity(np.arange(50)).max()
    for person, place in enumerate(allocation.group_of_person):
        asked = allocation.people.groups[allocation.people.group_of_person[person]]
        counted = allocation.groups[place]
        assert moved[person] <= counted.sensitivity
        assert counted.epsilon <= asked.epsilon
        assert counted.delta <= asked.delta


@settings(deadline=None)
@given(variant=variants, groups=many_groups(), n_teachers=st.integers(1, 60), seed=seeds)
def test_group_order_does_not_change_the_allocation(variant, groups, n_teachers, seed):
    """Mutant: pairing sorted weights with sorted budgets (or with groups as they stand) fails here."""
    one = made(variant, groups, n_teachers, seed)
    turned = made(variant, groups[::-1], n_teachers, seed)
    for group in one.groups:
        assert turned.layout.by_id[group.id] == group
    assert turned.layout.copies == one.layout.copies
    assert turned.layout.home == one.layout.home
    assert turned.layout.group_weights == one.layout.group_weights
    assert turned.scale == one.scale


@settings(deadline=None)
@given(group=st.floats(0.01, 20), n_people=st.integers(1, 200), n_teachers=st.integers(1, 50), seed=seeds)
def test_equal_budgets_make_every_variant_standard(group, n_people, n_teachers, seed):
    assume(n_teachers <= n_people)
    people = People.from_budgets(np.full(n_people, group), delta=DELTA)
    standard = allocate("standard", people=people, n_teachers=n_teachers, seed=seed)
    for variant in VARIANTS:
        other = allocate(variant, people=people, n_teachers=n_teachers, seed=seed)
        assert np.array_equal(other.persons, standard.persons)
        assert np.array_equal(other.offsets, standard.offsets)
        assert np.array_equal(other.weights, np.ones(n_teachers))
        assert other.teacher_groups == standard.teacher_groups
        assert other.groups == standard.groups
        assert other.participation is None
        assert other.scale == 1
        mine, theirs = Panel.of(other.layout), Panel.of(standard.layout)
        assert mine.groups == theirs.groups
        assert np.array_equal(mine.member, theirs.member)
        assert mine.rotating is theirs.rotating is False


def test_equal_budgets_under_several_ids_weigh_one_each():
    groups = [Group(id=name, budget=Budget(np.log(2), DELTA), people=n) for name, n in (("b", 7), ("a", 20), ("c", 3))]
    people = people_of(groups)
    standard = allocate("standard", people=people, n_teachers=10, seed=3)
    upsampled = allocate("upsampling", people=people, n_teachers=10, seed=3)
    assert np.array_equal(upsampled.persons, standard.persons)
    for variant in ("weighting", "vanishing"):
        apart = allocate(variant, people=people, n_teachers=10, seed=3)
        assert apart.weights.tolist() == [1.0] * 10
        assert apart.participation is None
        assert {group.sensitivity for group in apart.groups} == {1.0}


@settings(deadline=None)
@given(variant=variants, groups=many_groups(), seed=seeds, data=st.data())
def test_withdrawing_empties_slots_and_moves_nobody_else(variant, groups, seed, data):
    allocation = made(variant, groups, 20, seed)
    who = data.draw(st.integers(0, allocation.people.n_people - 1))
    after, retrain = allocation.withdraw(f"p{who}")
    changed = after.persons != allocation.persons
    assert np.all(allocation.persons[changed] == who)
    assert np.all(after.persons[changed] == -1)
    assert who not in after.persons
    assert np.array_equal(after.offsets, allocation.offsets)
    assert after.groups == allocation.groups
    assert len(retrain) == allocation.layout.copies[allocation.groups[allocation.group_of_person[who]].id]
    for teacher in range(allocation.n_teachers):
        left = set(allocation.people_of_teacher(teacher)) - set(after.people_of_teacher(teacher))
        assert left == ({who} if teacher in retrain else set())
    assert after.withdrawn == (who,)
    assert allocation.withdrawn == ()
    for call in (lambda: after.withdraw(f"p{who}"), lambda: after.withdraw(index=who)):
        with pytest.raises(InputError, match="withdrawn already"):
            call()


def test_withdrawing_an_unknown_person_is_refused():
    allocation = allocate("standard", people=people_of(three(10, 10, 10)), n_teachers=3, seed=0)
    for call in (
        lambda: allocation.withdraw("ada"),
        lambda: allocation.withdraw(index=30),
        lambda: allocation.withdraw(index=-1),
        allocation.withdraw,
        lambda: allocation.withdraw("p1", index=1),
    ):
        with pytest.raises(InputError):
            call()


@settings(deadline=None)
@given(variant=variants, groups=many_groups(), seed=seeds)
def test_saved_allocation_loads_unchanged(tmp_path_factory, variant, groups, seed):
    allocation = made(variant, groups, 20, seed)
    allocation, _ = allocation.withdraw(index=0)
    path = tmp_path_factory.mktemp("allocations") / "allocation.npz"
    allocation.save(path)
    back = Allocation.load(path)
    assert [p.name for p in path.parent.iterdir()] == ["allocation.npz"]
    for name in ("persons", "offsets", "weights", "group_of_person"):
        assert np.array_equal(getattr(back, name), getattr(allocation, name))
    for name in ("groups", "teacher_groups", "scale", "merged", "notes", "withdrawn", "seed", "variant"):
        assert getattr(back, name) == getattr(allocation, name)
    assert back.layout.copies == allocation.layout.copies
    assert back.people.ids.tolist() == allocation.people.ids.tolist()
    assert back.people.groups == allocation.people.groups
    if allocation.participation is not None:
        votings = np.arange(40)
        assert np.array_equal(back.participation.participants(votings), allocation.participation.participants(votings))


def test_load_refuses_files_without_an_allocation(tmp_path):
    for name, write in {
        "nothing.npz": None,
        "text.npz": lambda path: path.write_text("hello"),
        "other.npz": lambda path: np.savez(path, votes=np.zeros(3)),
        "format.npz": lambda path: np.savez(path, meta=np.array('{"format": "x"}')),
        "pickle.npz": lambda path: np.savez(path, meta=np.array([{}], dtype=object)),
        "short.npz": lambda path: np.savez(path, meta=np.array('{"format": "ipate allocation 1"}')),
    }.items():
        path = tmp_path / name
        if write:
            write(path)
        with pytest.raises(InputError, match=name):
            Allocation.load(path)


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    allocation = allocate("standard", people=people_of(three(10, 10, 10)), n_teachers=3, seed=0)
    path = tmp_path / "a.npz"
    allocation.save(path)
    before = path.read_bytes()
    monkeypatch.setattr(np, "savez", lambda file, **_: (file.write(b"half"), 1 / 0))
    with pytest.raises(ZeroDivisionError):
        allocation.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.npz"]


def test_all_rows_of_a_person_go_to_the_same_teachers():
    groups = three(9, 6, 5)
    rows = np.arange(20) % 4 + 1
    people = people_of(groups, rows=rows)
    allocation = allocate("upsampling", people=people, n_teachers=5, seed=1, rule="proportional")
    for teacher in range(allocation.n_teachers):
        own = allocation.rows_of_teacher(teacher)
        expected = np.flatnonzero(np.isin(people.person_of_row, allocation.people_of_teacher(teacher)))
        assert own.tolist() == expected.tolist()
    assert sum(len(allocation.rows_of_teacher(t)) for t in range(allocation.n_teachers)) > people.n_rows


def test_sensitivity_below_movement_is_refused():
    """Mutant: an allocation whose group is charged less than its people can move is refused outright."""
    allocation = allocate("weighting", people=people_of(three(20, 20, 20)), n_teachers=6, seed=0)
    low = replace(allocation.groups[2], sensitivity=allocation.groups[0].sensitivity)
    layout = replace(allocation.layout, groups=(*allocation.groups[:2], low))
    with pytest.raises(InputError, match="can move the weight"):
        replace(allocation, layout=layout)


def test_panel_has_weights_groups_and_accounts():
    people = people_of(three(54, 37, 9))
    weighted = Panel.of(allocate("weighting", people=people, n_teachers=100, seed=0).layout)
    assert weighted.total_weight == pytest.approx(100)
    for place, group in enumerate(weighted.groups):
        assert set(weighted.weights[weighted.member == place]) == {group.sensitivity}
    upsampled = Panel.of(allocate("upsampling", people=people, n_teachers=10, seed=0, rule="proportional").layout)
    assert upsampled.member is None
    assert [group.sensitivity for group in upsampled.groups] == [1, 2, 3]
    rotating = Panel.of(allocate("vanishing", people=people, n_teachers=100, seed=0).layout)
    assert rotating.rotating
    assert len(rotating.account_ids) == 100


def test_groups_with_single_class_teachers_are_found():
    people = people_of(three(40, 40, 40))
    labels = np.where(people.group_of_person == 2, "ill", np.where(np.arange(120) % 2, "well", "ill"))
    weighted = allocate("weighting", people=people, n_teachers=12, seed=0)
    found = single_class_groups(weighted, labels)
    assert str(found[0]).startswith("4 of the 4 teachers of group 'lax' see the class ill and no other")
    assert [(single.group, single.label, single.teachers) for single in found] == [("lax", "ill", 4)]
    assert single_class_groups(allocate("upsampling", people=people, n_teachers=40, seed=0), labels) == ()
    assert single_class_groups(weighted, np.arange(120) % 2) == ()
    codes = np.where(people.group_of_person == 2, 1, np.arange(120) % 2)
    codes[np.flatnonzero(people.group_of_person == 2)[:5]] = -1  # no class, so seen by nobody
    assert [single.label for single in single_class_groups(weighted, codes)] == ["1"]
    with pytest.raises(InputError, match="labels have the shape"):
        single_class_groups(weighted, labels[:5])


def test_allocation_depends_on_the_seed_alone():
    people = people_of(three(50, 30, 20))
    for variant in VARIANTS:
        one, same, other = (allocate(variant, people=people, n_teachers=20, seed=s) for s in (4, 4, 5))
        assert np.array_equal(one.persons, same.persons)
        assert not np.array_equal(one.persons, other.persons)


def test_copies_spread_over_all_pairs_of_teachers():
    people = people_of(three(200, 200, 200))
    held = holdings(allocate("upsampling", people=people, n_teachers=10, seed=0, rule="proportional"))
    shared = held @ held.T
    off = shared[~np.eye(len(shared), dtype=bool)]
    assert off.max() < 3 * off.mean()  # dealt in plain order, neighbours would share ten times the mean


@pytest.mark.parametrize(
    ("variant", "options", "parts"),
    [
        ("wieghting", {}, ["variant is 'wieghting'", "nearest is 'weighting'"]),
        ("weighting", {"rule": "gpd"}, ["rule is 'gpd'", "nearest is 'gdp'"]),
        ("upsampling", {"rule": "algorithm2"}, ["rule is 'algorithm2'", "allowed are"]),
        ("weighting", {"power": 2}, ["'power'", "weighting", "allowed are rule"]),
        ("standard", {"rule": "gdp"}, ["'rule'", "it has none"]),
        ("weighting", {"n_teachers": 2}, ["3 groups", "2 teachers"]),
        ("standard", {"n_teachers": 0}, ["n_teachers is 0", "1 or above"]),
        ("standard", {"n_teachers": 2.5}, ["n_teachers is 2.5"]),
        ("standard", {"n_teachers": 31}, ["n_teachers is 31", "30 at most"]),
        ("standard", {"seed": -1}, ["seed is -1"]),
        ("upsampling", {"n_teachers": 1, "rule": "proportional"}, ["'lax'", "3 copies", "2 teachers"]),
        ("upsampling", {"tolerance": 1}, ["tolerance is 1"]),
        ("upsampling", {"max_copies": 0}, ["max_copies is 0"]),
        ("vanishing", {"power": -1}, ["power is -1"]),
    ],
)
def test_bad_options_are_refused_by_name(variant, options, parts):
    with pytest.raises(InputError) as caught:
        allocate(variant, **{"people": people_of(three(10, 10, 10)), "n_teachers": 10, "seed": 0, **options})
    assert "\n" not in str(caught.value)
    for part in parts:
        assert part in str(caught.value)


def three(strict, middle, lax):
    return [
        Group(id=name, budget=Budget(epsilon, 1e-5), people=people)
        for name, epsilon, people in (("strict", 1.0, strict), ("middle", 2.0, middle), ("lax", 3.0, lax))
        if people
    ]


def test_documented_examples_run(tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "variants.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, flags=re.M | re.S)
    assert len(blocks) == page.count("```python") >= 5
    monkeypatch.chdir(tmp_path)
    scope = {}
    with warnings.catch_warnings():
        for block in blocks:
            exec(compile(block, "docs/variants.md", "exec"), scope)
