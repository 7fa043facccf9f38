"""Votes of several sites become one vote file with weights and accounts by id; unsuitable files are refused."""

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.votes import read_votes
from ipate.errors import InputError
from ipate.parties.exchange import read_site_votes
from ipate.parties.merge import merge
from ipate.people.budgets import read_groups
from parties.making import queries, read_file, send, write_file

NORTH = {"high": (1.0, 1e-5, 3), "low": (3.0, 1e-5, 2)}
SOUTH = {"high": (2.0, 1e-6, 4), "low": (8.0, 1e-5, 1)}
WEST = {"all": (3.0, 1e-5, 5)}
SITES = {"north": NORTH, "south": SOUTH, "west": WEST}


def mu_of(epsilon, delta):
    """Solve the definition of μ-GDP for the μ that is equivalent to (ε, δ)."""

    def left(mu):
        return norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2) - delta

    return brentq(left, 1e-3, 50, xtol=1e-13)


@pytest.fixture
def asked(tmp_path):
    return queries(tmp_path)


@pytest.fixture
def files(tmp_path, asked):
    return {
        site: send(tmp_path, site, budgets, asked, seed=place) for place, (site, budgets) in enumerate(SITES.items())
    }


def merge_files(files, **options):
    return merge([read_site_votes(path) for path in files.values()], **options)


def test_weights_follow_budgets_and_sum_to_teachers(files):
    merged = merge_files(files)
    wanted = {f"{site}/{name}": mu_of(e, d) for site, groups in SITES.items() for name, (e, d, _) in groups.items()}
    teachers = {f"{site}/{name}": many for site, groups in SITES.items() for name, (*_, many) in groups.items()}
    total = sum(wanted[name] * teachers[name] for name in wanted)
    assert {g.id: g.weight for g in merged.groups} == pytest.approx(
        {n: w * 15 / total for n, w in wanted.items()}, rel=1e-6
    )
    assert merged.weights.sum() == pytest.approx(15)
    assert {g.id: g.teachers for g in merged.groups} == teachers


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_order_of_files_changes_nothing(files, tmp_path, order):
    first, other = tmp_path / "first", tmp_path / "other"
    merge_files(files).write(first)
    paths = list(files.values())
    merge([read_site_votes(paths[place]) for place in order]).write(other)
    for name in ("votes.npz", "groups.csv", "sites.json"):
        assert (first / name).read_bytes() == (other / name).read_bytes()


def test_votes_keep_group_weight_and_budget(files, tmp_path):
    """Each row of the merged file has the group, weight and budget that its site declared."""
    merged = merge_files(files)
    merged.write(tmp_path / "merged")
    votes, rows = read_votes(tmp_path / "merged" / "votes.npz"), read_groups(tmp_path / "merged" / "groups.csv")
    panel = Panel.from_votes(votes, [(r.group, r.epsilon, r.delta, r.sensitivity) for r in rows], weights=votes.weights)
    row = 0
    for site in sorted(SITES):
        cast, manifest, _ = read_file(files[site])
        for own, teacher in zip(cast, manifest["teachers"], strict=True):
            declared = next(g for g in manifest["groups"] if g["id"] == teacher["group"])
            group = panel.groups[panel.member[row]]
            assert (group.id, group.epsilon, group.delta) == (declared["id"], declared["epsilon"], declared["delta"])
            assert group.sensitivity == votes.weights[row]
            np.testing.assert_array_equal(votes.votes[row], own)
            row += 1
    assert row == votes.n_teachers
    assert (tmp_path / "merged").stat().st_mode & 0o077 == 0


def test_equal_group_names_share_no_account_by_default(tmp_path, asked):
    one = send(tmp_path, "a", {"high": (1.0, 1e-5, 2)}, asked)
    other = send(tmp_path, "b", {"high": (1.0, 1e-5, 3), "low": (1.0, 1e-6, 1)}, asked)
    files = [read_site_votes(one), read_site_votes(other)]
    assert [g.id for g in merge(files).groups] == ["a/high", "b/high", "b/low"]
    merged = merge(files, merge_equal=True)
    assert [(g.teachers, g.sites, g.delta) for g in merged.groups] == [(5, ("a", "b"), 1e-5), (1, ("b",), 1e-6)]
    assert not any("/" in g.id for g in merged.groups)
    np.testing.assert_allclose(merged.weights, merge(files).weights, rtol=1e-12)


@settings(max_examples=25)
@given(
    budgets=st.lists(
        st.tuples(st.floats(0.1, 10), st.sampled_from([1e-6, 1e-5]), st.integers(1, 4)), min_size=2, max_size=6
    ),
    rule=st.sampled_from(["gdp", "proportional", "classic"]),
)
def test_larger_budget_never_weighs_less(tmp_path_factory, budgets, rule):
    folder = tmp_path_factory.mktemp("sites")
    asked = queries(folder, n=3)
    files = [read_site_votes(send(folder, f"s{i}", {"g": budget}, asked)) for i, budget in enumerate(budgets)]
    merged = merge(files[::-1], rule=rule)
    assert float(sum(map(Fraction, merged.weights.tolist()))) == pytest.approx(len(merged.weights))
    for one, other in itertools.permutations(merged.groups, 2):
        if one.epsilon >= other.epsilon and one.delta >= other.delta:
            assert one.weight >= other.weight * (1 - 1e-9)


def test_stated_composition_covers_person_at_two_sites(tmp_path, asked):
    """The GDP budgets of a person at two sites add up, and the stated (ε, δ) covers their sum."""
    for first, second in itertools.product([(0.5, 1e-6), (1.0, 1e-5), (3.0, 1e-5)], repeat=2):
        mu = mu_of(*first) + mu_of(*second)
        epsilon, delta = first[0] + second[0], first[1] + math.exp(first[0]) * second[1]
        true = norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2)
        assert true <= delta


def altered(path, change):
    votes, manifest, _ = read_file(path)
    change(manifest)
    return write_file(path, manifest, votes)


def test_votes_on_other_queries_are_refused(files, tmp_path, asked):
    (tmp_path / "elsewhere").mkdir()
    others = queries(tmp_path / "elsewhere", seed=10)
    files["south"] = send(tmp_path, "south", SOUTH, others)
    with pytest.raises(InputError, match=r"south\.npz: is for the queries .*north\.npz.*let it vote again"):
        merge_files(files)
    with pytest.raises(InputError, match=r"south\.npz: is for the queries .*your queries file"):
        merge_files(files, queries=asked)
    with pytest.raises(InputError, match=r"north\.npz: is for the queries .*your queries file"):
        merge_files({"north": files["north"]}, queries=others)


def test_duplicate_site_is_refused(files, tmp_path, asked):
    (tmp_path / "elsewhere").mkdir()
    files["again"] = send(tmp_path / "elsewhere", "north", NORTH, asked, seed=5, fit="another")
    with pytest.raises(InputError, match=r"north\.npz: duplicate site 'north', which is also the site of .*north\.npz"):
        merge_files(files)


def test_same_teachers_under_another_name_are_refused(files, tmp_path, asked):
    files["copy"] = send(tmp_path, "copy", NORTH, asked, fit="mark of north")
    with pytest.raises(InputError, match=r"holds the teachers of .* under another name"):
        merge_files(files)


DIFFERENT = {
    "classes": (lambda e: e.update(classes=["ill", "well"]), "its classes are"),
    "features": (lambda e: e.update(features=["bmi", "age"]), "its features are"),
    "bounds": (lambda e: e.update(bounds=[[0, 100], [10, 60]]), "its bounds of feature 'bmi'"),
    "no bounds": (lambda e: e.update(bounds=None), "one has bounds"),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_different_encoding_is_refused_and_named(files, case):
    change, words = DIFFERENT[case]
    altered(files["west"], lambda manifest: change(manifest["encoding"]))
    with pytest.raises(InputError, match=rf"west\.npz: its encoding differs from that of .*{words}"):
        merge_files(files)


def test_unknown_rule_and_no_files_are_refused(files):
    with pytest.raises(InputError, match="'algorithm2': allowed are gdp, proportional, classic, uniform"):
        merge_files(files, rule="algorithm2")
    with pytest.raises(InputError, match="there are no vote files"):
        merge([])


def test_rewritten_file_is_detected_only_by_fingerprint(files):
    """If a budget is edited and hashed again, only a fingerprint from a separate channel detects it."""
    true = {site: read_site_votes(path).fingerprint for site, path in files.items()}
    expected = [f"{site}={number}" for site, number in true.items()]
    assert merge_files(files, expect=expected).checked
    altered(files["south"], lambda manifest: manifest["groups"][1].update(epsilon=80.0))
    assert not merge_files(files).checked
    for expect in (expected, list(true.values())):
        with pytest.raises(InputError, match=r"south\.npz: its fingerprint is .* not the one expected of site 'south'"):
            merge_files(files, expect=expect)


def test_expected_fingerprints_cover_every_file_and_site(files):
    true = {site: read_site_votes(path).fingerprint for site, path in files.items()}
    with pytest.raises(InputError, match=r"south\.npz"):
        merge_files(files, expect=[f"north={true['north']}"])
    swapped = [f"north={true['south']}", f"south={true['north']}", f"west={true['west']}"]
    with pytest.raises(InputError, match=r"north\.npz"):
        merge_files(files, expect=swapped)
    everyone = [f"{site}={number}" for site, number in true.items()]
    with pytest.raises(InputError, match="site 'east', and there is no file"):
        merge_files(files, expect=[*everyone, f"east={true['west']}"])
    with pytest.raises(InputError, match="no file has this fingerprint"):
        merge_files(files, expect=[*everyone, "0" * 64])
    with pytest.raises(InputError, match="64 hex digits"):
        merge_files(files, expect=["north=abc"])
    spelled = [" ".join(number[i : i + 4] for i in range(0, 64, 4)).upper() for number in true.values()]
    assert merge_files(files, expect=spelled).checked


def test_record_lists_sites_and_fingerprints(files, tmp_path):
    merge_files(files).write(tmp_path / "merged")
    facts = json.loads((tmp_path / "merged" / "sites.json").read_text())
    assert {site["site"]: site["fingerprint"] for site in facts["sites"]} == {
        site: read_site_votes(path).fingerprint for site, path in files.items()
    }
    with pytest.raises(InputError, match="already exists"):
        merge_files(files).write(tmp_path / "merged")
