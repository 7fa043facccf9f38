"""Budgets are public inputs, but a group of fewer than five people is not counted, before a run as after it.

Finding under "the largest risks", 1: groups below a minimum size must not be printed.
"""

import json

import pytest

from attacks.making import AGREED, CONFIG, ipate, write_csv
from ipate.people.budgets import Budget, Group
from ipate.people.grouping import merge_groups


def strict_few(folder):
    """Return the configuration of a file in which four people, some of them in the pool, have the strictest ε."""
    file = write_csv(folder / "people.csv")
    lines = file.read_text().splitlines()
    changed = [
        line.rsplit(",", 1)[0] + ",7.0" if number in (1, 41, 81, 121) else line for number, line in enumerate(lines)
    ]
    file.write_text("\n".join(changed) + "\n")
    config = folder / "run.toml"
    config.write_text(CONFIG.format(file=file, split_seed=0, person='person = "id"\n', agreed=AGREED, labelling=""))
    return config


@pytest.mark.parametrize("options", [["plan"], ["run", "--dry-run"]], ids=lambda options: options[0])
def test_plan_does_not_count_small_groups(tmp_path, options):
    config = strict_few(tmp_path)
    shown = ipate(options[0], config, *options[1:])
    stated = ipate(options[0], config, *options[1:], "--json")
    assert (shown.code, stated.code) == (0, 0)
    rows = [line for line in shown.out.splitlines() if "eps=7" in line and "1e-05" in line]
    assert rows
    assert all("under 5" in row for row in rows)
    assert counts(json.loads(stated.out)) & {1, 2, 3, 4, "under 5"} == {"under 5"}


@pytest.mark.parametrize("voting", ["teachers", "ballots"])
def test_total_does_not_tell_a_small_group(tmp_path, voting):
    """The total less the other groups, or a share of them, would be the size of the small group."""
    config = strict_few(tmp_path)
    fixed = 'variant = "standard"\naggregator = "gnmax"\nsigma = 2.0'
    given = config.read_text().replace(fixed, f'voting = "{voting}"')
    config.write_text(given.replace("number = 8\n", "") if voting == "ballots" else given)
    ran = ipate("run", config, "--out", tmp_path / "out", "--json")
    assert ran.code == 0, ran.err
    stated = json.loads(ran.out)["publishable"]
    report = json.loads((tmp_path / "out" / "public" / "report.json").read_text())["publishable"]
    kept = json.loads((tmp_path / "out" / "public" / "guarantee.json").read_text())
    assert stated["people"] == report["data"]["people"] == 100
    for groups in (stated["groups"], report["groups"], kept["groups"]):
        assert {group["people"] for group in groups} == {"under 5", "5 or more"}
    assert all(
        group[name] is None for group in report["groups"] for name in ("people_share", "vote_share", "influence")
    )
    if voting == "ballots":
        assert stated["ballots"]["weight"] is None
        assert kept["ballots"]["weight"] is None
        assert "All ballots together weigh" not in report["labelling"]["ending"]
    table = ipate("run", config, "--out", tmp_path / "table", "--fresh-ledger")
    assert "all ballots together weigh" not in table.out
    assert "5 or more" in table.out


def counts(found):
    """Return every number of people in a JSON object."""
    if isinstance(found, dict):
        own = {value for name, value in found.items() if name == "people" and not isinstance(value, dict | list)}
        return own.union(*map(counts, found.values()))
    return set().union(*map(counts, found)) if isinstance(found, list) else set()


def test_merged_few_are_not_counted_in_the_note():
    groups = [
        Group(id=str(place), budget=Budget(1.0 + place, 1e-5), people=100 if place < 2 else 3) for place in range(3)
    ]
    _, notes = merge_groups(groups, max_groups=2, min_group_size=5)
    assert "under 5 of 203 people count with a smaller" in notes[0]
    assert "on average" not in notes[0]  # it is their number times the difference, over 203
