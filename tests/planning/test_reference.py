"""Public references: the simulator, the hash of votes, and the checks of a design before its use."""

from dataclasses import replace

import numpy as np
import pytest

from ipate.accounting.ladder import hash_queries, make_design, most_queries
from ipate.engines.teachers.aggregators import Mechanism
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.reference import Simulator, simulated_profile, votes_profile
from ipate.engines.teachers.tested import (
    check_design,
    on_lattice,
    query_ids,
    refuse_own_votes,
    setting_for,
    votes_hash,
)
from ipate.engines.teachers.votes import Votes
from ipate.errors import InputError

MECHANISM = Mechanism(sigma=40.0, check_sigma=150.0, threshold=200.0)
SIMULATOR = Simulator(accuracy=0.95, spread=1.0, queries=60)
ORDERS = (2.0, 6.0, 16.0)


def panel(weights=None, sensitivity=None, teachers=250):
    votes = Votes(votes=np.zeros((teachers, 1), int), n_classes=2, groups=("all",) * teachers)
    return Panel.from_votes(votes, [("all", 1.0, 1e-5, sensitivity)], weights=weights)


def designed():
    spec = setting_for(panel(), MECHANISM, n_classes=10, orders=ORDERS)
    profile = simulated_profile(spec, panel(), SIMULATOR)
    ids = tuple(f"q{i}" for i in range(50))
    return spec, ids, make_design(profile, n_queries=50, queries_hash=hash_queries(ids), reserve=0.1)


@pytest.mark.parametrize(("accuracy", "spread"), [(0.9, 2.0), (0.6, 0.0), (0.99, 1.0)])
def test_simulated_teachers_have_the_stated_accuracy(accuracy, spread):
    votes = Simulator(accuracy=accuracy, spread=spread, queries=4000).votes(n_teachers=60, n_classes=10)
    assert float(np.mean(np.asarray(votes.votes) == votes.labels)) == pytest.approx(accuracy, abs=0.015)


def test_wrong_votes_follow_the_confusion_order():
    votes = Simulator(accuracy=0.5, spread=0.0, confusion=0.6, queries=3000).votes(n_teachers=200, n_classes=4)
    counts = np.stack([(votes.votes == c).sum(axis=0) for c in range(4)], axis=1).astype(float)
    counts[np.arange(3000), votes.labels] = -1
    shares = np.sort(counts, axis=1)[:, :0:-1].mean(axis=0) / 100
    assert shares == pytest.approx([0.6, 0.24, 0.16], abs=0.02)
    votes = Simulator(accuracy=0.5, spread=0.0, queries=500).votes(n_teachers=50, n_classes=2)
    assert set(np.unique(votes.votes)) == {0, 1}


def test_larger_spread_gives_more_varied_majorities():
    tops = []
    for spread in (0.0, 3.0):
        votes = Simulator(accuracy=0.9, spread=spread, queries=2000).votes(n_teachers=100, n_classes=10)
        tops.append(np.std((np.asarray(votes.votes) == votes.labels).mean(axis=0)))
    assert tops[1] > 3 * tops[0]


def test_simulator_is_deterministic_for_one_seed():
    one, again = (SIMULATOR.votes(n_teachers=20, n_classes=10) for _ in range(2))
    assert votes_hash(one) == votes_hash(again)
    assert votes_hash(one) != votes_hash(replace(SIMULATOR, seed=1).votes(n_teachers=20, n_classes=10))
    assert "seed 0" in str(SIMULATOR)


@pytest.mark.parametrize(
    "values",
    [{"accuracy": 1.0}, {"confusion": 0.0}, {"spread": -1.0}, {"spread": np.nan}, {"queries": 0}, {"seed": -1}],
)
def test_invalid_simulator_parameters_are_refused(values):
    with pytest.raises(InputError, match=next(iter(values))):
        replace(SIMULATOR, **values)


def test_votes_hash_ignores_order_of_teachers_and_queries():
    votes = SIMULATOR.votes(n_teachers=20, n_classes=10)
    rng = np.random.default_rng(0)
    mixed = votes.votes[rng.permutation(20)][:, rng.permutation(60)]
    assert votes_hash(replace(votes, votes=mixed, labels=None)) == votes_hash(votes)
    changed = votes.votes.copy()
    changed[0, 0] = (changed[0, 0] + 1) % 10
    assert votes_hash(replace(votes, votes=changed)) != votes_hash(votes)


def test_design_made_from_same_votes_is_refused():
    _, _, design = designed()
    own = SIMULATOR.votes(n_teachers=250, n_classes=10)
    with pytest.raises(InputError, match="very votes"):
        refuse_own_votes(design, own)
    refuse_own_votes(design, replace(SIMULATOR, seed=7).votes(n_teachers=250, n_classes=10))


def test_design_for_another_labelling_is_refused():
    spec, ids, design = designed()
    check_design(design, spec, ids)
    for other in (replace(spec, sigma=41.0), replace(spec, threshold=None, check_sigma=None), replace(spec, grid=2.0)):
        with pytest.raises(InputError, match="made for"):
            check_design(design, other, ids)
    group = spec.groups[0]
    for changed in (replace(group, epsilon=2.0), replace(group, sensitivity=2.0), replace(group, delta=1e-6)):
        with pytest.raises(InputError, match="other figures"):
            check_design(design, replace(spec, groups=(changed,)), ids)
    with pytest.raises(InputError, match="not in the setting"):
        check_design(design, replace(spec, groups=(replace(group, id="other"),)), ids)
    with pytest.raises(InputError, match="other queries"):
        check_design(design, spec, ids[::-1])
    with pytest.raises(InputError, match="other queries"):
        check_design(design, spec, ids[:-1])


def test_design_with_an_extra_group_is_refused():
    spec, ids, _ = designed()
    two = replace(spec, groups=(*spec.groups, replace(spec.groups[0], id="other")))
    profile = simulated_profile(two, panel(), SIMULATOR)
    wider = make_design(profile, n_queries=50, queries_hash=hash_queries(ids), reserve=0.1)
    with pytest.raises(InputError, match="groups that the run does not"):
        check_design(wider, spec, ids)


def test_setting_finds_grid_of_the_weights():
    whole = setting_for(panel(), MECHANISM, n_classes=10)
    assert (whole.grid, whole.lattice, whole.total_weight) == (1.0, 1.0, 250.0)
    real = setting_for(panel(np.full(250, 0.7)), MECHANISM, n_classes=10)
    assert (real.grid, real.lattice) == (0.25, 2.0**-8)
    assert (real.groups[0].sensitivity, real.total_weight) == (180 / 256, 250 * 179 / 256)
    many = setting_for(panel(np.full(3000, 0.7), teachers=3000), MECHANISM, n_classes=10)
    assert many.lattice == 2.0**-6
    copies = setting_for(panel(sensitivity=3.0), MECHANISM, n_classes=10)
    assert (copies.grid, copies.lattice, copies.steps(copies.groups[0])) == (1.0, 1.0, 3)
    part = setting_for(panel(sensitivity=1.5), MECHANISM, n_classes=10)
    assert (part.grid, part.lattice, part.groups[0].sensitivity) == (0.25, 2.0**-8, 1.5)


def test_lattice_rounds_weights_down_and_sensitivities_up():
    fine = on_lattice(panel(np.full(250, 0.7)), 2.0**-6)
    assert set(fine.weights) == {44 / 64}
    assert fine.groups[0].sensitivity == 45 / 64
    again = on_lattice(fine, 2.0**-6)
    assert (again.weights == fine.weights).all()
    assert again.groups == fine.groups


def test_mechanism_without_envelope_is_refused():
    votes = Votes(votes=np.zeros((4, 2), int), n_classes=2, groups=("all",) * 4, participation=np.ones((4, 2), bool))
    turns = Panel.from_votes(votes, [("all", 1.0, 1e-5, None)])
    with pytest.raises(InputError, match="take turns"):
        setting_for(turns, MECHANISM, n_classes=2)
    with pytest.raises(InputError, match="laplace"):
        setting_for(panel(), Mechanism(sigma=3.0, noise="laplace"), n_classes=2)
    with pytest.raises(InputError, match="moves no weight"):
        setting_for(panel(np.zeros(250), 0.0), MECHANISM, n_classes=2)


def test_reference_with_other_teachers_or_classes_is_refused():
    spec = setting_for(panel(), MECHANISM, n_classes=10, orders=ORDERS)
    with pytest.raises(InputError, match="20 teachers"):
        votes_profile(spec, panel(), SIMULATOR.votes(n_teachers=20, n_classes=10), source="x")
    with pytest.raises(InputError, match="5 classes"):
        votes_profile(spec, panel(), SIMULATOR.votes(n_teachers=250, n_classes=5), source="x")


def test_query_ids_default_to_row_numbers():
    votes = SIMULATOR.votes(n_teachers=3, n_classes=10)
    assert query_ids(votes)[:2] == ("0", "1")
    assert query_ids(replace(votes, queries=tuple("x" * 60)))[0] == "x"


def test_more_accurate_teachers_afford_more_queries():
    spec = setting_for(panel(), MECHANISM, n_classes=10, orders=ORDERS)
    found = [
        most_queries(simulated_profile(spec, panel(), replace(SIMULATOR, accuracy=a)), pool=9000, reserve=0.1)
        for a in (0.8, 0.9, 0.97)
    ]
    assert found == sorted(found)
    assert found[0] < found[-1]
