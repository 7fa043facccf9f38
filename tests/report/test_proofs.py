"""The claims of a report name the proofs that carry them, where there is a claim."""

from dataclasses import replace
from pathlib import Path

import pytest

from ipate.engines.ballots import wording as ballots
from ipate.engines.teachers import wording as teachers
from ipate.release.description import DesignFacts, Manner
from ipate.report.facts import for_audience
from ipate.report.page import page, proofs, where_proven
from report.examples import facts

ROOT = Path(__file__).resolve().parents[2]
FILTER, BALLOTS, PTR = (f"docs/proofs/{name}.md" for name in ("filter", "ballots", "ptr"))


def of(*, manner=teachers.manner, **parameters):
    found = facts()
    used = replace(found.parameters, **parameters)
    return for_audience(replace(found, parameters=used, manner=manner(used)), "public")


def with_test(fallback):
    return of(design=DesignFacts(queries=100, likely=0.99, reserve=0.1, reference="x", digest="y", fallback=fallback))


@pytest.mark.parametrize(
    ("found", "pages"),
    [
        (of(), (FILTER,)),
        (of(manner=ballots.manner), (BALLOTS, FILTER)),
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


def test_parts_from_outside_are_called_not_proven():
    used = facts().parameters
    for manner in (Manner(outside=("engine toy",)), teachers.manner(used, outside=("bound dearer",))):
        found = replace(facts(), manner=manner)
        assert proofs(found) == ()
        assert f"From outside, not proven: {manner.outside[0]}." in page(found)
        assert where_proven(found) == ""


def test_engine_that_describes_nothing_has_a_report():
    html = page(replace(facts(), manner=Manner(outside=("engine toy",))))
    assert "No program that recomputes them covers this engine." in html
    assert not any(word in html for word in ("ballot", "taught", "teachers agree"))


def test_page_names_proofs_of_promises_alone():
    assert FILTER in page(of())
    for found in (facts(bound="tight"), facts(seeded=True), facts(stopped_by="other")):
        shown = for_audience(found, "public")
        assert where_proven(shown) == ""
        assert "docs/proofs" not in page(shown)
