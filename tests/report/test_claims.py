"""The sentences that state a guarantee, for each bound, stopping rule, and secure or seeded noise."""

import itertools
import json
import math
import re
from dataclasses import asdict, replace

import pytest

from ipate.allocation.layout import Merge
from ipate.engines.ballots import wording as ballots
from ipate.release.description import DesignFacts
from ipate.release.results import SEEDED
from ipate.report import claims
from ipate.report import odds as spending
from ipate.report.claims import assured, person_of
from ipate.report.facts import for_audience
from ipate.report.questions import layers_of
from ipate.report.registry import registry_record
from report.examples import COSTS, facts, group

DATA_INDEPENDENT = ("loose", "gdp", "sup")
BOUNDS = (*DATA_INDEPENDENT, "tight", "exact")
CASES = list(itertools.product(BOUNDS, ("fixed", "account", "other"), (False, True), ("public", "private")))


def sentences(found):
    return " ".join(
        [
            claims.headline(found),
            *claims.summary(found),
            *(sentence for _, sentence in claims.promises(found)),
            *claims.covered(found),
            *claims.public_facts(found),
            *claims.not_covered(found),
        ]
    )


@pytest.mark.parametrize(("bound", "stopped_by", "seeded", "audience"), CASES)
def test_promise_is_made_only_with_a_guarantee(bound, stopped_by, seeded, audience):
    found = for_audience(facts(bound=bound, stopped_by=stopped_by, seeded=seeded), audience)
    releasable = bound in DATA_INDEPENDENT and stopped_by != "other"
    assert found.guarantee.kind == ("none" if seeded else "releasable" if releasable else "private")
    said = sentences(found)
    promised = [claims.promised_epsilon(found, entry) for entry in found.groups]
    if releasable and not seeded:
        assert promised == [1.0, 3.0]
        assert "at most a factor 2.72 (ε = 1), except for a chance of δ = 10⁻⁵" in said
        assert "at most a factor 20.1 (ε = 3)" in said
        assert "promised nothing" not in said
        assert claims.covered(found)
        assert claims.headline(found).startswith("Every person keeps")
    else:
        assert promised == [None, None]
        assert "at most a factor 2.72" not in said
        assert "Every person keeps" not in said
        assert claims.covered(found) == ()
        assert claims.headline(found).startswith("No ")
    assert (SEEDED in claims.marks(found)) is seeded
    assert ("the noise of this run was seeded" in said) is seeded
    assert any(mark.startswith("PRIVATE") for mark in claims.marks(found)) is (audience == "private")


@pytest.mark.parametrize(("bound", "stopped_by", "seeded", "audience"), CASES)
def test_sentences_contain_only_public_numbers(bound, stopped_by, seeded, audience):
    """A claim may contain budgets, δ, sizes and, where it is the promise itself, a releasable cost."""
    found = for_audience(facts(bound=bound, stopped_by=stopped_by, seeded=seeded), audience)
    said = sentences(found)
    for number in ("0.9876", "0.98", "2.91", "471", "623", "0.81", "81.2", "76.5", "65.4", "87.6", "77777"):
        assert number not in said


def test_headline_counts_people_without_protection():
    found = for_audience(replace(facts(), unprotected=5000), "public")
    assert claims.headline(found).startswith("120 of 5,120 people are protected")
    assert claims.headline(found).endswith("5,000 were used as public or test data without protection")
    assert any(line.startswith("5,000 people of the same data") for line in claims.not_covered(found))
    assert any("Nothing here protects the choice of a budget" in line for line in claims.public_facts(found))
    assert any("docs/sharp-edges.md" in line for line in claims.not_covered(found))


@pytest.mark.parametrize(
    ("bound", "stopped_by", "says"),
    [
        ("exact", "fixed", "describe this data set alone"),
        ("tight", "fixed", "describe this data set alone"),
        ("exact", "account", "also decided when to stop"),
        ("tight", "other", "also decided when to stop"),
        ("gdp", "other", "something other than this account decided when to stop"),
    ],
)
def test_owner_report_explains_the_missing_guarantee(bound, stopped_by, says):
    found = for_audience(facts(bound=bound, stopped_by=stopped_by), "private")
    assert says in claims.withheld(found)
    assert "no guarantee" in claims.withheld(found) or "not a differential privacy guarantee" in claims.withheld(found)


def test_public_report_explains_withholding_without_revealing_ending():
    texts = {claims.withheld(for_audience(facts(bound="exact", stopped_by=s), "public")) for s in ("fixed", "account")}
    assert len(texts) == 1
    (text,) = texts
    assert "no costs, no number of labels" in text
    assert "should not be published" in text


def test_cost_is_promised_only_without_random_releases():
    without = for_audience(facts(stopped_by="fixed", check=False), "public")
    assert [claims.promised_epsilon(without, entry) for entry in without.groups] == [COSTS["high"], COSTS["low"]]
    assert "the promise is the cost" in " ".join(claims.summary(without))
    assert "(ε = 0.9877)" in claims.promise(without, without.groups[0])
    checked = for_audience(facts(stopped_by="fixed"), "public")
    assert [claims.promised_epsilon(checked, entry) for entry in checked.groups] == [1.0, 3.0]
    assert "rely on is the budget" in " ".join(claims.summary(checked))


def test_dropped_group_is_named_when_pool_ends():
    found = facts(stop="drop")
    first, *rest = found.outcome.groups
    outcome = replace(found.outcome, ended="pool", groups=(replace(first, labels_until_exhausted=40), *rest))
    assert "nobody's budget was, but for high, who had left by then" in spending.ending(found, outcome)


@pytest.mark.parametrize("ended", ["pool", "budget"])
def test_labels_after_failed_test_use_kept_budget(ended):
    design = DesignFacts(queries=90, reference="a guess", reserve=0.1, likely=0.9, fallback=True, digest="d")
    found = facts(bound="ptr", stopped_by="fixed")
    found = replace(found, parameters=replace(found.parameters, design=design))
    said = spending.ending(found, replace(found.outcome, ended=ended, passed=False))
    assert "paid for by the part of the budgets that had been kept for that case" in said
    assert "nobody's budget" not in said
    assert "could have passed" not in said


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, math.log(2), 3.0, 8.0, 25.0])
def test_printed_promise_never_exceeds_the_guarantee(epsilon):
    found = for_audience(facts(groups=(group("only", budget=epsilon),)), "public")
    said = claims.promise(found, found.groups[0])
    factor = re.search(r"factor ([\d.]+)(?:·10([⁰¹²³⁴⁵⁶⁷⁸⁹]+))?", said)
    power = int((factor[2] or "0").translate(str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")))
    assert math.exp(epsilon) * (1 - 1e-9) <= float(factor[1]) * 10**power <= math.exp(epsilon) * 1.011
    low, high = re.search(r"between ([\d.·⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)% and ([\d.]+)(?:…)?%", said).groups()
    if "·" not in low and "10⁻" not in low:
        assert float(low) <= 10 * math.exp(-epsilon) + 1e-9
    most = min(10 * math.exp(epsilon), 100 - 90 * math.exp(-epsilon))  # by the promise for the outcome or its opposite
    assert float(high) >= min(most, 99.9)
    assert ("weak promise" in said) is (epsilon > 10)


def test_only_strictest_groups_are_listed_in_full():
    many = tuple(group(f"g{index}", budget=1 + index) for index in reversed(range(20)))
    found = for_audience(facts(groups=many, costs=[0.1] * 20), "public")
    assert [name for name, _ in claims.promises(found)][:3] == ["g0", "g1", "g2"]
    assert len(claims.promises(found)) == 12


def test_chosen_budgets_are_not_called_levels():
    found = replace(facts(), levels=False)
    assert claims.promise(found, found.groups[0]).startswith("A person of group high: whatever anyone learns")
    assert claims.promise(facts(), found.groups[0]).startswith("A person at level high: whatever anyone learns")


def test_merged_and_withdrawn_people_are_counted():
    found = replace(facts(), merged=(Merge(group="tiny", into="high", people=20),), withdrawn=1)
    said = " ".join(claims.covered(found))
    assert "20 people of group tiny count with the stricter group high" in said
    assert "1 people withdrew" not in said
    assert "1 person withdrew" in said


def test_cast_ballots_of_people_who_left_stay_counted():
    found = replace(facts(), withdrawn=2, manner=ballots.manner(facts().parameters))
    said = " ".join((*claims.covered(found), *claims.public_facts(found), *claims.leaving(found)))
    assert "a ballot that was cast by then is in the histogram and stays there" in said
    assert "after it the histogram stays as it is" in said
    assert "their ballot stays in the histogram if that was released with it" in said
    for false in ("places stay empty", "their ballots are empty", "ballot stays empty"):
        assert false not in said


def test_ending_and_budget_use_are_described():
    found = facts()
    outcome = found.outcome
    assert "623 of 1,000 points were asked about and 471 got a label" in spending.ending(found, outcome)
    assert "could have passed the budget" in spending.ending(found, outcome)
    assert "pool was used up" in spending.ending(found, replace(outcome, ended="pool"))
    assert "nobody was left" in spending.ending(facts(stop="drop"), outcome)
    fixed = facts(stopped_by="fixed")
    assert "fixed beforehand (999)" in spending.ending(fixed, fixed.outcome)
    assert "between 97.0% and 98.7%" in spending.balance(outcome.groups)
    uneven = facts(costs=[1.0, 1.5])
    assert "Group high used 100.0% of its budget and group low 50.0%" in spending.balance(uneven.outcome.groups)
    one = facts(groups=(group("only", budget=2.0),))
    assert spending.balance(one.outcome.groups) == "50.0% of the budget was used."
    none = facts(costs=[0.0, 0.0])
    assert spending.balance(none.outcome.groups) == "No budget was used."


@pytest.mark.parametrize("epsilon", [0.1, math.log(2), 1.0, 3.0, 12.0, 800.0])
def test_meaning_of_level_equals_the_report_sentence(epsilon):
    said = assured(person_of("high", levels=True), epsilon, 1e-5)
    report = facts(groups=(group("high", budget=epsilon),))
    assert said == claims.promise(report, report.groups[0])
    factor = re.search(r"at most a factor (\S+) \(ε", said).group(1).replace(",", "")
    if epsilon < 700:
        assert factor.startswith("10") or float(factor) >= math.exp(epsilon) * (1 - 1e-12)
    assert ("weak promise" in said) == (epsilon > 10)
    assert "A person of group eps=1:" in assured(person_of("eps=1", levels=False), 1.0, 1e-5)


def test_copied_people_are_not_called_disjoint():
    copied = replace(group("low", budget=3.0), copies=3)
    for own, said in ((facts(), "disjoint sets"), (facts(groups=(group("high", budget=1.0), copied)), "at most 3 of")):
        told = json.dumps([asdict(layer) for layer in layers_of(own)]) + json.dumps(registry_record(own))
        assert told.count(said) == 2
        assert ("disjoint" in told) is (said == "disjoint sets")


@pytest.mark.parametrize("by_row", [False, True])
def test_report_says_whether_rows_count_as_people(by_row):
    found = for_audience(replace(facts(), by_row=by_row), "public")
    unit = next(layer for layer in layers_of(found) if layer.name == "The unit of privacy")
    loss = registry_record(found)["deployment"]["privacy_loss"]
    for text in (" ".join(claims.covered(found)), " ".join(unit.did), loss["privacy_unit_details"]):
        assert ("every row was counted as a person of its own" in text) is by_row
        assert ("All rows of one person count together" in text) is not by_row
    assert loss["privacy_unit"] == ("Row" if by_row else "Person")
