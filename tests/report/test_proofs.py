"""The claims of a report name the proofs that carry them, where there is a claim."""

from dataclasses import replace
from pathlib import Path

import pytest

from ipate.report.facts import DesignFacts, for_audience
from ipate.report.page import page
from ipate.report.proofs import BALLOTS, FILTER, PTR, proofs, where_proven
from report.examples import facts

ROOT = Path(__file__).resolve().parents[2]


def of(**parameters):
    found = facts()
    return for_audience(replace(found, parameters=replace(found.parameters, **parameters)), "public")


def with_test(fallback):
    return of(design=DesignFacts(queries=100, likely=0.99, reserve=0.1, reference="x", digest="y", fallback=fallback))


@pytest.mark.parametrize(
    ("found", "pages"),
    [
        (of(), (FILTER,)),
        (of(voting="ballots"), (BALLOTS, FILTER)),
        (with_test(fallback=False), (PTR,)),
        (with_test(fallback=True), (PTR, FILTER)),
    ],
    ids=["teachers", "ballots", "ptr", "ptr with a fallback"],
)
def test_every_claim_names_existing_proofs(found, pages):
    assert proofs(found) == pages
    for name in pages:
        assert (ROOT / name).is_file()
        assert name in where_proven(found)
    assert found.versions["ipate"] in where_proven(found)


def test_page_names_proofs_of_promises_alone():
    assert FILTER in page(of())
    for found in (facts(bound="tight"), facts(seeded=True), facts(stopped_by="other")):
        shown = for_audience(found, "public")
        assert where_proven(shown) == ""
        assert "docs/proofs" not in page(shown)
